"""The port of an engine, which moves rows and runs folds on them. An engine sees no noise, no ledger and no budget.

The driver is the process that holds the ledger and the entropy. A worker is whatever runs the engine's kernels: a
thread, or another machine. A release uses the port in this order::

    schema                 the call is resolved, and the budget checked; nothing was read, so failing costs nothing
    rows                   lazy, and free
    fold, fold_blocks,     actions, one or more: from the moment the first is submitted every failure, cancel or
    count                  interrupt commits the charge, once
    charge and draw        in one transaction of the ledger, after the last action

If a later pass uses noise from an earlier one, this order would use noise before it is charged. Such a call is charged
in full before its first draw. The release completes that entry; if the driver dies, the charge stands.

Rules for every engine:

- **One place judges values.** Rows leave the engine in their own Arrow types; `dpsql.kernels.columns` and
  `dpsql.kernels.fixed_point` turn them into numbers. The engine never casts, compares or rounds a value. The user's
  own view may filter and compute; it applies before the cap. NULL values are handled after the cap.
- **Identities are bytes** (`dpsql.kernels.identity`): units, row ids, names and levels are equal if their bytes are
  equal, whatever collation or type the engine prefers. Rows with a NULL unit or a NULL row id are dropped.
- **No entropy in a worker.** A retry would draw again. Randomness per row is a keyed hash of the row's contents. The
  key is fresh for every call, even if a named call repeats.
- **A state is as secret as rows.** So are its size, if it depends on blocks or names, fingerprints, and the reason why
  two fingerprints differ. None of these numbers may appear in an error, a receipt, a log or a progress bar.
- **A state travels as Arrow** (`Fold.state`), never as pickle: loading a pickle runs the sender's code.
- **Each row counts once.** A state comes back as the result of the engine's own job, one per partition. No
  accumulators, side files or side tables, because they also see failed attempts.
- **Errors are wrapped in the worker**, before the engine logs them, and again on the driver: the text of an exception
  may contain a value. Running out of memory is charged like any other failure.

`dpsql.engines.duckdb` is the first engine. It is not called through this protocol: SQL needs one statement in the
caller's own transaction, with its temporary tables, so the gate, the ticket and the macros of that package build the
verbs into that statement. *schema* is the probe of the gate. *rows* is the capped and keyed selection of `statements`.
*fold* is ``dpsql_collect`` with `dpsql.engines.duckdb.collecting`, one fold per thread. *fold_blocks* is the same with
rows ordered by block, where whole blocks are assembled. *count* is ``dpsql_vocabulary``. Two statistics are summed in
SQL as HUGEINT, from the partial sums of the kernels: x'y, and counts by label and score. DuckDB may group units by
value, with texts as bytes, and may order the rows of a unit by its own keyed 128-bit hash of bytes. Equal samples on
all engines help tests; no proof needs them.
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
    """A limit on the rows of a privacy unit that count.

    Attributes
    ----------
    rows : int
        The limit, >= 1.

    Notes
    -----
    The rows with the smallest keyed hash of row id and contents are kept, by ``row_number``, never by ``rank``. Tied
    rows are equal in everything that is read, so it does not matter which one is kept. A hash of the row id alone would
    let the engine choose between rows with the same id, possibly depending on the rows of other units.
    """

    rows: int


class Handle(Protocol):
    """Rows that are described but not yet read. Every reading yields the same multiset of rows.

    A source that yields other rows (a random sample, a limit without an order, a table that changes) is refused if that
    can be detected. If rows are capped or come in blocks, and in every call with several passes, the additive
    fingerprint (number of rows, sum of row hashes modulo ``2**128``) must agree between passes.
    """


class Engine(Protocol):
    """An engine, which holds rows.

    Attributes
    ----------
    name : str
        Name in the receipt, where the engine's version follows.
    """

    name: str

    def schema(self, source: object) -> pa.Schema:
        """Return the column types.

        This runs on the driver; no row is read, and no user function runs. A source whose types would be inferred from
        its rows (CSV, JSON) must come with types. Otherwise the refusal of a call would depend on rows.
        """

    def rows(self, source: object, layout: Layout, cap: Cap | None, key: bytes) -> Handle:
        """Describe the rows of a call; lazy.

        Parameters
        ----------
        source : table, view or frame of the engine
        layout : Layout
            The columns to read; no others are read.
        cap : Cap or None
        key : bytes
            Key of this call alone, for the hashes of units and rows (`dpsql.kernels.identity.keys`).

        Notes
        -----
        The hashes of units and rows become two int64 columns each. From here on the engine groups, joins, orders and
        shuffles by integers alone. The cells of long rows are gathered by row id.
        """

    def fold(self, handle: Handle, call: Call, zero: Collector) -> Collector:
        """Run one pass over all rows; an action.

        Parameters
        ----------
        handle : Handle
        call : Call
            Its `read_parts` converts a batch of rows to the arguments of `Collector.add`.
        zero : Collector
            The empty collector of the pass. It depends only on public or released values, so it may be sent to workers.
            It never holds what only the driver may know, such as the steps of a solver, which depend on the rows.

        Returns
        -------
        collector : Collector
            Contains every row once. Each worker adds to its own ``zero()``, and all are merged on the driver or in a
            tree. The collector of an empty table is zero.

        Notes
        -----
        The number of passes depends on public arguments alone, because engines keep a history of their jobs.
        """

    def fold_blocks(self, handle: Handle, call: Call, zero: Collector, blocks: int) -> Collector:
        """Run one pass over whole blocks; an action.

        Parameters
        ----------
        handle, call, zero
            As for `fold`; the collector has `whole_blocks` set.
        blocks : int
            Public. The block of a row is the hash of its unit, as an unsigned number, modulo `blocks`; the kernel
            computes it.

        Notes
        -----
        One worker adds all rows of a block at once, with their number (`Batch.sizes`); a worker may have any number of
        blocks. A hint to partition by block is not a guarantee. Use an operator whose semantics require the grouping,
        such as ``count(*) OVER (PARTITION BY block)``. A block that arrives twice, or in part, raises. A block without
        rows adds nothing.
        """

    def count(self, handle: Handle, column: str, most: int, longest: int) -> Iterator[pa.RecordBatch]:
        """Yield every distinct value of a column, compared by identity, with its number of rows; an optional action.

        Parameters
        ----------
        handle : Handle
        column : str
        most, longest : int
            Public limits on the number of values and on the bytes per value. Longer values are truncated; excess values
            are dropped by keyed hash.

        Notes
        -----
        This is for private vocabularies. The driver holds all values.
        """
