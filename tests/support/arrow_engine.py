"""An engine over tables in memory, of which a test decides how rows are cut, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engines.driver import JobNumbers
from dpsql.engines.port import NODE, PART, Work
from dpsql.engines.provenance import Provenance, Scan
from dpsql.errors import SourceError

_PARTS_OF_A_RUN = 7


class ArrowEngine:
    """Tables by name, in a catalog of one schema.

    Parameters
    ----------
    tables : mapping of str to pyarrow.Table
    partitions : int
        Number of partitions that a table is cut into; some may be empty.
    """

    name = "arrow"
    version = pa.__version__

    def __init__(self, tables: Mapping[str, pa.Table], partitions: int = 3) -> None:
        self.tables = dict(tables)
        self.partitions = partitions
        self.actions = self.merged = 0
        # What a test may put in between, with the number of the action.
        self.before: Callable[[int], None] = lambda action: None
        self.records: Callable[[int, list[pa.RecordBatch]], list[pa.RecordBatch]] = lambda action, found: found
        self.delivered: Callable[[int, list[pa.RecordBatch]], list[pa.RecordBatch]] = lambda action, found: found
        self.checked: Callable[[], None] = lambda: None

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return the name of a table in schema main."""
        return ("main", source) if source in self.tables else None

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return the tables in schema main."""
        return {name: ("main", name) for name in self.tables}

    def schema(self, source: object) -> pa.Schema:
        """Return the types of a table's columns."""
        return self._table(source).schema

    def provenance(self, source: object) -> Provenance:
        """Return that a table is in memory."""
        return Provenance.of(Scan(), self._table(source).column_names)

    def check(self, work: Work) -> None:
        """Do what the test says."""
        self.checked()

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over each partition."""
        yield from self._acted(work, (work.run(rows) for rows in self._cut(source, columns)))

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over the parts, a few at a time."""
        split = [batch for rows in self._cut(source, columns) for batch in work.split(rows)]
        tasks: list[Iterator[pa.RecordBatch]] = []
        if split:
            rows = pa.Table.from_batches(split).sort_by(PART)
            for first in range(0, work.parts, _PARTS_OF_A_RUN):
                parts = pa.array(range(first, first + _PARTS_OF_A_RUN))
                tasks += [work.run(rows.filter(pc.is_in(rows.column(PART), parts)).to_batches(max_chunksize=100))]
        yield from self._acted(work, tasks)

    def _acted(self, work: Work, tasks: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Run tasks and number their records, or those of a tree; what a test does to them comes between."""
        made = [list(records) for records in tasks]
        self.actions += 1
        if work.is_wide:
            made = [list(self._nodes(work, self.records(self.actions, [record for one in made for record in one])))]
        numbering = JobNumbers(work.record)
        found = [record for one in made for record in numbering.task(one)]
        if not work.is_wide:
            found = self.records(self.actions, found)
        yield from self.delivered(self.actions, [*found, *numbering.last()])

    def _nodes(self, work: Work, records: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.merged += 1
        rows = pa.Table.from_batches(records, schema=work.record)
        for node in rows.column(NODE).unique():
            yield from work.merge(rows.filter(pc.equal(rows.column(NODE), node)).to_batches(max_chunksize=2))

    def _cut(self, source: object, columns: Sequence[str]) -> Iterator[list[pa.RecordBatch]]:
        self.before(self.actions + 1)
        table = self._table(source).select(list(columns))
        step = -(-max(1, len(table)) // self.partitions)
        for number in range(self.partitions):
            yield table.slice(number * step, step).to_batches(max_chunksize=100)

    def _table(self, source: object) -> pa.Table:
        name = source[-1] if isinstance(source, tuple) else source
        found: Any = self.tables.get(name) if isinstance(name, str) else name
        if not isinstance(found, pa.Table):
            raise SourceError("S024", "no such table")
        return found
