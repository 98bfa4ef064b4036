"""Folds of the counts of `feature_counts`: rows by label and present feature, and rows by private feature name.

At most `most` of the features present in a row count. A hash with the call's secret key picks them. So a row moves at
most `most` pairs of counts, as `feature_counts.released_norms` assumes. A row whose label is neither of the two levels
moves none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.errors import InternalError
from dpsql.kernels.identity import row_contents, text_words
from dpsql.kernels.kept_features import count_kept
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics.feature_counts import present_in

# What the driver of an engine takes in: names, and bytes of all of them. Beyond that the call fails, and is charged.
MOST_NAMES = 1 << 25
MOST_NAME_BYTES = 1 << 31


class FeatureCounts(Fold):
    """Counts of rows by label and feature.

    Parameters
    ----------
    width : int
        Number of features.
    most : int
        Largest number of features that count per row.
    above : float, optional
        A feature is present if its value is larger; by default, if it is not zero.
    vocabulary : Vocabulary, optional
        For privately drawn feature names: the numbers that represent them in the rows.
    names : sequence of str, optional
        The same where rows refer to features by their positions here.
    keyed : bool
        How a row with the values of all features chooses those that count, if it has too many: by a keyed hash of its
        contents and its keys, as in a worker of an engine, which draws nothing and counts the same at every attempt;
        rows that are alike then choose alike. By default at random.
    """

    def __init__(
        self,
        width: int,
        most: int,
        *,
        above: float | None = None,
        vocabulary: Vocabulary | None = None,
        names: Sequence[str] | None = None,
        keyed: bool = False,
    ) -> None:
        self.vocabulary = vocabulary
        self._keyed = keyed
        self._names = names
        self._named: Vocabulary | None = None
        self._most = most
        self._above = above
        self._width = width
        self._counts = np.zeros(2 * width + 2, dtype=np.int64)

    def zero(self) -> FeatureCounts:
        """Return empty counts of the same features."""
        vocabulary, names = self.vocabulary, self._names
        return FeatureCounts(
            self._width, self._most, above=self._above, vocabulary=vocabulary, names=names, keyed=self._keyed
        )

    @property
    def counts(self) -> NDArray[np.int64]:
        """Counts so far, shape (2 * d + 2,): of the positive class, of the negative class, and the two class sizes."""
        return self._counts

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows with the values of all features."""
        present = present_in(features, self._above)
        overfull = np.flatnonzero(present.sum(axis=0) > self._most)
        if len(overfull) and self._keyed:
            seeds = _content_words(target[overfull], features[:, overfull], batch.secret)
            if batch.keys is not None:
                seeds ^= batch.keys[overfull]
            lengths, (_, positions) = present[:, overfull].sum(axis=0), np.nonzero(present[:, overfull].T)
            self._count_some(target[overfull], lengths, positions, seeds, batch.secret)
            present[:, overfull] = False
        elif len(overfull):
            present[:, overfull] = _sample(present[:, overfull], self._most)
        sides = (target > 0, target < 0)
        parts = [present[:, side].sum(axis=1) for side in sides]
        counted = np.concatenate([*parts, [side.sum() for side in sides]])
        self._counts += counted

    def add_sparse(
        self,
        target: NDArray[np.float64],
        lengths: NDArray[np.int64],
        positions: NDArray[np.int64],
        batch: Batch,
    ) -> None:
        """Count a batch of rows with lists of the features that they have.

        Parameters
        ----------
        target : ndarray of float64, shape (rows,)
        lengths : ndarray of integers, shape (rows,)
            Number of features of each row.
        positions : ndarray of int64, shape (sum of lengths,)
            Positions of these features; a row may repeat one.
        batch : Batch
            Its keys are hashes of the rows' identities.
        """
        vocabulary = self._vocabulary(batch.secret)
        if vocabulary is not None:
            lengths, positions = vocabulary.known(lengths, positions)
        words = None if vocabulary is None else vocabulary.released_words
        self._count_some(target, lengths, positions, batch.keys, batch.secret, words)
        self._counts[-2:] += np.array([np.count_nonzero(target > 0), np.count_nonzero(target < 0)])

    def _count_some(
        self,
        target: NDArray[np.float64],
        lengths: NDArray[np.int64],
        positions: NDArray[np.int64],
        seeds: NDArray[np.uint64] | None,
        key: bytes,
        words: NDArray[np.uint64] | None = None,
    ) -> None:
        """Count the features of rows, at most so many of each; see `count_kept`."""
        sides = np.where(target > 0, 0, np.where(target < 0, self._width, -1))
        count_kept(self._counts, sides, lengths, positions, self._most, seeds, key, words)

    def _vocabulary(self, key: bytes) -> Vocabulary | None:
        """Return the private names of a call with this key, by which the features of a row are sampled."""
        if self._names is None:
            return self.vocabulary
        if self._named is None:
            self._named = Vocabulary([name.encode() for name in self._names], key)
            self._named.release(self._names)
        return self._named

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
        self.released_words = np.empty((0, 2), dtype=np.uint64)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """Keyed hashes of the names: these are numbered in no fixed order, so the sample of a row depends on them."""
        return text_words(self.names, self._key)

    def release(self, names: Sequence[str]) -> None:
        """Record the released names, in the order of the features."""
        numbers = {name: number for number, name in enumerate(self.names)}
        released = np.array([numbers[name.encode()] for name in names], dtype=np.int64)
        self._position[released] = np.arange(len(released))
        self.released_words = self.words[released]

    def known(
        self, lengths: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the features of the rows without those that are not released."""
        found = self._position[positions]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(rows[found >= 0], minlength=len(lengths)), found[found >= 0]


class NameCounts(Fold):
    """Counts of rows by feature name, of which at most `most` count per row.

    Parameters
    ----------
    most : int
        Largest number of names that count per row.
    """

    grows = True

    def __init__(self, most: int) -> None:
        self.most = most
        self.vocabulary = Vocabulary((), b"")
        self.counts = np.zeros(0, dtype=np.int64)
        # Of folds that know nothing but what they absorbed: their numbers, and bytes.
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
        """Count a batch of rows as `FeatureCounts.add_sparse` does, but regardless of their labels."""
        sides, words = np.zeros(len(lengths), dtype=np.int64), self.vocabulary.words
        count_kept(self.counts, sides, lengths, positions, self.most, batch.keys, batch.secret, words)

    def state(self) -> pa.RecordBatch:
        """Return the names seen, sorted as bytes, and their counts; the numbering of names has no fixed order."""
        seen = sorted((self.vocabulary.names[number], number) for number in np.flatnonzero(self.counts).tolist())
        names = pa.array([name for name, _ in seen], type=pa.binary())
        return record({"names": names, "rows": self.counts[[number for _, number in seen]]})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts; names that this fold does not know follow those that it does.

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
        found = [self._numbers[name] for name in names]
        self.counts[found] += numbers(state, "rows")


def label_of_cells(codes: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the label of every row whose cells have one each: of several the positive counts, and none loses to any.

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


def _sample(present: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Keep at most `most` features of each row, all equally likely; shape (d, rows).

    A row's sample depends on its own keys alone. Ties between keys (a chance of ``2**-64`` per pair) are broken
    arbitrarily; at most `most` features are kept in any case.
    """
    keys = np.where(present, SYSTEM.words(present.size).reshape(present.shape), np.uint64(2**64 - 1))
    kept = np.zeros_like(present)
    np.put_along_axis(kept, np.argpartition(keys, most - 1, axis=0)[:most], True, axis=0)
    return kept & present


def _content_words(target: NDArray[np.float64], features: NDArray[np.float64], key: bytes) -> NDArray[np.uint64]:
    """Return 64 bits of a keyed hash of every row, shape (rows,)."""
    hashes = row_contents(target, features, key)
    return np.frombuffer(hashes.buffers()[2], dtype=np.uint64)[::2].copy()
