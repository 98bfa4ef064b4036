"""dp_two_stage: a Lasso fit on each of many blocks of rows, and a vote of the blocks for features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.arguments import EPSILON, TARGET_LEVELS, K, Signature, double, flag, integer, share
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector, RowTransform
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.selection import (
    ONE_SHOT,
    OneShotPlan,
    certainty_quantities,
    selection_record,
    selector_arguments,
)
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.progress import Progress
from dpsql.statistics.counts import RowCount
from dpsql.statistics.votes import BlockVotes, KeyedRows, VoteRule, blocks_from_count, utility_range

# The largest number of blocks, also if it comes from a private count: every block is fitted, even an empty one.
MOST_BLOCKS = 1_000_000
_public_hint = "Give a public number, not one from the table."


@dataclass(frozen=True, kw_only=True)
class TwoStagePlan(OneShotPlan):
    """The checked public arguments of one ``dp_two_stage`` call."""

    blocks: int | None  # None to derive it from a private count of the rows
    rows_per_block: int | None
    count_share: Fraction
    count_failure: Fraction
    penalty: float
    standardize: bool
    intercept: bool
    mechanism: str
    gamma: Fraction

    function: ClassVar[str] = "dp_two_stage"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = selector_arguments(
        K,
        EPSILON,
        TARGET_LEVELS,
        integer(
            "blocks",
            "Public number of blocks of rows, from 1 to 1000000. Give either it or rows_per_block.",
            hint=_public_hint,
            most=MOST_BLOCKS,
        ),
        integer(
            "rows_per_block",
            "Average number of rows per block; the number of blocks is then derived from a private row count.",
            hint=_public_hint,
        ),
        share(
            "count_share",
            "Share of epsilon spent on a private row count, between 0 and 1.",
            0.05,
            hint="0.05 is the usual value.",
        ),
        share(
            "count_failure",
            "Chance that blocks are smaller than requested, between 0 and 1.",
            0.0001,
            hint="0.0001 is the usual value.",
        ),
        double(
            "penalty",
            "Weight of the Lasso penalty, above 0. With standardize, a weight of 1 selects no feature.",
            0.1,
            hint="0.1 is the usual value.",
        ),
        flag("standardize", "Scale features and target within each block.", True),
        flag("intercept", "Centre features and target within each block.", True),
        *ONE_SHOT,
    )
    names_after: ClassVar[str | None] = "epsilon"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        blocks, rows = arguments["blocks"], arguments["rows_per_block"]
        if (blocks is None) == (rows is None):
            raise ParameterError(
                "P046",
                "the blocks must be given in one way. Give blocks := a public number of blocks, "
                "or rows_per_block := to derive that number from a private count.",
            )
        read = cls._read(arguments, "blocks")
        read |= super()._own(arguments, layout)
        fitting = ("count_share", "count_failure", "penalty", "standardize", "intercept")
        return read | cls._read(arguments, "rows_per_block", *fitting, "mechanism", "gamma")

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes. Workers of an engine draw nothing, so a private number of blocks needs its own pass."""
        if self.engine is None:  # rows without an id draw a key
            return (Pass(keyed=self.layout.privacy_unit is not None or self.layout.row_id is not None),)
        return (Pass(keyed=True),) * (1 if self.blocks is not None else 2)

    @property
    def rule(self) -> VoteRule:
        """The rule for the votes of a block."""
        return VoteRule(self.k, self.penalty, self.standardize, self.intercept)

    @cached_property
    def count_epsilon(self) -> Fraction:
        """Epsilon spent on the private count; 0 if the number of blocks is public."""
        return Fraction(0) if self.blocks is not None else self.epsilon * self.count_share

    @property
    def selection_epsilon(self) -> Fraction:
        """Epsilon spent on the selection."""
        return self.epsilon - self.count_epsilon

    @property
    def spread(self) -> float:
        """Range of the votes."""
        return utility_range(self.neighbours)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the row count, if the number of blocks is not public, and the selection."""
        if self.blocks is not None:
            return measurement_of(self.selection_part)
        return measurement_of(LaplaceNoise("count", self.count_epsilon, self.max_rows_per_unit), self.selection_part)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of the noise on a private count."""
        if self.blocks is not None:
            return ()
        part: LaplaceNoise = self.measurement["count"]
        return (part.scale(),)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call. Scores are votes, at most the number of blocks."""
        out, blocks = self.selection_noise(n_features), self.blocks
        gap = out[-1][1]
        if self.rows_per_block is not None:
            scale = self.max_rows_per_unit / float(self.count_epsilon)
            out.append(("count_noise_scale", scale, "scale of the noise on the number of rows"))
            blocks = None if n_rows is None else max(1, n_rows // self.rows_per_block)
        if blocks is not None:
            out.append(("score_gap_share", gap / blocks, "that gap as a share of the largest score, the blocks"))
        certainty = self.certainty(n_features)
        return out if certainty is None else out + certainty_quantities(certainty, blocks, "blocks")


class TwoStageCall(Call):
    """A dp_two_stage call, with the column types of its source."""

    plan: TwoStagePlan

    def start(self) -> Collector:
        """Return an empty collection of rows; on an engine, empty votes or, in a first pass, a count of rows."""
        plan, width = self.plan, len(self.features)
        if plan.engine is None:
            return KeyedRows(width)
        return CountedRows(plan, width) if plan.blocks is None else BlockVotes(width, plan.blocks, plan.rule)

    def prepare(self, statistic: KeyedRows | BlockVotes, progress: Progress) -> Callable[[], Json]:
        """Fit every block and count the votes, unless workers did; return the draw of the selection."""
        plan, features = self.plan, self.features
        if isinstance(statistic, BlockVotes):
            votes = statistic.votes
        else:
            votes = count_votes(plan, statistic, draw_blocks(plan, statistic.rows), progress)
        certainty = plan.certainty(len(features))
        return lambda: selection_record(
            [features[position] for position in draw_votes(plan, votes)], len(features), certainty, plan.blocks
        )


class CountedRows(RowTransform[RowCount]):
    """The number of rows, on an engine: its workers must know the number of blocks."""

    def __init__(self, plan: TwoStagePlan, width: int) -> None:
        super().__init__(RowCount())
        self._plan, self._width = plan, width

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the number of blocks."""
        return BlockVotes(self._width, draw_blocks(self._plan, self.inner.rows), self._plan.rule)


def draw_blocks(plan: TwoStagePlan, rows: int) -> int:
    """Return the public number of blocks, or draw it from the number of rows.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.count_epsilon``.
    - **Sensitivity**: one privacy unit changes the number of rows by at most ``max_rows_per_unit``.
    """
    if plan.blocks is not None:
        return plan.blocks
    epsilon = plan.count_epsilon / plan.max_rows_per_unit
    noise: LaplaceNoise = plan.measurement["count"]
    [count] = noise.draw([rows])
    blocks = blocks_from_count(
        count, rows_per_block=plan.rows_per_block or 1, epsilon=epsilon, failure=plan.count_failure
    )
    return min(blocks, MOST_BLOCKS)


def count_votes(
    plan: TwoStagePlan, rows: KeyedRows, blocks: int, progress: Callable[[float], None]
) -> NDArray[np.int64]:
    """Return the votes of all blocks for each feature, shape (p,)."""
    from dpsql.kernels.lasso_votes import lasso_votes

    features, target, keys = rows.table()
    return lasso_votes(
        features,
        target,
        (keys % np.uint64(blocks)).astype(np.int64),
        blocks=blocks,
        **vars(plan.rule),
        progress=progress,
    )


def draw_votes(plan: TwoStagePlan, votes: NDArray[np.int64]) -> list[int]:
    """Draw the k positions with the most votes.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon`` less the share spent on a private count.
    - **Sensitivity**: `dpsql.statistics.votes.utility_range`. All rows of a privacy unit are in one block.
    """
    selection: OneShotSelection = plan.measurement["selection"]
    return selection.draw(votes, utility_range=utility_range(plan.neighbours))
