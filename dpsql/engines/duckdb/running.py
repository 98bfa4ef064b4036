"""A call between its gate and its release, and its messages to the ledger.

DuckDB calls a function from any number of threads, so only this module handles threads while rows are collected. Each
working thread has its own copy of a fold, and the copies merge after all rows have come. Copies of a large fold are
limited, and a thread waits for one. DuckDB hands over 2,048 rows at a time; a fold gets them in larger batches.
"""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Protocol, TypeAlias, TypedDict, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Batch, Collector, joined
from dpsql.contract.measurement import NOTHING, Permit
from dpsql.contract.plan import Plan
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.query import QueryPlan
from dpsql.functions.registry import function_of
from dpsql.kernels.columns import StagedColumns
from dpsql.ledger.ledger import Entry

Doubles: TypeAlias = NDArray[np.float64]
# Maximum bytes of all copies of a fold after the first.
_COPIES = 1 << 28
# Bytes of rows that a fold gets at once.
_ENOUGH = 1 << 21
# Batches of at least so many bytes go to the fold directly: joining batches would copy both.
_LARGE = 1 << 20


@runtime_checkable
class Learning(Protocol):
    """A collector that gets every name in the rows before they come."""

    def learn(self, names: Sequence[bytes], key: bytes) -> None:
        """Learn the names; the key of the call decides which names of a row count."""


class _Lane:
    """A collector, and its waiting rows."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._rows: list[pa.StructArray] = []
        self._batches: list[Batch] = []
        self._bytes = 0

    def add(self, call: Call, rows: pa.StructArray, batch: Batch) -> None:
        """Add a batch of rows."""
        size = rows.get_total_buffer_size()
        if size >= _LARGE:
            call.collect(self.collector, rows, batch)
            return
        self._rows.append(rows)
        self._batches.append(batch)
        self._bytes += size
        if self._bytes >= _ENOUGH:
            self.flush(call)

    def flush(self, call: Call) -> None:
        """Hand the waiting rows to the collector."""
        rows, batches = self._rows, self._batches
        self._rows, self._batches, self._bytes = [], [], 0
        if rows:
            call.collect(self.collector, pa.concat_arrays(rows), joined(batches))


class Collecting:
    """The rows of one pass, on their way into a collector.

    Parameters
    ----------
    collector : Collector
        Empty.
    """

    def __init__(self, collector: Collector) -> None:
        self._first = _Lane(collector)
        # By the last thread that used it, whose memory is near; the first has no thread at the start.
        self._idle: dict[int | None, _Lane] = {None: self._first}
        self._count = 1
        self._most = 1 + _COPIES // collector.size if collector.size else None
        self._free = threading.Condition()
        self._blocks = _Blocks()
        self._call: Call | None = None

    @property
    def first(self) -> Collector:
        """The collector that all others merge into."""
        return self._first.collector

    def add(self, call: Call, rows: pa.StructArray, batch: Batch) -> None:
        """Add a batch of rows of a call, from any thread."""
        self._call = call
        if not self.first.whole_blocks:
            with self._borrowed() as lane:
                lane.add(call, rows, batch)
            return
        for target, features, part in call.read_parts(rows, batch):
            for block in self._blocks.add(target, features, part):
                with self._borrowed() as lane:
                    lane.collector.add(*block)

    @contextmanager
    def _borrowed(self) -> Iterator[_Lane]:
        thread = threading.get_ident()
        with self._free:
            while not self._idle and self._count == self._most:
                self._free.wait()
            lane = self._idle.pop(thread, None) or self._idle.pop(None, None)
            if lane is None and self._count == self._most:
                lane = self._idle.popitem()[1]
            self._count += lane is None
        if lane is None:
            lane = _Lane(self.first.zero())
        try:
            yield lane
        finally:
            with self._free:
                self._idle[thread] = lane
                self._free.notify()

    def learn(self, names: list[bytes], key: bytes) -> None:
        """Give the collector every name in the rows, before they come."""
        with self._free:  # DuckDB may evaluate a function again
            if not isinstance(self.first, Learning):
                raise TypeError("this collector takes no names")
            self.first.learn(names, key)

    def merge(self) -> Collector:
        """Return the collector with every row in it; no more rows may come."""
        with self._free:
            self._blocks.check_empty()
            for lane in self._idle.values():
                if self._call is not None:
                    lane.flush(self._call)
            for lane in self._idle.values():
                if lane is not self._first:
                    self.first.merge(lane.collector)
            self._idle = {None: self._first}
            self._count = 1
            return self.first


class _Blocks:
    """Incomplete blocks: DuckDB sends the rows of a block in sequence, but cuts its batches anywhere."""

    def __init__(self) -> None:
        self._open: dict[int, StagedColumns] = {}
        self._lock = threading.Lock()

    def add(self, target: Doubles, features: Doubles, batch: Batch) -> Iterator[tuple[Doubles, Doubles, Batch]]:
        """Add rows; return the blocks whose last row has come, a batch each."""
        keys, sizes = batch.keys, batch.sizes
        if keys is None or sizes is None:
            raise ValueError("rows of a blocked call carry their block")
        columns = [*features, target]
        for key in np.unique(keys).tolist():
            here = np.flatnonzero(keys == key)
            size = int(sizes[here[0]])
            with self._lock:
                block = self._open.setdefault(key, StagedColumns(len(columns)))
                block.append([column[here] for column in columns])
                full = block.rows == size
                if full:
                    del self._open[key]
            if full:
                matrix = np.empty((len(columns), size))
                for position in range(len(columns)):
                    matrix[position] = block.take(position)
                part = Batch(np.full(size, key, dtype=np.uint64), np.full(size, size), batch.secret)
                yield matrix[-1], matrix[:-1], part

    def check_empty(self) -> None:
        """Raise if the last row of a block has not come."""
        with self._lock:
            if self._open:
                raise ValueError("a block is not complete")


# Sums from SQL, or the collector of the last pass.
Statistic: TypeAlias = NDArray[np.int64] | NDArray[np.object_] | Collector
_Call = TypeVar("_Call", bound=Call)
Result = TypeVar("Result")


@dataclass
class RunningCall:
    """A call between its gate and its release."""

    call: Call
    function: str
    number: int
    collecting: Collecting | None
    charged: bool = False
    entry: Entry | None = None
    reservation: int | None = None  # entry that charged it before its first draw
    batches: int = 0
    passed: int = 0  # completed passes over the rows
    center: int | None = None  # the private mean of the target, after its draw
    # Two fresh keys per call: one chooses a row's private names; one hashes rows and privacy units, to sample
    # them and to sort them into blocks. All passes of the call use the same keys.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    sampling_key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    touched: float = field(default_factory=time.monotonic)
    permit: Permit = field(default_factory=lambda: Permit(NOTHING))  # to sample before the charge
    # For a part of a query: the charged query. For a query: the tickets of its parts.
    query: RunningCall | None = None
    parts: tuple[int, ...] = ()
    limit: int | None = None  # rows per unit that count, after their draw
    lock: threading.Lock = field(default_factory=threading.Lock)
    turning: threading.Lock = field(default_factory=threading.Lock)
    charging: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def spends(self) -> bool:
        """Whether the call is charged, by the registry of functions."""
        return function_of(self.function).spends

    @property
    def is_idle(self) -> bool:
        """Whether no thread works on the call."""
        return not (self.lock.locked() or self.turning.locked())

    def learn(self, call: Call) -> None:
        """Continue with a call that knows more of its public arguments; no row was read before."""
        with self.turning:
            if self.batches == 0 and self.passed == 0:
                collector = call.start()
                self.call, self.collecting = call, None if collector is None else Collecting(collector)

    def learn_bounds(self, call: Call) -> None:
        """Continue with a call that knows bounds which another part has drawn; its cost stays the same."""
        if call.plan is not self.call.plan:
            raise InternalError("I034", "bounds were to change what is charged. Report it.")
        self.learn(call)

    def limit_rows(self, call: Call, most: int) -> None:
        """Continue, once, with a call whose row limit per unit was drawn; its cost stays the same."""
        with self.turning:
            if self.limit is None and self.batches == 0 and self.passed == 0:
                self.permit.exchange(self.call.plan.measurement, call.plan.measurement)
                collector = call.start()
                self.call, self.collecting = call, None if collector is None else Collecting(collector)
                self.limit = most

    def call_as(self, kind: type[_Call]) -> _Call:
        """Return the call as one of a function's own kind."""
        if not isinstance(self.call, kind):
            raise TypeError("the ticket is of another function")
        return self.call

    def complete(self, numbers: pa.Array) -> Collector:
        """Return the collector of a pass after checking that the pass reported each batch exactly once."""
        came = [] if numbers.values is None else numbers.values.to_pylist()
        if self.collecting is None or sorted(came) != list(range(1, self.batches + 1)):
            raise InternalError("I005", "DuckDB did not read each batch of rows exactly once. Report it.")
        return self.collecting.merge()


class Calls(ABC):
    """The running calls, which SQL functions find by their tickets."""

    @abstractmethod
    def running(self, ticket: int, *, private: bool | None = None) -> RunningCall:
        """Return the call of a ticket.

        Parameters
        ----------
        ticket : int
        private : bool, optional
            Refuse the ticket of a call that is not private (True), or that is (False).
        """

    @abstractmethod
    def guarded(self, ticket: int, work: Callable[[RunningCall], Result], *, private: bool | None = None) -> Result:
        """Run a part of a call that reads rows; its errors reveal nothing about them."""


class Protection(TypedDict):
    """A call's protection, as attributes of a `Charge`."""

    neighbours: str
    privacy_unit: str | None
    max_rows_per_unit: int | None


def resolved(plan: Plan, function: str, probe: pa.StructType, types: Sequence[str]) -> Call:
    """Return the call of a plan, from the types of its columns by their names in a statement.

    Parameters
    ----------
    plan : Plan
    function : str
    probe : pyarrow struct type
    types : sequence of str
        SQL types of the columns that the call groups by.
    """
    kinds = {field.name: field.type for field in probe}
    parts = {
        "privacy_unit": "dpsql_unit",
        "row_id": "dpsql_row_id",
        "features": "dpsql_feature",
        "value": "dpsql_value",
        "condition": "dpsql_condition",
        "date": "dpsql_date",
    }
    others = {part: kinds[name] for part, name in parts.items() if name in kinds}
    return function_of(function).call.resolve(plan, kinds["dpsql_row"], others, types)


def may_be_long(plan: Plan) -> bool:
    """Whether a call may take more than a few seconds plus one scan of its rows, by its function.

    Counts, sums, averages, histograms and queries do not; selections, regressions and classifiers compute long after
    they have read rows, and calls with several passes read rows several times.
    """
    return plan.readings > 1 or not isinstance(plan, GroupedPlan | QueryPlan)


def protection(plan: Plan) -> Protection:
    """Return the call's protection, as attributes of a `Charge`."""
    unit = plan.layout.privacy_unit
    return {
        "neighbours": plan.neighbours,
        "privacy_unit": unit,
        "max_rows_per_unit": plan.told_rows if unit is not None else None,
    }


def row_text(plan: Plan) -> str:
    """Return the definition of one row: in the long layout, all rows of one row id."""
    return f"all rows of one {plan.layout.row_id}" if plan.layout.kind == "long" else "one row"
