"""dp_query: a query of plain SQL, as one release of all its private aggregates.

The query is split (`dpsql.contract.query`) into cores and the results that follow from their answers. A core is
answered in parts: its counts and sums as one vector, the quantiles of each column, moments of pairs of columns, and
numbers of different items. Every part has an equal share of epsilon; the parts that need delta get equal shares of it.
All parts are one measurement: they have one ticket, one gate and one charge, and one transaction draws their noise.

By basic composition the parts together cost epsilon and delta: they read tables that differ in one privacy unit, and
each part bounds the unit by itself.

With ``max_rows_per_unit := 'drawn'`` a part of each core draws how many rows of a person count, and the other parts use
this limit (`dpsql.functions.query_rows`). The draw costs its share. The limit chooses the other mechanisms, and each
costs its own share at any limit.

If columns have no public bounds, a part of each core draws them once, for all other parts that need them
(`dpsql.functions.query_bounds`); each of these parts gives up a quarter of its share for the bounds.

If a core has private keys, one of its parts draws the groups once, at its share of epsilon and the core's share of
delta (`dpsql.mechanisms.partition_selection`). Every other part of the core answers exactly these groups: the keys are
public after their release, so the part is a mechanism with public keys, chosen by earlier releases. Such a part costs
its share of epsilon for any keys, and composition is basic for adaptively chosen mechanisms too: all parts cost
epsilon, and the part that draws keys also costs delta. Each part limits a unit's rows by itself, over the rows of its
groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from dpsql.contract import parameters
from dpsql.contract.arguments import EPSILON, OPTIONAL_DELTA, RELEASE, REQUIRED, Argument, Signature, flag
from dpsql.contract.call import Call, TargetCode
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import Plan, Quantity
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import AggregateCall, CountPlan
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE, USUAL_SHARE, LeftOutPlan
from dpsql.functions.grouped.plan import CONFIDENCE, MAX_GROUPS_PER_UNIT
from dpsql.functions.query_bounds import CoreBoundsCall, CoreBoundsPlan
from dpsql.functions.query_margins import MarginsCall, MarginsPlan
from dpsql.functions.query_rows import CoreQuantileCall, CoreQuantilePlan, RowsCall, RowsPlan
from dpsql.functions.query_vector import DisjointCall, DisjointPlan, PairsCall, PairsPlan, VectorCall, VectorPlan
from dpsql.progress import Progress

# The plans and calls of parts, by the names of their functions.
PARTS: Mapping[str, tuple[type[Plan], type[Call]]] = {
    VectorPlan.function: (VectorPlan, VectorCall),
    DisjointPlan.function: (DisjointPlan, DisjointCall),
    CountPlan.function: (CountPlan, AggregateCall),
    CoreBoundsPlan.function: (CoreBoundsPlan, CoreBoundsCall),
    CoreQuantilePlan.function: (CoreQuantilePlan, CoreQuantileCall),
    PairsPlan.function: (PairsPlan, PairsCall),
    RowsPlan.function: (RowsPlan, RowsCall),
    MarginsPlan.function: (MarginsPlan, MarginsCall),
}

_SHARE = LEFT_OUT_SHARE.name
# The fields that name the earlier parts of a part.
_EARLIER = ("keys_of", "rows_of", "bounds_of")

SQL = Argument(
    "sql", "One SELECT of at most 100,000 characters, as text or as a parameter.", default_text=REQUIRED, kind="str"
)
ARGUMENTS = Signature(
    EPSILON,
    replace(
        OPTIONAL_DELTA,
        doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, "
        "and keys may be private.",
    ),
    flag("errors", "Whether every column of noisy numbers has its error, interval and verdict beside it.", False),
    Argument(
        "keys",
        "Public values of the columns to group by, which the owner has not stated: a struct of lists by column. "
        "'private' releases keys that many units have, and needs delta.",
        default_text="what the query and the owner say",
        kind="Keys",
    ),
    Argument(
        "lower",
        "Public lower bounds of columns whose values are summed, a struct by column.",
        default_text="what the query and the owner say, or drawn privately",
        kind="Bounds",
    ),
    Argument("upper", "Public upper bounds, in the same form as lower.", default_text="as lower", kind="Bounds"),
    Argument(
        "during",
        "Periods whose rows count, and whose budgets are charged: '2026-10', a list of names, or '2026-01/2026-12' "
        "from the first to the last.",
        default_text="required where the owner stated periods",
        kind="Names",
    ),
    Argument(
        "max_rows_per_unit",
        "Rows that one person may contribute, from 1 to 1000000000, of those that a core groups. A random choice of "
        "them counts. 'drawn' spends 5 % of epsilon to draw it: the 99th percentile of the rows per person.",
        default_text="stated by the owner",
        kind="Integer",
    ),
    MAX_GROUPS_PER_UNIT,
    replace(
        LEFT_OUT_SHARE,
        doc="Share of epsilon, from 0 to below 1, that tells how many persons have more rows than count, and how much "
        "fell away. Numbers are 'biased' where that is more than their intervals show.",
        default_text="0.05, where a person may have more rows than count",
        earlier=(),
    ),
    CONFIDENCE,
    RELEASE,
    Argument(
        "max_age",
        "How old an answer to the same query may be to be returned again at no cost: an INTERVAL, or a number of "
        "hours.",
        default_text="24 hours; with release, any age",
        kind="Number",
    ),
    flag(
        "estimate",
        "Whether it is only told what the query would cost, and how noisy its columns would be; nothing is read or "
        "charged.",
        False,
    ),
    flag("fresh", "Whether the query is asked anew, at a charge, although its answer is stored.", False),
)


@dataclass(frozen=True)
class QueryPart:
    """One part of a query.

    Attributes
    ----------
    core : int
        The number of its core, from 0.
    plan : Plan
    keys_of : int or None
        The number of an earlier part of the same core, whose released keys are the groups of this part.
    rows_of : int or None
        The number of the earlier part that draws how many rows of a person count in this part.
    bounds_of : int or None
        The number of the earlier part that draws the bounds of its columns.
    unused : mapping
        Arguments that the part does not use, as earlier versions recorded them.
    """

    core: int
    plan: Plan
    keys_of: int | None = None
    rows_of: int | None = None
    bounds_of: int | None = None
    unused: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the part as JSON values."""
        numbers = {name: getattr(self, name) for name in _EARLIER}
        known_of = {name: part for name, part in numbers.items() if part is not None}
        unused: dict[str, Json] = {"unused": dict(self.unused)} if self.unused else {}
        return {"core": self.core, "plan": self.plan.to_json(), **known_of, **unused}

    @classmethod
    def read(cls, record: Mapping[str, object]) -> Self:
        """Return the part that `to_json` wrote."""
        plan = json.loads(narrow(str, record["plan"]))
        numbers = {name: record.get(name) for name in _EARLIER}
        earlier = {name: None if part is None else narrow(int, part) for name, part in numbers.items()}
        unused = narrow(dict, record.get("unused") or {})
        kind = PARTS[plan.pop("function")][0]
        return cls(narrow(int, record["core"]), kind.from_record(plan), **earlier, unused=unused)

    @property
    def call(self) -> type[Call]:
        """Return the class of its call."""
        return PARTS[self.plan.function][1]


@dataclass(frozen=True, kw_only=True)
class QueryPlan(Plan):
    """The checked public arguments of one ``dp_query`` call, with the plans of its parts."""

    delta: Fraction | None
    parts: tuple[QueryPart, ...]
    answer: str = ""  # how rows follow from the answers of all parts, as JSON text; not part of the call's name
    untold: bool = False  # whether the call skips the measure of rows beyond row limits

    function: ClassVar[str] = "dp_query"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = ARGUMENTS

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        raise InternalError("I032", "a query was planned without its parts. Report it.")

    @property
    def told_rows(self) -> int | None:
        """Return how many rows of a unit count at most; None if the limit is drawn."""
        return None if any(part.rows_of is not None for part in self.parts) else self.max_rows_per_unit

    @property
    def lineage(self) -> dict[str, Json] | None:
        """Return the source of the rows for the ledger, with the rules for the rows of the result."""
        lineage = super().lineage
        return lineage if lineage is None or not self.answer else {**lineage, "answer": json.loads(self.answer)}

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurements of all parts."""
        return measurement_of(*(part.plan.measurement for part in self.parts))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return nothing: the function of each part returns its own noise."""
        return []

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """Return the arguments of every part, see `Plan.public_arguments`."""
        parts: list[Json] = [
            {"core": part.core, "function": part.plan.function, "arguments": part.plan.public_arguments}
            for part in self.parts
        ]
        record = {
            "source": self.source,
            "dataset": self.dataset,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta) if self._spends_delta else None,
            "neighbours": self.neighbours,
            "max_rows_per_unit": self.max_rows_per_unit,
            "layout": {name: value for name, value in vars(self.layout).items() if value is not None},
            "during": None if self.during is None else self.during.to_json(),
            "parts": parts,
            _SHARE: "0" if self.untold else None,
        }
        return {name: value for name, value in record.items() if value is not None}

    @property
    def _spends_delta(self) -> bool:
        return self.delta is not None and any(getattr(part.plan, "delta", None) is not None for part in self.parts)

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which did not measure rows beyond row limits.

        Older versions also stored settings that no part uses.
        """
        yield from super().earlier_arguments()
        yield from self._untold_before(self.public_arguments)
        if any(part.unused for part in self.parts):
            recorded = narrow(list, self.public_arguments["parts"])
            parts: list[Json] = [
                {**record, "arguments": {**record["arguments"], **part.unused}}
                for part, record in zip(self.parts, recorded, strict=True)
            ]
            delta: dict[str, Json] = {} if self.delta is None else {"delta": str(self.delta)}
            arguments = {**self.public_arguments, **delta, "parts": parts}
            yield arguments
            yield from self._untold_before(arguments)

    def _untold_before(self, arguments: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which did not measure rows beyond row limits."""
        if self.untold:
            yield {name: value for name, value in arguments.items() if name != _SHARE}
        flags = [isinstance(part.plan, LeftOutPlan) and part.plan.left_out_share == USUAL_SHARE for part in self.parts]
        if any(flags):
            parts: list[Json] = []
            for tells, part in zip(flags, narrow(list, arguments["parts"]), strict=True):
                own = {name: value for name, value in part["arguments"].items() if not tells or name != _SHARE}
                parts.append({**part, "arguments": own})
            yield {**arguments, "parts": parts}

    def _record(self) -> dict[str, object]:
        return {**super()._record(), "parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_record(cls, record: Mapping[str, Json]) -> Self:
        """Return the plan that `to_json` wrote."""
        parts = tuple(QueryPart.read(narrow(dict, part)) for part in narrow(list, record["parts"]))
        return replace(super().from_record({**record, "parts": []}), parts=parts)


@dataclass(frozen=True)
class QueryCall(Call):
    """A call of dp_query, with the calls of its parts.

    Attributes
    ----------
    calls : tuple of Call
        The calls of the parts, each with the column types of its core.
    """

    plan: QueryPlan
    calls: tuple[Call, ...] = ()

    def told(self, calls: Iterable[Call]) -> Self:
        """Return the call with the remarks of its parts: how many rows of a person count, which keys are shown."""
        parts = list(calls)
        limits = [str(call.limit) for call in parts if isinstance(call, RowsCall)]
        remarks = [f"rows per {self.plan.layout.privacy_unit} that count, drawn: {', '.join(limits)}"] if limits else []
        remarks += dict.fromkeys(filter(None, (call.remark for call in parts)))
        return replace(self, left_out="; ".join(remarks)) if remarks else self

    @classmethod
    def of(cls, plan: QueryPlan, calls: Iterable[Call]) -> Self:
        """Return the call with resolved parts."""
        return cls(plan, (), TargetCode(), (), calls=tuple(calls))

    def start(self) -> Collector | None:
        """Return nothing: every part has its own collector."""
        return None

    def prepare(self, statistic: Sequence[tuple[Call, Collector]], progress: Progress) -> Callable[[], Json] | Draw:
        """Return the draw of all parts, from their calls and collectors at the end of their last passes."""
        draws = [call.prepare(collector, progress) for call, collector in statistic]
        run = [draw.run if isinstance(draw, Draw) else draw for draw in draws]

        def all_parts() -> Json:
            return {"parts": [draw() for draw in run]}

        if not any(isinstance(draw, Draw) for draw in draws):
            return all_parts
        spent = (
            draw.measurement if isinstance(draw, Draw) else call.plan.measurement
            for draw, (call, _) in zip(draws, statistic, strict=True)
        )
        return Draw(measurement_of(*spent), all_parts)


def read_age(max_age: object) -> float | None:
    """Return `max_age` in seconds; None without it.

    Raises
    ------
    ParameterError
        P021: it is not a length of time.
    """
    if max_age is None:
        return None
    seconds = getattr(max_age, "total_seconds", None)
    hint = "Give an INTERVAL, or a number of hours such as 24."
    if seconds is not None:
        age = float(seconds())
    else:
        age = 3600.0 * float(parameters.number_from_zero("max_age", max_age, hint=hint))
    if not age >= 0:
        raise ParameterError("P021", f"max_age must not be negative. {hint}")
    return age
