"""The SQL that a call runs in the caller's own session: bound, aggregate, release.

A statement is the same whatever the rows hold, grows only with the names of the columns, and draws
nothing: the functions inside it that read rows or draw are volatile, so EXPLAIN, DESCRIBE and
PREPARE run none of them. `dpsql_gate` checks types and budget before any row is read: every scan
waits for its ticket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsql.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.functions import FUNCTIONS
from dpsql.plan import COLLECTED, FEATURE_COUNTS, HISTOGRAM, XTY, Plan
from dpsql.selectors.feature_counts import FeatureCountsPlan
from dpsql.selectors.sis import SisPlan
from dpsql.source import quote_identifier, quote_text, source_sql
from dpsql.statistics.fixed_point import FIXED_POINT_ONE
from dpsql.summaries.score_histogram import double

# Macros of the same name in the caller's schemas must not stand in for what bounds, sums and draws.
_own = "system.main."
_TICKET = "(SELECT ticket FROM __dpsql__gate)"
# The direction is written out: default_order is the caller's to set.
_STATISTIC = f"(SELECT {_own}list(s ORDER BY j ASC NULLS LAST) FROM __dpsql__statistic)"


def statistic_sql(plan: Plan, function: str, catalog: str) -> str:
    """Return the WITH clause that defines ``__dpsql__gate(ticket)`` and ``__dpsql__statistic(j, s)``.

    The statistic is a list of exact sums, or the numbers of the batches that were collected.

    The names start so that no table of the caller's is taken for ours.

    Parameters
    ----------
    plan : SisPlan
    function : str
        The SQL function that the statistic is for, such as ``'dp_sis'``.
    catalog : str
        Catalog of the exact macros.
    """
    return "WITH " + ",\n".join([_gate(plan, function), *_STATISTICS[plan.statistic](plan, catalog)])


def release_sql(plan: Plan, function: str, catalog: str) -> str:
    """Return the statement whose one value is the release: its ledger sequence and its rows."""
    shape = FUNCTIONS[function].shape.name
    return (
        f"{statistic_sql(plan, function, catalog)}\n"
        f"SELECT {_own}dpsql_release_{shape}({_TICKET}, {_STATISTIC}) AS release"
    )


def stored_sql(plan: Plan) -> str:
    """Return the statement that reads a named release back from the ledger; no table is touched."""
    shape = FUNCTIONS[plan.function].shape.name
    return f"SELECT {_own}dpsql_stored_{shape}({quote_text(plan.to_json())}) AS release"


def rows_sql(release: str) -> str:
    """Return the rows of the result out of a release statement."""
    return f"SELECT entry.* FROM (SELECT unnest(release.entries) AS entry FROM ({release}))"


def exact_sql(plan: Plan, function: str, catalog: str) -> str:
    """Return the statement of the exact statistic, one row per feature. Not private."""
    return (
        f"{statistic_sql(plan, function, catalog)}\n"
        f"SELECT entry.* FROM (SELECT unnest({_own}dpsql_{function}({_TICKET}, {_STATISTIC})) AS entry)"
    )


def admit_sql(plan: Plan) -> str:
    """Return the statement whose one value is the aggregate form's checked plan; it fails when the budget does."""
    return f"SELECT {_own}dpsql_admit({quote_text(plan.to_json())}) AS plan"


def _input(plan: Plan) -> str:
    """Return the FROM item that names the columns by their part, and lets an absent one show as such.

    It stands wherever rows are read and not once as a CTE: DuckDB 1.5.6 crashes on a frame that it finds
    as a Python variable inside a CTE that is not materialized and is read twice.

    A column that the source lacks resolves to the outer relation and shows there as a type that no
    column of interest has; the gate then refuses it with our own message. ``SELECT *`` around the source
    keeps DuckDB's pseudo-columns out (rowid, file_row_number): they are places, not contents, and shift
    when another row goes.
    """
    layout = plan.layout
    named: list[str] = []

    def column(name: str | None) -> str:
        if name is None:
            return "NULL::BOOLEAN"
        named.append(quote_identifier(name))
        return quote_identifier(name)

    whole_row = layout.kind == "wide" and layout.features is None
    if whole_row:
        row = "dpsql_source"
    else:
        columns = [layout.target]
        if layout.kind == "array":
            columns.append(str(layout.features))
        elif layout.kind == "wide":
            columns += layout.features or ()
        row = "{" + ", ".join(f"{quote_text(name)}: {column(name)}" for name in columns) + "}"
    parts = [
        f"{row} AS dpsql_row",
        f"{column(layout.privacy_unit)} AS dpsql_unit",
        f"{column(layout.row_id)} AS dpsql_row_id",
    ]
    if layout.kind == "long":
        parts += [f"{column(str(layout.features))} AS dpsql_feature", f"{column(layout.value)} AS dpsql_value"]
    absent = ", ".join(f"NULL::STRUCT(dpsql_missing BOOLEAN) AS {name}" for name in dict.fromkeys(named))
    source = source_sql(plan.source)
    return (
        f"(SELECT found.* FROM (SELECT {absent or 'NULL AS dpsql_none'}) AS dpsql_absent, "
        f"LATERAL (SELECT {', '.join(parts)} FROM {f'(SELECT * FROM {source})' if named else source} AS dpsql_source) "
        "AS found) AS input"
    )


def _gate(plan: Plan, function: str) -> str:
    return (
        f"__dpsql__gate AS MATERIALIZED (SELECT {_own}dpsql_gate({quote_text(function)}, {quote_text(plan.to_json())}, "
        f"(SELECT input FROM {_input(plan)} LIMIT 0)) AS ticket)"
    )


def _rows(plan: Plan, *more: str, ticket: str = _TICKET) -> str:
    """Return the rows, those of each privacy unit capped by a keyed hash; ties fall to contents, never to places."""
    rows = f"SELECT {', '.join(('dpsql_row', *more))} FROM {_input(plan)} WHERE {ticket} IS NOT NULL"
    columns = ["dpsql_row_id", "dpsql_row"] if plan.layout.row_id is not None else ["dpsql_row"]
    if plan.layout.privacy_unit is not None:
        rows += f" AND dpsql_unit IS NOT NULL{_cap(plan, columns)}"
    if plan.most_rows is not None:
        # Rows that are alike must not stay or go together, so each has a number of its own; not DuckDB's, whose seed
        # is the caller's to set.
        rows = (
            f"SELECT * EXCLUDE (place) FROM (SELECT *, {_own}dpsql_random({_TICKET}) AS place FROM ({rows})) "
            f"QUALIFY row_number() OVER (ORDER BY place ASC NULLS LAST) <= {plan.most_rows}"
        )
    return f"({rows})"


def _cap(plan: Plan, columns: list[str]) -> str:
    """Return the clause that keeps the rows of a unit which come first by the keyed hash of some columns."""
    order = _by_key(columns)
    return f" QUALIFY row_number() OVER (PARTITION BY dpsql_unit {order}) <= {plan.max_rows_per_unit}"


def _by_key(columns: list[str]) -> str:
    """Return the clause that orders by the keyed hash of some columns, and where that is equal by what they hold."""
    order = (f"{_own}dpsql_key({_own}hash({column})) ASC NULLS LAST, {column} ASC NULLS LAST" for column in columns)
    return "ORDER BY " + ", ".join(order)


def _label(plan: Plan, label: str, positive: str, negative: str) -> str:
    """Return what a label counts as; NULL when it is neither level. Any type of column will do: the gate judges it."""
    levels = plan.target_levels or (0.0, 1.0)
    if isinstance(levels[0], float):
        value, texts = f"TRY_CAST({label} AS DOUBLE)", [_number_level(label, level) for level in levels]
    else:
        value = f"TRY_CAST({label} AS VARCHAR)"
        texts = [_text_level(label, level) for level in levels]
    return f"CASE WHEN {value} = {texts[1]} THEN {positive} WHEN {value} = {texts[0]} THEN {negative} END"


def _number_level(label: str, level: float) -> str:
    """Return a level as the number that the column's values have; a FLOAT comes as near to it as it can."""
    return f"CASE {_own}typeof({label}) WHEN 'FLOAT' THEN {double(level)}::FLOAT::DOUBLE ELSE {double(level)} END"


def _text_level(label: str, level: Any) -> str:
    """Return a level as the text that the column's values have; those of a boolean column are in lower case."""
    text = quote_text(str(level))
    return f"CASE {_own}typeof({label}) WHEN 'BOOLEAN' THEN {_own}lower({text}) ELSE {text} END"


def _center(plan: SisPlan) -> list[str]:
    """Name the centre of the target: 0, or the private mean that is drawn here from the first scan."""
    if plan.center == "public":
        return ["__dpsql__center AS MATERIALIZED (SELECT 0::BIGINT AS mean)"]
    one = FIXED_POINT_ONE
    terms, rows = [f"{one} + target::BIGINT", f"{one} - target::BIGINT"], "__dpsql__documents"
    if plan.layout.kind != "long":
        terms = ["part[1]", "part[2]"]
        rows = f"(SELECT {_own}dpsql_target_sums({_TICKET}, dpsql_row) AS part FROM {_rows(plan)})"
    totals = ", ".join(f"coalesce({_own}sum({term}), 0::HUGEINT)" for term in terms)
    sums = f"SELECT [{totals}] AS sums FROM {rows}"
    return [
        f"__dpsql__target_sums AS ({sums})",
        f"__dpsql__center AS MATERIALIZED (SELECT {_own}dpsql_center({_TICKET}, "
        "(SELECT sums FROM __dpsql__target_sums)) AS mean)",
    ]


def _xty(plan: Any, catalog: str) -> list[str]:
    """Sum the features' products with the target."""
    if plan.layout.kind == "long":
        return [*_documents(plan), *_center(plan), *_long_statistic(plan, catalog)]
    return [*_center(plan), *_kernel_statistic(plan)]


def _kernel_statistic(plan: SisPlan) -> list[str]:
    return [
        f"__dpsql__parts AS (SELECT {_own}dpsql_xty({_TICKET}, (SELECT mean FROM __dpsql__center), dpsql_row) AS part "
        f"FROM {_rows(plan)})",
        "__dpsql__cells AS (SELECT unnest(part) AS s, generate_subscripts(part, 1) AS j FROM __dpsql__parts)",
        f"__dpsql__statistic AS (SELECT j, {_own}sum(s) AS s FROM __dpsql__cells GROUP BY j)",
    ]


def _documents(plan: Plan) -> list[str]:
    """One row per (unit, row id): of several targets the largest counts.

    The cells are read once and kept, so that no join can be planned around the gate.
    """
    unit = plan.layout.privacy_unit is not None
    key = _document_key(plan)
    return [
        f"__dpsql__admitted AS MATERIALIZED (SELECT {key}, CAST(dpsql_feature AS VARCHAR) AS name, "
        f"{'NULL' if plan.layout.value is None else 'CAST(dpsql_value AS DOUBLE)'} AS value, "
        f"{_own}dpsql_target({_TICKET}, dpsql_row) AS target "
        f"FROM {_input(plan)} WHERE {_TICKET} IS NOT NULL AND {_identified(plan)})",
        f"__dpsql__targets AS (SELECT {key}, {_own}max(target) AS target FROM __dpsql__admitted GROUP BY {key})",
        f"__dpsql__documents AS MATERIALIZED (SELECT {key}, target FROM __dpsql__targets"
        f"{_cap(plan, ['dpsql_row_id']) if unit else ''})",
    ]


def _identified(plan: Plan) -> str:
    """Return the condition that a cell says which row, and whose, it is of."""
    return "dpsql_row_id IS NOT NULL" + (" AND dpsql_unit IS NOT NULL" if plan.layout.privacy_unit is not None else "")


def _document_key(plan: Plan) -> str:
    return "dpsql_row_id" if plan.layout.privacy_unit is None else "dpsql_unit, dpsql_row_id"


def _long_statistic(plan: SisPlan, catalog: str) -> list[str]:
    """Sum over present cells what they add to an absent one, plus what absence alone gives."""
    fixed = f"{quote_identifier(catalog)}.main.exact_fixed_point"
    key = _document_key(plan)
    moved = "target::BIGINT - (SELECT mean FROM __dpsql__center)"
    clipped = f"{_own}greatest({-FIXED_POINT_ONE}, {_own}least({FIXED_POINT_ONE}, {moved}))"
    return [
        "__dpsql__features AS MATERIALIZED (SELECT f.j, f.name, f.middle, f.scale, "
        f"{fixed}(0::DOUBLE, f.middle, f.scale) AS absent FROM (SELECT unnest({_own}dpsql_features({_TICKET})) AS f))",
        f"__dpsql__centred AS MATERIALIZED (SELECT {key}, {clipped}::BIGINT AS target FROM __dpsql__documents)",
        _present(plan),
        f"__dpsql__sums AS (SELECT j, {_own}sum(({fixed}(value, middle, scale) - absent) * target) AS s "
        f"FROM __dpsql__present JOIN __dpsql__centred USING ({key}) JOIN __dpsql__features USING (j) GROUP BY j)",
        "__dpsql__statistic AS (SELECT j, "
        f"coalesce(__dpsql__sums.s, 0) + absent * (SELECT coalesce({_own}sum(target), 0) FROM __dpsql__centred) AS s "
        "FROM __dpsql__features LEFT JOIN __dpsql__sums USING (j))",
    ]


def _present(plan: Plan) -> str:
    """One row per cell that is present: of duplicates the largest value counts."""
    value = "1::DOUBLE" if plan.layout.value is None else f"{_own}max(value)"
    return (
        f"__dpsql__present AS (SELECT {_document_key(plan)}, j, {value} AS value "
        "FROM __dpsql__admitted JOIN __dpsql__features USING (name) GROUP BY ALL)"
    )


def _histogram(plan: Any, catalog: str) -> list[str]:
    """Count rows by label and cell of the score; cells without rows are there too.

    Rows meet as few functions as can be: they are grouped by the label as it is, and labels are judged by group.
    """
    label, score = (f"dpsql_row[{quote_text(name)}]" for name in (plan.layout.target, plan.layout.features[0]))
    cells, count = plan.cells, plan.cells.count
    lower, upper = double(plan.lower), double(plan.upper)
    lowest, highest, missing = cells.of(np.array([plan.lower, plan.upper, plan.missing_score]))
    cell = (
        f"CASE WHEN score BETWEEN {lower} AND {upper} THEN {cells.sql('score')} WHEN score < {lower} THEN {lowest} "
        f"WHEN score > {upper} AND NOT {_own}isnan(score) THEN {highest} ELSE {missing} END"
    )
    return [
        f"__dpsql__scored AS (SELECT {label} AS label, TRY_CAST({score} AS DOUBLE) AS score FROM {_rows(plan)})",
        f"__dpsql__groups AS (SELECT label, cell, {_own}count(*) AS s FROM (SELECT label, {cell} AS cell "
        "FROM __dpsql__scored) GROUP BY ALL)",
        f"__dpsql__counts AS (SELECT {_label(plan, 'label', str(count), '0')} + {_own}least(cell, {count - 1}) AS j, "
        f"{_own}sum(s) AS s FROM __dpsql__groups GROUP BY j)",
        f"__dpsql__statistic AS (SELECT cells.j, coalesce(s, 0)::HUGEINT AS s "
        f"FROM {_own}range({2 * count}) AS cells(j) LEFT JOIN __dpsql__counts USING (j))",
    ]


def _feature_counts(plan: Any, catalog: str) -> list[str]:
    """Count long rows by label and feature: each row id once, each of its features once, so many of them at most.

    Position 0 stands for the row itself; of a vocabulary that is drawn, the rows are counted by name before. Rows are
    grouped before they meet the features, so that no join can be planned around the gate.
    """
    key = _document_key(plan)
    name = "CAST(dpsql_feature AS VARCHAR)"
    if plan.layout.value is not None:
        value = "TRY_CAST(dpsql_value AS DOUBLE)"
        name = f"CASE WHEN {value} <> 0 AND {value} <> 'nan'::DOUBLE THEN {name} END"
    label = _label(plan, f"dpsql_row[{quote_text(plan.layout.target)}]", "1", "-1")
    features = f"SELECT unnest({_own}dpsql_features({_TICKET})) AS f"
    statements = [
        f"__dpsql__cells AS {'MATERIALIZED ' if plan.draws_vocabulary else ''}(SELECT {key}, name, "
        f"{_own}max(label) AS label FROM (SELECT {key}, {name} AS name, {label} AS label FROM {_input(plan)} "
        f"WHERE {_TICKET} IS NOT NULL AND {_identified(plan)}) GROUP BY ALL)"
    ]
    if plan.draws_vocabulary:
        statements += [
            f"__dpsql__named AS (SELECT unnest(items) AS name FROM {_bounded(plan, '__dpsql__cells', 'name')})",
            f"__dpsql__rows_by_name AS (SELECT name, {_own}count(*) AS rows FROM __dpsql__named GROUP BY name)",
        ]
        counted = f"(SELECT {_own}list({{'name': name, 'rows': rows}}) FROM __dpsql__rows_by_name)"
        features = f"SELECT unnest({_own}dpsql_vocabulary({_TICKET}, {counted})) AS f"
    known = f"(SELECT {key}, j, label FROM __dpsql__cells LEFT JOIN __dpsql__features USING (name))"
    return [
        *statements,
        f"__dpsql__features AS MATERIALIZED (SELECT f.j, f.name FROM ({features}))",
        f"__dpsql__ones AS (SELECT unnest({_own}list_prepend(0, coalesce(items, []))) AS j, label "
        f"FROM {_bounded(plan, known, 'j')} WHERE label <> 0)",
        "__dpsql__width AS MATERIALIZED (SELECT count(*) AS d FROM __dpsql__features)",
        "__dpsql__counts AS (SELECT CASE WHEN j = 0 THEN 2 * d + 1 + (label < 0)::BIGINT "
        f"ELSE (label < 0)::BIGINT * d + j END AS j, {_own}count(*) AS s "
        "FROM __dpsql__ones, __dpsql__width GROUP BY ALL)",
        "__dpsql__statistic AS (SELECT places.j, coalesce(s, 0)::HUGEINT AS s "
        f"FROM (SELECT unnest({_own}range(1, 2 * d + 3)) AS j FROM __dpsql__width) AS places "
        "LEFT JOIN __dpsql__counts USING (j))",
    ]


def _bounded(plan: FeatureCountsPlan, cells: str, item: str) -> str:
    """Return one row per row id: its label, and the features of it that count; rows per unit and at all are bounded.

    The ticket, a secret of this call, keys the sample.
    """
    key = _document_key(plan)
    # Hashed once more: of several columns DuckDB combines hashes without mixing the last.
    keyed = f"{_own}hash({_own}hash({_TICKET}, {key}, {item}))"
    rows = (
        f"SELECT {key}, coalesce({_own}max(label), 0) AS label, {_own}min_by({item}, {keyed}, "
        f"{plan.max_features_per_row}) FILTER ({item} IS NOT NULL) AS items FROM {cells} GROUP BY {key}"
    )
    if plan.layout.privacy_unit is not None:
        rows = f"SELECT * FROM ({rows}){_cap(plan, ['dpsql_row_id'])}"
    if plan.most_rows is not None:
        rows = f"SELECT * FROM ({rows}) QUALIFY row_number() OVER ({_by_key(key.split(', '))}) <= {plan.most_rows}"
    return f"({rows})"


def _collected(plan: Plan, catalog: str) -> list[str]:
    """Hand every row, with what decides its block, to the call's collector; once in each pass."""
    statements, ticket = [], _TICKET
    if plan.layout.kind == "long":
        cells = (
            f"{_own}list(j) FILTER (WHERE j IS NOT NULL) AS js, {_own}list(value) FILTER (WHERE j IS NOT NULL) AS vs"
        )
        unique = _document_key(plan)
        statements = [
            *_documents(plan),
            f"__dpsql__features AS MATERIALIZED (SELECT f.j, f.name FROM "
            f"(SELECT unnest({_own}dpsql_features({_TICKET})) AS f))",
            _present(plan),
            f"__dpsql__gathered AS {'MATERIALIZED ' if plan.passes > 1 else ''}(SELECT {unique}, target, {cells} "
            f"FROM __dpsql__documents LEFT JOIN __dpsql__present USING ({unique}) GROUP BY {unique}, target)",
        ]
    for number in range(1, plan.passes):
        batches = f"(SELECT {_own}list(s) FROM __dpsql__parts{number})"
        statements += [
            *_pass(plan, ticket, number),
            f"__dpsql__turn{number} AS MATERIALIZED "
            f"(SELECT {_own}dpsql_turn({_TICKET}, {number}, {batches}) AS ticket)",
        ]
        ticket = f"(SELECT ticket FROM __dpsql__turn{number})"
    return [
        *statements,
        *_pass(plan, ticket, plan.passes),
        f"__dpsql__statistic AS (SELECT s, s AS j FROM __dpsql__parts{plan.passes})",
    ]


def _pass(plan: Plan, ticket: str, number: int) -> list[str]:
    """Return the numbers of the batches of one pass over the rows, which waits for its ticket."""
    key = _block_key(plan)
    if plan.layout.kind == "long":
        row = f"{{'{LONG_TARGET}': target, '{LONG_POSITIONS}': js, '{LONG_VALUES}': vs}}"
        rows = f"(SELECT {row} AS dpsql_row, {key} AS key FROM __dpsql__gathered WHERE {ticket} IS NOT NULL)"
    else:
        columns = [name for name in ("dpsql_unit", "dpsql_row_id") if name in key]
        rows = f"(SELECT dpsql_row, {key} AS key FROM {_rows(plan, *columns, ticket=ticket)})"
    size = "NULL::BIGINT"
    if plan.block_by_block is not None:
        rows = f"(SELECT dpsql_row, key % {plan.block_by_block} AS key FROM {rows})"
        size = f"{_own}count(*) OVER (PARTITION BY key)"
    return [
        f"__dpsql__keyed{number} AS (SELECT dpsql_row, key, {size} AS size FROM {rows})",
        f"__dpsql__parts{number} AS (SELECT s FROM (SELECT {_own}dpsql_collect({_TICKET}, {number}, dpsql_row, key, "
        f"size) AS s FROM __dpsql__keyed{number}) WHERE s IS NOT NULL)",
    ]


def _block_key(plan: Plan) -> str:
    """Return the keyed hash of what decides a row's block: its privacy unit, its row id, its contents, or nothing.

    Contents, and no random number, where a row must be in the same block in every pass.
    """
    if plan.layout.privacy_unit is not None:
        return f"{_own}dpsql_key({_own}hash(dpsql_unit))"
    if plan.layout.row_id is not None:
        return f"{_own}dpsql_key({_own}hash(dpsql_row_id))"
    return f"{_own}dpsql_key({_own}hash(dpsql_row))" if plan.in_blocks else "NULL::UBIGINT"


# One for each kind of statistic that a plan may have.
_STATISTICS = {XTY: _xty, HISTOGRAM: _histogram, FEATURE_COUNTS: _feature_counts, COLLECTED: _collected}
