"""The forms of a query of plain SQL: as it is split, and as earlier versions split it, whose releases are stored."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from dpsql.contract.query.split import Split
from dpsql.engines.duckdb.lineage import paths
from dpsql.engines.duckdb.lineage.declarations import Declaration, Declarations
from dpsql.errors import DpsqlError


@dataclass(frozen=True)
class Binding:
    """What one thread's statement is bound by, from its first step on."""

    declarations: Declarations
    catalog: paths.Catalog
    search_path: str
    database: str
    now: datetime.datetime
    zone: str
    claim: Declaration | None = None  # of a table whose rows the caller says to belong to a budget

    @property
    def claimed(self) -> frozenset[str]:
        """The tables that are read as a caller's claim, as placements show them."""
        path = None if self.claim is None or self.claim.table is None else self.catalog.path(self.claim.table)
        return frozenset() if path is None else frozenset((self.catalog.display(path),))


@dataclass(frozen=True)
class ReadQuery:
    """A query that was split, and the tables that it names."""

    split: Split
    binding: Binding
    direct: bool
    names: tuple[tuple[str, str], ...]
    private: bool = False  # whether a column has private labels
    before: ReadQuery | None = None  # as earlier versions split it: labels were public, DuckDB chose among ties
    refusal: DpsqlError | None = None  # of what is not as it was `before`

    @property
    def differs(self) -> bool:
        """Whether earlier versions split it otherwise."""
        return self.private or self.split.differs

    @property
    def forms(self) -> list[ReadQuery]:
        """The forms that may answer: it, and what it was in earlier versions."""
        return [self] if self.before is None else [self, self.before]

    @property
    def declared(self) -> tuple[Declarations, paths.Catalog]:
        """What judges the plans of its texts."""
        return self.binding.declarations, self.binding.catalog
