"""dp_covariance: a private covariance matrix of columns within public bounds.

**Correlations.** dp_correlation: a private correlation matrix of columns within public bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Rational
from typing import ClassVar

from dpsql.contract.arguments import Argument, Signature, flag
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import show
from dpsql.errors import ParameterError
from dpsql.functions.feature_moments import MomentsCall, MomentsPlan, moments_signature
from dpsql.progress import Progress
from dpsql.statistics.feature_moments import CompleteProducts


def _ddof(given: object) -> int:
    if isinstance(given, (Rational, Decimal, float)) and not isinstance(given, bool) and given in (0, 1):
        return 0 if given == 0 else 1
    raise ParameterError(
        "P005",
        f"ddof must be one of 0, 1; got {show(given)}. Give 1 for the covariance of a sample, as covar_samp, or 0 for "
        "covar_pop.",
    )


@dataclass(frozen=True, kw_only=True)
class CovariancePlan(MomentsPlan):
    """The checked public arguments of one ``dp_covariance`` call."""

    ddof: int

    function: ClassVar[str] = "dp_covariance"
    arguments: ClassVar[Signature] = moments_signature(
        Argument(
            "ddof",
            "The divisor of a covariance is the number of rows less this: 1 as covar_samp, 0 as covar_pop.",
            1,
            check=_ddof,
        )
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), **cls._read(given, "ddof")}


class CovarianceCall(MomentsCall):
    """A dp_covariance call, with the column types of its source."""

    plan: CovariancePlan

    def prepare(self, statistic: CompleteProducts, progress: Progress) -> Callable[[], dict[str, Json]]:
        """Return the draw of the moments, whose record has the divisor."""
        draw = super().prepare(statistic, progress)
        return lambda: {**draw(), "ddof": self.plan.ddof}


@dataclass(frozen=True, kw_only=True)
class CorrelationPlan(MomentsPlan):
    """The checked public arguments of one ``dp_correlation`` call."""

    sampling: bool | None = None  # None for false, as calls were recorded before there was this

    function: ClassVar[str] = "dp_correlation"
    arguments: ClassVar[Signature] = moments_signature(
        flag(
            "sampling",
            "Whether the interval is about the population that the rows are from, rather than about these rows, at no "
            "further cost.",
            False,
        )
    )
    fewest_features: ClassVar[int] = 2

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), "sampling": cls.arguments["sampling"].read(given) or None}


class CorrelationCall(MomentsCall):
    """A dp_correlation call, with the column types of its source."""

    plan: CorrelationPlan

    def prepare(self, statistic: CompleteProducts, progress: Progress) -> Callable[[], dict[str, Json]]:
        """Return the draw of the moments, whose record says whether sampling counts."""
        draw, plan = super().prepare(statistic, progress), self.plan
        return lambda: {**draw(), **({"sampled": plan.max_rows_per_unit} if plan.sampling else {})}
