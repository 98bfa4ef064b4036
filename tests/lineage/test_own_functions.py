"""A function that somebody registers under a name of DuckDB's is told from DuckDB's own, whoever registers it, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.lineage import functions
from support.cases import cases
from support.sessions import ledger_of

COUNT = "FROM dp_count('people', epsilon := 0.1)"
QUERY = "FROM dp_query('SELECT count(*) AS n FROM people', epsilon := 0.1, fresh := true)"
AGGREGATE = "SELECT dp_quantile(age, epsilon := 0.5, lower := 0, upper := 100, quantiles := [0.5], dataset := 'people') FROM people"
ASKED = (COUNT, QUERY, AGGREGATE, COUNT.replace("people", "seen"), QUERY.replace("people", "seen"))
# Names of DuckDB's, and types that it has no overload of.
FOREIGN = [
    ("hash", ["DOUBLE"]),
    ("upper", ["DOUBLE"]),
    ("abs", ["VARCHAR"]),
    ("concat", ["DOUBLE"]),
    ("LOWER", ["DOUBLE"]),
    ("+", ["VARCHAR", "DOUBLE"]),
    ("list_value", ["DOUBLE", "DOUBLE"]),
    ("greatest", ["DOUBLE", "DOUBLE"]),
    ("struct_pack", ["DOUBLE"]),
    ("unnest", ["DOUBLE"]),
    ("dpsql_value", ["DOUBLE"]),
]


@pytest.fixture
def people() -> Iterator[Any]:
    con = dpsql.connect(":memory:")
    con.execute("CREATE TABLE people AS SELECT range AS id, range % 50 AS age FROM range(30)")
    con.execute("CREATE VIEW seen AS SELECT id, upper(age::VARCHAR) AS name, age FROM people")
    con.execute("SELECT dp_protect('people', epsilon := 1000)").fetchall()
    yield con
    con.close()


def register(con: Any, name: str, types: list[str]) -> None:
    one, two = (lambda x: 1.0), (lambda x, y: 1.0)
    con.create_function(name, one if len(types) == 1 else two, types, "DOUBLE")


def releases(con: Any) -> int:
    return sum(row.releases for row in ledger_of(con).budgets())


def all_refused(con: Any, code: str = "S051") -> None:
    before = releases(con)
    for statement in ASKED:
        with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
            con.execute(statement).fetchall()
    assert releases(con) == before


def all_answered(con: Any) -> None:
    for statement in ASKED:
        assert con.execute(statement).fetchall()


@pytest.mark.long
@cases(("name", "types"), FOREIGN, ids=[name for name, _ in FOREIGN])
def test_an_overload_of_a_name_of_duckdb(people: Any, name: str, types: list[str]) -> None:
    register(people, name, types)
    all_refused(people)


@pytest.mark.long
def test_it_is_noticed_after_calls_that_were_judged(people: Any) -> None:
    for _ in range(4):
        all_answered(people)
    register(people, "hash", ["DOUBLE"])
    all_refused(people)


@pytest.mark.long
def test_it_is_noticed_on_every_connection(people: Any) -> None:
    for _ in range(4):
        all_answered(people)
    other = people.cursor()
    register(other, "hash", ["DOUBLE"])
    all_refused(people)
    with pytest.raises(duckdb.Error, match="DPSQL-S051"):
        other.execute(COUNT.replace("dp_count", "dpsql.dp_count")).fetchall()
    other.close()


@pytest.mark.long
def test_it_is_noticed_within_a_transaction_and_forgotten_with_it(people: Any) -> None:
    for _ in range(4):
        all_answered(people)
    people.begin()
    register(people, "hash", ["DOUBLE"])
    with pytest.raises(duckdb.Error, match="DPSQL-S051"):
        people.execute(COUNT).fetchall()
    people.rollback()
    all_answered(people)


@pytest.mark.long
def test_what_another_connection_commits_later_is_noticed(people: Any) -> None:
    """Nothing is remembered while there is another connection: what it has changed counts from its COMMIT on."""
    other = people.cursor()
    other.begin()
    register(other, "hash", ["DOUBLE"])
    for _ in range(4):
        all_answered(people)
    other.commit()
    all_refused(people)
    other.close()


@pytest.mark.long
def test_a_function_that_is_removed_takes_duckdbs_with_it(people: Any) -> None:
    register(people, "hash", ["DOUBLE"])
    people.remove_function("hash")
    all_refused(people)


@pytest.mark.long
def test_a_new_name_is_no_matter_unless_a_source_calls_it(people: Any) -> None:
    register(people, "mine", ["DOUBLE"])
    all_answered(people)
    people.execute("CREATE VIEW calls AS SELECT id, mine(age) AS x FROM people")
    with pytest.raises(duckdb.Error, match="DPSQL-S041"):
        people.execute("FROM dp_count('calls', epsilon := 0.1)").fetchall()


def test_a_stored_release_is_read_whatever_is_registered(people: Any) -> None:
    named = "FROM dp_count('people', epsilon := 0.1, release := 'one')"
    answer = people.execute(named).fetchall()
    register(people, "hash", ["DOUBLE"])
    assert people.execute(named).fetchall() == answer


def test_the_refusal_says_what_to_do(people: Any) -> None:
    register(people, "concat", ["DOUBLE"])
    with pytest.raises(duckdb.Error, match=r"'concat'.*Register it under another name on a new connection"):
        people.execute(COUNT).fetchall()


def test_the_functions_of_a_new_database_are_its_own() -> None:
    with duckdb.connect() as con:
        rows = con.execute(
            f"SELECT {functions.LINE} FROM system.main.duckdb_functions() WHERE {functions.WHERE}"
        ).fetchall()
    lines = [line for (line,) in rows]
    functions.refuse_foreign(lines, tuple)
    mine, other = "scalar\ndpsql_mine\n[DOUBLE]", "aggregate\nother\n[DOUBLE]"
    functions.refuse_foreign([*lines, mine, other], tuple)
    foreign = ([*lines, "scalar\nABS\n[VARCHAR]"], [*lines, "table\nrange\n[UUID]"], [*lines, mine, f"{mine}[]"])
    for changed in (lines[1:], *foreign):
        with pytest.raises(dpsql.DpsqlError, match="S051"):
            functions.refuse_foreign(changed, tuple)


@pytest.mark.long
def test_no_version_is_refused_because_it_is_not_known(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of functions is that of the DuckDB that runs: no table of versions is shipped."""
    monkeypatch.setattr(duckdb, "__version__", "2.9.9")
    functions.fresh.cache_clear()
    all_answered(people)
    register(people, "hash", ["DOUBLE"])
    all_refused(people)
