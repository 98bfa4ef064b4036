"""``frame.dp.query``: plain SQL over a Polars frame, whose rows are read once, and only if the query is answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import dpsql
import dpsql.polars
from dpsql import frames
from dpsql.functions.query import ARGUMENTS
from support.cases import cases

ROWS = 600
# So much that what comes back is the exact answer, after rounding.
SURE = 1e5


def rows() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "patient": [i // 3 for i in range(ROWS)],
            "ward": ["ABC"[i % 3] for i in range(ROWS)],
            "days": [i % 14 for i in range(ROWS)],
            "seen": [date(2026, 1 + i % 12, 1) for i in range(ROWS)],
            "note": ["x" * (i % 5) for i in range(ROWS)],
        }
    )


@pytest.fixture(autouse=True)
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.polars.use() as made:
        yield made
    frames._contexts.clear()


def protected(frame: Any = None, **more: Any) -> Any:
    found = (rows() if frame is None else frame).dp.of("patients")
    stated = {"epsilon": 10 * SURE, "delta": 1e-3, "privacy_unit": "patient", "max_rows_per_unit": 3}
    found.dp.protect(**{**stated, "keys": {"ward": ["A", "B", "C"]}, "lower": 0, "upper": {"days": 14}, **more})
    return found


class Watched:
    """A lazy frame that counts how often its rows are made, and of which columns."""

    def __init__(self, made: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        self.times = 0

        def run(_: pl.DataFrame) -> pl.DataFrame:
            self.times += 1
            return rows() if made is None else made(rows())

        self.frame = pl.LazyFrame({"one": [1]}).map_batches(run, schema=rows().schema)


def test_it_takes_the_arguments_of_the_function() -> None:
    found = inspect.signature(frames.Frames.query).parameters
    assert list(found) == ["self", "sql", *ARGUMENTS]


QUERIES = {
    "groups": ("SELECT ward, count(*) AS n, sum(days) AS s FROM self GROUP BY ward ORDER BY ward", ["A", "B", "C"]),
    "no columns": ("SELECT count(*) AS n FROM self", None),
    "a condition": ("SELECT count(*) AS n FROM self WHERE days >= 7 AND seen < DATE '2026-07-01'", None),
    "per person": ("SELECT sum(n) AS s FROM (SELECT patient, count(*) AS n FROM self WHERE days > 3 GROUP BY patient)", None),
    "a join of people": (
        "SELECT count(*) AS n FROM self JOIN (SELECT patient, max(days) AS most FROM self GROUP BY patient) AS m "
        "USING (patient) WHERE days = most",
        None,
    ),
    "two cores": ("SELECT (SELECT count(*) FROM self WHERE ward = 'A') - (SELECT count(*) FROM self WHERE days = 1) AS d", None),
    "totals": ("SELECT ward, count(*) AS n FROM self GROUP BY ROLLUP (ward) ORDER BY ward NULLS LAST", None),
    "people": ("SELECT ward, count(DISTINCT patient) AS n FROM self GROUP BY ward ORDER BY ward", None),
}  # fmt: skip


@cases("lazy", [False, True], ids=["eager", "lazy"])
@cases("name", QUERIES)
def test_the_answer_is_that_of_duckdb(name: str, lazy: bool, ctx: dpsql.Context) -> None:
    sql, _ = QUERIES[name]
    patients = protected(rows().lazy() if lazy else None)
    found = patients.dp.query(sql, epsilon=SURE, lower={"n": 0, "most": 0}, upper={"n": 3, "most": 14})
    assert isinstance(found, pl.DataFrame)
    with dpsql.connect() as con:
        con.register("self", rows().to_arrow())
        exact = con.sql(sql).to_arrow_table()
    assert found.columns == exact.column_names
    for mine, theirs in zip(
        found.rows(), zip(*(column.to_pylist() for column in exact.columns), strict=True), strict=True
    ):
        assert [value if isinstance(value, str | None) else round(value) for value in mine] == list(theirs)


def test_the_release_says_that_it_was_claimed(ctx: dpsql.Context) -> None:
    found = protected().dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    release = found.dp.release
    assert release.guarantee == "pure 1-DP, add_remove of all rows of one patient (at most 3 rows), as claimed"
    assert (release.function, release.dataset) == ("dp_query", "patients")
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [1.0]
    assert ctx.dp_ledger()["guarantee"].to_pylist()[-1].endswith("as claimed")


def test_a_query_of_nobody_is_free(ctx: dpsql.Context) -> None:
    source = Watched()
    patients = protected(source.frame, claims="all")
    assert patients.dp.query("SELECT 1 AS one", epsilon=1).rows() == [(1,)]
    assert patients.dp.query("SELECT ward, days FROM self WHERE false", epsilon=1).columns == ["ward", "days"]
    assert source.times == 0
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [0.0]


def test_a_lazy_frame_is_run_once_and_not_for_what_is_told_or_stored(ctx: dpsql.Context) -> None:
    source = Watched()
    patients = protected(source.frame, claims="all")
    sql = "SELECT ward, count(*) AS n, avg(days) AS mean FROM self GROUP BY ward"
    told = patients.dp.query(sql, epsilon=1, estimate=True)
    assert told.columns == ["column", "quantity", "value", "meaning"]
    assert source.times == 0
    first = patients.dp.query(sql, epsilon=1, release="stays")
    assert source.times == 1
    again = patients.dp.query(f"{sql} ORDER BY n LIMIT 1", epsilon=1, release="stays")
    assert source.times == 1
    assert again.dp.release.replayed
    assert again.rows()[0] in first.rows()
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [1.0]


def test_only_the_columns_that_the_cores_read_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    whole = frames.Frames._columns

    def columns(self: Any, names: list[str]) -> Any:
        asked.append(names)
        return whole(self, names)

    monkeypatch.setattr(frames.Frames, "_columns", columns)
    patients = protected(rows().lazy())
    patients.dp.query("SELECT ward, avg(days) AS mean FROM self GROUP BY ward", epsilon=1)
    assert sorted(asked.pop()) == ["days", "patient", "ward"]
    patients.dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    assert asked.pop() == ["patient"]


def test_without_a_unit_one_row_is_protected(ctx: dpsql.Context) -> None:
    frame = rows().dp.of("visits")
    frame.dp.protect(epsilon=10 * SURE)
    assert frame.dp.query("SELECT count(*) AS n FROM self", epsilon=SURE)["n"].to_list() == [ROWS]
    assert ctx.dp_ledger()["guarantee"].to_pylist()[-1].endswith("add_remove of one row, as claimed")


def test_no_more_rows_of_a_person_count_than_its_owner_says() -> None:
    of_one = pl.DataFrame({"patient": [1] * 100 + [None] * 50 + [2], "days": [1] * 151})
    assert protected(of_one, keys=None).dp.query("SELECT count(*) AS n FROM self", epsilon=SURE)["n"].to_list() == [4]


def test_frames_of_one_dataset_are_asked_anew_unless_they_have_a_name(ctx: dpsql.Context) -> None:
    sql = "SELECT count(*) AS n FROM self"
    patients = protected()
    few = rows().filter(pl.col("days") < 7).dp.of("patients")
    assert patients.dp.query(sql, epsilon=SURE)["n"].to_list() == [ROWS]
    assert few.dp.query(sql, epsilon=SURE)["n"].to_list() == [rows().filter(pl.col("days") < 7).height]
    assert ctx.dp_budget()["releases"].to_pylist() == [2]


def test_a_name_replays_in_another_process(tmp_path: Path) -> None:
    answers = []
    for _ in range(2):
        with dpsql.polars.use(ledger=tmp_path / "ledger") as owner:
            patients = protected(epsilon=9)
            answers.append(patients.dp.query("SELECT avg(days) AS mean FROM self", epsilon=1, release="mean").rows())
            assert owner.dp_budget()["epsilon_spent"].to_pylist() == [1.0]
    assert answers[0] == answers[1]


def unseen(frame: pl.DataFrame) -> pl.LazyFrame:
    return frame.lazy().join(frame.lazy(), on="ward")


SURELY = {"epsilon": 1}
REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "no dataset": (lambda frame: frame, "SELECT count(*) FROM self", "P081"),
    "another dataset": (lambda frame: frame.dp.of("visits"), "SELECT count(*) FROM self", "S025"),
    "no unit": (lambda frame: frame.drop("patient").dp.of("patients"), "SELECT count(*) FROM self", "S017"),
    "what is not seen": (lambda frame: unseen(frame.collect()).dp.of("patients"), "SELECT count(*) FROM self", "S053"),
    "rows of people": (lambda frame: frame.dp.of("patients"), "SELECT * FROM self", "P102"),
    "another table": (lambda frame: frame.dp.of("patients"), "SELECT count(*) FROM visits", "S016"),
    "a misspelt column": (lambda frame: frame.dp.of("patients"), "SELECT count(*) FROM self WHERE dayz = 1", "S002"),
    "two statements": (lambda frame: frame.dp.of("patients"), "SELECT count(*) FROM self; SELECT 1", "P100"),
    "no text": (lambda frame: frame.dp.of("patients"), 7, "P100"),  # type: ignore[dict-item]
    "an order below": (lambda frame: frame.dp.of("patients"), "SELECT count(*) FROM (FROM self LIMIT 9)", "P103"),
}


@cases("name", REFUSED)
def test_what_is_refused_reads_no_row_and_costs_nothing(name: str, ctx: dpsql.Context) -> None:
    make, sql, code = REFUSED[name]
    protected()
    ran = []
    monitored = rows().lazy()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(dpsql.DpsqlError) as caught:
        patch.setattr(frames.Frames, "_columns", lambda *_: ran.append(1))
        make(monitored).dp.query(sql, epsilon=1)
    assert caught.value.code == f"DPSQL-{code}", caught.value
    assert ran == []
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [0.0]
    assert ctx.dp_ledger()["kind"].to_pylist() == ["protect"]


def test_a_budget_that_is_used_up_reads_no_row(ctx: dpsql.Context) -> None:
    source = Watched()
    patients = protected(source.frame, epsilon=1, claims="all")
    with pytest.raises(dpsql.BudgetError, match="B001"):
        patients.dp.query("SELECT count(*) AS n FROM self", epsilon=2)
    assert source.times == 0


def test_a_budget_is_stated_first() -> None:
    with pytest.raises(dpsql.BudgetError, match=r"B006.*frame\.dp\.of\('patients'\)\.dp\.protect\(epsilon=\.\.\.\)"):
        rows().dp.of("patients").dp.query("SELECT count(*) AS n FROM self", epsilon=1)


def test_an_owner_who_answers_no_claims_is_heeded() -> None:
    with pytest.raises(dpsql.BudgetError, match="B015"):
        protected(claims="none").dp.query("SELECT count(*) AS n FROM self", epsilon=1)


def test_rows_that_cannot_be_made_are_charged_and_not_told_of(ctx: dpsql.Context) -> None:
    def broken(frame: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("patient 17 has Huntington's disease")

    patients = protected(Watched(broken).frame, claims="all")
    with pytest.raises(dpsql.InternalError) as caught:
        patients.dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    assert caught.value.code == "DPSQL-I001"
    assert "Huntington" not in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:  # nor in what Python shows beside it
        assert "Huntington" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [1.0]


def test_ctrl_c_while_rows_are_made_is_charged(ctx: dpsql.Context) -> None:
    def stopped(*_: object) -> Any:
        raise KeyboardInterrupt

    patients = protected()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(frames.Frames, "_columns", stopped)
        patients.dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    assert ctx.dp_budget()["epsilon_spent"].to_pylist() == [1.0]


def test_the_claim_ends_with_the_query(ctx: dpsql.Context) -> None:
    protected().dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    ctx.connection.execute("CREATE TEMP TABLE self AS SELECT 1 AS patient, 2 AS days")
    with pytest.raises(Exception, match="B006"):
        ctx.connection.execute("FROM dp_query('SELECT count(*) AS n FROM self', epsilon := 1)")
    assert ctx.connection.execute("FROM self").fetchall() == [(1, 2)]


def test_it_joins_public_tables_of_duckdb(ctx: dpsql.Context) -> None:
    patients = protected()
    ctx.connection.execute("CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 20), ('B', 30)) AS v(ward, beds)")
    ctx.connection.execute("SELECT dp_public('wards')").fetchall()
    found = patients.dp.query(
        "SELECT beds, count(*) AS n FROM self JOIN wards USING (ward) GROUP BY beds ORDER BY 1", epsilon=SURE
    )
    assert found.rows() == [(20, 200), (30, 200)]


@pytest.mark.odds("1e-99: noise of SURE / 10 rounds to none")
def test_threads_have_frames_of_their_own() -> None:
    protected()
    parts = [rows().head(3 * count).dp.of("patients") for count in range(1, 13)]

    def ask(frame: Any) -> int:
        found: int = frame.dp.query("SELECT count(*) AS n FROM self", epsilon=SURE / 10)["n"][0]
        return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, parts)) == [3 * count for count in range(1, 13)]


def test_types_of_polars() -> None:
    frame = pl.DataFrame(
        {
            "patient": [1, 2, 3, 4],
            "enum": pl.Series(["a", "b", "a", None], dtype=pl.Enum(["a", "b"])),
            "category": pl.Series(["a", "b", "a", None], dtype=pl.Categorical),
            "moment": [datetime(2026, 1, 1), datetime(2026, 2, 1), None, datetime(2026, 3, 1)],
            "price": [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.25")],
            "ill": [True, False, None, True],
            "listed": [[1, 2], [], None, [3]],
            "struct": [{"a": 1}, {"a": 2}, None, {"a": 3}],
        }
    )
    patients = protected(frame, max_rows_per_unit=1, keys=None, upper=None, lower=None)
    for sql, keys, exact in (
        ("SELECT enum, count(*) AS n FROM self GROUP BY 1 ORDER BY 1 NULLS LAST", {"enum": ["a", "b", None]}, [("a", 2), ("b", 1), (None, 1)]),
        ("SELECT category, count(*) AS n FROM self GROUP BY 1 ORDER BY 1", {"category": ["a", "b"]}, [("a", 2), ("b", 1)]),
        ("SELECT ill, count(*) AS n FROM self GROUP BY 1 ORDER BY 1", None, [(False, 1), (True, 2), (None, 1)]),
        ("SELECT count(*) AS n FROM self WHERE moment < TIMESTAMP '2026-02-02'", None, [(2,)]),
        ("SELECT sum(price) AS s FROM self", None, [(Decimal("4.00"),)]),
    ):  # fmt: skip
        more = {} if keys is None else {"keys": keys}
        found = patients.dp.query(sql, epsilon=SURE, lower={"price": 0}, upper={"price": 3}, **more)
        assert found.rows() == exact, sql


def test_a_type_that_duckdb_does_not_have_is_no_column() -> None:
    frame = rows().with_columns(pl.Series("thing", [object()] * ROWS, dtype=pl.Object))
    patients = protected(frame)
    assert patients.dp.query("SELECT count(*) AS n FROM self", epsilon=SURE)["n"].to_list() == [ROWS]
    with pytest.raises(dpsql.DpsqlError, match="S002"):
        patients.dp.query("SELECT count(thing) AS n FROM self", epsilon=1)


def test_periods_are_those_of_the_budget(ctx: dpsql.Context) -> None:
    patients = protected(period="month", period_of="seen")
    found = patients.dp.query("SELECT count(*) AS n FROM self", epsilon=SURE, during="2026-02")
    assert found["n"].to_list() == [ROWS // 12]
    with pytest.raises(dpsql.ParameterError, match="P110"):
        patients.dp.query("SELECT count(*) AS n FROM self", epsilon=1)
    assert "2026-02" in ctx.dp_budget()["block"].to_pylist()


def test_a_context_of_an_engine_refuses_plain_sql() -> None:
    with dpsql.polars.context({"visits": rows()}) as engine:
        engine.dp_protect("visits", epsilon=1)
        for sql in ("SELECT count(*) AS n FROM visits", "SELECT 1 AS one"):
            with pytest.raises(dpsql.ParameterError, match=r"P073.*frame\.dp\.of\('visits'\)\.dp\.query"):
                engine.query(sql, epsilon=1)
        assert engine.dp_budget()["epsilon_spent"].to_pylist() == [0.0]


@cases("lazy", [False, True])
def test_integers_of_128_bits_stop_no_call(lazy: bool) -> None:
    """They are decimals, as Arrow has no such integers; NULL beyond 38 digits, and left out within lists."""
    wide = [*range(ROWS - 1), (1 << 127) - 1]
    columns = [pl.Series("wide", wide, dtype=pl.Int128), pl.Series("lists", [[1]] * ROWS, dtype=pl.List(pl.Int128))]
    frame = protected(rows().with_columns(columns))
    frame = frame.lazy().dp.of("patients") if lazy else frame

    def collected(answer: Any) -> pl.DataFrame:
        table: pl.DataFrame = answer.lazy().collect()
        return table

    told = "SELECT count(*) AS n, count(wide) AS w, sum(wide) AS s FROM self WHERE coalesce(wide, 0) < 10"
    assert collected(frame.dp.query(told, epsilon=SURE, upper=600)).rows() == [(11, 10, Decimal(45))]
    assert collected(frame.dp.count(epsilon=SURE))["value"].to_list() == [ROWS]
    assert collected(frame.dp.count(by="wide", keys=[7, 599], epsilon=SURE))["value"].to_list() == [1, 0]
    assert collected(frame.dp.avg(target="days", epsilon=SURE))["value"].round(2).to_list() == [6.48]
    with pytest.raises(dpsql.SourceError, match="DPSQL-S002"):
        frame.dp.count(distinct_of="lists", epsilon=1)
