"""Hostile SQL: what a caller defines, names or nests decides nothing, and what is not read is refused without a charge.

A text is refused with a code, or answered as it is without the caller's tricks; no message holds a value of a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.expression.functions import called_in, listed
from support import BEFORE_2_0
from support.answers import differences, private
from support.cases import cases
from support.sql_text import literal
from support.worlds import hospital

SECRET = "Zoe Zwilling, 1987"
CODE = re.compile(r"DPSQL-[PSBL]\d{3}")


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened, people=60)
        opened.execute(f"UPDATE visits SET note = '{SECRET}', doctor = '{SECRET}' WHERE id % 3 = 0")
        yield opened


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Any]:
    """For texts that must be refused: nothing is charged from the first to the last."""
    with dpsql.connect() as opened:
        hospital(opened, people=60)
        opened.execute(f"UPDATE visits SET note = '{SECRET}', doctor = '{SECRET}' WHERE id % 3 = 0")
        before = opened.execute("FROM dp_budget()").fetchall()
        yield opened
        assert opened.execute("FROM dp_budget()").fetchall() == before


def refused(con: Any, call: str) -> None:
    with pytest.raises(duckdb.Error) as raised:
        con.execute(call).fetchall()
    message = str(raised.value)
    assert CODE.search(message), message
    assert SECRET not in message


# What reads rows, files, settings or another call, wherever a relation may stand.
RELATIONS = (
    "query('FROM visits')",
    "query('SELECT note FROM visits')",
    "query_table('visits')",
    "query_table(['visits', 'visits'])",
    "read_csv('visits.csv')",
    "read_text('*')",
    "read_parquet('visits.parquet')",
    "read_json_auto('visits.json')",
    "glob('*')",
    "sniff_csv('visits.csv')",
    "'visits.parquet'",
    '"visits.csv"',
    "duckdb_settings()",
    "duckdb_secrets()",
    "duckdb_variables()",
    "duckdb_optimizers()",
    "duckdb_logs()",
    "pragma_storage_info('visits')",
    "pragma_table_info('visits')",
    "json_execute_serialized_sql(json_serialize_sql('FROM visits'))",
    "sql_auto_complete('SEL')",
    "dp_count('visits', epsilon := 1)",
    "dp_query('SELECT count(*) FROM visits', epsilon := 1)",
    "dp_ledger()",
    "dp_budget()",
    "release('x')",
    "(SUMMARIZE visits)",
    "(SHOW ALL TABLES)",
    "test_all_types()",
    "duckdb_memory()",
)
FORMS = (
    "SELECT count(*) FROM {}",
    "SELECT count(*) FROM visits WHERE ward IN (SELECT CAST(t AS VARCHAR) FROM {} AS t)",
    "SELECT count(*), (SELECT count(*) FROM {}) FROM visits",
    "WITH w AS (SELECT * FROM {}) SELECT count(*) FROM visits, w",
    "SELECT ward, count(*) FROM visits JOIN {} AS t ON true GROUP BY ward",
)
# What is no function over one row, wherever a value may stand.
VALUES = (
    "getenv('HOME')",
    "current_setting('threads')",
    "getvariable('x')",
    "error(note)",
    "error('stop')",
    "random()",
    "gen_random_uuid()",
    "nextval('s')",
    "setseed(0.5)",
    "currval('s')",
    "pg_typeof(note)",
    "stats(note)",
    "json_serialize_sql('SELECT 1')",
    "txid_current()",
    "write_log('x')",
    "in_search_path('memory', 'main')",
    "dpsql_query_plan('SELECT 1', '{}', [], [], {})",
    "system.main.dpsql_sampling_key(0)",
    "dpsql.dp_avg(days, epsilon := 1)",
    "dp_sum(days, epsilon := 1, lower := 0, upper := 1)",
    "rowid",
    "visits",
    "COLUMNS(*)",
    "CAST(note AS INTEGER[])[days]",
)
PLACES = (
    "SELECT count(*) FROM visits WHERE ({}) IS NOT NULL",
    "SELECT sum(CASE WHEN ({}) IS NULL THEN 1 ELSE 0 END) FROM visits",
    "SELECT ({}) IS NULL AS k, count(*) FROM visits GROUP BY 1",
    "SELECT count(*) FILTER (WHERE ({}) IS NULL) FROM visits",
)


@cases(("relation", "form"), list(product(RELATIONS, FORMS)), quick=3)
def test_a_relation_that_is_no_table_is_refused(unchanged: Any, relation: str, form: str) -> None:
    refused(unchanged, private(form.format(relation)))


@cases(("value", "place"), list(product(VALUES, PLACES)), quick=19)
def test_a_value_that_is_not_of_the_row_is_refused(unchanged: Any, value: str, place: str) -> None:
    refused(unchanged, private(place.format(value)))


# DuckDB's parser makes something else of these, or refuses the call.
PARSED = {"grouping", "grouping_id", "if", "ifnull"}
OF_NO_ANSWER = sorted(filter(str.isidentifier, set(listed(not BEFORE_2_0)) - called_in("post") - PARSED))


@cases("name", OF_NO_ANSWER, quick=9)
def test_what_the_list_does_not_allow_over_released_rows_is_refused(unchanged: Any, name: str) -> None:
    with pytest.raises(
        duckdb.Error,
        match=r"DPSQL-P(101|019)\] (sql calls|DuckDB has no function)|DPSQL-P106\] sql: an aggregate stands within",
    ):
        unchanged.execute(private(f"SELECT {name}(count(*)) FROM visits")).fetchall()


def test_a_function_of_the_caller_is_not_called_over_released_rows(con: Any) -> None:
    con.execute("CREATE MACRO mine(x) AS x + 1; CREATE MACRO set_before() AS getvariable('x')")
    # The list has its second name for another version of DuckDB, so here it is nobody's but the caller's.
    other = sorted(name for name in listed(BEFORE_2_0).keys() - listed(not BEFORE_2_0).keys() if name.isidentifier())[0]
    for name in ("registered", other):
        con.create_function(name, lambda x: x + 1, ["BIGINT"], "BIGINT")
    for call in ("mine(count(*))", "set_before() + count(*)", "registered(count(*))", f"{other}(count(*))"):
        with pytest.raises(
            duckdb.Error, match=r"DPSQL-P101\] sql calls '\w+', which is none of DuckDB's own functions"
        ):
            con.execute(private(f"SELECT {call} FROM visits")).fetchall()


# What would read more of people than one of them at a time, or DuckDB's own statements.
TEXTS = (
    "SELECT count(*) FROM visits; DROP TABLE visits",
    "SELECT count(*) FROM visits -- \n; FROM visits",
    "CREATE TABLE x AS FROM visits",
    "COPY visits TO 'x.csv'",
    "EXPLAIN ANALYZE SELECT count(*) FROM visits",
    "EXPLAIN SELECT count(*) FROM visits WHERE days > 10",
    "SET threads = 1",
    "ATTACH 'x.db'",
    "CALL dp_count('visits', epsilon := 1)",
    "WITH r AS (COPY visits TO 'x.csv') SELECT 1",
    "WITH r AS (INSERT INTO wards SELECT ward, days, note FROM visits RETURNING *) SELECT count(*) FROM r",
    "WITH r AS (DELETE FROM visits RETURNING *) SELECT count(*) FROM r",
    "SELECT unnest(list(note)) FROM visits",
    "SELECT note FROM visits GROUP BY note",
    "SELECT count(*) OVER () FROM visits",
    "SELECT max(note) FROM visits",
    "SELECT ward, last(note) FROM visits GROUP BY ward",
    "SELECT approx_top_k(note, 3) FROM visits",
    "SELECT reservoir_quantile(days, 0.5) FROM visits",
    "SELECT * FROM visits WHERE 1 = 0 OR true",
    "SELECT * FROM visits LIMIT 0 + 1",
    "SELECT * FROM visits LIMIT (SELECT count(*) FROM visits)",
    "SELECT * FROM (SELECT * FROM visits) WHERE days < 0",
    "SELECT count(*) FROM visits, LATERAL (SELECT count(*) AS c FROM visits b WHERE b.days = visits.days)",
    "SELECT count(*) FROM visits v WHERE (SELECT max(days) FROM visits) = v.days",
    "SELECT count(*) FROM visits v WHERE v.days >= ALL (SELECT days FROM visits)",
    "SELECT count(*) FROM visits v WHERE v.days = ANY (SELECT days FROM visits)",
    "SELECT ward, count(*) FROM visits GROUP BY ward ORDER BY (SELECT max(days) FROM visits)",
    "SELECT ward, count(*) FROM visits GROUP BY ward LIMIT (SELECT max(days) FROM visits)",
    "SELECT ward, count(*) FROM visits GROUP BY ward HAVING count(*) > (SELECT max(days) FROM visits)",
    "SELECT count(*) FROM visits SEMI JOIN visits b USING (days)",
    "SELECT count(*) FROM visits ANTI JOIN patients b ON visits.days = b.age",
    "SELECT date_part(ward, visit_date) AS p, count(*) FROM visits GROUP BY 1",
    "SELECT count(*) FROM visits WHERE regexp_matches('x', note)",
    "SELECT count(*) FROM visits WHERE note LIKE doctor ESCAPE ward",
    "SELECT count(*) FROM visits WHERE strftime(visit_date, note) = 'x'",
    "SELECT date_trunc(note, visit_date), count(*) FROM visits GROUP BY 1",
    "SELECT sum(x.days) FROM (SELECT unnest([v]) AS x FROM visits v)",
    "SELECT count(*) FROM (FROM visits PIVOT (count(*) FOR ward IN ('A')))",
    "SELECT count(*) FROM (UNPIVOT visits ON days, id)",
    "SELECT count(*) FROM visits AT (VERSION => 1)",
    "",
    ";",
    "SELECT '",
    "SELECT \u202e count(*) FROM visits",
)


@cases("text", TEXTS, ids=lambda text: repr(text[:40]), quick=32)
def test_a_text_that_asks_more_is_refused(unchanged: Any, text: str) -> None:
    refused(unchanged, private(text))


def test_a_text_with_the_character_0_is_not_answered(unchanged: Any) -> None:
    """DuckDB 1.5 ends the statement there, 2.0 hands the text over."""
    with pytest.raises(duckdb.Error, match=r"Parser Error|DPSQL-P"):
        unchanged.execute(private("\x00"))


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_parentheses_without_end_are_refused(unchanged: Any, count: int) -> None:
    """Around an expression alone: DuckDB's own parser takes a minute for 10,000 of them behind FROM."""
    refused(unchanged, private(f"SELECT {'(' * count}1{')' * count}, count(*) FROM visits"))


def test_parentheses_around_a_table_are_read_as_duckdb_reads_them(unchanged: Any) -> None:
    refused(unchanged, private(f"SELECT count(*) FROM {'(' * 100}visits{')' * 100}"))


@cases(
    "text",
    [
        f"SELECT {' + '.join(['1'] * 900)} FROM visits",
        f"SELECT {'NOT ' * 5000} true, count(*) FROM visits",
        f"SELECT sum({' -' * 4000} days) FROM visits",
        " UNION ALL ".join(["SELECT count(*) FROM visits"] * 3000),
        f"SELECT count(*) FROM visits WHERE days IN ({', '.join(map(str, range(11000)))})",
        f"SELECT {', '.join(f'count(*) AS c{place}' for place in range(9000))} FROM visits",
        f"SELECT {'CASE WHEN true THEN ' * 300}1{' END' * 300} FROM visits",
    ],
    ids=["terms", "not", "minus", "unions", "list", "columns", "cases"],
    quick=1,
)
def test_what_is_too_deep_or_too_long_is_refused(unchanged: Any, text: str) -> None:
    refused(unchanged, private(text))


# Queries that use many functions of ours, and are the same whatever the caller's are called.
HONEST = (
    "SELECT ward, count(*) AS n, avg(days) AS mean FROM visits WHERE days >= 3 GROUP BY ward",
    "SELECT date_trunc('month', visit_date) AS m, count(*) FROM visits WHERE visit_date >= DATE '2025-01-01' AND "
    "visit_date < DATE '2025-04-01' GROUP BY 1",
    "SELECT sum(days), stddev(days) FROM visits WHERE lower(doctor) LIKE 'a%' OR length(note) > 3",
    "SELECT count(DISTINCT patient) FROM visits WHERE outcome = 'dead'",
    "SELECT sex, avg(result) FROM labs l JOIN visits v ON l.visit = v.id JOIN patients p ON p.id = v.patient GROUP BY sex",
    "SELECT avg(n) FROM (SELECT patient, count(*) AS n, sum(days) AS s FROM visits GROUP BY patient) WHERE n + s > 2",
)


def defined(con: Any, but: str = "") -> int:
    """Put a macro in the place of every function, but of those that a text names; return their number."""
    names = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro') "
        "AND regexp_full_match(function_name, '[a-z_0-9]+') AND NOT starts_with(function_name, 'dp') ORDER BY 1"
    ).fetchall()
    used = {*re.findall(r"\w+", but.lower()), *(["count_star"] if "count(*)" in but else [])}
    made = 0
    for (name,) in names:
        if name in used:
            continue
        forms = ", ".join(f"({', '.join('abcd'[:count])}) AS 42" for count in range(5))
        try:
            con.execute(f'CREATE MACRO "{name}"{forms.replace("(), ", "(), ", 1)}; CREATE TEMP MACRO "{name}"{forms}')
            made += 1
        except duckdb.Error:
            continue
    for name in ("+", "-", "*", "/", "=", ">", "%", "~~", "||"):
        if name not in but:
            try:
                con.execute(f'CREATE TEMP MACRO "{name}"(a, b) AS 42')
                made += 1
            except duckdb.Error:
                continue
    return made


@pytest.mark.long
@cases("sql", HONEST)
def test_macros_of_the_caller_change_nothing(con: Any, sql: str) -> None:
    clean = con.execute(private(sql)).fetchall()
    assert defined(con, sql) > 300
    assert differences(con.execute(private(sql, "fresh := true")).fetchall(), clean) == []


@pytest.mark.long
@cases("sql", HONEST)
def test_a_macro_of_a_name_in_the_query_is_refused_or_not_used(con: Any, sql: str) -> None:
    clean = con.execute(private(sql)).fetchall()
    assert defined(con) > 300
    try:
        answered = con.execute(private(sql, "fresh := true")).fetchall()
    except duckdb.Error as error:
        assert SECRET not in str(error)
        return
    assert differences(answered, clean) == []


NAMED = "SELECT w.building, count(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY w.building"


@pytest.mark.long
@pytest.mark.parametrize(
    "before",
    [
        "WITH visits AS (SELECT 1 AS ward, 2 AS patient) ",
        "WITH wards AS (SELECT 'A' AS ward, note AS building FROM visits) ",
        "WITH visits AS (SELECT * FROM visits), wards AS (SELECT * FROM wards) ",
        "WITH __dp AS (SELECT 1), __dp_0 AS (SELECT 1 AS n) ",
    ],
)
def test_ctes_of_the_caller_are_not_the_tables(con: Any, before: str) -> None:
    clean = con.execute(private(NAMED)).fetchall()
    assert differences(con.execute(before + private(NAMED, "fresh := true")).fetchall(), clean) == []


@pytest.mark.long
def test_frames_of_the_caller_are_not_the_tables(con: Any) -> None:
    clean = con.execute(private(NAMED)).fetchall()
    visits = wards = __dp_0 = pa.table({"ward": ["A"], "patient": [1], "building": [SECRET]})
    assert differences(con.execute(private(NAMED, "fresh := true")).fetchall(), clean) == []
    con.register("__dp", visits)
    con.execute("CREATE TEMP TABLE __dp_0 AS SELECT 1 AS n")
    assert differences(con.execute(private(NAMED, "fresh := true")).fetchall(), clean) == []
    assert (wards, __dp_0) == (visits, visits)


@pytest.mark.long
def test_a_temporary_table_hides_a_table_or_is_not_read(con: Any) -> None:
    """DuckDB finds the temporary one first. It has no budget, so it is charged to its own name, or refused."""
    before = con.execute("SELECT epsilon_spent FROM dp_budget() WHERE dataset = 'hospital'").fetchall()
    con.execute("CREATE TEMP TABLE visits AS SELECT 'A' AS ward, 1 AS patient, 1 AS days")
    with pytest.raises(duckdb.Error) as raised:
        con.execute(private("SELECT count(*) FROM visits")).fetchall()
    assert CODE.search(str(raised.value))
    assert con.execute("SELECT epsilon_spent FROM dp_budget() WHERE dataset = 'hospital'").fetchall() == before


@pytest.mark.long
def test_a_search_path_of_the_caller_changes_nothing(con: Any) -> None:
    clean = con.execute(private(NAMED)).fetchall()
    con.execute("CREATE SCHEMA other; CREATE TABLE other.x AS SELECT 1 AS y")
    con.execute(
        "CREATE MACRO other.encode(x) AS 42; CREATE MACRO other.unnest(x) AS 42; SET search_path = 'other,main'"
    )
    assert differences(con.execute(private(NAMED, "fresh := true")).fetchall(), clean) == []


@cases(
    "after",
    ["DROP TABLE visits", "CREATE OR REPLACE TABLE visits AS SELECT 1 AS ward", "DROP TABLE wards"],
    quick=1,
)
def test_a_table_that_goes_between_preparing_and_running(con: Any, after: str) -> None:
    con.execute(f"PREPARE asked AS {private(NAMED)}")
    before = con.execute("FROM dp_budget()").fetchall()
    con.execute(after)
    with pytest.raises(duckdb.Error) as raised:
        con.execute("EXECUTE asked").fetchall()
    assert SECRET not in str(raised.value)
    assert con.execute("FROM dp_budget()").fetchall() == before


@pytest.mark.long
@pytest.mark.parametrize(
    "value",
    [
        "CAST(note AS INTEGER)",
        "CAST(doctor AS DATE)",
        "CAST(doctor AS TIME)",
        "1 // (days - days)",
        "9223372036854775807 + days",
    ],
)
def test_no_row_stops_a_query_or_is_told(con: Any, value: str) -> None:
    for sql in (
        f"SELECT count(*) FROM visits WHERE {value} IS NOT NULL",
        f"SELECT ({value} IS NULL) AS k, count(*) FROM visits GROUP BY 1",
        f"SELECT count({value}) FROM visits",
        f"SELECT count(*) FILTER (WHERE {value} IS NULL) FROM visits",
        f"SELECT count(c) FROM (SELECT patient, max({value}) AS c FROM visits GROUP BY patient)",
    ):
        assert con.execute(private(sql)).fetchall()


@pytest.mark.long
def test_values_that_are_asked_for_are_bound_and_not_pasted(con: Any) -> None:
    sql = "SELECT count(*) FROM visits WHERE note = 'x'' OR ''1'' = ''1'"
    assert (
        con.execute("FROM dp_query($1, epsilon := 1e8)", [sql]).fetchall()
        == con.execute(f"FROM dp_query({literal(sql)}, epsilon := 1e8)").fetchall()
    )
