"""Convert a private call's arguments from the front to Python values: only literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.contract.parameters import fold, is_storable
from dpsql.contract.query import condition
from dpsql.contract.query.nodes import Expr, Query, Show, TableFunction, TableRef, With, query_sql, unpointed
from dpsql.contract.query.tree import is_catalog, read_tree, tables_of
from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway.shape import check_shape
from dpsql.rendering import text

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ITEMS, _DEEPEST, _MOST_TEXT, _MOST_TREE = 10_000, 4, 100_000, 10_000_000
_is_number = re.compile(r"[+-]?(?=[0-9.]*[0-9])[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?").fullmatch


def values_of(arguments: object, sequence_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the arguments of a call by name.

    Parameters
    ----------
    arguments : JSON values
        See `dpsql.gateway.statement.PrivateCall`.
    sequence_of : callable
        Returns the number of a release that the principal may name, or raises.

    Raises
    ------
    GatewayError
        G012: an argument is no literal.
    ParameterError
        P070, P082: the condition is not one expression over the columns of a row.
    """
    if not isinstance(arguments, Mapping) or len(arguments) > 100:
        raise _no_literal()
    allowance = [_MOST_ITEMS]
    return {
        _name(name): _condition(value) if fold(name) == "condition" else _value(value, sequence_of, allowance, _DEEPEST)
        for name, value in arguments.items()
    }


def _condition(value: object) -> str | None:
    """Return a condition's text, written anew from another process's tree."""
    if value is None:
        return None
    tree = value.get("condition") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(tree, str) or len(tree) > _MOST_TREE:
        raise _no_literal()
    return condition.rewrite(tree)


def _value(value: object, sequence_of: Callable[[str], int], allowance: list[int], depth: int) -> object:
    allowance[0] -= 1
    if allowance[0] < 0 or depth < 0:
        raise _no_literal()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_value(element, sequence_of, allowance, depth - 1) for element in value]
    if isinstance(value, Mapping) and len(value) == 1:
        [(kind, inner)] = value.items()
        if kind == "number":
            return _number(inner)
        if kind == "struct" and isinstance(inner, Mapping):
            return {_name(name): _value(element, sequence_of, allowance, depth - 1) for name, element in inner.items()}
        if kind == "release" and isinstance(inner, str):
            return {"release": sequence_of(_text(inner))}
    raise _no_literal()


def _number(literal: object) -> int | Decimal:
    if not isinstance(literal, str) or _is_number(literal) is None:
        raise _no_literal()
    return Decimal(literal) if set(literal) & set(".eE") else int(literal)


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 1000:
        raise _no_literal()
    return _text(name)


def _text(content: str) -> str:
    if len(content) > _MOST_TEXT or not is_storable(content):
        raise _no_literal()
    return content


def _no_literal() -> GatewayError:
    return GatewayError("G012", "an argument is no literal. Write numbers, texts, lists and structs of them.")


def query_of(tree: object, granted: Callable[[str], Sequence[str]]) -> str:
    """Check a query's tree, and return the query's text, written anew from the tree.

    A query names a table of another schema in one part, as the gateway lists it, or in two. Either way the text names
    the granted schema and table, so it cannot mean another table.

    Parameters
    ----------
    tree : str
        Result of ``json_serialize_sql`` in another process.
    granted : callable
        Returns the parts of a name's table; raises unless the principal may query this name, letter for letter.

    Raises
    ------
    GatewayError
        The tree has a refused part, or a name without a grant.
    ParameterError
        P100, P101.
    """
    if not isinstance(tree, str):
        raise _no_literal()
    check_shape(tree)
    query = read_tree(tree)
    for part in _parts(query):
        if isinstance(part, (TableFunction, Show)):
            raise GatewayError("G007", "a query calls no function in FROM. Name a dataset there.")
        if isinstance(part, TableRef) and is_catalog(part.names):
            granted(".".join(part.names))
    meant: dict[tuple[str, str, str], tuple[str, str, str]] = {}
    for names in tables_of(query):
        *schema, table = granted(".".join(filter(None, names)))
        full_name = ("", ".".join(schema), table) if schema else ("", "", table)
        if full_name != names:
            meant[names] = full_name
    if not meant:
        return query_sql(query)
    withs = {fold(part.name) for part in _parts(query) if isinstance(part, With)}
    if any(not names[1] and fold(names[2]) in withs for names in meant):
        raise GatewayError("G014", "a WITH query has the name of a dataset. Name it otherwise.")
    renamed: Query = _renamed(query, meant)
    return query_sql(renamed)


@contextmanager
def standing_in(tree: object, query: str, sql: Callable[[str], pa.Table]) -> Iterator[None]:
    """Set a refusal's position to its place in the sent statement, not in the rewritten one.

    Parameters
    ----------
    tree : str
        Tree of the statement, with positions in characters.
    query : str
        Text from `query_of`.
    sql : callable
        Runs a trusted statement.
    """
    try:
        yield
    except DpsqlError as error:
        unpointed(error)
        if error.offset is not None:
            parsed = sql(f"SELECT json_serialize_sql({text(query)}) AS tree").column("tree")[0].as_py()
            # Both have the same parts in the same order.
            pairs = zip(_exprs(str(tree)), _exprs(parsed), strict=False)
            error.position = next((expression.at for expression, other in pairs if other.at == error.offset), None)
        raise


def _exprs(tree: str) -> list[Expr]:
    return [part for part in _parts(read_tree(tree)) if isinstance(part, Expr)]


def _renamed(node: Any, meant: Mapping[tuple[str, str, str], tuple[str, str, str]]) -> Any:
    """Return a part of a query with renamed tables; old names become aliases."""
    if isinstance(node, tuple):
        return tuple(_renamed(part, meant) for part in node)
    if isinstance(node, TableRef) and node.names in meant:
        one_part = "" if any(node.names[:2]) else node.names[2]
        return replace(node, names=meant[node.names], alias=node.alias or one_part)
    if hasattr(node, "__dataclass_fields__"):
        return replace(node, **{name: _renamed(var, meant) for name, var in vars(node).items()})
    return node


def _parts(query: Query) -> list[object]:
    """Return every node of a query."""
    nodes, todo = [], [query]
    while todo:
        node: object = todo.pop()
        if isinstance(node, (tuple, list)):
            todo += node
        elif hasattr(node, "__dataclass_fields__"):
            nodes.append(node)
            todo += vars(node).values()
    return nodes
