"""dp_sis: sure independence screening under differential privacy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.arguments import BOUNDS, EPSILON, K, Signature, share, word
from dpsql.contract.call import BoundedCall
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, feature_bounds
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side
from dpsql.contract.plan import COLLECTED, NOT_STATED, XTY, Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.selection import (
    ONE_SHOT,
    VERDICT,
    OneShotPlan,
    ScoredPlan,
    certainty_quantities,
    largest_rank_score,
    lead_record,
    paid_verdict,
    scored_record,
    selector_arguments,
)
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.xty import vectors_to_matrix
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.mechanisms.ranking import LeadNoise, RankScoreNoise
from dpsql.progress import Progress
from dpsql.statistics.lead import exact_lead, shuffled_top
from dpsql.statistics.rank_scores import RankScores, rank_spread
from dpsql.statistics.xty import (
    CrossProducts,
    TargetSums,
    absent_values,
    cell_products,
    mean_from_sums,
    target_sums_sensitivity,
    utility_range,
)

CENTERS = ("public", "target")
SCORES = ("covariance", "rank")
# Maps names of selected features to their ledger record.
_Record = Callable[[Sequence[str]], dict[str, Json]]
_WITHOUT_BOUNDS = "Or compare ranks, which need none: score := 'rank'."


@dataclass(frozen=True, kw_only=True)
class SisPlan(OneShotPlan, ScoredPlan):
    """The checked public arguments of one ``dp_sis`` call."""

    lower: Side | None  # None for scores by rank
    upper: Side | None
    score: str | None  # None for covariance, so that older records stay as they are
    mechanism: str
    gamma: Fraction
    center: str
    center_share: Fraction
    verdict_share: Fraction | None = None
    verdict: str | None = None
    n_rows: int | None = None

    function: ClassVar[str] = "dp_sis"
    adds_fast: ClassVar[bool] = True
    arguments: ClassVar[Signature] = selector_arguments(
        K,
        EPSILON,
        *BOUNDS,
        word(
            "score",
            "How features are scored: by covariance with the target, or by rank correlation, which needs no bounds.",
            SCORES,
            "covariance",
        ),
        *ONE_SHOT,
        word("center", "Centre the target at the middle of its bounds, or at its private mean.", CENTERS, "public"),
        share(
            "center_share",
            "Share of epsilon spent on a private mean of the target, between 0 and 1.",
            0.1,
            hint="0.1 is the usual value.",
        ),
        *VERDICT,
    )
    names_after: ClassVar[str | None] = "epsilon"

    @property
    def by_rank(self) -> bool:
        """Whether features are scored by rank correlation."""
        return self.score == "rank"

    @property
    def has_two_levels(self) -> bool:
        """Whether the arguments name two levels; a column's type may have them, too."""
        return self.target_levels is not None

    @property
    def target_needs_bounds(self) -> bool:
        """Whether a numeric target needs bounds: ranks need none."""
        return not self.by_rank

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass, after another for a private centre; ranks compare all pairs of rows."""
        if self.by_rank:
            return (Pass(keeps_rows="Use dp_kendall with blocks := and row_id :=, or leave score out."),)
        scan = Pass(XTY if self.layout.kind == "long" and self.is_summed_in_sql else COLLECTED)
        return (scan, scan) if self.center == "target" else (scan,)

    @classmethod
    def stand_ins(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return values for required arguments that do not affect the noise; ranks take no bounds."""
        ranked = arguments.get("score") == "rank"
        return {
            name: value for name, value in super().stand_ins(arguments).items() if not (ranked and name in NOT_STATED)
        }

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the values that the owner declared; scores by rank use no bounds, given or declared."""
        if cls.arguments["score"].read(arguments) == "rank":
            unused = [name for name in NOT_STATED if arguments[name] is not None]
            if cls.arguments["center"].read(arguments) != "public":
                unused.append("center")
            if unused:
                raise ParameterError(
                    "P045", f"{unused[0]} has no effect with score := 'rank', which compares values only. Leave it out."
                )
            protection = {name: value for name, value in protection.items() if name not in NOT_STATED}
        super()._fill(arguments, protection, of_table=of_table)

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        ranked = cls.arguments["score"].read(arguments) == "rank"
        bounds = {"lower": None, "upper": None} if ranked else feature_bounds(arguments, or_else=_WITHOUT_BOUNDS)
        return {
            **super()._own(arguments, layout),
            **bounds,
            "score": "rank" if ranked else None,
            **cls._read(arguments, "mechanism", "gamma", "center", "center_share"),
            **paid_verdict(arguments, has_scores=ranked, otherwise="score := 'rank'"),
        }

    @cached_property
    def center_epsilon(self) -> Fraction:
        """Epsilon spent on the private mean of the target; 0 if the centre is public."""
        return self.epsilon * self.center_share if self.center == "target" else Fraction(0)

    @property
    def selection_epsilon(self) -> Fraction:
        """Epsilon spent on the selection."""
        return self.epsilon * (1 - self.paid_share) - self.center_epsilon

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the private centre, if any, the selection, and the paid part of the verdict."""
        if self.paid_part is not None:
            return measurement_of(self.selection_part, self.paid_part)
        if self.center == "public":
            return measurement_of(self.selection_part)
        moved = target_sums_sensitivity(self.neighbours, self.max_rows_per_unit)
        return measurement_of(LaplaceNoise("centre", self.center_epsilon, moved), self.selection_part)

    @property
    def center_scale(self) -> Fraction:
        """Scale of the noise on the two sums that determine a private centre."""
        centre: LaplaceNoise = self.measurement["centre"]
        return centre.scale()

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise for a private centre and on scores."""
        return (*((self.center_scale,) if self.center == "target" else ()), *self.score_scales)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call.

        One unit is the largest change of a score by one added row; scores by rank are scaled Kendall taus, at most half
        the number of rows. Two levels count only if the arguments name them, not if the column's type does.
        """
        out, share, meaning = self.selection_noise(n_features), 1, "that gap as a share of the largest score, n_rows"
        if self.by_rank:
            out[0] = ("score_range", self.spread, "most that one privacy unit can move two scores apart")
            share, meaning = 2, "that gap as a difference of Kendall's tau"
        if n_rows is not None:
            out.append(("score_gap_share", share * out[-1][1] / n_rows, meaning))
        certainty = self.certainty(n_features)
        out += [] if certainty is None else certainty_quantities(certainty, n_rows)
        out += self.paid_quantities(n_rows)
        if self.center == "target":
            scale = float(self.center_scale / FIXED_POINT_ONE)
            out.append(("center_noise_scale", scale, "scale of the noise on the two sums that give the target's mean"))
        return out

    @property
    def spread(self) -> float:
        """Range of the scores in the unit of `noise`. Two levels count if the arguments name them."""
        if self.by_rank:
            return float(rank_spread(self.relation, two_levels=self.has_two_levels))
        return utility_range(self.neighbours, self.max_rows_per_unit) / FIXED_POINT_ONE**2

    def largest_score(self, rows: int) -> float:
        """Return the largest score of some rows."""
        return largest_rank_score(rows, two_levels=self.has_two_levels) if self.by_rank else float(rows)


class SisCall(BoundedCall):
    """A dp_sis call, with the column types of its source."""

    plan: SisPlan

    @property
    def collects(self) -> bool:
        """Whether rows go through collectors, instead of being summed in SQL."""
        return self.plan.statement == COLLECTED

    def start(self) -> Collector | None:
        """Return the collector of the first pass; None if SQL sums.

        The collector ranks rows, sums products or, for a private mean of the target, sums the target.
        """
        if self.plan.by_rank:
            return RankScores(len(self.features), two_levels=self.target.levels is not None)
        if not self.collects:
            return None
        return TargetSums() if self.plan.center == "target" else CrossProducts(self.maps)

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to a collector; products read the columns in place."""
        if isinstance(collector, CrossProducts) and self.plan.layout.kind != "long":
            self._add_products(collector, rows)
        else:
            super().collect(collector, rows, batch)

    def turn(self, collector: TargetSums, progress: Progress) -> Collector:
        """Draw the private centre of the target."""
        return CrossProducts(self.maps, draw_center(self.plan, *collector.sums))

    def _add_products(self, products: CrossProducts, rows: pa.StructArray) -> None:
        target = self.coded_target(rows)
        positions: Sequence[int] = self.positions[1:]
        if self.plan.layout.kind == "array":
            column = rows.field(positions[0])
            if not pa.types.is_struct(column.type):
                for part in self.parts(rows):
                    products.add_rows(target[part], vectors_to_matrix(column[part], len(self.features)))
                return
            rows, positions = column, range(column.type.num_fields)
        products.add_columns(target, rows, positions)

    @cached_property
    def absent(self) -> NDArray[np.int64]:
        """Value 0 of each feature, quantised for products, for long rows without a cell of it; shape (d,)."""
        return super().absent if self.plan.by_rank else absent_values(self.maps)

    def cell_products(
        self, features: NDArray[np.int64], values: NDArray[np.float64], target: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the amounts that cells of long rows add to absent cells' products, in ``S**2``; shape (cells,)."""
        return cell_products(self.maps, self.absent, features, values, target)

    def prepare(self, statistic: Integers | CrossProducts | RankScores, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the selection, from ``s_j`` in units of ``S**2`` or from the rows to be ranked."""
        plan, features = self.plan, self.features
        record = partial(plan.selection_record, compared=len(features))
        if isinstance(statistic, RankScores):
            return self._prepare_ranked(statistic, record, progress)
        utility = np.abs(statistic.total() if isinstance(statistic, CrossProducts) else statistic)
        return lambda: record(draw_selection(plan, utility, features))

    def _prepare_ranked(self, statistic: RankScores, record: _Record, progress: Progress) -> Callable[[], Json]:
        """Count pairs of rows, also with shuffled targets, and return the draw."""
        plan, features = self.plan, self.features
        scores, spread = statistic.utilities(plan.relation, progress)
        rows, two_levels = statistic.rows, statistic.two_levels
        if plan.paid_part is None:
            return lambda: record(draw_by_rank(plan, scores, spread, features))
        top = None
        if plan.lead_part is not None:
            top = shuffled_top(statistic.pairs(progress), plan.k, two_levels=two_levels, progress=progress)
        return lambda: draw_with_verdict(
            plan, scores, spread, features, record, rows=rows, two_levels=two_levels, top=top
        )


class CollectedSisCall(SisCall):
    """A dp_sis call that reads rows through collectors, as part of a longer call that scans them itself."""

    collects = True


def draw_selection(plan: SisPlan, utility: Integers, features: Sequence[str]) -> list[str]:
    """Draw the names of the selected features, in order of rank.

    Parameters
    ----------
    plan : SisPlan
    utility : ndarray of integers, shape (d,)
        ``|s_j|`` in units of ``S**2``.
    features : sequence of str, length d
        Public names.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon`` less the share spent on a private centre.
    - **Sensitivity**: `dpsql.statistics.xty.utility_range`.
    """
    return _selected(plan, utility, utility_range(plan.neighbours, plan.max_rows_per_unit), features)


def draw_by_rank(plan: SisPlan, utility: Integers, spread: int, features: Sequence[str]) -> list[str]:
    """Draw the names of the features selected by rank correlation, in order of rank.

    Parameters
    ----------
    plan : SisPlan
    utility : ndarray of integers, shape (d,)
        ``|tau_j|`` in the unit of `RankScores.utilities`.
    spread : int
        Range of the utility in that unit.
    features : sequence of str, length d
        Public names.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``. The unit depends on the number of rows, which is private; the law of
      the draw depends on the ratio of utility and range alone, and so on ``|tau_j|``.
    - **Sensitivity**: `dpsql.statistics.rank_scores`.
    - **Does not protect**: running time, which grows with the number of rows.
    """
    return _selected(plan, utility, spread, features)


def draw_with_verdict(
    plan: SisPlan,
    utility: Integers,
    spread: int,
    features: Sequence[str],
    record: _Record,
    *,
    rows: int,
    two_levels: bool,
    top: int | None,
) -> Json:
    """Draw the selection by rank, then the lead of the set, or the scores of its features and the number of rows.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``: the selection, then `LeadNoise` or `RankScoreNoise` for the selected
      features. `top`, the best value of shuffled targets (`dpsql.statistics.lead.shuffled_top`), is private.
    """
    names = draw_by_rank(plan, utility, spread, features)
    positions = {name: position for position, name in enumerate(features)}
    scores = [Fraction(int(utility[positions[name]]), 2 * max(1, rows - 1)) for name in names]
    if top is None:
        part: RankScoreNoise = plan.measurement["scores"]
        numbers = part.draw(scores, rows, two_levels=two_levels)
        return scored_record(record(names), part, numbers, len(features), two_levels=two_levels)
    noise: LeadNoise = plan.measurement["lead"]
    lead = noise.draw(exact_lead(scores, top, rows), two_levels=two_levels)
    return lead_record(record(names), noise, lead, two_levels=two_levels)


def _selected(plan: SisPlan, utility: Integers, spread: int, features: Sequence[str]) -> list[str]:
    selection: OneShotSelection = plan.measurement["selection"]
    return [features[position] for position in selection.draw(utility, utility_range=spread)]


def draw_center(plan: SisPlan, high: int, low: int) -> int:
    """Draw the private mean of the target in ``[-S, S]`` from the sums of ``S + t`` and ``S - t``.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.center_epsilon``.
    - **Sensitivity**: L1, `dpsql.statistics.xty.target_sums_sensitivity`.
    """
    noise: LaplaceNoise = plan.measurement["centre"]
    high, low = noise.draw([int(high), int(low)])
    return mean_from_sums(high, low)
