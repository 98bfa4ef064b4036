"""Intervals of quantiles: they hold the true quantile, what they are read from has the exact law, and both can fail."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dpsql.contract.measurement import Permit, draw_once, measurement_of
from dpsql.functions.grouped.quantile import GroupCells, QuantilePlan, draw_group_quantiles, draw_quantiles
from dpsql.kernels.column_cells import ScaleCounts, cells_between
from dpsql.mechanisms.rank_counts import RankCounts, bins_between, cuts_around, most_bins, steps_of
from dpsql.released import quantile_spans
from dpsql.released.histogram import histogram_quantiles
from dpsql.released.intervals import combined_quantile
from dpsql.released.quantile_spans import TOLERANCE, Span, among_rows, quantile_rows, reaches, rows_needed, span
from dpsql.testing.bits import SeededBits
from support.cases import cases

HALF, MOST = Fraction(1, 2), Fraction(9, 10)
DOUBLE, INTEGER = pa.float64(), pa.int32()
# Of the usual definitions of a sample's quantile, the outermost and the usual ones.
DEFINITIONS = ("inverted_cdf", "linear", "weibull", "interpolated_inverted_cdf")
COLUMNS: dict[str, Any] = {
    "lognormal": (DOUBLE, lambda rng, n: rng.lognormal(0, 1.5, n), (0.0, 50.0)),
    "few values": (INTEGER, lambda rng, n: rng.poisson(2, n).astype(float), (0.0, 20.0)),
    "flags": (INTEGER, lambda rng, n: (rng.random(n) < 0.3).astype(float), (0.0, 1.0)),
}


def covered(rows: Any, values: Any) -> list[bool]:
    """Whether each interval holds the quantile of the values, whatever its definition."""
    found = []
    for row in rows:
        lower = -math.inf if row["lower"] is None else row["lower"]
        upper = math.inf if row["upper"] is None else row["upper"]
        exact = [float(np.quantile(values, row["quantile"], method=name)) for name in DEFINITIONS]
        found.append(all(lower <= one <= upper for one in exact))
    return found


def simulated(kind: Any, sample: Any, bounds: Any, plan: QuantilePlan, runs: int) -> list[bool]:
    found = []
    for seed in range(runs):
        values = sample(np.random.default_rng(seed))
        counts = ScaleCounts(kind) if bounds is None else cells_between(*bounds, kind, plan.cells)
        counts.add(values)
        clipped = values if bounds is None else np.clip(values, *bounds)
        found += covered(quantile_rows(draw_once(draw_quantiles, plan, counts)), clipped)
    return found


def asked(at: Any, epsilon: float, bounds: Any = None, **more: Any) -> QuantilePlan:
    given = {"target": "y", "quantiles": at, "epsilon": epsilon, **more}
    ends = {} if bounds is None else dict(zip(("lower", "upper"), bounds, strict=True))
    return QuantilePlan.from_arguments("t", {**given, **ends})


@cases("rows", [5, 50, 400], quick=1)
@cases("column", COLUMNS)
def test_intervals_hold_the_quantile(column: str, rows: int) -> None:
    """95 % of them do; 300 draws of each kind, of which 93 % at least."""
    kind, sample, bounds = COLUMNS[column]
    more = {"cells": 256} if kind == DOUBLE else {}
    found = simulated(kind, lambda rng: sample(rng, rows), bounds, asked([0.5, 0.9], 1, bounds, **more), 150)
    assert np.mean(found) >= 0.93, np.mean(found)


@pytest.mark.long
@pytest.mark.parametrize("column", ["lognormal", "few values"])
def test_intervals_without_bounds_hold_the_quantile(column: str) -> None:
    kind, sample, _ = COLUMNS[column]
    found = simulated(kind, lambda rng: sample(rng, 300), None, asked(0.5, 1), 100)
    assert np.mean(found) >= 0.91, np.mean(found)


SAID = [
    (Span(0, 9, False, False, 0.01), (0.0, 10.0), (0.0, 10.0), "undetermined"),
    (Span(0, 5, True, False, 0.01), (0.0, 5.0), (0.0, 10.0), "clear"),
    (Span(0, 5, True, False, 0.01), (0.0, 5.1), (0.0, 10.0), "unclear"),
    (Span(3, 5, False, False, math.inf), (3.0, 5.0), (0.0, 10.0), "undetermined"),
    (Span(3, 5, False, False, 0.05), (3.0, 5.0), (None, None), "clear"),
    (Span(3, 5, False, False, 0.051), (3.0, 5.0), (None, None), "unclear"),
    (Span(3, 9, False, False, 0.01, share=0.3), (1e-9, 1e9), (None, None), "unclear"),
    (Span(3, 9, False, False, 0.01, share=0.2), (1e-9, 1e9), (None, None), "clear"),
    (Span(3, 9, False, False, 0.01, share=0.9), (30.0, 40.0), (None, None), "clear"),
    (Span(3, 5, False, False, 0.01, share=0.9), (-1e-9, 1e-9), (None, None), "clear"),
    (Span(0, 5, True, False, 0.01), (None, 5.0), (None, None), "unclear"),
    (Span(0, 9, True, True, 0.01), (None, None), (None, None), "undetermined"),
    (Span(3, 9, False, False, 0.01), (3.0, None), (0.0, None), "clear"),
]


@cases("span, ends, bounds, verdict", SAID)
def test_what_is_said_of_an_interval(span: Span, ends: Any, bounds: Any, verdict: str) -> None:
    assert span.verdict(ends, bounds) == verdict


def rank_off(value: float, values: Any, at: float) -> float:
    """Return how far the rank of a value is from that of a quantile, as a share of the values."""
    below, up_to = (float(np.mean(one)) for one in (values < value, values <= value))
    return max(0.0, below - at, at - up_to)


@cases("rows", [400, 1500, 10_000], quick=0)
def test_a_value_without_bounds_that_is_clear_is_near_its_rank(rows: int) -> None:
    """Within 5 % of the rows, and a cell; deciles of few rows may be anywhere, and are not clear."""
    words, off = list[str](), list[float]()
    for seed in range(6):
        values = np.random.default_rng(seed).lognormal(0, 1.5, rows)
        counts = ScaleCounts(DOUBLE)
        counts.add(values)
        drawn = quantile_rows(draw_once(draw_quantiles, asked([0.1, 0.5, 0.9], 1), counts))
        words += [row["verdict"] for row in drawn]
        off += [rank_off(row["value"], values, row["quantile"]) for row in drawn if row["verdict"] == "clear"]
    assert ("clear" in words) == (rows > 1000)
    assert sum(share > 0.06 for share in off) <= 1
    assert ("unclear" in words) == (rows < 10_000)


def test_intervals_of_small_groups_hold_the_quantile() -> None:
    """Of 300 groups at once, under replace, where a person has up to two rows."""
    unit = {"privacy_unit": "u", "max_rows_per_unit": 2, "neighbours": "replace"}
    keys = list(range(300))
    plan = asked(0.75, 3, (0.0, 20.0), by="g", keys=keys, cells=64, **unit)
    rng = np.random.default_rng(4)
    groups = [np.clip(rng.lognormal(1, 1, size), 0, 20) for size in rng.integers(0, 50, len(keys))]
    counts = np.array([np.bincount(plan.derived.of(one), minlength=64) for one in groups])
    drawn = draw_once(draw_group_quantiles, plan, GroupCells(plan.grid(*plan.public_bounds), is_whole=False), counts)
    rows = quantile_rows({**drawn, "keys": [list(map(str, keys))]})
    found = [good for row, one in zip(rows, groups, strict=True) if len(one) for good in covered([row], one)]
    assert np.mean(found) >= 0.92
    assert {row["verdict"] for row in rows} == {"clear", "unclear", "undetermined"}


def test_a_shorter_reach_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: half of the reach, and no tolerance, and too few intervals hold where values are many."""
    spaced = np.arange(4000, dtype=float)

    def shares() -> float:
        plan, found = asked(0.5, 0.5, (0.0, 4000.0)), 0
        for seed in range(300):
            rng, source = np.random.default_rng(seed), SeededBits(seed)
            counts = np.ones(4000, dtype=np.int64)
            cell = int(rng.integers(1990, 2010))
            cuts = np.unique(np.concatenate([[0, 4000], np.arange(1500, 2500, 40), [cell, cell + 1]]))
            [noisy] = module_noise([bins_between(counts, cuts)], plan, source)
            one = span(noisy, cuts, cell, HALF, plan.rank_part.scale)  # type: ignore[union-attr]
            found += spaced[one.first] <= np.median(spaced) <= spaced[one.last] + 1
        return found / 300

    assert shares() >= 0.95
    exact = reaches
    monkeypatch.setattr(quantile_spans, "reaches", lambda *asked: 0.25 * exact(*asked))
    assert shares() < 0.9


def module_noise(bins: Any, plan: QuantilePlan, source: Any) -> Any:
    from dpsql.mechanisms.rank_counts import noisy_bins

    assert plan.rank_part is not None
    return noisy_bins(bins, plan.rank_part.scale, source)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_law_of_the_counts(relation: str) -> None:
    """Discrete Laplace noise of scale L1 / epsilon; 0.7 and 1.3 times as much show."""
    rows, epsilon = 3, Fraction(2)
    part = RankCounts("ranks", epsilon, relation, rows)
    assert part.scale == Fraction(rows * (2 if relation == "replace" else 1)) / epsilon
    bins = [np.arange(2000, dtype=np.int64), np.zeros(2000, dtype=np.int64)]
    with Permit(measurement_of(part)).drawing():
        drawn = part.draw(bins)
    noise = np.concatenate([after - before for after, before in zip(drawn, bins, strict=True)])
    most = 12

    def chance(scale: float) -> float:
        a = math.exp(-1 / scale)
        law = [(1 - a) / (1 + a) * a ** abs(k) for k in range(-most, most + 1)]
        seen = Counter(np.clip(noise, -most - 1, most + 1).tolist())
        expected = [*law, 1 - math.fsum(law)]
        observed = [*(seen[k] for k in range(-most, most + 1)), seen[most + 1] + seen[-most - 1]]
        return float(stats.chisquare(observed, np.array(expected) / math.fsum(expected) * len(noise)).pvalue)

    assert chance(float(part.scale)) > 1e-6
    assert chance(0.7 * float(part.scale)) < 1e-9
    assert chance(1.3 * float(part.scale)) < 1e-9


def tail(scale: float, bins: int, below: int, quantile: float, reach: float) -> float:
    """The exact chance that the noise in D exceeds a number, by the law of both sums of discrete Laplace noise."""
    size = 4 * int(60 * scale + 40)
    angles = 2 * np.pi * np.arange(2 * size) / (2 * size)
    a = math.exp(-1 / scale)
    one = (1 - a) ** 2 / (1 - 2 * a * np.cos(angles) + a * a)
    first, second = (np.roll(np.real(np.fft.ifft(one**number)), size) for number in (below, bins - below))
    steps = np.arange(-size, size)
    noise = (1 - quantile) * steps[:, None] - quantile * steps[None, :]
    return float((first[:, None] * second[None, :])[noise > reach].sum())


@cases("scale", [0.05, 0.2, 0.5, 1.0, 2.0, 5.0], quick=1)
@cases("quantile", [HALF, MOST, Fraction(1, 100)])
def test_the_reach_is_right_for_discrete_noise(scale: float, quantile: Fraction) -> None:
    """With half a row on top, each side fails with a chance of at most 2.5 %; with less reach, with more."""
    for bins in (2, 3, 12, 22):
        for below in {1, bins // 2, bins - 1}:
            reach = float(reaches(bins, quantile)[below - 1])
            half_a_row = TOLERANCE - 1.0
            assert tail(scale, bins, below, float(quantile), reach * scale + half_a_row) <= 0.025
            if scale >= 2.0:
                assert tail(scale, bins, below, float(quantile), 0.8 * reach * scale) > 0.03


def test_the_reach_of_many_bins() -> None:
    """A multiple of the standard deviation that no weighted sum exceeds with more than 5 %."""
    for quantile in (0.001, 0.05, 0.5, 0.75, 0.99):
        for bins in (65, 200, 2001):
            below = np.array([1, 2, bins // 2, bins - 2, bins - 1])
            weights = np.tile([1 - quantile, quantile], (len(below), 1))
            times = np.stack([below, bins - below], axis=1).astype(float)
            assert combined_quantile(weights, times, 0.05).max() <= quantile_spans._WIDEST
            deviations = np.sqrt(2 * (times * weights**2).sum(axis=1))
            found = reaches(bins, Fraction(str(quantile)))[below - 1]
            assert found == pytest.approx(deviations * quantile_spans._WIDEST)


def test_cuts_are_public_and_few() -> None:
    for count in (1, 2, 3, 9, 15, 16, 1000):
        cells = 50_000
        found = np.linspace(0, cells - 1, count).astype(int).tolist()
        cuts = cuts_around(found, cells)
        assert cuts[0] == 0
        assert cuts[-1] == cells
        assert (np.diff(cuts) > 0).all()
        assert len(cuts) - 1 <= most_bins(count) == count * (2 * steps_of(count) + 2) + 1
        assert all({cell, cell + 1} <= set(cuts.tolist()) for cell in found)
    counts = np.random.default_rng(1).integers(0, 9, 1000)
    cuts = cuts_around([17, 400], 1000)
    assert bins_between(counts, cuts).tolist() == [int(counts[a:b].sum()) for a, b in itertools.pairwise(cuts)]
    assert cuts_around([0], 1).tolist() == [0, 1]


def test_spans_without_noise() -> None:
    counts = np.full(100, 1000)
    cuts = cuts_around([49], 100)
    one = span(bins_between(counts, cuts), cuts, 49, HALF, Fraction(1, 10))
    assert one.first <= 49 <= one.last
    assert one.last - one.first <= 4
    assert not one.lower_open
    assert not one.upper_open
    alone = span(np.array([5]), np.array([0, 1]), 0, HALF, Fraction(1))
    assert (alone.first, alone.last, alone.lower_open, alone.upper_open) == (0, 0, False, False)
    nothing = span(np.zeros(len(cuts) - 1, dtype=np.int64), cuts, 49, HALF, Fraction(1))
    assert (nothing.first, nothing.last, nothing.lower_open, nothing.upper_open) == (0, 99, True, True)


def test_a_value_beyond_all_rows_moves_to_their_near_side() -> None:
    """Cells that hold rows are told by the counts; the nearest that is among them stands for the quantile, or none."""
    counts = np.zeros(1000, dtype=np.int64)
    counts[300:500] = 50
    scale, never = Fraction(4), math.inf

    def standing(found: list[int], astray: float = never, even: float = never, rows: Any = counts) -> Any:
        cuts = cuts_around(found, len(rows))
        at = [Fraction(place, len(found) + 1) for place in range(1, len(found) + 1)]
        return among_rows(bins_between(rows, cuts), cuts, found, at, scale, astray, even)

    assert standing([400]) == [400]
    [near] = standing([900])
    assert 300 <= near < 500
    assert standing([310, 400, 990])[:2] == [310, 400]
    assert 400 <= standing([310, 400, 990])[2] < 500
    # Few rows: the counts tell nothing, and then neither does the selection, unless it is from rows enough.
    few = counts // 50
    assert standing([400], rows=few) == [None]
    assert standing([400], astray=10.0, rows=few) == [400]
    assert standing([990], rows=np.zeros(1000, dtype=np.int64)) == [None]


def test_values_without_bounds_are_never_far_from_the_rows() -> None:
    """Without this rule more than half of these are; the chance of a quarter is below 1e-6."""
    plan, far, told = asked(Fraction(9, 10), 0.4), 0, 0
    rng = np.random.default_rng(8)
    for _ in range(60):
        values = np.clip(np.rint(rng.normal(45, 18, 300)), 0, 100)
        counts = ScaleCounts(INTEGER)
        counts.add(values)
        [row] = quantile_rows(draw_once(draw_quantiles, plan, counts))
        assert row["verdict"] != "clear" or row["value"] is not None
        if row["value"] is not None:
            told += 1
            far += not -100 <= row["value"] <= 200
    assert far <= 15


@pytest.mark.long
def test_verdicts() -> None:
    plan = asked(0.5, 1)
    few, many = ScaleCounts(DOUBLE), ScaleCounts(DOUBLE)
    many.add(np.random.default_rng(1).normal(5, 1, 5000))
    void = [quantile_rows(draw_once(draw_quantiles, plan, few))[0] for _ in range(20)]
    told = [row for row in void if row["verdict"] == "undetermined"]
    assert len(told) >= 15  # noise closes an end with a chance of 2.5 %
    assert all(row["value"] is row["lower"] is row["upper"] is None for row in told)
    [row] = quantile_rows(draw_once(draw_quantiles, plan, many))
    assert row["verdict"] == "clear"
    bounded = asked(0.5, 1, (0, 10))
    void = [quantile_rows(draw_once(draw_quantiles, bounded, cells_between(0, 10, DOUBLE)))[0] for _ in range(20)]
    told = [row for row in void if row["verdict"] == "undetermined"]
    assert len(told) >= 15  # all that the bounds leave
    assert all(row["value"] is row["lower"] is row["upper"] is None for row in told)


def test_rows_of_earlier_releases() -> None:
    old = [{"keys": [], "quantile": 0.5, "value": 3.0, "lower": None, "upper": None, "verdict": "not measured"}]
    assert quantile_rows([[0.5, 3.0]]) == old
    assert quantile_rows({"values": [[0.5, 3.0]], "bounds": {"interval": [0, 1, 5, 0], "std_error": 1.0}}) == old
    groups = {"columns": ["g"], "types": ["VARCHAR"], "keys": [["a"]], "quantiles": [0.5], "values": [[3.0]]}
    assert quantile_rows(groups) == [{**old[0], "keys": ["a"]}]
    assert quantile_rows({"values": [[0.5, None]]})[0]["verdict"] == "undetermined"


def test_rows_needed_close_both_ends() -> None:
    """With so many rows, both ends of data within a few cells are found in 9 of 10 calls; with a third of them in few."""
    part = RankCounts("ranks", Fraction(1, 4), "add_remove", 1)
    needed = math.ceil(rows_needed((HALF,), part.scale, bounded=True))
    shares = []
    for rows in (needed, needed // 3):
        plan, clear = asked(0.5, 1, (0.0, 100.0), cells=512), 0
        for seed in range(100):
            counts = cells_between(0, 100, DOUBLE, 512)
            counts.add(np.random.default_rng(seed).uniform(45, 55, rows))
            clear += quantile_rows(draw_once(draw_quantiles, plan, counts))[0]["verdict"] == "clear"
        shares.append(clear / 100)
    assert shares[0] >= 0.85
    assert shares[1] <= 0.6


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"curve": "tree"}, {"noise": "gaussian", "delta": 1e-6}], ids=str)
def test_quantiles_read_off_a_histogram_have_intervals(more: dict[str, Any]) -> None:
    from dpsql.functions.grouped.histogram import HistogramPlan, draw_histogram
    from dpsql.released.histogram import histogram_record

    given = {"target": "x", "lower": 0, "upper": 8, "n_bins": 40, "epsilon": 0.5, **more}
    plan = HistogramPlan.from_arguments("t", given)
    found = []
    for seed in range(120):
        values = np.clip(np.random.default_rng(seed).lognormal(0, 0.7, 200), 0, 8)
        counts = np.bincount(plan.derived.of(values), minlength=plan.derived.count)[np.newaxis]
        released = draw_once(lambda asked, counts=counts: draw_histogram(asked, counts), plan)
        record: Any = {**histogram_record(plan, [], []), **released}
        found += covered(histogram_quantiles(record, [0.1, 0.5, 0.9]), values)
    assert np.mean(found) >= 0.93


@cases("failure", [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001])
def test_no_sum_of_many_exceeds_the_widest_more_often(failure: float) -> None:
    """Of more bins than the quantile is computed for, at any confidence that a query may ask."""
    for below, above in ((1, 1), (1, 2), (2, 2), (1, 9), (3, 5), (7, 30), (40, 60)):
        for q in (0.02, 0.2, 0.5, 0.9):
            weights, times = np.array([[1.0 - q, q]]), np.array([[float(below), float(above)]])
            assert combined_quantile(weights, times, failure)[0] <= quantile_spans.widest(failure) * (1 + 1e-6)
