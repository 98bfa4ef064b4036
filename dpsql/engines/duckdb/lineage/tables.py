"""The tables that a walk over a plan meets, and what is known of the rows of the plan then."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.contract.names import TableName
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage import bound, orders, paths, spellings
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Leaf, Rows
from dpsql.engines.duckdb.lineage.stability import walk


@dataclass
class Reading:
    """The tables that a walk over a plan has met."""

    declarations: Declarations
    catalog: paths.Catalog
    tables: dict[str, paths.Path] = field(default_factory=dict)
    undeclared: dict[str, paths.Path] = field(default_factory=dict)
    scanned: dict[str, None] = field(default_factory=dict)
    declared: set[TableName | None] = field(default_factory=set)  # as they were declared
    free: dict[paths.Path, None] = field(default_factory=dict)  # what is read as public
    keyed: bool = False  # whether the keys of tables are read
    keys: dict[paths.Path, Collection[frozenset[str]]] = field(default_factory=dict)  # those that were read

    def walk(self, node: bound.Node, views: Mapping[str, Leaf], within: bound.Node | None = None) -> Rows:
        """Return what a plan returns, see `stability.walk`. Keys of tables are read only where an order lacks one."""
        rows = walk(node, self.leaf, views, within)
        if not rows.unfixed or self.keyed:
            return rows
        self.keyed = True
        return walk(node, self.leaf, views, within)

    def facts(self, rows: Rows, node: bound.Node) -> dict[str, Any]:
        """Return what is known of `rows`, which read these tables by a plan, for a `Placement`.

        How many a person has:

        Where the plan leaves a person one row, one counts. That limit is applied to the rows themselves, so that a
        mistake here would cost rows and not privacy.
        """
        stated = self.declarations.rows_per_unit(self.declared)
        keyed = tuple((*path, *sorted(key)) for path, keys in self.keys.items() for key in keys)
        return {
            "rows_per_unit": stated,
            "once": rows.once and bool(rows.unit),
            "keyed": keyed,
            "loose": loose_of(rows, node),
            "free": tuple(self.free),
        }

    def leaf(self, path: paths.Path, covered: Leaf | None = None) -> Leaf | None:
        """Note that a table is read, and return what is declared about it; `covered` by a view that is declared so."""
        name = self.catalog.display(path)
        self.tables[name] = path
        found = self._leaf(path, covered)
        if not self.keyed:
            return found
        self.keys[path] = self.catalog.unique(path)
        return replace(found or PUBLIC, unique=self.keys[path]) if self.keys[path] else found

    def _leaf(self, path: paths.Path, covered: Leaf | None) -> Leaf | None:
        name = self.catalog.display(path)
        found = self.declarations.leaf(self.catalog.table(path), path[0])
        if found is not None:
            self.declared |= {one.table for one in self.declarations.about(self.catalog.table(path), path[0])}
            self.scanned.update(dict.fromkeys(found.datasets))
            if found.unit is not None and fold(found.unit) in self.catalog.single(path):
                return replace(found, single=True)
        elif covered is None:
            self.undeclared[name] = path
        of = covered if found is None else found
        if of is not None and not of.datasets:
            self.free[path] = None
        return found


def loose_of(rows: Rows, node: bound.Node) -> tuple[tuple[str, str], ...]:
    """Return the names and types of the loose columns of a plan's rows."""
    columns = orders.columns_of(node) or ()
    return tuple((columns[place].name, spellings.name_of(columns[place].kind)) for place in sorted(rows.loose))
