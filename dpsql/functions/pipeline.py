"""dp_pipeline: select features and fit a linear model to them, under one budget and with one receipt.

Without `k` it fits all features with the whole budget, as `dp_linear_regression` does. At tens of features a
selection costs more accuracy than it saves. Above `MOST_UNSELECTED` features `k` is required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.arguments import (
    COLUMNS,
    DELTA,
    EPSILON,
    OPTIONAL_BOUNDS,
    PROTECTION,
    K,
    Signature,
    integer,
    share,
    word,
)
from dpsql.contract.call import Call, TargetCode
from dpsql.contract.fold import Batch, Collector, RowTransform, Waiting
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import FrozenMapping, Side, narrow
from dpsql.contract.plan import COLLECTED, NOT_STATED, Pass, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.kendall import KendallCall, KendallPlan
from dpsql.functions.regression.linear import RegressionPlan, before_additive
from dpsql.functions.regression.method import Fitting, RegressionCall
from dpsql.functions.selection import SelectionPlan, read_k, stated_features
from dpsql.functions.sis import CollectedSisCall, SisPlan
from dpsql.functions.two_stage import MOST_BLOCKS, TwoStageCall, TwoStagePlan
from dpsql.kernels.fixed_point import quantise
from dpsql.progress import Progress
from dpsql.released.results import NO_SELECTION, selected


@dataclass(frozen=True)
class _Selector:
    """A selector: its plan, its call, its fixed arguments, and its default share of epsilon.

    On held-out rows, the fit of 5 features was best with .3 for covariances and residual sums, which have wide ranges;
    Kendall's tau did as well with .05 as with .5.
    """

    plan: type[SelectionPlan]
    call: type[Call]
    fixed: Mapping[str, object]
    share: Fraction


SELECTORS: dict[str, _Selector] = {
    "kendall": _Selector(KendallPlan, KendallCall, {"verdict_share": 0}, Fraction(1, 10)),
    "two_stage": _Selector(TwoStagePlan, TwoStageCall, {}, Fraction(3, 10)),
    "best_subset": _Selector(BestSubsetPlan, BestSubsetCall, {"intercept": True}, Fraction(3, 10)),
    "sis": _Selector(SisPlan, CollectedSisCall, {"center": "target", "verdict_share": 0}, Fraction(3, 10)),
}
# Largest number of features to fit without a selection.
MOST_UNSELECTED = 50
# Arguments of the selection only.
_SELECTING = ("selector", "selection_share", "selection_blocks")


@dataclass(frozen=True, kw_only=True)
class PipelinePlan(Plan):
    """The checked public arguments of one ``dp_pipeline`` call.

    The argument of the same name documents each field; `automatic` is whether 'auto' chose the method. Without `k` the
    fields of the selection are None. The selection spends none of `delta`; `fitting` holds the other arguments of the
    fit, as given.
    """

    k: int | None
    delta: Fraction
    selector: str | None
    method: str
    selection_share: Fraction | None
    selection_blocks: int | None
    lower: Side | None
    upper: Side | None
    fitting: FrozenMapping[str | float | None]
    automatic: bool | None = None

    function: ClassVar[str] = "dp_pipeline"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        replace(
            K,
            doc=f"Features to select; where there are fewer, or without it, all of up to {MOST_UNSELECTED}.",
            default_text="no selection",
        ),
        EPSILON,
        DELTA,
        word("selector", "Which selector chooses the features.", tuple(SELECTORS), "kendall"),
        RegressionPlan.arguments["method"],
        share(
            "selection_share",
            "Share of epsilon spent on the selection, between 0 and 1.",
            None,
            default_text="0.3, of kendall 0.1",
            hint="0.3 is usual, and 0.1 for kendall.",
        ),
        integer(
            "selection_blocks",
            "Public number of blocks for the selector 'two_stage', from 1 to 1000000.",
            1000,
            hint="1000 is the usual value.",
            most=MOST_BLOCKS,
        ),
        *OPTIONAL_BOUNDS,
        *RegressionPlan.fitting.values(),
        *PROTECTION,
    )

    @classmethod
    def from_arguments(
        cls, source: str, arguments: Mapping[str, object], protection: Mapping[str, object] | None = None
    ) -> Self:
        """Check the arguments of a call and of its two parts; see `Plan.from_arguments`."""
        unused = [name for name in _SELECTING if arguments.get(name) is not None]
        if arguments.get("k") is None and unused:
            raise ParameterError(
                "P046", f"{unused[0]} has no effect without k. Give the number of features to select, or leave it out."
            )
        plan = super().from_arguments(source, arguments, protection)
        _ = plan.selection, plan.regression
        return plan

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        selection: dict[str, object] = dict.fromkeys(("k", *_SELECTING))
        k, count = arguments["k"], stated_features(layout)
        if k is not None and not (count and narrow(int, K.read(arguments)) > count):
            selection = {"k": read_k(arguments, layout), **cls._read(arguments, *_SELECTING)}
            if selection["selection_share"] is None:
                selection["selection_share"] = SELECTORS[narrow(str, selection["selector"])].share
        fit = RegressionPlan._own({**arguments, "n_fitted": selection["k"]} if selection["k"] else arguments, layout)
        return {
            **selection,
            **{name: fit[name] for name in ("delta", "method", "automatic", "lower", "upper")},
            "fitting": FrozenMapping(
                {
                    name: str(fit[name]) if isinstance(fit[name], Fraction) else fit[name]
                    for name in RegressionPlan.fitting
                    if name != "range_share" or fit[name] is not None
                }
            ),
        }

    @cached_property
    def _shared(self) -> dict[str, object]:
        """The arguments that both parts share."""
        layout = self.layout
        bounds = self.target_bounds or (None, None)
        return {
            **{name: getattr(layout, name) for name in ("target", "features", "n_features", "names", "chosen")},
            **{name: getattr(layout, name) for name in ("privacy_unit", "row_id", "value")},
            **{"lower": self.lower, "upper": self.upper, "target_lower": bounds[0], "target_upper": bounds[1]},
            "target_levels": self.target_levels,
            "neighbours": self.neighbours,
            "max_rows_per_unit": self.max_rows_per_unit if layout.privacy_unit is not None else None,
            "dataset": self.dataset,
            "engine": self.engine,
        }

    @cached_property
    def selection(self) -> SelectionPlan | None:
        """The plan of the selection; None to fit all features."""
        if self.selector is None or self.selection_share is None:
            return None
        selector = SELECTORS[self.selector]
        own = {"k": self.k, "epsilon": self.epsilon * self.selection_share, "blocks": self.selection_blocks}
        settings = {**self._shared, **own, **selector.fixed}
        if self.selector == "kendall":
            del settings["blocks"]
        if self.selector == "sis" and self.lower is None:  # ranks need no bounds and no centre
            settings = {**settings, **NOT_STATED, "score": "rank", "center": None}
        return selector.plan.from_arguments(self.source, settings)

    @cached_property
    def regression(self) -> RegressionPlan:
        """The plan of the fit; its shares refer to the call's whole epsilon."""
        rest = 1 - (self.selection_share or Fraction(0))
        settings: dict[str, object] = {name: value for name, value in self.fitting.items() if value is not None}
        for name in ("count_share", "scale_share", *(["range_share"] if "range_share" in settings else [])):
            share_of_rest = Fraction(narrow(str, settings[name])) / rest
            if not share_of_rest < 1:
                raise ParameterError("P051", f"{name} and selection_share must be below 1 together. Lower one of them.")
            settings[name] = share_of_rest
        for name in ("bounds_share", "moments_share", "count_failure"):
            settings[name] = Fraction(narrow(str, settings[name]))
        own = {"epsilon": self.epsilon * rest, "delta": self.delta, "method": self.method}
        return RegressionPlan.from_arguments(self.source, {**self._shared, **settings, **own})

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes of the selection, then those of the fit, as folds; a row keeps one key throughout."""
        selecting = () if self.selection is None else self.selection.passes
        passes = (*selecting, *self.regression.passes)
        hint = "Give selector := 'sis', and lower and upper with it." if any(scan.keeps_rows for scan in passes) else ""
        keyed = any(scan.keyed for scan in passes)
        return tuple(replace(scan, statement=COLLECTED, keyed=keyed, keeps_rows=hint) for scan in passes)

    def check_features(self, count: int) -> None:
        """Raise if the arguments of either part do not fit the number of features."""
        if self.selection is not None:
            if not self.takes_all(count):
                self.selection.check_features(count)
        elif count > MOST_UNSELECTED:
            raise ParameterError(
                "P026",
                f"without k, dp_pipeline fits at most {MOST_UNSELECTED} features; got {count}. "
                "Give k, the number of features to select.",
            )
        self.regression.check_features(min(self.k or count, count))

    def check_drawable(self, count: int) -> None:
        """Raise unless every part of both budgets can be drawn."""
        if self.selection is not None and not self.takes_all(count):
            self.selection.check_drawable(count)
        self.regression.check_drawable(min(self.k or count, count))

    def takes_all(self, count: int) -> bool:
        """Return whether the call fits all features: no selection, or `k` above their number."""
        return self.selection is None or (self.k is not None and self.k > count)

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """The arguments as stored, without `automatic`."""
        return {name: value for name, value in super().public_arguments.items() if name != "automatic"}

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments as earlier versions recorded the same call; their 'auto' never chose 'additive'."""
        yield from before_additive(self.public_arguments, super().earlier_arguments(), self.automatic)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the selection, then the fit; the fit alone if all features are fitted."""
        return self.measured_with(self.regression.measurement)

    def measured_with(self, fit: Measurement) -> Measurement:
        """Return the measurement of the selection, if any, and of a fit."""
        return fit if self.selection is None else measurement_of(self.selection.measurement, fit)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of both parts."""
        selecting = None if self.takes_all(n_features) else self.selection
        selected = [] if selecting is None else selecting.noise(n_features, n_rows)
        return [*selected, *self.regression.noise(min(self.k or n_features, n_features), n_rows)]


class PipelineCall(Call):
    """A dp_pipeline call, with the column types of its source."""

    plan: PipelinePlan

    @cached_property
    def selection(self) -> Call | None:
        """The call of the selection, with the same column types; None to fit all features."""
        plan, target = self.plan.selection, self.target
        if plan is None or self.plan.selector is None or self.plan.takes_all(len(self.features)):
            return None
        if plan.target_needs_bounds and target.levels is None:
            target = TargetCode.of_bounds(plan, plan.layout.target)
        of = SELECTORS[self.plan.selector].call
        return of(plan, self.features, target, self.positions, self.elements, kinds=self.kinds)

    def check(self) -> None:
        """Raise if the arguments of either part do not fit the column types."""
        super().check()
        self.refuse_extremes()  # every feature has bounds, selected or not
        if self.selection is not None:
            self.selection.check()

    def start(self) -> Collector:
        """Return the collector of the selection, or of the fit of all features."""
        if self.selection is None:
            fit = self.fit(list(self.features))
            for _ in range(len(self.plan.passes) - len(self.plan.regression.passes)):
                fit = Waiting(fit)
            return fit
        collector = self.selection.start()
        assert collector is not None  # noqa: S101
        return _Selecting(self, self.selection, collector, 1)

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model to the selected features, or to all."""
        draw = statistic.draw(progress)
        if self.selection is None and self.plan.selection is not None:  # no selection, and no cost for one
            measured = draw.measurement if isinstance(draw, Draw) else self.plan.regression.measurement
            return Draw(measured, self._with_selection(draw.run if isinstance(draw, Draw) else draw))
        if isinstance(draw, Draw):  # the fit released nothing, but the selection is still charged
            return Draw(self.plan.measured_with(draw.measurement), self._with_selection(draw.run))
        return self._with_selection(draw)

    def _with_selection(self, run: Callable[[], Json]) -> Callable[[], Json]:
        """Return the draw of a fit, with the selector's name in its result."""
        return lambda: {**narrow(dict, run()), "selection": (self.selection and self.plan.selector) or NO_SELECTION}

    def fit(self, names: list[str]) -> Collector:
        """Return the collector of the fit of some features."""
        positions = {name: position for position, name in enumerate(self.features)}
        picks = [positions[name] for name in names]
        plan = self.plan.regression
        lower, upper = (
            tuple(bounds[pick] for pick in picks) if isinstance(bounds, tuple) else bounds
            for bounds in (plan.lower, plan.upper)
        )
        elements = None
        if self.plan.layout.kind == "array":
            elements = tuple(pick if self.elements is None else self.elements[pick] for pick in picks)
        kinds = (*(self.kinds[pick] for pick in picks), self.kinds[-1])
        own = replace(plan, lower=lower, upper=upper)
        call = RegressionCall(own, tuple(names), self.target, (), elements, kinds=kinds)
        return _Fitting(picks, call.start())


class _Selecting(RowTransform[Collector]):
    """A pass of the selection."""

    def __init__(self, call: PipelineCall, selection: Call, collector: Collector, number: int) -> None:
        super().__init__(collector)
        self._call = call
        self._selection = selection
        self._number = number
        self._affine = selection.target.affine

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows, with the target coded for the selection."""
        coded = target if self._affine is None else quantise(target.copy(), *self._affine)
        self.inner.add(coded, features, batch)

    def turn(self, progress: Progress) -> Collector:
        """Start the next pass of the selection, or draw the selection and start the fit."""
        if self._number < len(self._call.plan.passes) - len(self._call.plan.regression.passes):
            following = self._selection.turn(self.inner, progress)
            return _Selecting(self._call, self._selection, following, self._number + 1)
        draw: Any = self._selection.prepare(self.inner, progress)
        return self._call.fit(selected(draw()))


class _Fitting(RowTransform[Any]):
    """A pass of the fit, over the selected features alone."""

    def __init__(self, picks: list[int], collector: Collector) -> None:
        super().__init__(collector)
        self._picks = picks

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.inner.add(target, features[self._picks], batch)

    def turn(self, progress: Progress) -> Collector:
        """Start the next pass of the fit."""
        return _Fitting(self._picks, self.inner.turn(progress))

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json] | Draw:
        """Draw the model."""
        run: Callable[[], Json] | Draw = self.inner.draw(progress)
        return run
