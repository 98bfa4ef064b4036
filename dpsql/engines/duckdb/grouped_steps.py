"""The steps of a statement with groups: map keys, bound what each privacy unit contributes, and add up.

Keys become a number or bytes before they are compared (`key`). So no collation applies, and no row's spelling becomes a
label. Public keys are cast to the column's type and written as texts again by the same rule; a row is in one group or
in none. Values become integers in SQL. Like scores, they have the gate's zero added first, which hides them from column
statistics (`dpsql.engines.duckdb.statements`). Nothing in these steps can fail for one row's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dpsql.engines.duckdb.keys import identity, place, text_bytes
from dpsql.functions.grouped import GroupedPlan
from dpsql.rendering import call, cast, coalesce, concatenated, double, field, plus, struct, text

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_FLOATS = ("FLOAT", "DOUBLE")
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
    source : callable
        Returns the FROM item of the source, by parts of the call.
    name : callable
        Returns the full name of a step.
    step : callable
        Names a query; its argument `kept` has DuckDB keep the rows.
    """

    ticket: str
    zero: str
    source: Callable[[], str]
    name: Callable[[str], str]
    step: Callable[..., str]


def key(column: str, zero: str) -> tuple[str, str]:
    """Return a key as a number and bytes: equal exactly when the keys are, and NULL where the key is.

    Integers are numbers. Everything else is the bytes of its text; floating numbers have a zero added, which the gate
    gives, so that -0.0 is 0.0 and column statistics say nothing about them. All NaN are one key, whatever their sign.
    """
    kind = call("typeof", column)
    is_integer = f"{kind} IN ({', '.join(map(text, _INTEGERS))})"
    is_float = f"{kind} IN ({', '.join(map(text, _FLOATS))})"
    number = f"CASE WHEN {is_integer} THEN TRY_CAST({column} AS BIGINT) ELSE 0 END"
    opaque = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", zero)
    floating = call("encode", f"CASE WHEN {call('isnan', opaque)} THEN 'nan' ELSE {cast(opaque, 'VARCHAR')} END")
    return number, f"CASE WHEN {is_integer} THEN ''::BLOB WHEN {is_float} THEN {floating} ELSE {text_bytes(column)} END"


def label(column: str, number: str, data: str) -> str:
    """Return the text of a key, from its number and bytes alone; `column` gives the type."""
    is_integer = f"{call('typeof', column)} IN ({', '.join(map(text, _INTEGERS))})"
    return f"CASE WHEN {is_integer} THEN {cast(number, 'VARCHAR')} ELSE {call('decode', data)} END"


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
        if not self.plan.has_private_keys:
            yield from self._public_keys()
        yield frame.step("valued", self._valued())
        yield from self._bounded()
        last = "kept" if self._has_unit else "valued"
        yield frame.step("grouped", self._summed(last), kept=self.plan.has_private_keys)
        yield from self._private_passes() if self.plan.has_private_keys else self._public_pass()

    # Keys.

    @property
    def _has_unit(self) -> bool:
        return self.plan.layout.privacy_unit is not None

    @property
    def _ticket(self) -> str:
        """The ticket that scans wait for: public keys are checked before any row is read."""
        if self.plan.has_private_keys or not self.plan.by:
            return self.frame.ticket
        return f"(SELECT ticket FROM {self.frame.name('checked')})"

    def _public_keys(self) -> Iterator[str]:
        """Cast the listed keys to the types of their columns, and check them."""
        frame, lists = self.frame, []
        if not self.plan.by:
            return
        for column in self._columns:
            listed = call("unnest", call("dpsql_key_list", frame.ticket, str(column)))
            witness = f"SELECT {field('dpsql_row', f'k{column}')} AS witness FROM {frame.source()} LIMIT 0"
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
        checked = call("dpsql_check_keys", frame.ticket, call("list_value", *lists))
        yield frame.step("checked", f"SELECT {checked} AS ticket", kept=True)
        if self.plan.key_rows is not None:
            combined = call("unnest", call("dpsql_key_rows", frame.ticket))
            parts = ", ".join(f"{call('list_extract', 'f', str(column + 1))} AS p{column}" for column in self._columns)
            yield frame.step("combinations", f"SELECT {parts} FROM (SELECT {combined} AS f)", kept=True)

    @cached_property
    def _identities(self) -> list[str]:
        """Names of the columns that say which key a row has."""
        return [name for column in self._columns for name in (f"k{column}_number", f"k{column}_data")]

    @cached_property
    def _groups(self) -> list[str]:
        """Names of the columns that say which group a row is in: positions of public keys, or the keys themselves."""
        return self._identities if self.plan.has_private_keys else [f"p{column}" for column in self._columns]

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
        if self.plan.key_rows is not None:
            positions = ", ".join(self._groups)
            if self.plan.other:
                listed = ", ".join(f"p{column}" for column in self._columns)
                return self._pooled(
                    f"SELECT {', '.join(columns)}, {positions}, known FROM ({mapped}) LEFT JOIN "
                    f"(SELECT {listed}, true AS known FROM {frame.name('combinations')}) USING ({positions})",
                    columns,
                    "known",
                )
            return f"SELECT * FROM ({mapped}) SEMI JOIN {frame.name('combinations')} USING ({positions})"
        return self._pooled(mapped, columns, *self._groups) if self.plan.other else mapped

    def _pooled(self, mapped: str, columns: tuple[str, ...], *known: str) -> str:
        """Return rows whose positions are all -1 where one of `known` is NULL."""
        listed = " AND ".join(f"{name} IS NOT NULL" for name in known)
        positions = [f"CASE WHEN {listed} THEN {name} ELSE -1 END AS {name}" for name in self._groups]
        return f"SELECT {', '.join((*columns, *positions))} FROM ({mapped})"

    # Values.

    def _valued(self) -> str:
        """Return the key and the coded values of every row."""
        parts = []
        for column in self._columns:
            number, data = key(field("dpsql_row", f"k{column}"), self.frame.zero)
            parts += [f"{number} AS k{column}_number", f"{data} AS k{column}_data"]
        for position in range(len(self.plan.targets)):
            parts.append(f"{self._value(position)} AS q{position}")
        condition = f"{self._ticket} IS NOT NULL"
        if self._has_unit:
            number, data = identity("dpsql_unit")
            parts += [f"{number} AS unit_number", f"{data} AS unit_data"]
            condition += " AND dpsql_unit IS NOT NULL"
        if self.plan.counts_items:
            number, data = identity(field("dpsql_row", "d0"))
            parts += [f"{number} AS item_number", f"{data} AS item_data"]
            condition += f" AND {field('dpsql_row', 'd0')} IS NOT NULL"
        return f"SELECT {', '.join(parts) or 'true AS counted'} FROM {self.frame.source()} WHERE {condition}"

    def _value(self, position: int) -> str:
        """Return the code of a target; NULL where it has no value."""
        column, block = field("dpsql_row", f"t{position}"), self.plan.target_blocks[position]
        if block is None:
            is_float = f"{call('typeof', column)} IN ({', '.join(map(text, _FLOATS))})"
            number = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", self.frame.zero)
            missing = f"{column} IS NULL OR ({is_float} AND {call('isnan', number)})"
            return f"CASE WHEN {missing} THEN NULL ELSE 0 END"
        opaque = plus(f"TRY_CAST({column} AS DOUBLE)", self.frame.zero)
        middle, scale = block.affine
        if self.plan.merges_units:
            wide = call("*", opaque, double(scale))
            bounded = call("least", call("greatest", wide, double(-_WIDEST_VALUE)), double(_WIDEST_VALUE))
            code = cast(call("floor", plus(bounded, double(0.5))), "HUGEINT")
            return f"CASE WHEN NOT {call('isnan', opaque)} THEN {code} END"
        low, high = block.limits
        lower, upper = double(block.lower), double(block.upper)
        moved = opaque if middle == 0 else call("-", opaque, double(middle))
        code = cast(call("floor", plus(call("*", moved, double(scale)), double(0.5))), "BIGINT")
        clipped = call("least", call("greatest", code, str(low)), str(high))
        return (
            f"CASE WHEN {opaque} BETWEEN {lower} AND {upper} THEN {clipped} WHEN {opaque} < {lower} THEN {low} "
            f"WHEN {opaque} > {upper} AND NOT {call('isnan', opaque)} THEN {high} END"
        )

    # Contribution bounds.

    def _bounded(self) -> Iterator[str]:
        """Yield the steps that bound what a unit contributes; none where the unit is a row."""
        if not self._has_unit:
            return
        values = [f"q{position}" for position in range(len(self.plan.targets))]
        items = ["item_number", "item_data"] if self.plan.counts_items else []
        rows, unit = self.frame.name("valued"), ["unit_number", "unit_data"]
        if self._groups and not self.plan.has_private_keys:
            yield self.frame.step("mapped", self._mapped(rows, *unit, *items, *values))
            rows = self.frame.name("mapped")
        if self._merged_first:
            yield self.frame.step("merged", self._merged(rows, [*unit, *self._groups, *items]))
            rows = self.frame.name("merged")
        yield self.frame.step("kept", self._kept(rows, values, items))

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
        """Return the rows of each unit that count: a sample that follows from the unit's own rows and a secret key."""
        plan, unit = self.plan, ("unit_number", "unit_data")
        groups = ", ".join(self._groups)
        owner = ", ".join(unit)
        in_group = f"{owner}, {groups}" if groups else owner
        where = [(name, "''::BLOB") for name in self._groups if name.startswith("p")]
        where += [(f"k{column}_number", f"k{column}_data") for column in self._columns if plan.has_private_keys]
        where = [(coalesce(number, "0"), coalesce(data, "'NULL'::BLOB")) for number, data in where]
        parts = [part for value in values for part in (coalesce(cast(value, "VARCHAR"), "'-'"), "':'")]
        contents = call("encode", concatenated("''", *parts))
        out = rows
        public = plan.public_keys
        count = None if public is None or public.count is None else public.count + plan.other
        if groups and (count is None or plan.groups < count):
            out = _ranked(out, "dense_rank", owner, place(unit, *where), self._groups, plan.groups)
        row = place(unit, *where, ("item_number", "item_data") if items else contents)
        if items or not plan.merges_units:
            out = _ranked(out, "row_number", in_group, row, items or values, plan.rows_per_group)
        if plan.max_rows_per_unit < plan.groups * plan.rows_per_group:
            out = _ranked(out, "row_number", owner, row, [*self._groups, *(items or values)], plan.max_rows_per_unit)
        return f"SELECT * FROM {out}"

    # Sums.

    def _summed(self, rows: str) -> str:
        """Return the exact sums of every group."""
        name = self.frame.name(rows)
        by = self._groups if self._has_unit or self.plan.has_private_keys else self._identities
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
                parts.append(f"{coalesce(call('sum', call('*', code, code)), '0')} AS ss{position}")
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
            sums = self._sums_columns()
            yield frame.step("placed", self._mapped(rows, *sums))
            rows = frame.name("placed")
        fields = {name: name for name in self._groups} | self._sums()
        yield from self._collected(1, fields, rows, frame.ticket)
        yield frame.step("statistic", f"SELECT s, s AS j FROM {frame.name('parts1')}")

    def _sums_columns(self) -> list[str]:
        names = ["n"]
        for position, block in enumerate(self.plan.target_blocks):
            names.append(f"n{position}")
            names += [f"s{position}"] if block is not None else []
            names += [f"ss{position}"] if block is not None and block.needs_squares else []
        return names

    def _private_passes(self) -> Iterator[str]:
        """Hand over the sums of every key by a number; then the labels of the keys that are released."""
        frame = self.frame
        order = ", ".join(f"{name} ASC NULLS LAST" for name in self._identities)
        numbered = f"SELECT *, {call('row_number')} OVER (ORDER BY {order}) AS j FROM {frame.name('grouped')}"
        yield frame.step("numbered", numbered, kept=True)
        yield from self._collected(1, {"j": "j"} | self._sums(), frame.name("numbered"), frame.ticket)
        batches = f"(SELECT {call('list', 's')} FROM {frame.name('parts1')})"
        turned = call("dpsql_turn", frame.ticket, "1", batches)
        yield frame.step("turn1", f"SELECT {turned} AS ticket", kept=True)
        ticket = f"(SELECT ticket FROM {frame.name('turn1')})"
        released = call("unnest", call("dpsql_released_keys", ticket))
        yield frame.step("released", f"SELECT {released} AS j", kept=True)
        labels, typed, witnesses = {}, [], []
        for column in self._columns:
            labels[f"label{column}"] = label(f"witness{column}", f"k{column}_number", f"k{column}_data")
            typed.append(f"{call('cast_to_type', f'label{column}', f'witness{column}')} ASC NULLS LAST")
            witnesses.append(f"{field('dpsql_row', f'k{column}')} AS witness{column}")
        known = f"SELECT {', '.join(witnesses)} FROM {frame.source()} LIMIT 0"
        listed = ", ".join(f"{text} AS {name}" for name, text in labels.items())
        rows = (
            f"(SELECT *, {listed} FROM {frame.name('numbered')} SEMI JOIN {frame.name('released')} USING (j) "
            f"LEFT JOIN ({known}) ON true)"
        )
        rank = f"{call('row_number')} OVER (ORDER BY {', '.join((*typed, 'j ASC NULLS LAST'))})"
        yield frame.step("labelled", f"SELECT j, {', '.join(labels)}, {rank} AS rank FROM {rows}")
        fields = {name: name for name in ("j", "rank", *labels)}
        rows = frame.name("labelled")
        yield from self._collected(2, fields, rows, ticket)
        yield frame.step("statistic", f"SELECT s, s AS j FROM {frame.name('parts2')}")

    def _collected(self, number: int, fields: dict[str, str], rows: str, ticket: str) -> Iterator[str]:
        """Return the step that hands rows to the collector of a pass, and returns the numbers of its batches."""
        row, none = struct(fields), ("NULL::UBIGINT", "NULL::BIGINT")
        collect = call("dpsql_collect", ticket, str(number), row, *none)
        yield self.frame.step(
            f"parts{number}", f"SELECT s FROM (SELECT {collect} AS s FROM {rows}) WHERE s IS NOT NULL"
        )


def _ranked(rows: str, rank: str, partition: str, where: str, ties: list[str], most: int) -> str:
    """Return the rows that come first by a place; ties between places fall to the columns `ties`.

    The place is a column before it is compared: DuckDB 2.0 accepts nothing volatile in a window's order.
    """
    order = ", ".join(f"{name} ASC NULLS LAST" for name in ("place", *ties))
    return (
        f"(SELECT * EXCLUDE (place) FROM (SELECT *, {where} AS place FROM {rows}) "
        f"QUALIFY {call(rank)} OVER (PARTITION BY {partition} ORDER BY {order}) <= {most})"
    )
