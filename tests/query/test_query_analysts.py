"""What analysts ask in several dialects, and in the shapes of public benchmarks, is answered as DuckDB answers it.

What is refused names the place and the next step, and that step runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.analysts import ANSWERED, REFUSED, analysts
from support.answers import described, differences, private
from support.cases import cases

# A cell of a quantile or of a drawn bound is wider than rounding.
SLACK = 0.01


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        analysts(opened)
        yield opened


@cases("name", ANSWERED, quick=1)
def test_the_answer_is_duckdbs_own(con: Any, name: str) -> None:
    sql, more = ANSWERED[name]
    call = private(sql, more)
    assert described(con, call) == described(con, sql)
    theirs = con.execute(sql).fetchall()
    assert theirs
    assert differences(con.execute(call).fetchall(), theirs, slack=SLACK) == []


@cases(("sql", "code", "words", "mended"), REFUSED, quick=1)
def test_a_refusal_says_what_to_write(con: Any, sql: str, code: str, words: str, mended: str) -> None:
    before = con.execute("FROM dp_budget()").fetchall()
    with pytest.raises(duckdb.Error) as raised:
        con.execute(private(sql)).fetchall()
    message = str(raised.value)
    found = re.search(r"DPSQL-([A-Z]\d{3})", message)
    assert found is not None, message
    assert found[1] == code, message
    assert words in message
    assert con.execute("FROM dp_budget()").fetchall() == before
    assert con.execute(private(mended)).fetchall()


def test_items_need_a_privacy_unit_and_groups_do_not() -> None:
    with dpsql.connect() as opened:
        opened.execute("CREATE TABLE rows_ AS SELECT 'w' || i % 3 AS w FROM range(300) AS r(i)")
        opened.execute("SELECT dp_protect('rows_', epsilon := 1e11, delta := 0.01)")
        with pytest.raises(duckdb.Error, match=r"P046\] sql: count\(DISTINCT w\) needs a privacy unit"):
            opened.execute(private("SELECT count(DISTINCT w) FROM rows_")).fetchall()
        mended = private("SELECT count(*) FROM (SELECT w FROM rows_ GROUP BY w)", "delta := 1e-3")
        assert opened.execute(mended).fetchall() == [(3,)]
