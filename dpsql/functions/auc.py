"""dp_auc: a private area under the ROC curve, with noise scaled to the smaller class (`dpsql.mechanisms.smooth`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.contract.arguments import COLUMN_PROTECTION, EPSILON, Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.functions.roc import CELLS
from dpsql.functions.score_histogram import (
    SCORE_BOUNDS,
    SCORED,
    Counted,
    ScoreCall,
    ScorePlan,
)
from dpsql.functions.value_cells import EvenCells, FormulaCells
from dpsql.mechanisms.parts import SmoothNoise
from dpsql.mechanisms.smooth import area_noise, cauchy_scale, default_beta, step_epsilon
from dpsql.progress import Progress


@dataclass(frozen=True, kw_only=True)
class AucPlan(ScorePlan):
    """The checked public arguments of one ``dp_auc`` call.

    Attributes
    ----------
    grid : int
        Number of equal-width cells that scores are counted in. Scores in the same cell are tied.
    """

    grid: int

    function: ClassVar[str] = "dp_auc"
    arguments: ClassVar[Signature] = Signature(*SCORED, EPSILON, CELLS, *SCORE_BOUNDS, *COLUMN_PROTECTION)

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), "grid": CELLS.read(given)}

    @cached_property
    def cells(self) -> FormulaCells:
        """Cells of equal width between the bounds."""
        return EvenCells(self.lower, self.upper, self.grid)

    @property
    def row_epsilon(self) -> Fraction:
        """Epsilon for one added, removed or replaced row."""
        return step_epsilon(self.epsilon, self.neighbours, self.max_rows_per_unit, replaces=True)

    def check_drawable(self, count: int) -> None:
        """Raise when epsilon is too small for the constants of the noise."""
        one = min(self.row_epsilon, Fraction(1))
        cauchy_scale(one, default_beta(one))

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the area, with noise by smooth sensitivity."""
        return measurement_of(SmoothNoise("area", self.epsilon, self.neighbours, self.max_rows_per_unit))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the area for classes of equal size, or the worst case without `n_rows`."""
        if n_rows is None:
            return [("auc_median_error", 1.0, "median size of the noise on the area at worst; give n_rows for more")]
        error = area_noise(n_rows // 2, self.epsilon, self.neighbours, self.max_rows_per_unit)
        return [("auc_median_error", error, "median size of the noise on the area, were levels even")]


class AucCall(ScoreCall):
    """A dp_auc call, with the column types of its source."""

    plan: AucPlan

    def prepare(self, statistic: Counted, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the area."""
        plan = self.plan
        negative, positive = self.counts(statistic)

        def draw() -> dict[str, Json]:
            part: SmoothNoise = plan.measurement["area"]
            area = part.draw_area(negative, positive)
            return {"auc": float(area), "levels": list(self.levels)}

        return draw
