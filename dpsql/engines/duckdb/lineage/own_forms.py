"""The aggregate forms that dpsql itself installs, told from macros of their names by their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from dpsql.engines.duckdb.lineage.texts import Tree, UnreadableTextError, expression_tree
from dpsql.engines.duckdb.sql_files import macros_sql

if TYPE_CHECKING:
    from dpsql.engines.duckdb.lineage.closure import Macro

_PLACE = frozenset(("query_location", "query_location_length"))


def own_columns(name: str, macros: Iterable[Macro]) -> list[str] | None:
    """Return the parameters that take columns, in their order, of an aggregate form of dpsql; None for any other call.

    Parameters
    ----------
    name : str
        Of the function that is called.
    macros : iterable of Macro
        What the name may stand for.
    """
    bodies = [macro.body for macro in macros if not macro.table]
    columns = _columns(name.lower()) if bodies else ()
    if not columns or any(_meaning(body) != _shipped(name.lower()) for body in set(bodies)):
        return None
    return list(columns)


@cache
def _columns(name: str) -> tuple[str, ...]:
    from dpsql.functions.registry import FUNCTIONS

    if name not in FUNCTIONS:
        return ()
    taken = {argument.column for argument in FUNCTIONS[name].plan.arguments.values()}
    return tuple(column for column in _parameters(name) if column in taken)


@cache
def _forms() -> dict[str, tuple[str, str]]:
    """Return the parameters and the body of every aggregate form, as dpsql ships them."""
    found = re.finditer(
        r"^CREATE OR REPLACE MACRO (dp_\w+)\(\n((?:(?!\n\)).)*)\n\) AS\n(.*?);$",
        macros_sql("MACRO ", "dpsql"),
        re.M | re.S,
    )
    return {one.group(1): (one.group(2), one.group(3)) for one in found}


def _parameters(name: str) -> Iterator[str]:
    """Yield the names of an aggregate form's parameters."""
    listed, _ = _forms().get(name, ("", ""))
    return (part.split(":=")[0].strip().strip('"') for part in listed.split(","))


@cache
def _shipped(name: str) -> Tree:
    return _meaning(_forms()[name][1])


def _meaning(body: str) -> Tree:
    """Return the tree of a body without the places of its words."""
    try:
        return _without_places(expression_tree(body))
    except UnreadableTextError:
        return None


def _without_places(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _without_places(part) for name, part in tree.items() if name not in _PLACE}
    return [_without_places(part) for part in tree] if isinstance(tree, list) else tree
