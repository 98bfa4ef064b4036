"""The parts of which the cores of a query are answered, and where in their results each answer is.

**Aggregates.** What a core of a query asks of which columns, and which bounds these have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.contract.json import Json
from dpsql.contract.keys import MOST_GROUPS, PRIVATE, RELEASED, PublicKeys
from dpsql.contract.parameters import fold, show
from dpsql.contract.placement import Placement
from dpsql.contract.plan import Plan
from dpsql.contract.query.split import QueryAggregate, QueryCore
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import CountPlan
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE, LeftOutPlan
from dpsql.functions.grouped.plan import CONFIDENCE
from dpsql.functions.query import QueryPart
from dpsql.functions.query_bounds import SHARE as BOUNDS_SHARE
from dpsql.functions.query_bounds import CoreBoundsPlan
from dpsql.functions.query_margins import MarginsPlan
from dpsql.functions.query_rows import AT, DRAWN, SHARE, STEPS, CoreQuantilePlan, RowsPlan, limits_up_to
from dpsql.functions.query_vector import DisjointPlan, PairsPlan, VectorPlan, pair_arguments
from dpsql.rendering import call, identifier, text
from dpsql.statistics.aggregates import AVG, COUNT, STDDEV, SUM, VARIANCE

# The column of a core in which every row has a value.
ALL = "dpsql_all"
# What is drawn for an aggregate of a column.
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
    """A pair of columns; bounds are None where they are drawn."""

    first: str
    second: str
    bounds: tuple[tuple[float, float] | None, tuple[float, float] | None]


def counts_disjoint(core: QueryCore) -> bool:
    """Return whether a core's vector is counts of which a row enters one at most, and has public keys of its own."""
    return core.disjoint and not core.private_keys and core.margin_of is None


def aggregate_of(core: QueryCore, aggregate: QueryAggregate) -> str:
    """Return what is drawn for an aggregate of a vector: a count of disjoint conditions is that of its rows."""
    return COUNT if aggregate.kind == "rows" or counts_disjoint(core) else VALUED[aggregate.kind]


def vectors_of(core: QueryCore) -> list[dict[str, list[str]]]:
    """Return the vector of a core, as the aggregates by target; nothing where none is asked for."""
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
    """Return the columns whose bounds are drawn, each once; `summed` says whether sums are drawn with this core."""
    bounds, columns = public_bounds_of(core), dict[str, None]()
    for aggregate in core.aggregates:
        is_sum = summed and aggregate.kind in VALUED and aggregate_of(core, aggregate) != COUNT
        if is_sum or (aggregate.kind == "quantile" and core.keys) or aggregate.other is not None:
            columns |= dict.fromkeys(
                name for name in (aggregate.column, aggregate.other) if name is not None and name not in bounds
            )
    return list(columns)


def quantiles_of(core: QueryCore) -> dict[str, list[Fraction]]:
    """Return the quantiles of each column, ascending."""
    quantiles: dict[str, set[Fraction]] = {}
    for aggregate in core.aggregates:
        if aggregate.kind == "quantile" and aggregate.quantile is not None:
            quantiles.setdefault(str(aggregate.column), set()).add(aggregate.quantile)
    return {column: sorted(numbers) for column, numbers in quantiles.items()}


def pairs_of(core: QueryCore) -> list[ColumnPair]:
    """Return the pairs of columns whose moments are asked for, each once, in the order in which it was met."""
    pairs: dict[tuple[str, str], ColumnPair] = {}
    bounds = public_bounds_of(core)
    for aggregate in core.aggregates:
        if aggregate.other is None:
            continue
        pair = str(aggregate.column), aggregate.other
        if pair not in pairs and pair[::-1] not in pairs:
            pairs[pair] = ColumnPair(*pair, (bounds.get(pair[0]), bounds.get(pair[1])))
    return list(pairs.values())


# What is drawn before the parts that share epsilon.
_BEFORE = (RowsPlan, CoreBoundsPlan)
# The source's name in messages and in the ledger.
SOURCE = "the query"
# The column of the persons of whom a row has a value.
_SOME = "dpsql_some"
_DIFFERENT = ("units", "items")
# What a part is given that does not tell what row limits leave out.
_NOT_TOLD: Mapping[str, object] = {LEFT_OUT_SHARE.name: 0}


@dataclass(frozen=True)
class PlacedCore:
    """A core, and where its rows come from.

    Attributes
    ----------
    core : QueryCore
    placement : Placement
    protection : mapping
        What the owner stated of its budget: ``neighbours``, and how its rows are dated.
    """

    core: QueryCore
    placement: Placement
    protection: Mapping[str, object] = field(default_factory=dict)


@dataclass
class _Part:
    """A part that has no share of the budget yet."""

    core: int
    kind: type[Plan]
    arguments: dict[str, object]
    more: dict[str, str] = field(default_factory=dict)  # columns that it adds to the core's, as SQL
    takes_delta: bool = True
    needs_delta: bool = False
    keys_of: int | None = None  # the part that releases its keys
    rows_of: int | None = None  # the part that draws its limit on rows
    needs: tuple[str, ...] = ()  # the columns whose bounds are drawn
    bounds_of: int | None = None  # the part that draws them
    weight: int = 1  # of its share of epsilon


@dataclass
class Answers:
    """Where the answer of every aggregate of a core is, and from which part the keys of its groups are.

    Attributes
    ----------
    parts : int
        The number of the first part.
    listed : list of dict
        By aggregate: the part, the position of the target in it, what is read of that, and the SQL type.
    margin : _Margin or None
        The grouping set that the core is, where several share their sums.
    limit : int or None
        The part that draws how many rows of a person count; grouping sets share it.
    vectors : dict
        By target: its part, and its place in it.
    once : bool
        Whether a person has one row, so that no limit leaves any out.
    """

    parts: int
    listed: list[dict[str, Json]] = field(default_factory=list)
    margin: _Margin | None = None
    limit: int | None = None
    vectors: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    once: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the answers as JSON values."""
        of_set: dict[str, Json] = {} if self.margin is None else {"keys_set": self.margin.number}
        return {"keys_of": self.parts, "answers": list(self.listed), **of_set}


def parts_of_cores(
    cores: Sequence[PlacedCore],
    arguments: Mapping[str, object],
    epsilon: Fraction,
    delta: Fraction | None,
) -> tuple[tuple[QueryPart, ...], list[Answers]]:
    """Return the parts of a query, and where in them the answers are.

    Parameters
    ----------
    cores : sequence of PlacedCore
    arguments : mapping
        What the call says of all of them: ``max_rows_per_unit``, ``max_groups_per_unit``, ``confidence``, ``during``.
    epsilon, delta : Fraction
        Of the whole query.

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
        answers[number] = Answers(first, margin=margin, limit=limit, once=once)
        own = _parts(number, placed.core, shared, answers[number], of_finest)
        for draft in [*_bounds(number, shared, lacking), *own]:
            part = replace(draft, bounds_of=bounds) if draft.needs else draft
            is_stated = limit is None or draft.arguments["max_rows_per_unit"] != most[-1]
            drafts.append(part if is_stated else replace(part, rows_of=limit, takes_delta=False))
    needing = [draft for draft in drafts if draft.needs_delta] or [draft for draft in drafts if draft.takes_delta]
    shares = _shares(drafts, epsilon)
    parts = []
    for draft, share in zip(drafts, shares, strict=True):
        placed = cores[draft.core]
        settings = {**draft.arguments, "epsilon": share}
        if delta is not None and any(draft is candidate for candidate in needing):
            settings["delta"] = delta / len(needing)
        plan, unused = _planned(draft.kind, settings, placed, arguments.get(LEFT_OUT_SHARE.name))
        item = _item(placed.core, draft.more)
        placement = replace(placed.placement, joined=item)
        plan = replace(plan, placement=placement)
        parts.append(QueryPart(draft.core, plan, draft.keys_of, draft.rows_of, draft.bounds_of, unused))
    return tuple(parts), [answers[number] for number in range(len(cores))]


def _planned(
    kind: type[Plan], arguments: Mapping[str, object], placed: PlacedCore, share: object
) -> tuple[Plan, dict[str, Json]]:
    """Return the plan of a part, and what it was given and has no use for, as earlier versions recorded it.

    It tells what row limits leave out where they may, for the share that was given. A delta that no noise of it spends
    is left out, and so is a confidence, which the answers of any other part than a quantile have when they are read: a
    question is the same with and without them.
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
            if kind is CoreQuantilePlan or arguments.get("confidence") in (None, CONFIDENCE.default)
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
    """The grouping set that a core is, among those of which one core has all keys.

    Attributes
    ----------
    finest : int
        The number of that core.
    number : int
        Of the set; 0 is the finest.
    sets : tuple of tuple of int
        The positions of the keys of every set among those of the finest.
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
    """Whether a call has the rows of a person that count drawn."""
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
    """Return the largest limit on rows that an owner stated of any core; None where there is none."""
    limits = [core.placement.rows_stated(core.protection.get("max_rows_per_unit")) for core in cores]
    return max((rows for rows in limits if isinstance(rows, int)), default=None)


def _rows(number: int, shared: Mapping[str, object], limits: Sequence[int]) -> _Part:
    """Return the part that draws which of some limits on the rows of a person holds."""
    names = ("dataset", "neighbours", "during", "privacy_unit")
    arguments = {name: shared[name] for name in names if name in shared}
    arguments |= {"target": STEPS, "quantiles": [AT], "lower": 0.0, "upper": float(len(limits)), "cells": len(limits)}
    arguments |= {"interval_share": 0, "max_rows_per_unit": 1, "by": None}
    return _Part(number, RowsPlan, arguments, {STEPS: "CAST(NULL AS DOUBLE)"}, takes_delta=False)


def _bounds(number: int, shared: Mapping[str, object], columns: Sequence[str]) -> Iterator[_Part]:
    """Yield the part that draws the bounds of some columns over all rows of a core; nothing where none lack them."""
    if columns:
        names = ("dataset", "neighbours", "during", "privacy_unit", "max_rows_per_unit")
        arguments = {name: shared[name] for name in names if name in shared}
        yield _Part(number, CoreBoundsPlan, {**arguments, "target": list(columns), "by": None}, takes_delta=False)


def _shares(parts: Sequence[_Part], epsilon: Fraction) -> list[Fraction]:
    """Return the epsilon of each part.

    They have equal ones, beside a fixed share of all that draw how many rows count; and those that need drawn bounds
    give up a fixed share of theirs for the part that draws them.
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
    """Return the arguments that all parts of a core share; the largest limit that may be drawn stands for it."""
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
        if rows is None or isinstance(rows, str):  # nothing is drawn for a core that has one row per person
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
    # One more than there may be is refused; without a limit all of them would be made before they are counted.
    selection = ", ".join(identifier(key.column) for key in core.keys)
    listed = f"(SELECT {selection} FROM {' CROSS JOIN '.join(items.values())} LIMIT {MOST_GROUPS + 1})"
    return PublicKeys((None,) * len(core.keys), table=listed)


def _parts(
    number: int, core: QueryCore, shared: dict[str, object], answers: Answers, of_finest: Answers | None
) -> Iterator[_Part]:
    """Yield the parts of a core, and note where the answers are.

    Of private keys the first part says which are released, and the others answer these. Where the core is a grouping
    set, its sums are those of the core that has all keys, whose answers are given.
    """
    for index, part in enumerate(_core_parts(number, core, shared, answers, of_finest)):
        if not core.private_keys:
            yield part
        elif index == 0:
            yield replace(part, arguments={**part.arguments, "keys": PRIVATE}, needs_delta=True)
        else:
            released = PublicKeys((None,) * len(core.keys), table=RELEASED)
            yield replace(part, arguments={**part.arguments, "keys": released}, keys_of=answers.parts)


def _core_parts(
    number: int, core: QueryCore, shared: dict[str, object], answers: Answers, of_finest: Answers | None
) -> Iterator[_Part]:
    """Yield what a core is asked, and note where the answers are; what can draw private keys comes first.

    A number of persons is what fewest rows move, so it decides where it is asked for, or nothing else can.
    """
    vectors = vectors_of(core) if of_finest is None else []
    positions: dict[tuple[str, ...], tuple[int, int]] = {} if of_finest is None else dict(of_finest.vectors)
    count = answers.parts
    kind_of_vector: type[Plan] = VectorPlan if answers.margin is None else MarginsPlan
    if counts_disjoint(core):
        kind_of_vector = DisjointPlan
    sets = () if answers.margin is None else answers.margin.sets
    different = dict.fromkeys(
        (aggregate.kind, aggregate.column) for aggregate in core.aggregates if aggregate.kind in _DIFFERENT
    )
    persons = ("units", None)
    deciding = [persons] if persons in different else []
    if core.private_keys and not vectors and not deciding:  # some part must say which keys are released
        deciding = [persons] if "privacy_unit" in shared else []
        vectors = [] if deciding else [{ALL: [COUNT]}]
    if core.private_keys:
        for kind, column in deciding:
            positions[kind, str(column)] = count, 0
            count += 1
            yield _Part(number, CountPlan, *_counted(kind, column, core, shared, _left_out(core, answers)))
    else:
        deciding = []
    full_columns = {aggregate.column for aggregate in core.aggregates if aggregate.is_complete}
    bounds = public_bounds_of(core)
    left_out = _left_out(core, answers)
    for targets in vectors:
        arguments = {**shared, **left_out, "target": list(targets)}
        arguments["wanted"] = tuple(tuple(names) for names in targets.values())
        arguments["whole"] = tuple(name == ALL or name in full_columns for name in targets)
        ends = [None if set(names) == {COUNT} else bounds.get(name) for name, names in targets.items()]
        arguments["lowest"] = tuple(None if pair is None else pair[0] for pair in ends)
        arguments["highest"] = tuple(None if pair is None else pair[1] for pair in ends)
        needs = tuple(name for name, names in targets.items() if set(names) != {COUNT} and name not in bounds)
        for index, name in enumerate(targets):
            positions["vector", name] = count, index
        count += 1
        more_of = {"sets": sets} if sets else {}
        yield _Part(number, kind_of_vector, {**arguments, **more_of}, needs=needs, weight=len(sets) or 1)
    if of_finest is not None:
        answers.parts = of_finest.parts
    answers.vectors = {key: position for key, position in positions.items() if key[0] == "vector"}
    for kind, column in different:
        if (kind, column) in deciding:
            continue
        positions[kind, str(column)] = count, 0
        count += 1
        yield _Part(number, CountPlan, *_counted(kind, column, core, shared, _left_out(core, answers)))
    quantiles = quantiles_of(core)
    for column, quantile in quantiles.items():
        lower, upper = bounds.get(column, (None, None))
        arguments = {
            **shared,
            "target": column,
            "quantiles": list(map(float, quantile)),
            "lower": lower,
            "upper": upper,
        }
        positions["quantile", column] = count, 0
        count += 1
        needs = (column,) if lower is None and core.keys else ()  # without groups they need none
        yield _Part(number, CoreQuantilePlan, arguments, takes_delta=False, needs=needs)
    pairs = pairs_of(core)
    if pairs:
        columns = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
        known_of = {name: bounds[name] for name in columns if name in bounds}
        arguments = {**shared, **_NOT_TOLD}
        arguments |= pair_arguments([(pair.first, pair.second) for pair in pairs], known_of)
        for index, pair in enumerate(pairs):
            positions["pair", pair.first, pair.second] = count, 3 * index
        yield _Part(number, PairsPlan, arguments, needs=tuple(name for name in columns if name not in bounds))
    for aggregate in core.aggregates:
        answer = _answer(aggregate, positions, quantiles, pairs, core)
        if answers.margin is not None and "aggregate" in answer and aggregate.kind not in _DIFFERENT:
            answer["set"] = answers.margin.number
        answers.listed.append(answer)


def _left_out(core: QueryCore, answers: Answers) -> Mapping[str, object]:
    """Return what the parts of a core are given of row limits: nothing where these may leave rows out of known keys."""
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
    # Of the rows with a value: each person is one item, and further rows of a person add nothing.
    arguments |= _NOT_TOLD
    unit = identifier(str(shared.get("privacy_unit")))
    arguments["distinct_of"] = _SOME
    arguments["max_rows_per_unit_group" if core.keys else "max_rows_per_unit"] = 1
    return arguments, {_SOME: f"CASE WHEN {identifier(str(column))} IS NOT NULL THEN {unit} END"}


def _item(core: QueryCore, more: Mapping[str, str]) -> str:
    """Return the FROM item of a core's rows, with a column in which every row has a value."""
    columns = [f"true AS {ALL}", "*", *(f"{sql} AS {name}" for name, sql in more.items())]
    return f"(SELECT {', '.join(columns)} FROM ({core.source}) AS dpsql_core)"


def _answer(
    aggregate: QueryAggregate,
    positions: Mapping[tuple[str, ...], tuple[int, int]],
    quantiles: Mapping[str, Sequence[Fraction]],
    pairs: Sequence[ColumnPair],
    core: QueryCore,
) -> dict[str, Json]:
    """Return where an aggregate's answer is."""
    column = str(aggregate.column)
    answer: dict[str, Json] = {"name": aggregate.name, "kind": aggregate.kind, "type": aggregate.type}
    if aggregate.kind == "rows" or aggregate.kind in VALUED:
        part, index = positions["vector", ALL if aggregate.kind == "rows" else column]
        answer |= {"aggregate": aggregate_of(core, aggregate)}
        answer["ddof"] = 0 if aggregate.kind.endswith("_pop") else 1
    elif aggregate.kind in ("units", "items"):
        part, index = positions[aggregate.kind, column]
        answer |= {"aggregate": COUNT, "ddof": 1}
    elif aggregate.kind == "quantile":
        part, index = positions["quantile", column]
        if aggregate.quantile is None:
            raise InternalError("I032", "a quantile has no number. Report it.")
        answer["quantile"] = quantiles[column].index(aggregate.quantile)
    else:
        moments = next(pair for pair in pairs if {column, aggregate.other} == {pair.first, pair.second})
        part, index = positions["pair", moments.first, moments.second]
        ends = dict(zip((moments.first, moments.second), moments.bounds, strict=True))
        names = [column, str(aggregate.other)]
        listed: list[Json] = [None if ends[name] is None else list(ends[name] or ()) for name in names]
        answer |= {"swapped": moments.first != column, "columns": list(names), "bounds": listed}
    return {**answer, "part": part, "place": index}
