"""The port of an engine, which stores rows and runs dpsql's code over them. An engine sees no noise and no ledger.

The driver is the process with the ledger and the entropy. A worker is the engine's place for Python: a thread, a
process or another machine. A release uses the port in this order (`dpsql.engines.driver`)::

    schema              the driver resolves the call and checks the budget, and reads no rows: a failure costs nothing
    fold, fold_parts    one action for each pass over the rows: once the driver submits the first action, every
                        failure, cancel or interrupt commits the charge, once
    charge and draw     in one transaction of the ledger, after the last action

If a later pass needs noise from an earlier pass, this order would use noise before the charge. So the driver charges
such a call in full before its first draw. The release completes that entry; if the driver dies, the charge remains.

A worker runs a `Task` (`dpsql.engines.task`): the kernels, and for everything with a form in SQL (samples of a unit's
rows, long rows, groups, conditions) the statement that DuckDB runs on its own tables, in the worker's own DuckDB. So an
engine decides nothing about a statistic. The engine moves rows and groups them by one integer.

Rules for every engine:

- **One place judges values.** Rows reach the task in their own Arrow types. The engine never casts, compares or rounds
  a value. The user's own view may filter and compute; it applies first.
- **The engine groups by one integer.** The task computes this integer from the bytes of an identity
  (`dpsql.kernels.identity`) and a key. No collation or type of the engine decides who is the same person.
- **No entropy in a worker.** A retry would draw again. Randomness per row is a keyed hash of the row's contents. Every
  call has a fresh key, even if a named call repeats.
- **A state is as secret as rows.** So are its size, if it depends on names, its number of rows, and the reason why two
  states do not fit. No error, receipt, log or progress bar may show them.
- **A state travels as Arrow** (`Fold.state`), never as pickle: loading a pickle runs the sender's code. The driver
  sends the task itself as a pickle; a worker trusts its driver.
- **Each row counts once.** A state comes back in the result of the engine's own job, one record for every partition or
  part. Accumulators, side files and side tables are forbidden, because they also see failed attempts. A result may lose
  a batch on its way, or a client may read it again. So the worker or server numbers the records
  (`dpsql.engines.driver`); the driver refuses a result with a missing or repeated record.
- **The worker wraps errors** before the engine logs them, and the driver wraps them again: the text of an exception may
  contain a value. The driver charges running out of memory like any other failure.

DuckDB is the first engine. dpsql does not call DuckDB through this protocol: SQL needs one statement in the caller's
own transaction, with its temporary tables. So the gate, the ticket and the macros of `dpsql.engines.duckdb` build the
same passes into that statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from dpsql.engines.provenance import Provenance

# The column that `Work.split` adds: the part of a row.
PART = "dpsql_part"
# The record column that groups records for a merge.
NODE = "dpsql_node"
# Number of nodes.
NODES = 256

Mapped: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Work(Protocol):
    """The work of an engine over the rows of one pass; it can be pickled and needs no state of the process."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one record for some rows; without batches, no record and an empty record are equivalent."""

    def merge(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one record for some records."""

    def part_of(self, rows: pa.Table) -> pa.Array:
        """Return the part of every row; NULL for rows without a privacy unit, which never count."""

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the integer column `PART`, without rows that have no privacy unit."""

    @property
    def parts(self) -> int:
        """Number of parts; 0 if rows need no grouping."""

    @property
    def is_direct(self) -> bool:
        """Whether the work adds rows directly; else a statement adds them, at a lower cost per row if rows are many."""

    @property
    def record(self) -> pa.Schema:
        """The type of a record, equal for all calls."""

    @property
    def is_wide(self) -> bool:
        """Whether an engine of many machines should merge records by `NODE` before the driver gets them."""


class Engine(Protocol):
    """An engine, which stores rows.

    A *source* is the name of a table or view as the caller wrote it, the full name of a table from `table` (a tuple),
    or a frame of the engine itself.

    Attributes
    ----------
    name : str
        The engine's name in receipts and messages, such as ``'polars'``.
    version : str
        The engine's version, for the receipt.
    """

    name: str
    version: str

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return the parts of the full name of a catalog table; None for a view, a query or a frame.

        The ledger stores budgets under this name. So all spellings that the engine accepts for one table must give one
        name, and no two tables may share a name: return the catalog's spelling, with catalog and schema. A view may
        read any table, so the caller must name the owner of its rows. A temporary view with a table's name is a view,
        too.

        Raises
        ------
        SourceError
            S024: there is no such source.
        """

    def catalog(self) -> Mapping[str, tuple[str, ...]]:
        """Return the full names of the catalog's tables, by a spelling that `table` accepts; no views or frames."""

    def schema(self, source: object) -> pa.Schema:
        """Return the column types.

        This runs on the driver, reads no row, and runs no user function. A source whose types an engine would infer
        from rows (CSV, JSON) must come with types. Otherwise the refusal of a call would depend on rows.

        Raises
        ------
        SourceError
            S024: there is no such source.
        """

    def provenance(self, source: object) -> Provenance:
        """Return the origin of the rows of a view, a query or a frame, from the engine's own plan.

        This runs on the driver and reads no row. An operator or a function counts as seen only if a list names it: then
        each row of its input yields at most one row, whatever other rows exist.

        Raises
        ------
        UnseenError
            The plan has an operator or function outside the list.
        SourceError
            S024: there is no such source. S052: the source names a file twice.
        """

    def check(self, work: Work) -> None:
        """Raise if the workers cannot run the work; this reads no row of a source.

        Raises
        ------
        SourceError
            S026: the workers lack dpsql, or have another version.
        """

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterable[pa.RecordBatch]:
        """Run the work once over each partition of the rows, whatever the partitions are; an action.

        A task may run again: one of its records counts, and gets a number.

        Parameters
        ----------
        source : source
        columns : sequence of str
            The engine reads these columns only.
        work : Work

        Returns
        -------
        records : iterable of pyarrow.RecordBatch
            With numbers, and a final record; see `dpsql.engines.driver`.
        """

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterable[pa.RecordBatch]:
        """Run the work over all rows of each part; an action. For parameters see `fold`.

        One run may have several parts, one after another: the work reads small parts together.

        A hint to partition by `PART` is no guarantee: DataFusion 55 drops one. Use an operator that requires the
        grouping, such as a sort or a grouped map. The driver refuses a part that comes twice.
        """

    def map(self, source: object, function: Mapped, added: pa.Schema) -> object:
        """Return a lazy frame of the engine: a source's rows with added columns; this reads no row.

        Parameters
        ----------
        source : source
        function : callable
            Takes batches of rows with all columns of the source, and yields each batch with the added columns at the
            end. It can be pickled.
        added : pyarrow.Schema
            The added columns. The source's columns keep their types.
        """


def parts_apart(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each part's number and rows, in the order of the rows; skip rows without a part."""
    runs = pc.run_end_encode(rows.column(PART))
    for part, (start, stop) in zip(runs.values.to_pylist(), pairwise([0, *runs.run_ends.to_pylist()]), strict=True):
        if part is not None:
            yield part, rows.slice(start, stop - start)
