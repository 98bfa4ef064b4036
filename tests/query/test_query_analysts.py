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

# A cell of a quantile or of a drawn bound is wider than rounding.
SLACK = 0.01


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        analysts(opened)
        yield opened


@pytest.mark.parametrize("name", ANSWERED)
def test_the_answer_is_duckdbs_own(con: Any, name: str) -> None:
    sql, more = ANSWERED[name]
    call = private(sql, more)
    assert described(con, call) == described(con, sql)
    theirs = con.execute(sql).fetchall()
    assert theirs
    assert differences(con.execute(call).fetchall(), theirs, slack=SLACK) == []


@pytest.mark.parametrize(("sql", "code", "words", "mended"), REFUSED)
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
