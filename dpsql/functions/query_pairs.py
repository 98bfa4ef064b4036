"""The moments of pairs of columns of a core: of each pair three numbers of a row, in one vector with all other pairs.

With u and v the values of both columns in units of half of their bounds, from their middle, and w the mean of u and v,
all three are between -1 and 1; a row in which one of both has no value has none of them. Variances of u, v and w tell
the covariance, and all aggregates of a pair follow (`dpsql.released.query`). The sensitivity is that of a vector of
such targets, whatever the bounds are: so these may be drawn by another part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from dpsql.contract.arguments import Argument, Signature
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import known
from dpsql.functions.grouped.drawn_bounds import UNIT_BOUNDS, ValueCode
from dpsql.functions.query_bounds import Intervals
from dpsql.functions.query_vector import VectorCall, VectorPlan
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.mechanisms.interval_scan import PrivateInterval
from dpsql.released.intervals import interval_record
from dpsql.statistics.aggregates import AVG, COUNT, VARIANCE

Ends = tuple[float, float]
Pair = tuple[str, str]
_MOMENTS = (COUNT, AVG, VARIANCE)


def _pairs(given: object) -> tuple[Pair, ...]:
    return tuple((known(str, first), known(str, second)) for first, second in known(tuple, given))


def _bounds(given: object) -> tuple[tuple[str, Ends], ...]:
    listed = known(tuple, given)
    return tuple((known(str, name), (known(float, low), known(float, high))) for name, (low, high) in listed)


def half_units(lower: float, upper: float) -> ValueCode:
    """Return the middle of an interval, and half of its width as the scale."""
    return ValueCode(lower, upper, lower / 2 + upper / 2, upper / 2 - lower / 2, 0, 0)


@dataclass(frozen=True, kw_only=True)
class PairsPlan(VectorPlan):
    """The plan of the moments of all pairs of a core."""

    pairs: tuple[Pair, ...]
    ends: tuple[tuple[str, Ends], ...]  # public bounds by column; those of others are drawn

    function: ClassVar[str] = "dp_query.pairs"
    arguments: ClassVar[Signature] = Signature(
        *VectorPlan.arguments.values(),
        Argument("pairs", "The columns of each pair.", check=_pairs),
        Argument("ends", "The public bounds of columns.", check=_bounds),
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(given, layout), **cls._read(given, "pairs", "ends")}

    @cached_property
    def bounds_of(self) -> Mapping[str, Ends]:
        """The public bounds by column."""
        return dict(self.ends)

    @cached_property
    def unbounded(self) -> tuple[str, ...]:
        """The columns whose bounds another part draws."""
        names = dict.fromkeys(name for pair in self.pairs for name in pair)
        return tuple(name for name in names if name not in self.bounds_of)

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """The keys, and of each pair both columns; the third number of a pair follows from them."""
        found = dict(super().row_columns or {})
        for number, (first, second) in enumerate(self.pairs):
            found |= {f"t{3 * number}": first, f"t{3 * number + 1}": second, f"t{3 * number + 2}": second}
        return found


def pair_arguments(pairs: Sequence[Pair], bounds: Mapping[str, Ends]) -> dict[str, object]:
    """Return the arguments of the plan of some pairs, with the public bounds of columns."""
    names = [f"dpsql_{name}{number}" for number in range(len(pairs)) for name in "uvw"]
    lower, upper = UNIT_BOUNDS
    return {
        "target": names,
        "wanted": (_MOMENTS,) * len(names),
        "whole": (False,) * len(names),
        "lowest": (lower,) * len(names),
        "highest": (upper,) * len(names),
        "pairs": tuple(pairs),
        "ends": tuple(bounds.items()),
    }


@dataclass(frozen=True)
class PairsCall(VectorCall):
    """A call of the moments of pairs.

    Attributes
    ----------
    found : tuple of PrivateInterval
        The bounds of each column without public ones, once they were drawn.
    """

    plan: PairsPlan
    found: tuple[PrivateInterval, ...] = ()

    def within(self, found: Intervals) -> Self:
        """Return the call that knows the bounds of its columns."""
        return replace(self, found=tuple(found[name] for name in self.plan.unbounded))

    @property
    def drawn_codes(self) -> list[ValueCode]:
        """The middle and half of the width of the bounds that were drawn."""
        return [half_units(*(one.ends or UNIT_BOUNDS)) for one in self.found]

    def _record(self, noisy: Sequence[NoisyBlock], labels: Sequence[Sequence[str | None]]) -> dict[str, Json]:
        """Return what the ledger keeps, with the bounds that were drawn."""
        drawn = zip(self.plan.unbounded, self.found, strict=True)
        intervals: dict[str, Json] = {name: interval_record(one) for name, one in drawn}
        return {**super()._record(noisy, labels), **({"intervals": intervals} if intervals else {})}
