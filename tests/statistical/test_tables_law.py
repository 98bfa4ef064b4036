"""Noise of histograms, of tables with margins and of quantiles of groups against its exact law; 0.7 and 1.3 times must show."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.contract.relation import Contribution
from dpsql.functions.crosstab import CrosstabPlan, draw_crosstab
from dpsql.functions.grouped.histogram import HistogramPlan, draw_histogram
from dpsql.mechanisms.quantile import GroupQuantileSelection
from dpsql.released.crosstab import crosstab_record, entry_weights, estimated_marginal, margins_of
from dpsql.released.histogram import histogram_counts, histogram_record
from dpsql.statistics.counts import MarginalCounts, marginals_up_to
from support.audits import judge
from support.cases import cases
from support.laws.quantile import group_quantile_law

UNIT = {"privacy_unit": "p", "max_groups_per_unit": 2, "max_rows_per_unit_group": 1}
KEYS = {"a": [1, 2, 3], "b": [1, 2]}


def geometric(scale: float) -> dict[int, float]:
    decay = math.exp(-1 / scale)
    reach = np.arange(-math.ceil(30 * scale), math.ceil(30 * scale) + 1)
    return dict(zip(reach.tolist(), ((1 - decay) / (1 + decay) * decay ** abs(reach)).tolist(), strict=True))


@pytest.mark.parametrize(("more", "factor"), [({}, 1), ({"neighbours": "replace"}, 2), ({**UNIT}, 2)])
def test_bins(more: dict[str, Any], factor: int) -> None:
    """Laplace noise of scale K1 / epsilon on every bin, twice that under replace."""
    counts = np.arange(400, dtype=np.int64).reshape(20, 20)

    def sampler(epsilon: Fraction, runs: int) -> list[int]:
        plan = HistogramPlan.from_arguments("t", {"target": "x", "bins": list(range(18)), "epsilon": epsilon, **more})
        found: list[int] = []
        while len(found) < runs:
            with Permit(plan.measurement).drawing():
                block = draw_histogram(plan, counts)["block"]
            found += (np.array(block["words"])[0][0] - counts.ravel()).tolist()  # type: ignore[call-overload, index]
        return found[:runs]

    judge(sampler, lambda epsilon: geometric(factor / float(epsilon)), Fraction(1))


@pytest.mark.parametrize(("more", "factor"), [({}, 4), ({"neighbours": "replace"}, 7), ({**UNIT}, 8)])
def test_margins(more: dict[str, Any], factor: int) -> None:
    """Laplace noise of scale 4 K1 / epsilon on every entry of the four marginals; under replace the total moves by 1."""
    keys = {"a": list(range(40)), "b": list(range(40))}
    cells = np.arange(1600, dtype=np.int64)

    def sampler(epsilon: Fraction, runs: int) -> list[int]:
        given = {"rows": "a", "columns": "b", "keys": keys, "epsilon": epsilon, "noise": "laplace"}
        plan = CrosstabPlan.from_arguments("t", {**given, **more})
        assert len(plan.design.measured) == 4
        exact = plan.design.entries(cells)
        found: list[int] = []
        while len(found) < runs:
            with Permit(plan.measurement).drawing():
                found += (draw_crosstab(plan, cells).words.high[0] - exact).tolist()
        return found[:runs]

    judge(sampler, lambda epsilon: geometric(factor / float(epsilon)), Fraction(4))


@pytest.mark.long
@cases(
    ("relation", "rows"),
    [("add_remove", 1), pytest.param("replace", 1, marks=pytest.mark.slow), ("replace", 2)],
    quick=1,
)
def test_quantiles_of_groups(relation: str, rows: int) -> None:
    counts = np.array([[3, 0, 2, 1], [0, 0, 0, 4]])
    table = [(group, cell) for group in range(2) for cell in range(4) for _ in range(counts[group, cell])]
    at = (Fraction(9, 10),)

    def law_of(epsilon: Fraction) -> dict[Any, float]:
        given = {"quantiles": at, "epsilon": epsilon, "neighbours": relation, "max_rows_per_unit": rows}
        return group_quantile_law(table, 2, 4, **given)

    def sampler(epsilon: Fraction, runs: int) -> list[Any]:
        part = GroupQuantileSelection("quantiles", epsilon, at, relation, rows)
        return [tuple(map(tuple, _drawn(part, counts))) for _ in range(runs)]

    judge(sampler, law_of, Fraction(4))


def _drawn(part: GroupQuantileSelection, counts: np.ndarray) -> list[list[int]]:
    with Permit(measurement_of(part)).drawing():
        return part.draw_groups(counts)


@pytest.mark.parametrize("sizes", [(3, 2), (1, 4), (2, 3, 2), (2, 2, 2, 2)])
def test_estimates_are_least_squares(sizes: tuple[int, ...]) -> None:
    """The closed form against a solver, and its weights and variances against the solver's matrix."""
    columns = len(sizes)
    design = MarginalCounts(sizes, marginals_up_to(2, columns))
    cells = int(np.prod(sizes))
    matrix = np.array([design.entries(unit) for unit in np.eye(cells, dtype=np.int64)]).T.astype(float)
    inverse = np.linalg.pinv(matrix)
    noisy = np.random.default_rng(1).normal(size=len(matrix)) * 5 + 20
    for axes in design.measured:
        wanted = MarginalCounts(sizes, (axes,))
        rows = np.array([wanted.entries(unit) for unit in np.eye(cells, dtype=np.int64)]).T
        form = rows @ inverse
        assert np.allclose(estimated_marginal(design, design.split(noisy), axes).ravel(), form @ noisy)
        weights = entry_weights(design, axes)
        assert weights.variance == pytest.approx(float(np.square(form[0]).sum()))
        listed = np.sort(np.repeat(weights.weight, weights.times.astype(int)))
        assert np.allclose(listed, np.sort(form[0]), atol=1e-9)


@pytest.mark.long
def test_margins_agree_with_the_cells_and_intervals_cover() -> None:
    """95 % intervals cover in 93 to 97.5 % of 3000 numbers, with either law and both designs."""
    cells = np.arange(6, dtype=np.int64) * 100
    for more in ({"noise": "laplace"}, {"noise": "gaussian", "delta": 1e-5}, {"margins": False}):
        given = {"rows": "a", "columns": "b", "keys": KEYS, "epsilon": 0.5, **more}
        plan = CrosstabPlan.from_arguments("t", given)
        inside, count = 0, 0
        exact = MarginalCounts((3, 2), plan.shown).split(
            MarginalCounts((3, 2), plan.shown).entries(cells).astype(float)
        )
        for _ in range(250):
            with Permit(plan.measurement).drawing():
                noisy = draw_crosstab(plan, cells)
            record: Any = crosstab_record(plan, [["1", "2", "3"], ["1", "2"]], ["INTEGER"] * 2, noisy)
            for margin in margins_of(record):
                inside += int((np.abs(margin.count - exact[margin.axes]) <= margin.reach).sum())
                count += margin.count.size
        assert 0.93 <= inside / count <= 0.98, more


@pytest.mark.parametrize("curve", ["identity", "tree", "wavelet"])
def test_intervals_of_bins_cover(curve: str) -> None:
    counts = np.zeros((300, 20), dtype=np.int64) + 1000
    given = {"target": "x", "lower": 0, "upper": 1, "n_bins": 19, "epsilon": 0.5, "curve": curve}
    plan = HistogramPlan.from_arguments("t", given)
    with Permit(plan.measurement).drawing():
        record: Any = {**histogram_record(plan, [], []), **draw_histogram(plan, counts)}
    found = histogram_counts(record)
    inside = (found.count_lower <= 1000) & (found.count_upper >= 1000)
    assert 0.93 <= inside.mean() <= 0.98
    ratio = np.square(found.count - 1000).mean() / np.square(found.std_error).mean()
    assert 0.8 <= ratio <= 1.25
    last = np.square(found.cumulative[:, :-1] - 1000 * np.arange(1, 20)).mean()
    assert 0.8 <= last / np.square(found.cumulative_std_error[:, :-1]).mean() <= 1.25


def test_contribution_of_bins() -> None:
    """The group that max_groups_per_unit counts is the pair of key and bin."""
    given = {"target": "x", "bins": [1, 2], "epsilon": 1, "privacy_unit": "p", "max_rows_per_unit_group": 2}
    plan = HistogramPlan.from_arguments("t", {**given, "by": "a", "keys": [1, 2]})
    assert plan.contribution == Contribution("add_remove", 16, 8, 2, keys=8)
