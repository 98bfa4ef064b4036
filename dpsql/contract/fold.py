"""Folds over batches of rows, which compute a statistic before noise. Fold states merge in any order and in any tree.

A fold starts from zero, adds batches of rows, and absorbs the states of other folds of its kind. Merging is associative
and commutative, and zero is neutral, to the last bit. So a result does not depend on the order of the rows, on their
division into batches, or on the number of threads, processes or machines.

A fold is not thread-safe. An engine gives each thread its own fold and merges the folds at the end
(`dpsql.engines.duckdb.running`), or lets threads wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import from_numbers, to_numbers
from dpsql.dataclass import dataclass


@dataclass(frozen=True)
class Batch:
    """Data of a batch of rows, in addition to its values.

    Attributes
    ----------
    keys : ndarray of uint64, shape (rows,), or None
        Keyed hash of a row's privacy unit or row id. It determines the row's block, or which row features count.
    sizes : ndarray of int64, shape (rows,), or None
        Number of rows in the row's block, if rows come block by block.
    secret : bytes
        The call's key for the hash in `keys`.
    """

    keys: NDArray[np.uint64] | None = None
    sizes: NDArray[np.int64] | None = None
    secret: bytes = b""

    def part(self, rows: slice) -> Batch:
        """Return the data of some of the rows."""
        keys, sizes = self.keys, self.sizes
        return Batch(None if keys is None else keys[rows], None if sizes is None else sizes[rows], self.secret)


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the data of the rows of several batches of one pass, in order: all have keys, or none has."""
    keys = [batch.keys for batch in batches if batch.keys is not None]
    sizes = [batch.sizes for batch in batches if batch.sizes is not None]
    return Batch(np.concatenate(keys) if keys else None, np.concatenate(sizes) if sizes else None, batches[0].secret)


class Collector(ABC):
    """A collector of rows, batch by batch and one thread at a time."""

    @property
    def whole_blocks(self) -> int:
        """Number of whole blocks that the collector adds, each in one batch (`Batch.sizes`); may be 0."""
        return 0

    @abstractmethod
    def zero(self) -> Self:
        """Return an empty collector of the same kind."""

    @abstractmethod
    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        target : ndarray of float64, shape (rows,)
        features : ndarray of float64, shape (d, rows)
        batch : Batch
        """

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Merge another collector of the same kind into this one, and discard the other."""

    @property
    def size(self) -> int:
        """Bytes that another collector allocates at the start; 0 for few bytes."""
        return 0


class Recreatable(Collector):
    """A collector that creates empty copies from its own constructor arguments."""

    _created_with: tuple[tuple[object, ...], dict[str, object]]

    def __new__(cls, *arguments: object, **keywords: object) -> Self:
        """Create a collector that remembers its arguments."""
        created = super().__new__(cls)
        created._created_with = arguments, keywords
        return created

    def zero(self) -> Self:
        """Return an empty collector of the same kind."""
        arguments, keywords = self._created_with
        return type(self)(*arguments, **keywords)


class Fold(Recreatable):
    """A statistic made of sums, counts or extremes, whose state is one small record of integers.

    Attributes
    ----------
    grows : bool
        Whether the size of a state depends on the rows, such as on their number of names.
    """

    grows: bool = False

    @abstractmethod
    def state(self) -> pa.RecordBatch:
        """Return the state: one row of lists of integers (see `record`). It is as secret as the rows."""

    @abstractmethod
    def absorb(self, state: pa.RecordBatch) -> None:
        """Merge the state of another fold of the same kind into this one."""

    def merge(self, other: Self) -> None:
        """Merge another fold of the same kind into this one."""
        self.absorb(other.state())


class Several(Fold):
    """Several folds over the same rows.

    Attributes
    ----------
    folds : tuple of Fold
    """

    def __init__(self, *folds: Fold) -> None:
        self.folds = folds
        self.grows = any(fold.grows for fold in folds)

    def zero(self) -> Several:
        """Return empty folds of the same kinds."""
        return Several(*(fold.zero() for fold in self.folds))

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows to each fold."""
        for fold in self.folds:
            fold.add(target, features, batch)

    @property
    def size(self) -> int:
        """Bytes of all folds."""
        return sum(fold.size for fold in self.folds)

    def state(self) -> pa.RecordBatch:
        """Return all states in one record."""
        fields: dict[str, pa.Array] = {}
        for number, fold in enumerate(self.folds):
            state = fold.state()
            fields |= {f"{number} {name}": field(state, name) for name in state.schema.names}
        return record(fields)

    def absorb(self, state: pa.RecordBatch) -> None:
        """Merge each of the other states into its fold."""
        for number, fold in enumerate(self.folds):
            names = [name for name in state.schema.names if name.startswith(f"{number} ")]
            fold.absorb(state.select(names).rename_columns([name.partition(" ")[2] for name in names]))


class KeptRows(Recreatable):
    """Stored rows, for a later step that needs them one by one.

    This is not a fold: it grows with the rows, has no state to send, and `merge` appends the rows of the other. Results
    do not depend on the order of the rows.
    """


class Ignoring(Collector):
    """A pass that ignores the rows."""

    def zero(self) -> Self:
        """Return itself: it holds no state."""
        return self

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Ignore the rows."""

    def merge(self, other: Self) -> None:
        """Ignore the other collector."""


class Waiting(Ignoring):
    """A skipped pass, because its result is already known."""

    def __init__(self, following: Collector) -> None:
        self._following = following

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return the collector of the next pass."""
        return self._following


Inner = TypeVar("Inner", bound=Collector)


class RowTransform(Collector, Generic[Inner]):
    """A pass that transforms rows and passes them to another collector."""

    # Attributes for the end of the pass, in the process of the ledger: workers do not get them.
    ending: ClassVar[tuple[str, ...]] = ()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a worker."""
        return {name: value for name, value in self.__dict__.items() if name not in self.ending}

    def __init__(self, inner: Inner) -> None:
        self.inner = inner

    def zero(self) -> Self:
        """Return an empty collector of the same kind."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.inner = self.inner.zero()
        return other

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Pass a batch of rows to the inner collector."""
        self.inner.add(target, features, batch)

    def merge(self, other: Self) -> None:
        """Merge another pass of the same kind into this one."""
        self.inner.merge(other.inner)

    @property
    def whole_blocks(self) -> int:
        """Number of whole blocks that the inner collector adds."""
        return self.inner.whole_blocks

    @property
    def size(self) -> int:
        """Bytes that another pass allocates at the start."""
        return self.inner.size


def record(fields: Mapping[str, Sequence[int] | NDArray[np.int64] | pa.Array]) -> pa.RecordBatch:
    """Return a record of one row whose fields are lists of integers: int64 or decimal128(38, 0)."""
    columns = []
    for values in fields.values():
        array = values if isinstance(values, pa.Array) else from_numbers(np.asarray(values, dtype=np.int64).ravel())
        columns.append(pa.ListArray.from_arrays(from_numbers(np.array([0, len(array)], dtype=np.int32)), array))
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def field(state: pa.RecordBatch, name: str) -> pa.Array:
    """Return the integers of a field of a record."""
    return state.column(name).flatten()


def numbers(state: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Return the integers of an int64 field of a record."""
    return np.asarray(to_numbers(field(state, name)), dtype=np.int64)
