"""Where DuckDB chooses among tied rows, a source needs an order that tells them apart; then no order of reading counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from stage import read

import dpsql
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.rows import Leaf, Rows
from dpsql.engines.duckdb.lineage.stability import walk
from support import BEFORE_2_0
from support.cases import cases

FORMS: list[dict[str, Any]] = read("orders")["form"]
TABLES = {
    "plain": "pid BIGINT, day BIGINT, ward VARCHAR, x DOUBLE",
    "keyed": "pid BIGINT, day BIGINT, ward VARCHAR, x DOUBLE, PRIMARY KEY (day, pid)",
    "required": "pid BIGINT NOT NULL, day BIGINT NOT NULL, ward VARCHAR, x DOUBLE, UNIQUE (pid, day)",
    "nullable": "pid BIGINT NOT NULL, day BIGINT, ward VARCHAR, x DOUBLE, UNIQUE (pid, day)",
    "partly": "pid BIGINT, day BIGINT, ward VARCHAR, x DOUBLE, code BIGINT, PRIMARY KEY (pid, day, code)",
    "nocase": "pid BIGINT, day VARCHAR COLLATE NOCASE, ward VARCHAR, x DOUBLE, PRIMARY KEY (pid, day)",
    "numbers": "pid BIGINT, day DOUBLE, ward VARCHAR, x DOUBLE, PRIMARY KEY (pid, day)",
    "spans": "pid BIGINT, day INTERVAL, ward VARCHAR, x DOUBLE",
}
KEYED = ("keyed", "required", "numbers")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        for name, columns in TABLES.items():
            opened.execute(f"CREATE TABLE {name} ({columns})")
        opened.execute("CREATE TABLE wards (code VARCHAR PRIMARY KEY, beds BIGINT)")
        yield opened


def judged(con: Any, query: str) -> Rows:
    [(text,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [query]).fetchall()
    node = bound.read(text)
    assert node is not None, text

    def leaf(path: paths.Path, _: bool) -> Leaf:
        found = con.execute(
            "SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE table_name = ?", [path[2]]
        ).fetchall()
        keys = paths.unique_keys(found)
        return Leaf((), unique=keys) if path[2] == "wards" else Leaf((path[2],), "pid", unique=keys)

    return walk(node, leaf, {})


@cases("form", FORMS, ids=lambda form: form["sql"])
def test_an_order_of_a_table_without_a_key_is_total_or_the_source_is_refused(con: Any, form: dict[str, Any]) -> None:
    check_orders(con, form, "plain")


@cases("form", FORMS, ids=lambda form: form["sql"], quick=18)
@cases("table", ["keyed", "required", "nullable", "partly"])
def test_an_order_is_total_or_the_source_is_refused(con: Any, form: dict[str, Any], table: str) -> None:
    check_orders(con, form, table)


def check_orders(con: Any, form: dict[str, Any], table: str) -> None:
    """Look at an order that ties, and at a total one."""
    rows = judged(con, form["sql"].format(t=table, o="day"))
    fixed = form.get("fixed") or form.get("peers") or (table in KEYED and not form.get("never"))
    assert bool(rows.unfixed) != bool(fixed), rows.unfixed
    total = judged(con, form["sql"].format(t=table, o=form.get("own", "day, ward")))
    assert bool(total.unfixed) == bool(form.get("never")), total.unfixed
    if rows.unfixed and not form.get("never") and "own" not in form:
        said = rows.to_order.removeprefix("ORDER BY ").replace("...", "day")
        assert said != "day"
        assert judged(con, form["sql"].format(t=table, o=said)).unfixed == ""


@cases(
    ("query", "to_order"),
    [
        # A key of text with a collation holds 'a' and 'A': it counts by its bytes.
        ("SELECT pid, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM nocase", "ORDER BY ..., encode(day)"),
        ("SELECT pid, ward, row_number() OVER (PARTITION BY pid ORDER BY encode(day)) AS n FROM nocase", ""),
        ("SELECT DISTINCT ON (pid) pid, ward FROM nocase ORDER BY encode(day)", ""),
        ("SELECT pid, ward, lag(x) OVER (PARTITION BY pid ORDER BY day) AS n FROM numbers", ""),
        # A month and 30 days are equal.
        (
            "SELECT pid, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM spans",
            "ORDER BY ..., CAST(day AS VARCHAR)",
        ),
        # A key of each table that is joined; a lookup by a key adds no row.
        (
            "SELECT v.pid, row_number() OVER (PARTITION BY v.pid ORDER BY v.day) AS n, code, x FROM keyed v JOIN wards ON v.x = beds",
            "ORDER BY ..., code",
        ),
        (
            "SELECT v.pid, row_number() OVER (PARTITION BY v.pid ORDER BY v.day, code) AS n, code FROM keyed v JOIN wards ON x = beds",
            "",
        ),
        (
            "SELECT v.pid, beds, row_number() OVER (PARTITION BY v.pid ORDER BY v.day) AS n FROM keyed v LEFT JOIN wards ON ward = code",
            "",
        ),
        (
            "SELECT pid, a, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM (SELECT pid, day, unnest([1, 2]) AS a FROM keyed)",
            "ORDER BY ..., a",
        ),
        (
            "SELECT pid, ward, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM (FROM keyed UNION ALL FROM keyed)",
            "ORDER BY ..., ward, x",
        ),
        # Projections rename keys; groups are a key of the groups.
        ("SELECT p, w, row_number() OVER (PARTITION BY p ORDER BY d) AS n FROM (SELECT pid AS p, day AS d, ward AS w FROM keyed)", ""),
        ("SELECT *, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM (SELECT pid, day, count(*) AS c FROM plain GROUP BY ALL)", ""),
        ("SELECT *, row_number() OVER (PARTITION BY pid ORDER BY c) AS n FROM (SELECT pid, day, count(*) AS c FROM plain GROUP BY ALL)", "ORDER BY ..., day"),
        ("SELECT pid, w.beds FROM keyed JOIN (FROM wards ORDER BY beds LIMIT 3) w ON w.beds = day", "ORDER BY ..., code"),
        ("SELECT pid, w.beds FROM keyed JOIN (FROM wards ORDER BY code LIMIT 3) w ON w.beds = day", ""),
        ("SELECT pid, w.beds FROM keyed JOIN (SELECT beds, first(code) AS c FROM wards GROUP BY beds) w ON w.beds = day", "ORDER BY code"),
    ],
)  # fmt: skip
def test_which_keys_are_missing(con: Any, query: str, to_order: str) -> None:
    rows = judged(con, query)
    assert (rows.to_order, bool(rows.unfixed)) == (to_order, bool(to_order)), rows.unfixed


@cases(
    ("query", "unfixed"),
    [
        ("SELECT pid, max(day) AS m FROM spans GROUP BY pid", "max() of an INTERVAL"),
        ("SELECT pid, day, count(*) AS m FROM spans GROUP BY pid, day", "GROUP BY an INTERVAL"),
        ("SELECT DISTINCT pid, day FROM spans", "DISTINCT"),
        ("SELECT pid, max(epoch_us(day)) AS m FROM spans GROUP BY pid", ""),
        ("SELECT pid, day, count(*) AS m FROM nocase GROUP BY pid, day", "first()"),
        ("SELECT pid, list_sort(list(x)) AS m FROM plain GROUP BY pid", "list()"),
        ("SELECT pid, list(x ORDER BY x, CAST(x AS BIT)) AS m FROM plain GROUP BY pid", ""),
        ("SELECT pid, min([x]) AS m FROM plain GROUP BY pid", "min() of a LIST"),
        ("SELECT pid, histogram(x) AS m FROM plain GROUP BY pid", "histogram() of a DOUBLE"),
        ("SELECT pid, first(x) AS m FROM plain GROUP BY pid, x", ""),
        # What tells the two zeros apart.
        ("SELECT pid, 1 / max(x) AS m FROM plain GROUP BY pid", "/() of a number with several spellings"),
        ("SELECT pid, signbit(max(x)) AS m FROM plain GROUP BY pid", "signbit() of a number with several spellings"),
        ("SELECT pid, hash(max(x)) AS m FROM plain GROUP BY pid", ""),
        ("SELECT pid, max(x)::VARCHAR AS m FROM plain GROUP BY pid", "a cast to VARCHAR of a number with several spellings"),
        ("SELECT pid, [max(x)] AS m FROM plain GROUP BY pid", "list_value() of a number with several spellings"),
        ("SELECT pid, x::VARCHAR AS m, row_number() OVER (PARTITION BY pid ORDER BY x) AS n FROM plain", "a cast to VARCHAR of a number with several spellings"),
        ("SELECT pid, CASE WHEN max(x) > 3 THEN 1 ELSE 0 END AS m FROM plain GROUP BY pid", ""),
        ("SELECT pid, max(x)::DECIMAL(9, 2)::VARCHAR AS m FROM plain GROUP BY pid", ""),
        ("SELECT pid, signbit(CASE WHEN isnan(m) THEN 'nan' ELSE m + 0 END) AS m FROM (SELECT pid, max(x) AS m FROM plain GROUP BY pid)", ""),
        ("SELECT pid, signbit(CASE WHEN isnan(m) THEN 'nan' ELSE m + '-0.0'::DOUBLE END) AS m FROM (SELECT pid, max(x) AS m FROM plain GROUP BY pid)", "signbit() of a number with several spellings"),
        # Two orders may number identical rows differently; one order, or a key, does not.
        ("SELECT pid, row_number() OVER (PARTITION BY pid ORDER BY day) AS n, row_number() OVER (PARTITION BY pid ORDER BY day DESC) AS m FROM plain", "a second order of windows"),
        ("SELECT pid, row_number() OVER (PARTITION BY pid ORDER BY day) AS n, lag(day) OVER (PARTITION BY pid ORDER BY day) AS m FROM plain", ""),
        ("SELECT pid, row_number() OVER (PARTITION BY pid ORDER BY day) AS n, row_number() OVER (PARTITION BY pid ORDER BY day DESC) AS m FROM keyed", ""),
        # A subquery in place of a value is an error where it has several rows, or it is of one.
        ("SELECT pid, (SELECT beds FROM wards WHERE code = 'a') AS m FROM plain", ""),
    ],
)  # fmt: skip
def test_what_follows_from_spellings(con: Any, query: str, unfixed: str) -> None:
    if "hash(" in query:
        unfixed = "hash() of a number with several spellings"
    assert judged(con, query).unfixed == unfixed


def digest(opened: Any, query: str) -> Any:
    """Return a digest of a query's rows, whatever their order."""
    return opened.execute(
        f"SELECT count(*), sum(hash(r::VARCHAR)::HUGEINT) FROM (SELECT r FROM ({query}) AS r)"
    ).fetchone()


@pytest.fixture(scope="module")
def shuffled() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same rows in two orders: over two row groups, of people with rows that tie and rows that are the same."""
    with duckdb.connect() as opened:
        rows = "SELECT i % 9000 AS pid, (i // 9000) % 2 AS day, 'w' || hash(i) % 5 AS ward FROM range(130_000) AS r(i)"
        opened.execute(f"CREATE TABLE base AS {rows}")
        for number, key in enumerate(("hash(rowid)", "hash(rowid + 1_000_000)")):
            opened.execute(f"CREATE SCHEMA s{number}; CREATE TABLE s{number}.plain AS FROM base ORDER BY {key}")
        yield opened


def found_over(opened: Any, query: str) -> set[Any]:
    out = set()
    for schema in ("s0", "s1"):
        for threads in (1, 4):
            opened.execute(f"SET threads = {threads}")
            out.add(digest(opened, query.replace("{t}", f"{schema}.plain")))
    return out


@cases("form", [form for form in FORMS if not form.get("never")], ids=lambda form: form["sql"], quick=1)
def test_what_is_accepted_is_the_same_in_any_order(shuffled: Any, form: dict[str, Any]) -> None:
    """Rows in two orders, read by 1 and 4 threads; and the form as its author ordered it, planted, is not the same."""
    total = "day" if form.get("peers") else form.get("own", "day, ward")
    assert len(found_over(shuffled, form["sql"].replace("{o}", total))) == 1
    if not form.get("peers") and not form.get("fixed"):
        assert len(found_over(shuffled, form["sql"].replace("{o}", "day"))) > 1


@pytest.mark.long
def test_two_orders_number_identical_rows_differently(shuffled: Any) -> None:
    """Why a second order is refused: both are total, and which number stands beside which is DuckDB's choice."""
    n, m = (f"row_number() OVER (PARTITION BY pid ORDER BY day{end}, ward{end})" for end in ("", " DESC"))
    assert len(found_over(shuffled, f"SELECT pid, {n} AS n, {m} AS m FROM {{t}}")) > 1
    assert len(found_over(shuffled, f"SELECT pid, {n} AS n, {m} AS m FROM (SELECT DISTINCT * FROM {{t}})")) == 1


@pytest.fixture
def z() -> Iterator[duckdb.DuckDBPyConnection]:
    with dpsql.connect() as opened:
        for name, columns in (("visits", TABLES["plain"]), ("keyed", TABLES["keyed"])):
            opened.execute(f"CREATE TABLE {name} ({columns})")
            opened.execute(f"INSERT INTO {name} SELECT i // 4, i % 4, 'w' || i % 3, i % 2 FROM range(400) AS r(i)")
            opened.execute(
                f"SELECT dp_protect('{name}', epsilon := 1e9, privacy_unit := 'pid', max_rows_per_unit := 4)"
            )
        yield opened


COUNT = "FROM dp_count('held', epsilon := 1e6)"


def test_a_part_of_a_key_finds_several_rows(con: Any) -> None:
    """So the rows of a person tie that meet them, and whoever names all columns of the key finds one row at most."""
    join = (
        "SELECT v.pid, row_number() OVER (PARTITION BY v.pid ORDER BY v.day) AS n, w.day, w.x "
        "FROM keyed v LEFT JOIN keyed w ON v.pid = w.pid{}"
    )
    assert judged(con, join.format("")).unfixed == "row_number()"
    assert judged(con, join.format(" AND v.day = w.day")).unfixed == ""


def refusal(opened: Any, statement: str) -> str:
    with pytest.raises((duckdb.Error, dpsql.DpsqlError)) as caught:
        opened.execute(statement).fetchall()
    return str(caught.value)


def counted(opened: Any, statement: str = COUNT) -> int:
    [(value,)] = opened.execute(f"SELECT round(value) FROM ({statement})").fetchall()
    return int(value)


def test_the_order_that_a_refusal_gives_is_pasted(z: Any) -> None:
    view = (
        "CREATE OR REPLACE VIEW held AS SELECT * FROM {} QUALIFY row_number() OVER (PARTITION BY pid ORDER BY {}) = 1"
    )
    z.execute(view.format("visits", "day"))
    said = refusal(z, COUNT)
    keys = re.findall(r"Write ORDER BY (\.\.\..*)", said)[0]
    assert "DPSQL-S045" in said
    z.execute(view.format("visits", keys.replace("...", "day")))
    assert counted(z) == 100
    z.execute(view.format("keyed", "day"))
    assert counted(z) == 100


def test_a_key_that_is_gone_when_the_statement_runs(z: Any) -> None:
    """Constraints are those of the transaction that reads the rows, and a table without them has the same plan."""
    z.execute("CREATE VIEW held AS SELECT * FROM keyed QUALIFY row_number() OVER (PARTITION BY pid ORDER BY day) = 1")
    assert counted(z) == 100
    z.execute("BEGIN; CREATE TABLE other AS FROM keyed; DROP TABLE keyed; ALTER TABLE other RENAME TO keyed")
    assert "DPSQL-B008" in refusal(z, COUNT)
    z.execute("ROLLBACK; BEGIN; CREATE TABLE other AS FROM keyed; DROP TABLE keyed; ALTER TABLE other RENAME TO keyed")
    behind = "SELECT (SELECT count(*) FROM visits) AS n, (SELECT count(*) FROM held) AS m"
    assert "DPSQL-B008" in refusal(z, f"FROM dp_query('{behind}', epsilon := 1)")
    z.execute("ROLLBACK")
    assert counted(z) == 100
    z.execute("CREATE OR REPLACE TABLE keyed AS FROM keyed")
    assert "DPSQL-S045" in refusal(z, COUNT)


def test_a_row_meets_one_public_row_by_a_key_that_is_there(z: Any) -> None:
    """A budget of rows, and a public table that loses the key by which a row met one row of it at most."""
    z.execute("CREATE TABLE stays AS SELECT i AS stay, i % 3 AS ward FROM range(90) AS r(i)")
    z.execute("CREATE TABLE wards (ward BIGINT PRIMARY KEY, beds INTEGER); INSERT INTO wards VALUES (0, 1), (1, 2)")
    z.execute("SELECT dp_protect('stays', epsilon := 1e9, public := ['wards'])")
    met = "FROM dp_query('SELECT count(*) AS n FROM stays JOIN wards USING (ward) WHERE beds > {}', epsilon := 1e6)"
    z.execute("CREATE VIEW held AS SELECT ward, beds FROM stays LEFT JOIN wards USING (ward)")
    assert [counted(z, f"SELECT n AS value {met.format(0)}"), counted(z)] == [60, 90]
    z.execute("BEGIN; CREATE TABLE other AS FROM wards; DROP TABLE wards; ALTER TABLE other RENAME TO wards")
    z.execute("INSERT INTO wards FROM wards")
    assert "DPSQL-B008" in refusal(z, f"{COUNT[:-1]}, release := 'again')")
    z.execute("ROLLBACK")
    assert counted(z, f"SELECT n AS value {met.format(1)}") == 30
    z.execute("CREATE OR REPLACE TABLE wards AS FROM wards")
    said = refusal(z, met.format(-1))
    assert "DPSQL-S012" in said
    z.execute(re.findall("ALTER TABLE .* KEY [^.]*", said)[0])
    assert counted(z, f"SELECT n AS value {met.format(-1)}") == 60


@cases("condition", ["1 / m < 0", "CAST(m AS VARCHAR) = '-0.0'"], quick=1)
@cases("one", ["max(x)", "min(x)"], quick=1)
def test_numbers_with_two_zeros_are_read_with_one(z: Any, one: str, condition: str) -> None:
    """The greatest of 0 and -0 may be either; nothing that a call or a query computes tells which."""
    z.execute("UPDATE visits SET x = '-0.0'::DOUBLE")
    z.execute(f"CREATE OR REPLACE VIEW held AS SELECT pid, {one} AS m FROM visits GROUP BY pid")
    zeros = z.execute("SELECT DISTINCT m::VARCHAR FROM held").fetchall()
    assert zeros == [("-0.0" if not BEFORE_2_0 else "0.0",)]  # which one is DuckDB's choice
    asked = f"SELECT n AS value FROM dp_query($$SELECT count(*) AS n FROM held WHERE {condition}$$, epsilon := 1e6)"
    assert counted(z, asked) == 0
    assert counted(z, f"FROM dp_count('held', condition := $${condition}$$, epsilon := 1e6)") == 0


@pytest.mark.long
def test_an_aggregate_form_needs_a_total_order(z: Any) -> None:
    z.execute("CREATE TABLE sold AS SELECT i AS id, 'w' || i % 3 AS ward, 0.5 AS a FROM range(60) AS r(i)")
    z.execute("CREATE TABLE wards AS SELECT 'w' || i % 3 AS code, i AS beds FROM range(6) AS r(i)")
    z.execute("SELECT dp_protect('sold', epsilon := 1e9), dp_public('wards')")
    form = "SELECT dp_quantile(beds::DOUBLE, epsilon := 1, lower := 0, upper := 9, quantiles := [0.5], dataset := 'sold') FROM sold LEFT JOIN ({}) ON ward = code"
    chosen = "SELECT DISTINCT ON (code) * FROM wards"
    assert "DPSQL-S045" in refusal(z, form.format(chosen))
    z.execute(form.format(f"{chosen} ORDER BY code, beds")).fetchall()


@cases(
    "query",
    [
        "SELECT DISTINCT ON (pid) pid, ward FROM {} ORDER BY day",
        "SELECT pid, ward, row_number() OVER (PARTITION BY pid ORDER BY day) AS n FROM {}",
        "SELECT pid, first(ward) AS n FROM {} GROUP BY pid",
        "SELECT pid, sum(x) AS n FROM {} GROUP BY pid",
        "SELECT pid, ward FROM {} LIMIT 9",
        "SELECT pid, ward, sum(day) OVER (PARTITION BY pid ORDER BY day ROWS UNBOUNDED PRECEDING) AS n FROM {}",
    ],
    quick=1,
    alone=True,
)
def test_a_view_over_files_and_one_with_a_budget(z: Any, query: str, tmp_path: Path) -> None:
    """No plan shows what a file holds, so its text counts; and a view with a budget covers the tables that it reads."""
    file = tmp_path / "v.parquet"
    z.execute(f"COPY visits TO '{file}'; CREATE TABLE raw AS FROM visits")
    for source in (f"'{file}'", "raw"):
        z.execute(f"CREATE OR REPLACE VIEW held AS {query.format(source)}")
        z.execute(
            "SELECT dp_protect('held', epsilon := 1e9, privacy_unit := 'pid', max_rows_per_unit := 4, replace := true)"
        )
        assert "DPSQL-S045" in refusal(z, COUNT), source
    z.execute(
        "CREATE OR REPLACE VIEW held AS SELECT pid, max(ward) AS w, sum(x::DECIMAL(9, 2)) AS s, rank() OVER (ORDER BY pid) AS r "
        f"FROM '{file}' GROUP BY pid"
    )
    z.execute(
        "SELECT dp_protect('held', epsilon := 1e9, privacy_unit := 'pid', max_rows_per_unit := 4, replace := true)"
    )
    assert counted(z) == 100
