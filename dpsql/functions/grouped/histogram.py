"""dp_histogram: private counts of a column's values between public edges, in groups, with cumulative counts.

Every row is in one bin, or in none if its value is missing and missing values are not counted. Each pair of key and bin
is a group, so a privacy unit has rows in at most `max_groups_per_unit` pairs. Bins never come from the data: edges at
quantiles of the rows would reveal the rows.

=====================  =================================================================  ============================
curve                  noisy numbers                                                      L1, squared L2 (add_remove)
=====================  =================================================================  ============================
identity               every count                                                        K1, K2
tree, wavelet,         the products of a strategy with the counts of each key             K1 a, K1**2 b, see
toeplitz                                                                                  `dpsql.mechanisms.prefix_sums`
=====================  =================================================================  ============================

Replace doubles both. `dpsql.contract.relation` defines K1 and K2. A strategy's products pool the bins of a unit, so K2
does not bound them: two rows in two bins may add up in one product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from dpsql.arrays import Longs
from dpsql.contract import parameters
from dpsql.contract.arguments import (
    BUDGET,
    COLUMN_BOUNDS,
    EPSILON,
    TARGET,
    Argument,
    Signature,
    flag,
    integer,
    word,
)
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout, column_bounds
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.grouped.counts import CountedCall, ValuePlan
from dpsql.functions.grouped.plan import CONFIDENCE, COUNT_DELTA, GROUPS, NOISE, UNIT
from dpsql.functions.value_cells import BinCells, DerivedKey
from dpsql.mechanisms.aggregates import GroupedNoise, drawable_mu, grouped_noise, noise_choice
from dpsql.mechanisms.prefix_sums import MOST_CELLS, STRATEGIES, CumulativeCounts, PrefixStrategy, prefix_strategy
from dpsql.progress import Progress
from dpsql.released.histogram import curve_record, histogram_record
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE, GroupCount, GroupedSums, Sums

# One less than a strategy's limit, for the bin of missing values.
_MOST_BINS = MOST_CELLS - 1
_hint = "Give ascending numbers from public knowledge, such as [0, 10, 20]."


def _bins(bins: object) -> tuple[float, ...] | int:
    """Return the edges, or the number of bins of equal width if `bins` is a bare number."""
    items = parameters.list_items(bins, most=_MOST_BINS)
    if items is None:
        return parameters.positive_integer("bins", bins, hint=_hint, most=_MOST_BINS)
    edges = tuple(parameters.finite_float("an edge of bins", item, hint=_hint) for item in items)
    if not 1 <= len(edges) < _MOST_BINS or any(a >= b for a, b in pairwise(edges)):
        raise ParameterError("P032", f"bins must be 1 to {_MOST_BINS - 1} ascending numbers. {_hint}")
    return tuple(edge + 0.0 for edge in edges)


@dataclass(frozen=True, kw_only=True)
class HistogramPlan(ValuePlan):
    """The checked public arguments of one ``dp_histogram`` call."""

    bins: tuple[float, ...]  # the edges between bins, ascending
    lower: float | None  # None for open ends
    upper: float | None
    null_bin: bool
    delta: Fraction | None
    law: str  # the requested noise
    curve: str
    confidence: Fraction

    function: ClassVar[str] = "dp_histogram"
    divides_rows: ClassVar[bool] = True
    arguments: ClassVar[Signature] = Signature(
        replace(TARGET, doc="Name of the numeric or boolean column.", statistic=False),
        Argument(
            "bins",
            "Public edges, ascending: a bin holds the values above one edge and up to the next, and there is a bin "
            "below the first and one above the last, in place of lower, upper and n_bins. A bare number is n_bins.",
            check=_bins,
            kind="Numbers",
        ),
        EPSILON,
        COUNT_DELTA,
        *(
            replace(bound, doc=f"Public {side} end of the bins, one number. Values are clipped to it.", statistic=False)
            for side, bound in zip(("lower", "upper"), COLUMN_BOUNDS, strict=True)
        ),
        integer(
            "n_bins",
            f"Number of bins of equal width between lower and upper, up to {_MOST_BINS}.",
            hint="20 is usual.",
            most=_MOST_BINS,
        ),
        flag("null_bin", "Whether rows whose value is NULL or NaN are counted in a bin of their own.", True),
        *GROUPS,
        *UNIT,
        NOISE,
        word(
            "curve",
            "What gets noise: every bin by itself ('identity'), or sums of bins, which makes cumulative counts of "
            "many bins more precise and bins less; 'auto' takes the best for cumulative counts.",
            ("auto", *STRATEGIES),
            "identity",
        ),
        CONFIDENCE,
        *BUDGET,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        edges = _edges(arguments)
        own = super()._own(arguments, layout)
        read = cls._read(arguments, "null_bin", "delta", "curve", "confidence")
        law = parameters.narrow(str, NOISE.read(arguments))
        needs = "noise := 'gaussian'" if law == GAUSSIAN else "curve := 'toeplitz'"
        if (law == GAUSSIAN or read["curve"] == "toeplitz") and read["delta"] is None:
            raise ParameterError("P046", f"{needs} needs delta. Give delta, or leave it out.")
        if law == LAPLACE and read["curve"] == "toeplitz":
            raise ParameterError("P045", "curve := 'toeplitz' needs Gaussian noise. Leave noise out, or take 'tree'.")
        return {**own, **edges, **read, "law": law}

    @classmethod
    def _group_count(cls, arguments: Mapping[str, object], keys: PublicKeys | None, *, other: bool) -> int | None:
        count = super()._group_count(arguments, keys, other=other)
        edges = parameters.narrow(tuple, _edges(arguments)["bins"])
        return None if count is None else count * (len(edges) + 1 + bool(arguments["null_bin"]))

    @cached_property
    def derived(self) -> DerivedKey:
        """The bins."""
        return DerivedKey(BinCells(self.bins), -math.inf, math.inf, missing=self.null_bin, divides=True)

    @property
    def ends(self) -> list[float | None]:
        """The ends of all bins in ascending order; None for an open end."""
        return [self.lower, *self.bins, self.upper]

    @cached_property
    def noise_law(self) -> str:
        """The law of the noise: the requested one, or the one with less noise."""
        if self.delta is None or self.law == LAPLACE:
            return LAPLACE
        if self.law == GAUSSIAN or self.curve == "toeplitz":
            return GAUSSIAN
        if self.curve == "identity":
            return noise_choice(self.epsilon, self.delta, self.contribution)
        linear = self.contribution.relation.norm(self.contribution.rows)
        squared = self.contribution.relation.squared_norm(self.contribution.rows**2, opposing=False)
        laplace, gaussian = (
            prefix_strategy(self.derived.count, name=self.curve, noise=law).mean_variance(law)
            for law in (LAPLACE, GAUSSIAN)
        )
        mu = drawable_mu(self.epsilon, self.delta, self.contribution.changed_groups)
        if mu is None:
            return LAPLACE
        wider = 2 * laplace * float(linear / self.epsilon) ** 2 > gaussian * float(squared / mu**2)
        return GAUSSIAN if wider else LAPLACE

    @property
    def strategy(self) -> PrefixStrategy | None:
        """The matrix that multiplies the counts; None if every count gets its own noise."""
        if self.curve == "identity":
            return None
        strategy = prefix_strategy(self.derived.count, name=self.curve, noise=self.noise_law)
        return None if strategy.name == "identity" else strategy

    @cached_property
    def mu(self) -> Fraction | None:
        """Mu of Gaussian noise; None for Laplace noise."""
        return usable_mu(self.epsilon, self.delta) if self.delta is not None and self.noise_law == GAUSSIAN else None

    @cached_property
    def part(self) -> GroupedNoise | CumulativeCounts:
        """The part that draws the noise."""
        if self.strategy is None:
            return grouped_noise("counts", self.epsilon, self.delta, self.contribution, (GroupCount(),), self.noise_law)
        delta = None if self.mu is None else self.delta
        return CumulativeCounts("counts", self.epsilon, delta, self.mu, self.neighbours, self.contribution.rows)

    @cached_property
    def measurement(self) -> Measurement:
        """One mechanism for all keys and bins."""
        return measurement_of(self.part)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise."""
        if isinstance(self.part, GroupedNoise):
            return self.part.laplace_scales()
        return () if self.mu is not None or self.strategy is None else (self.part.laplace_scale(self.strategy),)

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the mu of one row."""
        if isinstance(self.part, GroupedNoise):
            return self.part.gaussian_parts()
        return () if self.mu is None else (self.mu / self.contribution.rows,)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call."""
        count, last = histogram_errors(self)
        out: list[Quantity] = [
            ("count_std_error", count, "standard deviation of the noise on the rows of a bin, on average"),
            ("cumulative_std_error", last, "that of the rows up to the end of a bin, on average"),
        ]
        if n_rows is not None:
            out.append(("share_std_error", count / n_rows, "that of a bin, as a share of the rows"))
        return out


def _edges(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the edges between bins, and the ends of the outermost ones."""
    bins = None if arguments.get("bins") is None else _bins(arguments["bins"])
    ends, count = [arguments.get("lower"), arguments.get("upper")], arguments.get("n_bins")
    if bins is not None and count is not None:
        raise ParameterError("P045", "bins excludes n_bins. Give one or the other.")
    if isinstance(bins, tuple):
        if any(end is not None for end in ends):
            raise ParameterError("P045", "a list of bins excludes lower and upper. Give one or the other.")
        return {"bins": bins, "lower": None, "upper": None}
    if bins is not None and any(end is None for end in ends):
        raise ParameterError(
            "P046",
            f"bins := {bins} is a number of bins, which needs lower and upper. Give lower := ..., upper := ..., from "
            f"public knowledge; for one edge at {bins}, give bins := [{bins}].",
        )
    count = bins if count is None else count
    if count is None or any(end is None for end in ends):
        raise ParameterError("P046", "bins are missing. Give bins := [...], or lower, upper and n_bins.")
    lower, upper = column_bounds(arguments, "dp_histogram reads one column").values()
    count = parameters.positive_integer("n_bins", count, hint="20 is usual.", most=_MOST_BINS)
    start, width = Fraction(lower), Fraction(upper) - Fraction(lower)
    edges = tuple(float(start + width * number / count) for number in range(count + 1))
    if any(a >= b for a, b in pairwise(edges)):
        raise ParameterError("P036", f"{count} bins between {lower} and {upper} are finer than doubles.")
    return {"bins": edges[1:-1], "lower": lower, "upper": upper}


def histogram_errors(plan: HistogramPlan) -> tuple[float, float]:
    """Return the mean standard deviations of the noise on a bin and on a cumulative count."""
    part, strategy, bins = plan.part, plan.strategy, len(plan.bins) + 1
    if isinstance(part, GroupedNoise):
        deviation = part.lattices[0].deviation * math.ldexp(1.0, part.lattices[0].bits)
        return deviation, deviation * float(np.sqrt(np.arange(1, bins + 1)).mean())
    if strategy is None:
        raise TypeError("the part is of another plan")
    deviation = part.deviation(strategy)
    return (
        deviation * float(np.sqrt(strategy.unit_cell_variances[:bins]).mean()),
        deviation * float(np.sqrt(strategy.unit_variances[:bins]).mean()),
    )


class HistogramCall(CountedCall):
    """A dp_histogram call, with the column types of its source."""

    plan: HistogramPlan

    def prepare(self, statistic: GroupedSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of all bins."""
        plan, labels, types = self.plan, self.places.labels, self.types
        counts = self.counts(statistic)
        return lambda: {**histogram_record(plan, labels, types), **draw_histogram(plan, counts)}


def draw_histogram(plan: HistogramPlan, counts: Longs) -> dict[str, Json]:
    """Draw all bins of all keys; return the record for the ledger.

    Parameters
    ----------
    plan : HistogramPlan
    counts : ndarray of int64, shape (groups, bins)

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``; with Gaussian noise (epsilon, delta)-DP and mu-GDP.
    - **Sensitivity**: see the module docstring.
    """
    if isinstance(plan.part, GroupedNoise):
        flat = counts.ravel()
        [noisy] = plan.part.draw([Sums(flat, np.zeros_like(flat))])
        return curve_record(noisy, counts.shape[1])
    if plan.strategy is None:
        raise TypeError("the part is of another plan")
    released = plan.part.draw(counts, plan.strategy)
    return {
        "curve": plan.strategy.name,
        "noise": plan.noise_law,
        "deviation": plan.part.deviation(plan.strategy),
        "sums": released.sums.tolist(),
    }
