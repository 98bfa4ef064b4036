"""The SQL around a call's statement: it reads a stored release back, and turns a release into rows.

A query's answers become one SQL value. Stored answers become rows again if the query read nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from dpsql.contract.covers import COVERS, covers
from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.lineage.functions import LINE, WHERE
from dpsql.engines.duckdb.lineage.texts import GENERATED
from dpsql.errors import ParameterError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.ledger.rows import StoredRelease
from dpsql.released.query import core_rows, counted
from dpsql.released.shapes import KEYS, key_types
from dpsql.rendering import call, cast, element, field, identifier, struct, text

# The table of a stored release, in the statement that makes rows of it.
STORED = "dpsql_stored"
_ROW = pa.struct(
    [
        ("keys", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.string())),
        *((name, pa.list_(pa.float64())) for name in ("errors", "lower", "upper", "standings")),
    ]
)
_RELEASE = pa.struct(
    [
        *(("sequence", pa.int64()), ("guarantee", pa.string()), ("cores", pa.list_(pa.list_(_ROW)))),
        (COVERS, pa.string()),
    ]
)


class QueryAnswer(NamedTuple):
    """A released query: its ledger number, its receipt, its result, and the requested details of that, as JSON text.

    `covers` returns which rows count (`dpsql.contract.covers`), on request.
    """

    sequence: int
    guarantee: str
    result: Mapping[str, Any]
    asked: str
    covers: Callable[[], str]


def answers(releases: Iterable[QueryAnswer]) -> pa.Array:
    """Return releases as an SQL result."""
    out = []
    for release in releases:
        question = json.loads(release.asked)
        cores = [
            core_rows(release.result, core, question["confidence"]).rows()
            for core in counted(release.result, question["cores"])
        ]
        words = release.covers() if question.get(COVERS) else None
        out.append({"sequence": release.sequence, "guarantee": release.guarantee, "cores": cores, COVERS: words})
    return pa.array(out, type=_RELEASE)


def stored_answer(release: StoredRelease) -> pa.Table:
    """Return the rows of a stored query, as it ran first; read only its answers.

    Raises
    ------
    ParameterError
        P030: the query reads public tables as well, or its text was not kept.
    """
    answer = (release.lineage or {}).get("answer")
    if isinstance(answer, Mapping):
        words = partial(covers, release.arguments)
        releases = answers([QueryAnswer(release.sequence, "", release.result, str(answer["asked"]), words)])
        # The ledger holds text, so it runs in an instance without anything else.
        with duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"}) as alone:
            alone.register(STORED, pa.table({"release": releases}))
            try:
                alone.execute(f"SET TimeZone = {text(str(answer['zone']))}")
                return alone.sql(str(answer["sql"])).to_arrow_table()
            except duckdb.Error:
                pass
    raise ParameterError(
        "P030",
        "the ledger holds the answers of the query, and not the public tables that it reads besides. Ask the query "
        "again: it is a free replay.",
    )


def stored_query() -> str:
    """Return the query of a stored release."""
    return f"SELECT release FROM {identifier(STORED)}"


# Names rows while they are cast to their types.
ROWS = f"{FRAME_PREFIX}rows"
# A table of the catalog: its path, and its number, which is constant for the instance's life.
TABLE = struct({"path": call("list_value", "database_name", "schema_name", "table_name"), "number": "table_oid"})


def stored_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that reads a named release back from the ledger and no table.

    `types` are the SQL types of the group keys.
    """
    shape = FUNCTIONS[plan.function].shape.name
    plain = plan.placement is None or plan.placement.is_plain
    released = call(f"dpsql_stored_{shape}", text(plan.to_json()), "NULL" if plain else texts_sql(plan))
    return f"SELECT {released} AS release{_witnesses(types)}"


def engine_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that runs a call on the engine of its source; parameters as in `stored_sql`."""
    shape = FUNCTIONS[plan.function].shape.name
    return f"SELECT {call(f'dpsql_engine_{shape}', text(plan.to_json()))} AS release{_witnesses(types)}"


def _witnesses(types: Sequence[str]) -> str:
    return "".join(f", NULL::{kind} AS key{number}" for number, kind in enumerate(types))


def texts_sql(plan: Plan, *, runs: bool = True) -> str:
    """Return the catalog's entries for a source's texts, see `texts.catalogued`; NULL if it needs no judging.

    A directly read table needs only its functions, and only if the call `runs`.
    """
    placement = plan.placement
    if placement is None:
        return "NULL"
    free, keys, plain = bool(placement.free), bool(placement.keyed), placement.is_plain
    listed = placement.governed and not placement.read and (runs or not plain)
    if (plain or (placement.direct and not placement.governed)) and not (listed or free or keys):
        return "NULL"
    reads_tables = placement.governed and not plain and not (placement.read and placement.seen)
    return catalogued_sql(listed=listed, tables=free or reads_tables, texts=not plain, keys=keys)


def tables_sql() -> str:
    """Return the catalog's tables with their numbers, as one value."""
    return f"(SELECT {call('list', TABLE)} FROM {call('duckdb_tables')} WHERE NOT internal)"


def catalogued_sql(*, listed: bool, tables: bool = False, texts: bool = True, keys: bool = False) -> str:
    """Return the catalog as a struct: the texts of views, and on demand tables, types, macros, functions.

    A call that rests on `keys` gets the constraints of tables, too. DuckDB takes as long to list macros and functions
    as for the rest of a small call.
    """
    path = [
        call("list_value", "database_name", "schema_name", f"{kind}_name") for kind in ("view", "function", "table")
    ]
    own = "WHERE NOT internal"
    lists: dict[str, str] = {}
    if texts:
        view = call("list", struct({"path": path[0], "sql": "sql"}))
        lists["views"] = f"(SELECT {view} FROM {call('duckdb_views')} {own})"
    if tables:
        generated = call("list", struct({"name": "table_name", "sql": "sql"}))
        condition = call("contains", "sql", text(GENERATED))
        lists["tables"] = tables_sql()
        lists["generated"] = f"(SELECT {generated} FROM {call('duckdb_tables')} {own} AND {condition})"
        kind = call("list", struct({"name": "type_name", "is": "logical_type"}))
        lists["types"] = f"(SELECT {kind} FROM {call('duckdb_types')} {own})"
    if keys:
        row = struct({"path": path[2], "sort": "constraint_type", "columns": "constraint_column_names"})
        lists["keys"] = f"(SELECT {call('list', row)} FROM {call('duckdb_constraints')})"
    if listed:
        macro = {
            "path": path[1],
            "sort": "function_type",
            "parameters": "parameters",
            "types": "parameter_types",
            "body": "macro_definition",
        }
        both = {
            "macros": f"{call('list', struct(macro))} FILTER (WHERE macro_definition IS NOT NULL AND NOT internal)",
            "functions": f"{call('list', LINE)} FILTER (WHERE {WHERE})",
        }
        lists["listed"] = f"(SELECT {struct(both)} FROM {call('duckdb_functions')})"
        lists["transaction"] = call("txid_current")
    return struct(lists)


def rows_sql(plan: Plan, release: str) -> str:
    """Return the query that unpacks the result's rows from a release statement.

    Group keys are columns of their own types, which the release statement shows as NULLs key0, key1, ….
    """
    entries = call("unnest", field("release", "entries"))
    shape = FUNCTIONS[plan.function].shape
    if not shape.has_keys:
        return f"SELECT {call('unnest', 'entry')} FROM (SELECT {entries} AS entry FROM (\n{release}))"
    columns = [
        f"{call('cast_to_type', element(field('entry', KEYS), number + 1), f'key{number}')} AS {identifier(name)}"
        for number, name in enumerate(plan.key_columns if isinstance(plan, GroupedPlan) else ())
    ]
    columns += [f"{field('entry', name)} AS {name}" for name in shape.columns if name != KEYS]
    return f"SELECT {', '.join(columns)} FROM (SELECT {entries} AS entry, * EXCLUDE (release) FROM (\n{release}))"


def stored_rows(connection: duckdb.DuckDBPyConnection, release: StoredRelease) -> pa.Table:
    """Return the rows of a stored release, with its group keys as columns of their own types.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Casts the keys; nothing else may use it.
    release : StoredRelease
    """
    if release.function == QUERY:
        return stored_answer(release)
    shape, result = FUNCTIONS[release.function].shape, release.result
    rows = pa.Table.from_struct_array(shape.entries(result, covers(release.arguments)))
    if not shape.has_keys:
        return rows
    kinds = key_types(result)
    keys = [
        f"{cast(element(KEYS, number + 1), kind)} AS {identifier(name)}"
        for number, (name, kind) in enumerate(zip(result["columns"] if kinds else (), kinds, strict=True))
    ]
    columns = [*keys, *(name for name in shape.columns if name != KEYS)]
    return connection.register(ROWS, rows).sql(f"SELECT {', '.join(columns)} FROM {ROWS}").to_arrow_table()
