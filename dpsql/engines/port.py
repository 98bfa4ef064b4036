"""The port of an engine, which holds rows and runs dpsql's code over them. An engine sees no noise and no ledger.

The driver is the process that holds the ledger and the entropy. A worker is whatever the engine runs Python in: a
thread, a process, another machine. A release uses the port in this order (`dpsql.engines.driver`)::

    schema              the call is resolved, and the budget checked; nothing was read, so failing costs nothing
    fold, fold_parts    one action for each pass over the rows: from the moment the first is submitted every failure,
                        cancel or interrupt commits the charge, once
    charge and draw     in one transaction of the ledger, after the last action

If a later pass uses noise from an earlier one, this order would use noise before it is charged. Such a call is charged
in full before its first draw. The release completes that entry; if the driver dies, the charge stands.

What runs in a worker is a `Task` (`dpsql.engines.task`): the kernels, and for everything that has a form in SQL
(samples of a unit's rows, long rows, groups, conditions) the statement that DuckDB runs on its own tables, in a DuckDB
of the worker's own. So an engine decides nothing about a statistic. It moves rows, and it groups them by one integer.

Rules for every engine:

- **One place judges values.** Rows reach the task in their own Arrow types. The engine never casts, compares or rounds
  a value. The user's own view may filter and compute; it applies before everything else.
- **The engine groups by one integer** that the task computes, from the bytes of an identity (`dpsql.kernels.identity`)
  and a key. No collation or type of the engine decides who is the same person.
- **No entropy in a worker.** A retry would draw again. Randomness per row is a keyed hash of the row's contents. The
  key is fresh for every call, even if a named call repeats.
- **A state is as secret as rows.** So are its size, if it depends on names, its number of rows, and the reason why two
  states do not fit. None of these numbers may appear in an error, a receipt, a log or a progress bar.
- **A state travels as Arrow** (`Fold.state`), never as pickle: loading a pickle runs the sender's code. The driver
  sends the task itself as a pickle; a worker trusts its driver.
- **Each row counts once.** A state comes back as the result of the engine's own job, one record for every partition or
  part. No accumulators, side files or side tables, because they also see failed attempts. A result may lose a batch on
  its way, or be read anew, so it is numbered where it is made (`dpsql.engines.driver`); the driver refuses a result
  in which a record is missing or comes twice.
- **Errors are wrapped in the worker**, before the engine logs them, and again on the driver: the text of an exception
  may contain a value. Running out of memory is charged like any other failure.

DuckDB is the first engine. It is not called through this protocol: SQL needs one statement in the caller's own
transaction, with its temporary tables, so the gate, the ticket and the macros of `dpsql.engines.duckdb` build the same
passes into that statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from dpsql.engines.provenance import Provenance

# The column that `Work.split` adds: the part that a row belongs to.
PART = "dpsql_part"
# The column of a record by which an engine groups records to merge them.
NODE = "dpsql_node"
# How many there are.
NODES = 256

Mapped: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Work(Protocol):
    """What an engine runs over the rows of one pass. It can be pickled, and depends on no state of the process."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one record for some of the rows; no record for no batches at all is as good as one of none."""

    def merge(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one record for some records."""

    def part_of(self, rows: pa.Table) -> pa.Array:
        """Return the part of every row; NULL for rows that belong to nobody, which count nowhere."""

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the integer column `PART`. Rows that belong to nobody are left out."""

    @property
    def parts(self) -> int:
        """Number of parts; 0 if rows need not be grouped."""

    @property
    def is_direct(self) -> bool:
        """Whether rows are added as they are; otherwise by a statement, which costs the less the more rows it reads."""

    @property
    def record(self) -> pa.Schema:
        """The type of a record, the same for every call."""

    @property
    def is_wide(self) -> bool:
        """Whether an engine of many machines should merge records by `NODE` before they reach the driver."""


class Engine(Protocol):
    """An engine, which holds rows.

    A *source* is the name of a table or view as the caller wrote it, the full name of a table as `table` returned it
    (a tuple), or a frame of the engine's own.

    Attributes
    ----------
    name : str
        What it is called in receipts and messages, such as ``'polars'``.
    version : str
        Its version, for the receipt.
    """

    name: str
    version: str

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return the parts of the full name of a table of the catalog; None for a view, a query or a frame.

        Budgets are kept under this name, so it must be the same for every spelling that the engine takes for one table,
        and no two tables may share it: as the catalog stores it, with catalog and schema. A view may read any table, so
        the caller must say whose rows it has. That holds for a temporary view, too, which has the name of a table.

        Raises
        ------
        SourceError
            S024: there is no such source.
        """

    def catalog(self) -> Mapping[str, tuple[str, ...]]:
        """Return the full names of the catalog's tables, each by a spelling that `table` takes; no views or frames."""

    def schema(self, source: object) -> pa.Schema:
        """Return the column types.

        This runs on the driver; no row is read, and no user function runs. A source whose types would be inferred from
        its rows (CSV, JSON) must come with types. Otherwise the refusal of a call would depend on rows.

        Raises
        ------
        SourceError
            S024: there is no such source.
        """

    def provenance(self, source: object) -> Provenance:
        """Return what the rows of a view, a query or a frame come from, as the engine's own plan shows it.

        This runs on the driver, and no row is read. An operator or a function counts as seen only where a list names
        it, because each row of what it reads then yields at most one row, whatever other rows there are.

        Raises
        ------
        UnseenError
            The plan has something that is not on the list.
        SourceError
            S024: there is no such source. S052: it names a file twice.
        """

    def check(self, work: Work) -> None:
        """Raise if the workers cannot run the work; no row of a source is read.

        Raises
        ------
        SourceError
            S026: the workers lack dpsql, or have another version.
        """

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterable[pa.RecordBatch]:
        """Run the work once over each partition of the rows, however the engine cuts them; an action.

        A task may run again: one of its records counts, and gets a number.

        Parameters
        ----------
        source : source
        columns : sequence of str
            The columns to read; no others are read.
        work : Work

        Returns
        -------
        records : iterable of pyarrow.RecordBatch
            Numbered, and a last one behind them; see `dpsql.engines.driver`.
        """

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterable[pa.RecordBatch]:
        """Run the work over all rows of each part; an action. Parameters as of `fold`.

        One run may have several parts, one after another: the work reads small parts together.

        A hint to partition by `PART` is no guarantee: DataFusion 55 drops one. Use an operator whose meaning requires
        the grouping, such as a sort or a grouped map. The driver refuses a part that comes twice.
        """

    def map(self, source: object, function: Mapped, added: pa.Schema) -> object:
        """Return a lazy frame of the engine: the rows of a source with more columns; nothing is read here.

        Parameters
        ----------
        source : source
        function : callable
            Takes batches of rows, with all columns of the source, and yields each with the added columns behind them.
            It can be pickled.
        added : pyarrow.Schema
            The added columns. Those of the source keep their types.
        """


def parts_apart(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of one part after another, with its number, in the order in which they come; leave out others."""
    runs = pc.run_end_encode(rows.column(PART))
    for part, (start, stop) in zip(runs.values.to_pylist(), pairwise([0, *runs.run_ends.to_pylist()]), strict=True):
        if part is not None:
            yield part, rows.slice(start, stop - start)
