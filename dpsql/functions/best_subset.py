"""dp_best_subset: the exponential mechanism over all k-subsets, scored by their constrained least squares fits.

'exact' draws from all subsets at once by branch and bound and by rejection; its running time depends on the rows and
has no bound. 'steps' chooses one or two columns at a time and scores a public number of subsets
(`dpsql.mechanisms.subset_selection`). 'auto' chooses by public numbers alone: the number of features and k. If the
course of the search chose, the rows would decide which law is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from dpsql.arrays import Integers
from dpsql.contract import parameters
from dpsql.contract.arguments import BOUNDS, EPSILON, Argument, K, Signature, flag, integer, rational, word
from dpsql.contract.call import BoundedCall
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, feature_bounds
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.selection import (
    CONFIDENCE,
    SelectionPlan,
    few_subsets,
    log_of_other_subsets,
    log_of_ratio,
    selection_record,
    selector_arguments,
)
from dpsql.mechanisms.subset_selection import SubsetSelection
from dpsql.progress import Progress
from dpsql.statistics.regression import Gram, score_sensitivity, utility_range

METHODS = ("auto", "exact", "steps", "top_r")
# The products of 5,000 columns, 16 bytes each, still fit in memory.
MOST_FEATURES = 5000
# A million subsets and their scores still fit in memory.
MOST_LISTED = 1_000_000
# 'auto' draws at once from at most this many: with 250 features and k = 5 hard tables take a minute.
MOST_AT_ONCE = 10**10
# Up to this many are listed without a search.
MOST_LISTED_AT_ONCE = 4096
# Largest cost of steps, in nanoseconds of one processor, about.
MOST_WORK = 10**11
# A smaller radius makes all coefficients zero, a larger one drowns any signal in noise. It also keeps integers short.
_RADII = (Fraction(1, 10**6), Fraction(10**6))
_LARGEST_RIDGE = 10**12


def _radius(radius: object) -> Fraction:
    number = parameters.positive_number("radius", radius, hint="1.1 is usual.")
    parameters.within("radius", number, *_RADII, hint="1.1 is usual.")
    return number


def _ridge(ridge: object) -> Fraction:
    number = parameters.number_from_zero("ridge", ridge, hint="0 is the usual value.")
    parameters.within("ridge", number, None, _LARGEST_RIDGE, hint="0 is the usual value.")
    return number


@dataclass(frozen=True, kw_only=True)
class BestSubsetPlan(SelectionPlan):
    """The checked public arguments of one ``dp_best_subset`` call; `arguments` documents them."""

    lower: Side
    upper: Side
    radius: Fraction
    ridge: Fraction  # in squared half widths of the target's bounds
    intercept: bool  # counts toward the radius
    method: str
    list_size: int | None
    gap: Fraction | None
    node_limit: int

    function: ClassVar[str] = "dp_best_subset"
    arguments: ClassVar[Signature] = selector_arguments(
        K,
        EPSILON,
        *BOUNDS,
        Argument(
            "radius",
            "Radius of the ball of coefficients, from 1e-6 to 1e6. One unit is half the width of the target's bounds "
            "per half the width of a feature's bounds.",
            1.1,
            check=_radius,
            exact=True,
        ),
        Argument(
            "ridge",
            "Weight of the squared coefficients in a fit, from 0 to 1e12. It costs no noise.",
            0,
            check=_ridge,
            exact=True,
        ),
        flag("intercept", "Fit an intercept in every subset. It adds as much noise as one more feature.", False),
        word(
            "method",
            "Score all subsets; score those of one or two more columns in each of several steps, which ends in a "
            "public time; or score the best ones and give all others one score. 'auto': 'exact' up to 1e10 subsets, "
            "else 'steps'.",
            METHODS,
            "auto",
            earlier=("exact",),
        ),
        integer(
            "list_size",
            "Number of subsets that the search lists, from 1 to 1000000.",
            default_text="k (d - k) + 2 for d features",
            hint="Give a public number of subsets, or leave it out.",
            most=MOST_LISTED,
        ),
        rational(
            "gap",
            "For 'top_r': scores are capped at this much above the best one. A public number above 0.",
            hint="Give a public gap of scores, or leave it out.",
        ),
        integer(
            "node_limit",
            "For 'exact': the search stops after this many nodes, from 1 to 1000000000. It does not change the law, "
            "and does not limit the time.",
            20_000_000,
            hint="Give a public number of nodes, or leave it out.",
        ),
    )
    names_after: ClassVar[str | None] = "epsilon"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {
            **super()._own(arguments, layout),
            **feature_bounds(arguments),
            **cls._read(arguments, "radius", "ridge", "intercept", "method", "node_limit", "list_size", "gap"),
        }
        if own["gap"] is not None and own["method"] != "top_r":
            raise ParameterError("P045", "gap belongs to method := 'top_r'. Leave it out.")
        return own

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: one exponential mechanism over subsets, or one per step."""
        return measurement_of(SubsetSelection("subset", self.epsilon, self.k, self.method))

    @property
    def columns(self) -> int:
        """Number of columns in a fit: the subset's features, plus one for the intercept if there is one."""
        return self.k + self.intercept

    @cached_property
    def sensitivity(self) -> Fraction:
        """Sensitivity of a score to one row, in squared half widths of the target's bounds."""
        return score_sensitivity(self.columns, self.radius)

    def listed(self, features: int) -> int:
        """Return the public number of subsets to list for `features` features."""
        count = self.k * (features - self.k) + 2 if self.list_size is None else self.list_size
        return min(count, math.comb(features, self.k))

    def law(self, features: int) -> str:
        """Return the law of the draw for `features` features: 'exact', 'steps' or 'top_r'."""
        if self.method != "auto":
            return self.method
        # Two columns are one step: the same law, in a public time.
        return (
            "exact" if few_subsets(features, self.k, MOST_AT_ONCE if self.k > 2 else MOST_LISTED_AT_ONCE) else "steps"
        )

    def sizes(self, features: int) -> tuple[int, ...]:
        """Return the number of columns of each step. A single one comes first: its score moves least."""
        pairs = (1,) * (self.k % 2) + (2,) * (self.k // 2)
        return pairs if self.work(features, pairs) <= MOST_WORK else (1,) * self.k

    def work(self, features: int, sizes: Sequence[int]) -> int:
        """Return the approximate processor nanoseconds of steps of these sizes. The number is public."""
        total = before = 0
        for size in sizes:
            columns = before + size + self.intercept
            total += math.comb(features - before, size) * (columns**3 + 15 * columns**2 + 300)
            before += size
        return total

    def check_work(self, features: int) -> None:
        """Raise P026 if steps take too long; the number of features is public."""
        if self.law(features) == "steps" and self.work(features, self.sizes(features)) > MOST_WORK:
            raise ParameterError(
                "P026", f"Choosing {self.k} of {features} features in steps takes too long. Lower k, or take fewer."
            )

    def ranges(self, features: int, width: Fraction) -> list[Fraction]:
        """Return the range of the scores of each draw, in squared half widths of the target's bounds."""
        law = self.law(features)
        counts = accumulate(self.sizes(features)) if law == "steps" else [self.k]
        return [
            utility_range(
                self.neighbours,
                count + self.intercept,
                self.radius,
                width=width,
                max_rows_per_unit=self.max_rows_per_unit,
            )
            for count in counts
        ]

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call. Scores are in squared half widths of the target's bounds."""
        scale = float(sum(self.ranges(n_features, Fraction(0))) / self.epsilon)
        if self.law(n_features) == "steps":
            return self._noise_of_steps(n_features, scale)
        gap = scale * log_of_other_subsets(n_features, self.k, (1 - CONFIDENCE) / CONFIDENCE)
        out: list[Quantity] = [
            ("score_sensitivity", float(self.sensitivity), "most that one row can move one score"),
            ("noise_scale", scale, "difference of scores that makes a subset e times as likely"),
            ("score_gap", gap, "gap between the best and every other subset that gives the best one in 95 % of calls"),
        ]
        if n_rows is not None:
            out.append(("score_gap_share", gap / n_rows, "that gap as a share of the largest score, n_rows"))
        loss = scale * log_of_other_subsets(n_features, self.k, 1 - CONFIDENCE)
        out.append(("score_loss", loss, "most that the best score is below the chosen one's, in 95 % of calls"))
        if n_rows is not None:
            meaning = f"with {n_rows:,} rows no loss of R² below this can be excluded, as no variance exceeds 1"
            out.append(("r2_loss", loss / n_rows, meaning))
        return out

    def _noise_of_steps(self, n_features: int, scale: float) -> list[Quantity]:
        sizes = self.sizes(n_features)
        before = [sum(sizes[:step]) for step in range(len(sizes))]
        counts = [math.comb(n_features - start, size) for start, size in zip(before, sizes, strict=True)]
        # Each step gets an equal share of the failure probability.
        share = (1 - CONFIDENCE) / CONFIDENCE / len(sizes)
        gap = scale * max(log_of_ratio(count - 1, share) for count in counts)
        seconds = self.work(n_features, sizes) / 1e9
        steps = " + ".join(map(str, sizes))
        return [
            ("score_sensitivity", float(self.sensitivity), "most that one row can move one score"),
            ("noise_scale", scale, "difference of scores that makes a choice of a step e times as likely"),
            ("score_gap", gap, "lead over the others that gives each step its best choice in 95 % of calls"),
            ("steps", float(len(sizes)), f"columns are chosen in steps of {steps}: there are too many subsets at once"),
            ("subsets_scored", float(sum(counts)), "subsets that are scored, whatever the rows"),
            ("processor_seconds", float(f"{seconds:.1g}"), "about what the scores take of one processor"),
        ]


class BestSubsetCall(BoundedCall):
    """A dp_best_subset call, with the column types of its source."""

    plan: BestSubsetPlan

    def check(self) -> None:
        """Check the features as `Call.check` does, and raise if there are too many."""
        super().check()
        if len(self.features) > MOST_FEATURES:
            raise ParameterError(
                "P026",
                f"dp_best_subset takes at most {MOST_FEATURES} features; got {len(self.features)}. "
                "Select some with dp_sis first, and name them in features.",
            )
        self.plan.check_work(len(self.features))

    def start(self) -> Collector:
        """Return an empty Gram matrix."""
        return Gram(self.maps, intercept=self.plan.intercept)

    def prepare(self, statistic: Gram, progress: Progress) -> Callable[[], Json]:
        """Draw a subset now: search and rejection sampling take too long for the ledger's transaction."""
        names = [self.features[position] for position in draw_subset(self.plan, statistic.total(), progress.tick)]
        return lambda: selection_record(names, len(self.features))


def draw_subset(plan: BestSubsetPlan, products: Integers, tick: Callable[[], object]) -> tuple[int, ...]:
    """Draw a subset, with its positions in ascending order.

    Parameters
    ----------
    plan : BestSubsetPlan
    products : ndarray of integers, shape (q, q)
        Exact products of intercept (if any), features and target, in units of ``S**2``.
    tick : callable
        Called regularly; an exception that it raises ends the work. It gets no progress: the length of the search
        depends on the rows.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``, and ``epsilon**2 / 8`` under zCDP: one exponential mechanism, or one
      for each step. Public numbers alone choose between the two (`BestSubsetPlan.law`).
    - **Sensitivity**: `dpsql.statistics.regression.utility_range`. An added row never decreases a score, which saves a
      factor of two under add_remove.
    - **Does not protect**: running time; for steps it has a public bound.
    """
    from dpsql.kernels import subset_floors, subset_strata
    from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
    from dpsql.kernels.best_subsets import LIST_WIDTH, best_subsets, score_floors
    from dpsql.mechanisms.subset_exponential import Strata

    forced = int(plan.intercept)
    features = len(products) - 1 - forced
    gram, cross, total = products[:-1, :-1], products[:-1, -1], int(products[-1, -1])
    law = plan.law(features)
    width = SCORE_WIDTH + (LIST_WIDTH if law == "top_r" else 0)
    ranges = [spread / SCORE_UNIT for spread in plan.ranges(features, width)]
    part: SubsetSelection = plan.measurement["subset"]
    common: dict[str, object] = {"n_candidates": features, "progress": lambda rounds: tick()}
    problem = BallLeastSquares(gram, cross, total, radius=plan.radius, ridge=plan.ridge, forced=forced)
    if law == "steps":
        return part.draw(
            law,
            plan.sizes(features),
            floors=lambda chosen, others, count: subset_floors.completion_floors(problem, chosen, others, count, tick),
            completions=subset_floors.completions,
            score=problem.scores,
            utility_ranges=ranges,
            **common,
        )
    common["utility_range"] = ranges[0]
    listing = best_subsets(
        gram,
        cross,
        total,
        size=plan.k,
        count=plan.listed(features),
        radius=plan.radius,
        ridge=plan.ridge,
        forced=forced,
        node_limit=plan.node_limit if law == "exact" else None,
        tick=tick,
    )
    if law == "top_r":
        gap = None if plan.gap is None else math.ceil(plan.gap / SCORE_UNIT)
        return part.draw(law, listing.scores, subsets=listing.subsets, rank=plan.listed(features), gap=gap, **common)
    return part.draw(
        law,
        listing.subsets,
        listing.scores,
        listing.lower_bound,
        score=problem.scores,
        floor=lambda subsets: score_floors(problem, subsets),
        strata=lambda: Strata(*subset_strata.subset_strata(problem, listing)),
        **common,
    )
