"""The aggregate forms that dpsql itself installs, told from macros of their names by their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from dpsql.engines.duckdb.lineage.texts import Macro, Tree, UnreadableTextError, expression_tree
from dpsql.engines.duckdb.macros import macros_sql
from dpsql.functions.registry import FUNCTIONS

_PLACE = frozenset(("query_location", "query_location_length"))


def own_columns(name: str, macros: Iterable[Macro]) -> list[str] | None:
    """Return the parameters that take columns, in their order, of an aggregate form of dpsql; None for any other call.

    `macros` are those that the name of the function that is called may stand for.
    """
    bodies = {macro.body for macro in macros if not macro.table}
    columns, shipped = _forms().get(name.lower(), ((), "")) if bodies else ((), "")
    if not columns or any(_meaning(body) != _meaning(shipped) for body in bodies):
        return None
    return list(columns)


@cache
def _forms() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the columns and the body of every aggregate form, as dpsql ships them."""
    pattern = r"^CREATE OR REPLACE MACRO (dp_\w+)\(\n((?:(?!\n\)).)*)\n\) AS\n(.*?);$"
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, listed, body in re.findall(pattern, macros_sql("MACRO ", "dpsql"), re.M | re.S):
        arguments = FUNCTIONS[name].plan.arguments.values() if name in FUNCTIONS else ()
        taken = {argument.column for argument in arguments}
        parameters = (part.split(":=")[0].strip().strip('"') for part in listed.split(","))
        found[name] = tuple(parameter for parameter in parameters if parameter in taken), body
    return found


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
