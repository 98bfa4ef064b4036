"""What rows become before noise: a fold over batches, whose states merge in any order and in any tree.

A fold starts from zero, takes in batches of rows, and takes in the states of other folds of its kind. Merging is
associative and commutative and zero is neutral, to the last bit: so neither the order of the rows, nor their division
into batches, nor the number of threads, processes or machines shows in a result.

A fold knows nothing of threads. An engine gives each of them a fold of its own and merges them at the end
(`dpsql.engines.duckdb.collecting`), or lets them wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """What a batch of rows carries beside its values.

    Attributes
    ----------
    keys : ndarray of uint64, shape (rows,), or None
        Keyed hash of what decides a row's block, or which of its features count: its privacy unit, or its row id.
    sizes : ndarray of int64, shape (rows,), or None
        Rows of the block, where rows come block by block.
    secret : bytes
        The call's key, which `keys` are hashed under.
    """

    keys: NDArray[np.uint64] | None = None
    sizes: NDArray[np.int64] | None = None
    secret: bytes = b""

    def part(self, rows: slice) -> Batch:
        """Return what some of the rows carry."""
        keys, sizes = self.keys, self.sizes
        return Batch(None if keys is None else keys[rows], None if sizes is None else sizes[rows])


class Collector(ABC):
    """What takes in rows, batch by batch; one thread at a time."""

    # Whether it takes whole blocks of rows (`Batch.sizes`), which no two batches share.
    whole_blocks = False

    @abstractmethod
    def zero(self) -> Self:
        """Return one of the same kind that has seen no row."""

    @abstractmethod
    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Take in a batch of rows.

        Parameters
        ----------
        target : ndarray of float64, shape (rows,)
        features : ndarray of float64, shape (d, rows)
        batch : Batch
        """

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in what another one of the same kind has seen; that one is given up."""

    @property
    def size(self) -> int:
        """Bytes that a further one needs from the start, where these are many."""
        return 0


class Fold(Collector):
    """A statistic that is a sum, a count or an extreme: its state is one small record of integers."""

    @abstractmethod
    def state(self) -> pa.RecordBatch:
        """Return what was seen: one row of lists of integers (see `record`). Secret, as the rows are."""

    @abstractmethod
    def absorb(self, state: pa.RecordBatch) -> None:
        """Take in the state of another fold of the same kind."""

    def merge(self, other: Self) -> None:
        """Take in what another fold of the same kind has seen."""
        self.absorb(other.state())


class KeptRows(Collector):
    """Rows that are kept as they come, because a later step needs them one by one.

    This is no fold: what is kept grows with the rows, has no state that could travel, and `merge` puts the rows of one
    behind those of the other. What is computed from them does not depend on their order.
    """


Inner = TypeVar("Inner", bound=Collector)


class Pass(Collector, Generic[Inner]):
    """A pass over the rows that hands them to another collector, in a form of its own."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner

    def zero(self) -> Self:
        """Return one of the same kind that has seen no row."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.inner = self.inner.zero()
        return other

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Hand a batch of rows over."""
        self.inner.add(target, features, batch)

    def merge(self, other: Self) -> None:
        """Take in what another one has seen."""
        self.inner.merge(other.inner)

    @property
    def size(self) -> int:
        """Bytes that a further one needs from the start."""
        return self.inner.size


def record(fields: Mapping[str, Sequence[int] | NDArray[np.int64] | pa.Array]) -> pa.RecordBatch:
    """Return integers as a record of one row: each field is a list of int64, or of decimal128(38, 0).

    Parameters
    ----------
    fields : mapping of name to ndarray of int64, sequence of int, or pyarrow array
    """
    columns = []
    for values in fields.values():
        array = values if isinstance(values, pa.Array) else pa.array(np.asarray(values, dtype=np.int64).ravel())
        columns.append(pa.ListArray.from_arrays(pa.array([0, len(array)], type=pa.int32()), array))
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def field(state: pa.RecordBatch, name: str) -> pa.Array:
    """Return the integers of a field of a record."""
    return state.column(name).flatten()


def numbers(state: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Return the integers of an int64 field of a record."""
    return np.asarray(field(state, name).to_numpy(zero_copy_only=False), dtype=np.int64)
