"""Arguments of a private call as they come from the front, made values of Python: literals, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from dpsql.contract.parameters import is_storable
from dpsql.contract.query.nodes import Query, Show, TableFunction, TableRef
from dpsql.contract.query.tree import is_catalog, read_tree, tables_of
from dpsql.contract.query.writer import query_sql
from dpsql.errors import GatewayError
from dpsql.gateway.shape import check_shape

_MOST_ITEMS, _DEEPEST, _MOST_TEXT = 10_000, 4, 100_000
_is_number = re.compile(r"[+-]?(?=[0-9.]*[0-9])[0-9]{0,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?").fullmatch


def values_of(arguments: object, named: Callable[[str], int]) -> dict[str, Any]:
    """Return the arguments of a call by name.

    Parameters
    ----------
    arguments : JSON values
        As of `dpsql.gateway.statement.PrivateCall`.
    named : callable
        Returns the number of a release that the principal may name, or raises.

    Raises
    ------
    GatewayError
        G012: something else than literals.
    """
    if not isinstance(arguments, Mapping) or len(arguments) > 100:
        raise _no_literal()
    left = [_MOST_ITEMS]
    return {_name(name): _value(value, named, left, _DEEPEST) for name, value in arguments.items()}


def _value(value: object, named: Callable[[str], int], left: list[int], depth: int) -> object:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise _no_literal()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_value(one, named, left, depth - 1) for one in value]
    if isinstance(value, Mapping) and len(value) == 1:
        [(kind, inner)] = value.items()
        if kind == "number":
            return _number(inner)
        if kind == "struct" and isinstance(inner, Mapping):
            return {_name(name): _value(one, named, left, depth - 1) for name, one in inner.items()}
        if kind == "release" and isinstance(inner, str):
            return {"release": named(_text(inner))}
    raise _no_literal()


def _number(text: object) -> int | Decimal:
    if not isinstance(text, str) or _is_number(text) is None:
        raise _no_literal()
    return Decimal(text) if set(text) & set(".eE") else int(text)


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 1000:
        raise _no_literal()
    return _text(name)


def _text(text: str) -> str:
    if len(text) > _MOST_TEXT or not is_storable(text):
        raise _no_literal()
    return text


def _no_literal() -> GatewayError:
    return GatewayError("G012", "an argument is no literal. Write numbers, texts, lists and structs of them.")


def query_of(tree: object, granted: Callable[[str], object]) -> str:
    """Return the text of a query, written anew from its tree, after everything in it was checked.

    Parameters
    ----------
    tree : str
        What ``json_serialize_sql`` gave in another process.
    granted : callable
        Raises unless a name, letter for letter, is one that the principal may ask about.

    Raises
    ------
    GatewayError
        What the tree holds is not taken, or names what was not granted.
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
    for catalog, schema, table in tables_of(query):
        granted(".".join(name for name in (catalog, schema, table) if name))
    return query_sql(query)


def _parts(query: Query) -> list[object]:
    """Return every node of a query."""
    found, todo = [], [query]
    while todo:
        node: object = todo.pop()
        if isinstance(node, (tuple, list)):
            todo += node
        elif hasattr(node, "__dataclass_fields__"):
            found.append(node)
            todo += vars(node).values()
    return found
