"""What an engine does for a release: move rows, and run folds on them. It sees no noise, no ledger and no budget.

The driver is the process that holds ledger and entropy; a worker is whatever the engine runs kernels in, a thread or
another machine. A release goes through the port in this order::

    schema                 the call is resolved, and the budget checked; nothing was read, so failing costs nothing
    rows                   lazy, and free
    fold, fold_blocks,     actions, one or more: from the moment the first is submitted every failure, cancel or
    count                  interrupt commits the charge, once
    charge and draw        in one transaction of the ledger, after the last action

Where a later pass uses noise that an earlier one drew, that order would hand noise out before it is paid for. Such a
call charges in full before its first draw; the release completes that entry, and a driver that dies leaves it charged.

Rules for every engine:

- **One place judges values.** Rows leave the engine in their own Arrow types; `dpsql.kernels.columns` and
  `dpsql.kernels.fixed_point` make numbers of them. No cast, comparison or rounding of the engine touches a value.
  The filters and expressions of the user's own view are the user's, and come before the cap. NULL values are handled
  after it.
- **Identities are bytes** (`dpsql.kernels.identity`): units, row ids, names and levels are equal when their bytes are,
  whatever collation or type the engine prefers. NULL units and NULL row ids are nobody's, and are dropped.
- **No entropy in a worker.** A retry would draw anew. What has to be random per row is a keyed hash of what the row
  holds; the key is fresh for every call, also where a named call repeats.
- **A state is secret**, as rows are: so are its size where blocks or names make it, fingerprints, and why two of them
  differ. None of their numbers is in an error, a receipt, a log or a progress bar.
- **A state travels as Arrow** (`Fold.state`), never as pickle: loading a pickle runs the sender's code.
- **Each row counts once.** A state comes back as the result of the engine's own job, one per partition. No
  accumulators, side files or side tables: they see the attempts that failed, too.
- **Errors are wrapped in the worker**, before the engine logs them, and again on the driver: the text of an exception
  may hold a value. A failure for lack of memory is charged as any other.

`dpsql.engines.duckdb` is the first engine, and is not called through this protocol: SQL needs one statement with the
caller's own transaction and temporary tables, so the gate, the ticket and the macros of that package weave the verbs
into it. They correspond so: *schema* is the probe of the gate; *rows* is the capped and keyed selection of
`statements`; *fold* is ``dpsql_collect`` with `dpsql.engines.duckdb.collecting`, one fold for each thread;
*fold_blocks* is the same with rows ordered by block, and whole blocks put together there; *count* is
``dpsql_vocabulary``. Two statistics are summed by its SQL in HUGEINT, from the partial sums of the kernels: x'y, and
counts by label and score. DuckDB may group units by value, texts as bytes, and order the rows of a unit by its own
keyed 128-bit hash of bytes: the same samples on all engines are a convenience of tests, no part of a proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.layout import Layout


@dataclass(frozen=True)
class Cap:
    """How many rows of a privacy unit count.

    Attributes
    ----------
    rows : int
        At most, >= 1.

    Notes
    -----
    Kept are the rows with the least keyed hash of row id and contents, by ``row_number``, never by ``rank``: rows that
    tie after that are equal in all that is read, so it does not matter which is kept. A hash of the row id alone would
    let the engine choose between rows of one id, perhaps by the rows of other units.
    """

    rows: int


class Handle(Protocol):
    """Rows that were described and not read yet; they give the same multiset of rows every time that they are read.

    A source that does not (a random sample, a limit without an order, a table that changes) is refused where that can
    be seen. Where rows are capped or come in blocks, and in every call of several passes, the additive fingerprint
    (number of rows, sum of row hashes modulo ``2**128``) must agree between passes.
    """


class Engine(Protocol):
    """Where rows are.

    Attributes
    ----------
    name : str
        Stands in the receipt, with the engine's version.
    """

    name: str

    def schema(self, source: object) -> pa.Schema:
        """Return the columns' types.

        On the driver; no row is read and no function of the user's runs. Sources whose types would be guessed from
        their rows (CSV, JSON) must come with types: whether a call is refused would depend on rows.
        """

    def rows(self, source: object, layout: Layout, cap: Cap | None, key: bytes) -> Handle:
        """Describe the rows of a call; lazy.

        Parameters
        ----------
        source : table, view or frame of the engine
        layout : Layout
            Which columns are read; no others are.
        cap : Cap or None
        key : bytes
            Of this call alone; keys the hashes of units and rows (`dpsql.kernels.identity.keys`).

        Notes
        -----
        Units become two int64 columns, and so do rows: from here on the engine groups, joins, orders and shuffles by
        integers alone. The cells of long rows are gathered by row id.
        """

    def fold(self, handle: Handle, call: Call, zero: Collector) -> Collector:
        """Run one pass over all rows; an action.

        Parameters
        ----------
        handle : Handle
        call : Call
            Its `read_parts` makes of a batch of rows what `Collector.add` takes.
        zero : Collector
            Of the pass, empty. What it was made of is public, or was released before: it may be sent to workers. What
            the driver alone may know (the steps of a solver, which are functions of the rows) is in none.

        Returns
        -------
        collector : Collector
            With every row in it once: each worker adds to a ``zero()`` of its own, and all are merged on the driver, or
            in a tree. The collector of an empty table is zero.

        Notes
        -----
        The number of passes follows from public arguments alone: engines keep a history of their jobs.
        """

    def fold_blocks(self, handle: Handle, call: Call, zero: Collector, blocks: int) -> Collector:
        """Run one pass over whole blocks; an action.

        Parameters
        ----------
        handle, call, zero
            As for `fold`; the collector takes `whole_blocks`.
        blocks : int
            Public. The block of a row is the hash of its unit, as an unsigned number, modulo `blocks`; the kernel
            computes it.

        Notes
        -----
        All rows of a block are added at once, by one worker, with their number (`Batch.sizes`); a worker may have any
        number of blocks. A hint to partition by block is no guarantee: use an operator whose meaning needs the
        grouping, such as ``count(*) OVER (PARTITION BY block)``. A block that comes twice, or in part, raises. A block
        without rows adds nothing.
        """

    def count(self, handle: Handle, column: str, most: int, longest: int) -> Iterator[pa.RecordBatch]:
        """Yield every distinct value of a column with its number of rows, by identity; an optional action.

        Parameters
        ----------
        handle : Handle
        column : str
        most, longest : int
            Public limits of how many values are taken, and of how many bytes of one: what is longer is cut, what is
            more is left out by keyed hash.

        Notes
        -----
        For vocabularies that are drawn. The driver holds all values.
        """
