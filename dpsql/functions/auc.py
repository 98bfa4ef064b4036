"""dp_auc: a private area under the ROC curve, with an interval.

==========  =====================================================================  ==============================
method      released numbers                                                       module
==========  =====================================================================  ==============================
scaled      concordant less discordant pairs over (rows - 1), and the rows of      `dpsql.mechanisms.auc`
            both classes, each with Laplace noise, or with Gaussian noise if
            delta is given and Gaussian noise is smaller
smooth      the area, with Cauchy noise scaled to the smaller class; only for      `dpsql.mechanisms.smooth`
            comparison, because the scale of this noise is not public
==========  =====================================================================  ==============================

dp_confusion releases private confusion matrices at public thresholds. It counts the rows of each class between
thresholds and accumulates the counts from the largest score down, as dp_roc does (`dpsql.functions.roc`). The
thresholds are public, so all of epsilon goes to the counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import COLUMN_PROTECTION, EPSILON, OPTIONAL_DELTA, Argument, Signature, flag, word
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import COLLECTED, SCORES, Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.grouped.plan import AUTO, COUNT_DELTA, NOISE
from dpsql.functions.roc import (
    AREA_CELLS,
    CURVE,
    SCORE_BOUNDS,
    SCORED,
    USUAL_CELLS,
    Counted,
    CurvePlan,
    ScoreCall,
    ScorePlan,
    before_exact,
)
from dpsql.functions.value_cells import CutCells, EvenCells, FormulaCells
from dpsql.mechanisms.aggregates import drawable_mu
from dpsql.mechanisms.auc import ConcordanceNoise, NoisyConcordance
from dpsql.mechanisms.smooth import SmoothNoise, area_noise, cauchy_scale, default_beta, step_epsilon
from dpsql.progress import Progress
from dpsql.released.areas import AREA_FAILURE, standard_error
from dpsql.released.results import ScaledArea
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE
from dpsql.statistics.auc import ClassScores, Concordance, ScoreCounts

METHODS = ("scaled", "smooth")
# Laplace noise of a smaller scale on counts is 0, except with a chance of 1e-12.
_FINE = 1 / 28
# How many numbers get noise, and the rows at which two laws are compared: from some hundred rows on, the choice is the
# same.
_NUMBERS, _LIKELY_ROWS = 3, 10_000


@dataclass(frozen=True, kw_only=True)
class AucPlan(ScorePlan):
    """The checked public arguments of one ``dp_auc`` call."""

    delta: Fraction | None  # None for 'smooth'
    method: str
    law: str  # the requested noise
    grid: int | None  # the argument `cells`; scores in the same cell are tied. None for the scores themselves
    sampling: bool | None  # None for false, as in records of earlier versions

    function: ClassVar[str] = "dp_auc"
    arguments: ClassVar[Signature] = Signature(
        *SCORED,
        EPSILON,
        COUNT_DELTA,
        word(
            "method",
            "What gets noise: a scaled count of pairs, or the area by its smooth sensitivity.",
            METHODS,
            "scaled",
        ),
        NOISE,
        AREA_CELLS,
        *SCORE_BOUNDS,
        flag(
            "sampling",
            "Whether the interval is about the population that the rows are from, rather than about these rows, at no "
            "further cost.",
            False,
        ),
        *COLUMN_PROTECTION,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = cls._read(arguments, "delta", "method")
        sampling = cls.arguments["sampling"].read(arguments) or None
        if own["method"] == "smooth" and sampling:
            raise ParameterError("P045", "method := 'smooth' has no interval. Leave sampling out, or method.")
        if own["method"] == "smooth" and own["delta"] is not None:
            raise ParameterError("P045", "method := 'smooth' has Cauchy noise, without delta. Leave delta out.")
        law = parameters.narrow(str, NOISE.read(arguments))
        if own["method"] == "smooth" and law != AUTO:
            raise ParameterError("P045", "method := 'smooth' has Cauchy noise. Leave noise out.")
        if law == GAUSSIAN and own["delta"] is None:
            raise ParameterError("P046", "noise := 'gaussian' needs delta. Give delta, or leave noise out.")
        grid = cls.arguments["cells"].read(arguments)
        if own["method"] == "smooth" and grid is None:
            grid = USUAL_CELLS
        return {**super()._own(arguments, layout), **own, "law": law, "grid": grid, "sampling": sampling}

    @cached_property
    def cells(self) -> FormulaCells:
        """Return cells of equal width between the bounds."""
        return EvenCells(self.lower, self.upper, narrow(int, self.grid))

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass, which counts or gathers in SQL if there is a table to scan."""
        return super()._passes() if self.grid is not None or not self.is_summed_in_sql else (Pass(SCORES),)

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which rounded scores to cells."""
        yield from super().earlier_arguments()
        yield from before_exact(self.public_arguments)

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the stored arguments; `method` and `noise` have the form that earlier versions stored."""
        record, left_out = super().public_arguments, (("method", "smooth"), ("law", AUTO))
        return {name: value for name, value in record.items() if (name, value) not in left_out}

    @property
    def row_epsilon(self) -> Fraction:
        """Return epsilon for one added, removed or replaced row, by smooth sensitivity."""
        return step_epsilon(self.epsilon, self.neighbours, self.max_rows_per_unit, replaces=True)

    @cached_property
    def mu(self) -> Fraction | None:
        """Return mu of the release; None for other noise."""
        return self.scaled_part.mu

    @cached_property
    def scaled_part(self) -> ConcordanceNoise:
        """Return the part that draws the concordance and the counts; with delta, the law with the smaller error."""
        protected = self.neighbours, self.max_rows_per_unit
        laplace = ConcordanceNoise("area", self.epsilon, None, None, *protected)
        if self.delta is None or self.law == LAPLACE:
            return laplace
        if self.law == GAUSSIAN:
            return ConcordanceNoise("area", self.epsilon, self.delta, usable_mu(self.epsilon, self.delta), *protected)
        mu = drawable_mu(self.epsilon, self.delta, _NUMBERS)
        if mu is None:
            return laplace
        gaussian = ConcordanceNoise("area", self.epsilon, self.delta, mu, *protected)
        return min(laplace, gaussian, key=lambda part: _error_of(part, _LIKELY_ROWS))

    def check_drawable(self, count: int) -> None:
        """Raise when epsilon is too small for the noise or its constants."""
        super().check_drawable(count)
        if self.method == "smooth":
            epsilon = min(self.row_epsilon, Fraction(1))
            cauchy_scale(epsilon, default_beta(epsilon))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of Laplace noise."""
        return () if self.method == "smooth" or self.mu is not None else self.scaled_part.scales

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of Gaussian noise, for one row of a privacy unit."""
        return () if self.mu is None else (mu / self.max_rows_per_unit for mu in self.scaled_part.losses)

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: one mechanism."""
        if self.method == "smooth":
            return measurement_of(SmoothNoise("area", self.epsilon, self.neighbours, self.max_rows_per_unit))
        return measurement_of(self.scaled_part)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the area for classes of equal size, or the worst case without `n_rows`."""
        if self.method == "smooth":
            return self._smooth_noise(n_rows)
        concordance, count = self.scaled_part.deviations
        out: list[Quantity] = [
            ("concordance_std_error", concordance, "standard deviation of the noise in the scaled count of pairs"),
            ("count_std_error", count, "standard deviation of the noise in the rows of a level"),
        ]
        if n_rows is not None:
            error = _error_of(self.scaled_part, n_rows)
            out.append(("auc_std_error", error, "that of the noise in the area, were levels even and the area 0 or 1"))
        return out

    def _smooth_noise(self, n_rows: int | None) -> list[Quantity]:
        if n_rows is None:
            return [("auc_median_error", 1.0, "median size of the noise on the area at worst; give n_rows for more")]
        error = area_noise(n_rows // 2, self.epsilon, self.neighbours, self.max_rows_per_unit)
        return [("auc_median_error", error, "median size of the noise on the area, were levels even")]


def _error_of(part: ConcordanceNoise, n_rows: int) -> float:
    """Return the standard error of the area if classes have equal size and the area is 0 or 1."""
    half = max(1.0, n_rows / 2)
    return standard_error(stored_area(part, NoisyConcordance(half * half / max(1.0, 2 * half - 1), half, half)))


def stored_area(part: ConcordanceNoise, numbers: NoisyConcordance) -> ScaledArea:
    """Return noisy numbers with the public facts about their noise."""
    errors, reaches = part.deviations, part.reaches(AREA_FAILURE)
    unit = math.ldexp(1.0, -part.bits)
    counted = 0.0 if part.mu is not None or part.scales[1] <= _FINE else 1.0
    stored: ScaledArea = {
        "concordance": numbers.concordance,
        "positives": numbers.positives,
        "negatives": numbers.negatives,
        "concordance_error": errors[0],
        "count_error": errors[1],
        "concordance_reach": reaches[0],
        "count_reach": reaches[1],
        "fineness": [1.5 * unit, counted],
    }
    if part.mu is None:
        stored["laplace"] = [float(part.scales[0]) * unit, float(part.scales[1])]
    return stored


class AucCall(ScoreCall):
    """A dp_auc call, with the column types of its source."""

    plan: AucPlan

    def start(self) -> Collector | None:
        """Return empty counts, or an empty list of scores; None if SQL counts or gathers."""
        plan = self.plan
        if plan.grid is None and plan.statement == COLLECTED:
            return ClassScores(plan.lower, plan.upper, plan.missing_score)
        return super().start()

    @property
    def statistic_length(self) -> int:
        """Return the number of counts, or of the integers of a `Concordance`."""
        return super().statistic_length if self.plan.grid is not None else len(fields(Concordance))

    def _concordance(self, statistic: Counted | ClassScores) -> Concordance:
        if isinstance(statistic, ClassScores):
            return Concordance.of_scores(*statistic.scores)
        if self.plan.grid is None and not isinstance(statistic, ScoreCounts):
            return Concordance(*map(int, statistic))
        return Concordance.of(*self.counts(statistic))

    def prepare(self, statistic: Counted | ClassScores, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the area."""
        plan = self.plan
        levels = list(self.levels)
        if plan.method == "smooth" and not isinstance(statistic, ClassScores):
            negative, positive = self.counts(statistic)
            smooth: SmoothNoise = plan.measurement["area"]
            return lambda: {"auc": float(smooth.draw_area(negative, positive)), "levels": levels}
        exact = self._concordance(statistic)

        def draw() -> Json:
            area: Any = stored_area(plan.scaled_part, plan.scaled_part.draw(exact))
            sampled = {"sampled": plan.max_rows_per_unit} if plan.sampling else {}
            return {**area, **sampled, "levels": levels}

        return draw


_MOST_THRESHOLDS = 100


@dataclass(frozen=True, kw_only=True)
class ConfusionPlan(CurvePlan):
    """The checked public arguments of one ``dp_confusion`` call."""

    thresholds: tuple[float, ...]  # strictly ascending, between the bounds

    function: ClassVar[str] = "dp_confusion"
    arguments: ClassVar[Signature] = Signature(
        *SCORED,
        Argument(
            "thresholds",
            "Public thresholds: one number, or up to 100. A score of at least the threshold is predicted positive.",
            0.5,
            kind="Numbers",
        ),
        EPSILON,
        OPTIONAL_DELTA,
        CURVE,
        *SCORE_BOUNDS,
        *COLUMN_PROTECTION,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = super()._own(arguments, layout)
        lower, upper = (parameters.narrow(float, own[side]) for side in ("lower", "upper"))
        return {**own, "thresholds": _thresholds(arguments["thresholds"], lower, upper)}

    @cached_property
    def cells(self) -> FormulaCells:
        """Return the cells between the thresholds."""
        return CutCells(self.thresholds)

    @property
    def counted(self) -> int:
        """Return the number of cells that the thresholds form."""
        return len(self.thresholds) + 1

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: counts."""
        return measurement_of(self.count_part)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the cumulative counts."""
        return self.count_noise(self.counted, n_rows)


class ConfusionCall(ScoreCall):
    """A dp_confusion call, with the column types of its source."""

    plan: ConfusionPlan

    def prepare(self, statistic: Counted, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the counts."""
        plan = self.plan
        negative, positive = self.counts(statistic)
        return lambda: {
            **plan.draw_counts(negative, positive, plan.cells.edges).to_record(),
            "levels": list(self.levels),
        }


def _thresholds(thresholds: object, lower: float, upper: float) -> tuple[float, ...]:
    hint = "Give ascending numbers between lower and upper, such as [0.25, 0.5, 0.75]."
    items = parameters.list_items(thresholds, most=_MOST_THRESHOLDS)
    items = (thresholds,) if items is None else items
    numbers = tuple(parameters.finite_float("a threshold", item, hint=hint) for item in items)
    inside = all(lower <= threshold <= upper for threshold in numbers)
    if not 1 <= len(numbers) <= _MOST_THRESHOLDS or not inside or any(a >= b for a, b in pairwise(numbers)):
        raise ParameterError("P032", f"thresholds must be 1 to {_MOST_THRESHOLDS} ascending numbers. {hint}")
    return numbers
