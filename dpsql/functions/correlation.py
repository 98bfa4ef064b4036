"""dp_correlation: a private correlation matrix of columns within public bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsql.contract.arguments import Signature
from dpsql.functions.feature_moments import MomentsCall, MomentsPlan, moments_signature


@dataclass(frozen=True, kw_only=True)
class CorrelationPlan(MomentsPlan):
    """The checked public arguments of one ``dp_correlation`` call."""

    function: ClassVar[str] = "dp_correlation"
    arguments: ClassVar[Signature] = moments_signature()
    fewest_features: ClassVar[int] = 2


class CorrelationCall(MomentsCall):
    """A dp_correlation call, with the column types of its source."""

    plan: CorrelationPlan
