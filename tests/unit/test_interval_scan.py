"""Private intervals of one column: what they hold, when there are none, and what is said of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import ParameterError
from dpsql.kernels.cells import FINE_CELLS, MagnitudeCounts, fine_edges
from dpsql.mechanisms import interval_scan as module
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval, interval_scan, tail_cuts
from dpsql.released.intervals import interval_record, restored_interval
from dpsql.released.shapes import INTERVAL
from dpsql.testing.bits import SeededBits
from support.cases import cases
from support.columns import odd_columns
from support.laws.quantile import rank_law

SMALLEST, LARGEST = 2.0**-64, 2.0**65
ROWS = 40_000


def counted(values: Any) -> np.ndarray:
    magnitudes = MagnitudeCounts(1)
    magnitudes.add(np.asarray(values, dtype=np.float64)[np.newaxis])
    return magnitudes.counts[0]


def noise_of(
    epsilon: Any = 1, neighbours: str = "add_remove", rows: int = 1, failure: Any = "0.01", *, tails: bool = False
) -> IntervalNoise:
    return IntervalNoise(Fraction(epsilon), neighbours, rows, Fraction(failure), tails)


COLUMNS = odd_columns(ROWS)
EXPECTED = {
    "years": (1920.0, 2048.0),
    "binary": (0.0, 1.0625),
    "signs": (-1.0625, 1.0625),
    "constant": (-7.25, -7.0),
    "zeros": (-SMALLEST, SMALLEST),
    "infinite": (LARGEST - 2.0**60, LARGEST),
}


@cases("neighbours", ["add_remove", "replace"])
@cases("name", COLUMNS)
def test_intervals_hold_the_bulk(name: str, neighbours: str) -> None:
    values = COLUMNS[name]
    # An end passes an empty cell with a chance of 2.5 %: with these bits none does.
    drawn = interval_scan(counted(values), noise_of(neighbours=neighbours), source=SeededBits(1))
    assert drawn.ends is not None
    known = np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
    inside = np.count_nonzero((known >= drawn.ends[0]) & (known <= drawn.ends[1]))
    assert inside > 0.99 * len(known)
    # 40 scales of the noise: a chance of 1e-17.
    assert abs(drawn.inside - inside) < 600
    assert abs(drawn.outside - (len(known) - inside)) < 600
    if name in EXPECTED:
        assert drawn.ends == EXPECTED[name]
    assert -drawn.ends[0] != math.inf != drawn.ends[1]
    assert drawn.ends[0] < drawn.ends[1]


@cases("epsilon", [Fraction(1, 10**6), Fraction(1), Fraction(10**4)])
@cases("values", [[], [math.nan] * 50])
def test_no_rows_are_never_found_but_for_the_noise(values: list[float], epsilon: Fraction) -> None:
    noise = noise_of(epsilon, failure=Fraction(1, 10**9))
    assert all(interval_scan(counted(values), noise).ends is None for _ in range(5))


@pytest.mark.long
def test_few_rows_are_undetermined_and_many_are_found() -> None:
    column = COLUMNS["normal"][:200]
    # Two noises lift 60 rows by 80 with a chance below 1e-5; they take 60 from 200 with one of 2e-3.
    assert all(interval_scan(counted(column[:60]), noise_of()).ends is None for _ in range(100))
    found = sum(interval_scan(counted(column), noise_of()).ends is not None for _ in range(100))
    assert found >= 90


def test_large_epsilon_leaves_one_row_at_either_end() -> None:
    counts = counted([0.5] * 30 + [-20.0])
    assert interval_scan(counts, noise_of(1000)) == PrivateInterval((0.5, 0.53125), 30, 1)
    counts = counted([0.5] * 30 + [-20.0] * 2)
    assert interval_scan(counts, noise_of(1000)) == PrivateInterval((-21.0, 0.53125), 32, 0)


def test_large_epsilon_counts_the_rows_of_each_tail() -> None:
    """Of 31 rows one is beyond the lower end; a row that counted in two ranges would show in the rows inside."""
    counts = counted([0.5] * 30 + [-20.0])
    drawn = interval_scan(counts, noise_of(1000, tails=True))
    assert (drawn.ends, drawn.inside, drawn.outside) == ((0.5, 0.53125), 30, 1)
    values = np.linspace(10, 20, 4001)
    drawn = interval_scan(counted(values), noise_of(1000, tails=True))
    assert drawn.inside + drawn.outside == 4001
    assert drawn.tails is not None
    for tail in drawn.tails:
        assert tail.rows < 1.01
        assert tail.reach == pytest.approx(5, rel=0.1)
        assert tail.fall > 10


@pytest.mark.parametrize("seed", range(40))
def test_each_row_is_in_a_single_range_of_cells(seed: int) -> None:
    """So a row moves the seven counts as it moves two: by 1, wherever the released cells are."""
    first, start, last = sorted(np.random.default_rng(seed).integers(0, FINE_CELLS, 3).tolist())
    if seed % 4 == 0:
        first, start, last = (FINE_CELLS // 2 + side * seed for side in (-1, 0, 1))
    cuts = tail_cuts(start, first, last)
    assert len(cuts) == 8
    assert (cuts[0], cuts[1], cuts[-2], cuts[-1]) == (0, first, last + 1, FINE_CELLS)
    assert sorted(cuts) == list(cuts)
    rows = np.arange(FINE_CELLS)
    assert sum(np.count_nonzero((rows >= low) & (rows < high)) for low, high in pairwise(cuts)) == FINE_CELLS


def interval_of(values: Any, epsilon: Any = 1, seed: int = 3) -> PrivateInterval:
    return interval_scan(counted(values), noise_of(epsilon, tails=True), source=SeededBits(seed))


def test_ends_of_a_long_tail_are_farther_out_than_those_of_a_short_one() -> None:
    generator = np.random.default_rng(4)
    long, short = interval_of(generator.lognormal(0, 1, 20_000)), interval_of(generator.uniform(1, 2, 20_000))
    for drawn, least, most in ((long, 1.4, 8.0), (short, 1.0, 1.3)):
        assert drawn.ends is not None
        wide = drawn.widened(2.0)
        assert wide is not None
        assert wide[0] <= drawn.ends[0] < drawn.ends[1] <= wide[1]
        assert least <= (wide[1] - wide[0]) / (drawn.ends[1] - drawn.ends[0]) <= most
        # A group with few of the rows has few beyond the end, and the same noise.
        assert drawn.widened(2.0, 0.0) == drawn.ends
        few = drawn.widened(2.0, 1e-6)
        assert few == drawn.ends
        # Noise that costs nothing goes as far out as there are steps.
        assert drawn.widened(1e-300) != wide


@pytest.mark.parametrize("power", [1, 2])
def test_what_is_clipped_is_seldom_underestimated(power: int) -> None:
    """Of an exponential law: the forecast is above what clipping takes in nearly all draws, and not by much."""
    values = np.random.default_rng(5).exponential(1, 20_000)
    forecasts, truths = [], []
    for seed in range(30):
        drawn = interval_of(values, seed=seed)
        assert drawn.ends is not None
        assert drawn.tails is not None
        wide = drawn.widened(2.0, power=power)
        assert wide is not None
        assert drawn.clipped(wide, power) <= drawn.clipped(drawn.ends, power)
        forecasts.append(drawn.clipped(drawn.ends, power))
        beyond = values[values > drawn.ends[1]]
        middle = drawn.ends[1] - drawn.tails[1].reach
        truths.append(float(((beyond - middle) ** power - (drawn.ends[1] - middle) ** power).sum()))
    assert sum(forecast >= truth for forecast, truth in zip(forecasts, truths, strict=True)) >= 27
    assert np.median(forecasts) < 8 * np.median(truths)


def test_rows_that_were_not_drawn_from_are_clipped_as_often() -> None:
    """One row of each unit was counted: of five rows a unit a sum loses five times as much, of one as much as counted."""
    drawn = interval_of(np.random.default_rng(5).exponential(1, 20_000))
    assert drawn.ends is not None
    of_units = restored_interval(json.loads(json.dumps(interval_record(replace(drawn, by_unit=True)))))
    counted_rows = drawn.inside + drawn.outside
    for power in (1, 2):
        once = drawn.clipped(drawn.ends, power)
        assert drawn.clipped(drawn.ends, power, 5 * counted_rows) == once > 0
        assert of_units.clipped(drawn.ends, power, counted_rows / 2) == once
        assert of_units.clipped(drawn.ends, power, 5 * counted_rows) == pytest.approx(5 * once)


def test_a_start_at_its_end_has_a_tail_only_where_rows_beyond_show() -> None:
    zeros = [0.0] * 3000
    drawn = interval_of([*zeros, *np.linspace(1, 2, 1000)])
    assert drawn.tails is not None
    assert drawn.tails[0].rows == 0.0
    assert interval_scan(counted([7.0] * 2000), noise_of(tails=False)).tails is None
    assert interval_scan(counted([7.0] * 2000), noise_of(tails=False)).clipped((7.0, 8.0)) == 0.0


@pytest.mark.parametrize("epsilon", ["1e-12", "1e-3", "1e6", "1e12"])
def test_tails_are_finite_with_next_to_no_noise_and_with_all(epsilon: str) -> None:
    values = np.random.default_rng(1).normal(5, 1, 2000)
    for tail in interval_of(values, Fraction(epsilon)).tails or ():
        assert all(map(math.isfinite, (tail.rows, tail.fall, tail.reach)))
        assert math.isfinite(float(tail.excess(1.0)))
    wide = interval_of(values, Fraction(epsilon)).widened(1e-9)
    assert wide is None or all(map(math.isfinite, wide))


def test_tails_come_back_from_the_ledger() -> None:
    drawn = interval_of(np.linspace(10, 20, 4000))
    assert restored_interval(interval_record(drawn)) == drawn
    assert restored_interval([1.0, 2.0, 30, 4]) == PrivateInterval((1.0, 2.0), 30, 4)
    assert restored_interval([1.0, 2.0]).ends == (1.0, 2.0)
    assert restored_interval([None, None, 3, 4]).ends is None


def test_negative_columns_mirror_positive_ones() -> None:
    values = np.random.default_rng(6).lognormal(0, 1, size=10**5)
    for sign in (1, -1):
        drawn = interval_scan(counted(sign * values), noise_of(10**5))
        assert drawn.ends is not None
        size = sorted(map(abs, drawn.ends))
        assert size[0] <= np.sort(values)[1] <= np.sort(values)[-2] <= size[1]
        assert size[0] >= values.min() * 15 / 16
        assert size[1] <= values.max() * 17 / 16
        assert abs(drawn.inside + drawn.outside - 10**5) < 3


@pytest.mark.parametrize(("epsilon", "failure"), [(1, "0.01"), (1, "0.3"), (5, "0.001")])
def test_thresholds_are_those_of_the_discrete_law(epsilon: int, failure: str) -> None:
    noise = noise_of(epsilon, failure=failure)
    decay = math.exp(-0.15 * epsilon)
    one = (1 - decay) / (1 + decay) * decay ** np.abs(np.arange(-600, 601))
    above = np.cumsum(np.convolve(one, one)[::-1])[::-1][1200:]
    assert above[noise.majority] <= float(failure) < above[noise.majority - 1]
    both = 2 * np.cumsum(one[::-1])[::-1][600:]
    assert both[noise.count_reach + 1] <= float(failure) / 2
    assert noise.count_reach == 0 or both[noise.count_reach] > float(failure) / 2


@pytest.mark.parametrize("tails", [False, True])
def test_the_steps_spend_epsilon_together(tails: bool) -> None:
    for relation, moved in (("add_remove", 2), ("replace", 3)):
        noise = noise_of(2, relation, 5, tails=tails)
        spent = noise.start_epsilon + moved * 5 / noise.scan_scale + (moved - 1) * 5 / noise.count_scale
        assert spent == 2 == noise.event.cost.epsilon


def test_rows_needed() -> None:
    assert 136 <= noise_of().rows_needed <= 142
    assert noise_of().rows_needed == noise_of().majority + math.ceil(8 * math.log((FINE_CELLS - 1) / 0.01))
    assert abs(noise_of("0.1").rows_needed - 1385) < 10
    assert abs(noise_of(neighbours="replace").rows_needed - 2 * noise_of().rows_needed) <= 4
    assert abs(noise_of(rows=4).rows_needed - 4 * noise_of().rows_needed) <= 12
    assert noise_of(failure="0.0001").rows_needed > noise_of().rows_needed
    assert noise_of().is_found(140, 0)
    assert not noise_of().is_found(1000, 970)
    assert not noise_of().is_found(130, 0)
    # Seven noises in place of two, and a surer start: no more rows are needed.
    assert noise_of(tails=True).rows_needed <= noise_of().rows_needed
    assert noise_of(tails=True).majority > 1.6 * noise_of().majority


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_start_beyond_all_rows_is_rare(neighbours: str) -> None:
    """The second claim at its worst: as many rows as it needs, all in the first cell."""
    noise = noise_of(neighbours=neighbours)
    rows = noise.rows_needed - noise.majority
    coefficient = noise.start_epsilon / (2 if neighbours == "replace" else 1)
    law = rank_law([0] * rows, 0, FINE_CELLS - 1, Fraction(rows, 2), coefficient)
    assert 0.008 < 1 - law[0] <= 0.01


def test_an_end_in_the_zero_cell_is_zero() -> None:
    edges = {*fine_edges().tolist(), 0.0}
    for values in ([0.0] * 400 + [1.0] * 400, [0.0] * 400 + [-1.0] * 400, [5e-324] * 500):
        drawn = interval_scan(counted(values), noise_of(), source=SeededBits(7))
        assert drawn.ends is not None
        assert set(drawn.ends) <= edges
        assert 0.0 in drawn.ends or drawn.ends == (-SMALLEST, SMALLEST)


@cases(
    "changed",
    [
        {"epsilon": Fraction(0)},
        {"epsilon": 0.5},
        {"neighbours": "both"},
        {"max_rows_per_unit": 0},
        {"failure": Fraction(0)},
        {"failure": Fraction(1)},
        {"failure": 0.5},
    ],
)
def test_what_is_refused(changed: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "epsilon": Fraction(1), "neighbours": "add_remove", "max_rows_per_unit": 1, "failure": Fraction(1, 2),
    }  # fmt: skip
    with pytest.raises(ParameterError) as caught:
        IntervalNoise(**{**given, **changed})
    assert caught.value.code == "DPSQL-P018"


def test_stored_bounds_of_a_version_without_counts_are_still_rows() -> None:
    old = {"rows_inside": None, "rows_outside": None, "std_error": None, "verdict": "not measured"}
    assert INTERVAL.rows([1.0, 2.0]) == [{"keys": [], "lower": 1.0, "upper": 2.0, **old}]
    groups = {"columns": ["g"], "types": ["BIGINT"], "keys": [["7"]], "intervals": [[1.0, 2.0]]}
    assert INTERVAL.rows(groups) == [{"keys": ["7"], "lower": 1.0, "upper": 2.0, **old}]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_group_is_not_the_whole_table(monkeypatch: pytest.MonkeyPatch, neighbours: str) -> None:
    """Under replace a row leaves one group and comes to another, so no group's number of rows is public."""
    alone, usual = list[bool](), module.quantiles

    def noted(*given: Any, **more: Any) -> list[int]:
        alone.append(more["alone"])
        return usual(*given, **more)

    monkeypatch.setattr(module, "quantiles", noted)
    part, counts = ScannedInterval("it", noise_of(neighbours=neighbours)), counted(np.arange(50.0))
    with Permit(measurement_of(part)).drawing():
        part.draw_groups(np.stack([counts, counts]))
    with Permit(measurement_of(part)).drawing():
        part.draw(counts)
    assert alone == [False, False, True]
