"""The joins along a table's path to the privacy unit, as they are written into the statement of a call.

They are judged like anything else that a call reads: by the plan that DuckDB binds of them.
"""

from __future__ import annotations

from collections.abc import Collection

from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.declarations import Declarations, Owner
from dpsql.rendering import call, identifier

# Before the query whose plan shows what the joins read.
_PATH = "/* path */ "


def joined_from(path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> str | None:
    """Return the FROM item of a table with the joins along its path, the date's column and the unit's; None without.

    The table's own columns are passed on. Text is compared by its bytes, whatever collation a column or the session
    has; every name is whole, so that nothing of the caller's takes its place.
    """
    owner = declarations.owner(catalog.table(path), path[0])
    if owner is None or not owner.steps:
        return None
    here, joins = "dpsql_rows", []
    for number, step in enumerate(owner.steps):
        parent, there = catalog.path(step.parent), f"dpsql_owner{number}"
        if parent is None:
            return None
        sides = [f"{here}.{identifier(step.column)}", f"{there}.{identifier(step.key)}"]
        ends = [call("encode", side) if step.is_text else side for side in sides]
        joins.append(f" JOIN {_whole(parent)} AS {there} ON {ends[0]} = {ends[1]}")
        here = there
    taken = {fold(column) for one in declarations.about(catalog.table(path), path[0]) for column in one.columns}
    added = []
    for column in dict.fromkeys((owner.date, owner.unit)):
        if column is not None:
            name = _free_name(column, owner, taken)
            taken.add(fold(name))
            added.append(f"{here}.{identifier(column)} AS {identifier(name)}")
    return f"(SELECT dpsql_rows.*, {', '.join(added)} FROM {_whole(path)} AS dpsql_rows{''.join(joins)})"


def _free_name(name: str, owner: Owner, taken: Collection[str]) -> str:
    """Return what a column of the last parent is called beside a table's own, of which one may have its name."""
    while fold(name) in taken:
        name = f"{owner.steps[-1].parent.name}_{name}"
    return name


def _whole(path: paths.Path) -> str:
    return ".".join(map(identifier, path))


def joined_query(item: str) -> str:
    """Return the query whose plan shows what a FROM item with joins reads."""
    return f"{_PATH}FROM {item}"


def follows(node: bound.Node, path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> bool:
    """Whether a plan reads the tables of a path, and joins them, and nothing else: none of them is a view by now."""
    owner = declarations.owner(catalog.table(path), path[0])
    along = [] if owner is None else [catalog.path(step.parent) for step in owner.steps]
    read = [bound.table_of(scan) for scan in bound.scans(node)]
    kinds = {bound.kind(operator) for operator in bound.operators(node)}
    wanted = sorted(tuple(map(fold, each)) for each in (path, *along) if each is not None)
    found = sorted(tuple(map(fold, each)) for each in read if each is not None)
    return found == wanted and len(read) == len(found) and kinds <= {"PROJECTION", "COMPARISON_JOIN", "GET"}
