"""dp_pipeline: select features and fit a linear model to them, under one budget and with one receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

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
from dpsql.contract.fold import Batch, Collector, Pass
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import Side, known
from dpsql.contract.plan import NOT_STATED, Plan, Quantity, SelectionPlan
from dpsql.errors import ParameterError
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.kendall import KendallCall, KendallPlan
from dpsql.functions.linear_regression import Fitting, RegressionCall, RegressionPlan
from dpsql.functions.sis import CollectedSisCall, SisPlan
from dpsql.functions.two_stage import MOST_BLOCKS, TwoStageCall, TwoStagePlan
from dpsql.kernels.fixed_point import affine_maps, quantise
from dpsql.progress import Progress
from dpsql.released.selections import selected


class _SelectorCall(Protocol):
    """A call that returns the names of selected features."""

    @property
    def target(self) -> TargetCode:
        """How the call reads the target."""

    def check(self) -> None:
        """Raise if the arguments do not fit the features."""

    def start(self) -> Collector | None:
        """Return the collector of the first pass."""

    def turn(self, collector: Any, progress: Progress) -> Collector:
        """Return the collector of the next pass."""

    def prepare(self, statistic: Any, progress: Progress) -> Callable[[], Any]:
        """Return the draw of the names."""


@dataclass(frozen=True)
class _Selector:
    plan: type[SelectionPlan]
    call: Callable[..., _SelectorCall]
    fixed: Mapping[str, object]


SELECTORS: dict[str, _Selector] = {
    "kendall": _Selector(KendallPlan, KendallCall, {}),
    "two_stage": _Selector(TwoStagePlan, TwoStageCall, {}),
    "best_subset": _Selector(BestSubsetPlan, BestSubsetCall, {"intercept": True}),
    "sis": _Selector(SisPlan, CollectedSisCall, {"center": "target"}),
}


@dataclass(frozen=True, kw_only=True)
class PipelinePlan(Plan):
    """The checked public arguments of one ``dp_pipeline`` call.

    Attributes
    ----------
    k : int
        Number of features to select.
    delta : Fraction
        As in ``dp_linear_regression``; the selection spends none of it.
    selector : {'kendall', 'two_stage', 'best_subset', 'sis'}
        The function that selects.
    method : str
        As in ``dp_linear_regression``.
    selection_share : Fraction
        Share of epsilon spent on the selection, in (0, 1).
    selection_blocks : int
        Public number of blocks for the two-stage selection, from 1 to `MOST_BLOCKS`.
    fitting : dict
        The other arguments of the fit, as given.
    """

    k: int
    delta: Fraction
    selector: str
    method: str
    selection_share: Fraction
    selection_blocks: int
    lower: Side | None
    upper: Side | None
    fitting: dict[str, str | float | None]

    function: ClassVar[str] = "dp_pipeline"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        K,
        EPSILON,
        DELTA,
        word("selector", "Which selector chooses the features.", tuple(SELECTORS), "kendall"),
        RegressionPlan.arguments["method"],
        share(
            "selection_share",
            "Share of epsilon spent on the selection, between 0 and 1.",
            0.05,
            hint="0.05 is the usual value.",
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
        cls, source: str, arguments: Mapping[str, object], stated: Mapping[str, object] | None = None
    ) -> Self:
        """Check the arguments of a call and of both its parts; see `Plan.from_arguments`."""
        plan = super().from_arguments(source, arguments, stated)
        _ = plan.selection, plan.regression
        return plan

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        selection = SelectionPlan._own(given, layout)
        fit = RegressionPlan._own({**given, "n_fitted": selection["k"]}, layout)
        return {
            **selection,
            **{name: fit[name] for name in ("delta", "method", "lower", "upper")},
            **cls._read(given, "selector", "selection_share", "selection_blocks"),
            "fitting": {
                name: str(fit[name]) if isinstance(fit[name], Fraction) else fit[name]
                for name in RegressionPlan.fitting
            },
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
        }

    @cached_property
    def selection(self) -> SelectionPlan:
        """The plan of the selection."""
        selector = SELECTORS[self.selector]
        own = {"k": self.k, "epsilon": self.epsilon * self.selection_share, "blocks": self.selection_blocks}
        given = {**self._shared, **own, **selector.fixed}
        if self.selector == "kendall":
            del given["blocks"]
        if self.selector == "sis" and self.lower is None:  # ranks need no bounds, and nothing to centre
            given = {**given, **NOT_STATED, "score": "rank", "center": None}
        return selector.plan.from_arguments(self.source, given)

    @cached_property
    def regression(self) -> RegressionPlan:
        """The plan of the fit; its shares refer to the call's whole epsilon."""
        rest = 1 - self.selection_share
        given: dict[str, object] = {name: value for name, value in self.fitting.items() if value is not None}
        for name in ("count_share", "scale_share"):
            share_of_rest = Fraction(known(str, given[name])) / rest
            if not share_of_rest < 1:
                raise ParameterError("P051", f"{name} and selection_share must be below 1 together. Lower one of them.")
            given[name] = share_of_rest
        for name in ("bounds_share", "count_failure"):
            given[name] = Fraction(known(str, given[name]))
        own = {"epsilon": self.epsilon * rest, "delta": self.delta, "method": self.method}
        return RegressionPlan.from_arguments(self.source, {**self._shared, **given, **own})

    @property
    def passes(self) -> int:
        """Number of passes over the rows."""
        return self.selection.passes + self.regression.passes

    @property
    def in_blocks(self) -> bool:
        """Whether the block of a row depends on that row alone."""
        return self.regression.in_blocks or self.selection.in_blocks

    def check_features(self, count: int) -> None:
        """Raise if the arguments of either part do not fit the number of features."""
        self.selection.check_features(count)
        self.regression.check_features(self.k)

    def check_drawable(self, count: int) -> None:
        """Raise unless every part of both budgets can be drawn."""
        self.selection.check_drawable(count)
        self.regression.check_drawable(self.k)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the selection, then the fit."""
        return measurement_of(self.selection.measurement, self.regression.measurement)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy both parts would be."""
        return [*self.selection.noise(n_features, n_rows), *self.regression.noise(self.k, n_rows)]


class PipelineCall(Call):
    """A dp_pipeline call, with the column types of its source."""

    plan: PipelinePlan

    @cached_property
    def selection(self) -> _SelectorCall:
        """The call of the selection, with the same column types."""
        plan = self.plan
        target = self.target
        if plan.selection.target_needs_bounds and target.levels is None:
            target = TargetCode.of_bounds(plan.selection, plan.layout.target)
        return SELECTORS[plan.selector].call(plan.selection, self.features, target, self.positions, self.elements)

    def check(self) -> None:
        """Raise if the arguments of either part do not fit the column types."""
        super().check()
        affine_maps(self.intervals or [])  # every feature has bounds, selected or not
        self.selection.check()

    def start(self) -> Collector:
        """Return the collector of the selection."""
        collector = self.selection.start()
        assert collector is not None  # noqa: S101
        return _Selecting(self, collector, 1)

    def prepare(self, statistic: Fitting, progress: Progress) -> Callable[[], Json] | Draw:
        """Fit the model to the selected features."""
        draw = statistic.draw(progress)
        if isinstance(draw, Draw):  # the fit released nothing, but the selection is still charged
            return Draw(measurement_of(self.plan.selection.measurement, draw.measurement), draw.run)
        return draw

    def fit(self, names: list[str]) -> tuple[list[int], RegressionCall]:
        """Return the positions of the selected features, and the call that fits them."""
        places = {name: place for place, name in enumerate(self.features)}
        picks = [places[name] for name in names]
        plan = self.plan.regression
        lower, upper = (
            tuple(bounds[pick] for pick in picks) if isinstance(bounds, tuple) else bounds
            for bounds in (plan.lower, plan.upper)
        )
        elements = None
        if self.plan.layout.kind == "array":
            elements = tuple(pick if self.elements is None else self.elements[pick] for pick in picks)
        return picks, RegressionCall(replace(plan, lower=lower, upper=upper), tuple(names), self.target, (), elements)


class _Selecting(Pass[Collector]):
    """A pass of the selection."""

    def __init__(self, call: PipelineCall, collector: Collector, number: int) -> None:
        super().__init__(collector)
        self._call = call
        self._number = number
        self._affine = call.selection.target.affine

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows, with the target coded as the selection reads it."""
        coded = target if self._affine is None else quantise(target.copy(), *self._affine)
        self.inner.add(coded, features, batch)

    def turn(self, progress: Progress) -> Collector:
        """Start the next pass of the selection, or draw the selection and start the fit."""
        selection = self._call.selection
        if self._number < self._call.plan.selection.passes:
            return _Selecting(self._call, selection.turn(self.inner, progress), self._number + 1)
        draw = selection.prepare(self.inner, progress)
        picks, fit = self._call.fit(selected(draw()))
        return _Fitting(picks, fit.start())


class _Fitting(Pass[Any]):
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
        drawn: Callable[[], Json] | Draw = self.inner.draw(progress)
        return drawn
