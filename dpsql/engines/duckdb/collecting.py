"""How DuckDB's threads share a fold: each at work has one of its own, and these merge when all rows have come.

DuckDB calls a function from as many threads as it likes, so this is the one place where the collecting of rows knows
of threads. Where a fold is large its copies are limited, and a thread waits for one.

DuckDB hands over 2,048 rows at a time. A fold gets them when there are enough to be worth its while.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Batch, Collector, joined
from dpsql.kernels.columns import StagedColumns

Doubles: TypeAlias = NDArray[np.float64]
# Bytes that all copies of a fold may take together, beside the first.
_COPIES = 1 << 28
# Bytes of rows that a fold gets at once.
_ENOUGH = 1 << 21
# Bytes from which on a batch goes to the fold as it is: to join it with another one would copy both.
_LARGE = 1 << 20


@runtime_checkable
class Learning(Protocol):
    """A collector that is told every name in the rows before they come."""

    def learn(self, names: Sequence[bytes], key: bytes) -> None:
        """Take note of the names; the key of the call decides which of a row count."""


class _Lane:
    """A collector, and the rows that wait for it."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._rows: list[pa.StructArray] = []
        self._batches: list[Batch] = []
        self._bytes = 0

    def add(self, call: Call, rows: pa.StructArray, batch: Batch) -> None:
        """Take in a batch of rows."""
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
        # By the thread that was last at work on it, whose memory is near; the first is nobody's at the start.
        self._idle: dict[int | None, _Lane] = {None: self._first}
        self._made = 1
        self._most = 1 + _COPIES // collector.size if collector.size else None
        self._free = threading.Condition()
        self._blocks = _Blocks()
        self._call: Call | None = None

    @property
    def first(self) -> Collector:
        """The collector that all others merge into."""
        return self._first.collector

    def add(self, call: Call, rows: pa.StructArray, batch: Batch) -> None:
        """Take in a batch of rows of a call; several threads may."""
        self._call = call
        if not self.first.whole_blocks:
            with self._borrowed() as lane:
                lane.add(call, rows, batch)
            return
        for target, features, part in call.read_parts(rows, batch):
            for whole in self._blocks.add(target, features, part):
                with self._borrowed() as lane:
                    lane.collector.add(*whole)

    @contextmanager
    def _borrowed(self) -> Iterator[_Lane]:
        thread = threading.get_ident()
        with self._free:
            while not self._idle and self._made == self._most:
                self._free.wait()
            lane = self._idle.pop(thread, None) or self._idle.pop(None, None)
            if lane is None and self._made == self._most:
                lane = self._idle.popitem()[1]
            self._made += lane is None
        if lane is None:
            lane = _Lane(self.first.zero())
        try:
            yield lane
        finally:
            with self._free:
                self._idle[thread] = lane
                self._free.notify()

    def learn(self, names: list[bytes], key: bytes) -> None:
        """Tell the collector every name in the rows, before they come."""
        with self._free:  # DuckDB evaluates a function again where it likes
            if not isinstance(self.first, Learning):
                raise TypeError("this collector takes no names")
            self.first.learn(names, key)

    def whole(self) -> Collector:
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
            self._made = 1
            return self.first


class _Blocks:
    """Blocks of which some rows have come: DuckDB sends the rows of a block in a row, but cuts its batches anywhere."""

    def __init__(self) -> None:
        self._open: dict[int, StagedColumns] = {}
        self._lock = threading.Lock()

    def add(self, target: Doubles, features: Doubles, batch: Batch) -> Iterator[tuple[Doubles, Doubles, Batch]]:
        """Take in rows; return, as a batch each, the blocks whose last row has come."""
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
                whole = np.empty((len(columns), size))
                for position in range(len(columns)):
                    whole[position] = block.take(position)
                part = Batch(np.full(size, key, dtype=np.uint64), np.full(size, size), batch.secret)
                yield whole[-1], whole[:-1], part

    def check_empty(self) -> None:
        """Raise when the last row of a block has not come."""
        with self._lock:
            if self._open:
                raise ValueError("a block is not complete")
