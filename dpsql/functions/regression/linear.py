"""dp_linear_regression: a linear model under differential privacy, by one of three methods.

AdaSSP is one noisy release of the products of all columns, after private bounds and moments if they are needed.

**An additive model** is boosted AdaSSP first, then steps per feature on its residuals. DuckDB keeps its rows. An engine
reads its rows once for bins and the bound of residuals, and once for every round.

The budget of each stage is public: half of the rest after bounds and moments. If the released number of rows is small
for the noise, the linear fit gets the whole rest, and there are no steps: `AdditiveModel.has_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    COLUMNS,
    DELTA,
    ENGINE,
    EPSILON,
    OPTIONAL_BOUNDS,
    PROTECTION,
    Signature,
    double,
    flag,
    integer,
    share,
    word,
)
from dpsql.contract.fold import Collector, Waiting
from dpsql.contract.gaussian_profile import gaussian_mu, share_of_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, feature_bounds
from dpsql.contract.measurement import Measurement
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import MOST_ROWS, Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.least_squares import BoostedAdaSsp, BoostedRows, Columns, LeastSquares
from dpsql.functions.regression.method import FittingPlan, KeptFeatures, Method, Moments, refuse_too_many
from dpsql.functions.regression.stage import Finished, FirstWeights, Result, StepStage
from dpsql.functions.regression.tukey import Tukey
from dpsql.kernels.fixed_point import affine_map
from dpsql.mechanisms import ada_ssp
from dpsql.mechanisms.ada_ssp import SPLITS, LinearFit
from dpsql.mechanisms.additive import MOST_ROUNDS, VISITS, AdditiveSteps, StepRounds
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.tukey import LARGEST_MODELS
from dpsql.statistics.additive import CellRows, CellWeights, CodedRows, StepRows
from dpsql.statistics.regression import RowMap, RowProducts, Scales

# Share of the linear fit, and shares of the steps: bins, the bound of residuals, and the rounds.
_LINEAR = Fraction(1, 2)
_STEPS = (("bins", Fraction(3, 20)), ("residuals", Fraction(3, 100)), ("steps", Fraction(82, 100)))
# Steps gain more than they cost from this value of rows times mu, over the root of the features and the row limit per
# unit: there the noise on a cell's rows is about twice its rows. `benchmarks/papers/additive_study.py` measures it.
WORTH_STEPS = 300.0
# Part of the share of bounds for ends within public bounds, if only the features or only the target have public bounds.
_FEATURES, _TARGET = Fraction(1, 2), Fraction(1, 5)


def steps_rows_needed(features: int, mu: float) -> float:
    """Return the rows from which there are steps, if a unit is a row and all Gaussian releases spend mu."""
    return WORTH_STEPS * math.sqrt(features) / mu


class AdditiveModel(BoostedAdaSsp):
    """Boosted AdaSSP, and steps on its residuals."""

    @classmethod
    def own_arguments(cls, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Refuse a norm: only a linear model shortens rows to it."""
        if arguments.get("row_norm") is not None:
            raise ParameterError(
                "P045", "row_norm has no effect on the steps of method := 'additive'. Leave it out, or take another."
            )
        return super().own_arguments(arguments)

    @property
    def fit_parts(self) -> tuple[tuple[str, Fraction], ...]:
        """Half for the linear fit, and the rest for the steps."""
        return (("fit", _LINEAR), *((name, part * (1 - _LINEAR)) for name, part in _STEPS))

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of boosting; on an engine also one for bins and the bound of residuals, one per round of steps."""
        more = 0 if self.plan.engine is None else 1 + VISITS * MOST_ROUNDS
        return (*super().passes, *(Pass(),) * more)

    def has_steps(self, mapped: RowMap) -> bool:
        """Return whether there are steps: if a feature is kept, and the rows suffice or their number is unreleased."""
        features = len(mapped.scales.middle)
        rows = None if mapped.standard is None else mapped.standard.rows
        return features > 0 and (rows is None or rows >= self._rows_needed(features))

    def _rows_needed(self, features: int) -> float:
        """Return the rows from which there are steps."""
        return steps_rows_needed(features, float(self.mu)) * self.plan.max_rows_per_unit

    def spend_fit(self, columns: Columns, mapped: RowMap) -> Fraction:
        """Return the mu of the linear fit, with the mu of the steps if there are none."""
        part: GaussianNoise = self.measurement["fit"]
        if self.has_steps(mapped):
            return self.spend_part(columns, "fit")
        squared = sum((part.spend(name) ** 2 for name, _ in self.fit_parts), Fraction(0))
        return share_of_mu(columns.more * squared / self.mu**2, self.mu)

    def spend_part(self, columns: Columns, name: str) -> Fraction:
        """Spend a part of the fit, with its share of the unspent mu of ends within public bounds; return its mu."""
        part: GaussianNoise = self.measurement["fit"]
        spent = part.spend(name)
        return spent if columns.more == 1 else share_of_mu(columns.more * spent**2 / self.mu**2, self.mu)

    @property
    def narrows_features(self) -> bool:
        """Whether features have public bounds, and the fit standardizes them."""
        return self.standardizes and self.plan.lower is not None

    @property
    def narrows_target(self) -> bool:
        """Whether the target has public bounds, and the number of rows is released."""
        return self.standardizes and self.plan.target_bounds is not None

    @property
    def ends_share(self) -> Fraction:
        """The share of bounds; a part of it if only the features, or only the target, have public bounds."""
        features = self.narrows_features
        if features and self.plan.target_is_bounded:
            return self.plan.bounds_share
        return (
            self.plan.bounds_share * (_FEATURES if features else _TARGET)
            if features or self.narrows_target
            else Fraction(0)
        )

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the linear stage, and the rows from which there are steps."""
        needed = self._rows_needed(max(1, n_features))
        return [
            *super().noise(n_features, n_rows),
            ("steps_rows_needed", needed, "rows from which there are steps, about; with fewer the model is linear"),
        ]

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass after the bounds."""
        return AdditiveRows(columns) if self.plan.engine is None else super().bounded(columns)

    def following(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> Collector:
        """Return the collector of bins and residuals, or the finished call if there are no steps."""
        stage = RegressionStage(columns, fit, mapped, scales)
        return FirstWeights(stage) if self.has_steps(mapped) else Finished(stage.result(None))


class RegressionStage(StepStage):
    """The additive stage of least squares."""

    rows: StepRows

    def __init__(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> None:
        self.columns, self.positions = columns, columns.positions
        self.rows = StepRows.of(mapped, scales, fit.coefficients)
        self._fit = fit

    def weights(self) -> CellRows:
        """Return the empty counts of rows per cell, and per size of their residual."""
        return CellRows(self.rows)

    def rounds(self, counted: CellWeights) -> StepRounds:
        """Draw bins and the bound of residuals, and return the rounds."""
        if not isinstance(counted, CellRows):
            raise InternalError("I032", "the counts are of another pass. Report it.")
        plan = self.columns.plan
        method = self.columns.method
        if not isinstance(method, AdditiveModel):
            raise InternalError("I032", "steps follow a fit that has none. Report it.")
        standard = self.rows.mapped.standard
        return StepRounds.draw(
            counted.cells,
            counted.sizes,
            plan.neighbours,
            plan.max_rows_per_unit,
            mus={name: method.spend_part(self.columns, name) for name, _ in _STEPS},
            rows=None if standard is None else standard.rows,
        )

    def result(self, steps: AdditiveSteps | None) -> Callable[[], Json]:
        """Return the released model."""
        unit = self.rows.scales.target_scale * self.columns.call.target_unit
        shapes = [] if steps is None else self.shapes(steps, unit)
        return self.columns.result(self._fit, self.rows.mapped, self.rows.scales, shapes)


class AdditiveRows(BoostedRows):
    """The stored rows: boosting reads them, then the steps."""

    def draw(self, progress: Callable[[float], None]) -> Result:
        """Draw the linear fit, bins and the bound of residuals, and every round of steps."""
        columns = self._columns
        fit, mapped, scales = self.fitted(lambda done: progress(done / 2), last=False)
        stage = RegressionStage(columns, fit, mapped, scales)
        if not (isinstance(columns.method, AdditiveModel) and columns.method.has_steps(mapped)):
            return stage.result(None)
        rows = CodedRows(stage.rows)
        for quantised, target in self.inner.drained():
            rows.add_quantised(quantised, target)
        return stage.draw(rows, progress)


class AdaSsp(LeastSquares):
    """The AdaSSP method."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Return a pass each for bounds, moments and products."""
        return (Pass(),) * (1 + self.draws_bounds + self.standardizes)

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the moments, or of the products."""
        if not self.standardizes:
            return Products(columns, columns.mapped)
        if not columns.positions:
            return Waiting(Products(columns, columns.mapped))
        mapped = columns.mapped
        return Moments(
            self.plan,
            columns.positions,
            mapped,
            columns.reach,
            lambda standard: Products(columns, columns.standardised(standard)),
        )


class Products(KeptFeatures[RowProducts]):
    """Exact products of all columns."""

    def __init__(self, columns: Columns, mapped: RowMap) -> None:
        super().__init__(columns.positions, RowProducts(mapped, columns.target))
        self._columns, self._mapped = columns, mapped

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the noisy products and solve."""
        plan = self._columns.plan
        part: GaussianNoise = plan.measurement["fit"]
        fit = ada_ssp.ada_ssp(
            self.inner.products(),
            radius=self._mapped.radius,
            mu=part.spend("fit"),
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            denominator=self._mapped.denominator,
            squares_mu=part.spend("squares") if plan.sampling else None,
        )
        return self._columns.result(fit, self._mapped, self._columns.scales)


_METHODS: Mapping[str, type[Method]] = {
    "ada_ssp": AdaSsp,
    "boosted_ada_ssp": BoostedAdaSsp,
    "tukey": Tukey,
    "additive": AdditiveModel,
}
_public_hint = "Give a public number, not one from the table."
# Several copies of the products of this many columns are held in memory.
MOST_FEATURES = 2000
_MOST_ROUNDS = 100_000
_share = partial(share, hint="0.05 is usual.")


@dataclass(frozen=True, kw_only=True)
class RegressionPlan(FittingPlan):
    """The checked public arguments of one ``dp_linear_regression`` call."""

    function: ClassVar[str] = "dp_linear_regression"
    target_needs_bounds: ClassVar[bool] = False
    # Arguments of every function that fits a linear model, in addition to columns, budget, bounds and protection.
    fitting: ClassVar[Signature] = Signature(
        double(
            "row_norm",
            "Norm to which longer rows of features are scaled down, above 0. Each feature is then measured in half "
            "widths of its bounds, and nothing is standardized.",
            default_text="sqrt(features), in standard deviations",
            hint="Give the longest row of features that is to count in full, or leave it out.",
        ),
        integer(
            "rounds",
            "Boosting: number of rounds, from 1 to 100000.",
            10,
            hint="10 is the usual value.",
            most=_MOST_ROUNDS,
        ),
        word("split", "Boosting: how the products, the ridge and the rounds share the budget.", SPLITS, "even"),
        integer("blocks", "Tukey: public number of blocks of rows.", hint=_public_hint, most=LARGEST_MODELS),
        integer(
            "n_rows",
            "Public lower bound on the number of rows, in place of a private count.",
            hint=_public_hint,
            most=MOST_ROWS,
        ),
        flag("clip", "Clip predictions to the target's bounds, given or drawn.", True, earlier=(None,)),
        flag(
            "standardize",
            "Measure features in their private standard deviations; not for Tukey.",
            True,
            earlier=(None,),
        ),
        _share(
            "bounds_share", "Share of the budget spent on private bounds, between 0 and 1.", 0.4, earlier=(0.25, 0.1)
        ),
        _share(
            "moments_share",
            "Share of the rest spent on means and standard deviations of the features, between 0 and 1.",
            0.05,
            earlier=(None,),
        ),
        _share(
            "scale_share",
            "Boosting: share of epsilon spent on the target's quantiles, between 0 and 1.",
            0.1,
            earlier=(0.05,),
        ),
        _share("count_share", "Tukey: share of epsilon spent on a private row count, between 0 and 1.", 0.05),
        _share("count_failure", "Tukey: chance that the private row count is too high, between 0 and 1.", 0.0001),
        _share("range_share", "Tukey: share of epsilon spent on the range of predictions, between 0 and 1.", 0.05),
    )
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        EPSILON,
        DELTA,
        word("method", "How the model is fitted; docs/models.md says which to take when.", ("auto", *_METHODS), "auto"),
        *OPTIONAL_BOUNDS,
        *fitting.values(),
        flag(
            "sampling",
            "Whether standard errors also count the sampling of the rows, where the errors of all rows have one "
            "variance. Needs 'ada_ssp', which 'auto' then is; a tenth of the fit's budget tells the target's squares.",
            False,
        ),
        *PROTECTION,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {
            **cls._read(arguments, "delta", "method", "rounds", "split", "blocks", "n_rows"),
            **cls._read(arguments, "clip", "standardize", "bounds_share", "moments_share"),
            **cls._read(arguments, "scale_share", "count_share", "count_failure", "range_share"),
            "lower": None,
            "upper": None,
        }
        if arguments["lower"] is not None or arguments["upper"] is not None:
            own |= feature_bounds(arguments)
        own |= cls._read(arguments, "row_norm")
        own["sampling"] = cls.arguments["sampling"].read({"sampling": False, **arguments}) or None
        if own["sampling"] and own["method"] == "auto" and own["blocks"] is None:
            own["method"] = "ada_ssp"
        if own["sampling"] and own["method"] != "ada_ssp":
            raise ParameterError(
                "P045",
                "only method := 'ada_ssp' releases the moments that sampling needs. Take it, or leave sampling out.",
            )
        own["automatic"] = True if own["method"] == "auto" else None
        if own["automatic"]:
            blocks, rows = (None if own[name] is None else narrow(int, own[name]) for name in ("blocks", "n_rows"))
            budget = parameters.epsilon(EPSILON.read(arguments)), narrow(Fraction, own["delta"])
            counts = own["standardize"] is True and arguments.get(ENGINE.name) is None
            method = automatic(cls._columns(arguments, layout), blocks, rows, *budget, counts=counts)
            own["method"] = "boosted_ada_ssp" if method == "additive" and own["row_norm"] is not None else method
        own |= _METHODS[narrow(str, own["method"])].own_arguments(own)
        return own

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, in which 'auto' was never 'additive'."""
        yield from before_additive(self.public_arguments, super().earlier_arguments(), self.automatic)

    @classmethod
    def _columns(cls, arguments: Mapping[str, object], layout: Layout) -> int | None:
        """Return the number of features to fit; None if it depends on the column types."""
        if "n_fitted" in arguments:  # a pipeline states how many features it will select
            return narrow(int, arguments["n_fitted"])
        listed = layout.features if isinstance(layout.features, tuple) else layout.chosen or layout.names
        return len(listed) if listed else layout.n_features

    def check_features(self, count: int) -> None:
        """Raise if there are too many features, or if the number of bounds differs from the number of features."""
        refuse_too_many(self.function, count, MOST_FEATURES)
        if self.target_bounds is not None:
            affine_map(*self.target_bounds)
        self.fit.check_features(count)

    def check_drawable(self, count: int) -> None:
        """Raise unless every part of the budget can be drawn."""
        self.fit.check_drawable()

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the stored arguments, without those that the method does not use, and whether 'auto' chose it."""
        left_out = (*self.fit.unused, "automatic")
        return {name: value for name, value in super().public_arguments.items() if name not in left_out}

    @cached_property
    def fit(self) -> Method:
        """Return the method, with these arguments."""
        return _METHODS[self.method](self)

    def _passes(self) -> tuple[Pass, ...]:
        """Return the passes of the method."""
        return self.fit.passes

    @property
    def measurement(self) -> Measurement:
        """Return the measurement of the method."""
        return self.fit.measurement

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call."""
        return self.fit.noise(n_features, n_rows)


def automatic(
    n_features: int | None,
    blocks: int | None,
    n_rows: int | None,
    epsilon: Fraction,
    delta: Fraction,
    *,
    counts: bool = True,
) -> str:
    """Return the method that 'auto' selects, from public arguments alone.

    Parameters
    ----------
    n_features : int or None
        None if it depends on the column types of the source.
    blocks : int or None
        If given, the Tukey mechanism is selected.
    n_rows : int or None
        Public lower bound on the number of rows.
    epsilon, delta : Fraction
    counts : bool
        Whether the call releases its number of rows, and a round of steps is no pass over the rows.

    Notes
    -----
    Boosting is the most accurate linear fit when noise matters (`benchmarks/papers/dp_kendall.py`). On DuckDB it holds
    the rows in memory; on an engine it reads them in every round, so it takes ``rounds`` jobs more than AdaSSP, which
    takes one. If the noise on a sum of squares is certain to be below a thousandth of the number of rows, boosting
    gains nothing. AdaSSP is then selected: it reads the rows once and reports standard errors.

    Otherwise the model is additive. It decides by itself whether there are steps, by its released number of rows;
    without steps it is boosting with all of the budget. If the call does not release that number, or runs on an engine,
    where every round of steps is another pass, 'auto' needs a public `n_rows` that is enough for steps.
    """
    if blocks is not None:
        return "tukey"
    if n_rows is None or n_features is None:
        return "additive" if counts else "boosted_ada_ssp"
    noise = math.sqrt(3) / float(gaussian_mu(epsilon, delta)) * (n_features + 1)
    if noise < n_rows / 1000:
        return "ada_ssp"
    enough = n_features > 0 and n_rows >= steps_rows_needed(n_features, float(gaussian_mu(epsilon, delta)))
    return "additive" if counts or enough else "boosted_ada_ssp"


def before_additive(
    record: dict[str, Json], earlier: Iterable[dict[str, Json]], automatic: bool | None
) -> Iterator[dict[str, Json]]:
    """Yield a call's earlier records, and each of them with boosting if 'auto' is additive now."""
    records = [record, *earlier]
    yield from records[1:]
    if record["method"] == "additive" and automatic:
        yield from (entry | {"method": "boosted_ada_ssp"} for entry in records)
