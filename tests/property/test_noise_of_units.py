"""The noise of every function for units of one and of three rows, and for rows that are added and that are replaced.

The samplers are the product's own, and what they are asked for is noted: scales, standard deviations, and ranges of
utilities over epsilon. A call that forgets the rows of a unit, or the relation, between its arguments and its samplers
shows.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dpsql
import dpsql.functions
import dpsql.mechanisms
from dpsql.functions.kendall import KendallPlan
from dpsql.mechanisms.gaussian import GaussianNoise
from support.cases import cases

ROWS = (
    "SELECT i AS u, i % 7 / 7 AS a, i % 11 / 11 AS b, i % 13 / 13 AS c, i % 5 / 5 AS y, i % 2 AS g, i % 3 = 0 AS ill, "
    "['x', 'z'][1 + i % 2] AS h, i % 17 / 17 AS s, i % 3 < 2 AS p, i % 4 < 2 AS q FROM range(120) AS r(i)"
)
# How wide the noise is that each sampler is asked for, by the sampler's name, its arguments and its result.
WIDTHS: dict[str, Callable[[tuple[Any, ...], dict[str, Any], Any], float]] = {
    "discrete_laplace": lambda given, more, found: float(given[0]),
    "geometric": lambda given, more, found: float(given[0]),
    "cube_noise": lambda given, more, found: float(given[0]),
    "gaussian_lattice": lambda given, more, found: math.ldexp(found.spread**0.5, found.bits),
    "gaussian_counts": lambda given, more, found: found.sigma,
    "gaussian_release": lambda given, more, found: found.sigma,
    "GaussianNoise.draw_sums": lambda given, more, found: found.sigma,
    "select": lambda given, more, found: float(more["utility_range"] / more["epsilon"]),
    "canonical_lipschitz": lambda given, more, found: float(more["utility_range"] / more["epsilon"]),
    "coefficient_of": lambda given, more, found: float(1 / found),
    "sparse_vector": lambda given, more, found: float(given[1].score_scale),
}
FEATURES = {"target": "y", "features": ["a", "b", "c"]}
BOUNDS = {"lower": 0, "upper": 1}
TARGET = {"target_lower": 0, "target_upper": 1}
PRESENT = {"target": "ill", "features": ["p", "q"]}
SCORE = {"label": "ill", "score": "s", **BOUNDS}
KEYS = {"by": "h", "keys": ["x", "z"], "max_groups_per_unit": 1}
DELTA = {"delta": 1e-3}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "count": ("dp_count", {"left_out_share": 0}),
    "count by key": ("dp_count", {**KEYS, "left_out_share": 0}),
    "sum of drawn bounds": ("dp_sum", {"target": "a", "left_out_share": 0}),
    "mean": ("dp_avg", {"target": "a", **BOUNDS, "left_out_share": 0, "noise": "gaussian", **DELTA}),
    "difference": ("dp_compare", {"target": "a", "groups": "g", "keys": [0, 1], **BOUNDS}),
    "difference of areas": ("dp_compare", {"of": "auc", "scores": ["s", "a"], "label": "ill", **BOUNDS}),
    "synthetic": ("dp_synthetic", {**DELTA, "columns": ["a", "b", "h"], "keys": {"h": ["x", "z"]}}),
    "sis": ("dp_sis", {**FEATURES, "k": 1, **BOUNDS, **TARGET, "center": "target"}),
    "sis, canonical": ("dp_sis", {**FEATURES, "k": 1, **BOUNDS, **TARGET, "mechanism": "canonical_lipschitz"}),
    "sis by rank": ("dp_sis", {**FEATURES, "k": 1, "score": "rank", "verdict_share": 0}),
    "best subset": ("dp_best_subset", {**FEATURES, "k": 1, **BOUNDS, **TARGET}),
    "filter": ("dp_score_filter", {**PRESENT, "threshold": 9}),
    "filter, gaussian": ("dp_score_filter", {**PRESENT, "threshold": 9, "method": "gaussian", **DELTA}),
    "filter, sparse vector": ("dp_score_filter", {**PRESENT, "threshold": 9, "method": "svt", "cutoff": 1}),
    "filter, gumbel": ("dp_score_filter", {**PRESENT, "k": 1, "method": "gumbel"}),
    "naive bayes": ("dp_naive_bayes", PRESENT),
    "naive bayes, gaussian": ("dp_naive_bayes", {**PRESENT, **DELTA}),
    "ada_ssp": ("dp_linear_regression", {**FEATURES, "method": "ada_ssp", "sampling": True, **DELTA}),
    "boosted": ("dp_linear_regression", {**FEATURES, "method": "boosted_ada_ssp", "rounds": 3, **DELTA}),
    # Of public bounds of the target the released rows decide how much goes to ends within them.
    "additive": ("dp_linear_regression", {**FEATURES, "method": "additive", **DELTA}),
    "quantiles": ("dp_quantile", {"target": "a", **BOUNDS, "quantiles": [0.25, 0.5]}),
    "quantiles of drawn bounds": ("dp_quantile", {"target": "a", "bounds_share": 0.3}),
    "bounds": ("dp_bounds", {"target": "a"}),
    "covariance": ("dp_covariance", {"features": ["a", "b"], **BOUNDS}),
    "covariance, gaussian": ("dp_covariance", {"features": ["a", "b"], **BOUNDS, **DELTA}),
    "metrics": ("dp_regression_metrics", {"target": "y", "prediction": "a", **BOUNDS}),
    "roc": ("dp_roc", SCORE),
    "roc, gaussian": ("dp_roc", {**SCORE, "thresholds": "fixed", **DELTA}),
    "auc": ("dp_auc", SCORE),
    "auc, gaussian": ("dp_auc", {**SCORE, **DELTA}),
    "confusion": ("dp_confusion", {**SCORE, "thresholds": [0.3, 0.6]}),
}


@contextmanager
def noted() -> Iterator[dict[str, set[float]]]:
    """Note how wide the noise is that is drawn, by the sampler's name."""
    found: dict[str, set[float]] = {}

    def noting(name: str, sampler: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **more: Any) -> Any:
            drawn = sampler(*given, **more)
            found.setdefault(name, set()).add(WIDTHS[name](given, more, drawn))
            return drawn

        return note

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GaussianNoise, "draw_sums", noting("GaussianNoise.draw_sums", GaussianNoise.draw_sums))
        for package in (dpsql.mechanisms, dpsql.functions):
            for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                module = importlib.import_module(each.name)
                for name in WIDTHS.keys() & vars(module).keys():
                    sampler = vars(module)[name]
                    # Counts are brought to another unit before they are a release.
                    if (each.name, name) != ("dpsql.mechanisms.gaussian", "gaussian_release"):
                        patch.setattr(module, name, noting(name, sampler))
        yield found


@pytest.fixture(scope="module")
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.Context() as opened:
        opened.connection.execute(f"CREATE TABLE t AS {ROWS}")
        yield opened


def widths(ctx: dpsql.Context, name: str, **more: object) -> dict[str, tuple[float, float]]:
    """Return the least and the largest width of the noise of a call, by sampler."""
    function, given = CALLS[name]
    with noted() as found:
        getattr(ctx, function)("t", **{**given, **more}, epsilon=900)
    return {sampler: (min(sizes), max(sizes)) for sampler, sizes in found.items()}


@cases("name", CALLS)
def test_units_of_three_rows_have_three_times_the_noise(ctx: dpsql.Context, name: str) -> None:
    one, three = (widths(ctx, name, privacy_unit="u", max_rows_per_unit=rows) for rows in (1, 3))
    assert one.keys() == three.keys() != set()
    for sampler in one:
        assert three[sampler] == pytest.approx([3 * width for width in one[sampler]], rel=1e-6), sampler


@cases("name", [name for name in CALLS if name != "count"])  # which a replaced row does not move
def test_replaced_rows_have_more_noise_than_added_ones(ctx: dpsql.Context, name: str) -> None:
    """They move whatever they left and whatever they came to; some number of each sampler shows it, and none has less."""
    unit = {"privacy_unit": "u", "max_rows_per_unit": 1} if "by" in CALLS[name][1] else {}
    added, replaced = (widths(ctx, name, neighbours=relation, **unit) for relation in ("add_remove", "replace"))
    assert added.keys() == replaced.keys() != set()
    for sampler in added:
        ratios = [more / less for less, more in zip(added[sampler], replaced[sampler], strict=True)]
        assert min(ratios) >= 1 - 1e-9, sampler
        assert max(ratios) > 1.05, sampler


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_second_round_of_rank_correlation_has_twice_the_noise(ctx: dpsql.Context, relation: str) -> None:
    """The correlation with the chosen feature moves, too, as far as that with the target."""
    given = {**FEATURES, "k": 2, "verdict_share": 0, "neighbours": relation}
    first, later = KendallPlan.from_arguments("t", {**given, "epsilon": 900}).ranges()
    with noted() as found:
        ctx.dp_kendall("t", **given, epsilon=900)
    assert max(found["select"]) / min(found["select"]) == later / first == 2
