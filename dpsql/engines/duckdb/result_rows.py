"""The SQL around a call's statement: how a stored release is read back, and how a release becomes rows."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.plan import Plan
from dpsql.contract.speaks_of import speaks_of
from dpsql.engines.duckdb.query_answers import stored_answer
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.ledger.rows import StoredRelease
from dpsql.released.shapes import KEYS, key_types
from dpsql.rendering import call, cast, element, field, identifier, struct, text

# The name under which rows are cast to their types.
ROWS = f"{FRAME_PREFIX}rows"
# A table of the catalog: its path, and the number that it keeps as long as the instance lives.
TABLE = struct({"path": call("list_value", "database_name", "schema_name", "table_name"), "number": "table_oid"})


def stored_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that reads a named release back from the ledger; no table is touched.

    `types` are the SQL types of the keys of its groups.
    """
    shape = FUNCTIONS[plan.function].shape.name
    released = call(f"dpsql_stored_{shape}", text(plan.to_json()), texts_sql(plan))
    return f"SELECT {released} AS release{_witnesses(types)}"


def engine_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that runs a call on the engine that holds its source; parameters as of `stored_sql`."""
    shape = FUNCTIONS[plan.function].shape.name
    return f"SELECT {call(f'dpsql_engine_{shape}', text(plan.to_json()))} AS release{_witnesses(types)}"


def _witnesses(types: Sequence[str]) -> str:
    return "".join(f", NULL::{kind} AS key{number}" for number, kind in enumerate(types))


def texts_sql(plan: Plan) -> str:
    """Return what the catalog says of the texts behind a source, see `closure.catalogued`; NULL for one table."""
    placement = plan.placement
    if placement is None or (placement.direct and not (placement.free or placement.keyed)):
        return "NULL"
    unseen = placement.governed and not placement.seen
    made = placement.governed and not placement.read and not placement.direct
    tables = unseen or not (placement.read or placement.direct) or bool(placement.free)
    return catalogued_sql(made=made, tables=tables, keys=bool(placement.keyed))


def tables_sql() -> str:
    """Return the tables of the catalog with their numbers, as one value."""
    return f"(SELECT {call('list', TABLE)} FROM {call('duckdb_tables')} WHERE NOT internal)"


def catalogued_sql(*, made: bool, tables: bool, keys: bool) -> str:
    """Return the texts of all views as a struct; on demand also macros and types that users made, and tables' paths.

    A call that rests on `keys` gets the constraints of tables, too. To list macros takes DuckDB as long as the rest of
    a small call.
    """
    path = [
        call("list_value", "database_name", "schema_name", f"{kind}_name") for kind in ("view", "function", "table")
    ]
    rows = {"views": ("duckdb_views", struct({"path": path[0], "sql": "sql"}), "")}
    if tables:
        rows["tables"] = ("duckdb_tables", TABLE, "")
    if made:
        macro = {
            "path": path[1],
            "sort": "function_type",
            "parameters": "parameters",
            "types": "parameter_types",
            "body": "macro_definition",
        }
        rows["macros"] = ("duckdb_functions", struct(macro), " AND macro_definition IS NOT NULL")
        rows["types"] = ("duckdb_types", struct({"name": "type_name", "is": "logical_type"}), "")
    lists = {
        name: f"(SELECT {call('list', row)} FROM {call(function)} WHERE NOT internal{more})"
        for name, (function, row, more) in rows.items()
    }
    if keys:
        row = struct({"path": path[2], "sort": "constraint_type", "columns": "constraint_column_names"})
        lists["keys"] = f"(SELECT {call('list', row)} FROM {call('duckdb_constraints')})"
    return struct(lists)


def rows_sql(plan: Plan, release: str) -> str:
    """Return the query that unpacks the result's rows from a release statement.

    The keys of groups are columns of their own types, which the release statement shows as NULLs key0, key1, ….
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
    """Return the rows of a stored release, with the keys of its groups as columns of their own types.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Casts the keys; of nobody else's use.
    release : StoredRelease
    """
    if release.function == QUERY:
        return stored_answer(release)
    shape, result = FUNCTIONS[release.function].shape, release.result
    rows = pa.Table.from_struct_array(shape.entries(result, speaks_of(release.arguments)))
    if not shape.has_keys:
        return rows
    kinds = key_types(result)
    keys = [
        f"{cast(element(KEYS, number + 1), kind)} AS {identifier(name)}"
        for number, (name, kind) in enumerate(zip(result["columns"] if kinds else (), kinds, strict=True))
    ]
    columns = [*keys, *(name for name in shape.columns if name != KEYS)]
    return connection.register(ROWS, rows).sql(f"SELECT {', '.join(columns)} FROM {ROWS}").to_arrow_table()
