"""Broken subset and two-stage selections as SQL functions, and a solver that stops looking too early."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.kernels.lasso_votes import lasso_votes
from dpsql.mechanisms.one_shot import select
from dpsql.noise.entropy import SYSTEM
from support.broken.subsets import (
    Law,
    accepted_listed_law,
    ball_scores,
    exponential_law,
    kept_branch_law,
    overweight_tail_law,
    range_without_radius,
)
from support.broken.votes import batches_of_floor

BROKEN_SELECTORS = {
    "dp_broken_subset_no_radius": "range (1 + sqrt k)^2, without the radius",
    "dp_broken_subset_target_range": "range 1, the square of the target's bound",
    "dp_broken_subset_no_ball": "ordinary least squares, with the range of least squares in the ball",
    "dp_broken_subset_one_sided": "the range of an added row, (1 + radius sqrt k)^2, for a replaced one",
    "dp_broken_subset_accepted": "rejection sampling that accepts listed subsets in the tail",
    "dp_broken_subset_kept_branch": "rejection sampling that stays in the tail after a rejection",
    "dp_broken_subset_overweight": "rejection sampling with the weight of all subsets for the unlisted ones",
    "dp_broken_two_stage_batches": "(rows DOUBLE[][], blocks BIGINT, epsilon DOUBLE, draws BIGINT) -> BIGINT[]: "
    "batches of n // m rows",
}
_SUBSETS = "(rows DOUBLE[][], k BIGINT, radius DOUBLE, epsilon DOUBLE, draws BIGINT) -> BIGINT[][]: "
BROKEN_SELECTORS |= {name: _SUBSETS + what for name, what in BROKEN_SELECTORS.items() if "subset" in name}
_UNIT = 1 << 24
# In place of a ball without end.
_FAR = 1e6


def install_broken_selectors(connection: Any) -> None:
    """Register the functions of `BROKEN_SELECTORS` on one connection. Never private; for audits only.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection or dpsql.Context
        Their rows hold features and, last, the target, all in [-1, 1]. They return as many independent releases as
        `draws` says.

    Notes
    -----
    What is wrong, and the pair of tables on which `audit_sql` catches it, with the right function passing the same
    audit (``tests/privacy/test_broken_selectors_sql.py``). All with one feature to a subset:

    - ``dp_broken_subset_no_radius``, ``..._target_range``, ``..._no_ball``: 100 rows that every feature fits with
      coefficient 5, and a row that one of them misses: at epsilon = 1/2 and radius 5 (for the last one 1.1) the
      losses are 3.3, 14 and 3.0.
    - ``dp_broken_subset_one_sided``: a row that seven of eight features miss becomes one that the eighth does: loss
      3.1 at epsilon = 2 under replace.
    - ``dp_broken_subset_accepted``, ``..._kept_branch``, ``..._overweight``: two features in a near tie that one row
      turns, and one of them listed: loss ln 2 at every epsilon.
    - ``dp_broken_two_stage_batches``: the 100th row turns the votes of all 20 blocks.
    """
    raw = getattr(connection, "connection", connection)
    flags: dict[str, Any] = {"type": "arrow", "side_effects": True, "null_handling": "special"}
    for name in BROKEN_SELECTORS:
        if "subset" in name:
            kinds = ["DOUBLE[][]", "BIGINT", "DOUBLE", "DOUBLE", "BIGINT"]
            raw.create_function(name, _subset_function(name), kinds, "BIGINT[][]", **flags)
    kinds = ["DOUBLE[][]", "BIGINT", "DOUBLE", "BIGINT"]
    raw.create_function("dp_broken_two_stage_batches", _two_stage_batches, kinds, "BIGINT[]", **flags)


def pruned_by_products(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a solver of best subsets whose bound ignores the columns' lengths.

    Parameters
    ----------
    solve : callable
        `dpsql.kernels.best_subsets.best_subsets`.

    Returns
    -------
    broken : callable
        The same arguments. It prunes every subset that lacks the columns of largest ``|x'y|`` against an incumbent
        that it never scored, and states the last listed score as a bound on all others.

    Notes
    -----
    - **What is wrong**: where a short column fits better than a long one, a better subset is pruned, and the lower
      bound is false. Which subsets are missing depends on the table.
    - **Caught by**: `audit_sql` on dp_best_subset with this solver in place. ``method := 'exact'``: as soon as the
      tail proposes a missing subset the sampler stops with I019, on one table only. ``method := 'top_r'``: no
      assertion can see it; the loss of the output law is 2.8 at epsilon = 1/2.
    """

    def broken(gram: Any, cross: Any, total: int, *, count: int, forced: int = 0, **options: Any) -> Any:
        every = solve(gram, cross, total, count=1 << 40, forced=forced, **options)
        products = np.abs(np.asarray(cross)[forced:].astype(np.float64))
        order = np.lexsort((*every.subsets.T[::-1], -products[every.subsets].min(axis=1)))
        kept = np.sort(order[:count])
        scores = every.scores[kept]
        return replace(every, subsets=every.subsets[kept], scores=scores, lower_bound=int(scores[-1]))

    return broken


def _by_row(function: Callable[..., Any], *columns: Any) -> Any:
    """Apply a function to Arrow columns; DuckDB 1.5.6 takes long to convert a Python list of thousands."""
    import pyarrow as pa

    return pa.array([function(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)])


def _subset_function(name: str) -> Callable[..., Any]:
    def draw(rows: list[list[float]], k: int, radius: float, epsilon: float, draws: int) -> list[tuple[int, ...]]:
        law = _subset_law(name, rows, k, radius, epsilon)
        return random.Random(int(SYSTEM.words(1)[0])).choices(list(law), list(law.values()), k=draws)

    def run(rows: Any, k: Any, radius: Any, epsilon: Any, draws: Any) -> Any:
        return _by_row(draw, rows, k, radius, epsilon, draws)

    return run


def _subset_law(name: str, rows: list[list[float]], k: int, radius: float, epsilon: float) -> Law:
    """Return the law of one of the functions."""
    fault = name.removeprefix("dp_broken_subset_")
    table = np.array(rows)
    scores = ball_scores(table[:, :-1], table[:, -1], k, _FAR if fault == "no_ball" else radius)
    of_a_row = (1.0 + radius * k**0.5) ** 2
    ranges = {"no_radius": range_without_radius(feature_bound=1.0, target_bound=1.0, size=k), "target_range": 1.0}
    rejection = {"accepted": accepted_listed_law, "kept_branch": kept_branch_law, "overweight": overweight_tail_law}
    if fault not in rejection:
        return exponential_law(scores, utility_range=ranges.get(fault, of_a_row), epsilon=epsilon)
    exact = {subset: round(score * _UNIT) for subset, score in scores.items()}
    first, second = sorted(exact, key=lambda subset: (exact[subset], subset))[:2]
    return rejection[fault](exact, [first], exact[second], utility_range=of_a_row * _UNIT, epsilon=epsilon)


def _two_stage_batches(rows: Any, blocks: Any, epsilon: Any, draws: Any) -> Any:
    def draw(rows: list[list[float]], blocks: int, epsilon: float, draws: int) -> list[int]:
        table = np.array(rows)
        batch = batches_of_floor(len(table), blocks)
        options: dict[str, Any] = {"k": 1, "penalty": 0.05, "standardize": False, "intercept": False}
        votes = lasso_votes(table[:, :-1], table[:, -1], batch, blocks=blocks, **options)
        exact = Fraction(repr(epsilon))
        return [int(select(votes, utility_range=2, epsilon=exact, k=1, noise="exponential")[0]) for _ in range(draws)]

    return _by_row(draw, rows, blocks, epsilon, draws)
