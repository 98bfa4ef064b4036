"""Released aggregates: their record in the ledger, and their rows. Everything here is free post-processing.

The ledger stores the noisy integers, and the public facts about them. Every read of the release computes values, errors
and intervals (`dpsql.released.covariance`).

**Dropped rows.** Rows beyond row limits, and values that drawn bounds clipped, as far as noisy numbers show them:
post-processing.

A row is `biased` if the noisy numbers show that the loss is more than half of its interval. The interval covers the
rows that count, and the noise on them; the loss is in addition.

**Why at least, and not at most.** Each unit's part is cut (`dpsql.statistics.aggregates`), so the numbers give a lower
bound on the loss, except for noise, with the chance `confidence`. No private number is an upper bound: one person's
million rows must not show. An upper end of the noisy number would not help either: with a share s of epsilon its noise
is (1 - s) / s times the noise of a count, so at a share of 5 % it always exceeds the count's own interval, and no row
would ever be `clear`. So `clear` does not mean that there was no loss; `covers` says what the number covers.

**Groups.** The loss is known over all groups together. If it is L, at most L / h groups lack more than h, half of a
row's interval. A row is `biased` if L / h is at least one group, and more than the share of the groups, one less the
confidence, whose intervals may fail anyway. With up to 20 groups at 95 % that is any row with h < L, as if its group
had the whole loss; with many groups the rows stay `clear` as long as 95 % of them are within their intervals.

==================  ===================================================================================================
aggregate           number that is compared with h
==================  ===================================================================================================
count, sum          the lower bound on dropped rows, or on the absolute sum of their values
avg                 the lower bound on the change of the mean of all groups together with the dropped rows: to first
                    order, because the noisy mean stands in for the mean of the rows that count
variance, stddev    nothing: noise alone decides the verdict of their rows
==================  ===================================================================================================

**Clipping.** Drawn bounds clip the values beyond them, and the counted tails (`dpsql.mechanisms.interval_scan`, *Wider
ends*) give the loss in a sum, or in a sum of squares, over all groups. It is a forecast, on the safe side of likely
values, and no limit: so a row is `biased` if the forecast exceeds a quarter of the interval, which then still covers
nearly as often as it says. Sums are compared as above; for a mean, a variance and a deviation the forecast is the
change over all groups together. Declared bounds of the owner or the caller are public, and clip as declared.

**Stored blocks.** The ledger stores noisy blocks as their integers, and the public facts about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NotRequired, Protocol, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, from_numbers, from_values
from dpsql.contract.json import Json
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.released.covariance import Estimated, estimates, nothing_left
from dpsql.released.intervals import interval_record, interval_verdicts, noise_quantile, restored_interval
from dpsql.released.results import Groups, groups_record
from dpsql.released.sampling import sampled_mean
from dpsql.statistics.aggregates import (
    AVG,
    COUNT,
    CUBE,
    POWERS,
    STDDEV,
    SUM,
    Bernstein,
    Block,
    CentredPair,
    CentredSum,
    Chebyshev,
    DirectSum,
    GroupCount,
    SharedTarget,
    TransformedPair,
    UnitsOver,
    ValueBlock,
    Words,
)

_ABOUT_THE_MIDDLE = CentredSum, CentredPair, Chebyshev, SharedTarget
_BLOCKS = (GroupCount, UnitsOver, DirectSum, TransformedPair, Bernstein, *_ABOUT_THE_MIDDLE)
_KINDS: dict[str, Callable[..., Block]] = {block.kind: block for block in _BLOCKS}


class StoredBlock(TypedDict):
    """The noisy integers of one target, by coordinate and group: high words, and low words of `word_bits` bits.

    If bounds are private, `drawn` is their interval (`dpsql.released.intervals.interval_record`); without ends the
    target has no values, and the release has only its count. `weight` is the weight of a count that targets share, and
    `together` the number of coordinates that share the noise of a cube.
    """

    target: str | None
    kind: str
    bounds: Sequence[float] | None
    noise: str
    bits: int
    spread: str
    words: list[list[list[int]]]
    word_bits: int
    weight: NotRequired[int]
    together: NotRequired[int]
    drawn: NotRequired[list[float | None]]


def stored_block(target: str | None, noisy: NoisyBlock) -> dict[str, Json]:
    """Return the ledger's record of a block, a `StoredBlock`."""
    block, lattice, words = noisy.block, noisy.lattice, noisy.words
    return {
        "target": target,
        "kind": block.kind,
        "bounds": [block.lower, block.upper] if isinstance(block, ValueBlock) else None,
        "noise": lattice.noise,
        "bits": lattice.bits,
        "spread": str(lattice.spread),
        "words": [part.tolist() for part in (words.high, words.low) if isinstance(part, np.ndarray)],
        "word_bits": words.bits,
        **({"weight": block.weight} if isinstance(block, SharedTarget) else {}),
        **({"together": lattice.together} if lattice.noise == CUBE else {}),
    }


def restored_block(stored: StoredBlock) -> NoisyBlock:
    """Return the block that `stored_block` wrote."""
    kind = _KINDS[stored["kind"]]
    weight = {"weight": stored["weight"]} if "weight" in stored else {}
    block = kind() if stored["bounds"] is None else kind(*stored["bounds"], **weight)
    lattice = Lattice(stored["noise"], stored["bits"], Fraction(stored["spread"]), stored.get("together", 1))
    words = [np.array(part, dtype=np.int64) for part in stored["words"]]
    low = words[1] if len(words) > 1 else 0
    return NoisyBlock(block, lattice, Words(words[0], low, stored["word_bits"]))


class LeftOut(TypedDict):
    """Rows beyond the limits: noisy blocks of units, then of each target or of all rows.

    `most` is how many rows of one unit they hold at most.
    """

    most: int
    blocks: list[StoredBlock]


# The part of half an interval that clipping may take before a row is biased.
_CUT = 0.5


def are_biased(
    result: Mapping[str, Any], series: Sequence[tuple[str | None, str, Estimated]]
) -> list[NDArray[np.bool_]]:
    """Return which rows lack more than half of their intervals, by target, name and estimates of each aggregate."""
    names = len(result["aggregates"])
    return [is_biased(result, number // names, name, estimate) for number, (_, name, estimate) in enumerate(series)]


def is_biased(result: Mapping[str, Any], target: int, name: str, estimated: Estimated) -> NDArray[np.bool_]:
    """Return which rows of one aggregate of a target lack more than half of their intervals."""
    half = np.fmax(estimated.upper - estimated.value, estimated.value - estimated.lower)
    some = 1.0 if name not in (COUNT, SUM) else max(1.0, (1.0 - result["confidence"]) * len(estimated.value))
    least = at_least(result, target, name) if "left_out" in result else 0.0
    cut = clipped(result, target, name)
    # A deviation changes by half if its square changes by this.
    far = half * (2.0 * estimated.value + half) if name == STDDEV else half
    return np.asarray((least > half * some) | (cut > _CUT * far * some), dtype=np.bool_)  # false for NaN


def clipped(result: Mapping[str, Any], target: int, name: str) -> float:
    """Return how far drawn bounds moved an aggregate over all groups, or the square of a deviation; 0 if unknown."""
    stored = result["blocks"][target]
    if name == COUNT or stored["bounds"] is None or not stored.get("drawn"):
        return 0.0
    rows = _mean(result, target)[1]
    moved = restored_interval(stored["drawn"]).clipped(tuple(stored["bounds"]), POWERS[name], rows)
    return moved if name == SUM else moved / max(1.0, rows)


def at_least(result: Mapping[str, Any], target: int, name: str) -> float:
    """Return a lower bound on an aggregate's loss for a target, over all groups; 0 if nothing is shown."""
    units, block = (restored_block(result["left_out"]["blocks"][index]) for index in (0, 1 + target))
    tail = 1.0 - result["confidence"]
    if name == COUNT:
        rows = _lack(block, _weights(block)[0], tail)
        # A unit without a value in any row lost no value.
        return rows if result["blocks"][target]["target"] is not None else max(rows, _lack(units, np.ones(1), tail))
    if not isinstance(block.block, ValueBlock):
        return 0.0
    counted, values = _weights(block)
    middle, half = block.block.middle_and_half
    if name == SUM:
        return _lack(block, middle * counted + half * values, tail, signed=True)
    mean, rows = _mean(result, target)
    if name != AVG or not counted.any() or mean is None:
        return 0.0
    fallen = max(0.0, float(counted @ block.values[:, 0]))
    return half * _lack(block, values - mean * counted, tail, signed=True) / (rows + fallen)


def _weights(noisy: NoisyBlock) -> tuple[Doubles, Doubles]:
    """Return the forms of the number of rows and of the sum of z; zeros if a block lacks one of them."""
    weights = np.zeros((2, noisy.block.size))
    for row, moment in enumerate(noisy.block.moments[:2]):
        weights[row] = moment
    return weights[0], weights[1]


def _lack(noisy: NoisyBlock, weights: Doubles, tail: float, *, signed: bool = False) -> float:
    """Return the least size of a form that noise leaves, except for a chance of `tail`; 0 for nothing."""
    value = float(weights @ noisy.values[:, 0])
    return max(0.0, (abs(value) if signed else value) - float(noise_quantile(noisy, weights, tail)))


def _mean(result: Mapping[str, Any], target: int) -> tuple[float | None, float]:
    """Return the noisy mean z of the rows that count in all groups together, and their noisy number."""
    noisy = restored_block(result["blocks"][target])
    counted, values = _weights(noisy)
    rows = float(sum(result["sizes"]) if "sizes" in result else (counted @ noisy.values).sum())
    if not rows > 0.0:
        return None, 0.0
    return float(np.clip((values @ noisy.values).sum() / rows, -1.0, 1.0)), rows


def left_out_statement(result: Mapping[str, Any], *, has_names: bool = True) -> dict[str, Json]:
    """Return the receipt's statement on dropped rows: noisy numbers with the standard deviations of their noise.

    Rows and sums hold at most `most_rows_of_a_unit` rows of each unit, so they are too small if units have more.
    Without `has_names`, targets are columns that a query was split into, and their names mean nothing to readers.
    """
    units, *targets = map(restored_block, result["left_out"]["blocks"])
    statement: dict[str, Json] = {
        "units": float(units.values[0, 0]),
        "units_std_error": units.deviation,
        "most_rows_of_a_unit": result["left_out"]["most"],
    }
    listed: list[Json] = []
    for stored, noisy in zip(result["left_out"]["blocks"][1:], targets, strict=True):
        counted, values = _weights(noisy)
        forms = {"rows": counted} if counted.any() else {}
        if isinstance(noisy.block, ValueBlock):
            middle, half = noisy.block.middle_and_half
            forms["sum"] = middle * counted + half * values
        numbers: dict[str, Json] = {"target": stored["target"]} if has_names else {}
        for name, form in forms.items():
            numbers[name] = float(form @ noisy.values[:, 0])
            numbers[f"{name}_std_error"] = noisy.deviation * float(np.linalg.norm(form))
        listed.append(numbers)
    return statement | {"fell_away": listed}


class Aggregated(Groups):
    """Aggregates of groups: a block for each target."""

    aggregates: list[str]
    ddof: int
    confidence: float
    blocks: list[StoredBlock]
    sizes: NotRequired[list[int]]  # of the groups, if these are public
    left_out: NotRequired[LeftOut]  # if it was measured
    sampled: NotRequired[int]  # rows of a unit in a group, if intervals of averages are about the population


class ReleaseRequest(Protocol):
    """The request of a plan."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the names of the key columns."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the names of the targets."""

    @property
    def aggregates(self) -> tuple[str, ...]:
        """Return the estimated aggregates of every target."""

    @property
    def ddof(self) -> int:
        """Return the number to subtract from the rows in variances."""

    @property
    def confidence(self) -> Fraction:
        """Return the coverage of the intervals."""

    @property
    def sampling(self) -> bool | None:
        """Return whether intervals of averages are about the population."""

    @property
    def rows_per_group(self) -> int:
        """Return the rows of a unit in a group."""

    @property
    def group_sizes(self) -> tuple[int, ...] | None:
        """Return the public number of rows of each group; None if the numbers are private."""


def record_of(
    noisy: Sequence[NoisyBlock],
    request: ReleaseRequest,
    keys: Sequence[Sequence[str | None]],
    types: Sequence[str],
    bounds: Sequence[PrivateInterval | None] = (),
) -> dict[str, Json]:
    """Return the ledger's record of a release, an `Aggregated`.

    Parameters
    ----------
    noisy : sequence of NoisyBlock
        A block for each target, or one for all rows.
    request : Asked
    keys : sequence of sequence of str or None
        The key of each group, by column.
    types : sequence of str
        SQL type of each column of `by`; another key column is a BOOLEAN.
    bounds : sequence of (PrivateInterval or None)
        The private bounds of each target; None if bounds are public.
    """
    targets = request.targets or (None,)
    intervals: list[dict[str, Json]] = [
        {} if interval is None else {"drawn": interval_record(interval)} for interval in bounds
    ]
    intervals = intervals or [{} for _ in targets]
    return {
        **groups_record(request.key_columns, keys, types),
        "aggregates": list(request.aggregates),
        "ddof": request.ddof,
        "confidence": float(request.confidence),
        "blocks": [
            {**stored_block(target, block), **interval}
            for target, block, interval in zip(targets, noisy, intervals, strict=True)
        ],
        **({} if request.group_sizes is None else {"sizes": list(request.group_sizes)}),
        **({"sampled": request.rows_per_group} if request.sampling else {}),
    }


def estimated(result: Aggregated) -> Iterator[tuple[str | None, str, Estimated]]:
    """Yield target, name and estimates of every aggregate."""
    for stored in result["blocks"]:
        noisy = restored_block(stored)
        options: dict[str, Any] = {name: result.get(name) for name in ("confidence", "ddof", "sizes")}
        aggregates = {
            name: estimate.without(nothing_left(noisy, name, **options))
            for name, estimate in estimates(noisy, result["aggregates"], **options).items()
        }
        if "sampled" in result:
            tail, unit = 1.0 - result["confidence"], result["sampled"]
            count = estimates(noisy, (COUNT,), confidence=result["confidence"])[COUNT]
            mean, ends = aggregates[AVG], stored["bounds"] or (-np.inf, np.inf)
            mean = sampled_mean(noisy, mean, count.lower, tail=tail, rows_per_unit=unit)
            aggregates[AVG] = replace(
                mean, lower=np.maximum(mean.lower, ends[0]), upper=np.minimum(mean.upper, ends[1])
            )
        bounded = None not in stored.get("drawn", ())
        for name in result["aggregates"]:
            yield stored["target"], name, aggregates[name] if bounded or name == COUNT else _unknown(aggregates[name])


def width_before(stored: StoredBlock, name: str) -> float:
    """Return the width of an aggregate's earlier public interval: the bounds for a mean, NaN for others."""
    bounds = stored["bounds"]
    return np.nan if name != AVG or bounds is None else bounds[1] - bounds[0]


def _unknown(estimate: Estimated) -> Estimated:
    """Return estimates that are all NULL, with the same number of groups."""
    return Estimated(*[np.full_like(estimate.value, np.nan)] * 4)


def entries(result: Aggregated, kind: pa.StructType) -> pa.StructArray:
    """Return the rows of a release: group by group in the order of the keys, and in a group target by target."""
    series = list(estimated(result))
    groups = len(series[0][2].value)
    order = np.arange(groups * len(series)).reshape(len(series), groups).T.ravel()
    columns: dict[str, pa.Array] = {"keys": key_lists(result["keys"], order % groups)}
    columns["target"] = from_values(np.repeat([name for name, _, _ in series], groups)[order], pa.string())
    columns["aggregate"] = from_values(np.repeat([name for _, name, _ in series], groups)[order], pa.string())
    numbers = {
        part: np.concatenate([getattr(estimate, part) for _, _, estimate in series])[order]
        for part in ("value", "std_error", "lower", "upper")
    }
    columns |= {part: from_numbers(values, np.isnan(values)) for part, values in numbers.items()}
    judged = "left_out" in result or any("drawn" in stored for stored in result["blocks"])
    biased = np.concatenate(are_biased(result, series))[order] if judged else None
    widths = [width_before(stored, name) for stored in result["blocks"] for name in result["aggregates"]]
    ends = numbers["value"], numbers["lower"], numbers["upper"]
    columns["verdict"] = interval_verdicts(*ends, biased, np.repeat(widths, groups)[order])
    fields = list(kind)
    return pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in fields], fields=fields)


def key_lists(keys: Sequence[Sequence[str | None]], groups: NDArray[np.intp]) -> pa.ListArray:
    """Return the keys of the groups of some rows, from lists by column, as a column of lists."""
    width, count = len(keys), len(groups)
    offsets = from_numbers(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    if not keys:
        return pa.ListArray.from_arrays(offsets, from_values([], pa.string()))
    texts = [from_values(column, pa.string()).take(from_numbers(groups)) for column in keys]
    order = np.arange(count * width).reshape(width, count).T.ravel()
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(texts).take(from_numbers(order)))
