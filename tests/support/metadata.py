"""Kinds of metadata that rows can make, and the questions about them that cost nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

ROWS = "CREATE TABLE rows AS SELECT i AS id, CASE i WHEN 5 THEN 'Huntington' ELSE 'flu' END AS diagnosis, i * 1.5 AS cost FROM range({people}) AS r(i)"
PLAIN = "CREATE TABLE people (id BIGINT, diagnosis VARCHAR, cost DOUBLE)"


class Kind(NamedTuple):
    """One kind of metadata.

    Attributes
    ----------
    makes : str
        The statements that make the table `people` and the metadata. Between braces behind a dollar is an expression
        over all rows.
    owner : tuple of str
        The queries by which the owner sees the metadata.
    in_docs : str
        The kind in the table of `docs/privacy.md`.
    """

    makes: str
    owner: tuple[str, ...]
    in_docs: str


KINDS: Mapping[str, Kind] = {
    "default": Kind(
        "CREATE TABLE people (id BIGINT, diagnosis VARCHAR DEFAULT '${min(diagnosis)}', cost DOUBLE DEFAULT ${max(id)})",
        ("SELECT column_default FROM duckdb_columns() WHERE table_name = 'people'",),
        "defaults",
    ),
    "check": Kind(
        "CREATE TABLE people (id BIGINT CHECK (id <= ${max(id)}), diagnosis VARCHAR, cost DOUBLE, CHECK (cost <= ${max(cost)}))",
        ("SELECT constraint_text FROM duckdb_constraints() WHERE table_name = 'people'",),
        "CHECK constraints",
    ),
    "generated column": Kind(
        "CREATE TABLE people (id BIGINT, diagnosis VARCHAR, cost DOUBLE, far BIGINT GENERATED ALWAYS AS (id + ${max(id)}))",
        ("SELECT sql FROM duckdb_tables() WHERE table_name = 'people'",),
        "expressions of generated columns",
    ),
    "comment": Kind(
        f"{PLAIN}; COMMENT ON TABLE people IS '${{min(diagnosis)}}'; COMMENT ON COLUMN people.cost IS '${{max(id)}}'",
        ("SELECT comment FROM duckdb_tables() WHERE table_name = 'people'",),
        "comments",
    ),
    "sequence": Kind(
        "CREATE SEQUENCE numbered; CREATE TABLE people (id BIGINT DEFAULT nextval('numbered'), diagnosis VARCHAR, cost DOUBLE);"
        "INSERT INTO people (diagnosis, cost) SELECT diagnosis, cost FROM rows",
        ("SELECT last_value FROM duckdb_sequences()",),
        "sequences",
    ),
    "index": Kind(
        f'{PLAIN}; CREATE INDEX "by_${{min(diagnosis)}}" ON people (id)',
        ("SELECT index_name FROM duckdb_indexes()",),
        "names of indexes and constraints",
    ),
    "foreign key": Kind(
        "CREATE TABLE kept (id BIGINT PRIMARY KEY); INSERT INTO kept SELECT id FROM rows;"
        "CREATE TABLE people (id BIGINT REFERENCES kept (id), diagnosis VARCHAR, cost DOUBLE)",
        ("SELECT estimated_size FROM duckdb_tables() WHERE table_name = 'kept'",),
        "foreign keys",
    ),
    "text of a view": Kind(
        f"{PLAIN}; CREATE VIEW shown AS SELECT id, diagnosis, cost FROM people WHERE diagnosis <> '${{min(diagnosis)}}'",
        ("SELECT sql FROM duckdb_views() WHERE view_name = 'shown'",),
        "texts of views and macros",
    ),
    "macro": Kind(
        f"{PLAIN}; CREATE MACRO worst() AS '${{min(diagnosis)}}'",
        ("SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'worst'",),
        "texts of views and macros",
    ),
    "type": Kind(
        f'{PLAIN}; CREATE TYPE named AS STRUCT("${{min(diagnosis)}}" INTEGER)',
        ("SELECT logical_type, labels FROM duckdb_types() WHERE type_name = 'named'", "SELECT typeof(NULL::named)"),
        "types that users made",
    ),
    "variable": Kind(
        f"{PLAIN}; SET VARIABLE worst = '${{min(diagnosis)}}'",
        ("SELECT getvariable('worst')",),
        "variables and settings",
    ),
    "sizes": Kind(
        PLAIN,
        ("SELECT estimated_size FROM duckdb_tables() WHERE table_name = 'people'",),
        "sizes and numbers of rows",
    ),
    "statistics": Kind(
        PLAIN,
        ("SELECT stats(cost) FROM people LIMIT 1", "SELECT stats FROM pragma_storage_info('people')"),
        "statistics of columns",
    ),
    "Parquet": Kind(
        f"{PLAIN}; COPY (FROM rows) TO '{{path}}/people.parquet'; CREATE VIEW lake AS FROM '{{path}}/people.parquet'",
        ("SELECT num_rows FROM parquet_file_metadata('{path}/people.parquet')",),
        "metadata of Parquet files",
    ),
}
_FREE = (
    "DESCRIBE people",
    "DESCRIBE shown",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "SHOW SCHEMAS",
    "SHOW people",
    "SUMMARIZE people",
    "SUMMARIZE SELECT * FROM people",
    "SELECT table_schema, table_name, column_name, ordinal_position, column_default, is_nullable, data_type FROM information_schema.columns",
    "SELECT table_name, table_type FROM information_schema.tables",
    "SELECT schema_name FROM information_schema.schemata",
    "SELECT table_name, column_name, column_index, data_type, is_nullable FROM duckdb_columns()",
    "SELECT database_name, schema_name, table_name, internal, temporary FROM duckdb_tables()",
    *(
        f"SELECT {column} FROM duckdb_tables()"
        for column in (
            "comment",
            "estimated_size",
            "sql",
            "column_count",
            "table_oid",
            "tags",
            "index_count",
            "has_primary_key",
        )
    ),
    *(
        f"SELECT {column} FROM duckdb_columns()"
        for column in ("comment", "column_default", "numeric_precision", "data_type_id")
    ),
    *(
        f"SELECT {column} FROM information_schema.columns"
        for column in ("COLUMN_COMMENT", "numeric_precision", "character_maximum_length")
    ),
    "SELECT TABLE_COMMENT FROM information_schema.tables",
    *(
        f"SELECT * FROM information_schema.{name}"
        for name in (
            "columns",
            "table_constraints",
            "key_column_usage",
            "referential_constraints",
            "check_constraints",
            "views",
            "sequences",
            "character_sets",
        )
    ),
    *(
        f"SELECT * FROM duckdb_{name}()"
        for name in (
            "constraints",
            "views",
            "sequences",
            "indexes",
            "types",
            "functions",
            "variables",
            "settings",
            "temporary_files",
            "memory",
            "databases",
            "schemas",
            "optimizers",
            "extensions",
            "dependencies",
            "secrets",
            "logs",
            "prepared_statements",
        )
    ),
    *(
        f"SELECT * FROM {name}"
        for name in (
            "pragma_table_info('people')",
            "pragma_storage_info('people')",
            "pragma_show('people')",
            "pragma_database_size()",
            "pragma_user_agent()",
            "pragma_metadata_info()",
            "pg_catalog.pg_class",
            "pg_catalog.pg_attrdef",
            "pg_catalog.pg_constraint",
            "pg_catalog.pg_description",
            "pg_catalog.pg_sequences",
            "pg_catalog.pg_type",
            "pg_catalog.pg_enum",
            "pg_catalog.pg_views",
            "pg_catalog.pg_index",
            "sqlite_master",
            "duckdb_tables",
            "duckdb_columns",
        )
    ),
    *(
        f"SELECT * FROM parquet_{name}('{{path}}/people.parquet')"
        for name in ("metadata", "schema", "file_metadata", "kv_metadata", "bloom_probe")
    ),
    "PRAGMA table_info('people')",
    "EXPLAIN SELECT count(*) FROM people",
    "SELECT * FROM people LIMIT 0",
    "SELECT id, cost FROM people WHERE 1 = 0",
    "SELECT * FROM people",
    "SELECT nosuch FROM people",
    "SELECT id + diagnosis FROM people",
    "SELECT count(*) FROM peopel",
    "SELECT diagnosis::INTEGER FROM people",
    "SELECT stats(cost) FROM people",
    "SELECT currval('numbered')",
    "SELECT nextval('numbered')",
    "SELECT worst()",
    "SELECT getvariable('worst')",
    "SELECT NULL::named",
    "SELECT typeof(id), typeof(diagnosis) FROM people LIMIT 0",
    "INSERT INTO people VALUES (DEFAULT, DEFAULT, DEFAULT)",
)
_PRICED = ("SELECT count(*), avg(cost) FROM people", "SELECT diagnosis, count(*) FROM people GROUP BY diagnosis")


def _query(sql: str, more: str = "") -> str:
    quoted = sql.replace("'", "''")
    return f"FROM dp_query('{quoted}', epsilon := 0.5, delta := 1e-6{more})"


# Everything that may be asked in SQL and costs nothing, by what is asked.
LOCAL_DOORS: Mapping[str, str] = {
    **{f"dp_query {sql}": _query(sql) for sql in _FREE},
    **{f"price {sql}": _query(sql, ", estimate := true, keys := 'private'") for sql in _PRICED},
    "dp_estimate": "FROM dp_estimate('dp_query', sql := 'SELECT count(*) FROM people', epsilon := 0.5)",
    "dp_estimate of a function": "FROM dp_estimate('dp_count', epsilon := 0.5)",
    "dp_budget": "FROM dp_budget()",
    "dp_policy": "SELECT dataset, declaration, argument, column_name, value FROM dp_policy()",
    "dp_unplaced": "FROM dp_unplaced()",
    "error: column": "FROM dp_count('people', target := 'nosuch', epsilon := 0.5)",
    "error: table": "FROM dp_count('peopel', epsilon := 0.5)",
    "error: type": "FROM dp_avg('people', target := 'diagnosis', lower := 0, upper := 9, epsilon := 0.5)",
    "error: budget": "FROM dp_count('people', epsilon := 5000)",
    "error: condition": "FROM dp_count('people', condition := 'diagnosis > 3 +', epsilon := 0.5)",
    "error: macro in a condition": "FROM dp_count('people', condition := 'diagnosis = worst()', epsilon := 0.5)",
    "error: view": "FROM dp_count('nosuchview', epsilon := 0.5)",
    "error: keys": "FROM dp_count('people', by := ['diagnosis'], keys := 'kept', epsilon := 0.5)",
    "error: file": "FROM dp_count('{path}/people.parquet', epsilon := 0.5)",
}


def made(con: Any, kind: str, folder: Path, people: int) -> None:
    """Fill and protect the table `people`, with metadata of one kind that its rows make."""
    con.execute(ROWS.format(people=people))

    def of_rows(found: re.Match[str]) -> str:
        return str(con.execute(f"SELECT {found[1]} FROM rows").fetchall()[0][0])

    for statement in KINDS[kind].makes.split(";"):
        con.execute(re.sub(r"\$\{(.*?)\}", of_rows, statement.replace("{path}", str(folder)))).fetchall()
    if not con.execute("SELECT count(*) FROM people").fetchall()[0][0]:
        con.execute("INSERT INTO people BY NAME FROM rows")
    con.execute("DROP TABLE rows")
    stated = "privacy_unit := 'id', max_rows_per_unit := 1, lower := {cost: 0}, upper := {cost: 100}"
    con.execute(f"SELECT dp_protect('people', epsilon := 100, delta := 1e-4, {stated})").fetchall()


# The frames of Python that DuckDB 1.5 writes into an error: as many as the caller has.
_STACK = re.compile(r"\nAt:\n(?:  [^\n]*\n?)+")


def said(con: Any, sql: str, folder: Path) -> str:
    """Return what a door says: rows, or an error, without the names that every database has of its own."""
    try:
        cursor = con.execute(sql.replace("{path}", str(folder)))
        text = str([[column[:2] for column in cursor.description or ()], cursor.fetchall()])
    except duckdb.Error as error:
        text = _STACK.sub("", str(error))
    return without_names(text, folder)


def without_names(text: str, folder: Path) -> str:
    """Return a text without the folder of a database and its mark."""
    return re.sub(r"dpsql_ledger_[0-9a-f]{16}_[0-9a-f]{16}", "MARK", text.replace(str(folder), "FOLDER"))


def listed_in_docs(page: str) -> dict[str, str]:
    """Return what `docs/privacy.md` says of each kind of metadata: public, hidden or refused."""
    rows = page.partition("### Metadata")[2].partition("\n## ")[0].partition("\n### ")[0].splitlines()
    cells = ([cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows if row.startswith("| "))
    return {kind: verdict.strip("*") for kind, verdict, *_ in cells if kind != "metadata"}
