"""Certainty of selections: exact chances against simulation and enumeration, numbers of rows, and the words."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.functions.estimate import estimate
from dpsql.functions.selection import (
    Certainty,
    in_words,
    largest_rank_score,
    missed,
    one_shot_certainty,
    rounds_certainty,
    sure_gap,
)
from dpsql.mechanisms.one_shot import select
from support.cases import cases

TWO_LEVELS = partial(largest_rank_score, two_levels=True)


@pytest.mark.parametrize(("k", "count", "lead"), [(1, 2000, 9.87), (5, 2000, 6.47), (5, 7129, 7.74)])
def test_the_lead_that_is_possible_at_all(k: int, count: int, lead: float) -> None:
    """Leads of a specification, in scales of the noise: they are missed in 5 % of calls."""
    assert missed("exponential", lead, k, count) == pytest.approx(0.05, abs=1e-3)
    assert missed("exponential", lead - 0.1, k, count) > 0.05 > missed("exponential", lead + 0.1, k, count)


@cases("noise", ["exponential", "gumbel"], quick=3)
@cases(("k", "count", "lead"), [(1, 2, 0.5), (2, 6, 1.0), (3, 40, 2.5), (1, 200, 5.0), (4, 5, 0.0)])
def test_the_chance_to_miss_is_that_of_the_noise(noise: str, k: int, count: int, lead: float) -> None:
    """A false alarm has a chance below 1e-6: five standard deviations of 40,000 draws."""
    rng = np.random.default_rng(5)
    draws = rng.exponential(size=(40_000, count)) if noise == "exponential" else rng.gumbel(size=(40_000, count))
    draws[:, 0] += lead
    share = ((draws[:, 1:] > draws[:, :1]).sum(axis=1) >= k).mean()
    expected = missed(noise, lead, k, count)
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / 40_000)
    wrong = missed(noise, 0.7 * lead + 0.3 * (lead == 0), k, count)
    assert abs(share - wrong) > 5 * math.sqrt(expected * (1 - expected) / 40_000), "0.7 times the lead shows"


@pytest.mark.long
@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_the_mechanism_has_that_noise(noise: Any) -> None:
    """The sampler of the selections, at the lead that should be missed in 5 % of calls, within five deviations."""
    count, k, runs = 12, 3, 4000
    lead = next(lead / 100 for lead in range(2000) if missed(noise, lead / 100, k, count) <= 0.05)
    scale = 50  # of the noise: k times the range
    utility = np.zeros(count, dtype=np.int64)
    utility[7] = round(lead * scale)
    hits = sum(7 in select(utility, utility_range=50, epsilon=Fraction(3), k=k, noise=noise) for _ in range(runs))
    assert abs(1 - hits / runs - 0.05) < 5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_a_sure_gap_is_enough_in_every_data_set(noise: str) -> None:
    """The worst data: k - 1 features far above, all others at the gap. Needed is less, as the best data are better."""
    count, k, runs = 30, 4, 20_000
    gap = sure_gap(noise, 1.0, k, count)
    rng = np.random.default_rng(6)
    draws = rng.exponential(size=(runs, count)) if noise == "exponential" else rng.gumbel(size=(runs, count))
    draws[:, 0] += gap
    draws[:, 1:k] += 1e6
    share = (draws[:, k:].max(axis=1) > draws[:, 0]).mean()
    assert share < 0.05 + 5 * math.sqrt(0.05 * 0.95 / runs)
    assert missed(noise, gap, k, count) <= 0.05
    assert sure_gap(noise, 1.0, 5, 5) == 0, "all features are selected"


def test_rows_of_the_specification() -> None:
    """p = 2000, k = 5, two levels, epsilon = 1: 258 rows are needed and 396 are sure; 300 rows miss 1 in 1000."""
    found = one_shot_certainty(noise="exponential", scale=10, k=5, count=2000, largest=TWO_LEVELS)
    assert (found.needed, found.sure, round(found.gap)) == (258, 396, 99)
    assert missed("exponential", TWO_LEVELS(300) / 10, 5, 2000) == pytest.approx(0.00095, abs=1e-5)


@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_needed_is_the_least_number_of_rows(noise: str) -> None:
    for k, count, scale in ((1, 10, 3.0), (3, 50, 8.0), (7, 8, 2.0)):
        found = one_shot_certainty(noise=noise, scale=scale, k=k, count=count, largest=float)
        assert found.needed is not None
        assert missed(noise, found.needed / scale, k, count) <= 0.05
        assert found.needed == 1 or missed(noise, (found.needed - 1) / scale, k, count) > 0.05
        assert found.sure is not None
        assert found.sure >= found.gap > found.sure - 1 or found.sure == 1
        assert found.needed <= found.sure


@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_rounds_are_missed_no_less_than_stated(noise: str) -> None:
    """With fewer rows than needed the best data of dp_kendall are missed too often, round after round."""
    k, count, scales = 3, 20, (2.0, 4.0)
    largest = partial(largest_rank_score, two_levels=False)
    found = rounds_certainty(noise=noise, scales=scales, k=k, count=count, largest=largest, others=largest)
    assert found.needed is not None
    x, runs = largest(found.needed - 1), 20_000
    rng = np.random.default_rng(7)
    left = np.ones(runs, dtype=bool)
    for number in range(k):
        lead = x / scales[0] if number == 0 else 2 * x / scales[1]
        shape = (runs, count - number)
        draws = rng.exponential(size=shape) if noise == "exponential" else rng.gumbel(size=shape)
        left &= draws[:, 1:].max(axis=1) > draws[:, 0] + lead
    assert left.mean() > 0.05 - 5 * math.sqrt(0.05 * 0.95 / runs)
    one = one_shot_certainty(noise=noise, scale=scales[0], k=1, count=count, largest=largest)
    single = rounds_certainty(noise=noise, scales=scales, k=1, count=count, largest=largest, others=largest)
    assert (single.needed, single.sure) == (one.needed, one.sure)


def test_the_largest_score_is_reached() -> None:
    """Of all tables of a few rows; two levels that are as even as they can be."""
    assert [largest_rank_score(rows, two_levels=False) for rows in range(5)] == [0, 0, 1, 1.5, 2]
    assert [TWO_LEVELS(rows) for rows in range(6)] == [0, 0, 1, 1, 4 / 3, 1.5]
    scores = [TWO_LEVELS(rows) for rows in range(2, 400)]
    assert scores == sorted(scores)


def test_many_features_and_little_epsilon_take_no_time() -> None:
    found = rounds_certainty(noise="exponential", scales=(1e6, 1e6), k=10**5, count=10**6, largest=float, others=float)
    assert found.needed is not None
    assert one_shot_certainty(noise="gumbel", scale=1e30, k=1, count=10**6, largest=float).needed is None


def test_words() -> None:
    some = Certainty(gap=99.0, needed=1893, sure=2500)
    assert in_words(some, 270) == "with 270 rows no data could make this selection certain; about 1,900 rows could"
    assert "depends on the data" in in_words(some, 1893)
    assert "is certain" in in_words(some, 2500)
    assert in_words(Certainty(1.0, None, None), 5) == "no data could make this selection certain"


@pytest.mark.parametrize(
    ("function", "given", "unit"),
    [
        ("dp_sis", {"score": "rank", "target_levels": ["a", "b"]}, "rows"),
        ("dp_sis", {"mechanism": "gumbel"}, "rows"),
        ("dp_kendall", {"split": "scaled"}, "rows"),
        ("dp_two_stage", {"blocks": 3}, "blocks"),
    ],
)
def test_estimates_speak_in_words(function: str, given: dict[str, Any], unit: str) -> None:
    rows = {one["quantity"]: one for one in estimate(function, n_features=100, k=5, epsilon=1, n_rows=3, **given)}
    said = str(rows[f"{unit}_needed"]["meaning"])
    assert f"with 3 {unit} no data could make this selection certain; about " in said
    assert rows[f"{unit}_needed"]["value"] <= rows[f"{unit}_sure"]["value"]
    more = {one["quantity"]: one["value"] for one in estimate(function, n_features=100, k=5, epsilon=2, **given)}
    assert more[f"{unit}_needed"] < rows[f"{unit}_needed"]["value"]


@pytest.mark.parametrize(("function", "more"), [("dp_sis", {"score": "rank"}), ("dp_kendall", {})])
def test_estimates_of_released_scores(function: str, more: dict[str, Any]) -> None:
    """A share for verdicts leaves less for the selection, and its noise is that of (k c + 1) over its epsilon."""
    plain, paid = (
        {
            one["quantity"]: one["value"]
            for one in estimate(
                function,
                n_features=9,
                k=2,
                epsilon=1,
                verdict_share=share,
                **({"verdict": "each"} if share else {}),
                **more,
            )
        }
        for share in (0, 0.5)
    )
    assert paid["noise_scale"] == pytest.approx(2 * plain["noise_scale"])  # type: ignore[operator]
    assert paid["score_std_error"] == pytest.approx(math.sqrt(2) * 4 / 0.5, rel=1e-6)
    assert "score_std_error" not in plain
    assert paid["epsilon"] == plain["epsilon"]


def test_estimates_of_others() -> None:
    canonical = estimate("dp_sis", n_features=9, k=2, epsilon=1, mechanism="canonical_lipschitz")
    assert not {"rows_needed", "rows_sure"} & {one["quantity"] for one in canonical}
    subset = {
        one["quantity"]: one["value"] for one in estimate("dp_best_subset", n_features=9, k=2, epsilon=1, n_rows=50)
    }
    assert subset["r2_loss"] == subset["score_loss"] / 50  # type: ignore[operator]
    near, far = (
        {
            one["quantity"]: one["value"]
            for one in estimate("dp_quantile", epsilon=1, quantiles=at, lower=0, upper=1, interval_share=0)
        }
        for at in (0.5, 0.01)
    )
    assert far["rows_needed"] > 40 * near["rows_needed"]  # type: ignore[operator]


@pytest.mark.long
@pytest.mark.parametrize("function", ["dp_sis", "dp_kendall"])
def test_a_public_number_of_rows_decides_and_a_counted_one_does_not(function: str) -> None:
    """Fewer rows than needed make every row 'unclear', by the argument alone: the table has more, or none."""
    arguments = {"target": "y", "features": ["a", "b", "c"], "k": 1, "epsilon": 1, "verdict_share": 0}
    if function == "dp_sis":
        arguments["score"] = "rank"
    with dpsql.Context() as context:
        context.connection.execute("CREATE TABLE t AS SELECT i AS y, i AS a, -i AS b, 0 AS c FROM range(500) AS r(i)")
        context.connection.execute("CREATE TABLE nobody AS FROM t LIMIT 0")
        for table in ("t", "nobody"):
            release = getattr(context, function)
            few, many, none = (release(table, **arguments, **more) for more in ({"n_rows": 3}, {"n_rows": 10**6}, {}))
            assert [one.verdict for one in (few, many, none)] == ["unclear", "not measured", "not measured"]
            assert few.noise["rows_needed"] == none.noise["rows_needed"] > 3
            assert few.event == none.event


def test_blocks_are_public() -> None:
    with dpsql.Context() as context:
        context.connection.execute("CREATE TABLE t AS SELECT i AS y, i AS a, -i AS b, 0 AS c FROM range(60) AS r(i)")
        arguments = {"target": "y", "features": ["a", "b", "c"], "k": 1, "epsilon": 0.5}
        few = context.dp_two_stage("t", blocks=2, **arguments)
        assert (few.verdict, few.noise["rows_needed"] > 2) == ("unclear", True)
        assert context.dp_two_stage("t", rows_per_block=30, **arguments).verdict == "not measured"
