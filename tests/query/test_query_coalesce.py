"""COALESCE of a value that fails: DuckDB 1.5 ends the process within TRY, so there it is a CASE."""

from __future__ import annotations

from typing import Any

import dpsql
from support.cases import cases


@cases("form", ["coalesce(b, CAST(s AS BIGINT)) > 1", "coalesce(b, b, CAST(s AS BIGINT)) > 1"], quick=1)
def test_a_row_that_fails_within_coalesce_is_left_out(form: str) -> None:
    with dpsql.connect() as opened:
        con: Any = opened
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, CASE WHEN i % 3 > 0 THEN 'a' || i END AS s, "
            "CASE WHEN i % 5 > 0 THEN i % 4 END AS b FROM range(4000) AS r(i)"
        )
        con.execute("SELECT dp_protect('t', epsilon := 1000, privacy_unit := 'u', max_rows_per_unit := 1)")
        assert len(con.execute(f"FROM dp_count('t', condition := $${form}$$, epsilon := 100)").fetchall()) == 1
        sql = f"SELECT count(*) FROM t WHERE {form}"
        [(count,)] = con.execute("FROM dp_query($1, epsilon := 100)", [sql]).fetchall()
        assert abs(count - con.execute(sql.replace("CAST", "TRY_CAST")).fetchall()[0][0]) < 5
