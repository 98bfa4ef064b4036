"""The exact output law of ``dp_best_subset`` on a given table, along the path that the product takes.

Rows are quantised and multiplied by the product's own code, all subsets are scored by its canonical routine, and
the range comes from its own table; the search, the rejections and the draw are replaced by the law that they are
to have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Batch
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets import LIST_WIDTH
from dpsql.statistics import regression
from dpsql.testing.neighbours import Table, to_arrow

Outcome = tuple[str, ...]


class BestSubsetLaw:
    """Exact laws of one ``dp_best_subset`` call over tables of floats.

    Parameters
    ----------
    features : sequence of str
        Names of the feature columns, in the order of a row's values; the target is a row's last value.
    **arguments
        What the call is given besides source, target and features: k, epsilon, lower, upper, target_lower,
        target_upper, radius, method, neighbours, ...

    Attributes
    ----------
    subsets : list of tuple of int
        All k-subsets of the features' positions, in lexicographic order: the order of scores.

    Notes
    -----
    - **Guarantee**: none; this computes what a release would do.
    - **Assumes**: the sampler draws from the stated law (tested in ``tests/statistical``), and one row per privacy
      unit, or rows that were capped before.
    """

    def __init__(self, features: Sequence[str], **arguments: Any) -> None:
        import pyarrow as pa

        self.plan = BestSubsetPlan.from_arguments("t", {"target": "target", "features": list(features), **arguments})
        self._names = (*features, "target")
        self.call = BestSubsetCall.resolve(self.plan, pa.struct([(name, pa.float64()) for name in self._names]), {})
        self.subsets = list(combinations(range(len(features)), self.plan.k))

    @cached_property
    def utility_range(self) -> Fraction:
        """What the selection is calibrated to, in units of `SCORE_UNIT`."""
        plan = self.plan
        spread = regression.utility_range(
            plan.neighbours,
            plan.k + plan.intercept,
            plan.radius,
            width=SCORE_WIDTH + (LIST_WIDTH if plan.method == "top_r" else 0),
            max_rows_per_unit=plan.max_rows_per_unit,
        )
        return spread / SCORE_UNIT

    def products(self, table: Table) -> NDArray[Any]:
        """Return the exact products of intercept (if any), features and target, in units of ``S**2``."""
        collector: Any = self.call.start()
        collector.add(*self.call.read(struct_rows(table, self._names)), Batch())
        total: NDArray[Any] = collector.total()
        return total

    def scores_of(self, products: NDArray[Any]) -> tuple[int, ...]:
        """Return the canonical scores of all `subsets`, in units of `SCORE_UNIT`."""
        problem = BallLeastSquares(
            products[:-1, :-1],
            products[:-1, -1],
            int(products[-1, -1]),
            radius=self.plan.radius,
            ridge=self.plan.ridge,
            forced=int(self.plan.intercept),
        )
        return tuple(problem.scores(self.subsets).tolist())

    def scores(self, table: Table) -> tuple[int, ...]:
        """Return the canonical scores of a table; they determine `law`: a `key` for `check_exhaustively`."""
        return self.scores_of(self.products(table))

    def selection_law(self, scores: Sequence[int]) -> dict[Outcome, float]:
        """Return the law of the selected names, ascending by position, for given scores of all `subsets`."""
        plan = self.plan
        if plan.method == "top_r":
            limit = sorted(scores)[plan.listed(len(self.call.features)) - 1]
            if plan.gap is not None:
                limit = min(limit, min(scores) + math.ceil(plan.gap / SCORE_UNIT))
            scores = [min(score, limit) for score in scores]
        best, coefficient = min(scores), float(plan.epsilon / self.utility_range)
        weights = np.exp([-coefficient * (score - best) for score in scores])
        names = [tuple(self.call.features[place] for place in subset) for subset in self.subsets]
        return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the exact law of the output."""
        return self.selection_law(self.scores(table))


class StepsLaw(BestSubsetLaw):
    """The same for ``method := 'steps'``: the law of the union of what the steps choose, by enumeration."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many columns each step chooses."""
        return self.plan.sizes(len(self.call.features))

    @property
    def coefficient(self) -> float:
        """What a score is multiplied with in every step; scores are in units of `SCORE_UNIT`."""
        return float(self.plan.epsilon / sum(self.plan.ranges(len(self.call.features), SCORE_WIDTH)) * SCORE_UNIT)

    def _scored(self) -> list[tuple[int, ...]]:
        width = range(len(self.call.features))
        return [subset for size in accumulate(self.sizes) for subset in combinations(width, size)]

    def scores_of(self, products: NDArray[Any]) -> tuple[int, ...]:
        """Return the canonical scores of all subsets of every size that a step ends with."""
        scores: list[int] = []
        for size in accumulate(self.sizes):
            self.subsets = list(combinations(range(len(self.call.features)), size))
            scores += super().scores_of(products)
        return tuple(scores)

    def selection_law(self, scores: Sequence[int]) -> dict[Outcome, float]:
        """Return the law of the selected names for the scores that `scores_of` gives."""
        known = dict(zip(self._scored(), scores, strict=True))
        law: dict[tuple[int, ...], float] = {(): 1.0}
        for size in self.sizes:
            after: dict[tuple[int, ...], float] = {}
            for chosen, chance in law.items():
                others = [place for place in range(len(self.call.features)) if place not in chosen]
                sets = [tuple(sorted((*chosen, *more))) for more in combinations(others, size)]
                weights = np.exp([-self.coefficient * (known[each] - min(known[s] for s in sets)) for each in sets])
                for each, share in zip(sets, (weights / weights.sum()).tolist(), strict=True):
                    after[each] = after.get(each, 0.0) + chance * share
            law = after
        return {tuple(self.call.features[place] for place in subset): chance for subset, chance in law.items()}


def struct_rows(table: Table, names: Sequence[str]) -> Any:
    """Return a table of floats as a call gets its rows: a pyarrow.StructArray."""
    import pyarrow as pa

    columns = to_arrow(table, names).columns
    return pa.StructArray.from_arrays([column.combine_chunks() for column in columns], list(names))
