"""Count rows by label and present feature, and by private feature name, for `feature_counts`.

A row whose label is neither of the two levels moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.errors import InternalError
from dpsql.kernels.identity import count_kept, text_words
from dpsql.kernels.xty import add_shares, feature_shares
from dpsql.statistics.feature_counts import present_in

# Most names, and bytes of all names, in an engine's driver. Beyond them the call fails, and costs its budget.
MOST_NAMES = 1 << 25
MOST_NAME_BYTES = 1 << 31


class FeatureCounts(Fold):
    """Counts of rows by label and feature.

    Parameters
    ----------
    width : int
        Number of features.
    most : int
        Most rows that all features of a row count together: if a row has more, each counts an equal share.
    denominator : int
        One row in the unit of the counts of features; see `dpsql.statistics.feature_counts`.
    above : float, optional
        A feature is present if its value is larger; by default, if it is not zero.
    vocabulary : Vocabulary, optional
        For private feature names: the numbers that represent them in the rows.
    """

    def __init__(
        self,
        width: int,
        most: int,
        *,
        denominator: int = 1,
        above: float | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.denominator = denominator
        self._most = most
        self._above = above
        self._width = width
        self._counts = np.zeros(2 * width + 2, dtype=np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Counts so far, shape (2 * d + 2,): of the positive class, of the negative class, and the two class sizes.

        Features count in units of ``1 / denominator`` rows, class sizes in rows.
        """
        return self._counts

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows with the values of all features."""
        present = present_in(features, self._above)
        sides = (target > 0, target < 0)
        crowded = np.zeros(len(target), dtype=np.bool_)
        if self._width > self._most:
            counts = present.sum(axis=0)
            crowded = counts > self._most
            if crowded.any():
                # Sums of a batch stay far below 2**53, so products of doubles are exact integers.
                shares = feature_shares(counts[crowded], self._most, self.denominator).astype(np.float64)
                few = present[:, crowded].astype(np.float64)
                sums = np.concatenate([few @ np.where(side[crowded], shares, 0.0) for side in sides])
                self._counts[:-2] += sums.astype(np.int64)
        totals = np.concatenate([present[:, side & ~crowded].sum(axis=1, dtype=np.int64) for side in sides])
        self._counts[:-2] += self.denominator * totals
        self._counts[-2:] += np.array([np.count_nonzero(side) for side in sides])

    def add_sparse(
        self, target: NDArray[np.float64], lengths: NDArray[np.int64], positions: NDArray[np.int64], batch: Batch
    ) -> None:
        """Count a batch of rows with lists of their features.

        Parameters
        ----------
        target : ndarray of float64, shape (rows,)
        lengths : ndarray of integers, shape (rows,)
            Number of features of each row.
        positions : ndarray of int64, shape (sum of lengths,)
            Positions of these features; a row may repeat one.
        batch : Batch
        """
        if self.vocabulary is not None:
            lengths, positions = self.vocabulary.released_only(lengths, positions)
        sides = np.where(target > 0, 0, np.where(target < 0, self._width, -1))
        add_shares(self._counts, sides, lengths, positions, self._most, self.denominator)
        self._counts[-2:] += np.array([np.count_nonzero(target > 0), np.count_nonzero(target < 0)])

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self._counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts, of the same features."""
        self._counts += numbers(state, "counts")


class Vocabulary:
    """Private feature names: their numbers in the rows, and which of them are released.

    Parameters
    ----------
    names : sequence of bytes
        Every name in the rows, as UTF-8. A row refers to a name by its position here.
    key : bytes
        Key of the call.
    """

    def __init__(self, names: Sequence[bytes], key: bytes) -> None:
        self.names = names
        self._key = key
        self._position = np.full(len(names), -1, dtype=np.int64)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """Keyed hashes of the names: these are numbered in no fixed order, so the sample of a row depends on them."""
        return text_words(self.names, self._key)

    def release(self, names: Sequence[str]) -> None:
        """Record the released names, in the order of the features."""
        numbers = {name: number for number, name in enumerate(self.names)}
        released = np.array([numbers[name.encode()] for name in names], dtype=np.int64)
        self._position[released] = np.arange(len(released))

    def released_only(
        self, lengths: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the features of the rows, released ones only."""
        indices = self._position[positions]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(rows[indices >= 0], minlength=len(lengths)), indices[indices >= 0]


class NameCounts(Fold):
    """Counts of rows by feature name, with at most `most` names per row.

    Parameters
    ----------
    most : int
        Largest number of names that count per row.

    Notes
    -----
    These counts decide which names are shown, and are not released. A name that only one row has must almost never be
    shown, so the number of names that a row can bring in needs a bound. Shares do not bound it: a row with k names that
    nobody else has would bring in each with at least the chance of a name without rows, which adds up to any size. So a
    row with more names chooses `most` of them by a keyed hash of its own identity and the names
    (`dpsql.kernels.identity`), without its label. Scores use the counts of the released names from `FeatureCounts`,
    which choose nothing.
    """

    grows = True

    def __init__(self, most: int) -> None:
        self.most = most
        self.vocabulary = Vocabulary((), b"")
        self.counts = np.zeros(0, dtype=np.int64)
        # For folds without names of their own: numbers and bytes of absorbed names.
        self._numbers: dict[bytes, int] | None = None
        self._bytes = 0

    def learn(self, names: Sequence[bytes], key: bytes) -> None:
        """Set the names that occur in the rows, before the rows are added; later calls have no effect."""
        if not self.vocabulary.names and names:
            self.vocabulary = Vocabulary(names, key)
            self.counts = np.zeros(len(names), dtype=np.int64)

    def zero(self) -> NameCounts:
        """Return empty counts of the same names."""
        other = NameCounts(self.most)
        other.vocabulary, other.counts = self.vocabulary, np.zeros_like(self.counts)
        return other

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows with the values of all features, because their names are public."""
        raise InternalError("I004", "an internal function was given a part of another call. Use the dp_ functions.")

    def add_sparse(
        self, target: NDArray[np.float64], lengths: NDArray[np.int64], positions: NDArray[np.int64], batch: Batch
    ) -> None:
        """Count the names of a batch of rows, regardless of labels; the batch has hashes of the rows' identities."""
        words = self.vocabulary.words
        count_kept(self.counts, lengths, positions, self.most, batch.keys, batch.secret, words)

    def state(self) -> pa.RecordBatch:
        """Return the names seen, sorted as bytes, and their counts; the numbering of names has no fixed order."""
        seen = sorted((self.vocabulary.names[number], number) for number in np.flatnonzero(self.counts).tolist())
        names = pa.array([name for name, _ in seen], type=pa.binary())
        return record({"names": names, "rows": self.counts[[number for _, number in seen]]})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts; new names follow this fold's names.

        Raises
        ------
        MemoryError
            There are more names than `MOST_NAMES`, or longer ones together than `MOST_NAME_BYTES`.
        """
        names = field(state, "names").to_pylist()
        if self._numbers is None:
            self._numbers = {name: number for number, name in enumerate(self.vocabulary.names)}
        new = [name for name in names if name not in self._numbers]
        if new:
            self._numbers |= {name: number for number, name in enumerate(new, len(self._numbers))}
            self._bytes += sum(map(len, new))
            if len(self._numbers) > MOST_NAMES or self._bytes > MOST_NAME_BYTES:
                raise MemoryError("too many names")
            self.vocabulary = Vocabulary(list(self._numbers), b"")
            self.counts = np.concatenate([self.counts, np.zeros(len(new), dtype=np.int64)])
        indices = [self._numbers[name] for name in names]
        self.counts[indices] += numbers(state, "rows")


def label_of_cells(codes: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the label of every row from one label per cell: any positive one wins, then any negative one.

    Parameters
    ----------
    codes : ndarray of float64, shape (sum of lengths,)
        Above 0 for the positive level, below 0 for the negative one, 0 for neither.
    lengths : ndarray of int64, shape (rows,)
        Number of cells of each row, >= 1.

    Returns
    -------
    labels : ndarray of float64, shape (rows,)
        1, -1 or 0.
    """
    if not len(lengths):
        return np.zeros(0)
    ranks = np.where(codes > 0, 2, np.where(codes < 0, 1, 0)).astype(np.int8)
    return np.array([0.0, -1.0, 1.0])[np.maximum.reduceat(ranks, np.cumsum(lengths) - lengths)]
