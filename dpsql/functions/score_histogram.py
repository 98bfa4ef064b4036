"""Counts of rows by label and score: the statistic that dp_roc, dp_auc and dp_confusion share.

The cell of a row depends on its label and its score alone, so adding or removing a row changes one count by one. A row
whose label is neither of the two levels is in no cell. SQL counts if there is a table to scan; otherwise `ScoreCounts`
counts the rows given to it. Both use the same cell edges as doubles, so their counts agree exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import CLASSES, REQUIRED, Argument
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.layout import Layout
from dpsql.contract.passes import COLLECTED, HISTOGRAM, Pass
from dpsql.contract.plan import NOT_STATED, Plan, column_bounds
from dpsql.functions.value_cells import FormulaCells
from dpsql.statistics.score_counts import ScoreCounts

# Arguments that all functions of a label and a score share.
SCORED = (
    Argument(
        "label",
        "Name of the column that holds the label.",
        shown=REQUIRED,
        check=partial(parameters.text, "label", hint="Give the column that holds the label."),
        names_column=True,
        column="y",
        stand_in="label",
        kind="str",
    ),
    Argument(
        "score",
        "Name of the column that holds the score. A higher score means that the positive class is more likely.",
        shown=REQUIRED,
        check=partial(parameters.text, "score", hint="Give the column that holds the score."),
        names_column=True,
        column="p",
        stand_in="score",
        kind="str",
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
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return the layout: the label is the target, the score the one feature."""
        label, score = (one.read(given) for one in SCORED)
        return Layout.from_arguments({**given, "target": label, "features": [score]})

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return column_bounds(given, "they bound the score")

    @property
    @abstractmethod
    def cells(self) -> FormulaCells:
        """The cells that scores are counted in."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """One pass that counts, in SQL if there is a table to scan."""
        return (Pass(HISTOGRAM if self.is_summed_in_sql else COLLECTED),)

    @cached_property
    def missing_score(self) -> float:
        """Score that stands in for a missing one: the middle of the bounds."""
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
        """Number of counts."""
        return 2 * int(self.plan.cells.count)

    def counts(self, statistic: Counted) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts of the negative and of the positive class, each of shape (cells,)."""
        counted = statistic.counts if isinstance(statistic, ScoreCounts) else np.asarray(statistic, dtype=np.int64)
        negative, positive = counted.reshape(2, -1)
        return negative, positive
