"""`dp_protect` says of which sources the text is not checked."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql


@pytest.mark.long
def test_a_view_over_a_file_or_a_frame_is_said_to_be_unchecked(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with duckdb.connect() as plain:
        plain.execute(f"COPY (SELECT 'a' AS s) TO '{path}'")
    with dpsql.connect(tmp_path / "mine.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS s")
        connection.execute("CREATE VIEW over_table AS SELECT upper(s) AS s FROM t")
        connection.execute(f"CREATE VIEW over_file AS FROM '{path}'")
        connection.register("frame", pa.table({"s": ["a"]}))
        connection.execute("CREATE TEMP VIEW over_frame AS FROM frame")
        said = {
            name: connection.execute(f"SELECT dp_protect('{name}', epsilon := 1)").fetchall()[0][0]
            for name in ("t", "over_file", "temp.main.over_frame")
        }
    assert {name: "not UTF-8" in text for name, text in said.items()} == {
        "t": False,
        "over_file": True,
        "temp.main.over_frame": True,
    }
