"""What a source's text may name: every function, macro, type and relation of it is known, or the source is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from support import BEFORE_2_0
from support.cases import cases
from support.sessions import ledger_of

AVERAGE = "epsilon := 0.01, lower := 0, upper := 1"
QUANTILE = "epsilon := 0.01, lower := 0, upper := 1, quantiles := [0.5], dataset := 'patients'"


def stage(path: Path) -> duckdb.DuckDBPyConnection:
    con = dpsql.connect(path / "z.duckdb")
    con.execute(
        "CREATE TABLE patients AS SELECT i AS id, (i % 10) / 10 AS a, 'n' || i AS name, i % 3 AS zip FROM range(60) AS r(i)"
    )
    con.execute("CREATE TABLE visits AS SELECT id % 20 AS pid, a, id AS b FROM patients")
    con.execute("CREATE TABLE airports AS SELECT i AS code, 0.5 AS a FROM range(5) AS r(i)")
    con.execute("CREATE TYPE names AS ENUM (SELECT name FROM patients); CREATE TYPE money AS DECIMAL(18, 2)")
    con.execute("CREATE TABLE ranked (id BIGINT, a DOUBLE, n names)")
    con.execute("SET VARIABLE ages = (SELECT list(a) FROM patients); CREATE SEQUENCE counter; CREATE SCHEMA s")
    con.execute(f"COPY (SELECT i AS zip, i / 4 AS income FROM range(3) AS r(i)) TO '{path}/zip.parquet'")
    con.execute("SELECT dp_protect('patients', epsilon := 1000), dp_protect('ranked', epsilon := 1000)")
    con.execute("SELECT dp_protect('visits', epsilon := 1000, privacy_unit := 'pid', max_rows_per_unit := 3)")
    con.execute("SELECT dp_public('airports')")
    return con


@pytest.fixture(scope="module")
def z(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    con = stage(tmp_path_factory.mktemp("closure"))
    yield con
    con.close()


def spent(con: Any) -> list[tuple[str, int]]:
    return [(row.dataset, row.releases) for row in ledger_of(con).budgets()]


def refused(con: Any, statement: str, code: str = "") -> str:
    before = spent(con)
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}") as caught:
        con.execute(statement).fetchall()
    assert spent(con) == before
    return str(caught.value)


def answered(con: Any, statement: str) -> None:
    assert con.execute(statement).fetchall()


# An expression that no source may hold, and the code of its refusal.
EXPRESSIONS = {
    "a variable": ("getvariable('ages')[1]", "S041"),
    "a plan's text": ("length(json_serialize_plan('FROM patients WHERE a > 0.9', optimize := true)::VARCHAR)", "S041"),
    "a setting": ("length(current_setting('threads')::VARCHAR)", "S041"),
    "statistics": ("length(stats(0.5))", "S041"),
    "an enum's values": ("len(enum_range(NULL::names))", "S04[12]"),
    "an enum's last value": ("length(enum_last(NULL::names)::VARCHAR)", "S04[12]"),
    "an enum's type": ("length(typeof(NULL::names))", "S042"),
    "a cast to an enum": ("(TRY_CAST('zz' AS names) IS NULL)::INT", "S042"),
    "an enum in a type": ("(TRY_CAST(['zz'] AS names[]) IS NULL)::INT", "S042"),
    "an enum in JSON": ("""(TRY(from_json('"zz"', '"names"')) IS NULL)::INT""", "S042"),
    "a sequence": ("nextval('counter')", "S041"),
    "a random number": ("random()", "S041"),
    "the catalog": ("(SELECT count(*) FROM duckdb_tables())", "S0(14|41)"),
    "a text that is run": ("(SELECT count(*) FROM query('FROM ' || 'patients'))", ""),
}
# Places where an expression may stand: what makes the place, and the call.
CALL = f"FROM dp_avg('held', 'a', {AVERAGE})"
PLACES = {
    "a view": (["CREATE OR REPLACE VIEW held AS SELECT id, {} AS a FROM patients"], CALL),
    "a public view": (["CREATE OR REPLACE VIEW held AS SELECT {} AS a FROM airports"], CALL),
    "a scalar macro": (
        ["CREATE OR REPLACE MACRO m(x) AS x + {}", "CREATE OR REPLACE VIEW held AS SELECT id, m(0) AS a FROM patients"],
        CALL,
    ),
    "a macro in a macro": (
        [
            "CREATE OR REPLACE MACRO s.inner_one() AS {}",
            "CREATE OR REPLACE MACRO m(x) AS x + s.inner_one()",
            "CREATE OR REPLACE VIEW held AS SELECT id, m(0) AS a FROM patients",
        ],
        CALL,
    ),
    "a macro of a connection": (
        [
            "CREATE OR REPLACE TEMP MACRO t(x) AS x + {}",
            "CREATE OR REPLACE TEMP VIEW held AS SELECT id, t(0) AS a FROM patients",
        ],
        CALL,
    ),
    "a macro in the place of a function": (
        [
            "CREATE OR REPLACE TEMP MACRO round(x, d) AS x + {}",
            "CREATE OR REPLACE TEMP VIEW held AS SELECT round(a, 2) AS a FROM patients",
        ],
        CALL,
    ),
    "a table macro": (
        [
            "CREATE OR REPLACE MACRO tm(x) AS TABLE SELECT id, {} AS a FROM patients",
            "CREATE OR REPLACE VIEW held AS FROM tm(0)",
        ],
        CALL,
    ),
    "a view of a view": (
        [
            "CREATE OR REPLACE VIEW below AS SELECT id, {} AS a FROM patients",
            "CREATE OR REPLACE VIEW held AS FROM below",
        ],
        CALL,
    ),
    "a filter": (["CREATE OR REPLACE VIEW held AS SELECT id, a FROM patients WHERE a < {}"], CALL),
    "a limit of a public table": (
        ["CREATE OR REPLACE VIEW held AS SELECT id, p.a FROM patients p WHERE id IN (SELECT code + {} FROM airports)"],
        CALL,
    ),
    "an aggregate form": ([], f"SELECT dp_quantile(a + {{}}, {QUANTILE}) FROM patients"),
    "an aggregate form's filter": ([], f"SELECT dp_quantile(a, {QUANTILE}) FROM patients WHERE a < {{}}"),
    "a macro in an aggregate form": (
        ["CREATE OR REPLACE MACRO m(x) AS x + {}"],
        f"SELECT dp_quantile(m(a), {QUANTILE}) FROM patients",
    ),
    "a query around it": (
        [],
        f"WITH q AS (SELECT a + {{}} AS a FROM patients) SELECT dp_quantile(a, {QUANTILE}) FROM q",
    ),
}


@pytest.fixture
def cleared(z: Any) -> Iterator[Any]:
    yield z
    for kind, name in (
        ("VIEW", "temp.held"),
        ("VIEW", "main.held"),
        ("VIEW", "below"),
        ("MACRO", "temp.round"),
        ("MACRO", "m"),
    ):
        z.execute(f"DROP {kind} IF EXISTS {name}")


def pairs(expressions: Iterable[str], places: Iterable[str]) -> list[Any]:
    """Every expression in every place: by default each of both some times, the others where tests may be long."""
    every = itertools.product(enumerate(expressions), enumerate(places))
    return [
        pytest.param(what, place, marks=[] if (i + j) % 7 == 0 else pytest.mark.long) for (i, what), (j, place) in every
    ]


@cases(("what", "place"), pairs(EXPRESSIONS, PLACES), quick=2, alone=True)
def test_an_expression_that_is_not_allowed(cleared: Any, what: str, place: str) -> None:
    expression, code = EXPRESSIONS[what]
    makes, call = PLACES[place]
    try:
        for statement in makes:
            cleared.execute(statement.format(expression))
    except duckdb.Error:
        pytest.skip("DuckDB does not make it")
    refused(cleared, call.format(expression), code)


# What is allowed everywhere: expressions of the row, literals, the clock.
ALLOWED = ("1", "round(0.5, 1)", "len([1, 2])", "extract(year FROM current_date)", "{'k': 1}.k", "'1'::INT", "1::money")
KEPT = [place for place in PLACES if place != "a macro in the place of a function"]


@cases(("expression", "place"), pairs(ALLOWED, KEPT), quick=3, alone=True)
def test_an_expression_that_is_allowed(cleared: Any, expression: str, place: str) -> None:
    makes, call = PLACES[place]
    for statement in makes:
        cleared.execute(statement.replace("{}", expression))
    answered(cleared, call.replace("{}", expression).replace("{{", "{").replace("}}", "}"))


def test_a_macro_made_after_a_call(cleared: Any) -> None:
    """A plan whose texts were read is known again; another plan is read anew."""
    cleared.execute("CREATE OR REPLACE TEMP VIEW held AS SELECT round(a, 2) AS a FROM patients")
    answered(cleared, CALL)
    answered(cleared, CALL)
    cleared.execute("CREATE OR REPLACE TEMP MACRO round(x, d) AS x + getvariable('ages')[1]")
    refused(cleared, CALL, "S041")


def test_a_default_that_is_left_out(cleared: Any) -> None:
    cleared.execute("CREATE OR REPLACE MACRO m(x, y := getvariable('ages')[1]) AS x + y")
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT m(a) AS a FROM patients")
    assert "Give every argument: x, y" in refused(cleared, CALL, "S044")
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT m(a, 1) AS a FROM patients")
    answered(cleared, CALL)


def test_a_pivot_over_a_type(cleared: Any) -> None:
    cleared.execute(
        "CREATE OR REPLACE VIEW held AS SELECT 0.5 AS a FROM (PIVOT airports ON code::VARCHAR IN names USING count(*))"
    )
    refused(cleared, CALL, "S042")


def test_a_column_of_an_enum_is_read_as_it_is(cleared: Any) -> None:
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT a, n::VARCHAR = 'n1' AS chosen FROM ranked")
    answered(cleared, CALL)
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT a, length(typeof(n)) AS chosen FROM ranked")
    refused(cleared, CALL, "S041")


def test_a_function_that_is_registered(cleared: Any) -> None:
    """Its name does not matter."""
    cleared.create_function("dpsql_mine", lambda x: x, ["DOUBLE"], "DOUBLE")
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT dpsql_mine(a) AS a FROM patients")
    refused(cleared, CALL, "S041")
    refused(cleared, f"SELECT dp_quantile(dpsql_mine(a), {QUANTILE}) FROM patients", "S041")


def test_an_aggregate_form_that_somebody_wrote(cleared: Any) -> None:
    [(body,)] = cleared.execute(
        "SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'dp_quantile' AND function_type = 'macro' "
        "AND database_name = 'temp'"
    ).fetchall()
    named = "y, quantiles, epsilon, lower, upper, cells, interval_share, bounds_share, neighbours, dataset, release"
    other = body.replace("y := y", "y := y + getvariable('ages')[1]")
    assert other != body
    cleared.execute(f"CREATE SCHEMA IF NOT EXISTS mine; CREATE OR REPLACE MACRO mine.dp_quantile({named}) AS {other}")
    call = "SELECT mine.dp_quantile(a, [0.5], 0.01, 0, 1, NULL, NULL, NULL, NULL, 'patients', false) FROM patients"
    refused(cleared, call, "S04")
    cleared.execute("DROP SCHEMA mine CASCADE")


# Files beside protected tables.


def file_of(con: Any) -> str:
    [(path,)] = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = 'z'").fetchall()
    return str(Path(path).parent / "zip.parquet")


@cases(
    "text",
    [
        "SELECT p.id, income AS a FROM patients p JOIN '{file}' z USING (zip)",
        "SELECT row_number() OVER () AS pid, a FROM visits, '{file}'",
        "SELECT p.id, income AS a FROM (FROM query('FROM patients')) p JOIN '{file}' z USING (zip)",
        "SELECT p.id, income AS a FROM tabled('patients') p JOIN '{file}' z USING (zip)",
        "SELECT p.id, income AS a FROM (FROM query('FR' || 'OM patients')) p JOIN '{file}' z USING (zip)",
        "SELECT p.id, income AS a FROM over_file p, '{file}'",
        "WITH q AS (FROM patients) SELECT q.id, income AS a FROM q JOIN read_parquet('{file}') z USING (zip)",
    ],
    quick=1,
    alone=True,
)
def test_a_file_beside_a_protected_table(cleared: Any, text: str) -> None:
    file = file_of(cleared)
    cleared.execute("CREATE OR REPLACE MACRO tabled(t) AS TABLE FROM query_table(t)")
    cleared.execute(f"CREATE OR REPLACE VIEW over_file AS SELECT id, patients.zip FROM patients, '{file}'")
    cleared.execute(f"CREATE OR REPLACE VIEW held AS {text.format(file=file)}")
    for claim in ("", ", dataset := 'patients'", ", dataset := 'visits'"):
        refused(cleared, f"FROM dp_avg('held', 'a', {AVERAGE}{claim})", "S0")


def test_what_the_refusal_says_works(cleared: Any) -> None:
    file = file_of(cleared)
    text = "SELECT p.id, income AS a FROM patients p LEFT JOIN {} z ON p.zip = z.zip"
    cleared.execute(f"CREATE OR REPLACE VIEW held AS {text.format(repr(file))}")
    said = refused(cleared, f"FROM dp_avg('held', 'a', {AVERAGE}, dataset := 'patients')", "S043")
    first, rest = said.split("Make a table of that: ")[1].split("; SELECT dp_public", 1)
    cleared.execute(first)
    cleared.execute("SELECT dp_public" + rest.split("; and name")[0])
    looked_up = "(SELECT DISTINCT ON (zip) * FROM zip ORDER BY ALL)"
    cleared.execute(f"CREATE OR REPLACE VIEW held AS {text.format(looked_up)}")
    answered(cleared, f"FROM dp_avg('held', 'a', {AVERAGE})")


def test_an_aggregate_form_over_a_file_beside_a_protected_table(cleared: Any) -> None:
    file = file_of(cleared)
    refused(cleared, f"SELECT dp_quantile(a, {QUANTILE}) FROM patients p JOIN '{file}' z USING (zip)", "S043")
    answered(cleared, f"SELECT dp_quantile(income, {QUANTILE}) FROM '{file}'")


def test_a_file_beside_an_undeclared_table(cleared: Any) -> None:
    cleared.execute("CREATE OR REPLACE TABLE copied AS FROM patients")
    cleared.execute(f"CREATE OR REPLACE VIEW held AS SELECT c.a FROM copied c, '{file_of(cleared)}'")
    refused(cleared, f"FROM dp_avg('held', 'a', {AVERAGE}, dataset := 'patients')", "B006")


@pytest.mark.long
@pytest.mark.parametrize("declared", ["dp_protect('people', epsilon := 9)", "dp_public('people', force := true)"])
def test_a_declared_view_over_files_that_is_replaced(tmp_path: Path, declared: str) -> None:
    con = stage(tmp_path)
    con.execute(f"CREATE VIEW inside AS FROM '{tmp_path}/zip.parquet'")
    con.execute("CREATE VIEW people AS SELECT income AS a FROM inside; CREATE VIEW over AS SELECT a FROM people")
    con.execute(f"SELECT {declared}")
    call = f"FROM dp_avg('main.people', 'a', {AVERAGE})"
    if "protect" in declared:
        answered(con, call)
    con.execute(f"CREATE OR REPLACE VIEW inside AS SELECT z.* FROM '{tmp_path}/zip.parquet' z, range(50)")
    refused(con, call, "B007|.*I006")  # I006 where macros were not asked for, because the text called nothing
    refused(con, call, "B007")
    con.execute(f"CREATE OR REPLACE VIEW inside AS FROM '{tmp_path}/zip.parquet'")
    con.execute(f"CREATE OR REPLACE VIEW people AS SELECT income AS a FROM '{tmp_path}/zip.parquet', range(50)")
    refused(con, call, "B007")
    con.execute("CREATE OR REPLACE VIEW people AS SELECT a FROM patients")
    refused(con, call, "B007")
    con.close()


@pytest.mark.long
def test_another_database_under_the_alias(tmp_path: Path) -> None:
    """What is declared of a database without a mark goes with it."""
    con = stage(tmp_path)
    for name, rows in (("one", "airports"), ("two", "patients")):
        con.execute(f"ATTACH '{tmp_path}/{name}.duckdb' AS {name}; CREATE TABLE {name}.t AS FROM {rows}; DETACH {name}")
    con.execute(f"ATTACH '{tmp_path}/one.duckdb' AS other (READ_ONLY)")
    con.execute("SELECT dp_public('other.main.t')")
    con.execute("CREATE VIEW held AS SELECT p.id, p.a FROM patients p WHERE p.a NOT IN (SELECT a FROM other.t)")
    answered(con, f"FROM dp_avg('held', 'a', {AVERAGE})")
    con.execute(f"DETACH other; ATTACH '{tmp_path}/two.duckdb' AS other (READ_ONLY)")
    refused(con, f"FROM dp_avg('held', 'a', {AVERAGE})", "B006")
    con.execute(
        "ATTACH ':memory:' AS held_here; CREATE TABLE held_here.t AS FROM airports; SELECT dp_public('held_here.main.t')"
    )
    con.execute("DETACH held_here; ATTACH ':memory:' AS held_here; CREATE TABLE held_here.t AS SELECT a FROM patients")
    con.execute("CREATE OR REPLACE VIEW held AS SELECT id, a FROM patients WHERE a NOT IN (SELECT a FROM held_here.t)")
    refused(con, f"FROM dp_avg('held', 'a', {AVERAGE})", "B006")
    con.close()


def test_a_relation_that_python_holds(z: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is not to be had, and a variable may have been folded into its plan."""
    monkeypatch.setitem(globals(), "related", z.sql("SELECT id, getvariable('ages')[1] AS a FROM patients"))
    refused(z, f"FROM dp_avg('temp.main.related', 'a', {AVERAGE})", "S0")


def test_sums_of_doubles_by_the_unit(cleared: Any) -> None:
    """The last bit follows from the order in which rows are added, and what the refusal says works."""
    cleared.execute("CREATE OR REPLACE VIEW held AS SELECT pid, sum(a) AS a FROM visits GROUP BY pid")
    assert "sum(CAST(x AS DECIMAL(18, 3)))" in refused(cleared, CALL, "S045")
    cleared.execute(
        "CREATE OR REPLACE VIEW held AS SELECT pid, sum(CAST(a AS DECIMAL(18, 3))) AS a FROM visits GROUP BY pid"
    )
    answered(cleared, CALL)


def test_a_call_in_a_recursive_query_is_charged_each_time(cleared: Any) -> None:
    """Every iteration is a release, and draws anew."""
    before = dict(spent(cleared))["patients"]
    count = "SELECT value FROM dp_count('patients', epsilon := 0.01)"
    query = (
        f"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4 AND ({count}) IS NOT NULL) FROM r"
    )
    assert len(cleared.execute(query).fetchall()) == 4
    assert dict(spent(cleared))["patients"] == before + 4


def test_a_correlated_call(cleared: Any) -> None:
    """DuckDB 1.5 asks for it once, whatever the outer rows are, and 2.0 once for each, which is refused."""
    before = dict(spent(cleared))["patients"]
    query = "SELECT (SELECT value + o.i FROM dp_count('patients', epsilon := 0.01)) FROM range(4) AS o(i)"
    if BEFORE_2_0:
        found = [value for (value,) in cleared.execute(query).fetchall()]
        assert [value - found[0] for value in found] == [0, 1, 2, 3]
        assert dict(spent(cleared))["patients"] == before + 1
    else:
        refused(cleared, query, "P019")
