"""Store released histograms, and compute their rows and quantiles, at no privacy cost.

Counts are not clipped, so that sums over bins and groups are not biased; only the lower end of an interval is at least
0. Cumulative counts come from the same release. Without a strategy they are sums of bins. With a strategy they are its
best estimates, and bins are their differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import NotRequired, Protocol, TypedDict

import numpy as np
import pyarrow as pa

from dpsql.arrays import Doubles
from dpsql.contract.covers import UNDETERMINED
from dpsql.contract.json import Json
from dpsql.contract.parameters import as_double, list_items, show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.mechanisms.prefix_sums import PrefixStrategy, prefix_strategy
from dpsql.released.aggregates import StoredBlock, key_lists, restored_block, stored_block
from dpsql.released.covariance import estimates
from dpsql.released.curves import consistent
from dpsql.released.intervals import FAILURE, combined_quantile, interval_verdicts
from dpsql.released.quantile_spans import TOLERANCE, span_within, widest
from dpsql.released.results import Groups, groups_record
from dpsql.statistics.aggregates import COUNT, LAPLACE

_BINS_AT_ONCE = 256


class Histogram(Groups):
    """A histogram per group: the ends of the bins, and noisy numbers.

    The numbers are a block of counts, or the noisy cumulative counts of a strategy.
    """

    ends: list[float | None]
    null_bin: bool
    confidence: float
    bins: NotRequired[int]
    block: NotRequired[StoredBlock]
    curve: NotRequired[str]
    noise: NotRequired[str]
    deviation: NotRequired[float]
    sums: NotRequired[list[list[float]]]


class HistogramRequest(Protocol):
    """The request of a plan."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the key columns."""

    @property
    def ends(self) -> list[float | None]:
        """The ends of all bins."""

    @property
    def null_bin(self) -> bool:
        """Whether missing values are counted."""

    @property
    def confidence(self) -> Fraction:
        """Coverage of the intervals."""


@dataclass(frozen=True, eq=False)
class HistogramCounts:
    """Noisy counts of the bins of every group, each array of shape (groups, bins).

    The bin of missing values is the last one, if there is one; it has no cumulative count.
    """

    count: Doubles
    std_error: Doubles
    count_lower: Doubles
    count_upper: Doubles
    cumulative: Doubles
    cumulative_std_error: Doubles


class QuantileEstimate(TypedDict):
    """Value of a quantile, ends of its interval, and verdict."""

    value: float | None
    lower: float | None
    upper: float | None
    verdict: str


class QuantileRow(QuantileEstimate):
    """One quantile of one group."""

    keys: list[str | None]
    quantile: float


def histogram_record(
    request: HistogramRequest, keys: Sequence[Sequence[str | None]], types: Sequence[str]
) -> dict[str, Json]:
    """Return the ledger's record of a histogram, without its numbers."""
    return {
        **groups_record(request.key_columns, keys, types),
        "ends": list(request.ends),
        "null_bin": request.null_bin,
        "confidence": float(request.confidence),
    }


def curve_record(noisy: NoisyBlock, bins: int) -> dict[str, Json]:
    """Return the numbers of a histogram whose bins got noise one by one."""
    return {"bins": bins, "block": stored_block(None, noisy)}


def histogram_counts(result: Histogram) -> HistogramCounts:
    """Return the noisy counts of a stored histogram."""
    counts = _of_block(result) if "block" in result else _of_curve(result)
    if result["null_bin"]:
        for part in (counts.cumulative, counts.cumulative_std_error):
            part[:, -1] = np.nan
    return counts


def _of_block(result: Histogram) -> HistogramCounts:
    noisy = restored_block(result["block"])
    shape = (-1, result["bins"])
    counts = estimates(noisy, [COUNT], confidence=result["confidence"])[COUNT]
    count, error, low, high = (
        part.reshape(shape) for part in (counts.value, counts.std_error, counts.lower, counts.upper)
    )
    terms = np.arange(1, result["bins"] + 1)
    return HistogramCounts(count, error, low, high, np.cumsum(count, axis=1), error * np.sqrt(terms))


def _of_curve(result: Histogram) -> HistogramCounts:
    sums = np.array(result["sums"])
    strategy = prefix_strategy(sums.shape[1], name=result["curve"], noise=result["noise"])
    count = np.diff(sums, axis=1, prepend=0.0)
    deviation = result["deviation"]
    error, running = (deviation * np.sqrt(part) for part in (strategy.unit_cell_variances, strategy.unit_variances))
    reach = error * _quantiles_of_bins(strategy, result["noise"], 1.0 - result["confidence"])
    ends = np.maximum(count - reach, 0.0), count + reach
    ones = np.ones_like(count)
    return HistogramCounts(count, error * ones, *ends, sums, running * ones)


def _quantiles_of_bins(strategy: PrefixStrategy, noise: str, tail: float) -> Doubles:
    """Return the quantile of the absolute noise on each bin, in its standard deviations."""
    if noise != LAPLACE:
        return np.full(strategy.cells, -NormalDist().inv_cdf(tail / 2.0))
    weights = strategy.cell_reconstruction
    parts = [weights[at : at + _BINS_AT_ONCE] for at in range(0, len(weights), _BINS_AT_ONCE)]
    return np.concatenate([combined_quantile(part, np.ones(part.shape[1]), tail) for part in parts])


def histogram_rows(result: Histogram, kind: pa.StructType) -> pa.StructArray:
    """Return the rows of a stored histogram by group, then by bin in ascending order."""
    counts = histogram_counts(result)
    groups, bins = counts.count.shape
    ends = result["ends"]
    missing = [None] * result["null_bin"]
    indices = np.repeat(np.arange(groups), bins)
    columns: dict[str, pa.Array] = {
        "keys": key_lists(result["keys"], indices),
        "lower": pa.array([*ends[:-1], *missing] * groups, type=pa.float64()),
        "upper": pa.array([*ends[1:], *missing] * groups, type=pa.float64()),
    }
    for name, part in vars(counts).items():
        columns[name] = pa.array(part.ravel(), mask=np.isnan(part.ravel()))
    columns["verdict"] = interval_verdicts(counts.count, counts.count_lower, counts.count_upper)
    fields = list(kind)
    return pa.StructArray.from_arrays([columns[field.name].cast(field.type) for field in fields], fields=fields)


def histogram_quantiles(result: Histogram, quantiles: object) -> list[QuantileRow]:
    """Return quantiles of the rows with a value, from a released histogram, with their intervals.

    Cumulative counts are made ascending first (`dpsql.released.curves.consistent`). A quantile is interpolated as if
    the rows of its bin were spread evenly; in a bin with an open end it is the other end. It is NULL if noise has left
    no rows. The interval goes from an end of a bin to another, with the confidence of the histogram
    (`dpsql.released.quantile_spans`). If noise leaves it open, its end is the end of the outermost bin, NULL if that
    bin has none. Value and ends are NULL if the interval covers all bins.

    Parameters
    ----------
    result : Histogram
    quantiles : object
        As for `read_quantiles`, with its errors.
    """
    numbers = read_quantiles(quantiles)
    counts = histogram_counts(result)
    last = counts.count.shape[1] - result["null_bin"]
    reaches = [_reach_of_ranks(result, last, at) for at in numbers]
    rows: list[QuantileRow] = []
    for group in range(len(counts.count)):
        noisy = counts.cumulative[group, :last]
        sums = consistent(noisy, counts.cumulative_std_error[group, :last])
        keys = [column[group] for column in result["keys"]]
        fewest = float(noisy[-1] - widest(2.0 * FAILURE) * counts.cumulative_std_error[group, last - 1])
        rows += [
            {"keys": keys, "quantile": at, **_estimate(at, sums, noisy, reach, result["ends"], fewest)}
            for at, reach in zip(numbers, reaches, strict=True)
        ]
    return rows


def _reach_of_ranks(result: Histogram, bins: int, quantile: float) -> Doubles:
    """Return the reach of the noise in the rows below each bin's end, less the quantile of all, at the tail's chance.

    For each bin with a value but the last; in rows, with the tolerance of `dpsql.released.quantile_spans`.
    """
    tail = 1.0 - result["confidence"]
    if "block" in result:
        noisy = restored_block(result["block"])
        below = np.arange(1, bins, dtype=np.float64)
        weights = np.tile([1.0 - quantile, quantile], (bins - 1, 1))
        times = np.stack([below, bins - below], axis=1)
        unit, law = noisy.deviation, noisy.lattice.noise
    else:
        strategy = prefix_strategy(len(result["sums"][0]), name=result["curve"], noise=result["noise"])
        prefix = strategy.reconstruction
        weights = prefix[: bins - 1] - quantile * prefix[bins - 1]
        times, unit, law = np.ones(weights.shape), result["deviation"], result["noise"]
    deviations: Doubles = unit * np.sqrt((times * weights**2).sum(axis=1))
    if law != LAPLACE:
        multiple = -NormalDist().inv_cdf(tail / 2.0)
        return deviations * multiple + TOLERANCE
    parts = [slice(at, at + _BINS_AT_ONCE) for at in range(0, bins - 1, _BINS_AT_ONCE)]
    chunks = [combined_quantile(weights[part], times[part], tail) for part in parts]
    multiples: Doubles = np.concatenate([np.empty(0), *chunks])
    return deviations * multiples + TOLERANCE


def _estimate(
    quantile: float, sums: Doubles, noisy: Doubles, reach: Doubles, ends: Sequence[float | None], fewest: float
) -> QuantileEstimate:
    """Return the estimate of a quantile, given the least number of rows."""
    if not sums[-1] > 0:
        return {"value": None, "lower": None, "upper": None, "verdict": UNDETERMINED}
    position = int(np.searchsorted(sums, quantile * float(sums[-1]), side="left"))
    distance = noisy[:-1] - quantile * noisy[-1]
    span = span_within(distance, reach, np.arange(len(noisy) + 1), position, fewest)
    interval = ends[span.first], ends[span.last + 1]
    verdict = span.verdict(interval, (ends[0], ends[-1]))
    if verdict == UNDETERMINED:
        return {"value": None, "lower": None, "upper": None, "verdict": verdict}
    return {
        "value": _read(quantile, position, sums, ends),
        "lower": interval[0],
        "upper": interval[1],
        "verdict": verdict,
    }


def read_quantiles(quantiles: object) -> list[float]:
    """Return the numbers of a list, or one number.

    Raises
    ------
    ParameterError
        P029, when a quantile is not between 0 and 1.
    """
    items = list_items(quantiles)
    return [_quantile(item) for item in ((quantiles,) if items is None else items)]


def _quantile(quantile: object) -> float:
    value = as_double(quantile)
    if value is None or not 0.0 < value < 1.0:
        raise ParameterError(
            "P029", f"a quantile must be a number between 0 and 1; got {show(quantile)}. 0.5 is usual."
        )
    return value


def _read(quantile: float, position: int, sums: Doubles, ends: Sequence[float | None]) -> float | None:
    """Return the value at a quantile in the bin at a position, from ascending counts."""
    rank = quantile * float(sums[-1])
    lower, upper = ends[position], ends[position + 1]
    if lower is None or upper is None:
        return upper if lower is None else lower
    before = float(sums[position - 1]) if position else 0.0
    share = (rank - before) / (float(sums[position]) - before)
    return min(max(math.fsum((lower * (1.0 - share), upper * share)), lower), upper)
