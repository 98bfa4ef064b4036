"""The parts that answer the cores of a query, and the place of each answer in their results.

The module lists the aggregates of a core by column, and the bounds of these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from dpsql.contract.json import Json
from dpsql.contract.keys import MOST_GROUPS, PRIVATE, RELEASED, PublicKeys
from dpsql.contract.parameters import fold, narrow, show
from dpsql.contract.plan import Placement, Plan
from dpsql.contract.query.split import QueryAggregate, QueryCore
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import CountPlan
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE, LeftOutPlan
from dpsql.functions.grouped.plan import CONFIDENCE
from dpsql.functions.query import (
    DisjointPlan,
    KeysPlan,
    MarginsPlan,
    PairsPlan,
    QueryPart,
    QueryPlan,
    VectorPlan,
    pair_arguments,
)
from dpsql.functions.query_bounds import SHARE as BOUNDS_SHARE
from dpsql.functions.query_bounds import CoreBoundsPlan
from dpsql.functions.query_rows import AT, DRAWN, SHARE, STEPS, CoreQuantilePlan, ExtremesPlan, RowsPlan, limits_up_to
from dpsql.rendering import call, identifier, text
from dpsql.statistics.aggregates import AVG, COUNT, STDDEV, SUM, VARIANCE

# A column of a core with a value in every row.
ALL = "dpsql_all"
# The drawn number for an aggregate of a column.
VALUED = {
    "sum": SUM,
    "avg": AVG,
    "var_samp": VARIANCE,
    "var_pop": VARIANCE,
    "stddev_samp": STDDEV,
    "stddev_pop": STDDEV,
    "values": COUNT,
}


@dataclass(frozen=True)
class ColumnPair:
    """A pair of columns; bounds are None if they are drawn."""

    first: str
    second: str
    bounds: tuple[tuple[float, float] | None, tuple[float, float] | None]


def counts_disjoint(core: QueryCore) -> bool:
    """Return whether a core's vector is mutually exclusive counts with the core's own public keys."""
    return core.disjoint and not core.private_keys and core.margin_of is None


def aggregate_of(core: QueryCore, aggregate: QueryAggregate) -> str:
    """Return the drawn number for an aggregate of a vector: a count of disjoint conditions is a count of rows."""
    return COUNT if aggregate.kind == "rows" or counts_disjoint(core) else VALUED[aggregate.kind]


def vectors_of(core: QueryCore) -> list[dict[str, list[str]]]:
    """Return the vector of a core, as the aggregates by target; empty without aggregates."""
    targets: dict[str, list[str]] = {}
    for aggregate in core.aggregates:
        if aggregate.kind != "rows" and aggregate.kind not in VALUED:
            continue
        names = targets.setdefault(ALL if aggregate.kind == "rows" else str(aggregate.column), [])
        name = aggregate_of(core, aggregate)
        if name not in names:
            names.append(name)
    return [targets] if targets else []


def public_bounds_of(core: QueryCore) -> dict[str, tuple[float, float]]:
    """Return the public bounds of columns."""
    bounds: dict[str, tuple[float, float]] = {}
    for aggregate in core.aggregates:
        for name, lower, upper in (
            (aggregate.column, aggregate.lower, aggregate.upper),
            (aggregate.other, aggregate.other_lower, aggregate.other_upper),
        ):
            if name is not None and lower is not None and upper is not None:
                bounds[name] = float(lower), float(upper)
    return bounds


def unbounded_of(core: QueryCore, *, summed: bool) -> list[str]:
    """Return the columns with drawn bounds, each once; `summed` says whether this core draws sums."""
    bounds, columns = public_bounds_of(core), dict[str, None]()
    for aggregate in core.aggregates:
        is_sum = summed and aggregate.kind in VALUED and aggregate_of(core, aggregate) != COUNT
        if is_sum or (aggregate.kind in RANKED and core.keys) or aggregate.other is not None:
            columns |= dict.fromkeys(
                name for name in (aggregate.column, aggregate.other) if name is not None and name not in bounds
            )
    return list(columns)


def quantiles_of(core: QueryCore) -> dict[tuple[str, str], list[Fraction]]:
    """Return the quantiles of each kind and column, ascending."""
    quantiles: dict[tuple[str, str], set[Fraction]] = {}
    for aggregate in core.aggregates:
        if aggregate.kind in RANKED and aggregate.quantile is not None:
            quantiles.setdefault((aggregate.kind, str(aggregate.column)), set()).add(aggregate.quantile)
    return {column: sorted(numbers) for column, numbers in quantiles.items()}


def pairs_of(core: QueryCore) -> list[ColumnPair]:
    """Return the pairs of columns with requested moments, each once, in order of first appearance."""
    pairs: dict[tuple[str, str], ColumnPair] = {}
    bounds = public_bounds_of(core)
    for aggregate in core.aggregates:
        if aggregate.other is None:
            continue
        pair = str(aggregate.column), aggregate.other
        if pair not in pairs and pair[::-1] not in pairs:
            pairs[pair] = ColumnPair(*pair, (bounds.get(pair[0]), bounds.get(pair[1])))
    return list(pairs.values())


# The parts that draw quantiles of a column, by the kind of their aggregates.
RANKED: Mapping[str, type[CoreQuantilePlan]] = {"quantile": CoreQuantilePlan, "extreme": ExtremesPlan}
# From this epsilon of a column's bounds on, noise for all of a person's rows leaves fewer rows beyond the ends.
ALL_ROWS = 8
# The parts that are drawn before the parts that share epsilon.
_BEFORE = (RowsPlan, CoreBoundsPlan)
# The source's name in messages and in the ledger.
SOURCE = "the query"
# The column that marks persons with a value in some row.
_SOME = "dpsql_some"
_DIFFERENT = ("units", "items")
# The argument of a part that does not measure rows beyond row limits.
_NOT_TOLD: Mapping[str, object] = {LEFT_OUT_SHARE.name: 0}


@dataclass(frozen=True)
class PlacedCore:
    """A core, and the source of its rows.

    Attributes
    ----------
    core : QueryCore
    placement : Placement
    protection : mapping
        The owner's declarations about its budget: ``neighbours``, and the dates of its rows.
    """

    core: QueryCore
    placement: Placement
    protection: Mapping[str, object] = field(default_factory=dict)


@dataclass
class _Part:
    """A part that does not have a share of the budget yet."""

    core: int
    kind: type[Plan]
    arguments: dict[str, object]
    more: dict[str, str] = field(default_factory=dict)  # additional columns, as SQL
    takes_delta: bool = True
    needs_delta: bool = False
    keys_of: int | None = None  # the part that releases its keys
    rows_of: int | None = None  # the part that draws its limit on rows
    needs: tuple[str, ...] = ()  # the columns with drawn bounds
    bounds_of: int | None = None  # the part that draws these bounds
    weight: Fraction = Fraction(1)  # of its share of epsilon


@dataclass
class Answers:
    """The place of the answer of every aggregate of a core, and the part that releases the keys of its groups.

    Attributes
    ----------
    parts : int
        The number of the first part.
    listed : list of dict
        By aggregate: the part, the position of the target in it, the number to read, and the SQL type.
    margin : _Margin or None
        The grouping set of the core, if several sets share their sums.
    limit : int or None
        The part that draws how many rows of a person count; grouping sets share it.
    vectors : dict
        By target: its part, and its place in the part.
    once : bool
        Whether a person has one row, so that no limit drops any rows.
    earlier : bool
        Whether the parts are those of earlier versions, whose private keys were released by the vector of a core.
    """

    parts: int
    listed: list[dict[str, Json]] = field(default_factory=list)
    margin: _Margin | None = None
    limit: int | None = None
    vectors: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    once: bool = False
    earlier: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the answers as JSON values."""
        of_set: dict[str, Json] = {} if self.margin is None else {"keys_set": self.margin.number}
        return {"keys_of": self.parts, "answers": list(self.listed), **of_set}


def parts_of_cores(
    cores: Sequence[PlacedCore],
    arguments: Mapping[str, object],
    epsilon: Fraction,
    delta: Fraction | None,
    *,
    earlier: bool = False,
) -> tuple[tuple[QueryPart, ...], list[Answers]]:
    """Return the parts of a query, and the places of the answers.

    Parameters
    ----------
    cores : sequence of PlacedCore
    arguments : mapping
        Arguments for all cores: ``max_rows_per_unit``, ``max_groups_per_unit``, ``confidence``, ``during``.
    epsilon, delta : Fraction
        Budget of the whole query.
    earlier : bool
        Whether to return the parts of earlier versions, for stored releases.

    Raises
    ------
    ParameterError
        An argument does not fit, or bounds are missing.
    """
    drafts: list[_Part] = []
    answers: dict[int, Answers] = {}
    drawing = _draws_rows(arguments)
    most = limits_up_to(_stated_rows(cores)) if drawing else ()
    margins = _margins([placed.core for placed in cores])
    coarse = [number for number in range(len(cores)) if number in margins and margins[number].finest != number]
    for number in [*(number for number in range(len(cores)) if number not in coarse), *coarse]:
        placed, margin = cores[number], margins.get(number)
        draws = drawing and not placed.placement.once
        shared = _shared(placed, arguments, most if draws else ())
        of_finest = None if margin is None or margin.finest == number else answers[margin.finest]
        limit = None if of_finest is None else of_finest.limit
        if draws and "privacy_unit" in shared and of_finest is None:
            limit = len(drafts)
            drafts.append(_rows(number, shared, most))
        lacking = unbounded_of(placed.core, summed=of_finest is None)
        bounds = len(drafts) if lacking else None
        first, once = len(drafts) + len(lacking[:1]), placed.placement.once
        answers[number] = Answers(first, margin=margin, limit=limit, once=once, earlier=earlier)
        own = _parts(number, placed.core, shared, answers[number], of_finest)
        for draft in [*_bounds(number, shared, lacking), *own]:
            part = replace(draft, bounds_of=bounds) if draft.needs else draft
            is_stated = limit is None or draft.arguments["max_rows_per_unit"] != most[-1]
            drafts.append(part if is_stated else replace(part, rows_of=limit, takes_delta=False))
    needing = [draft for draft in drafts if draft.needs_delta] or [draft for draft in drafts if draft.takes_delta]
    shares = _shares(drafts, epsilon)
    parts = []
    for drafted, share in zip(drafts, shares, strict=True):
        draft = drafted if earlier else _by_persons(drafted, share)
        placed = cores[draft.core]
        settings = {**draft.arguments, "epsilon": share}
        if delta is not None and any(drafted is candidate for candidate in needing):
            settings["delta"] = delta / len(needing)
        plan, unused = _planned(draft.kind, settings, placed, arguments.get(LEFT_OUT_SHARE.name))
        item = _item(placed.core, draft.more)
        placement = replace(placed.placement, joined=item)
        plan = replace(plan, placement=placement)
        parts.append(QueryPart(draft.core, plan, draft.keys_of, draft.rows_of, draft.bounds_of, unused))
    return tuple(parts), [answers[number] for number in range(len(cores))]


def has_earlier_parts(plan: QueryPlan) -> bool:
    """Return whether earlier versions had other parts for the query: rows drew private keys and bounds, not persons."""
    return any(isinstance(part.plan, CoreBoundsPlan) or part.keys_of is not None for part in plan.parts)


def _planned(
    kind: type[Plan], arguments: Mapping[str, object], placed: PlacedCore, share: object
) -> tuple[Plan, dict[str, Json]]:
    """Return the plan of a part, and its unused arguments, as earlier versions recorded them.

    The part measures rows beyond row limits if there may be any, for the given share. The plan omits a delta that none
    of its noise spends. It also omits the confidence, which applies when answers are read, except in quantile parts:
    the question is the same with and without both.
    """
    protection = dict(placed.protection)
    plan = kind.from_arguments(SOURCE, dict(arguments), protection)
    if share is not None and isinstance(plan, LeftOutPlan) and plan.measures_left_out:
        arguments = {**arguments, LEFT_OUT_SHARE.name: share}
        plan = kind.from_arguments(SOURCE, dict(arguments), protection)
    spare = [
        *(["delta"] if arguments.get("delta") is not None and arguments.get("keys") != PRIVATE else []),
        *(
            []
            if issubclass(kind, CoreQuantilePlan) or arguments.get("confidence") in (None, CONFIDENCE.default)
            else ["confidence"]
        ),
    ]
    if not spare:
        return plan, {}
    question = plan.public_arguments
    for name in spare:
        without = {other: value for other, value in arguments.items() if other != name}
        bare = kind.from_arguments(SOURCE, without, protection)
        if bare.measurement == plan.measurement:
            arguments, plan = without, bare
    return plan, {name: value for name, value in question.items() if value != plan.public_arguments.get(name)}


@dataclass(frozen=True)
class _Margin:
    """The grouping set of a core; one core of these sets has all keys.

    Attributes
    ----------
    finest : int
        The core with all keys.
    number : int
        The number of the set; 0 is the finest.
    sets : tuple of tuple of int
        The positions of the keys of every set among the finest keys.
    """

    finest: int
    number: int
    sets: tuple[tuple[int, ...], ...]


def _margins(cores: Sequence[QueryCore]) -> dict[int, _Margin]:
    """Return the grouping sets that share sums, by the numbers of their cores."""
    margins: dict[int, _Margin] = {}
    numbers = {core.name: number for number, core in enumerate(cores)}
    for finest, core in enumerate(cores):
        if core.margin_of != core.name or core.private_keys or not vectors_of(core):
            continue
        names = [key.column for key in core.keys]
        others = [numbers[other.name] for other in cores if other.margin_of == core.name and other is not core]
        members = [finest, *others]
        sets = tuple(tuple(names.index(key.column) for key in cores[member].keys) for member in members)
        if others:
            margins |= {member: _Margin(finest, position, sets) for position, member in enumerate(members)}
    return margins


def _draws_rows(arguments: Mapping[str, object]) -> bool:
    """Return whether a call draws how many rows of a person count."""
    limit = arguments.get("max_rows_per_unit")
    if not isinstance(limit, str):
        return False
    if fold(limit.strip()) != DRAWN:
        raise ParameterError(
            "P021", f"max_rows_per_unit must be a number, or 'drawn'; got {show(limit)}. Give one of both."
        )
    if arguments.get("max_groups_per_unit") is not None:
        raise ParameterError(
            "P045", "max_groups_per_unit has no effect beside max_rows_per_unit := 'drawn'. Leave it out."
        )
    return True


def _stated_rows(cores: Sequence[PlacedCore]) -> int | None:
    """Return the largest row limit that an owner declared for any core; None without one."""
    limits = [core.placement.rows_stated(core.protection.get("max_rows_per_unit")) for core in cores]
    return max((rows for rows in limits if isinstance(rows, int)), default=None)


def _rows(number: int, shared: Mapping[str, object], limits: Sequence[int]) -> _Part:
    """Return the part that draws one of several limits on the rows of a person."""
    names = ("dataset", "neighbours", "during", "privacy_unit")
    arguments = {name: shared[name] for name in names if name in shared}
    arguments |= {"target": STEPS, "quantiles": [AT], "lower": 0.0, "upper": float(len(limits)), "cells": len(limits)}
    arguments |= {"interval_share": 0, "max_rows_per_unit": 1, "by": None}
    return _Part(number, RowsPlan, arguments, {STEPS: "CAST(NULL AS DOUBLE)"}, takes_delta=False)


def _bounds(number: int, shared: Mapping[str, object], columns: Sequence[str]) -> Iterator[_Part]:
    """Yield the part that draws the bounds of some columns over all groups of a core; nothing if all have bounds."""
    if columns:
        names = ("dataset", "neighbours", "during", "privacy_unit", "max_rows_per_unit")
        arguments = {name: shared[name] for name in names if name in shared}
        yield _Part(number, CoreBoundsPlan, {**arguments, "target": list(columns), "by": None}, takes_delta=False)


def _by_persons(part: _Part, epsilon: Fraction) -> _Part:
    """Return the part; one that draws bounds at less than `ALL_ROWS` for each column with one row of each person.

    n persons with m rows each show as much under noise for one row as their rows do under noise for m, and persons with
    fewer rows more. But rows that are not drawn from may lie beyond the ends, about as many as a person has: with much
    epsilon all rows leave fewer.
    """
    columns = len(narrow(list, part.arguments["target"])) if part.kind is CoreBoundsPlan else 0
    if not columns or not _has_unit(part.arguments) or epsilon / columns >= ALL_ROWS:
        return part
    return replace(part, arguments={**part.arguments, "max_rows_per_unit": 1}, rows_of=None)


def _shares(parts: Sequence[_Part], epsilon: Fraction) -> list[Fraction]:
    """Return the epsilon of each part.

    The parts have equal shares, after a fixed share for all draws of row limits; parts that need drawn bounds give up a
    fixed share for the part that draws them.
    """
    drawing = sum(part.kind is RowsPlan for part in parts)
    rest = epsilon * (1 - SHARE) if drawing else epsilon
    weights = sum(part.weight for part in parts if part.kind not in _BEFORE)
    shares = [Fraction(0) if part.kind in _BEFORE else rest * part.weight / weights for part in parts]
    for index, part in enumerate(parts):
        if part.kind is RowsPlan:
            shares[index] = epsilon * SHARE / drawing
        elif part.bounds_of is not None:
            given_up = shares[index] * BOUNDS_SHARE
            shares[index] -= given_up
            shares[part.bounds_of] += given_up
    return shares


def _shared(placed: PlacedCore, arguments: Mapping[str, object], limits: Sequence[int]) -> dict[str, object]:
    """Return the arguments that all parts of a core share; a drawn row limit is at its largest value."""
    core, placement = placed.core, placed.placement
    by = [key.column for key in core.keys]
    settings: dict[str, object] = {
        "by": by or None,
        "dataset": placement.charged[0],
        "neighbours": placed.protection.get("neighbours"),
        "confidence": arguments.get("confidence"),
        "during": arguments.get("during"),
    }
    if by and not core.private_keys:
        settings["keys"] = _public(core)
    if placement.unit is not None:
        settings["privacy_unit"] = placement.unit
        rows = limits[-1] if limits else arguments.get("max_rows_per_unit")
        if rows is None or isinstance(rows, str):  # a core with one row per person draws nothing
            rows = placement.rows_stated(placed.protection.get("max_rows_per_unit"))
        settings["max_rows_per_unit"] = rows
        if by:
            settings["max_groups_per_unit"] = arguments.get("max_groups_per_unit")
    return settings


def _public(core: QueryCore) -> PublicKeys:
    """Return the public keys of a core: lists, or a FROM item that lists them."""
    if all(key.values is not None for key in core.keys):
        return PublicKeys(tuple(key.values for key in core.keys))
    items: dict[tuple[str, ...], str] = {}
    for number, key in enumerate(core.keys):
        columns = key.together or (key.column,)
        if key.query is not None:
            rows = key.query
        elif key.values is not None:
            texts = call("list_value", *("NULL" if value is None else text(value) for value in key.values))
            rows = f"SELECT {call('unnest', f'CAST({texts} AS VARCHAR[])')}"
        else:
            raise InternalError("I032", "a key has neither values nor a query that lists them. Report it.")
        names = ", ".join(map(identifier, columns))
        items.setdefault(columns, f"(SELECT DISTINCT * FROM ({rows})) AS dpsql_keys{number}({names})")
    # One row beyond the limit is refused; without LIMIT, DuckDB would make all rows before the count.
    selection = ", ".join(identifier(key.column) for key in core.keys)
    listed = f"(SELECT {selection} FROM {' CROSS JOIN '.join(items.values())} LIMIT {MOST_GROUPS + 1})"
    return PublicKeys((None,) * len(core.keys), table=listed)


def _parts(
    number: int, core: QueryCore, shared: dict[str, object], answers: Answers, of_finest: Answers | None
) -> Iterator[_Part]:
    """Yield the parts of a core, and store the places of the answers.

    If keys are private, the first part releases them, at half of the core's share of epsilon, and the other parts use
    the released keys. If the core is a grouping set, its sums come from the core with all keys, with the given answers.
    """
    parts = _core_parts(number, core, shared, answers, of_finest)
    others = sum((part.weight for part in parts[1:]), Fraction(0))
    for index, part in enumerate(parts):
        if not core.private_keys:
            yield part
        elif index == 0:
            weight = part.weight if answers.earlier or not others else others
            yield replace(part, arguments={**part.arguments, "keys": PRIVATE}, needs_delta=True, weight=weight)
        else:
            released = PublicKeys((None,) * len(core.keys), table=RELEASED)
            yield replace(part, arguments={**part.arguments, "keys": released}, keys_of=answers.parts)


@dataclass
class _CoreParts:
    """The parts of one core while they are listed.

    Attributes
    ----------
    number : int
    core : QueryCore
    shared : mapping
        The arguments of all parts.
    answers : Answers
    of_finest : Answers or None
        The answers of the core with all keys, if this core is another grouping set.
    positions : dict
        By part and column: the number of the part, and the position of the answer in it.
    """

    number: int
    core: QueryCore
    shared: Mapping[str, object]
    answers: Answers
    of_finest: Answers | None
    positions: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    parts: list[_Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = self.answers.parts
        self.bounds = public_bounds_of(self.core)
        self.quantiles, self.pairs = quantiles_of(self.core), pairs_of(self.core)
        self.counts = dict.fromkeys(
            (aggregate.kind, aggregate.column) for aggregate in self.core.aggregates if aggregate.kind in _DIFFERENT
        )

    def add(self, part: _Part, *keys: tuple[str, ...], width: int = 1) -> None:
        """Add a part that answers these keys, each with `width` numbers."""
        number = self.first + len(self.parts)
        self.positions |= {key: (number, width * index) for index, key in enumerate(keys)}
        self.parts.append(part)

    def count(self, kind: str, column: str | None) -> None:
        """Add a count of different persons or items, once."""
        if (kind, str(column)) not in self.positions:
            counted = _counted(kind, column, self.core, self.shared, _left_out(self.core, self.answers))
            self.add(_Part(self.number, CountPlan, *counted), (kind, str(column)))


def _deciding_part(core_parts: _CoreParts) -> None:
    """Add the part that releases private keys by their persons: fewest rows move a number of persons.

    It is the count of persons, if the core asks for it. A count of rows decides by itself if each row is a person.
    """
    core, shared, persons = core_parts.core, core_parts.shared, ("units", None)
    if not core.private_keys:
        return
    if persons in core_parts.counts or (core_parts.answers.earlier and not vectors_of(core) and _has_unit(shared)):
        core_parts.count(*persons)
    elif _has_unit(shared) and not core_parts.answers.earlier and not _counts_persons(core, shared):
        arguments = {**shared, **_NOT_TOLD, "distinct_of": shared["privacy_unit"]}
        core_parts.add(_Part(core_parts.number, KeysPlan, arguments))


def _has_unit(shared: Mapping[str, object]) -> bool:
    return "privacy_unit" in shared


def _counts_persons(core: QueryCore, shared: Mapping[str, object]) -> bool:
    """Return whether a core only asks how many rows there are, of which a person has one."""
    return vectors_of(core) == [{ALL: [COUNT]}] and shared["max_rows_per_unit"] == 1


def _vector_part(core_parts: _CoreParts) -> None:
    """Add counts, sums and moments of columns; a grouping set has them from the core with all keys."""
    core, answers, of_finest = core_parts.core, core_parts.answers, core_parts.of_finest
    if of_finest is not None:
        answers.parts = of_finest.parts
        core_parts.positions |= of_finest.vectors
    vectors = vectors_of(core) if of_finest is None else []
    if core.private_keys and not vectors and not core_parts.parts:  # some part must release the keys
        vectors = [{ALL: [COUNT]}]
    sets = () if answers.margin is None else answers.margin.sets
    kind: type[Plan] = VectorPlan if answers.margin is None else MarginsPlan
    if counts_disjoint(core):
        kind = DisjointPlan
    complete = {aggregate.column for aggregate in core.aggregates if aggregate.is_complete}
    for targets in vectors:
        counted = {name for name, names in targets.items() if set(names) == {COUNT}}
        ends = [None if name in counted else core_parts.bounds.get(name) for name in targets]
        arguments: dict[str, object] = {
            **core_parts.shared,
            **_left_out(core, answers),
            "target": list(targets),
            "wanted": tuple(tuple(names) for names in targets.values()),
            "whole": tuple(name == ALL or name in complete for name in targets),
            "lowest": tuple(None if pair is None else pair[0] for pair in ends),
            "highest": tuple(None if pair is None else pair[1] for pair in ends),
            **({"sets": sets} if sets else {}),
        }
        needs = tuple(name for name in targets if name not in counted and name not in core_parts.bounds)
        part = _Part(core_parts.number, kind, arguments, needs=needs, weight=Fraction(len(sets) or 1))
        core_parts.add(part, *(("vector", name) for name in targets))
    answers.vectors = {key: position for key, position in core_parts.positions.items() if key[0] == "vector"}


def _count_parts(core_parts: _CoreParts) -> None:
    """Add the other counts of different persons and items."""
    for kind, column in core_parts.counts:
        core_parts.count(kind, column)


def _quantile_parts(core_parts: _CoreParts) -> None:
    for (kind, column), quantiles in core_parts.quantiles.items():
        lower, upper = core_parts.bounds.get(column, (None, None))
        arguments: dict[str, object] = {
            **core_parts.shared,
            "target": column,
            "quantiles": list(map(float, quantiles)),
            "lower": lower,
            "upper": upper,
        }
        needs = (column,) if lower is None and core_parts.core.keys else ()  # without groups they need none
        part = _Part(core_parts.number, RANKED[kind], arguments, takes_delta=False, needs=needs)
        core_parts.add(part, (kind, column))


def _pairs_part(core_parts: _CoreParts) -> None:
    """Add the moments of pairs of columns, three numbers each."""
    pairs, bounds = core_parts.pairs, core_parts.bounds
    if pairs:
        columns = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
        public = {name: bounds[name] for name in columns if name in bounds}
        arguments = {**core_parts.shared, **_NOT_TOLD}
        arguments |= pair_arguments([(pair.first, pair.second) for pair in pairs], public)
        part = _Part(
            core_parts.number, PairsPlan, arguments, needs=tuple(name for name in columns if name not in bounds)
        )
        core_parts.add(part, *(("pair", pair.first, pair.second) for pair in pairs), width=3)


# The parts of a core, in their order: the first of them releases private keys.
_STEPS = (_deciding_part, _vector_part, _count_parts, _quantile_parts, _pairs_part)


def _core_parts(
    number: int, core: QueryCore, shared: dict[str, object], answers: Answers, of_finest: Answers | None
) -> list[_Part]:
    """Return the parts of a core, and note the place of each answer."""
    core_parts = _CoreParts(number, core, shared, answers, of_finest)
    for step in _STEPS:
        step(core_parts)
    for aggregate in core.aggregates:
        answer = _answer(aggregate, core_parts)
        if answers.margin is not None and "aggregate" in answer and aggregate.kind not in _DIFFERENT:
            answer["set"] = answers.margin.number
        answers.listed.append(answer)
    return core_parts.parts


def _left_out(core: QueryCore, answers: Answers) -> Mapping[str, object]:
    """Return arguments about dropped rows for the parts of a core: empty if limits may drop rows of public keys."""
    return _NOT_TOLD if answers.once or core.private_keys else {}


def _counted(
    kind: str, column: str | None, core: QueryCore, shared: Mapping[str, object], left_out: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the arguments of a count of different persons or items, and the columns that it adds."""
    arguments: dict[str, object] = {**shared, **left_out, "distinct_of": column}
    if kind != "units":
        return arguments, {}
    if column is None:
        return {**arguments, "distinct_of": shared.get("privacy_unit")}, {}
    # The part counts rows with a value: each person is one item, and further rows of a person add nothing.
    arguments |= _NOT_TOLD
    unit = identifier(str(shared.get("privacy_unit")))
    arguments["distinct_of"] = _SOME
    arguments["max_rows_per_unit_group" if core.keys else "max_rows_per_unit"] = 1
    return arguments, {_SOME: f"CASE WHEN {identifier(str(column))} IS NOT NULL THEN {unit} END"}


def _item(core: QueryCore, more: Mapping[str, str]) -> str:
    """Return the FROM item of a core's rows, with a column that has a value in every row."""
    columns = [f"true AS {ALL}", "*", *(f"{sql} AS {name}" for name, sql in more.items())]
    return f"(SELECT {', '.join(columns)} FROM ({core.source}) AS dpsql_core)"


_Position = tuple[tuple[int, int], dict[str, Json]]


def _vector_answer(aggregate: QueryAggregate, core_parts: _CoreParts) -> _Position:
    name = ALL if aggregate.kind == "rows" else str(aggregate.column)
    ddof = 0 if aggregate.kind.endswith("_pop") else 1
    return core_parts.positions["vector", name], {"aggregate": aggregate_of(core_parts.core, aggregate), "ddof": ddof}


def _count_answer(aggregate: QueryAggregate, core_parts: _CoreParts) -> _Position:
    return core_parts.positions[aggregate.kind, str(aggregate.column)], {"aggregate": COUNT, "ddof": 1}


def _quantile_answer(aggregate: QueryAggregate, core_parts: _CoreParts) -> _Position:
    column = aggregate.kind, str(aggregate.column)
    if aggregate.quantile is None:
        raise InternalError("I032", "a quantile has no number. Report it.")
    index = core_parts.quantiles[column].index(aggregate.quantile)
    return core_parts.positions[column], {"quantile": index}


def _pair_answer(aggregate: QueryAggregate, core_parts: _CoreParts) -> _Position:
    names = [str(aggregate.column), str(aggregate.other)]
    pair = next(pair for pair in core_parts.pairs if {*names} == {pair.first, pair.second})
    ends = dict(zip((pair.first, pair.second), pair.bounds, strict=True))
    bounds: list[Json] = [None if ends[name] is None else list(ends[name] or ()) for name in names]
    more: dict[str, Json] = {"swapped": pair.first != names[0], "columns": list(names), "bounds": bounds}
    return core_parts.positions["pair", pair.first, pair.second], more


# The part that answers an aggregate, by its kind; any other kind is a function of a pair of columns.
_ANSWERS: Mapping[str, Callable[[QueryAggregate, _CoreParts], _Position]] = {
    **dict.fromkeys(("rows", *VALUED), _vector_answer),
    **dict.fromkeys(_DIFFERENT, _count_answer),
    **dict.fromkeys(RANKED, _quantile_answer),
}


def _answer(aggregate: QueryAggregate, core_parts: _CoreParts) -> dict[str, Json]:
    """Return the place of an aggregate's answer, and how it is read there."""
    (part, index), more = _ANSWERS.get(aggregate.kind, _pair_answer)(aggregate, core_parts)
    answer: dict[str, Json] = {"name": aggregate.name, "kind": aggregate.kind, "type": aggregate.type}
    return {**answer, **more, "part": part, "place": index}
