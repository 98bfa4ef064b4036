"""dp_confusion: private confusion matrices at public thresholds.

The rows of each class are counted between thresholds, and the counts are accumulated from the largest score down, as in
dp_roc (`dpsql.functions.roc`). The thresholds are public, so all of epsilon goes to the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import COLUMN_PROTECTION, EPSILON, OPTIONAL_DELTA, Argument, Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.errors import ParameterError
from dpsql.functions.roc import CURVE, CurvePlan
from dpsql.functions.score_histogram import SCORE_BOUNDS, SCORED, Counted, ScoreCall
from dpsql.functions.value_cells import CutCells, FormulaCells
from dpsql.progress import Progress

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
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = super()._own(given, layout)
        lower, upper = (parameters.known(float, own[side]) for side in ("lower", "upper"))
        return {**own, "thresholds": _thresholds(given["thresholds"], lower, upper)}

    @cached_property
    def cells(self) -> FormulaCells:
        """Cells between the thresholds."""
        return CutCells(self.thresholds)

    @property
    def counted(self) -> int:
        """Number of cells that the thresholds form."""
        return len(self.thresholds) + 1

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: counts."""
        return measurement_of(self.count_part)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the cumulative counts would be."""
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


def _thresholds(given: object, lower: float, upper: float) -> tuple[float, ...]:
    hint = "Give ascending numbers between lower and upper, such as [0.25, 0.5, 0.75]."
    items = parameters.list_items(given, most=_MOST_THRESHOLDS)
    items = (given,) if items is None else items
    found = tuple(parameters.finite_float("a threshold", item, hint=hint) for item in items)
    inside = all(lower <= threshold <= upper for threshold in found)
    if not 1 <= len(found) <= _MOST_THRESHOLDS or not inside or any(a >= b for a, b in pairwise(found)):
        raise ParameterError("P032", f"thresholds must be 1 to {_MOST_THRESHOLDS} ascending numbers. {hint}")
    return found
