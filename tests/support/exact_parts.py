"""The exact integers before noise of every part that a call draws, and how far apart those of neighbouring tables are.

Nothing is drawn while they are noted: private keys are all released, and what later passes depend on is the same
whatever the rows are, as it is once it is released. Never private; for tests only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.contract.keys import RELEASED
from dpsql.contract.measurement import Part
from dpsql.functions.grouped import aggregate
from dpsql.functions.grouped.quantile import QuantileCall
from dpsql.functions.query_bounds import CoreBoundsCall
from dpsql.mechanisms.aggregates import CubeVector, GroupedNoise, NoisyBlock, on_lattice
from dpsql.mechanisms.gaussian import GaussianNoise, GaussianRelease
from dpsql.mechanisms.interval_scan import PrivateInterval, ScannedInterval
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, MarginsNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.quantile import GroupQuantileSelection, QuantileSelection
from dpsql.mechanisms.rank_counts import RankCounts
from support.broken.planting import planted

# By label, or of numbers without labels one array of shape (size, labels).
Coordinates = dict[Any, list[int]] | np.ndarray[Any, Any]
# What bounds are drawn, whatever the rows are.
ENDS = (-16.0, 16.0)


@dataclass
class DrawnPart:
    """What one part would have added noise to.

    Attributes
    ----------
    part : Part
    epsilon : Fraction
        What it spends.
    vectors : list of dict
        By label, the exact integers of each vector that gets noise of a scale of its own.
    scales : list of Fraction
        L1 distance, or squared L2 distance, of each that costs a loss of 1, or all of ``mu**2``.
    squares : bool
        Whether distances are squared: Gaussian noise.
    labelled : bool
        Whether labels are private keys, of which a table may lack some.
    tag : str
        Which rows it is of, where DuckDB's threads decide in what order parts are drawn.
    whole : Fraction or None
        What all of several divisions of the same numbers spend together.
    largest : bool
        Whether of each label the largest change alone counts: noise of a cube.
    """

    part: Part
    epsilon: Fraction
    vectors: list[Coordinates]
    scales: list[Fraction]
    squares: bool = False
    labelled: bool = False
    tag: str = ""
    whole: Fraction | None = None
    largest: bool = False

    def loss(self, other: DrawnPart) -> Fraction:
        """Return the loss between two tables; for Gaussian noise epsilon times the share of ``mu**2`` that is used.

        Raises
        ------
        AssertionError
            The parts differ, which released numbers alone may decide.
        """
        assert self.part == other.part, "the rows decide what is drawn"
        assert self.scales == other.scales, "the rows decide how wide noise is"
        total = Fraction(0)
        for before, after, scale in zip(self.vectors, other.vectors, self.scales, strict=True):
            if isinstance(before, dict) and isinstance(after, dict):
                change = list(_changes(before, after, largest=self.largest))
            else:
                assert np.asarray(before).shape == np.asarray(after).shape, "the rows decide which numbers there are"
                # Exact: of what differs, in Python's integers.
                places = np.nonzero(np.asarray(before != after))
                pairs = zip(np.asarray(before)[places].tolist(), np.asarray(after)[places].tolist(), strict=True)
                change = [int(one) - int(other) for one, other in pairs]
                if self.largest:
                    groups = places[-1].tolist()
                    moves = list(zip(groups, map(abs, change), strict=True))
                    change = [max(move for group, move in moves if group == each) for each in dict.fromkeys(groups)]
            moved = sum(one * one for one in change) if self.squares else sum(map(abs, change))
            total += Fraction(moved) / scale
        return total * (self.epsilon if self.whole is None else self.whole) if self.squares else total


def _changes(before: dict[Any, list[int]], after: dict[Any, list[int]], *, largest: bool = False) -> Iterator[int]:
    size = len(next(iter([*before.values(), *after.values()]), []))
    nothing = [0] * size
    for label in before.keys() | after.keys():
        pairs = zip(before.get(label, nothing), after.get(label, nothing), strict=True)
        change = [int(one) - int(other) for one, other in pairs]
        yield from [max(map(abs, change), default=0)] if largest else change


@dataclass
class Call:
    """All parts that one call drew, in order, and what it answered."""

    parts: list[DrawnPart] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    types: list[Any] = field(default_factory=list)

    @property
    def epsilon(self) -> Fraction:
        """What its parts spend."""
        return sum((one.epsilon for one in self.parts), Fraction(0))

    def loss(self, other: Call) -> Fraction:
        """Return the loss between two tables, as all parts add it up.

        Raises
        ------
        AssertionError
            Another number of parts was drawn, or other ones.
        """
        assert len(self.parts) == len(other.parts), "the rows decide what is drawn"
        return sum((one.loss(also) for one, also in zip(self.parts, other.parts, strict=True)), Fraction(0))


def _columns(values: Any) -> np.ndarray[Any, Any]:
    """Return integers of shape (size, G), exactly; of one dimension they are of one label each."""
    listed = np.asarray(values)
    if not np.issubdtype(listed.dtype, np.integer):
        listed = np.asarray(values, dtype=object)
    return listed.reshape(1, -1).copy() if listed.ndim == 1 else listed.copy()


def _of_labels(found: Coordinates, labels: Sequence[Any], places: Sequence[int]) -> dict[Any, list[int]]:
    """Return the columns at some places by their labels."""
    assert not isinstance(found, dict)
    columns = found.T.tolist()
    return {label: [int(one) for one in columns[place]] for label, place in zip(labels, places, strict=True)}


class _Recorder:
    """Notes the parts of the call that runs."""

    def __init__(self) -> None:
        self.call = Call()
        # Of the part that is drawn, the keys of its groups, where another part has released them.
        self.labels: list[Any] | None = None
        self._keyed: list[tuple[list[NoisyBlock], DrawnPart]] = []
        self.of = threading.local()

    def note(
        self, part: Part, epsilon: Fraction, vectors: Sequence[Any], scales: Sequence[Any], *, squares: bool = False
    ) -> DrawnPart:
        columns: list[Coordinates] = [_columns(one) for one in vectors]
        if self.labels is not None:
            columns = [_of_labels(one, self.labels, range(len(self.labels))) for one in columns]
        found = DrawnPart(part, epsilon, columns, [*map(Fraction, scales)], squares, self.labels is not None)
        found.tag = getattr(self.of, "rows", "")
        self.call.parts.append(found)
        return found

    def blocks(
        self, part: GroupedNoise, noted: Part, sums: Sequence[Any], epsilon: Fraction
    ) -> tuple[list[NoisyBlock], DrawnPart]:
        exact = [
            NoisyBlock(block, lattice, on_lattice(block.words(given), lattice.bits))
            for block, lattice, given in zip(part.blocks, part.lattices, sums, strict=True)
        ]
        spreads = [lattice.spread for lattice in part.lattices]
        squares = part.mu is not None
        scales = [spread * part.mu**2 for spread in spreads] if part.mu is not None else spreads
        found = self.note(noted, epsilon, [one.words.integers() for one in exact], scales, squares=squares)
        return exact, found

    def keyed(self, part: KeyedNoise, sums: Sequence[Any]) -> tuple[Any, list[NoisyBlock]]:
        exact, found = self.blocks(part.noise, part, sums, part.epsilon)
        if part.truncated:  # its noise is no Laplace noise of this scale; what a unit adds is what it may add
            norm = part.blocks[0].norm(part.contribution)
            found.scales = [Fraction(norm) / part.epsilon]
        self._keyed.append((exact, found))
        return np.arange(len(sums[0].n)), exact

    def name(self, released: Any, order: Any, labels: Any) -> None:
        """Say which groups the numbers of private keys are of."""
        for exact, found in self._keyed:
            if not found.labelled and any(one is other for one in exact for other in released.noisy):
                keys = list(zip(*labels, strict=True))
                found.labelled = True
                found.vectors = [_of_labels(vector, keys, order.tolist()) for vector in found.vectors]


def _patches(recorder: _Recorder) -> Iterator[tuple[Any, str, Any]]:
    def grouped(part: GroupedNoise, sums: Sequence[Any]) -> list[NoisyBlock]:
        return recorder.blocks(part, part, sums, part.epsilon)[0]

    def cube(part: CubeVector, sums: Sequence[Any]) -> list[NoisyBlock]:
        rows, *own = sums
        vector: list[Any] = [None] * part.coordinates
        exact = []
        for one, places, lattice, given in zip(part.targets, part.positions, part.lattices, own, strict=True):
            words = on_lattice(one.block.words(one.sums(rows, given)), lattice.bits)
            exact.append(NoisyBlock(one.block, lattice, words))
            for place, numbers in zip(places, words.integers(), strict=True):
                assert vector[place] is None or list(vector[place]) == list(numbers), "two numbers have one noise"
                vector[place] = numbers
        recorder.note(part, part.epsilon, [vector], [part.scale]).largest = True
        return exact

    def margins(part: MarginsNoise, sums: Sequence[Any]) -> list[list[NoisyBlock]]:
        out = []
        for number, (lattices, given) in enumerate(zip(part.all_lattices, sums, strict=True)):
            exact = [
                NoisyBlock(block, lattice, on_lattice(block.words(one), lattice.bits))
                for block, lattice, one in zip(part.blocks, lattices, given, strict=True)
            ]
            spreads = [lattice.spread for lattice in lattices]
            scales = [spread * part.mu**2 for spread in spreads] if part.mu is not None else spreads
            vectors = [one.words.integers() for one in exact]
            # What all sets spend together is told once; each adds its part of the loss.
            noted = recorder.note(part, part.epsilon if number == 0 else Fraction(0), vectors, scales)
            noted.squares, noted.whole = part.mu is not None, part.epsilon
            out.append(exact)
        return out

    def keyed(part: KeyedNoise, sums: Sequence[Any]) -> Any:
        return recorder.keyed(part, sums)

    def counted(part: QuantileSelection, counts: Any) -> list[int]:
        recorder.note(part, part.epsilon, [counts], [part.max_rows_per_unit / part.epsilon])
        return [len(counts) // 2] * len(part.at)

    def counted_groups(part: GroupQuantileSelection, counts: Any) -> list[list[int]]:
        table = np.array(counts)
        recorder.note(part, part.epsilon, [table.T], [part.max_rows_per_unit / part.epsilon])
        return [[table.shape[1] // 2] * len(part.at) for _ in table]

    def ranked(part: RankCounts, bins: Sequence[Any]) -> list[Any]:
        listed = [np.asarray(one, dtype=np.int64) for one in bins]
        if recorder.labels is None:
            counts: Any = np.concatenate([*listed, np.zeros(0, np.int64)])
        else:
            counts = np.stack(listed, axis=1) if listed else np.zeros((0, 0), np.int64)
        recorder.note(part, part.epsilon, [counts], [part.scale])
        return [*bins]

    def scanned(part: ScannedInterval, counts: Any) -> PrivateInterval:
        recorder.note(part, part.noise.epsilon, [counts], [part.noise.max_rows_per_unit / part.noise.epsilon])
        return PrivateInterval(ENDS, 1 << 30, 0)

    def scanned_groups(part: ScannedInterval, counts: Any) -> list[PrivateInterval]:
        scanned(part, np.array(counts).T)
        return [PrivateInterval(ENDS, 1 << 30, 0) for _ in counts]

    def plain(part: LaplaceNoise, values: Sequence[int], l1_sensitivity: Any = None) -> list[int]:
        recorder.note(part, part.epsilon, [[int(one) for one in values]], [part.scale(l1_sensitivity)])
        return [int(one) for one in values]

    def plain_counts(part: LaplaceNoise, counts: Any, l1_sensitivity: Any, *, one: int = 1) -> Any:
        recorder.note(part, part.epsilon, [counts], [part.scale(l1_sensitivity) * one])
        return np.asarray(counts, dtype=np.float64) / one

    def sums(part: GaussianNoise, share: str, sums: Any, *, squared_sensitivity: Fraction) -> GaussianRelease:
        # All of mu is one loss; a release uses the square of its share of it.
        scale = Fraction(squared_sensitivity) / (part.mu_of(share) / part.mu) ** 2
        recorder.note(part, part.epsilon, [sums], [scale], squares=True)
        return GaussianRelease(np.asarray(sums, dtype=np.float64), 1.0)

    def counts(
        part: GaussianNoise, share: str, counts: Any, *, squared_sensitivity: int, one: int = 1
    ) -> GaussianRelease:
        scale = squared_sensitivity * Fraction(one) ** 2 / (part.mu_of(share) / part.mu) ** 2
        recorder.note(part, part.epsilon, [counts], [scale], squares=True)
        return GaussianRelease(np.asarray(counts, dtype=np.float64) / one, 1.0)

    def tagged(method: Any) -> Any:
        def within(call: Any, *given: Any) -> Any:
            placement = call.plan.placement
            recorder.of.rows = f"{placement.joined if placement is not None else ''} {call.plan.targets}"
            try:
                return method(call, *given)
            finally:
                recorder.of.rows = ""

        return within

    def labelled(prepare: Any) -> Any:
        def of_released(call: Any, statistic: Any, progress: Any) -> Any:
            draw = prepare(call, statistic, progress)
            if getattr(call.plan, "keys_table", None) != RELEASED:
                return draw

            def drawn() -> Any:
                recorder.labels = list(zip(*call.places.labels, strict=True))
                try:
                    return draw()
                finally:
                    recorder.labels = None

            return drawn

        return of_released

    in_order = aggregate.ReleasedKeys.in_order

    def ordered(collector: Any, columns: int) -> Any:
        order, labels = in_order(collector, columns)
        recorder.name(collector, order, labels)
        return order, labels

    class Released(aggregate.ReleasedKeys):
        in_order = ordered

    yield from (
        (GroupedNoise, "draw", grouped),
        (CubeVector, "draw", cube),
        (KeyedNoise, "draw", keyed),
        (MarginsNoise, "draw", margins),
        (QuantileSelection, "draw", counted),
        (QuantileSelection, "draw_tied", counted),
        (GroupQuantileSelection, "draw_groups", counted_groups),
        (RankCounts, "draw", ranked),
        (ScannedInterval, "draw", scanned),
        (ScannedInterval, "draw_groups", scanned_groups),
        (LaplaceNoise, "draw", plain),
        (LaplaceNoise, "draw_counts", plain_counts),
        (GaussianNoise, "draw_sums", sums),
        (GaussianNoise, "draw_counts", counts),
        (aggregate, "ReleasedKeys", Released),
        (aggregate.AggregateCall, "turn", tagged(aggregate.AggregateCall.turn)),
        (aggregate.AggregateCall, "after", tagged(aggregate.AggregateCall.after)),
        (CoreBoundsCall, "after", tagged(CoreBoundsCall.after)),
        (aggregate.AggregateCall, "prepare", labelled(aggregate.AggregateCall.prepare)),
        (QuantileCall, "prepare", labelled(QuantileCall.prepare)),
    )


class ExactCalls:
    """Runs statements whose parts are noted."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def run(self, con: Any, sql: str) -> Call:
        """Run a statement; return what its parts would have added noise to, and what it answers without noise."""
        self._recorder.call = call = Call()
        self._recorder._keyed = []
        cursor = con.execute(sql)
        call.rows = cursor.fetchall()
        call.parts.sort(key=lambda one: one.tag)
        call.types = [column[:2] for column in cursor.description]
        return call


@contextmanager
def exact_parts() -> Iterator[ExactCalls]:
    """Note what every part would add noise to, and draw nothing."""
    recorder = _Recorder()
    with planted(*_patches(recorder)):
        yield ExactCalls(recorder)
