"""dp_roc: a private ROC curve from counts of positives and negatives between thresholds.

A share of epsilon chooses the thresholds; the rest counts the rows of each class between them. Every row is in one cell
of one of two histograms, so each histogram gets the whole rest (`prefix_sums`). The release stores noisy cumulative
counts. The curve, precision and recall, and calibration are derived from them (`dpsql.released.curves`).

==============  =====================================================================  ===========================
thresholds      method                                                                 cost
==============  =====================================================================  ===========================
recursive       quantiles of all scores by recursive halving (`quantile`), out of      threshold_share of epsilon
                some 260 candidates
fixed           even steps between the bounds                                          nothing
smooth_medians  medians of all scores and of halves by smooth sensitivity (`smooth`)   threshold_share of epsilon
==============  =====================================================================  ===========================

Few candidates are better than many: the exponential mechanism errs by about ``log(candidates) / epsilon`` ranks. The
candidates have equal width except at the ends of the bounds, where scores of classifiers crowd: the last candidate
there is one cell. If many rows share a score, thresholds on both sides separate it, and the remaining thresholds halve
the widest gaps, so that a call always has `n_thresholds` of them. Scores in the same cell are indistinguishable: if
scores of naive Bayes are closer to 0 and 1 than the width of a cell, log odds with wider bounds show more of the curve
than probabilities.

With delta the noise on counts is Gaussian. For the same error it takes less rho from a zCDP budget. At the same epsilon
it is wider than Laplace noise: 9.3 rows instead of 5.1 for 15 thresholds, epsilon = 1 and delta = 1e-6. Under replace,
with an epsilon of 1 or less, it is narrower from about a hundred thresholds on.

**The histogram.** Counts of rows by label and score: the statistic that dp_roc, dp_auc and dp_confusion share.

The cell of a row depends on its label and its score alone, so adding or removing a row changes one count by one. A row
is in no cell if its label is neither of the two levels. SQL counts if there is a table to scan; otherwise `ScoreCounts`
counts its rows. Both use the same cell edges as doubles, so their counts agree exactly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMN_PROTECTION,
    EPSILON,
    OPTIONAL_DELTA,
    Argument,
    Signature,
    integer,
    row_column,
    share,
    word,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, column_bounds
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import COLLECTED, HISTOGRAM, NOT_STATED, Pass, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.value_cells import EvenCells, FormulaCells
from dpsql.mechanisms.prefix_sums import STRATEGIES, CumulativeCounts, PrefixStrategy, prefix_strategy
from dpsql.mechanisms.quantile import QuantileSelection, halving_levels
from dpsql.mechanisms.smooth import SmoothNoise, cauchy_scale, default_beta, step_epsilon
from dpsql.progress import Progress
from dpsql.released.curves import RocCounts
from dpsql.statistics.auc import ScoreCounts

# Arguments that all functions of a label and a score share.
SCORED = (
    row_column(
        "label", "Name of the column that holds the label.", column="y", hint="Give the column that holds the label."
    ),
    row_column(
        "score",
        "Name of the column that holds the score. A higher score means that the positive class is more likely.",
        column="p",
        hint="Give the column that holds the score.",
    ),
)
SCORE_BOUNDS = (
    Argument("lower", "Public lower bound of the score, one number. Scores are clipped to it.", 0),
    Argument("upper", "Public upper bound of the score, one number. Scores are clipped to it.", 1),
    CLASSES,
)


@dataclass(frozen=True, kw_only=True)
class ScorePlan(Plan):
    """The plan of a function of a label and a score."""

    lower: float  # a missing score counts as the middle of both
    upper: float

    target_is_label: ClassVar[bool] = True
    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        """Return the layout: the label is the target, the score is the one feature."""
        label, score = (argument.read(arguments) for argument in SCORED)
        return Layout.from_arguments({**arguments, "target": label, "features": [score]})

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return column_bounds(arguments, "they bound the score")

    @property
    @abstractmethod
    def cells(self) -> FormulaCells:
        """Return the cells of the scores."""

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass that counts, in SQL if there is a table to scan."""
        return (Pass(HISTOGRAM if self.is_summed_in_sql else COLLECTED),)

    @cached_property
    def missing_score(self) -> float:
        """Return the value of a missing score: the middle of the bounds."""
        return self.lower / 2 + self.upper / 2


# The counts, from a collector or from SQL.
Counted = ScoreCounts | NDArray[np.int64]


class ScoreCall(Call):
    """A call on a label and a score, with the column types of its source.

    `prepare` gets the counts as int64, shape (2 * cells,): the negative level's cells, then the positive level's.
    """

    plan: ScorePlan

    def start(self) -> Collector | None:
        """Return empty counts; None if SQL counts."""
        plan = self.plan
        if plan.statement != COLLECTED:
            return None
        return ScoreCounts(plan.cells, plan.lower, plan.upper, plan.missing_score)

    @property
    def statistic_length(self) -> int:
        """Return the number of counts."""
        return 2 * int(self.plan.cells.count)

    def counts(self, statistic: Counted) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts of the negative and of the positive class, each of shape (cells,)."""
        counted = statistic.counts if isinstance(statistic, ScoreCounts) else np.asarray(statistic, dtype=np.int64)
        negative, positive = counted.reshape(2, -1)
        return negative, positive


THRESHOLDS = ("recursive", "fixed", "smooth_medians")
CURVES = ("auto", *STRATEGIES)
_MOST_CELLS = 1 << 16
_MOST_THRESHOLDS = 255
# Number of candidates for drawn thresholds, and how much wider each further candidate within the outermost one is.
_CANDIDATES, _FINER = 256, 16


CURVE = word("curve", "Strategy that adds noise to the cumulative counts.", CURVES, "auto")


def _cells(count: object) -> int:
    cells = parameters.positive_integer("cells", count, hint="4096 is the usual value.")
    parameters.within("cells", cells, None, _MOST_CELLS, hint="4096 is the usual value.")
    return cells


CELLS = Argument(
    "cells", "Number of equal-width cells that scores are counted in, from 1 to 65536.", 4096, check=_cells
)


# Cells of all areas in earlier versions.
USUAL_CELLS = 4096
AREA_CELLS = replace(
    CELLS,
    doc="Number of equal-width cells, from 1 to 65536, in which scores are tied: an area is that of scores rounded so. "
    "Without it no score is rounded; method := 'smooth' has 4096.",
    default=None,
    default_text="none",
    kind="Integer",
    earlier=(USUAL_CELLS,),
)


def before_exact(record: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield the arguments of earlier versions, which rounded the scores of every area to cells."""
    if "grid" not in record:
        yield {**record, "grid": USUAL_CELLS}


@dataclass(frozen=True, kw_only=True)
class CurvePlan(ScorePlan):
    """The plan of a function that releases cumulative counts of each class."""

    delta: Fraction | None
    curve: str

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = cls._read(arguments, "delta", "curve")
        if own["curve"] == "toeplitz" and own["delta"] is None:
            raise ParameterError("P046", "curve := 'toeplitz' needs Gaussian noise. Give delta, or choose 'tree'.")
        return {**super()._own(arguments, layout), **own}

    @property
    def count_epsilon(self) -> Fraction:
        """Return epsilon for the counts."""
        return self.epsilon

    @cached_property
    def mu(self) -> Fraction | None:
        """Return mu of the counts; None for Laplace noise."""
        return None if self.delta is None else usable_mu(self.count_epsilon, self.delta)

    @cached_property
    def count_part(self) -> CumulativeCounts:
        """Return the part that draws the counts."""
        unit = (self.neighbours, self.max_rows_per_unit)
        return CumulativeCounts("counts", self.count_epsilon, self.delta, self.mu, *unit)

    def strategy(self, cells: int) -> PrefixStrategy:
        """Return the strategy for `cells` cells."""
        return prefix_strategy(cells, name=self.curve, noise="laplace" if self.delta is None else "gaussian")

    @property
    @abstractmethod
    def counted(self) -> int:
        """Return the number of cells that the thresholds form."""

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise on the counts."""
        if self.mu is not None:
            return ()
        strategy = self.strategy(self.counted)
        return (self.count_part.laplace_scale(strategy),)

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the share of mu of the Gaussian noise on the counts."""
        return () if self.mu is None else (self.mu / self.max_rows_per_unit,)

    def count_noise(self, cells: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the cumulative counts of `cells` cells."""
        strategy = self.strategy(cells)
        rows = self.count_part.deviation(strategy) * math.sqrt(float(strategy.unit_variances.mean()))
        meaning = "standard deviation of the noise on the rows of a level from a threshold on"
        out: list[Quantity] = [("count_std_error", rows, meaning)]
        if n_rows is not None:
            out.append(("rate_std_error", rows / (n_rows / 2), "that over half of n_rows: a rate, were levels even"))
        return out

    def draw_counts(
        self, negative: NDArray[np.int64], positive: NDArray[np.int64], edges: NDArray[np.float64]
    ) -> RocCounts:
        """Draw cumulative counts.

        Parameters
        ----------
        negative, positive : ndarray of int64, shape (m,)
            Exact counts of each class between thresholds, in ascending order of the score.
        edges : ndarray of float64, shape (m - 1,)
            The thresholds between them, ascending; public, or released before.

        Notes
        -----
        - **Guarantee**: pure DP at `count_epsilon`; with delta, (`count_epsilon`, delta)-DP and mu-GDP. See
          `dpsql.mechanisms.prefix_sums.noisy_prefix_sums`.
        - **Neighbouring relation**: as in the plan.
        """
        counts = np.stack([negative[::-1], positive[::-1]])
        released = self.count_part.draw(counts, self.strategy(len(negative)))
        return RocCounts(
            thresholds=(*edges[::-1].tolist(), self.lower),
            negatives=tuple(released.sums[0].tolist()),
            positives=tuple(released.sums[1].tolist()),
            std_error=tuple(released.std_error.tolist()),
            covariance=tuple(released.covariance.tolist()),
            upper=self.upper,
        )


@dataclass(frozen=True, kw_only=True)
class RocPlan(CurvePlan):
    """The checked public arguments of one ``dp_roc`` call."""

    thresholds: str
    n_thresholds: int
    threshold_share: Fraction
    grid: int  # the argument `cells`

    function: ClassVar[str] = "dp_roc"
    arguments: ClassVar[Signature] = Signature(
        *SCORED,
        EPSILON,
        OPTIONAL_DELTA,
        word("thresholds", "How the thresholds are chosen.", THRESHOLDS, "recursive"),
        integer(
            "n_thresholds",
            "Number of thresholds, from 1 to 255 and below the number of cells.",
            15,
            hint="15 is usual.",
        ),
        share(
            "threshold_share",
            "Share of epsilon spent on choosing the thresholds, between 0 and 1.",
            0.2,
            hint="0.2 is usual.",
        ),
        CURVE,
        CELLS,
        *SCORE_BOUNDS,
        *COLUMN_PROTECTION,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        thresholds, *sizes = cls._read(arguments, "thresholds", "n_thresholds", "cells").values()
        count, grid = (parameters.narrow(int, size) for size in sizes)
        most = min(_MOST_THRESHOLDS, grid - 1)
        parameters.within("n_thresholds", count, None, most, hint="Give fewer thresholds than cells.")
        if thresholds == "smooth_medians" and count & (count + 1):
            raise ParameterError(
                "P052", f"n_thresholds must be 1, 3, 7, 15, 31, ... for smooth medians; got {count}. 15 is usual."
            )
        return {
            **super()._own(arguments, layout),
            "thresholds": thresholds,
            "n_thresholds": count,
            **cls._read(arguments, "threshold_share"),
            "grid": grid,
        }

    @cached_property
    def cells(self) -> FormulaCells:
        """Return cells of equal width between the bounds."""
        return EvenCells(self.lower, self.upper, self.grid)

    @property
    def levels(self) -> int:
        """Return the number of levels of halving."""
        return halving_levels(self.n_thresholds)

    @property
    def threshold_epsilon(self) -> Fraction:
        """Return epsilon for the thresholds."""
        return Fraction(0) if self.thresholds == "fixed" else self.epsilon * self.threshold_share

    @property
    def count_epsilon(self) -> Fraction:
        """Return the epsilon that remains for the counts."""
        return self.epsilon - self.threshold_epsilon

    @property
    def counted(self) -> int:
        """Return the number of cells that the thresholds form."""
        return self.n_thresholds + 1

    def check_drawable(self, count: int) -> None:
        """Raise unless thresholds and counts can be drawn."""
        super().check_drawable(count)
        if self.thresholds == "smooth_medians":
            level = self.threshold_epsilon / self.levels
            epsilon = min(step_epsilon(level, self.neighbours, self.max_rows_per_unit, replaces=False), Fraction(1))
            cauchy_scale(epsilon, default_beta(epsilon))

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: thresholds, if they are private, and counts."""
        unit = (self.neighbours, self.max_rows_per_unit)
        if self.thresholds == "fixed":
            return measurement_of(self.count_part)
        if self.thresholds == "smooth_medians":
            return measurement_of(SmoothNoise("thresholds", self.threshold_epsilon, *unit), self.count_part)
        at = tuple(Fraction(number, self.n_thresholds + 1) for number in range(1, self.n_thresholds + 1))
        return measurement_of(QuantileSelection("thresholds", self.threshold_epsilon, at, *unit), self.count_part)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the cumulative counts."""
        return self.count_noise(self.counted, n_rows)


class RocCall(ScoreCall):
    """A dp_roc call, with the column types of its source."""

    plan: RocPlan

    def prepare(self, statistic: Counted, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the curve."""
        plan = self.plan
        negative, positive = self.counts(statistic)
        return lambda: {**draw_roc(plan, negative, positive).to_record(), "levels": list(self.levels)}


def draw_roc(plan: RocPlan, negative: NDArray[np.int64], positive: NDArray[np.int64]) -> RocCounts:
    """Draw thresholds and the counts between them.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``; with delta, (epsilon, delta)-DP. Thresholds and counts compose: given
      the thresholds, the counts are a fixed statistic.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: see `dpsql.mechanisms.quantile`, `smooth` and `prefix_sums`.
    """
    starts = chosen_cells(plan, negative + positive)
    first = np.concatenate([[0], starts])
    return plan.draw_counts(
        np.add.reduceat(negative, first), np.add.reduceat(positive, first), plan.cells.edges[starts - 1]
    )


def chosen_cells(plan: RocPlan, counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Choose the thresholds; return the first cell above each threshold, ascending and never 0.

    Parameters
    ----------
    plan : RocPlan
    counts : ndarray of int64, shape (cells,)
        Exact number of rows of both classes in each cell.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.threshold_epsilon``.
    """
    if plan.thresholds == "fixed":
        return np.arange(1, plan.n_thresholds + 1) * plan.grid // (plan.n_thresholds + 1)
    ends = candidate_ends(plan.grid, plan.n_thresholds)
    coarse = np.add.reduceat(counts, np.concatenate([[0], ends[:-1]]))
    part: QuantileSelection | SmoothNoise = plan.measurement["thresholds"]
    if isinstance(part, QuantileSelection):
        draws = part.draw_tied(coarse)
    else:
        draws = part.draw_medians(coarse, count=plan.n_thresholds)
    return ends[threshold_places(draws, len(ends), plan.n_thresholds)]


def candidate_ends(grid: int, n_thresholds: int) -> NDArray[np.intp]:
    """Return the ends of the candidates in cells, ascending, the last one `grid`; public.

    Candidates have equal width, and there is at least one more than thresholds. The first and the last candidate are
    divided at their outermost cell, at 16 cells, at 256, and so on: scores crowd there. If epsilon is small, more
    candidates there would draw thresholds away from useful places.
    """
    step = max(1, grid // max(_CANDIDATES, n_thresholds + 1))
    ends, finer = {*range(step, grid, step), grid}, 1
    while finer < step:
        ends |= {finer, grid - finer}
        finer *= _FINER
    return np.array(sorted(ends), dtype=np.intp)


def threshold_places(draws: Sequence[int], candidates: int, most: int) -> NDArray[np.intp]:
    """Return the candidates at whose ends thresholds lie, ascending, from the drawn candidates: post-processing.

    The end of a drawn candidate is a threshold; for the last candidate its start. A candidate that was drawn repeatedly
    holds many rows, and both its ends are thresholds: they separate it from the scores on either side. The remaining
    thresholds halve the widest gaps.
    """
    positions, times = np.unique(draws, return_counts=True)
    last = candidates - 1
    chosen = {int(at) for at in positions} | {int(at) - 1 for at in positions[(times > 1) | (positions == last)]}
    chosen -= {-1, last}
    while len(chosen) < most:
        stops = [-1, *sorted(chosen), last]
        gap, start = max((after - before, -before) for before, after in pairwise(stops))
        if gap < 2:
            break
        chosen.add(gap // 2 - start)
    return np.array(sorted(chosen), dtype=np.intp)
