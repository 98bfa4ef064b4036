"""Rows by label and present feature, and by the names of private features: folds of the counts of `feature_counts`.

Of the features present in a row at most so many count, drawn by a hash that only the call knows, so that a row moves at
most so many pairs of counts, as `feature_counts.released_norms` says. A row whose label is neither of the two levels
moves none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.errors import InternalError
from dpsql.kernels.identity import first_by_key, text_words
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics.feature_counts import present_in


class FeatureCounts(Fold):
    """Counts of rows by label and feature.

    Parameters
    ----------
    width : int
        Features.
    most : int
        Features of a row that count.
    above : float, optional
        A larger value is a present feature; by default any but zero.
    vocabulary : Vocabulary, optional
        Where the features are names that were drawn: which numbers in the rows stand for them.
    """

    def __init__(
        self, width: int, most: int, *, above: float | None = None, vocabulary: Vocabulary | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self._most = most
        self._above = above
        self._width = width
        self._counts = np.zeros(2 * width + 2, dtype=np.int64)

    def zero(self) -> FeatureCounts:
        """Return empty counts of the same features."""
        return FeatureCounts(self._width, self._most, above=self._above, vocabulary=self.vocabulary)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Counts so far, shape (2 * d + 2,): of the positive level, of the negative one, and rows of each."""
        return self._counts

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows that come with all features."""
        present = present_in(features, self._above)
        overfull = np.flatnonzero(present.sum(axis=0) > self._most)
        if len(overfull):
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
        """Count a batch of rows that come with the features that they have.

        Parameters
        ----------
        target : ndarray of float64, shape (rows,)
        lengths : ndarray of integers, shape (rows,)
            How many features each row has.
        positions : ndarray of int64, shape (sum of lengths,)
            Which ones; the same one may come several times.
        batch : Batch
            Whose keys are hashes of the rows' identities.
        """
        if self.vocabulary is not None:
            lengths, positions = self.vocabulary.known(lengths, positions)
        words = None if self.vocabulary is None else self.vocabulary.released_words
        rows, kept = keep_features(lengths, positions, self._most, batch, words)
        sides = np.array([np.count_nonzero(target > 0), np.count_nonzero(target < 0)])
        counting = target[rows] != 0
        places = kept[counting] + np.where(target[rows[counting]] > 0, 0, self._width)
        np.add.at(self._counts, places, 1)
        self._counts[-2:] += sides

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self._counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts, of the same features."""
        self._counts += numbers(state, "counts")


class Vocabulary:
    """Names of features that are private: what the rows call them, and which of them are released.

    Parameters
    ----------
    names : sequence of bytes
        Every name in the rows, as UTF-8; in the rows they are numbered as they stand here.
    key : bytes
        Of the call.
    """

    def __init__(self, names: Sequence[bytes], key: bytes) -> None:
        self.names = names
        # The numbers come in any order, so what is kept of a row follows from the names.
        self.words = text_words(names, key)
        self.released: tuple[str, ...] = ()
        self._position = np.full(len(names), -1, dtype=np.int64)
        self.released_words = self.words[:0]

    def release(self, names: Sequence[str]) -> None:
        """Take note of the names that are released, in the order of the features."""
        self.released = tuple(names)
        numbers = {name: number for number, name in enumerate(self.names)}
        released = np.array([numbers[name.encode()] for name in names], dtype=np.int64)
        self._position[released] = np.arange(len(released))
        self.released_words = self.words[released]

    def known(
        self, lengths: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what is left of rows' features when those that are not released go."""
        found = self._position[positions]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(rows[found >= 0], minlength=len(lengths)), found[found >= 0]


class NameCounts(Fold):
    """Counts of rows by the names of their features, of which at most so many count in each row.

    Parameters
    ----------
    most : int
        Names of a row that count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.vocabulary = Vocabulary((), b"")
        self.counts = np.zeros(0, dtype=np.int64)

    def learn(self, names: Sequence[bytes], key: bytes) -> None:
        """Take in every name in the rows, before they come; once, what is told again is left alone."""
        if not self.vocabulary.names and names:
            self.vocabulary = Vocabulary(names, key)
            self.counts = np.zeros(len(names), dtype=np.int64)

    def zero(self) -> NameCounts:
        """Return empty counts of the same names."""
        other = NameCounts(self.most)
        other.vocabulary, other.counts = self.vocabulary, np.zeros_like(self.counts)
        return other

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows with all features: their names are public."""
        raise InternalError("I004", "an internal function was given a part of another call. Use the dp_ functions.")

    def add_sparse(
        self, target: NDArray[np.float64], lengths: NDArray[np.int64], positions: NDArray[np.int64], batch: Batch
    ) -> None:
        """Count a batch of rows; as `FeatureCounts.add_sparse`, whatever their label."""
        _, kept = keep_features(lengths, positions, self.most, batch, self.vocabulary.words)
        np.add.at(self.counts, kept, 1)

    def state(self) -> pa.RecordBatch:
        """Return names that were seen, ascending as bytes, and their counts; their numbers come in any order."""
        seen = sorted((self.vocabulary.names[number], number) for number in np.flatnonzero(self.counts).tolist())
        names = pa.array([name for name, _ in seen], type=pa.binary())
        return record({"names": names, "rows": self.counts[[number for _, number in seen]]})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts, of names that this one knows."""
        known = {name: number for number, name in enumerate(self.vocabulary.names)}
        found = [known[name] for name in field(state, "names").to_pylist()]
        self.counts[found] += numbers(state, "rows")


def keep_features(
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    batch: Batch,
    words: NDArray[np.uint64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the features that count: each once in a row, and `most` of a row, by a keyed order of its own.

    Parameters
    ----------
    lengths, positions, batch
        As for `FeatureCounts.add_sparse`.
    most : int
    words : ndarray of uint64, shape (features, 2), or None
        What the positions stand for; None where they are public.

    Returns
    -------
    rows, kept : ndarray of int64, shape (n,)
        Row and position of each, rows ascending.
    """
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = int(positions.max(initial=0)) + 1
    cells = np.sort(rows * width + positions)
    cells = cells[np.diff(cells, prepend=-1) > 0]  # np.unique hashes, which takes longer
    rows, kept = cells // width, cells % width
    overfull = np.bincount(rows, minlength=len(lengths))[rows] > most
    if overfull.any():
        if batch.keys is None:
            raise ValueError("long rows carry a hash of their identity")
        items = kept[overfull]
        known = np.stack([items, items], axis=1).astype(np.uint64) if words is None else words[items]
        first = ~overfull
        first[overfull] = first_by_key(rows[overfull], known, batch.keys, batch.secret, most)
        rows, kept = rows[first], kept[first]
    return rows, kept


def _sample(present: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Keep at most `most` features of each row, any of them as likely, of shape (d, rows).

    A row's sample depends on its own keys alone. Equal keys (a chance of ``2**-64`` a pair) are settled in no
    particular way: no more than `most` features are kept however they are.
    """
    keys = np.where(present, SYSTEM.words(present.size).reshape(present.shape), np.uint64(2**64 - 1))
    kept = np.zeros_like(present)
    np.put_along_axis(kept, np.argpartition(keys, most - 1, axis=0)[:most], True, axis=0)
    return kept & present
