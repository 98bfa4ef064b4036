"""A step of a statement, and the shared state of all its steps: the plan, the gate's values, and names.

This module is the only place where source rows enter a statement. It reads their types, puts the gate before them, and
finds each row's period and unit before anything else reads the row.

With periods the privacy unit is a person in a period (`dpsql.contract.periods`). Rows outside the call's periods, and
rows without a period, are left out first. The remaining rows have the identity of (person, period) instead of the
person's, so that row limits, groups, merges and blocks of every function use that unit.

A period's number comes from date parts that DuckDB has for every date; nothing here can fail for a row's value. The
number adds the gate's zero, which hides it from column statistics.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable

from dpsql.contract.call import MISSING
from dpsql.contract.names import read_as_text, source_sql
from dpsql.contract.periods import PARTS, During
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, GROUPED, XTY, Pass, Plan
from dpsql.contract.query.condition import columns_of
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.keys import NAMED, filtered_rows, identity, key_parts, short_place, text_of_label, valid_text
from dpsql.engines.duckdb.releases import texts_sql
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import function_of
from dpsql.rendering import call, cast, concatenated, field, identifier, plus, struct, text, with_one_spelling

# Statements that hand rows over in passes.
IN_PASSES = (COLLECTED, FEATURE_COUNTS, GROUPED)
# The columns of a unit, and of a counted item: a number, and bytes (`dpsql.engines.duckdb.keys.identity`).
UNIT = ("unit_number", "unit_bytes")
ITEM = ("item_number", "item_bytes")
# Columns longer than this get lines of their own.
_LINE = 80


@dataclass(frozen=True)
class Step:
    """A named query.

    Attributes
    ----------
    name : str
        Its plain name; a number at the end is that of its pass, or of a column.
    note : str
        Its purpose, as a sentence.
    query : str
    is_materialized : bool
        Whether DuckDB runs it once and keeps its rows.
    """

    name: str
    note: str
    query: str
    is_materialized: bool = False


@dataclass(frozen=True)
class Frame:
    """The shared state of the steps of one statement.

    Attributes
    ----------
    plan : Plan
    function : str
        The statistic's SQL function, such as ``'dp_sis'``.
    only : int or None
        The single pass that runs, over some of the rows and without a gate, in an engine's worker. None for all passes
        over all rows.
    own_blocks : int or None
        Number of whole blocks that the single pass reads; None for the plan's number.
    drawing : Frame or None
        The frame of the part of the same statement that draws the row limit per unit; None for a declared limit.
    suffix : str
        Part of names that no source or column of the caller can have: drawn anew for each statement.
    """

    plan: Plan
    function: str
    only: int | None = None
    own_blocks: int | None = None
    drawing: Frame | None = None
    suffix: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    @property
    def opening(self) -> Pass:
        """The single pass that runs, or the first one."""
        return self.plan.passes[(self.only or 1) - 1]

    @property
    def blocks(self) -> int:
        """Number of whole blocks in a pass; 0 if there are none."""
        return self.opening.whole_blocks if self.own_blocks is None else self.own_blocks

    def name(self, step: str) -> str:
        """Return the full name of a step."""
        return f"__dpsql__{step}_{self.suffix}"

    @property
    def ticket(self) -> str:
        """SQL of the ticket that the gate gives the call; if a limit is drawn, after its draw."""
        if self.drawing is not None:
            return self.ticket_of("limited")
        return f"(SELECT {field('gate', 'ticket')} FROM {self.name('gate')})"

    @property
    def most_of_unit(self) -> str:
        """SQL of the row limit per unit."""
        return (
            str(self.plan.max_rows_per_unit) if self.drawing is None else f"(SELECT most FROM {self.name('limited')})"
        )

    @property
    def zero(self) -> str:
        """SQL of the number 0 from the gate, which is unknown when DuckDB plans the statement."""
        return f"(SELECT {field('gate', 'zero')} FROM {self.name('gate')})"

    @property
    def is_numbered(self) -> bool:
        """Whether units are integers, identified by one column; with periods they are texts."""
        placement = self.plan.placement
        return placement is not None and placement.numbered and self.plan.chosen_by_date is None

    @property
    def unit(self) -> tuple[str, ...]:
        """Names of the columns that identify a row's unit."""
        return UNIT[:1] if self.is_numbered else UNIT

    def place_of(self, *columns: str) -> str:
        """Return SQL of a keyed hash of columns; a unit in one column or in two has the same hash."""
        bytes_of = {UNIT[0]: ("''::BLOB",)} if self.is_numbered else {}
        return short_place(self.ticket, *(part for name in columns for part in (name, *bytes_of.get(name, ()))))

    def ticket_of(self, step: str) -> str:
        """Return SQL of the ticket that a later step passes on."""
        return f"(SELECT ticket FROM {self.name(step)})"

    @property
    def opening_ticket(self) -> str:
        """SQL of the ticket after everything that must run before the first pass ends."""
        if self.opening.draws_names:
            return self.ticket_of("vocabulary")
        return self.ticket_of("center") if self.plan.statement == XTY else self.ticket

    @property
    def closing_ticket(self) -> str:
        """SQL of the ticket after everything that must run before the release."""
        turns = len(self.plan.passes) - 1 if self.plan.statement in IN_PASSES else 0
        return self.ticket_of(f"turn{turns}") if turns else self.opening_ticket

    def sql(self, step: Step, *, noted: bool) -> str:
        """Return a step as in a WITH clause; after its note, if `noted`."""
        note = f"-- {step.note}\n" if noted else ""
        return f"{note}{self.name(step.name)} AS {'MATERIALIZED ' if step.is_materialized else ''}(\n  {step.query}\n)"


def select(columns: Iterable[str], rows: str, *clauses: str) -> str:
    """Return a query of some columns, its clauses on separate lines; leave empty ones out."""
    columns = list(columns)
    between = ", " if sum(map(len, columns)) <= _LINE else ",\n    "
    return "\n  ".join((f"SELECT {between.join(columns)}", f"FROM {rows}", *filter(None, clauses)))


@dataclass(frozen=True)
class GroupedFrame(Frame):
    """The frame of a statement with groups; it adds attributes to `Frame`.

    Attributes
    ----------
    keyed : GroupedFrame or None
        The frame of the part of the same statement whose released keys are the groups of this one.
    bounding : GroupedFrame or None
        The frame of the part of the same statement that draws bounds of columns for this one.
    """

    plan: GroupedPlan
    keyed: GroupedFrame | None = None
    bounding: GroupedFrame | None = None

    @property
    def columns(self) -> range:
        """Numbers of the group columns."""
        return range(len(self.plan.by))

    @property
    def has_unit(self) -> bool:
        """Whether the privacy unit has an id, and is not a row."""
        return self.plan.layout.privacy_unit is not None

    @property
    def draws_bounds(self) -> bool:
        """Whether a pass over the rows draws the bounds of the targets before they are added up."""
        return self.plan.readings > 1

    @property
    def is_bounded(self) -> bool:
        """Whether bounds are drawn before values are coded, by a separate pass or by another part."""
        return self.draws_bounds or self.bounding is not None

    @property
    def checked_ticket(self) -> str:
        """SQL of the ticket after the check of public keys, if there are any."""
        return self.ticket if self.plan.has_private_keys or not self.plan.by else self.ticket_of("checked")

    @property
    def opening_ticket(self) -> str:
        """SQL of the ticket that a scan waits for, after the key check and the bounds of another part."""
        return self.checked_ticket if self.bounding is None else self.ticket_of("bounded")

    @property
    def coding_ticket(self) -> str:
        """SQL of the ticket after which the coding of values is known."""
        return self.ticket_of("turn1") if self.draws_bounds else self.opening_ticket

    @property
    def identities(self) -> list[str]:
        """Names of the columns that identify a row's key."""
        return [f"k{column}" for column in self.columns]

    def place_of(self, *columns: str) -> str:
        """Return SQL of a keyed hash of columns: of a key by its number and text, of a position by 64 bits."""
        parts: list[str] = []
        for name in columns:
            if name in self.identities:
                parts += key_parts(name)
            else:
                parts.append(cast(name, "BIGINT") if name in self.keys else name)
        return super().place_of(*parts)

    @property
    def keys(self) -> list[str]:
        """Names of a row's key columns: positions of public keys, or the keys themselves."""
        return self.identities if self.plan.has_private_keys else [f"p{column}" for column in self.columns]

    @property
    def cell(self) -> list[str]:
        """Name of the column of the derived key: the position of a row's cell."""
        return [] if self.plan.derived is None else ["cell"]

    @property
    def groups(self) -> list[str]:
        """Names of the columns that identify the group in which a unit's rows count."""
        divided = self.plan.derived is not None and self.plan.derived.divides
        return [*self.keys, *(self.cell if divided else [])]

    @property
    def items(self) -> list[str]:
        """Names of the columns that identify a row's item, if different items are counted."""
        return list(ITEM) if self.plan.counts_items else []

    @property
    def codes(self) -> list[str]:
        """Names of the columns of the coded targets."""
        return [f"q{position}" for position in range(len(self.plan.targets))]

    def number(self, part: str, zero: str = "") -> str:
        """Return a value of the row as a double without planner statistics; NULL if it is none.

        `zero` is the column of the gate's zero, if there is one.
        """
        return plus(f"TRY_CAST({field('dpsql_row', part)} AS DOUBLE)", zero or self.zero)


# The source's date column.
DATE = "dpsql_date"
_MOMENT, _PERIOD = "dpsql_moment", "dpsql_period"
_ZONED = "TIMESTAMP WITH TIME ZONE"


def _moment(during: During) -> str:
    """Return the date as a timestamp; NULL for another type, which the gate refuses."""
    kind = call("typeof", DATE)
    if during.dated.zone is None:
        return f"CASE WHEN {kind} IN ('DATE', 'TIMESTAMP') THEN TRY_CAST({DATE} AS TIMESTAMP) END"
    # A cast to TIMESTAMP follows the session's time zone; microseconds are UTC.
    moment = call("make_timestamp", call("epoch_us", f"TRY_CAST({DATE} AS {_ZONED})"))
    return f"CASE WHEN {kind} = {text(_ZONED)} THEN {moment} END"


def _number(period: str) -> str:
    """Return the number of a timestamp's period."""
    first, others = PARTS[period]
    number = call("date_part", text(first), _MOMENT)
    for part, values in others:
        number = plus(call("*", number, str(values)), call("-", call("date_part", text(part), _MOMENT), "1"))
    return number


def dated(rows: str, during: During, zero: str, *, filtered: bool) -> str:
    """Return the FROM item of rows with the unit (person, period); `filtered`, only rows that a call sees.

    Other rows have no unit.
    """
    moments = select([f"* EXCLUDE ({DATE})", f"{_moment(during)} AS {_MOMENT}"], rows)
    number = plus(_number(during.dated.period), cast(zero, "BIGINT"))
    numbered = select([f"* EXCLUDE ({_MOMENT})", f"{number} AS {_PERIOD}"], f"({moments})")
    seen = " OR ".join(f"{_PERIOD} BETWEEN {first} AND {last}" for first, last in during.numbers)
    number, data = identity("dpsql_unit")
    # Any person's bytes begin after the second colon.
    unit = concatenated(cast(_PERIOD, "VARCHAR"), "':'", cast(number, "VARCHAR"), "':'", call("hex", data))
    columns = [f"* EXCLUDE (dpsql_unit, {_PERIOD})", f"CASE WHEN {seen} THEN {unit} END AS dpsql_unit"]
    return f"({select(columns, f'({numbered})', f'WHERE {seen}' if filtered else '')}) AS input"


def rows_of(frame: Frame, *, filtered: bool = True, typed: bool = False, also: tuple[str, ...] = ()) -> str:
    """Return the FROM item that names each column by its part in the call and makes absent columns recognizable.

    If `filtered`, it has only rows of the call's periods that match its condition. Text is NULL unless it is UTF-8. If
    `typed`, for a look at types alone, columns are unchanged. `also` names source columns that are passed on.

    It is repeated wherever rows are read, and not a step: DuckDB 1.5.6 crashes on a frame that it finds as a Python
    variable inside a CTE that is not materialized and is read twice.

    A column that the source lacks resolves to the outer relation and appears with a type that no column of interest
    has; the gate then refuses it with dpsql's own message. ``SELECT *`` around the source excludes DuckDB's
    pseudo-columns (rowid, file_row_number): they give a row's place, not its contents, and change when another row is
    removed.
    """
    plan, alias = frame.plan, frame.name("source")
    is_valid = plan.placement is not None and plan.placement.checked
    parts, names = _columns(plan, alias, checked=not (typed or is_valid))
    absent = ", ".join(f"NULL::STRUCT({MISSING} BOOLEAN) AS {name}" for name in dict.fromkeys(names))
    source = source_of(plan)
    columns = [*(f"{part} AS {name}" for name, part in parts.items()), *also]
    projection = select(columns, f"{f'(SELECT * FROM {source})' if names else source} AS {alias}")
    rows = (
        f"(SELECT found.* FROM (SELECT {absent or 'NULL AS dpsql_none'}) AS {frame.name('absent')}, "
        f"LATERAL ({projection}) AS found) AS input"
    )
    if plan.chosen_by_date is not None and not typed:
        rows = dated(rows, plan.chosen_by_date, frame.zero, filtered=filtered)
        del parts[DATE]
    if not filtered or plan.condition is None:
        return rows
    return f"({filtered_rows(rows, ', '.join(parts), plan.judged, frame.zero)}) AS input"


def source_of(plan: Plan) -> str:
    """Return the FROM item of a call's source, with the joins along its path; read private labels as text."""
    placement = plan.placement
    if placement is None:
        return source_sql(plan.source)
    source = placement.joined or source_sql(plan.source)
    return read_as_text(with_one_spelling(source, placement.loose) if placement.loose else source, placement.texts)


def _columns(plan: Plan, source: str, *, checked: bool) -> tuple[dict[str, str], list[str]]:
    """Return the selected columns of a source by their part in the call, and the named ones.

    Columns that must be numbers are unchanged, and so is a whole row: no SQL function takes text from them.
    """
    layout = plan.layout
    names: list[str] = []
    # DuckDB knows only at binding which columns of a file or a frame have labels.
    is_resolved = plan.placement is None or plan.placement.seen or not plan.placement.governed

    def column(name: str | None) -> str:
        if name is None:
            return "NULL::BOOLEAN"
        names.append(identifier(name))
        return identifier(name) if is_resolved else text_of_label(identifier(name))

    def valid(name: str | None) -> str:
        return valid_text(column(name)) if checked and name is not None else column(name)

    row = call("struct_pack", f"*COLUMNS({source}.*)")  # a row called struct_pack is one that a macro replaces
    columns = plan.row_columns
    if columns is not None:
        numeric = set(layout.features or ()) if layout.kind == "wide" else {layout.features}
        fields = {part: (column if name in numeric else valid)(name) for part, name in columns.items()}
        row = struct(fields) if fields else "NULL::BOOLEAN"
    parts = {"dpsql_row": row, "dpsql_unit": valid(layout.privacy_unit), "dpsql_row_id": valid(layout.row_id)}
    if layout.kind == "long":
        parts |= {"dpsql_feature": valid(str(layout.features)), "dpsql_value": column(layout.value)}
    if plan.chosen_by_date is not None:
        parts[DATE] = column(plan.chosen_by_date.dated.column)
    if plan.condition is not None:
        parts[NAMED] = struct({name: valid(name) for name in columns_of(plan.condition)})
    return parts, names


def types(frame: Frame) -> Step:
    """Return the step of all column types, without rows; every other look at types reads this step."""
    parts = _columns(frame.plan, "", checked=False)[0]
    return Step(
        "types",
        "The types of the columns, by their part in the call. No row is read.",
        select(
            [f"{struct({part: part for part in parts})} AS probe"],
            rows_of(frame, filtered=False, typed=True),
            "LIMIT 0",
        ),
        is_materialized=True,
    )


def typed_key(column: int) -> str:
    """Return a group column from the step of the types: a NULL of its type."""
    return field(field("probe", "dpsql_row"), f"k{column}")


def key_types(frame: Frame) -> list[str]:
    """Return the SQL types of a call's group columns, as a list; nothing without groups."""
    by = getattr(frame.plan, "by", ())
    kinds = [call("typeof", f"(SELECT {typed_key(column)} FROM {frame.name('types')})") for column in range(len(by))]
    return [call("list_value", *kinds)] if kinds else []


def gate(frame: Frame) -> Step:
    """Return the step of the ticket, and of a zero that is unknown when DuckDB plans the statement."""
    if frame.only is not None:
        return Step(
            "gate",
            "Arguments, column types and budget were checked where the call began. Every scan waits for this ticket.",
            f"SELECT {call('dpsql_part')} AS gate",
            is_materialized=True,
        )
    plan, keys, condition = frame.plan, key_types(frame), _condition_types(frame)
    texts = texts_sql(plan) if function_of(frame.function).spends else "NULL"
    arguments = [text(frame.function), text(plan.to_json()), f"(SELECT probe FROM {frame.name('types')})", texts]
    arguments += [*(keys or ["NULL::VARCHAR[]"]), *condition] if condition else keys
    return Step(
        "gate",
        "Check arguments, column types and budget before any row is read. Every scan below waits for this ticket.",
        f"SELECT {call('dpsql_gate', *arguments)} AS gate",
        is_materialized=True,
    )


def _condition_types(frame: Frame) -> list[str]:
    """Return the types of the columns that the condition reads, as one text; nothing without a condition."""
    judged = frame.plan.judged
    if judged is None or not judged.columns:
        return []
    columns = struct({name: field(field("probe", NAMED), name) for name in judged.columns})
    return [call("typeof", f"(SELECT {columns} FROM {frame.name('types')})")]
