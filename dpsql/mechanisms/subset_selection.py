"""The part of a measurement that draws one of all k-subsets, at once or in steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from dpsql.contract.events import Event, SubsetExponential
from dpsql.contract.measurement import Part, sampled
from dpsql.mechanisms.subset_exponential import subset_exponential, top_r_exponential
from dpsql.mechanisms.subset_steps import subset_steps

Draw = Callable[..., tuple[int, ...]]
LAWS: Mapping[str, Draw] = MappingProxyType(
    {"exact": subset_exponential, "steps": subset_steps, "top_r": top_r_exponential}
)


@dataclass(frozen=True)
class SubsetSelection(Part):
    """One of all k-subsets.

    Attributes
    ----------
    epsilon : Fraction
    k : int
    method : {'auto', 'exact', 'steps', 'top_r'}
        As the call has it; for 'auto' public numbers that a call's columns give decide which law is drawn.

    Notes
    -----
    Every law is epsilon-DP and ``epsilon**2 / 8``-zCDP: see the three mechanisms.
    """

    epsilon: Fraction
    k: int
    method: str

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return SubsetExponential(self.epsilon, self.k, self.method)

    @sampled
    def draw(self, law: str, /, *given: object, **named: object) -> tuple[int, ...]:
        """Select a subset by one of `LAWS`; parameters as of the mechanism, less epsilon."""
        return LAWS[law](*given, epsilon=self.epsilon, **named)
