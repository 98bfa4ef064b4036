"""The writer of whole queries: what it writes is read back as the same nodes, and returns the same rows."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.contract.query.nodes import Expr, Select, TableRef, WindowFrame, query_sql
from dpsql.contract.query.tree import read_tree
from dpsql.errors import ParameterError
from support.cases import cases
from tests.support.split_queries import tree_of

QUERIES = (
    "SELECT 1",
    "SELECT a, b AS c FROM t WHERE a > 1 AND NOT b IS NULL OR a IN (1, 2) ORDER BY 1 DESC NULLS LAST, c LIMIT 2 OFFSET 1",
    "SELECT DISTINCT a FROM t ORDER BY a",
    "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b",
    "SELECT t.* EXCLUDE (b) FROM t ORDER BY ALL",
    "SELECT * REPLACE (a + 1 AS a) FROM t ORDER BY ALL",
    "SELECT a, count(*), sum(b) FILTER (WHERE b > 1), count(DISTINCT b) FROM t GROUP BY a HAVING count(*) > 0 ORDER BY 1",
    "SELECT a, b, count(*), grouping(a) FROM t GROUP BY ROLLUP (a, b) ORDER BY ALL",
    "SELECT a, count(*) FROM t GROUP BY ALL ORDER BY a",
    "SELECT a, sum(b) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t ORDER BY ALL",
    "SELECT lag(b, 1, 0) OVER (ORDER BY a, b), row_number() OVER (ORDER BY a, b) FROM t ORDER BY ALL",
    "SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1 ORDER BY a",
    "WITH c(x) AS (SELECT a FROM t), d AS (SELECT x FROM c) SELECT * FROM c JOIN d USING (x) ORDER BY ALL",
    "(SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL SELECT b FROM t ORDER BY 1",
    "SELECT a FROM t EXCEPT SELECT b FROM t ORDER BY 1",
    "SELECT * FROM t x LEFT JOIN t y ON x.a = y.b AND y.a > 1 ORDER BY ALL",
    "SELECT * FROM t x, t y WHERE x.a = y.b ORDER BY ALL",
    "SELECT * FROM (t x JOIN t y ON x.a = y.a) JOIN t z ON z.a = x.b ORDER BY ALL",
    "SELECT * FROM t x JOIN (t y JOIN t z ON z.a = y.b) ON y.a = x.a ORDER BY ALL",
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.b = t.a) ORDER BY ALL",
    "SELECT a FROM t WHERE a NOT IN (SELECT b FROM t WHERE b IS NOT NULL) OR a > ALL (SELECT b FROM t WHERE b < 0) ORDER BY ALL",
    "SELECT (SELECT max(b) FROM t u WHERE u.a = t.a) FROM t ORDER BY 1",
    "SELECT CASE a WHEN 1 THEN 'x''y' ELSE NULL END, CASE WHEN a > 1 THEN 1 END FROM t ORDER BY ALL",
    "SELECT CAST(a AS VARCHAR) || 'é\"', TRY_CAST('x' AS INTEGER), a::DECIMAL(9, 2), coalesce(b, 0) FROM t ORDER BY ALL",
    "SELECT s LIKE '%a_' , s NOT ILIKE 'B%', s LIKE 'a!_' ESCAPE '!', a BETWEEN 1 AND 2 FROM (SELECT 'ab_' AS s, a FROM t) ORDER BY ALL",
    "SELECT [1, a][2], {'k': a}.k, -a, - 3, 1e3, 1.50, true, extract(year FROM DATE '2020-03-04') FROM t ORDER BY ALL",
    "SELECT list_transform([a], lambda x: x + 1) FROM t ORDER BY 1",
    "SELECT string_agg(a::VARCHAR, ',' ORDER BY b DESC) FROM t",
    'SELECT "a""; --".a AS "x""y" FROM t AS "a""; --" ORDER BY 1',
    "SELECT x FROM (VALUES (1), (2)) AS v(x) ORDER BY x",
    "SELECT * FROM range(3) ORDER BY 1",
    "SELECT a FROM main.t ORDER BY a",
)


@cases("sql", QUERIES, quick=3)
def test_written_queries_are_the_same(sql: str) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT * FROM (VALUES (1, 2), (1, NULL), (2, 1), (3, 3), (NULL, 1)) AS v(a, b)")
        found = read_tree(tree_of(con, sql))
        written = query_sql(found)
        again = read_tree(tree_of(con, written))
        assert "VALUES" in sql or again == read_tree(tree_of(con, query_sql(again)))  # VALUES is read as a subquery
        assert con.execute(written).fetchall() == con.execute(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), sum(a) + 1, upper('x'), max(a) FILTER (WHERE a > 1) FROM t",
        "SELECT a, t.b, 1, 'x', a + b FROM t",
    ],
)
def test_columns_have_the_names_that_duckdb_gives_them(sql: str) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        assert [one[0] for one in con.execute(query_sql(read_tree(tree_of(con, sql)))).description] == [
            one[0] for one in con.execute(sql).description
        ]


def test_a_frame_is_of_numbers_alone() -> None:
    """What stands between ROWS and PRECEDING is written as it is: a text there would be more than a distance."""
    escaping = Expr("constant", "string", value="1 PRECEDING AND CURRENT ROW) FROM secrets --")
    frame = WindowFrame("EXPR_PRECEDING_ROWS", escaping, "CURRENT_ROW_ROWS")
    window = Expr("window", "sum", (Expr("column", names=("a",)),), frame=frame)
    with pytest.raises(ParameterError, match="literal"):
        query_sql(Select(items=(window,), source=TableRef(("", "", "t"))))
