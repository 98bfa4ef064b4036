"""Queries over a hospital of three tables of people and two public ones: their splits, and exact answers of these."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from fractions import Fraction

import duckdb

from dpsql.contract.expression.kinds import type_of
from dpsql.contract.query.catalogue import Catalogue, CatalogueColumn, CatalogueTable, Options, PathKey
from dpsql.contract.query.split import QueryAggregate, QueryCore, Split
from dpsql.contract.query.splitter import split
from dpsql.contract.query.tree import read_tree
from dpsql.engines.duckdb.typed_expression import TYPING

SCHEMA = """
CREATE TABLE people AS SELECT i AS id, i AS patient, ['F', 'M'][1 + i % 2] AS sex, i % 100 AS age,
  'c' || (i % 5) AS city, i % 3 = 0 AS smoker FROM range(60) AS r(i);
CREATE VIEW patients AS SELECT * REPLACE (id AS patient) FROM people;
CREATE TYPE outcome AS ENUM ('well', 'ill', 'dead');
CREATE TABLE visits AS SELECT i AS id, i % 60 AS patient, ['A', 'B', 'C', 'D'][1 + i % 4] AS ward,
  (i % 14)::INTEGER AS days, ((i % 100) * 10.5)::DOUBLE AS cost, DATE '2024-01-01' + (i * 7 % 900)::INTEGER AS visit_date,
  (['well', 'ill', 'dead'][1 + i % 3])::outcome AS outcome, ['Ann', 'Bob', 'Abe'][1 + i % 3] AS doctor,
  'a fall' AS note FROM range(600) AS r(i);
CREATE TABLE labs AS SELECT i % 600 AS visit, i AS id, 't' || (i % 9) AS test, (i % 500)::DOUBLE AS result
  FROM range(1500) AS r(i);
CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 10, 'N'), ('B', 20, 'S'), ('C', 5, 'N'), ('D', 7, 'S'))
  AS w(ward, beds, building);
CREATE TABLE calendar AS SELECT date_trunc('month', DATE '2026-01-01' + INTERVAL (i) MONTH) AS month FROM range(12) AS r(i);
"""
VISIT = PathKey(("memory", "main", "visits"), "id")
NOW = datetime.datetime(2026, 11, 26, 12)


def hospital() -> duckdb.DuckDBPyConnection:
    """Return a connection with the hospital's tables."""
    con = duckdb.connect()
    con.execute(SCHEMA)
    return con


def tree_of(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the tree that DuckDB serializes of a query."""
    [(tree,)] = con.execute("SELECT json_serialize_sql(?)::VARCHAR", [sql]).fetchall()
    return str(tree)


def columns_of_table(
    con: duckdb.DuckDBPyConnection,
    table: str,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[CatalogueColumn, ...]:
    """Return the columns of a table with what its owner declared."""
    [(plan,)] = con.execute(
        "SELECT json_serialize_plan(?)::VARCHAR", [f"SELECT * FROM (SELECT * FROM {table})"]
    ).fetchall()
    node = json.loads(plan)["plans"][0]
    found = []
    for one in node["expressions"]:
        low, high = (bounds or {}).get(one["alias"], (None, None))
        ends = (None if low is None else Fraction(low), None if high is None else Fraction(high))
        found.append(CatalogueColumn(one["alias"], type_of(one["return_type"]), (keys or {}).get(one["alias"]), *ends))
    return tuple(found)


def catalogue_of(con: duckdb.DuckDBPyConnection) -> Catalogue:
    """Return what a splitter knows of the hospital."""

    def path(name: str) -> tuple[str, str, str]:
        return "memory", "main", name

    def of(
        name: str, keys: dict[str, tuple[str, ...]] | None = None, bounds: dict[str, tuple[int, int]] | None = None
    ) -> tuple[CatalogueColumn, ...]:
        return columns_of_table(con, name, keys, bounds)

    patients = of("patients", {"sex": ("F", "M")}, {"age": (0, 120)})
    visits = of("visits", {"ward": ("A", "B", "C", "D")}, {"days": (0, 365)})
    labs = of("labs", {"test": tuple(f"t{number}" for number in range(9))}, {"result": (0, 500)})
    tables = {
        "patients": CatalogueTable(path("patients"), patients, False, ("id", "patient")),
        "visits": CatalogueTable(path("visits"), visits, False, ("patient",), None, {"id": VISIT}),
        "labs": CatalogueTable(path("labs"), labs, False, ("visit",), VISIT),
        "wards": CatalogueTable(path("wards"), of("wards")),
        "calendar": CatalogueTable(path("calendar"), of("calendar")),
    }
    named = {(schema and "", schema, name): table for schema in ("", "main") for name, table in tables.items()}
    return Catalogue(named, TYPING, {path(name): table for name, table in tables.items()})


def split_of(con: duckdb.DuckDBPyConnection, sql: str, *, delta: bool = True, **options: object) -> Split:
    """Return the split of a query, as the engine asks for it."""
    query = read_tree(tree_of(con, sql))
    try:
        shown = con.execute(f"DESCRIBE {sql}").fetchall()
        options.setdefault("columns", tuple((name, kind) for name, kind, *_ in shown))
    except duckdb.Error:
        pass
    found = split(query, catalogue_of(con), Options(now=NOW, **options))  # type: ignore[arg-type]
    if not delta:
        found.refuse_lacking(sql)
    return found


def answered_exactly(con: duckdb.DuckDBPyConnection, found: Split) -> list[tuple[object, ...]]:
    """Return what the post text makes of the cores' exact answers, without groups that have no row."""
    for core in found.cores:
        con.execute(f'CREATE OR REPLACE TEMP TABLE "{core.name}" AS {_exact(core)}')
    return con.execute(found.post).fetchall()


def _exact(core: QueryCore) -> str:
    listed = [f'source."{key.column}"' for key in core.keys]
    listed += [f'CAST({_aggregate(one)} AS {one.type}) AS "{one.name}"' for one in core.aggregates]
    source = (
        f"({core.source})" if core.unit is None else f"(SELECT * FROM ({core.source}) WHERE {core.unit} IS NOT NULL)"
    )
    lists = {key.together or (key.column,): _values(key) for key in core.keys if _public(key)}
    items, where = [f"{source} AS source"], []
    for at, (names, values) in enumerate(lists.items()):
        columns = [f'"{name}"' for name in names]
        items.append(f"({values}) AS v{at}({', '.join(columns)})")
        where += [f"source.{column} IS NOT DISTINCT FROM v{at}.{column}" for column in columns]
    text = f"SELECT {', '.join(listed)} FROM {' CROSS JOIN '.join(items)}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    return text + (" GROUP BY ALL" if core.keys else "")


def _public(key: object) -> bool:
    return getattr(key, "values", None) is not None or getattr(key, "query", None) is not None


def _values(key: object) -> str:
    query, values, kind = (getattr(key, name) for name in ("query", "values", "type"))
    if query is not None:
        return str(query)
    rows = ", ".join("(NULL)" if one is None else "('{}')".format(one.replace("'", "''")) for one in values)
    return f"SELECT CAST(v AS {kind}) AS v FROM (VALUES {rows}) AS listed(v)"


def _aggregate(one: QueryAggregate) -> str:
    column, other = f'"{one.column}"', f'"{one.other}"'
    if one.kind == "rows":
        return "count(*)"
    if one.kind == "values":
        return f"count({column})"
    if one.kind == "units":
        counted = "unit_of_row" if one.column is None else f"CASE WHEN {column} IS NOT NULL THEN unit_of_row END"
        return f"count(DISTINCT {counted})"
    if one.kind == "items":
        return f"count(DISTINCT {column})"
    if one.kind == "quantile":
        return f"{'quantile_disc' if one.discrete else 'quantile_cont'}({column}, {float(one.quantile or 0)})"
    return f"{one.kind}({column})" if one.other is None else f"{one.kind}({column}, {other})"


def plain(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows in an order of their own, with doubles rounded."""

    def rounded(value: object) -> object:
        if isinstance(value, float):
            return "nan" if math.isnan(value) else float(f"{value:.6g}") + 0.0
        return tuple(map(rounded, value)) if isinstance(value, list) else value

    return sorted([tuple(map(rounded, row)) for row in rows], key=repr)
