"""A stranger's statements: what is taken, what is refused with which code, and that nothing else is read of a tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest

from dpsql.contract.query.tree import read_tree, tables_of
from dpsql.errors import ParameterError
from dpsql.gateway.functions import CALLS
from dpsql.gateway.problems import GatewayError, advised
from dpsql.gateway.statement import PrivateCall, Statement, read
from support.cases import cases

FOLDER = Path(__file__).parent
CASES = [json.loads(line) for line in (FOLDER / "hostile.jsonl").read_text("utf-8").splitlines()]
Parse = Callable[[str], str]


def whole(text: str | list[tuple[str, int]]) -> str:
    return text if isinstance(text, str) else "".join(piece * times for piece, times in text)


@pytest.fixture(scope="module")
def parse() -> Iterator[Parse]:
    with duckdb.connect(config={"threads": 1, "max_expression_depth": 250}) as connection:
        yield lambda text: connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0]


def code_of(text: str, parse: Parse) -> str | None:
    try:
        read(text, parse)
    except GatewayError as error:
        assert error.message.count(".") >= 1
        assert "—" not in error.message
        assert error.position is None or 0 <= error.position <= len(text.encode())
        return error.code.removeprefix("DPSQL-")
    return None


def test_there_are_many_hostile_statements() -> None:
    assert len(CASES) >= 400
    assert len({json.dumps(case["text"]) for case in CASES}) == len(CASES)


@pytest.mark.long
def test_hostile_statements(parse: Parse) -> None:
    """Each is refused with its code, or taken, on either version of DuckDB."""
    wrong = []
    for case in CASES:
        codes = case["code"] if isinstance(case["code"], list) else [case["code"]]
        found = code_of(whole(case["text"]), parse)
        if found not in codes:
            wrong.append((str(case["text"])[:100], codes, found))
    assert not wrong


def test_no_taken_statement_reads_a_table_where_it_is_taken_apart(parse: Parse) -> None:
    """What runs after the calls reads `released_i` alone; tables stand in the trees of dp_query."""
    for case in CASES:
        if case["code"] is None and not isinstance(case["text"], list):
            found = read(whole(case["text"]), parse)
            if found.post:
                names = tables_of(read_tree(parse(found.post)))
                assert {one[2] for one in names} <= {f"released_{number}" for number in range(len(found.calls))}
                assert all(one[:2] == ("", "main") for one in names)


def only(statement: Statement) -> PrivateCall:
    [call] = statement.calls
    return call


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM dp_count('visits', epsilon := 0.0777)",
        "FROM DP_COUNT('visits', EPSILON := 0.07770)",
        "FROM dp_count('visits', \"epsilon\" := 7.77e-2)",
        "FROM dp_count('visits', epsilon => 0.0777)",
        "FROM dp_count(source := 'visits', epsilon := +0.0777)",
    ],
)
def test_one_call_in_many_spellings(text: str, parse: Parse) -> None:
    assert only(read(text, parse)) == PrivateCall("dp_count", "visits", {"epsilon": {"number": "0.0777"}})


def test_arguments(parse: Parse) -> None:
    found = read(
        "FROM dp_sis('t', 'y', k := 3, features := ['a', 'b'], lower := {'a': -1.50, 'b': NULL}, upper := 100000000000000000000001,"
        " intercept := true, epsilon := -1e3, names := release('r'))".replace("intercept := true, ", "").replace(
            "names :=", "score :="
        ),
        parse,
    )
    assert only(found).arguments == {
        "target": "y",
        "k": {"number": "3"},
        "features": ["a", "b"],
        "lower": {"struct": {"a": {"number": "-1.5"}, "b": None}},
        "upper": {"number": "100000000000000000000001"},
        "epsilon": {"number": "-1000"},
        "score": {"release": "r"},
    }


def test_equal_calls_are_one(parse: Parse) -> None:
    found = read("SELECT a.n, b.n FROM dp_count('v') a, dp_count('v') AS b(n), DP_COUNT('w') c", parse)
    assert [call.source for call in found.calls] == ["v", "w"]
    assert '"main"."released_0" AS "b" ("n")' in found.post
    assert '"main"."released_1" AS "c"' in found.post


@pytest.mark.parametrize("star", ["*.n", "(*).n", "1 + *", "* IS NULL", "CASE WHEN true THEN * END"])
def test_a_star_within_an_expression_is_refused(star: str, parse: Parse) -> None:
    """Found by an hour of statements at random: ``*.n`` was written as a call, which is read as another statement."""
    assert code_of(f"SELECT {star} FROM dp_count('v')", parse) in ("G001", "G008")
    assert code_of(f"SELECT 1 IN (SELECT {star} AS n FROM dp_count('v'))", parse) in ("G001", "G008")


@pytest.mark.parametrize("given", ["'visits'", "details := true"])
def test_an_argument_that_changes_nothing_is_refused(given: str, parse: Parse) -> None:
    with pytest.raises(GatewayError, match=r"dp_budget has no .*It takes none"):
        read(f"FROM dp_budget({given})", parse)


def test_tables_are_one_query_with_its_tree(parse: Parse) -> None:
    call = only(read("SELECT ward, count(*) FROM visits GROUP BY ward", parse))
    assert (call.function, call.source, set(call.arguments)) == ("dp_query", None, {"tree"})
    assert tables_of(read_tree(str(call.arguments["tree"]))) == (("", "", "visits"),)


@pytest.mark.parametrize(
    "text", ["SELECT * FROM v LIMIT 0", "SELECT a FROM v WHERE 1 = 0", "SELECT * FROM v WHERE false"]
)
def test_probes_are_free(text: str, parse: Parse) -> None:
    assert only(read(text, parse)).arguments["free"] is True


def test_a_text_for_dp_query_is_its_tree(parse: Parse) -> None:
    call = only(read("FROM dp_query('SELECT count(*) FROM v', epsilon := 1)", parse))
    assert call.arguments.keys() == {"epsilon", "tree"}
    assert read_tree(str(call.arguments["tree"])) == read_tree(parse("SELECT count(*) FROM v"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '', count(*) FILTER (WHERE a IS NULL AND b = 0 AND NOT false AND c = NULL) FROM v",
        "SELECT count(*) FROM v LIMIT 0",
    ],
)
def test_a_tree_says_the_same_without_places(text: str, parse: Parse) -> None:
    tree = str(only(read(text, parse)).arguments["tree"])
    assert read_tree(tree) == read_tree(parse(text))
    assert len(tree) < len(parse(text))


def test_what_is_shown(parse: Parse) -> None:
    assert only(read("SHOW TABLES", parse)) == PrivateCall("show_tables", None, {})
    assert only(read("DESCRIBE visits", parse)) == PrivateCall("describe", "visits", {})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("SET epsilon = 0.1", {"epsilon": {"number": "0.1"}}),
        ("set dataset to 'a b';", {"dataset": "a b"}),
        ("SET fresh = TRUE", {"fresh": True}),
        ("SET max_age = NULL", {"max_age": None}),
        ('SET "delta" = 1e-6', {"delta": {"number": "1e-6"}}),
    ],
)
def test_settings(text: str, settings: dict[str, object], parse: Parse) -> None:
    assert read(text, parse) == Statement(settings=settings)


def test_a_hint_and_a_place(parse: Parse) -> None:
    with pytest.raises(GatewayError) as caught:
        read("SELECT 1, cont(n) FROM dp_count('v')", parse)
    assert (caught.value.code, caught.value.position) == ("DPSQL-G007", 10)
    assert "count" in caught.value.message
    with pytest.raises(GatewayError) as caught:
        read("SELECT * FROM visits", parse)
    assert caught.value.hint == "SELECT count(*) FROM visits"


def test_what_is_not_known_of_a_tree_is_refused(parse: Parse) -> None:
    """A field, a class or a type that a later DuckDB brings is refused wherever it stands."""
    tree = json.loads(
        parse(
            "SELECT n + 1, CASE WHEN n IN (1, 2) THEN sum(n) OVER (ORDER BY n) END FROM dp_count('v') WHERE n BETWEEN 1 AND 2"
        )
    )

    def records(part: object) -> Iterator[dict[str, object]]:
        if isinstance(part, dict):
            yield part
        for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from records(one)

    nodes = [one for one in records(tree["statements"][0]["node"]) if "class" in one or "type" in one]
    for record in nodes:
        changes = (
            [{"newer_field": "x"}] if "class" in record or str(record["type"]).endswith(("_NODE", "_FUNCTION")) else []
        )
        if record.get("class") not in (None, "TYPE"):
            changes.append({"class": "NEWER"})
        if str(record.get("type")).endswith(("_NODE", "_FUNCTION")) and "class" not in record:
            changes.append({"type": "NEWER_NODE"})
        for change in changes:
            before = dict(record)
            record.update(change)
            text = json.dumps(tree)
            record.clear()
            record.update(before)
            with pytest.raises(GatewayError):
                read("SELECT 1", partial(lambda given, _: given, text))
    assert len(nodes) > 20


def test_the_calls_are_those_of_the_registry() -> None:
    assert {"dp_count", "dp_query", "dp_budget", "dp_estimate", "dp_sis"} <= set(CALLS)
    assert not [name for name in CALLS if name.startswith(("exact_", "dpsql_", "dp_protect", "dp_predict"))]


def test_rows_of_a_synthetic_table_are_a_table_of_the_statement(parse: Parse) -> None:
    found = read("SELECT ward, count(*) FROM dp_synthetic_rows(7, n := 100, seed := 'x') GROUP BY ward", parse)
    number, n = ({"number": one} for one in ("7", "100"))
    assert only(found) == PrivateCall("dp_synthetic_rows", None, {"release": number, "n": n, "seed": "x"})
    assert "released_0" in found.post
    assert code_of("FROM dp_synthetic_rows(7, dataset := 'staff')", parse) == "G012"
    assert code_of("FROM dp_synthetic_rows(dp_count('visits'))", parse) is not None


@cases(
    ("code", "message", "sql", "hint"),
    [
        (
            "P065",
            "sql groups by 'x'. Give keys := {\"x\": [...]} from public knowledge.",
            "SELECT x, count(*) FROM t GROUP BY x;",
            "FROM dp_query($$SELECT x, count(*) FROM t GROUP BY x$$, delta := 1e-6)",
        ),
        (
            "P024",
            "lower must be a finite number. Give numbers by column: lower := {days: 0}.",
            "SELECT avg(days) FROM t",
            "FROM dp_query($$SELECT avg(days) FROM t$$, lower := {days: 0})",
        ),
        ("P066", "Write keys := {COLUMN: ['A', 'B']}.", "FROM dp_query('SELECT 1', keys := ['A'])", None),
        ("P066", "Write keys := {COLUMN: ['A', 'B']}.", "SELECT $$ $$ FROM t", None),
        ("P102", "sql returns rows of people. Ask for counts.", "SELECT * FROM t", None),
    ],
)
def test_a_refusal_advises_what_the_door_accepts(code: str, message: str, sql: str, hint: str | None) -> None:
    error = advised(ParameterError(code, message), sql)
    assert error.hint == hint
    assert error.message.startswith(message)
    assert advised(GatewayError("G015", "x := y", hint="theirs"), sql).hint == "theirs"
