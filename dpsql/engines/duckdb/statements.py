"""The SQL that a call runs in the caller's own session: bound, aggregate, release.

A statement does not depend on the rows, grows only with the names of the columns, and draws
nothing by itself: the functions in it that read rows or draw are volatile, so EXPLAIN, DESCRIBE and
PREPARE do not run them. `dpsql_gate` checks types and budget before any row is read: every scan
waits for its ticket.

The contents of a source enter a statement in one place, `Statement._input`, and are used in only three ways:

- *Identities* (privacy units, row ids, labels) become a number or bytes (`identity`) before anything is joined,
  grouped, partitioned or hashed, and names of features a text that is compared by its bytes (`exact_text`). Collations
  apply to none of them.
- *Samples* (which rows of a unit count) and *blocks* follow from `place`, a 128-bit hash under a secret key
  of identities and contents. With groups a fast hash of 64 bits takes its place, and ties fall to what was hashed.
- *Values* are judged by dpsql's own functions over Arrow, which are opaque to DuckDB. A predicate on a column is not
  safe: DuckDB may decide it at planning time from the minimum and maximum in a Parquet file, which ignore NaN.
  Scores are the one exception: a zero that only the gate knows is added to them (`_histogram`).
"""

from __future__ import annotations

import secrets

import numpy as np

from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.contract.condition import columns_of
from dpsql.contract.feature_columns import MISSING
from dpsql.contract.names import source_sql
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, GROUPED, HISTOGRAM, XTY, Plan
from dpsql.engines.duckdb.filtering import NAMED, kept
from dpsql.engines.duckdb.grouped_steps import Frame, GroupedSteps, key_types, key_witnesses
from dpsql.engines.duckdb.keys import block_hash, exact_text, first_rows, identity, place, text_bytes
from dpsql.engines.duckdb.result_rows import catalogued_sql, texts_sql
from dpsql.engines.duckdb.valid_text import valid_text
from dpsql.engines.port import PART
from dpsql.functions.grouped import GroupedPlan
from dpsql.functions.registry import FUNCTIONS
from dpsql.functions.score_histogram import ScorePlan
from dpsql.functions.sis import SisPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.rendering import call, cast, coalesce, field, identifier, plus, struct, text

# The column with the position of a row, of rows that are split into parts.
POSITION = "dpsql_position"
# The key of rows that no block or sample depends on.
_NO_KEY = "NULL::UBIGINT"
# Up to so many columns one thread hands rows over faster, or at less cost, than several.
_FEW_COLUMNS = 17


def release_sql(plan: Plan, function: str) -> str:
    """Return the statement whose one value is the release: its ledger sequence and its rows."""
    return Statement(plan, function).release()


def statistic_sql(plan: Plan, function: str) -> str:
    """Return the statement whose one value is the exact statistic, a list. Not private."""
    statement = Statement(plan, function)
    return f"{statement.definitions()}\nSELECT {statement.statistic} AS statistic"


def exact_sql(plan: Plan, function: str) -> str:
    """Return the statement of the exact statistic, one row per feature. Not private."""
    statement = Statement(plan, function)
    rows = call(f"dpsql_{function}", statement.ticket, statement.statistic)
    entry = call("unnest", "entry")  # entry.* is a struct_extract that a caller's macro replaces
    return f"{statement.definitions()}\nSELECT {entry} FROM (SELECT {call('unnest', rows)} AS entry)"


def part_sql(plan: Plan, function: str, number: int, blocks: int) -> str:
    """Return the statement that folds some rows of a call, in pass `number` alone, without its gate.

    Its one value is the list of the numbers of the batches that were collected.
    """
    statement = Statement(plan, function, only=number, blocks=blocks)
    return f"{statement.definitions()}\nSELECT {statement.statistic} AS statistic"


def split_sql(plan: Plan, function: str, number: int, blocks: int, parts: int) -> str:
    """Return the query of the part of each of some rows, with the row's position; NULL for rows of nobody."""
    return Statement(plan, function, only=number, blocks=blocks).split(parts)


def types_sql(plan: Plan, function: str) -> str:
    """Return the statement of no rows that shows the types of a call's columns, and the SQL types of its keys."""
    return Statement(plan, function).types()


def admit_sql(plan: Plan) -> str:
    """Return the statement whose one value is the aggregate form's checked plan; it fails when the budget does.

    What is aggregated is found in the enclosing statement, whose plan DuckDB serializes before it reads a row.
    """
    statement = cast(call("json_serialize_plan", call("current_query")), "VARCHAR")
    given = [text(plan.to_json()), statement, call("current_query"), catalogued_sql(made=True, tables=True)]
    return f"SELECT {call('dpsql_admit', *given)} AS plan"


class Statement:
    """The SQL of one call.

    Parameters
    ----------
    plan : Plan
    function : str
        The SQL function that the statistic is for, such as ``'dp_sis'``.
    only : int, optional
        The one pass that runs, over some of the rows and without a gate: what a worker of an engine does.
    blocks : int, optional
        Number of blocks that this pass takes in as wholes; by default what the plan says of every pass.

    Attributes
    ----------
    ticket, zero : str
        SQL of the two values that the gate gives the call: its ticket, and the number 0.
    statistic : str
        SQL of the statistic: a list of exact sums, or of the numbers of the batches that were collected.

    Notes
    -----
    Steps that must run in order hand the ticket on: keys are checked, passes end, and the release is made with a ticket
    that the step before returned. That rows wait for a ticket is not enough: where DuckDB 1.5.6 plans a source as
    empty, it may never ask for the ticket, and a release would come before the passes have ended.
    """

    def __init__(self, plan: Plan, function: str, *, only: int | None = None, blocks: int | None = None) -> None:
        self.plan = plan
        self.function = function
        self.only = only
        self._blocks = plan.block_by_block if blocks is None else blocks
        # Part of names that no source or column of the caller can have: drawn anew for each statement.
        self._suffix = secrets.token_hex(8)
        gate = self._name("gate")
        self.ticket, self.zero = (f"(SELECT {field('gate', part)} FROM {gate})" for part in ("ticket", "zero"))
        # The direction is explicit because the caller can set default_order.
        self.statistic = f"(SELECT {call('list', 's ORDER BY j ASC NULLS LAST')} FROM {self._name('statistic')})"

    def definitions(self) -> str:
        """Return the WITH clause that defines the gate and the statistic."""
        steps = {
            XTY: self._xty,
            HISTOGRAM: self._histogram,
            FEATURE_COUNTS: self._feature_counts,
            COLLECTED: self._collected,
            GROUPED: self._grouped,
        }
        return "WITH " + ",\n".join([self._gate(), *steps[self.plan.statistic]()])

    def release(self) -> str:
        """Return the whole statement of a release."""
        shape = FUNCTIONS[self.function].shape.name
        released = call(f"dpsql_release_{shape}", self._closing_ticket, self.statistic)
        return f"{self.definitions()}\nSELECT {released} AS release{key_witnesses(self.plan, self._probe())}"

    @property
    def _closing_ticket(self) -> str:
        """SQL of the ticket after the last of the steps that must have run before the release."""
        has_passes = self.plan.statistic in (COLLECTED, FEATURE_COUNTS, GROUPED)
        turns = self.plan.passes + self.plan.closing_passes - 1 if has_passes else 0
        return f"(SELECT ticket FROM {self._name(f'turn{turns}')})" if turns else self._opening_ticket

    @property
    def _opening_ticket(self) -> str:
        """SQL of the ticket after the last of the steps that must have run before the first pass ends."""
        plan = self.plan
        if isinstance(plan, GroupedPlan):
            return self._groups.ticket
        if plan.statistic == FEATURE_COUNTS and plan.draws_vocabulary:
            return f"(SELECT ticket FROM {self._name('vocabulary')})"
        if plan.statistic == XTY and isinstance(plan, SisPlan) and plan.center == "target":
            return f"CASE WHEN (SELECT mean FROM {self._name('center')}) IS NOT NULL THEN {self.ticket} END"
        return self.ticket

    def _name(self, step: str) -> str:
        return f"__dpsql__{step}_{self._suffix}"

    def _step(self, step: str, query: str, *, kept: bool = False) -> str:
        """Name a query; `kept` has DuckDB run it once and keep its rows."""
        return f"{self._name(step)} AS {'MATERIALIZED ' if kept else ''}({query})"

    # Where rows come from.

    def _input(self, *, probed: bool = False, also: tuple[str, ...] = ()) -> str:
        """Return the FROM item that names each column by its part in the call and makes absent columns recognizable.

        Only rows that meet the call's condition are in it, unless it is `probed` for types, by the gate. `also` names
        columns of the source that are passed on.

        It is repeated wherever rows are read, instead of being a CTE: DuckDB 1.5.6 crashes on a frame that it finds
        as a Python variable inside a CTE that is not materialized and is read twice.

        A column that the source lacks resolves to the outer relation and shows there as a type that no
        column of interest has; the gate then refuses it with our own message. ``SELECT *`` around the source
        excludes DuckDB's pseudo-columns (rowid, file_row_number): they say where a row is, not what it holds, and
        change when another row is removed.
        """
        whole = self._name("source")
        placement = self.plan.placement
        known = placement is not None and placement.checked
        parts, named = self._columns(whole, checked=not known and (bool(also) or not probed))
        absent = ", ".join(f"NULL::STRUCT({MISSING} BOOLEAN) AS {name}" for name in dict.fromkeys(named))
        source, chosen = source_sql(self.plan.source), ", ".join((parts, *also))
        rows = (
            f"(SELECT found.* FROM (SELECT {absent or 'NULL AS dpsql_none'}) AS {self._name('absent')}, "
            f"LATERAL (SELECT {chosen} FROM {f'(SELECT * FROM {source})' if named else source} AS {whole}) "
            "AS found) AS input"
        )
        if probed or self.plan.condition is None:
            return rows
        return f"({kept(rows, ', '.join(self._parts), self.plan.judged, self.zero)}) AS input"

    def _probe(self) -> str:
        """Return the FROM item of all rows, for the types of its columns."""
        return self._input(probed=True)

    def _columns(self, source: str, *, checked: bool = True) -> tuple[str, list[str]]:
        """Return the columns that are selected from a source by their part in the call, and those that are named.

        Where rows are read, text is `checked`: it is NULL unless it is UTF-8. Columns that must be numbers are as they
        are, and so is a whole row: no function of SQL takes text from them.
        """
        layout = self.plan.layout
        named: list[str] = []

        def column(name: str | None) -> str:
            if name is None:
                return "NULL::BOOLEAN"
            named.append(identifier(name))
            return identifier(name)

        def valid(name: str | None) -> str:
            return valid_text(column(name)) if checked and name is not None else column(name)

        row = call("struct_pack", f"*COLUMNS({source}.*)")  # a row named as such is a struct_pack that a macro replaces
        columns = self.plan.row_columns
        if columns is not None:
            numeric = set(layout.features or ()) if layout.kind == "wide" else {layout.features}
            given = {part: (column if name in numeric else valid)(name) for part, name in columns.items()}
            row = struct(given) if given else "NULL::BOOLEAN"
        parts = [row, valid(layout.privacy_unit), valid(layout.row_id)]
        if layout.kind == "long":
            parts += [valid(str(layout.features)), column(layout.value)]
        if self.plan.condition is not None:
            parts.append(struct({name: valid(name) for name in columns_of(self.plan.condition)}))
        return ", ".join(f"{part} AS {name}" for part, name in zip(parts, self._parts, strict=True)), named

    @property
    def _parts(self) -> tuple[str, ...]:
        """Names of the columns of `_input`."""
        parts = ("dpsql_row", "dpsql_unit", "dpsql_row_id")
        long = ("dpsql_feature", "dpsql_value") if self.plan.layout.kind == "long" else ()
        return (*parts, *long, *(() if self.plan.condition is None else (NAMED,)))

    def types(self) -> str:
        """Return the query of no rows that shows the types of the columns, and the SQL types of the keys."""
        probe = self._types()
        spelled = [f"{kind} AS spelled" for kind in key_types(self.plan, probe)] or ["NULL AS spelled"]
        return f"SELECT {probe} AS probe, {', '.join(spelled)}"

    def _condition_types(self) -> list[str]:
        """Return the types of the columns that the condition reads, as one text; nothing without a condition."""
        judged = self.plan.judged
        if judged is None or not judged.columns:
            return []
        read = struct({name: field(NAMED, name) for name in judged.columns})
        return [call("typeof", f"(SELECT {read} FROM {self._probe()} LIMIT 0)")]

    def split(self, parts: int) -> str:
        """Return the query of the part of each row, and of its position, because DuckDB may change the order of rows.

        All rows of a unit are in one part, and all rows of a block.
        """
        layout = self.plan.layout
        owner = "dpsql_row_id" if layout.privacy_unit is None else "dpsql_unit"
        key = block_hash(self.ticket, identity(owner)) if layout.kind == "long" else self._block_key()
        if self._blocks:
            key = call("%", key, f"{self._blocks}::UBIGINT")
        part = cast(call("%", key, f"{parts}::UBIGINT"), "BIGINT")
        if layout.privacy_unit is not None or layout.kind == "long":
            part = f"CASE WHEN {owner} IS NOT NULL THEN {part} END"
        rows = self._input(probed=True, also=(POSITION,))
        return f"WITH {self._gate()}\nSELECT {part} AS {PART}, {POSITION} FROM {rows}"

    def _types(self) -> str:
        return f"(SELECT {struct({part: part for part in self._parts})} FROM {self._probe()} LIMIT 0)"

    def _gate(self) -> str:
        if self.only is not None:
            return self._step("gate", f"SELECT {call('dpsql_part')} AS gate", kept=True)
        plan, probe = text(self.plan.to_json()), self._types()
        keys, condition = key_types(self.plan, probe), self._condition_types()
        given = [text(self.function), plan, probe, texts_sql(self.plan)]
        given += [*(keys or ["NULL::VARCHAR[]"]), *condition] if condition else keys
        return self._step("gate", f"SELECT {call('dpsql_gate', *given)} AS gate", kept=True)

    # Which rows count, and in what block they are.

    def _rows(self, *more: str, ticket: str = "") -> str:
        """Return the rows, with a cap on those of each privacy unit; only rows with equal contents can tie."""
        plan, layout = self.plan, self.plan.layout
        columns = ", ".join(("dpsql_row", *more))
        scan = f"FROM {self._input()} WHERE {ticket or self.ticket} IS NOT NULL"
        rows = f"SELECT {columns} {scan}"
        if layout.privacy_unit is not None:
            number, data = identity("dpsql_unit")
            known = f"{columns}, {number} AS unit_number, {data} AS unit_bytes, dpsql_row_id AS own_id"
            contents = call("dpsql_contents", self.ticket, "dpsql_row")
            # Rows with one id are distinguished by their contents; rows with equal contents are interchangeable.
            order = (
                (place(self.ticket, contents),)
                if layout.row_id is None
                else (place(self.ticket, identity("own_id")), contents)
            )
            owned = f"SELECT {known} {scan} AND dpsql_unit IS NOT NULL"
            rows = f"SELECT {columns} FROM ({self._capped(owned, *order)})"
        if plan.most_rows is not None:
            # Equal rows must not be kept or dropped together, so each gets random numbers of its own. DuckDB's will not
            # do, because the caller can set their seed.
            draw = call("dpsql_random", self.ticket)
            rows = first_rows(rows, plan.most_rows, draw, draw)
        return f"({rows})"

    def _capped(self, rows: str, *places: str) -> str:
        """Return the rows of each unit which come first by their places."""
        return first_rows(rows, self.plan.max_rows_per_unit, *places, partition="unit_number, unit_bytes")

    def _block_key(self) -> str:
        """Return 64 bits of the hash that decides a row's block: of its unit, its row id, its contents, or NULL.

        Contents are used instead of a random number when a row must be in the same block in every pass.
        """
        layout = self.plan.layout
        if layout.privacy_unit is not None:
            return block_hash(self.ticket, self._owner("unit"))
        contents = block_hash(self.ticket, call("dpsql_contents", self.ticket, "dpsql_row"))
        if layout.row_id is not None:
            key = block_hash(self.ticket, self._owner("row"))
            return coalesce(key, contents) if layout.kind != "long" else key  # a row may lack an id
        return contents if self.plan.in_blocks else _NO_KEY

    def _owner(self, part: str) -> tuple[str, str]:
        """Return the identity of the privacy unit or row; for long rows it was computed with the cells."""
        if self.plan.layout.kind == "long":
            return f"{part}_number", f"{part}_bytes"
        return identity("dpsql_unit" if part == "unit" else "dpsql_row_id")

    # Long rows.

    @property
    def _document(self) -> str:
        """The columns that identify the row, and the privacy unit, of a cell in the long layout."""
        parts = ("row",) if self.plan.layout.privacy_unit is None else ("unit", "row")
        return ", ".join(f"{part}_number, {part}_bytes" for part in parts)

    def _cells(self, *more: str) -> str:
        """Read the cells of long rows once and keep them, so that no join can be planned around the gate."""
        columns, condition = [], "dpsql_row_id IS NOT NULL"
        if self.plan.layout.privacy_unit is not None:
            condition += " AND dpsql_unit IS NOT NULL"
            columns.append(("unit", identity("dpsql_unit")))
        columns.append(("row", identity("dpsql_row_id")))
        owners = [f"{number} AS {part}_number, {data} AS {part}_bytes" for part, (number, data) in columns]
        return self._step(
            "cells",
            f"SELECT {', '.join((*owners, *more))} FROM {self._input()} "
            f"WHERE {self.ticket} IS NOT NULL AND {condition}",
            kept=True,
        )

    @property
    def _name_of_cell(self) -> str:
        """The name of a cell's feature, as it is compared."""
        return exact_text("dpsql_feature", self.zero)

    def _features(self) -> str:
        """Name the public features by their position."""
        listed = call("unnest", call("dpsql_features", self.ticket))
        name = exact_text(field("f", "name"), self.zero)
        parts = f"{field('f', 'j')} AS j, {name} AS name, {field('f', 'absent')} AS absent"
        return self._step("features", f"SELECT {parts} FROM (SELECT {listed} AS f)", kept=True)

    def _documents(self) -> list[str]:
        """One row per (unit, row id): of several targets the largest counts."""
        value = "NULL" if self.plan.layout.value is None else call("dpsql_value", self.ticket, "dpsql_value")
        target = call("dpsql_target", self.ticket, "dpsql_row")
        targets = f"SELECT {self._document}, {call('max', 'target')} AS target FROM {self._name('cells')} GROUP BY ALL"
        return [
            self._cells(f"{self._name_of_cell} AS name", f"{value} AS value", f"{target} AS target"),
            self._step("documents", self._capped_documents(targets), kept=True),
        ]

    def _capped_documents(self, rows: str) -> str:
        return (
            rows
            if self.plan.layout.privacy_unit is None
            else self._capped(rows, place(self.ticket, self._owner("row")))
        )

    def _present(self) -> str:
        """One row per cell that is present: of duplicates the largest value counts."""
        value = "1::DOUBLE" if self.plan.layout.value is None else call("max", "value")
        joined = f"{self._name('cells')} JOIN {self._name('features')} USING (name)"
        return self._step("present", f"SELECT {self._document}, j, {value} AS value FROM {joined} GROUP BY ALL")

    # One kind of statistic each.

    def _xty(self) -> list[str]:
        """Sum the products of the features of long rows with the target."""
        return [*self._documents(), *self._center(), *self._long_products()]

    def _center(self) -> list[str]:
        """Name the centre of the target: 0, or the private mean that is drawn here from the first scan."""
        if not isinstance(self.plan, SisPlan):
            raise TypeError("the statistic is of another plan")
        if self.plan.center == "public":
            return [self._step("center", "SELECT 0::BIGINT AS mean", kept=True)]
        one, target = str(FIXED_POINT_ONE), cast("target", "BIGINT")
        terms = [plus(one, target), call("-", one, target)]
        totals = call("list_value", *(coalesce(call("sum", term), "0::HUGEINT") for term in terms))
        drawn = call("dpsql_center", self.ticket, f"(SELECT sums FROM {self._name('target_sums')})")
        return [
            self._step("target_sums", f"SELECT {totals} AS sums FROM {self._name('documents')}"),
            self._step("center", f"SELECT {drawn} AS mean", kept=True),
        ]

    def _long_products(self) -> list[str]:
        """Sum over the present cells how each differs from an absent one, and add the sum over absent cells."""
        centred = call("dpsql_centred", f"(SELECT mean FROM {self._name('center')})", "target")
        product = call("dpsql_product", self.ticket, "j", "value", "target")
        everything = f"(SELECT {coalesce(call('sum', 'target'), '0')} FROM {self._name('centred')})"
        present = f"{self._name('present')} JOIN {self._name('centred')} USING ({self._document})"
        total = plus(coalesce("s", "0"), call("*", "absent", everything))
        joined = f"{self._name('features')} LEFT JOIN {self._name('sums')} USING (j)"
        return [
            self._features(),
            self._step(
                "centred", f"SELECT {self._document}, {centred} AS target FROM {self._name('documents')}", kept=True
            ),
            self._present(),
            self._step("sums", f"SELECT j, {call('sum', product)} AS s FROM {present} GROUP BY j"),
            self._step("statistic", f"SELECT j, {total} AS s FROM {joined}"),
        ]

    def _histogram(self) -> list[str]:
        """Count rows by label and cell of the score; cells without rows are there too.

        Few functions see single rows: rows are grouped by the label, and labels are judged once per group. If the
        levels are texts, labels may be texts as well; they are grouped by their bytes too, so that no collation merges
        two of them.

        The gate's zero is added to every score. It does not change the score (except -0.0 to 0.0), but because it comes
        from a volatile function at run time, DuckDB has no statistics of the sum and cannot decide a comparison with it
        at planning time. It could for any function of the column alone, even `isnan`, when a Parquet file states equal
        minimum and maximum.
        """
        plan = self.plan
        if not isinstance(plan, ScorePlan):
            raise TypeError("the statistic is of another plan")
        label, score = (field("dpsql_row", name) for name in (plan.layout.target, *(plan.layout.features or ())))
        cells, count = plan.cells, plan.cells.count
        [missing] = cells.of(np.array([plan.missing_score])).tolist()
        cell = cells.clipped_sql("score", plan.lower, plan.upper, str(missing))
        opaque = plus(f"TRY_CAST({score} AS DOUBLE)", self.zero)
        texts = isinstance((plan.target_levels or (None,))[0], str)
        exact = f"{text_bytes('label')} AS exact, " if texts else ""
        target = call("dpsql_target", self.ticket, struct({plan.layout.target: "label"}))
        j = f"CASE WHEN target > 0 THEN {plus('cell', str(count))} WHEN target < 0 THEN cell END"
        places = f"{call('range', str(2 * count))} AS places(j)"
        return [
            self._step("scored", f"SELECT {label} AS label, {opaque} AS score FROM {self._rows()}"),
            self._step(
                "groups",
                f"SELECT label, {exact}{cell} AS cell, {call('count_star')} AS s FROM {self._name('scored')} "
                "GROUP BY ALL",
            ),
            self._step("judged", f"SELECT {target} AS target, cell, s FROM {self._name('groups')}"),
            self._step("counts", f"SELECT {j} AS j, {call('sum', 's')} AS s FROM {self._name('judged')} GROUP BY 1"),
            self._step(
                "statistic",
                f"SELECT places.j, {coalesce('s', '0')}::HUGEINT AS s FROM {places} "
                f"LEFT JOIN {self._name('counts')} USING (j)",
            ),
        ]

    def _grouped(self) -> list[str]:
        """Add up the rows of every group; see `dpsql.engines.duckdb.grouped_steps`."""
        return list(self._groups.steps())

    @property
    def _groups(self) -> GroupedSteps:
        if not isinstance(self.plan, GroupedPlan):
            raise TypeError("the statistic is of another plan")
        frame = Frame(self.ticket, self.zero, self._input, self._probe, self._name, self._step, self.only)
        return GroupedSteps(self.plan, frame)

    def _feature_counts(self) -> list[str]:
        """Hand long rows to the collector: the labels of each row id, and the numbers of its features.

        Both are lists with an element per cell, because few functions see single cells: labels are judged, and features
        sampled, for all cells of many row ids at once.
        """
        plan, cells = self.plan, self._name("cells")
        name, features = self._name_of_cell, [self._features()]
        if plan.layout.value is not None:
            name = f"CASE WHEN {call('dpsql_present', self.ticket, 'dpsql_value')} THEN {name} END"
        if plan.draws_vocabulary and self.only in (None, 1):  # a pass alone after the first knows which are released
            # Names are numbered in arbitrary order; the numbers only stand for them and decide nothing.
            listed = call("list", f"{struct({'j': 'j', 'name': 'name'})} ORDER BY j ASC NULLS LAST")
            known = call("dpsql_vocabulary", self.ticket, f"(SELECT {listed} FROM {self._name('names')})")
            distinct = f"SELECT name FROM {cells} WHERE name IS NOT NULL GROUP BY name"
            features = [
                self._step("names", f"SELECT name, {call('row_number')} OVER () AS j FROM ({distinct})", kept=True),
                self._step("vocabulary", f"SELECT {known} AS ticket", kept=True),
                self._step(
                    "features",
                    f"SELECT j, name FROM {self._name('names')} "
                    f"WHERE (SELECT ticket FROM {self._name('vocabulary')}) IS NOT NULL",
                    kept=True,
                ),
            ]
        rows = (
            f"SELECT {self._document}, {call('list', 'label')} AS target, {call('list', cast('j', 'INTEGER'))} AS js "
            f"FROM {cells} LEFT JOIN {self._name('features')} USING (name) GROUP BY {self._document}"
        )
        rows = self._capped_documents(rows)
        if plan.most_rows is not None:
            parts = ("row",) if plan.layout.privacy_unit is None else ("unit", "row")
            rows = first_rows(rows, plan.most_rows, place(self.ticket, *map(self._owner, parts)))
        gathered = self._step("gathered", rows, kept=plan.passes > 1)
        label = field("dpsql_row", plan.layout.target)
        return [self._cells(f"{name} AS name", f"{label} AS label"), *features, gathered, *self._passes()]

    def _collected(self) -> list[str]:
        """Hand every row, with the key that decides its block, to the call's collector, once per pass."""
        if self.plan.layout.kind != "long":
            return self._passes()
        cells = ", ".join(
            f"{call('list', column)} FILTER (WHERE j IS NOT NULL) AS {name}"
            for column, name in (("j", "js"), ("value", "vs"))
        )
        document = self._document
        joined = f"{self._name('documents')} LEFT JOIN {self._name('present')} USING ({document})"
        return [
            *self._documents(),
            self._features(),
            self._present(),
            self._step(
                "gathered",
                f"SELECT {document}, target, {cells} FROM {joined} GROUP BY {document}, target",
                kept=self.plan.passes > 1,
            ),
            *self._passes(),
        ]

    def _passes(self) -> list[str]:
        """Read the rows as often as the call asks for; every pass but the first waits for the turn before it."""
        if self.only is not None:
            return [*self._pass(self.ticket, self.only), self._numbers(self.only)]
        steps, ticket = [], self._opening_ticket
        for number in range(1, self.plan.passes):
            batches = f"(SELECT {call('list', 's')} FROM {self._name(f'parts{number}')})"
            turn = call("dpsql_turn", ticket, str(number), batches)
            steps += [*self._pass(ticket, number), self._step(f"turn{number}", f"SELECT {turn} AS ticket", kept=True)]
            ticket = f"(SELECT ticket FROM {self._name(f'turn{number}')})"
        last = self.plan.passes
        return [
            *steps,
            *self._pass(ticket, last),
            self._numbers(last),
        ]

    def _numbers(self, last: int) -> str:
        """Return the statistic that consists of the numbers of a pass's batches."""
        return self._step("statistic", f"SELECT s, s AS j FROM {self._name(f'parts{last}')}")

    def _pass(self, ticket: str, number: int) -> list[str]:
        """Return the numbers of the batches of one pass over the rows, which waits for its ticket."""
        plan, key = self.plan, self._block_key()
        is_keyed = key != _NO_KEY
        if plan.layout.kind == "long":
            parts = {LONG_TARGET: "target", LONG_POSITIONS: "js"}
            if plan.statistic == COLLECTED:
                parts[LONG_VALUES] = "vs"
            gathered = f"{self._name('gathered')} WHERE {ticket} IS NOT NULL"
            rows = f"(SELECT {struct(parts)} AS dpsql_row, {key} AS key FROM {gathered})"
        else:
            columns = [name for name in ("dpsql_unit", "dpsql_row_id") if name in key]
            rows = f"(SELECT dpsql_row, {key} AS key FROM {self._rows(*columns, ticket=ticket)})"
        given = ["dpsql_row", "key"] if is_keyed else ["dpsql_row"]
        if self._blocks:
            block = call("%", "key", f"{self._blocks}::UBIGINT")
            rows = f"(SELECT dpsql_row, {block} AS key FROM {rows})"
            rows = f"(SELECT *, {call('count_star')} OVER (PARTITION BY key) AS size FROM {rows})"
            given.append("size")
        keyed, selected = self._name(f"keyed{number}"), ", ".join(given)
        if self._in_one_thread:
            rows = f"(SELECT {selected}, {call('row_number')} OVER () AS position FROM {rows}) WHERE position > 0"
        collect = call("dpsql_collect", ticket, *given)
        return [
            self._step(f"keyed{number}", f"SELECT {selected} FROM {rows}"),
            self._step(f"parts{number}", f"SELECT s FROM (SELECT {collect} AS s FROM {keyed}) WHERE s IS NOT NULL"),
        ]

    @property
    def _in_one_thread(self) -> bool:
        """Whether one thread hands all rows over, because more would only wait for Python's lock.

        DuckDB numbers rows in one thread. Every number is positive; the comparison keeps them from being left out.
        """
        plan = self.plan
        columns = plan.row_columns
        few = columns is not None and len(columns) <= _FEW_COLUMNS
        return plan.adds_fast and few and plan.layout.kind == "wide" and plan.layout.privacy_unit is None
