"""Metadata that rows can make: two databases that differ in one person look the same wherever nothing is charged.

A *kind* is a statement that makes metadata of the rows. A *door* asks what costs nothing, or is refused. Doors of the
gateway are in `tests/gateway/test_metadata_doors.py`. The table in `docs/privacy.md` lists each kind.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.metadata import KINDS, LOCAL_DOORS, listed_in_docs, made, said
from support.sql_text import literal

PRIVACY = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"


@pytest.mark.long
@cases("kind", KINDS)
def test_neighbours_have_the_same_metadata_at_every_door(kind: str, tmp_path: Path) -> None:
    shown = []
    for people in (5, 6):
        folder = tmp_path / str(people)
        folder.mkdir()
        con = dpsql.connect()
        made(con, kind, folder, people)
        shown.append({name: said(con, sql, folder) for name, sql in LOCAL_DOORS.items()})
        # The owner sees what was made, so the kind does tell the two apart.
        shown[-1]["owner"] = str(
            [con.execute(sql.replace("{path}", str(folder))).fetchall() for sql in KINDS[kind].owner]
        )
        con.close()
    without, with_person = shown
    assert without.pop("owner") != with_person.pop("owner"), "the rows make no metadata"
    assert without == with_person


def test_a_query_of_the_catalog_shows_no_default() -> None:
    """An owner may have written a default of rows; a query of the catalog is free."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t (id INTEGER, note VARCHAR DEFAULT 'a secret', n INTEGER DEFAULT 31337)")
        con.execute("SELECT dp_protect('t', epsilon := 1)").fetchall()
        sql = "SELECT column_name, column_default FROM information_schema.columns WHERE table_name = 't' ORDER BY ALL"
        assert con.execute(f"FROM dp_query({literal(sql)})").fetchall() == [("id", None), ("n", None), ("note", None)]
        described = con.execute("SELECT column_name, \"default\" FROM dp_query('DESCRIBE t')").fetchall()
        assert described == [("id", None), ("note", None), ("n", None)]
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'release'").fetchall() == [(0,)]


@cases(
    ("source", "shown"),
    [
        (
            "information_schema.columns",
            "table_catalog table_schema table_name column_name ordinal_position is_nullable data_type",
        ),
        ("information_schema.tables", "table_catalog table_schema table_name table_type"),
        ("information_schema.schemata", "catalog_name schema_name"),
        ("duckdb_tables()", "database_name schema_name table_name internal temporary"),
        (
            "duckdb_columns()",
            "database_name schema_name table_name column_name column_index data_type is_nullable",
        ),
    ],
)
def test_the_whole_catalog_has_its_columns_and_shows_some(source: str, shown: str) -> None:
    """Tools write SELECT *: all columns are there, and whatever is not listed is NULL."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note VARCHAR DEFAULT 'a secret' CHECK (note <> 'secret'))")
        con.execute("COMMENT ON TABLE t IS 'a secret'; COMMENT ON COLUMN t.id IS 'a secret'").fetchall()
        con.execute("SELECT dp_protect('t', epsilon := 1)").fetchall()
        own = con.execute(f"SELECT * FROM {source} LIMIT 0").description or []
        answer = con.execute(f"FROM dp_query('SELECT * FROM {source}')")
        assert [name for name, *_ in answer.description or []] == [name for name, *_ in own]
        rows = answer.fetchall()
        assert rows
        assert "secret" not in str(rows)
        names = [name for name, *_ in own]
        hidden = next(name for name in names if name not in shown.split() and name != "column_default")
        with pytest.raises(duckdb.Error, match="DPSQL-P101"):
            con.execute(f"FROM dp_query('SELECT {hidden} FROM {source}')")
        renamed = f"SELECT {shown.split()[0]} AS {hidden} FROM {source} ORDER BY {hidden}"
        assert len(con.execute(f"FROM dp_query({literal(renamed)})").fetchall()) == len(rows)
        assert {name for row in rows for name, value in zip(names, row, strict=True) if value is not None} == set(
            shown.split()
        )


def test_a_query_of_the_catalog_shows_no_label() -> None:
    """The labels of a type may be a column's values."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t (id INTEGER, kind ENUM('a secret'), more STRUCT(one ENUM('another secret'))[])")
        con.execute("SELECT dp_protect('t', epsilon := 1)").fetchall()
        for sql in (
            "SELECT data_type FROM information_schema.columns WHERE table_name = 't'",
            "SELECT data_type FROM duckdb_columns() WHERE table_name = 't'",
            "DESCRIBE t",
        ):
            found = con.execute(f"FROM dp_query({literal(sql)})").fetchall()
            assert len(found) == 3
            assert "secret" not in str(found), sql


def test_every_kind_is_in_the_docs() -> None:
    told = listed_in_docs(PRIVACY.read_text(encoding="utf-8"))
    assert set(told.values()) <= {"public", "hidden", "refused"}
    assert {name: told.get(one.in_docs) for name, one in KINDS.items()} == dict.fromkeys(KINDS, "hidden")


@cases(
    ("view", "fix"),
    [
        ("FROM read_parquet('{path}/*/*.parquet')", "hive_types := {'ward': VARCHAR}"),
        ("FROM '{path}/**/*.parquet'", "hive_types := {'ward': VARCHAR}"),
        ("FROM read_parquet('{path}/ward=1/*.parquet')", "hive_partitioning := false"),
        (
            "FROM read_parquet(['{path}/ward=1/data_0.parquet'], hive_partitioning := true)",
            "hive_types_autocast := false",
        ),
    ],
    quick=1,
    alone=True,
)
def test_folders_do_not_choose_types(view: str, fix: str, tmp_path: Path) -> None:
    con = dpsql.connect()
    con.execute("CREATE TABLE rows AS SELECT i AS id, i % 2 AS ward FROM range(4) AS r(i)")
    con.execute(f"COPY rows TO '{tmp_path}/lake' (FORMAT parquet, PARTITION_BY (ward))")
    text = view.format(path=f"{tmp_path}/lake")
    con.execute(f"CREATE VIEW lake AS {text}")
    with pytest.raises(duckdb.Error, match="S020"):
        con.execute("SELECT dp_protect('lake', epsilon := 1)").fetchall()
    file = text.removeprefix("FROM ").removeprefix("read_parquet(").removesuffix(")").split(", hive")[0]
    con.execute(f"CREATE OR REPLACE VIEW lake AS SELECT id FROM read_parquet({file}, {fix})")
    con.execute("SELECT dp_protect('lake', epsilon := 1)").fetchall()
    con.close()
