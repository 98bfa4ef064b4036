"""Counts of rows by label and binary feature: the one statistic behind dp_score_filter and dp_naive_bayes.

A boolean feature is present in a row where it is true, and any other where its value is above the public number
`present_above`; in long rows, where its value is neither zero nor missing. What is missing is never present. Of the
features present in a row at most `max_features_per_row` count, drawn by a hash that only this call knows, so that a row
moves at most so many pairs of counts. A row whose label is neither of the two levels moves none.

Rows come with all features (wide and array layouts), or with the numbers of those that they have (long rows).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import Argument, integer
from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, Batch, Call, Collector
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import show
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, NOT_STATED, Plan
from dpsql.errors import InternalError, ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_vector, to_doubles
from dpsql.kernels.identity import first_by_key, text_words
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics.feature_counts import present_in

# DuckDB keeps at most so many values per row.
_MOST_PER_ROW = 999_999
# What every function of feature counts takes: when a feature is present, and how many of a row count.
PRESENCE = (
    integer(
        "max_features_per_row",
        "Features of a row that count, from 1 to 999999; a random choice where a row has more. Fewer mean less noise.",
        10,
        hint="Give how many features of a row are to count: fewer mean less noise. 10 is usual for texts.",
        most=_MOST_PER_ROW,
    ),
    Argument(
        "present_above",
        "A feature of a column or vector is present where its value is larger than this number.",
        shown="not zero",
        check=partial(
            parameters.finite_float,
            "present_above",
            hint="Give the number above which a value is a present feature, or leave it out for boolean features.",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class FeatureCountsPlan(Plan):
    """The plan of a function of binary features and a label.

    Attributes
    ----------
    max_features_per_row : int
        Features of a row that count, from 1 to 999,999.
    present_above : float or None
        A larger value is a present feature; None where features are boolean, or rows are long.
    """

    max_features_per_row: int
    present_above: float | None

    target_is_label: ClassVar[bool] = True
    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _own(cls, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        own = cls._read(given, "max_features_per_row", "present_above")
        if own["present_above"] is not None and layout.kind == "long":
            raise ParameterError(
                "P045", "present_above is for columns and vectors: long rows hold what is present. Leave it out."
            )
        return own

    @property
    def statistic(self) -> str:
        """Which statement collects the rows: long ones come with the numbers of their features."""
        return FEATURE_COUNTS if self.layout.kind == "long" else COLLECTED


@dataclass(frozen=True)
class Counts:
    """What was counted.

    Attributes
    ----------
    positive, negative : ndarray of int64, shape (d,)
        Rows of the positive and of the negative level that have the feature.
    positive_rows, negative_rows : int
        Rows of each level.
    """

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    positive_rows: int
    negative_rows: int


class FeatureCountsCall(Call):
    """A call of binary features and a label joined to its source's types."""

    @classmethod
    def resolve(cls, plan: Plan, row: pa.StructType, others: dict[str, pa.DataType]) -> Any:
        """Join a plan to the types of its source, as `Call.resolve`; refuse features that are not binary."""
        call = super().resolve(plan, row, others)
        if call.plan.layout.kind != "long":
            for position in call.positions[1:]:
                _check_presence(row.field(position).name, row.field(position).type, call.plan.present_above)
        return call

    def start(self) -> Collector:
        """Return empty counts."""
        return FeatureCounts(len(self.features), self.plan.max_features_per_row, above=self.plan.present_above)

    def collect(self, collector: Any, rows: pa.StructArray, batch: Batch) -> None:
        """Hand a batch of rows to a collector."""
        if self.plan.layout.kind != "long":
            super().collect(collector, rows, batch)
            return
        positions = rows.field(LONG_POSITIONS)
        lengths = positions.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        target = to_doubles(rows.field(LONG_TARGET))
        collector.add_sparse(target, lengths, positions.flatten().to_numpy(zero_copy_only=False) - 1, batch)

    def counts(self, statistic: FeatureCounts) -> Counts:
        """Return what was counted."""
        positive, negative = statistic.counts[:-2].reshape(2, -1)
        return Counts(positive, negative, int(statistic.counts[-2]), int(statistic.counts[-1]))


def _check_presence(column: str, kind: pa.DataType, above: float | None) -> None:
    """Raise when it is not said, or said wrongly, which values of a column of features are present."""
    if pa.types.is_struct(kind):
        for field in kind:
            _check_presence(field.name, field.type, above)
    elif is_boolean(kind.value_type if is_vector(kind) else kind):
        if above is not None and not 0 <= above < 1:
            raise ParameterError(
                "P060",
                f"feature {show(column)} is boolean, and present_above := {show(above)} cannot tell true from false. "
                "Compare the numeric columns in a view instead, as in x > 6 AS x, and leave present_above out.",
            )
    elif above is None:
        raise SourceError(
            "S011",
            f"feature {show(column)} is not boolean, and this function takes features that are present or absent. "
            "Give present_above := a number, such as 0: a larger value is present.",
        )


class FeatureCounts(Collector):
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
        self._lock = threading.Lock()

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
        with self._lock:
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
        with self._lock:
            np.add.at(self._counts, places, 1)
            self._counts[-2:] += sides


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


class NameCounts(Collector):
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
        self._lock = threading.Lock()

    def learn(self, names: Sequence[bytes], key: bytes) -> None:
        """Take in every name in the rows, once, before they come."""
        with self._lock:
            if not self.vocabulary.names and names:  # DuckDB evaluates a function again where it likes
                self.vocabulary = Vocabulary(names, key)
                self.counts = np.zeros(len(names), dtype=np.int64)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows with all features: their names are public."""
        raise InternalError("I004", "an internal function was given a part of another call. Use the dp_ functions.")

    def add_sparse(
        self, target: NDArray[np.float64], lengths: NDArray[np.int64], positions: NDArray[np.int64], batch: Batch
    ) -> None:
        """Count a batch of rows; as `FeatureCounts.add_sparse`, whatever their label."""
        _, kept = keep_features(lengths, positions, self.most, batch, self.vocabulary.words)
        with self._lock:
            np.add.at(self.counts, kept, 1)


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
