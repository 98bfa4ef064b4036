"""Compute intervals of private quantiles from noisy counts between public cuts (`dpsql.mechanisms.rank_counts`).

Let D(c) be the rows below a cut c, less q times all rows. A cut at or below the quantile has ``D <= 0``, a cut above it
``D >= 0``. The noise in D has a known law: ``(1 - q)`` times the noise of the bins below c, less q times the noise of
the others. Let z be a reach that the size of this noise exceeds with a chance of at most 5 %, plus a row and a half.
The interval begins at the last cut before the first one with ``D >= -z``, and ends at the first cut after the last one
with ``D <= z``.

Of the two cuts next to the true quantile, the cut above it has ``D < -z`` with a chance of at most 2.5 %, and the cut
below it ``D > z`` with no larger chance; otherwise the interval holds the quantile. So it holds the quantile with at
least 95 %, for every table and all drawn cells. The proof compares nothing for all cuts at once, and a selection that
went astray makes an interval wide and not false.

One row of the tolerance is for the definition of a quantile: each of the nine usual definitions lies between the values
of ranks that are less than one row from q n (Hyndman and Fan 1996). The half is for discrete noise. All of
this is post-processing.

Without bounds, a selection from few rows may draw a cell far beyond all of them. The value is among the rows, neither
below all of them nor beyond them,

- if the selection draws no such cell, with a chance of at most `BEYOND` of error, from the lower bound of the rows
  with 95 %; or
- if a run of bins that ends at its cell, and a run that begins there, hold more than `TOLERANCE` rows, except for
  noise with a chance of `_RUN` for each of all runs. If a selection from the noisy rows prefers one cell among them to
  all cells beyond, a chance of `_NEAR_RUN` is enough for the drawn cell.

Otherwise the nearest cell among the rows replaces the value: a drawn cell, or a cell at a cut. If there is none, the
quantile is undetermined. A replaced value is never `clear`, and its interval holds its cell.

An end is *open* if noise leaves it at an end of the cells although the drawn cell is not there.

==============  ==================================================================================================
verdict         meaning
==============  ==================================================================================================
undetermined    the interval is all that was public before, both ends open without bounds; or the noisy number of
                rows is not above 0 with 95 %; or no bounds were found, or no cell among the rows: value and ends are
                NULL
clear           between bounds: the interval is at most half as wide. Without: neither end is open, the value is
                within 5 % of its rank, with the confidence of the interval, and this is no wider than half of its
                larger end, or a cell and its neighbours, or holds at most a quarter of the rows
unclear         the rest; an open end is at the bound, or NULL without bounds
not measured    the call paid no share for an interval
==============  ==================================================================================================

Let D_1 and its reach z_1 be at the cut below the value's cell, and D_2 and z_2 at the cut above it. The rank of the
value is at most ``max(0, D_1 + z_1, z_2 - D_2)`` rows off q n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.covers import CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.contract.json import Json
from dpsql.dataclass import dataclass
from dpsql.mechanisms.rank_counts import most_bins
from dpsql.released.intervals import FAILURE, combined_quantile

# Most bins for which the code computes each noise quantile.
_MOST_EXACT = 64
# Upper bound of the 5 % quantile of the size of a sum of Laplace variables, in its standard deviations.
_WIDEST = 2.125
# A sum's quantile is at most this factor above the larger quantile of one variable and of a normal sum.
_BETWEEN = 1.02
# Rows, for the definition of a quantile and for discrete noise.
TOLERANCE = 1.5
# Chance that a selection draws a cell beyond all rows, and that noise alone makes a run of bins hold rows.
BEYOND, _RUN, _NEAR_RUN = 1e-2, 1e-6, 0.1
# Largest rank error of a clear value without bounds, as a share of rows.
MOST_OFF = 0.05
# Largest share of the rows in a wide interval without bounds that is clear.
MOST_HELD = 0.25
Ends = tuple[float | None, float | None]


def widest(failure: float) -> float:
    """Return a bound on the `failure` quantile of a sum of Laplace variables' size, in standard deviations."""
    if failure == FAILURE:
        return _WIDEST
    return _BETWEEN * max(-math.log(failure) / math.sqrt(2.0), NormalDist().inv_cdf(1.0 - failure / 2.0))


@lru_cache(maxsize=1024, typed=True)
def reaches(bins: int, quantile: Fraction, failure: float = FAILURE) -> Doubles:
    """Return a reach that the noise in D exceeds with a chance <= `failure`, in scales, for each cut but the outermost.

    Parameters
    ----------
    bins : int
        >= 1.
    quantile : Fraction
        q, in (0, 1).
    failure : float
        In (0, 1).

    Returns
    -------
    reaches : ndarray of float64, shape (bins - 1,)
    """
    below, q = np.arange(1, bins), float(quantile)
    times = np.stack([below, bins - below], axis=1).astype(np.float64)
    weights = np.tile([1.0 - q, q], (bins - 1, 1))
    deviations: Doubles = np.sqrt(2.0 * (times * weights**2).sum(axis=1))
    return deviations * (combined_quantile(weights, times, failure) if 1 < bins <= _MOST_EXACT else widest(failure))


@dataclass(frozen=True)
class Span:
    """The interval of a quantile, in cells.

    Attributes
    ----------
    first, last : int
        The cells at its ends; the drawn cell is among them.
    lower_open, upper_open : bool
        Whether noise leaves the end at an end of the cells.
    off : float
        Bound on the error of the value's rank, as a share of the rows; infinite if there may be no rows, or if no cell
        is among them.
    moved : bool
        Whether another cell replaces the drawn cell.
    share : float
        Noisy share of the rows between its ends, if neither is open.
    """

    first: int
    last: int
    lower_open: bool
    upper_open: bool
    off: float = math.inf
    moved: bool = False
    share: float = 0.0

    def verdict(self, ends: Ends, bounds: Ends) -> str:
        """Return the verdict, from the values at the ends of the interval and the public bounds."""
        (lower, upper), (low, high) = ends, bounds
        if None in (lower, upper, low, high):
            if self.lower_open and self.upper_open:
                return UNDETERMINED
            narrow = self.share <= MOST_HELD or self.last - self.first <= 2 or _is_narrow(ends)
            is_clear = not (self.lower_open or self.upper_open or self.moved) and self.off <= MOST_OFF and narrow
        elif lower <= low and upper >= high:  # type: ignore[operator]
            return UNDETERMINED
        else:
            is_clear = upper - lower <= (high - low) / 2  # type: ignore[operator]
        return UNDETERMINED if math.isinf(self.off) else CLEAR if is_clear else UNCLEAR


def _is_narrow(ends: Ends) -> bool:
    lower, upper = ends
    return lower is None or upper is None or upper - lower <= max(abs(lower), abs(upper)) / 2.0


@lru_cache(maxsize=1024, typed=True)
def _run_reaches(bins: int, failure: float) -> Doubles:
    """Return the reach of the noise in a run of 1, 2, … bins, at a chance <= `failure`, in scales."""
    times = np.arange(1.0, bins + 1.0)
    if bins > _MOST_EXACT:
        return np.sqrt(2.0 * times) * widest(failure)
    reach: Doubles = np.sqrt(2.0 * times) * combined_quantile(np.ones((bins, 1)), times[:, np.newaxis], failure)
    return reach


def among_rows(
    noisy: Longs,
    cuts: Longs,
    selected: Sequence[int],
    at: Sequence[Fraction],
    scale: Fraction,
    astray: float,
    even: float,
) -> list[int | None]:
    """Return the cell of each quantile without bounds, see the module's text; None if there is none.

    Parameters
    ----------
    noisy, cuts, scale
        As of `span`.
    selected : sequence of int
        The drawn cells, ascending; both ends of each are cuts.
    at : sequence of Fraction
        The quantiles.
    astray : float
        A drawn cell is off by this number of rows with a chance of at most `BEYOND`.
    even : float
        Rows off at which all cells together are as likely as a single cell at the quantile.

    Returns
    -------
    cells : list of int or None
        Ascending: the drawn cell if it is among the rows, else the nearest cell among the rows.
    """
    total = np.concatenate([[0.0], np.cumsum(noisy.astype(np.float64))])
    bins = len(noisy)
    run = np.maximum(np.arange(bins + 1) - np.arange(bins + 1)[:, np.newaxis], 0)

    def ends(failure: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the cuts that end a run with rows, and the cuts that begin one."""
        reach = np.concatenate([[math.inf], _run_reaches(bins, failure) * float(scale) + TOLERANCE])
        holds = total - total[:, np.newaxis] > reach[run]
        return holds.any(axis=0), holds.any(axis=1)

    fewest = float(total[-1]) - _rows_reach(bins, scale)
    number_of = {int(cut): number for number, cut in enumerate(cuts)}
    below, beyond = ends(_RUN)
    near_below, near_beyond = ends(_NEAR_RUN)
    sure = set()
    for cell, quantile in zip(selected, at, strict=True):
        share, start, stop = float(min(quantile, 1 - quantile)), number_of[cell], number_of[cell + 1]
        is_near = bool(near_below[stop] and near_beyond[start]) and even < share * float(total[-1])
        if astray < share * fewest or is_near:
            sure.add(cell)
    for cut, number in number_of.items():
        if below[number] and beyond[number]:
            sure.update((cut - 1, cut))
    sure.update(cell for cell in selected if below[number_of[cell + 1]] and beyond[number_of[cell]])
    return [min(sure, key=lambda other: (abs(other - cell), other)) if sure else None for cell in selected]


def span(noisy: Longs, cuts: Longs, cell: int, quantile: Fraction, scale: Fraction, failure: float = FAILURE) -> Span:
    """Return the interval of a quantile from noisy counts between cuts; see the module's text.

    Parameters
    ----------
    noisy : ndarray of int64, shape (bins,)
        Counts with discrete Laplace noise of that scale.
    cuts : ndarray of int64, shape (bins + 1,)
        Of `cuts_around`.
    cell : int
        The drawn cell.
    quantile : Fraction
    scale : Fraction
        In rows, > 0.
    failure : float
        Largest chance that the interval misses the quantile.
    """
    below = np.cumsum(noisy.astype(np.float64))
    distance = below[:-1] - float(quantile) * below[-1]
    reach = reaches(len(noisy), quantile, failure) * float(scale) + TOLERANCE
    return span_within(distance, reach, cuts, cell, float(below[-1]) - _rows_reach(len(noisy), scale))


def span_within(distance: Doubles, reach: Doubles, cuts: Longs, cell: int, fewest: float) -> Span:
    """Return the interval of a quantile from D at each cut but the outermost, and its noise's 5 % reach.

    Parameters
    ----------
    distance, reach : ndarray of float64, shape (bins - 1,)
        In rows; the reach includes the tolerance.
    cuts : ndarray of int64, shape (bins + 1,)
        As numbers of cells below them, from 0 to the number of cells.
    cell : int
        The cell of the value.
    fewest : float
        Lower bound of the rows, with 95 %.
    """
    bins = len(cuts) - 1
    above, beneath = np.flatnonzero(distance >= -reach), np.flatnonzero(distance <= reach)
    start = int(above[0]) if len(above) else bins - 1
    end = int(beneath[-1]) + 2 if len(beneath) else 1
    first, last = min(int(cuts[start]), cell), max(int(cuts[end]) - 1, cell)
    below, beyond = (int(np.searchsorted(cuts, cut)) - 1 for cut in (cell, cell + 1))
    rows_off = [0.0]
    if below >= 0:
        rows_off.append(float(distance[below] + reach[below]))
    if beyond < bins - 1:
        rows_off.append(float(reach[beyond] - distance[beyond]))
    off = max(rows_off) / fewest if fewest > 0 else math.inf
    share = float(distance[end - 1] - distance[start - 1]) / max(fewest, 1.0) if start > 0 and end < bins else 0.0
    return Span(first, last, start == 0 and cell > 0, end == bins and cell < int(cuts[-1]) - 1, off, share=share)


def rows_needed(at: Sequence[Fraction], scale: Fraction, *, bounded: bool) -> float:
    """Return the rows from which noise leaves neither end of an interval open with a chance of 95 %, for some data.

    For such data a cut has all rows above it, and another cut all rows below it: its D is twice the reach then. Without
    bounds, a value with D = 0 must also be within `MOST_OFF` of its rank for certain.
    """
    bins = most_bins(len(at))
    needed = []
    for quantile in at:
        reach = reaches(bins, quantile)
        for side, share in ((reach[0], quantile), (reach[-1], 1 - quantile)):
            needed.append((2.0 * float(side) * float(scale) + TOLERANCE) / float(share))
    if not bounded:
        needed.append(rank_reach(at, scale) / MOST_OFF + _rows_reach(bins, scale))
    return max(needed)


def _rows_reach(bins: int, scale: Fraction) -> float:
    """Return the reach of the noise in the number of rows, at a chance of 5 %."""
    return widest(2.0 * FAILURE) * float(scale) * math.sqrt(2.0 * bins)


def rank_reach(at: Sequence[Fraction], scale: Fraction) -> float:
    """Return the rank distance at which a cut differs from a quantile, in the widest interval, without noise."""
    return max(float(reaches(most_bins(len(at)), quantile).max()) * float(scale) + TOLERANCE for quantile in at)


def span_record(
    values: Sequence[float], spans: Sequence[Span], ends: Sequence[Ends], bounds: Ends
) -> dict[str, list[Json]]:
    """Return the ledger's record of quantiles with intervals: lists of values, ends and verdicts.

    Parameters
    ----------
    values : sequence of float
    spans : sequence of Span
    ends : sequence of (float or None, float or None)
        The values at the ends of each span.
    bounds : (float, float) or (None, None)
        Public bounds of the cells, if any; an open end is at a bound.
    """
    record: dict[str, list[Json]] = {"values": [], "lower": [], "upper": [], "verdicts": []}
    for value, interval, (lower, upper) in zip(values, spans, ends, strict=True):
        lower = None if lower is None else min(lower, value)  # rounded if the values of its cell are whole
        upper = None if upper is None else max(upper, value)
        verdict = interval.verdict((lower, upper), bounds)
        void, bounded = verdict == UNDETERMINED, None not in bounds
        record["values"].append(None if void else value)
        record["lower"].append(None if void or (interval.lower_open and not bounded) else lower)
        record["upper"].append(None if void or (interval.upper_open and not bounded) else upper)
        record["verdicts"].append(verdict)
    return record


def quantile_rows(result: Any) -> list[Mapping[str, Json]]:
    """Return the rows of quantiles from any record of the ledger.

    A record is `GroupedQuantiles`, `Quantiles`, or pairs of share and value from versions without intervals.
    """
    if not isinstance(result, Mapping):
        result = {"values": result}
    if "keys" in result:
        keys = [list(key) for key in zip(*result["keys"], strict=True)]
        groups = [
            {"quantiles": result["quantiles"]} | {name: result[name][index] for name in _LISTS if name in result}
            for index in range(len(keys))
        ]
    else:
        keys, pairs = [[]], result["values"]
        groups = [{**result, "quantiles": [at for at, _ in pairs], "values": [value for _, value in pairs]}]
    return [row for key, group in zip(keys, groups, strict=True) for row in _rows(key, group)]


_LISTS = ("values", "lower", "upper", "verdicts")


def _rows(key: Json, group: Mapping[str, Any]) -> list[Mapping[str, Json]]:
    """Return the rows of one group."""
    values = group["values"]
    nothing = [None] * len(values)
    columns = zip(
        group["quantiles"],
        values,
        group.get("lower", nothing),
        group.get("upper", nothing),
        group.get("verdicts", nothing),
        strict=True,
    )
    return [
        {
            "keys": key,
            "quantile": at,
            "value": value,
            "lower": lower,
            "upper": upper,
            "verdict": verdict or (UNDETERMINED if value is None else NOT_MEASURED),
        }
        for at, value, lower, upper, verdict in columns
    ]
