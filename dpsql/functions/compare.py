"""dp_compare: test a difference between two groups' means, shares or counts, or between two scores on the same rows.

Two scores are compared by area or error. Every mechanism comes from another function. Only the result that follows from
it is new (`dpsql.released.comparison`):

==========  =====================================================================  ===================================
of          numbers with noise                                                     mechanism
==========  =====================================================================  ===================================
mean        rows, sum and sum of squares of each group; without sampling rows      `dpsql.mechanisms.aggregates`, as
            and sum alone                                                          dp_aggregate
share       rows and sum of each group                                             the same, as dp_avg
count       rows of each group                                                     the same, as dp_count
error       rows, sum and sum of squares of the difference of two errors, row by   the same, for two targets of one
            row; for a fifth of the loss also the sum of the first error           group
auc         difference and sum of two scaled concordances, and the rows of both    `dpsql.mechanisms.auc`, and Laplace
            classes; with sampling, for a fifth of epsilon, also the pairs that    noise on one number
            the scores order differently
==========  =====================================================================  ===================================

The two groups have two public keys, and a privacy unit may have rows in both. Two groups cost as much as one, except
for privacy units with several rows. A call is one measurement and one charge. The module also reads the arguments of
dp_compare, with bounds and thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMN_BOUNDS,
    COLUMN_PROTECTION,
    EPSILON,
    Argument,
    Signature,
    flag,
    word,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, bounds_by_feature, column_bounds, feature_bounds, refuse_extremes
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import fold, narrow
from dpsql.contract.plan import Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.plan import AUTO, CONFIDENCE, COUNT_DELTA, NOISE, read_noise
from dpsql.functions.roc import AREA_CELLS, before_exact
from dpsql.functions.value_cells import EvenCells
from dpsql.mechanisms.aggregates import (
    GroupedNoise,
    NoisyBlock,
    drawable_mu,
    equal_shares,
    expected_block,
    log_errors,
)
from dpsql.mechanisms.auc import NoisyPair, PairedConcordanceNoise
from dpsql.mechanisms.count_noise import laplace_reach
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.progress import Progress
from dpsql.released.aggregates import stored_block
from dpsql.released.comparison import AREA, ERROR, KINDS, MEAN, OF_COUNT, SHARE, Compared, comparison_rows
from dpsql.statistics.aggregates import AVG, COUNT, GAUSSIAN, LAPLACE, VARIANCE, Block, Sums, blocks_for
from dpsql.statistics.comparison import (
    COARSE,
    LOSSES,
    ZERO_ONE,
    ErrorDifferences,
    LevelSums,
    PairedScores,
    disagreement_sensitivity,
)

SCORES = (AREA, ERROR)


def _column(name: str, doc: str, kind: str = "str") -> Argument:
    return Argument(name, doc, names_column=True, table_only=True, kind=kind)


COMPARE = Signature(
    word(
        "of",
        "What is compared: the mean of a column, the share of rows in which it is true, or the number of rows, in "
        "two groups; or the area or the error of two scores on the same rows.",
        KINDS,
        MEAN,
    ),
    _column("target", "Column whose means or shares are compared; with 'count' only rows with a value count."),
    _column("groups", "Column that says which of the two groups a row is in."),
    Argument(
        "keys",
        "The two groups, from public knowledge: the difference is the first less the second. Other rows are ignored.",
        default_text="[false, true], [0, 1], or stated by the owner",
        table_only=True,
        kind="Iterable[object]",
    ),
    _column("scores", "The two columns of scores, or of predictions, that are compared on the same rows.", "Names"),
    _column("label", "Column of the label, or of the numeric truth for losses of size, of 'auc' and 'error'."),
    EPSILON,
    COUNT_DELTA,
    replace(COLUMN_BOUNDS[0], default_text="required for means, else 0", statistic=False, stand_in=None),
    replace(COLUMN_BOUNDS[1], default_text="required for means, else 1", statistic=False, stand_in=None),
    word(
        "loss",
        "The error of a row: whether the predicted class is wrong, or how far the prediction is off.",
        LOSSES,
        ZERO_ONE,
    ),
    Argument(
        "thresholds",
        "Score from which the positive class is predicted: one number, or one for each score.",
        default_text="the middle of the bounds",
        kind="Numbers",
    ),
    flag(
        "sampling",
        "Whether the interval is about the population that the rows are from, rather than about these rows.",
        True,
    ),
    CONFIDENCE,
    NOISE,
    AREA_CELLS,
    replace(CLASSES, statistic=False),
    *(replace(argument, statistic=False) for argument in COLUMN_PROTECTION),
)


def read_bounds(arguments: Mapping[str, object], of: str, loss: str) -> dict[str, float | None]:
    """Return the bounds of the target or of the scores."""
    missing = arguments["lower"] is None and arguments["upper"] is None
    if of in (OF_COUNT, SHARE):
        if not missing:
            raise ParameterError("P045", f"of := '{of}' takes no bounds. Leave lower and upper out.")
        return {"lower": 0.0, "upper": 1.0} if of == SHARE else {"lower": None, "upper": None}
    if of in SCORES:
        if missing and loss == ZERO_ONE:
            return {"lower": 0.0, "upper": 1.0}
        bounds = column_bounds(arguments, "they bound both scores")
        pair = (bounds["lower"], bounds["upper"])
    else:
        sides = feature_bounds(arguments)
        [pair] = bounds_by_feature(sides["lower"], sides["upper"], (str(arguments["target"]),), fold_case=True)
    refuse_extremes([pair])
    return {"lower": pair[0], "upper": pair[1]}


def read_thresholds(thresholds: object, bounds: Mapping[str, float | None]) -> tuple[float, ...]:
    """Return the threshold of each score; the default is the middle of the bounds."""
    lower, upper = narrow(float, bounds["lower"]), narrow(float, bounds["upper"])
    if thresholds is None:
        return (lower / 2 + upper / 2,) * 2
    items = parameters.list_items(thresholds, most=2)
    hint = "Give one number between the bounds, or one for each score."
    numbers = [
        parameters.finite_float("a threshold", number, hint=hint)
        for number in ((thresholds,) if items is None else items)
    ]
    if len(numbers) not in (1, 2) or not all(lower <= number <= upper for number in numbers):
        raise ParameterError("P032", f"thresholds are one or two numbers between lower and upper. {hint}")
    return tuple(numbers * 2)[:2]


# Share for the first error next to the difference, and for the disagreement of scores next to their areas.
_LEVEL = Fraction(1, 5)
_DISAGREEMENT = Fraction(1, 5)
# The disagreement is a multiple of 2**-20, or of a coarser unit if noise would have more bits than this.
_FINEST, _WIDEST = 20, 1 << 47
# Largest number of rows in the search for `rows_needed`.
_MOST_ROWS = 10**12


@dataclass(frozen=True, kw_only=True)
class ComparePlan(Plan):
    """The checked public arguments of one ``dp_compare`` call."""

    of: str
    sampling: bool
    lower: float | None  # of the target, or of both scores; None for counts
    upper: float | None
    loss: str
    thresholds: tuple[float, ...]  # of each score
    delta: Fraction | None
    law: str  # the requested noise
    confidence: Fraction
    grid: int | None  # the argument `cells`; None for the scores themselves

    function: ClassVar[str] = "dp_compare"
    adds_fast: ClassVar[bool] = True
    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = {"target_lower": None, "target_upper": None}
    arguments: ClassVar[Signature] = COMPARE

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the owner's declared values: the two groups, and bounds of a target that the groups name."""
        for name in ("target", "groups", "label"):
            if arguments[name] is not None:
                parameters.text(name, arguments[name], hint="Give the name of a column.")
        groups = arguments.get("groups")
        if groups is not None and arguments["target_levels"] is not None:
            raise ParameterError("P045", "target_levels are of a label. Give keys := [..., ...] for groups.")
        if groups is None and arguments["keys"] is not None:
            raise ParameterError("P046", "keys need groups. Name the column that says which group a row is in.")
        keys = narrow(dict, protection.get("keys", {}))
        if groups is not None:
            if arguments["keys"] is None and of_table:
                arguments["keys"] = keys.get(fold(str(groups)))
            protection["keys"] = {}
        names = {fold(str(arguments["target"]))}
        for bound in ("lower", "upper"):
            limit = protection.get(bound)
            has_target = isinstance(limit, Mapping) and names & {fold(str(name)) for name in limit}
            if arguments["of"] != MEAN or not (has_target or isinstance(limit, (int, float, Fraction))):
                protection.pop(bound, None)
        super()._fill(arguments, protection, of_table=of_table)
        if groups is not None:
            listed = None if arguments["keys"] is None else parameters.list_items(arguments["keys"], most=2)
            if arguments["keys"] is not None and (listed is None or len(listed) != 2):
                raise ParameterError("P012", "keys must be the two groups that are compared. Give keys := [..., ...].")
            arguments["target_levels"] = arguments["keys"]

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        """Return the layout: groups or label are the target, values or scores are the features."""
        of = cls.arguments["of"].read(arguments)
        names = ("scores", "label") if of in SCORES else ("target", "groups")
        others = ("target", "groups") if of in SCORES else ("scores", "label")
        for name in others:
            if arguments[name] is not None:
                raise ParameterError("P045", f"{name} has no effect beside of := '{of}'. Leave it out.")
        for name in names:
            if arguments[name] is None and not (of == OF_COUNT and name == "target"):
                raise ParameterError("P046", f"of := '{of}' needs {name}. Name it.")
        if of in SCORES:
            scores = parameters.text_list("scores", arguments["scores"], hint="Give the names of two columns.")
            if len(scores) != 2:
                raise ParameterError("P035", f"scores must name two columns; got {len(scores)}. Give two names.")
            return Layout.from_arguments({**arguments, "target": arguments["label"], "features": list(scores)})
        groups = parameters.text("groups", arguments["groups"], hint="Give the name of a column.")
        if arguments["target"] is None:
            layout = Layout.from_arguments({**arguments, "target": groups, "features": None})
            return replace(layout, features=())
        target = parameters.text("target", arguments["target"], hint="Give the name of a column.")
        return Layout.from_arguments({**arguments, "target": groups, "features": [target]})

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        of = cls.arguments["of"].read(arguments)
        loss = narrow(str, cls.arguments["loss"].read(arguments))
        if of != ERROR and (loss != ZERO_ONE or arguments["thresholds"] is not None):
            raise ParameterError("P045", "loss and thresholds are of errors. Leave them out, or give of := 'error'.")
        if loss != ZERO_ONE and arguments["thresholds"] is not None:
            raise ParameterError("P045", f"loss := '{loss}' predicts no classes. Leave thresholds out.")
        bounds = read_bounds(arguments, narrow(str, of), loss)
        return {
            "of": of,
            **bounds,
            "loss": loss,
            "thresholds": read_thresholds(arguments["thresholds"], bounds) if loss == ZERO_ONE and of == ERROR else (),
            **cls._read(arguments, "sampling"),
            **read_noise(arguments, COUNT_DELTA),
            "grid": AREA_CELLS.read(arguments),
        }

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which rounded scores to cells."""
        yield from super().earlier_arguments()
        yield from before_exact(self.public_arguments)

    @classmethod
    def stand_ins(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return columns for the compared values; the noise does not depend on bounds."""
        of = arguments.get("of") or MEAN
        if of in SCORES:
            bounds = {} if (arguments.get("loss") or ZERO_ONE) == ZERO_ONE else {"lower": 0, "upper": 1}
            return {"scores": ["first", "second"], "label": "label", **bounds}
        return {"groups": "groups", "target": "target", **({"lower": 0, "upper": 1} if of == MEAN else {})}

    @property
    def target_is_label(self) -> bool:  # type: ignore[override]
        """Return whether rows have one of two levels; the truth of numeric errors may be a number."""
        return self.loss == ZERO_ONE

    @property
    def levels_argument(self) -> str:  # type: ignore[override]
        """Return the argument that gives the two levels."""
        return "target_levels" if self.of in SCORES else "keys"

    @cached_property
    def contribution(self) -> Contribution:
        """Return the contribution of a privacy unit: all its rows may be in one group, or in both."""
        rows, groups = self.max_rows_per_unit, 1 if self.of == ERROR else 2
        return Contribution(self.neighbours, rows, groups, rows, keys=groups)

    @property
    def aggregates(self) -> tuple[str, ...]:
        """Return the aggregates of the first block."""
        if self.of == OF_COUNT:
            return (COUNT,)
        return (AVG, VARIANCE) if self.sampling and self.of != SHARE else (AVG,)

    @cached_property
    def sums_part(self) -> GroupedNoise:
        """Return the part that draws sums: the requested law, and the blocks with the smallest error."""
        parts = [part for law in self._laws for part in self._parts(law)]
        return min(parts, key=lambda part: log_errors(part.blocks[:1], part.lattices[:1], self.aggregates))

    @property
    def _laws(self) -> list[str]:
        if self.law != AUTO:
            return [self.law]
        numbers = 3 * self.contribution.changed_groups + 3
        return [LAPLACE] if drawable_mu(self.epsilon, self.delta, numbers) is None else [LAPLACE, GAUSSIAN]

    def _parts(self, law: str) -> list[GroupedNoise]:
        delta = self.delta if law == GAUSSIAN else None
        mu = None if delta is None else usable_mu(self.epsilon, delta)
        ends = (-1.0, 1.0) if self.of == ERROR else (self.lower, self.upper)
        level: tuple[Block, ...] = (blocks_for((AVG,), 0.0, 1.0, law)[-1],) if self.of == ERROR else ()
        shares = (1 - _LEVEL, _LEVEL) if level else equal_shares(1)
        return [
            GroupedNoise("sums", self.epsilon, delta, mu, self.contribution, (block, *level), shares)
            for block in blocks_for(self.aggregates, *ends, law)
        ]

    @property
    def area_epsilon(self) -> Fraction:
        """Return epsilon of the areas; the disagreement gets the rest."""
        return self.epsilon * (1 - _DISAGREEMENT) if self.sampling else self.epsilon

    @cached_property
    def area_part(self) -> PairedConcordanceNoise:
        """Return the part that draws difference and sum of concordances, and both class sizes."""
        unit = self.neighbours, self.max_rows_per_unit
        laplace = PairedConcordanceNoise("areas", self.area_epsilon, None, None, *unit)
        if self.delta is None or self.law == LAPLACE:
            return laplace
        if self.law == GAUSSIAN:
            mu: Fraction | None = usable_mu(self.area_epsilon, self.delta)
        else:
            mu = drawable_mu(self.area_epsilon, self.delta, 4)
        if mu is None:
            return laplace
        gaussian = PairedConcordanceNoise("areas", self.area_epsilon, self.delta, mu, *unit)
        return min(laplace, gaussian, key=lambda part: part.deviations[0]) if self.law == AUTO else gaussian

    @cached_property
    def pairs_part(self) -> LaplaceNoise:
        """Return the part that draws the disagreement of scores."""
        epsilon = self.epsilon - self.area_epsilon
        moved = disagreement_sensitivity(self.relation)
        return LaplaceNoise("disagreement", epsilon, moved << self.pairs_bits)

    @cached_property
    def pairs_bits(self) -> int:
        """Return the public bits: the disagreement has units of ``2**-bits``."""
        width = disagreement_sensitivity(self.relation) / (self.epsilon - self.area_epsilon)
        return next((bits for bits in range(_FINEST, 0, -1) if width * (1 << bits) <= _WIDEST), 0)

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: sums of two groups, or the numbers of two scores."""
        if self.of != AREA:
            return measurement_of(self.sums_part)
        return measurement_of(self.area_part, *([self.pairs_part] if self.sampling else []))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of all Laplace noise."""
        if self.of != AREA:
            return self.sums_part.laplace_scales()
        pairs = [self.pairs_part.scale()] if self.sampling else []
        return [*([] if self.area_part.mu is not None else self.area_part.scales), *pairs]

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of Gaussian noise, for one row of a privacy unit."""
        if self.of != AREA:
            return self.sums_part.gaussian_parts()
        return () if self.area_part.mu is None else (mu / self.max_rows_per_unit for mu in self.area_part.losses)

    def record(self, **entries: Any) -> Compared:
        """Return the record for the ledger."""
        width = 1.0 if self.lower is None or self.upper is None else self.upper - self.lower
        scale = {"absolute": width, "squared": width**2}.get(self.loss, 1.0)
        record: Any = {
            "of": self.of,
            "sampling": self.sampling,
            "confidence": float(self.confidence),
            "rows_per_unit": self.max_rows_per_unit,
            "rows_needed": None,
            "scale": scale if self.of == ERROR else 1.0,
            **entries,
        }
        stored: Compared = record
        return stored

    def stored_area(self, numbers: NoisyPair, disagreement: float | None) -> dict[str, Json]:
        """Return the noisy numbers of two areas, with the public facts about their noise."""
        failure = (1 - self.confidence) / 4
        pairs = 0.0
        if self.sampling:
            pairs = math.ldexp(laplace_reach(self.pairs_part.scale(), failure) + 0.5, -self.pairs_bits)
        return {
            "difference": numbers.difference,
            "total": numbers.total,
            "positives": numbers.positives,
            "negatives": numbers.negatives,
            "disagreement": disagreement,
            "errors": list(self.area_part.deviations),
            "reaches": [*self.area_part.reaches(failure), pairs],
        }

    def expected(self, rows: int) -> Compared:
        """Return the release of `rows` rows without noise: equal groups, values at either bound."""
        half = rows / 2.0
        if self.of == AREA:
            pairs = half * half / max(1.0, rows - 1.0) if self.sampling else None
            return self.record(area=self.stored_area(NoisyPair(0.0, 0.0, half, half), pairs))
        part, groups = self.sums_part, 1 if self.of == ERROR else 2
        blocks = [
            _repeated(expected_block(block, lattice, max(1, rows // groups)), groups)
            for block, lattice in zip(part.blocks, part.lattices, strict=True)
        ]
        return self.record(blocks=[stored_block(None, block) for block in blocks])

    def is_determined(self, rows: int) -> bool:
        """Return whether noise leaves an answer with `rows` rows, half of them in each group or class."""
        [row] = comparison_rows(self.expected(rows))
        return row["difference"] is not None

    @cached_property
    def rows_needed(self) -> int | None:
        """Return the rows from which noise leaves an answer, by bisection; None above 1e12."""
        low, high = 0, 1
        while not self.is_determined(high):
            if high >= _MOST_ROWS:
                return None
            low, high = high, min(4 * high, _MOST_ROWS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.is_determined(middle) else (middle, high)
        return high

    def has_enough_rows(self, line: str, n_features: int, rows: int) -> bool:
        """Return whether noise leaves an answer with `rows` rows, for the search of `rows_needed`."""
        return self.is_determined(rows)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the difference for groups or classes of equal size."""
        out: list[Quantity] = []
        if n_rows is not None:
            [row] = comparison_rows({**self.expected(n_rows), "sampling": False})
            error = row["std_error"]
            if isinstance(error, float):
                meaning = "standard deviation of the noise in the difference, were both halves alike"
                out.append(("difference_std_error", error, meaning))
        if self.rows_needed is not None:
            out.append(("rows_needed", float(self.rows_needed), "rows from which noise leaves an answer"))
        return out


def _repeated(noisy: NoisyBlock, groups: int) -> NoisyBlock:
    """Return the numbers of one group, repeated for several groups."""
    return replace(noisy, words=noisy.words.joined([noisy.words] * groups))


class CompareCall(Call):
    """A dp_compare call, with the column types of its source."""

    plan: ComparePlan

    def start(self) -> Collector:
        """Return empty sums or counts."""
        plan = self.plan
        if plan.of == OF_COUNT:
            return LevelSums(None, counts_values=bool(plan.layout.features), squares=False)
        if plan.lower is None or plan.upper is None:
            raise InternalError("I032", "a comparison of values has no bounds. Report it.")
        if plan.of == AREA:
            cells = EvenCells(plan.lower, plan.upper, plan.grid or COARSE)
            return PairedScores(cells, plan.lower, plan.upper, tied=plan.grid is not None)
        squares = plan.sums_part.blocks[0].needs_squares
        if plan.of == ERROR:
            levels = self.target.levels is not None
            return ErrorDifferences(
                plan.loss, (plan.lower, plan.upper), plan.thresholds, levels=levels, squares=squares
            )
        [block] = plan.sums_part.blocks
        affine: tuple[float, float] = block.affine  # type: ignore[attr-defined]
        return LevelSums(affine, counts_values=True, squares=squares)

    def prepare(self, statistic: Any, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the comparison."""
        plan = self.plan
        if isinstance(statistic, PairedScores):
            pairs = statistic.disagreement(plan.pairs_bits) if plan.sampling else 0
            return lambda: draw_areas(plan, statistic, pairs)
        sums = statistic.compared()
        return lambda: draw_sums(plan, sums)


def draw_sums(plan: ComparePlan, sums: list[Sums]) -> Json:
    """Draw the noisy sums; see `dpsql.mechanisms.aggregates.GroupedNoise` for the guarantee."""
    record: Any = plan.record(blocks=[stored_block(None, noisy) for noisy in plan.sums_part.draw(sums)])
    return _with_needed(plan, record)


def draw_areas(plan: ComparePlan, statistic: PairedScores, pairs: int) -> Json:
    """Draw the noisy numbers of two areas.

    Notes
    -----
    - **Guarantee**: `dpsql.mechanisms.auc.PairedConcordanceNoise` at ``plan.area_epsilon``, with delta if its noise is
      Gaussian; and Laplace noise on the disagreement at the rest of epsilon. Both costs add up.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: `dpsql.statistics.comparison`.
    """
    areas = plan.area_part.draw_pair(*statistic.concordances())
    disagreement = math.ldexp(plan.pairs_part.draw([pairs])[0], -plan.pairs_bits) if plan.sampling else None
    record: Any = plan.record(area=plan.stored_area(areas, disagreement))
    return _with_needed(plan, record)


def _with_needed(plan: ComparePlan, record: Any) -> Json:
    """Return a result; add the rows that an undetermined result needs."""
    [row] = comparison_rows(record)
    if row["difference"] is None and plan.rows_needed is not None:
        record["rows_needed"] = float(plan.rows_needed)
    stored: Json = record
    return stored
