"""Every spelling of protected rows is charged to their budget, or refused: plain, prepared, through Context, from cursors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.ledger.ledger import Ledger
from support.sessions import ledger_of

FIT = "target := 'y', features := ['a'], k := 1, epsilon := 0.01, lower := 0, upper := 1, target_lower := 0, target_upper := 1"
QUANTILE = "epsilon := 0.01, lower := 0, upper := 1, quantiles := [0.5]"
P, V, C, F = "patients", "visits", "s.cohort", "from_parquet"

VIEWS = {
    "f": "SELECT * FROM patients",
    "g": "SELECT id, a, y FROM f WHERE a > 0.2",
    "with_cte": "WITH q AS (FROM patients) SELECT * FROM q WHERE a > 0.1",
    "with_kept_cte": "WITH q AS MATERIALIZED (FROM patients) SELECT * FROM q",
    "ordered": "SELECT * FROM patients ORDER BY a",
    "by_query": "FROM query('FROM patients')",
    "by_query_table": "FROM query_table('patients')",
    "by_macro": "FROM tabled('patients')",
    "looked_up": "SELECT p.*, b FROM patients p LEFT JOIN (SELECT code, max(b) AS b FROM airports GROUP BY code) ON id = code",
    "once": "SELECT p.*, b FROM patients p LEFT JOIN (SELECT DISTINCT ON (code) * FROM airports) ON p.id = code",
    "chosen": "SELECT * FROM patients WHERE id IN (SELECT code FROM airports)",
    "not_chosen": "SELECT * FROM patients WHERE id NOT IN (SELECT code FROM airports)",
    "semi_joined": "SELECT * FROM patients SEMI JOIN airports ON id = code",
    "above": "SELECT * FROM patients WHERE a > (SELECT min(b) - 1 FROM airports)",
    "hashed": "SELECT * FROM patients WHERE hash(id) % 2 = 0",
    "computed": "SELECT id, round(a, 3) AS a, y, b LIKE '%x' AS l, date_diff('year', DATE '2000-01-01', current_date) AS d "
    "FROM (SELECT *, id::VARCHAR AS b FROM patients) WHERE a BETWEEN 0 AND 1 AND y IN (0, 1 / 7, 2 / 7) OR NOT a = y",
    "cases": "SELECT * EXCLUDE (id), CASE WHEN a > 0.5 THEN 1 ELSE 0 END AS c FROM patients",
    "monthly": "SELECT a, y FROM patients UNION ALL SELECT a, y FROM s.cohort",
    "monthly_by_name": "SELECT a, y FROM patients UNION ALL BY NAME SELECT y, a FROM s.cohort",
    "u_union": "SELECT a, y FROM patients UNION ALL SELECT b, y FROM airports",
    "u_again": "SELECT a, y FROM patients UNION ALL SELECT a, y FROM patients",
    "u_halves": "SELECT * FROM patients WHERE a > 0.5 UNION ALL SELECT * FROM patients WHERE a <= 0.5",
    "u_scalar": "SELECT * FROM airports2 WHERE a > (SELECT min(a) FROM patients)",
    "u_in": "SELECT * FROM airports2 WHERE code IN (SELECT id FROM patients)",
    "u_times": "SELECT patients.* FROM patients, range(50)",
    "u_joined": "SELECT p.* FROM patients p JOIN airports ON id = code",
    "u_window": "SELECT *, avg(a) OVER () AS m FROM patients",
    "u_group": "SELECT a, avg(y) AS y FROM patients GROUP BY a",
    "u_distinct": "SELECT DISTINCT a, y FROM patients",
    "u_limit": "SELECT * FROM patients LIMIT 10",
    "u_sample": "SELECT * FROM patients USING SAMPLE 10",
    "u_unnest": "SELECT *, unnest([1, 2]) AS n FROM patients",
    "u_rowid": "SELECT rowid, * FROM patients",
    "u_recursive": "WITH RECURSIVE r(n, a, y) AS (SELECT 1, a, y FROM patients UNION ALL SELECT n + 1, a, y FROM r WHERE n < 3) FROM r",
    "u_hidden_join": "WITH q AS MATERIALIZED (FROM patients) SELECT k.a, l.y FROM q k JOIN q l ON k.a = l.a",
    "u_positional": "SELECT a, b AS y FROM patients POSITIONAL JOIN airports",
    "u_next": "SELECT * FROM patients WHERE nextval('counter') <= 10",
    "u_variable": "SELECT patients.*, getvariable('secret') AS s FROM patients",
    "u_function": "SELECT id, remembered(a) AS a, y FROM patients",
    "u_stats": "SELECT patients.*, stats(a) AS s FROM patients",
    "u_generated": "SELECT 0.5 AS a, 0.5 AS y FROM range(10)",
    "v_same": "SELECT * FROM visits",
    "v_times": "SELECT visits.* FROM visits, range(50)",
    "v_dedup": "SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY pid ORDER BY a) = 1",
    "v_window": "SELECT *, avg(a) OVER (PARTITION BY pid) AS m FROM visits",
    "v_group": "SELECT pid, avg(a) AS a, max(y) AS y FROM visits GROUP BY pid",
    "v_distinct": "SELECT DISTINCT pid, a, y FROM visits",
    "v_lookup": "SELECT v.*, n FROM visits v JOIN (SELECT code, count(*) AS n FROM airports GROUP BY code) ON pid = code",
    "v_any_lookup": "SELECT v.*, b FROM visits v LEFT JOIN airports ON v.pid > code",
    "v_both": "SELECT v.pid, v.a, w.y FROM visits v JOIN visits w USING (pid)",
    "v_people": "SELECT v.*, p.age FROM visits v JOIN people p ON p.pid = v.pid",
    "v_renamed": "SELECT pid AS person, a, y FROM visits",
    "v_lost": "SELECT a, y FROM visits",
    "v_made_up": "SELECT row_number() OVER () AS pid, a, y FROM visits",
    "v_other": "SELECT age::BIGINT AS pid, pid AS x, a, y FROM visits JOIN (SELECT 1 AS age) ON true",
    "v_twice": "SELECT pid * 2 AS pid, a, y FROM visits",
    "v_collated": "SELECT pid::VARCHAR COLLATE nocase AS pid, a, y FROM visits",
    "v_self_join": "SELECT v.pid, v.a, w.y FROM visits v JOIN visits w ON v.a = w.a",
    "v_hidden": "WITH q AS MATERIALIZED (FROM visits) SELECT k.pid, l.a, k.y FROM q k JOIN q l ON k.a = l.a",
    "v_above": "SELECT * FROM visits WHERE a > (SELECT avg(a) FROM visits)",
    "v_population": "SELECT pid, a - avg(a) OVER () AS a, y FROM visits",
    "v_rollup": "SELECT pid, avg(a) AS a, max(y) AS y FROM visits GROUP BY ROLLUP (pid)",
    "v_cap": "SELECT * FROM visits LIMIT 10",
    "mixed": "SELECT patients.*, v.pid FROM patients JOIN visits v ON id = pid",
}
# What is charged: the budgets, or '' where the spelling is refused.
SPELLINGS: dict[str, Any] = {
    **dict.fromkeys(
        ("patients", "PATIENTS", '"patients"', "main.patients", "z.patients", "z.main.patients", "Z.Main.Patients"), P
    ),
    '"z"."main"."patients"': P,
    **dict.fromkeys(("f", "z.main.f", "F", "g", "with_cte", "with_kept_cte", "ordered"), P),
    **dict.fromkeys(("by_query", "by_query_table", "by_macro"), P),
    **dict.fromkeys(
        ("looked_up", "once", "chosen", "not_chosen", "semi_joined", "above", "hashed", "cases", "computed"), P
    ),
    **dict.fromkeys(("monthly", "monthly_by_name"), f"{P} {C}"),
    **dict.fromkeys((name for name in VIEWS if name.startswith("u_")), ""),
    **dict.fromkeys(("s.cohort", "z.s.cohort", "S.Cohort"), C),
    **dict.fromkeys(("visits", "main.visits", "v_same", "v_times", "v_dedup", "v_window", "v_group", "v_distinct"), V),
    **dict.fromkeys(("v_lookup", "v_any_lookup", "v_both"), V),
    "v_people": f"{V} people",
    **dict.fromkeys(("v_lost", "v_made_up", "v_other", "v_twice", "v_collated", "v_self_join", "v_hidden"), ""),
    "v_renamed": V,  # followed through the plan
    **dict.fromkeys(("v_above", "v_population", "v_rollup", "v_cap", "mixed"), ""),
    **dict.fromkeys(("main.from_parquet", "from_parquet", "From_Parquet"), F),
    **dict.fromkeys(("over_parquet", "main.over_parquet", "parquet_join", "main.parquet_join"), ""),
    **dict.fromkeys(("copied", "copied_temp", "attached.main.copied", "over_copy", "a_frame", "main.airports_x"), ""),
    **dict.fromkeys(("nothing", "no.such.table", "unprotected"), ""),
    "airports2": "airports2",
}


def stage(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a database with patients (a row each), visits and people (unit pid), s.cohort, and a view over Parquet."""
    con = dpsql.connect(path / "z.duckdb")
    con.execute("CREATE SCHEMA s; CREATE SEQUENCE counter; SET VARIABLE secret = 1")
    con.create_function("remembered", lambda x: x, ["DOUBLE"], "DOUBLE")
    con.execute("CREATE MACRO tabled(t) AS TABLE FROM query_table(t)")
    rows = "SELECT i AS id, (i % 10) / 10 AS a, (i % 7) / 7 AS y FROM range(70) AS r(i)"
    con.execute(f"CREATE TABLE patients AS {rows}; CREATE TABLE s.cohort AS {rows}; CREATE TABLE unprotected AS {rows}")
    con.execute(f"CREATE TABLE visits AS SELECT id % 20 AS pid, a, y FROM ({rows})")
    con.execute("CREATE TABLE people AS SELECT i AS pid, i AS age FROM range(20) AS r(i)")
    con.execute("CREATE TABLE airports AS SELECT i AS code, 0.5 AS b, 0.5 AS y FROM range(5) AS r(i)")
    con.execute("CREATE TABLE airports2 AS SELECT i AS code, 0.5 AS a, 0.5 AS y FROM range(5) AS r(i)")
    con.execute(f"COPY patients TO '{path}/p.parquet'")
    con.execute(f"CREATE VIEW from_parquet AS FROM '{path}/p.parquet'")
    con.execute(f"CREATE VIEW over_parquet AS FROM '{path}/p.parquet'")
    con.execute(f"CREATE VIEW parquet_join AS SELECT patients.* FROM patients JOIN '{path}/p.parquet' AS q USING (id)")
    con.execute("CREATE TABLE copied AS FROM patients; CREATE TEMP TABLE copied_temp AS FROM patients")
    con.execute(f"ATTACH '{path}/o.duckdb' AS attached; CREATE TABLE attached.copied AS FROM patients")
    con.execute("CREATE VIEW over_copy AS FROM copied")
    for name, text in VIEWS.items():
        con.execute(f"CREATE VIEW {name} AS {text}")
    for call in (
        "dp_protect('patients', epsilon := 1000)",
        "dp_protect('visits', epsilon := 1000, privacy_unit := 'pid', max_rows_per_unit := 3)",
        "dp_protect('people', epsilon := 1000, privacy_unit := 'pid', max_rows_per_unit := 1)",
        "dp_protect('s.cohort', epsilon := 1000)",
        "dp_protect('main.from_parquet', epsilon := 1000)",
        "dp_public('airports')",
        "dp_public('airports2')",
    ):
        con.execute(f"SELECT {call}")
    return con


@pytest.fixture(scope="module")
def z(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    con = stage(tmp_path_factory.mktemp("spellings"))
    yield con
    con.close()


def totals(con: Any) -> dict[str, int]:
    return {row.dataset: row.releases for row in ledger_of(con).budgets()}


def charged(con: Any, run: Any) -> str:
    """Return the budgets that a statement was charged to, '' where it was refused with one of our codes."""
    before = totals(con)
    try:
        run()
    except (duckdb.Error, dpsql.DpsqlError) as error:
        assert "DPSQL-" in str(error), str(error)
        assert totals(con) == before
        return ""
    after = totals(con)
    return " ".join(sorted(name for name in after if after[name] > before.get(name, 0)))


def expected(what: str) -> str:
    return " ".join(sorted(what.split()))


@pytest.mark.parametrize(("source", "what"), SPELLINGS.items())
def test_a_spelling(z: Any, source: str, what: str) -> None:
    assert charged(z, lambda: z.execute(f"FROM dp_sis('{source}', {FIT})").fetchall()) == expected(what)


@pytest.mark.parametrize(
    "source", ["patients", "z.main.f", "monthly", "u_times", "v_renamed", "copied", "v_both", "nothing"]
)
def test_prepared(z: Any, source: str) -> None:
    def run() -> None:
        z.execute(f"PREPARE p AS FROM dp_sis('{source}', {FIT})")
        try:
            z.execute("EXECUTE p").fetchall()
        finally:
            z.execute("DEALLOCATE p")

    assert charged(z, run) == expected(SPELLINGS[source])


@pytest.mark.parametrize("source", ["PATIENTS", "g", "monthly", "u_union", "v_lost", "v_window", "copied", "s.cohort"])
def test_through_a_context_and_a_cursor(z: Any, source: str) -> None:
    arguments: dict[str, Any] = {"target": "y", "features": ["a"], "k": 1, "epsilon": 0.01, "lower": 0, "upper": 1}
    arguments |= {"target_lower": 0, "target_upper": 1}
    context = dpsql.Context(z)
    assert charged(z, lambda: context.dp_sis(source, **arguments)) == expected(SPELLINGS[source])
    with z.cursor() as cursor:
        sql = f"FROM dpsql.dp_sis('{source}', {FIT})"
        assert charged(z, lambda: cursor.execute(sql).fetchall()) == expected(SPELLINGS[source])


def test_through_the_shell(tmp_path: Path) -> None:
    stage(tmp_path).close()
    amounts = {source: Fraction(10_000 + number, 1_000_000) for number, source in enumerate(SPELLINGS)}
    lines = [
        f"FROM dp_sis('{source}', {FIT.replace('0.01', str(float(amount)))});\n" for source, amount in amounts.items()
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "dpsql", "shell", "z.duckdb"],
        cwd=tmp_path,
        env=environment,
        input="".join(lines),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    refused = [source for source, what in SPELLINGS.items() if not what]
    assert done.returncode == 4
    assert done.stderr.count("DPSQL-") + done.stderr.count("Error: ") >= len(refused)
    charged: dict[Fraction, set[str]] = {}
    with closing(Ledger.open(tmp_path / "z.duckdb.dpsql-ledger")) as ledger:
        for entry in ledger.entries():
            if entry.kind == "release":
                charged.setdefault(Fraction(str(entry.epsilon)), set()).add(entry.dataset)
    for source, what in SPELLINGS.items():
        assert charged.get(amounts[source], set()) == set(what.split()), source


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"WITH f AS (FROM airports2) FROM dp_sis('f', {FIT})", P),  # never the WITH query
        (f"WITH airports2 AS (FROM patients) FROM dp_sis('airports2', {FIT})", "airports2"),
        (f"WITH q AS (FROM patients) FROM dp_sis('q', {FIT})", ""),
        (f"CREATE OR REPLACE TABLE made AS FROM dp_sis('patients', {FIT})", P),
        (f"SELECT * FROM (SELECT feature FROM dp_sis('g', {FIT}))", P),
        (f"FROM dp_sis('v_renamed', {FIT}, privacy_unit := 'person')", V),
        (f"FROM dp_sis('v_renamed', {FIT}, privacy_unit := 'a')", ""),
        (f"FROM dp_sis('patients', {FIT}, dataset := 'PATIENTS')", P),
        (f"FROM dp_sis('patients', {FIT}, dataset := 'patients')", P),
        (f"FROM dp_sis('f', {FIT}, dataset := 'patients')", P),
        (f"FROM dp_sis('patients', {FIT}, dataset := 'z.main.patients')", P),
        (f"FROM dp_sis('patients', {FIT}, dataset := 's.cohort')", ""),
        (f"FROM dp_sis('patients', {FIT}, dataset := 'airports')", ""),
        (f"FROM dp_sis('patients', {FIT}, dataset := 'other')", ""),
        (f"FROM dp_sis('copied', {FIT}, dataset := 'copied')", ""),
        (f"FROM dp_sis('copied', {FIT}, dataset := 'patients')", ""),
        (f"FROM dp_sis('main.over_parquet', {FIT}, dataset := 'patients')", P),
        (f"FROM dp_sis('main.from_parquet', {FIT}, dataset := 'patients')", f"{F} {P}"),
        (f"FROM dp_sis('main.over_parquet', {FIT}, dataset := 'other')", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM patients", P),
        (f"SELECT dp_quantile(a + 1, {QUANTILE}, dataset := 'patients') FROM f WHERE a > 0.1", P),
        (f"WITH q AS (FROM patients) SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM q", P),
        (
            f"CREATE OR REPLACE TABLE made AS SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') AS q FROM patients",
            P,
        ),
        (f"SELECT dp_quantile(b, {QUANTILE}, dataset := 'airports') FROM airports", "airports"),
        (f"SELECT dp_quantile(a, {QUANTILE}) FROM patients", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'airports') FROM patients", ""),
        (f"SELECT dp_quantile(b, {QUANTILE}, dataset := 'patients') FROM airports", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM patients, range(9)", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM copied", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM (FROM patients UNION ALL FROM s.cohort)", ""),
        (f"SELECT a, dp_quantile(y, {QUANTILE}, dataset := 'patients') FROM patients GROUP BY a", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'visits') FROM visits", ""),
        (f"SELECT dp_quantile(remembered(a), {QUANTILE}, dataset := 'patients') FROM patients", ""),
        (f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') FROM patients WHERE nextval('counter') < 9", ""),
        (f"SELECT dp_quantile(round(a, 2), {QUANTILE}, dataset := 'patients') FROM patients WHERE a IN (0, 0.5)", P),
        (f"EXPLAIN FROM dp_sis('patients', {FIT})", ""),
    ],
)
def test_a_statement(z: Any, statement: str, what: str) -> None:
    if statement.startswith("EXPLAIN"):
        before = totals(z)
        z.execute(statement).fetchall()
        assert totals(z) == before
        return
    assert charged(z, lambda: z.execute(statement).fetchall()) == expected(what)


def test_over_is_refused(z: Any) -> None:
    sql = f"SELECT dp_quantile(a, {QUANTILE}, dataset := 'patients') OVER () FROM patients"
    before = totals(z)
    with pytest.raises(duckdb.Error, match=r"DPSQL-S022|is not an aggregate function"):
        z.execute(sql).fetchall()
    assert totals(z) == before


def test_a_correlated_aggregate_is_refused(z: Any) -> None:
    inner = f"SELECT dp_quantile(p.a, {QUANTILE}, dataset := 'patients') FROM patients p WHERE p.id > o.code"
    before = totals(z)
    with pytest.raises(duckdb.Error, match="DPSQL-"):
        z.execute(f"SELECT ({inner}) FROM airports o").fetchall()
    assert totals(z) == before


@pytest.mark.parametrize(
    ("before", "source", "after", "what"),
    [
        ("USE s", "cohort", "USE z.main", C),
        ("SET search_path = 's,main'", "cohort", "RESET search_path", C),
        ("USE s", "patients", "USE z.main", ""),
        ("CREATE TEMP TABLE patients AS FROM copied", "patients", "DROP TABLE temp.patients", ""),
        ("CREATE TEMP VIEW airports AS FROM patients", "airports", "DROP VIEW temp.airports", P),
        ("BEGIN; CREATE VIEW late AS FROM patients", "late", "ROLLBACK", P),
        (
            "CREATE OR REPLACE VIEW g AS SELECT id, a, y FROM s.cohort",
            "g",
            f"CREATE OR REPLACE VIEW g AS {VIEWS['g']}",
            C,
        ),
        ("CREATE OR REPLACE TABLE patients AS FROM patients", "patients", "SELECT 1", P),
        ("ALTER TABLE patients RENAME TO moved", "moved", "ALTER TABLE moved RENAME TO patients", ""),
    ],
)
def test_where_a_name_leads(z: Any, before: str, source: str, after: str, what: str) -> None:
    z.execute(before)
    try:
        assert charged(z, lambda: z.execute(f"FROM dp_sis('{source}', {FIT})").fetchall()) == expected(what)
    finally:
        z.execute(after)


def test_a_python_variable_takes_no_name(z: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pa.table({"a": [0.5] * 9, "y": [0.5] * 9})
    for name in ("patients", "a_frame"):
        monkeypatch.setitem(globals(), name, frame)
    assert z.execute("SELECT count(*) FROM a_frame").fetchall() == [(9,)]
    assert charged(z, lambda: z.execute(f"FROM dp_sis('patients', {FIT})").fetchall()) == P
    assert charged(z, lambda: z.execute(f"FROM dp_sis('a_frame', {FIT})").fetchall()) == ""
    # It hides which table is meant where the plan does not tell (2.0), so that no plain name stands for that.
    monkeypatch.setitem(globals(), "from_parquet", frame)
    told = charged(z, lambda: z.execute(f"FROM dp_sis('from_parquet', {FIT})").fetchall())
    assert told == (F if duckdb.__version__.startswith("1.5") else "")
    z.register("shown", frame)
    try:
        assert charged(z, lambda: z.execute(f"FROM dp_sis('temp.main.shown', {FIT})").fetchall()) == ""
        claim = f"FROM dp_sis('temp.main.shown', {FIT}, dataset := 'patients')"
        assert charged(z, lambda: z.execute(claim).fetchall()) == P
    finally:
        z.unregister("shown")
    context = dpsql.Context(z)
    arguments: dict[str, Any] = {"target": "y", "features": ["a"], "k": 1, "epsilon": 0.01, "lower": 0, "upper": 1}
    arguments |= {"target_lower": 0, "target_upper": 1}
    assert charged(z, lambda: context.dp_sis(frame, **arguments)) == ""
    assert charged(z, lambda: context.dp_sis(frame, dataset="patients", **arguments)) == P


def test_files_need_a_claim(z: Any) -> None:
    [(path,)] = z.execute("SELECT path FROM duckdb_databases() WHERE database_name = 'z'").fetchall()
    for file in (Path(path).parent / "p.parquet", Path(path).parent / "p.csv"):
        z.execute(f"COPY patients TO '{file}'")
        assert charged(z, lambda file=file: z.execute(f"FROM dp_sis('{file}', {FIT})").fetchall()) == ""
        assert (
            charged(z, lambda file=file: z.execute(f"FROM dp_sis('{file}', {FIT}, dataset := 'patients')").fetchall())
            == P
        )


def test_what_was_claimed_stands_in_the_ledger(z: Any) -> None:
    z.execute(f"FROM dp_sis('main.over_parquet', {FIT}, dataset := 'patients', release := 'claimed')").fetchall()
    ledger = ledger_of(z)
    entry = ledger.releases(["dp_sis"], key="claimed")[0]
    assert entry.dataset == "patients"
    assert entry.lineage is not None
    assert entry.lineage["claimed"] is True
    z.execute(f"FROM dp_sis('monthly', {FIT}, release := 'two')").fetchall()
    both = ledger.releases(["dp_sis"], key="two")[0].lineage
    assert both is not None
    assert both["charged"] == ["patients", "s.cohort"]
    assert "claimed" not in both
