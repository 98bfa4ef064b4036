"""The steps of a statement with groups: map keys, bound what each privacy unit contributes, and add up.

Keys become a number or bytes before they are compared (`key`). So no collation applies, and no row's spelling becomes a
label. Public keys are cast to the column's type and written as texts again by the same rule; a row is in one group or
in none. Values become integers in SQL. Like scores, they have the gate's zero added first, which hides them from column
statistics (`dpsql.engines.duckdb.statements`). Nothing in these steps can fail for one row's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.keys import FLOATS, identity, key, label, short_place
from dpsql.engines.duckdb.unit_sample import order_by, partition_by, sampled
from dpsql.functions.grouped import GroupedPlan
from dpsql.rendering import call, cast, coalesce, double, field, identifier, plus, struct, text
from dpsql.statistics.aggregates import ValueBlock

# The sum of a unit's values saturates far beyond any bounds; 2**47 rows fit into 128 bits.
_WIDEST_VALUE = 2.0**80
_HALF = 1 << 32


@dataclass(frozen=True)
class Frame:
    """What a statement lends to its steps: the gate's values, and how steps are named.

    Attributes
    ----------
    ticket, zero : str
        SQL of the values that the gate gives the call.
    source, probe : callable
        Return the FROM item of the source, by parts of the call: of rows that meet the condition, or for types alone.
    name : callable
        Returns the full name of a step.
    step : callable
        Names a query; its argument `kept` has DuckDB keep the rows.
    only : int or None
        The one pass that runs, over some of the rows; None for all passes over all rows.
    """

    ticket: str
    zero: str
    source: Callable[[], str]
    probe: Callable[[], str]
    name: Callable[[str], str]
    step: Callable[..., str]
    only: int | None = None


def key_types(plan: Plan, probe: str) -> list[str]:
    """Return the SQL types of the columns that a call groups by, as a list; nothing where it does not group."""
    if not isinstance(plan, GroupedPlan) or not plan.by:
        return []
    keys = [field(field(probe, "dpsql_row"), f"k{number}") for number in range(len(plan.by))]
    return [call("list_value", *(call("typeof", key) for key in keys))]


def key_witnesses(plan: Plan, source: str) -> str:
    """Return NULLs of the types of the keys of a call's result, as further columns key0, key1, …."""
    if not isinstance(plan, GroupedPlan):
        return ""
    columns = [f"(SELECT {field('dpsql_row', f'k{number}')} FROM {source} LIMIT 0)" for number in range(len(plan.by))]
    columns += ["NULL::BOOLEAN"] * (len(plan.key_columns) - len(columns))
    return "".join(f", {column} AS key{number}" for number, column in enumerate(columns))


def listed_keys(plan: GroupedPlan) -> str:
    """Return the query of the keys that a public table lists, as one list of lists of texts, in their order."""
    names = [identifier(name) for name in plan.by]
    order = ", ".join(f"{name} ASC NULLS LAST" for name in names)
    rows = call("list", f"{call('list_value', *(cast(name, 'VARCHAR') for name in names))} ORDER BY {order}")
    return f"SELECT {rows} FROM (SELECT DISTINCT {', '.join(names)} FROM {plan.keys_table})"


class GroupedSteps:
    """The steps of one call.

    Parameters
    ----------
    plan : GroupedPlan
    frame : Frame
    """

    def __init__(self, plan: GroupedPlan, frame: Frame) -> None:
        self.plan = plan
        self.frame = frame
        self._columns = range(len(plan.by))

    def steps(self) -> Iterator[str]:
        """Yield the steps, the last of which is the statistic."""
        frame = self.frame
        if frame.only is not None and frame.only > self.plan.passes:
            yield from self._labels_alone()
            return
        if not self.plan.has_private_keys:
            yield from self._public_keys()
        if self._draws_bounds:
            if frame.only in (None, 1):
                yield from self._bounds_pass()
            if frame.only == 1:
                yield self._numbers(1)
                return
            yield from self._drawn()
        yield frame.step("opened", self._opened())
        yield frame.step("valued", self._valued())
        yield from self._bounded()
        last = "kept" if self._has_unit else "valued"
        yield frame.step("grouped", self._summed(last))
        yield from self._private_passes() if self.plan.has_private_keys else self._public_pass()

    # Private bounds.

    @property
    def _draws_bounds(self) -> bool:
        """Whether a pass over the rows draws the bounds of the targets before they are added up."""
        return self.plan.passes > 1

    def _bounds_pass(self) -> Iterator[str]:
        """Hand the values of all rows over, of each unit as many as count.

        Rows of all groups count, and of each unit a sample of as many as its limits leave in all groups.
        """
        frame, values = self.frame, {f"v{position}": f"v{position}" for position in range(len(self.plan.targets))}
        parts = [f"{self._number(f't{position}')} AS v{position}" for position in range(len(values))]
        condition = f"{self.ticket} IS NOT NULL"
        if self._has_unit:
            number, data = identity("dpsql_unit")
            parts += [f"{number} AS unit_number", f"{data} AS unit_data"]
            condition += " AND dpsql_unit IS NOT NULL"
        rows = f"SELECT {', '.join(parts)} FROM {frame.source()} WHERE {condition}"
        if self._has_unit:
            most = self.plan.max_rows_per_unit
            kept = sampled(frame.ticket, ["unit_number", "unit_data"], list(values), most)
            rows = f"SELECT * FROM ({rows}) QUALIFY {kept}"
        yield frame.step("scanned", rows)
        yield from self._collected(1, values, frame.name("scanned"), frame.ticket)

    def _drawn(self) -> Iterator[str]:
        """Ask how values are coded, once the bounds are drawn."""
        yield self._turn(1)
        coded = call("dpsql_drawn_codes", f"(SELECT ticket FROM {self.frame.name('turn1')})")
        yield self.frame.step("drawn", f"SELECT {coded} AS drawn", kept=True)

    def _turn(self, number: int) -> str:
        """Return the step that ends a pass, and returns the ticket; a pass that runs alone follows one that ended."""
        if self.frame.only is not None:
            return self.frame.step(f"turn{number}", f"SELECT {self.frame.ticket} AS ticket", kept=True)
        batches = f"(SELECT {call('list', 's')} FROM {self.frame.name(f'parts{number}')})"
        before = self.ticket if number == 1 else f"(SELECT ticket FROM {self.frame.name(f'turn{number - 1}')})"
        turned = call("dpsql_turn", before, str(number), batches)
        return self.frame.step(f"turn{number}", f"SELECT {turned} AS ticket", kept=True)

    def _number(self, part: str) -> str:
        """Return a value of the row as a double that the planner knows nothing of; NULL where it is none."""
        return plus(f"TRY_CAST({field('dpsql_row', part)} AS DOUBLE)", self.frame.zero)

    # Keys.

    @property
    def _has_unit(self) -> bool:
        return self.plan.layout.privacy_unit is not None

    @property
    def ticket(self) -> str:
        """The ticket in the condition on rows; with public keys it comes from the step that checks them."""
        if self.plan.has_private_keys or not self.plan.by:
            return self.frame.ticket
        return f"(SELECT ticket FROM {self.frame.name('checked')})"

    def _public_keys(self) -> Iterator[str]:
        """Cast the listed keys to the types of their columns, and check them."""
        frame, lists, ticket = self.frame, [], self.frame.ticket
        if not self.plan.by:
            return
        if self.plan.keys_table is not None and frame.only is None:  # a call that runs a pass alone has learned them
            yield frame.step("learned", self._learned(), kept=True)
            ticket = f"(SELECT ticket FROM {frame.name('learned')})"
        for column in self._columns:
            listed = call("unnest", call("dpsql_key_list", ticket, str(column)))
            witness = f"SELECT {field('dpsql_row', f'k{column}')} AS witness FROM {frame.probe()} LIMIT 0"
            # A column of its own: DuckDB 1.5.6 moves the cast of a struct's field out of TRY.
            texts = f"SELECT {field('f', 'p')} AS p, {field('f', 'text')} AS given FROM (SELECT {listed} AS f)"
            value = f"TRY({call('cast_to_type', 'given', 'witness')})"
            number, data = key("value", frame.zero)
            yield frame.step(
                f"listed{column}",
                f"SELECT p, {number} AS number, {data} AS data, given IS NOT NULL AND value IS NULL AS wrong FROM "
                f"(SELECT p, given, {value} AS value FROM ({texts}) LEFT JOIN ({witness}) ON true)",
                kept=True,
            )
            one = struct({"p": "p", "number": "number", "data": "data", "wrong": "wrong"})
            rows = call("list", f"{one} ORDER BY p ASC NULLS LAST")
            lists.append(f"(SELECT {rows} FROM {frame.name(f'listed{column}')})")
        checked = call("dpsql_check_keys", ticket, call("list_value", *lists))
        yield frame.step("checked", f"SELECT {checked} AS ticket", kept=True)
        if self.plan.lists_combinations:
            combined = call("unnest", call("dpsql_key_rows", ticket))
            parts = ", ".join(f"{call('list_extract', 'f', str(column + 1))} AS p{column}" for column in self._columns)
            yield frame.step("combinations", f"SELECT {parts} FROM (SELECT {combined} AS f)", kept=True)

    def _learned(self) -> str:
        """Return the ticket, after the call was told the keys that a public table lists, in their order."""
        return f"SELECT {call('dpsql_learn_keys', self.frame.ticket, f'({listed_keys(self.plan)})')} AS ticket"

    @cached_property
    def _identities(self) -> list[str]:
        """Names of the columns that say which key a row has."""
        return [name for column in self._columns for name in (f"k{column}_number", f"k{column}_data")]

    @cached_property
    def _keys(self) -> list[str]:
        """Names of the columns that say which key a row has: positions of public keys, or the keys themselves."""
        return self._identities if self.plan.has_private_keys else [f"p{column}" for column in self._columns]

    @cached_property
    def _cell(self) -> list[str]:
        """Name of the column of the derived key: the position of a row's cell."""
        return [] if self.plan.derived is None else ["cell"]

    @cached_property
    def _groups(self) -> list[str]:
        """Names of the columns that say in which group a unit's rows are counted."""
        divided = self.plan.derived is not None and self.plan.derived.divides
        return [*self._keys, *(self._cell if divided else [])]

    def _mapped(self, rows: str, *columns: str) -> str:
        """Return rows with the positions of their keys; those of unlisted keys are dropped, or all in one place."""
        frame, parts, joins = self.frame, [], []
        kind = "LEFT JOIN" if self.plan.other else "JOIN"
        for column in self._columns:
            found = f"found{column}"
            joins.append(
                f"{kind} {frame.name(f'listed{column}')} AS {found} ON {found}.number IS NOT DISTINCT FROM "
                f"k{column}_number AND {found}.data IS NOT DISTINCT FROM k{column}_data"
            )
            parts.append(f"{found}.p AS p{column}")
        mapped = f"SELECT {', '.join((*columns, *parts))} FROM {rows} {' '.join(joins)}"
        if self.plan.lists_combinations:
            positions = ", ".join(self._keys)
            if self.plan.other:
                listed = ", ".join(f"p{column}" for column in self._columns)
                return self._pooled(
                    f"SELECT {', '.join(columns)}, {positions}, known FROM ({mapped}) LEFT JOIN "
                    f"(SELECT {listed}, true AS known FROM {frame.name('combinations')}) USING ({positions})",
                    columns,
                    "known",
                )
            return f"SELECT * FROM ({mapped}) SEMI JOIN {frame.name('combinations')} USING ({positions})"
        return self._pooled(mapped, columns, *self._keys) if self.plan.other else mapped

    def _pooled(self, mapped: str, columns: tuple[str, ...], *known: str) -> str:
        """Return rows whose positions are all -1 where one of `known` is NULL."""
        listed = " AND ".join(f"{name} IS NOT NULL" for name in known)
        positions = [f"CASE WHEN {listed} THEN {name} ELSE -1 END AS {name}" for name in self._keys]
        return f"SELECT {', '.join((*columns, *positions))} FROM ({mapped})"

    # Values.

    def _opened(self) -> str:
        """Return the key of every row, and its values in a form that the planner knows nothing of.

        Where bounds are private, rows wait until these are drawn.
        """
        parts, zero = [], self.frame.zero
        for column in self._columns:
            number, data = key(field("dpsql_row", f"k{column}"), zero)
            parts += [f"{number} AS k{column}_number", f"{data} AS k{column}_data"]
        for position, block in enumerate(self.plan.target_blocks):
            target = f"t{position}"
            opaque = self._number(target) if block is not None else _presence(field("dpsql_row", target), zero)
            parts.append(f"{opaque} AS v{position}")
        ticket = f"(SELECT ticket FROM {self.frame.name('turn1')})" if self._draws_bounds else self.ticket
        condition = f"{ticket} IS NOT NULL"
        if self._has_unit:
            number, data = identity("dpsql_unit")
            parts += [f"{number} AS unit_number", f"{data} AS unit_data"]
            condition += " AND dpsql_unit IS NOT NULL"
        if self.plan.counts_items:
            number, data = identity(field("dpsql_row", "d0"))
            parts += [f"{number} AS item_number", f"{data} AS item_data"]
            condition += f" AND {field('dpsql_row', 'd0')} IS NOT NULL"
        derived = self.plan.derived
        if derived is None:
            return f"SELECT {', '.join(parts) or 'true AS counted'} FROM {self.frame.source()} WHERE {condition}"
        parts.append(f"{self._number('v0')} AS number")
        return derived.query(f"SELECT {', '.join(parts)} FROM {self.frame.source()} WHERE {condition}")

    def _valued(self) -> str:
        """Return the rows with their values coded."""
        values = [f"v{position}" for position in range(len(self.plan.targets))]
        codes = [f"{self._code(position)} AS q{position}" for position in range(len(self.plan.targets))]
        rows, left_out = self.frame.name("opened"), values
        if self._draws_bounds:
            rows, left_out = f"{rows} CROSS JOIN {self.frame.name('drawn')}", [*values, "drawn"]
        kept = f"* EXCLUDE ({', '.join(left_out)})" if values else "*"
        if not (self._identities or self._has_unit) and values:
            return f"SELECT {', '.join(codes)} FROM {rows}"
        return f"SELECT {', '.join((kept, *codes))} FROM {rows}"

    def _code(self, position: int) -> str:
        """Return the code of a target; NULL where it has no value."""
        value, block = f"v{position}", self.plan.target_blocks[position]
        if block is None:
            return value
        middle, scale = block.affine
        if self.plan.merges_units:
            wide = call("*", value, double(scale))
            bounded = call("least", call("greatest", wide, double(-_WIDEST_VALUE)), double(_WIDEST_VALUE))
            code = cast(call("floor", plus(bounded, double(0.5))), "HUGEINT")
            return f"CASE WHEN NOT {call('isnan', value)} THEN {code} END"
        if self._draws_bounds:
            drawn = call("list_extract", "drawn", str(position + 1))
            lower, upper, shift, factor, low, high = (
                field(drawn, name) for name in ("lower", "upper", "middle", "scale", "low", "high")
            )
        else:
            low, high = map(str, block.limits)
            lower, upper, shift, factor = map(double, (block.lower, block.upper, middle, scale))
        moved = value if middle == 0 and not self._draws_bounds else call("-", value, shift)
        code = f"TRY_CAST({call('floor', plus(call('*', moved, factor), double(0.5)))} AS INTEGER)"
        if self._draws_bounds or not _keeps_limits(block):
            code = call("least", call("greatest", code, low), high)
        return (
            f"CASE WHEN {value} BETWEEN {lower} AND {upper} THEN {code} WHEN {value} < {lower} THEN {low} "
            f"WHEN {value} > {upper} AND NOT {call('isnan', value)} THEN {high} END"
        )

    # Contribution bounds.

    def _bounded(self) -> Iterator[str]:
        """Yield the steps that bound what a unit contributes; none where the unit is a row."""
        if not self._has_unit:
            return
        values = [f"q{position}" for position in range(len(self.plan.targets))]
        items = ["item_number", "item_data"] if self.plan.counts_items else []
        rows, unit = self.frame.name("valued"), ["unit_number", "unit_data"]
        if self._keys and not self.plan.has_private_keys:
            yield self.frame.step("mapped", self._mapped(rows, *unit, *items, *values, *self._cell))
            rows = self.frame.name("mapped")
        if self._merged_first:
            yield self.frame.step("merged", self._merged(rows, [*unit, *self._groups, *items]))
            rows = self.frame.name("merged")
        yield self.frame.step("kept", self._kept(rows, [*values, *self._cell], items))

    @property
    def _merged_first(self) -> bool:
        """Whether rows of one unit and group become one row, or one per item, before they are counted."""
        return self.plan.merges_units or self.plan.counts_items

    def _merged(self, rows: str, by: list[str]) -> str:
        """Return one row for each unit and group: what its values add up to, within the bounds."""
        parts = list(by)
        for position, block in enumerate(self.plan.target_blocks):
            total = call("sum", f"q{position}")
            if block is None:
                parts.append(f"CASE WHEN {call('count', f'q{position}')} > 0 THEN 0 END AS q{position}")
                continue
            middle, scale = block.affine
            low, high = block.limits
            moved = call("-", total, cast(text(str(round(middle * scale))), "HUGEINT"))
            # Texts are cast, because the minus of a literal before a cast is a function that callers may replace.
            ends = [cast(text(str(end)), "HUGEINT") for end in (low, high)]
            clipped = call("least", call("greatest", moved, ends[0]), ends[1])
            # least and greatest leave NULL out, which would make a bound of it.
            parts.append(f"CASE WHEN {total} IS NOT NULL THEN {cast(clipped, 'BIGINT')} END AS q{position}")
        return f"SELECT {', '.join(parts)} FROM {rows} GROUP BY {', '.join(by)}"

    def _kept(self, rows: str, values: list[str], items: list[str]) -> str:
        """Return the rows of each unit that count: a sample that follows from the unit's own rows and a secret key.

        Limits that follow from the others are not enforced twice: a unit with m rows is in at most m groups, and has at
        most m rows in each.
        """
        plan, groups, sorted_by = self.plan, self._groups, [*(items or values)]
        unit, ticket = ["unit_number", "unit_data"], self.frame.ticket
        known: float = math.inf if plan.group_count is None else plan.group_count
        alone = plan.merges_units and not items  # a unit has one row in a group
        in_group: float = 1 if alone else math.inf
        conditions = []
        if plan.groups < min(known, plan.max_rows_per_unit):
            order = order_by(["group_place", *groups])
            conditions.append(f"{call('dense_rank')} OVER ({partition_by(unit)} {order}) <= {plan.groups}")
            rows = f"(SELECT *, {short_place(ticket, *unit, *groups)} AS group_place FROM {rows})"
            known = plan.groups
        if plan.rows_per_group < min(in_group, plan.max_rows_per_unit):
            conditions.append(sampled(ticket, [*unit, *groups], sorted_by, plan.rows_per_group))
            in_group = plan.rows_per_group
        for condition in conditions:
            rows = f"(SELECT * FROM {rows} QUALIFY {condition})"
        if plan.max_rows_per_unit < known * in_group:
            rows = (
                f"(SELECT * FROM {rows} QUALIFY {sampled(ticket, unit, [*groups, *sorted_by], plan.max_rows_per_unit)})"
            )
        return f"SELECT * FROM {rows}"

    # Sums.

    def _summed(self, rows: str) -> str:
        """Return the exact sums of every group."""
        name = self.frame.name(rows)
        known = self._keys if self._has_unit or self.plan.has_private_keys else self._identities
        by = [*known, *self._cell]
        parts = list(by)
        if self.plan.counts_items:
            pair = struct({"number": "item_number", "data": "item_data"})
            parts.append(f"{call('count', f'DISTINCT {pair}')} AS n")
        else:
            parts.append(f"{call('count_star')} AS n")
        if self.plan.counts_units:
            unit = struct({"number": "unit_number", "data": "unit_data"})
            counted = call("count", f"DISTINCT {unit}") if self._has_unit else call("count_star")
            parts.append(f"{counted} AS units")
        for position, block in enumerate(self.plan.target_blocks):
            code = f"q{position}"
            parts.append(f"{call('count', code)} AS n{position}")
            if block is not None:
                parts.append(f"{coalesce(call('sum', code), '0')} AS s{position}")
            if block is not None and block.needs_squares:
                square = call("*", cast(code, "BIGINT"), code)
                parts.append(f"{coalesce(call('sum', square), '0')} AS ss{position}")
        grouped = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join(parts)} FROM {name}{grouped}"

    def _sums(self) -> dict[str, str]:
        """Return the fields that a group hands over."""
        fields = {"n": "n"} | ({"units": "units"} if self.plan.counts_units else {})
        for position, block in enumerate(self.plan.target_blocks):
            fields[f"n{position}"] = f"n{position}"
            if block is not None:
                fields[f"s{position}"] = cast(f"s{position}", "BIGINT")
            if block is not None and block.needs_squares:
                total = cast(f"ss{position}", "HUGEINT")
                fields[f"high{position}"] = cast(call("//", total, str(_HALF)), "BIGINT")
                fields[f"low{position}"] = cast(call("%", total, str(_HALF)), "BIGINT")
        return fields

    def _public_pass(self) -> Iterator[str]:
        """Hand every group over, by the positions of its keys."""
        frame, rows = self.frame, self.frame.name("grouped")
        if self.plan.by and not self._has_unit:
            yield frame.step("placed", self._mapped(rows, *self._sums_columns(), *self._cell))
            rows = frame.name("placed")
        fields = {name: name for name in (*self._keys, *self._cell)} | self._sums()
        number = self.plan.passes
        yield from self._collected(number, fields, rows, frame.ticket)
        yield self._numbers(number)

    def _numbers(self, last: int) -> str:
        """Return the statistic that consists of the numbers of a pass's batches."""
        return self.frame.step("statistic", f"SELECT s, s AS j FROM {self.frame.name(f'parts{last}')}")

    def _sums_columns(self) -> list[str]:
        names = ["n"]
        for position, block in enumerate(self.plan.target_blocks):
            names.append(f"n{position}")
            names += [f"s{position}"] if block is not None else []
            names += [f"ss{position}"] if block is not None and block.needs_squares else []
        return names

    def _private_passes(self) -> Iterator[str]:
        """Hand over the sums of every key by a number; then the labels of the keys that are released.

        Some of the rows have no numbers in common with others, so they hand the keys over.
        """
        frame, number = self.frame, self.plan.passes
        if frame.only is not None:
            fields = {name: name for name in self._identities} | self._sums()
            yield from self._collected(number, fields, frame.name("grouped"), frame.ticket)
            yield self._numbers(number)
            return
        # Keys are numbered in arbitrary order; the numbers only stand for them and decide nothing.
        numbered = f"SELECT *, {call('row_number')} OVER () AS j FROM {frame.name('grouped')}"
        yield frame.step("numbered", numbered, kept=True)
        yield from self._collected(number, {"j": "j"} | self._sums(), frame.name("numbered"), frame.ticket)
        yield self._turn(number)
        ticket = f"(SELECT ticket FROM {frame.name(f'turn{number}')})"
        released = call("unnest", call("dpsql_released_keys", ticket))
        yield frame.step("released", f"SELECT {released} AS j", kept=True)
        yield from self._labelled(f"{frame.name('numbered')} SEMI JOIN {frame.name('released')} USING (j)", ticket)

    def _labels_alone(self) -> Iterator[str]:
        """Hand over the labels of released keys that the call itself has."""
        frame = self.frame
        parts = [f"{field('f', 'j')} AS j"]
        for column in self._columns:
            for part, name in (("number", "numbers"), ("data", "texts")):
                parts.append(f"{call('list_extract', field('f', name), str(column + 1))} AS k{column}_{part}")
        listed = call("unnest", call("dpsql_released_values", frame.ticket))
        yield frame.step("released", f"SELECT {', '.join(parts)} FROM (SELECT {listed} AS f)", kept=True)
        yield from self._labelled(frame.name("released"), frame.ticket)

    def _labelled(self, keys: str, ticket: str) -> Iterator[str]:
        """Hand over the labels of keys, and their ranks in the order of the keys' own types."""
        frame, number = self.frame, self.plan.passes + self.plan.closing_passes
        labels, typed, witnesses = {}, [], []
        for column in self._columns:
            labels[f"label{column}"] = label(f"witness{column}", f"k{column}_number", f"k{column}_data")
            value = call("cast_to_type", f"label{column}", f"witness{column}")
            typed.append(f"TRY({value})")
            witnesses.append(f"{field('dpsql_row', f'k{column}')} AS witness{column}")
        known = f"SELECT {', '.join(witnesses)} FROM {frame.probe()} LIMIT 0"
        listed = ", ".join(f"{text} AS {name}" for name, text in labels.items())
        rows = f"(SELECT *, {listed} FROM {keys} LEFT JOIN ({known}) ON true)"
        rank = f"{call('row_number')} OVER ({order_by([*typed, *self._identities])})"
        yield frame.step("labelled", f"SELECT j, {', '.join(labels)}, {rank} AS rank FROM {rows}")
        fields = {name: name for name in ("j", "rank", *labels)}
        yield from self._collected(number, fields, frame.name("labelled"), ticket)
        yield self._numbers(number)

    def _collected(self, number: int, fields: dict[str, str], rows: str, ticket: str) -> Iterator[str]:
        """Return the step that hands rows to the collector of a pass, and returns the numbers of its batches."""
        collect = call("dpsql_collect", ticket, struct(fields))
        yield self.frame.step(
            f"parts{number}", f"SELECT s FROM (SELECT {collect} AS s FROM {rows}) WHERE s IS NOT NULL"
        )


def _presence(column: str, zero: str) -> str:
    """Return 0 where a column has a value, and NULL where it is NULL or NaN."""
    is_float = f"{call('typeof', column)} IN ({', '.join(map(text, FLOATS))})"
    number = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", zero)
    return f"CASE WHEN {column} IS NULL OR ({is_float} AND {call('isnan', number)}) THEN NULL ELSE 0 END"


def _keeps_limits(block: ValueBlock) -> bool:
    """Whether values within the bounds have codes within the limits, by the same arithmetic: it keeps their order."""
    middle, scale = block.affine
    low, high = (math.floor((value - middle) * scale + 0.5) for value in (block.lower, block.upper))
    return block.limits[0] <= low and high <= block.limits[1]
