"""The broker's desk, asked by a hostile front: nothing is read, charged or told but what was granted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsql
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Lines, Rates
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger
from support.cases import cases
from support.gateway_broker import SECRET, Gateway, count, made, number, tree_of

QUICK = Rates(factor=10_000.0)
AT_ONCE = Buckets(sleep=lambda _: None)


@dataclass
class Served:
    """A desk over a database, with its ledger."""

    desk: Desk
    gateway: Gateway
    context: dpsql.Context

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.context.ledger

    def ask(self, principal: str, want: str = "call", **request: object) -> tuple[dict[str, Any], list[pa.Table]]:
        """Ask with the token of a principal."""
        return self.desk.answer({"token": self.gateway.tokens[principal], "want": want, **request})

    def code(self, principal: str, **request: object) -> str:
        """Return the code of a refusal, or ''."""
        reply, _ = self.ask(principal, **request)
        return str(reply.get("error", {}).get("code", ""))


GRANTS: dict[str, dict[str, Any]] = {
    "ana": {"epsilon": 40},
    "ben": {"default_epsilon": 0.2, "functions": ["dp_count"]},
    "cora": {"share": True, "epsilon": 1},
    "dan": {"share": True, "epsilon": 1},
    "eve": {"role": "auditor", "total": True},
    "fay": {"sources": ["patients", "adults"]},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    gateway = made(tmp_path_factory.mktemp("desk"), **GRANTS)
    with dpsql.Context(gateway.database) as context:
        yield Served(Desk(context, Audit(gateway.log), QUICK, buckets=AT_ONCE), gateway, context)


def query(sql: str, epsilon: str | None = "0.1", **arguments: object) -> dict[str, Any]:
    given = {} if epsilon is None else {"epsilon": number(epsilon)}
    return {"function": "dp_query", "source": None, "arguments": {"tree": tree_of(sql), **given, **arguments}}


# What the front may send, and what comes of it: none of it reads, charges or moves a cap.
HOSTILE: dict[str, tuple[dict[str, Any], set[str]]] = {
    **{f"source {name!r}": (count(source=name), {"G015"}) for name in (
        "PATIENTS", "main.patients", '"patients"', " patients", "patients ", "(FROM patients)", "/etc/passwd", "staff",
        "hospital.main.patients", "nothing", "patients;", "patients--", "read_csv('/etc/passwd')", "patient\u017f",
        "", "patients\x00", "duckdb_tables()", "adults", "dpsql_ledger", "information_schema.tables",
    )},
    "no source": (count(source=None), {"G014"}),
    "claimed dataset": (count(dataset="staff"), {"G016"}),
    "engine": (count(engine="lake"), {"G016"}),
    "release": (count(release="weekly"), {"G016"}),
    "NaN": (count("NaN"), {"G012"}),
    "inf": (count("inf"), {"G012"}),
    "zero": (count("0"), {"P001"}),
    "minus one": (count("-1"), {"P001"}),
    "large": (count("1e308"), {"G017", "P024", "P025", "P001"}),
    "tiny": (count("1e-999"), {"P001"}),
    "float": ({**count(), "arguments": {"epsilon": 0.1}}, {"G012"}),
    "integer": ({**count(), "arguments": {"epsilon": 1}}, {"G012"}),
    "true": ({**count(), "arguments": {"epsilon": True}}, {"P001"}),
    "list": ({**count(), "arguments": {"epsilon": [number(1)]}}, {"P001"}),
    "unknown argument": (count(epsilom=number(1)), {"P016"}),
    "dunder argument": (count(__class__="x"), {"P016"}),
    "self": (count(self=number(1)), {"P016"}),
    "NUL in a key": (count(by="ward\x00"), {"G012"}),
    "surrogate": (count(by="ward\ud800"), {"G012"}),
    "quotes in a column": (count(by='ward" FROM staff --'), {"S002", "S004", "P065", "P060"}),
    "condition with a subquery": (count(condition="age > (SELECT salary FROM staff)"), {"P070"}),
    "condition with getenv": (count(condition="getenv('HOME') = 'x'"), {"P070"}),
    "condition with error": (count(condition="error('x')"), {"P070"}),
    "condition with sleep": (count(condition="sleep_ms(9) > 1"), {"P070"}),
    "condition with a second statement": (count(condition="true; DROP TABLE patients"), {"P070"}),
    "condition that is not a tree": (count(condition={"condition": "age > 3"}), {"P070"}),
    "condition as text": (count(condition=["age > 3"]), {"G012"}),
    "condition as text alone": ({**count(), "arguments": {"epsilon": number(1), "condition": "age > 3"}}, {"G012"}),
    "condition of another query": (count(condition={"condition": tree_of("SELECT 1 FROM staff WHERE age > 3")}), {"P070"}),
    "condition of two queries": (count(condition="age > 3 UNION SELECT 1 FROM staff"), {"P070"}),
    "deep": (count(by=[[[[[["ward"]]]]]]), {"G012"}),
    "many": (count(by=["x"] * 20_000), {"G012"}),
    "two kinds": (count(by={"number": "1", "struct": {}}), {"G012"}),
    "another's release": (count(by={"release": "1"}), {"G018"}),
    "protect": ({"function": "dp_protect", "source": "patients", "arguments": {}}, {"G007"}),
    "public": ({"function": "dp_public", "source": "staff", "arguments": {}}, {"G007"}),
    "derive": ({"function": "dp_derive", "source": "staff", "arguments": {}}, {"G007"}),
    "unplaced": ({"function": "dp_unplaced", "source": None, "arguments": {}}, {"G007"}),
    "predict": ({"function": "dp_predict", "source": "patients", "arguments": {}}, {"G007"}),
    "ledger": ({"function": "dp_ledger", "source": None, "arguments": {}}, {"G007"}),
    "exact": ({"function": "exact_moments", "source": "patients", "arguments": {}}, {"G007"}),
    "sql": ({"function": "sql", "source": "SELECT * FROM staff", "arguments": {}}, {"G007"}),
    "dunder": ({"function": "__class__", "source": "patients", "arguments": {}}, {"G007"}),
    "close": ({"function": "close", "source": None, "arguments": {}}, {"G007"}),
    "no function": ({"function": None, "source": "patients", "arguments": {}}, {"G012"}),
    "arguments of no kind": ({**count(), "arguments": ["epsilon"]}, {"G012"}),
    "text of a query": ({"function": "dp_query", "source": None, "arguments": {"sql": "SELECT 1"}}, {"G016"}),
    "query without a tree": ({"function": "dp_query", "source": None, "arguments": {}}, {"G012"}),
    "rows of no synthetic table": (
        {"function": "dp_synthetic_rows", "source": None, "arguments": {"release": number(1)}}, {"G018"}
    ),
    "rows of a name": (
        {"function": "dp_synthetic_rows", "source": None, "arguments": {"release": "twin"}}, {"G018"}
    ),
    "rows of another dataset": (
        {"function": "dp_synthetic_rows", "source": None, "arguments": {"release": number(1), "dataset": "staff"}},
        {"G012"},
    ),
    "no tree": ({"function": "dp_query", "source": None, "arguments": {"tree": "SELECT 1"}}, {"G003"}),
    "query of staff": (query("SELECT count(*) FROM staff"), {"G015"}),
    "query of a spelling": (query("SELECT count(*) FROM PATIENTS"), {"G015"}),
    "query of a schema": (query("SELECT count(*) FROM main.patients"), {"G015"}),
    "query of a file": (query("SELECT count(*) FROM '/etc/passwd'"), {"G015"}),
    "query of both": (query("SELECT count(*) FROM patients, staff"), {"G015"}),
    "query in a subquery": (query("SELECT count(*) FROM patients WHERE id IN (SELECT salary FROM staff)"), {"G015"}),
    "query of a function": (
        query("SELECT count(*) FROM read_csv('/etc/passwd')"), {"G007", "G008", "G009"}
    ),
    "query of settings": (
        query("SELECT count(*), current_setting('threads') FROM patients"), {"G007"}
    ),
    "query of getenv": (query("SELECT count(*) FROM patients WHERE getenv('HOME') = 'x'"), {"G007"}),
    "query of the catalog": (query("SELECT count(*) FROM duckdb_tables()"), {"G007"}),
    "query of information_schema": (query("SELECT * FROM information_schema.tables"), {"G015"}),
    "query of nothing": (query("SELECT count(*) FROM (VALUES (1), (2)) t(a)"), {"G005"}),
    "query without FROM": (query("SELECT 1"), {"G015"}),
    "keys of a table": (count(by="ward", keys="staff"), {"P071"}),
    "query of pg_catalog": (query("SELECT count(*) FROM pg_catalog.pg_class"), {"G015"}),
    "query of a catalog view": (query("SELECT estimated_size FROM duckdb_tables LIMIT 0"), {"G015"}),
    "query of the catalog in a WITH": (
        query("WITH patients AS (SELECT * FROM sqlite_master) SELECT count(*) FROM patients"), {"G015"}
    ),
    "query of shown tables": (query("SELECT count(*) FROM (SHOW TABLES)"), {"G005", "G007", "G008", "P101", "G004"}),
    "query of rows": (query("SELECT * FROM patients"), {"P102"}),
    "claim of a query": (query("SELECT count(*) FROM patients", dataset="staff"), {"G016", "P016"}),
    "fresh within a query": (query("SELECT count(*) FROM patients", fresh=True), {"G016"}),
    "settings of no kind": ({**count(), "settings": {"epsilon": 1}}, {"G012"}),
    "setting of nothing": ({**count(), "settings": {"max_age": "-1"}}, {"G012"}),
    "estimate of a class": (
        {"function": "dp_estimate", "source": None, "arguments": {"function": "__class__"}}, {"G007"}
    ),
    "estimate of a text": (
        {"function": "dp_estimate", "source": None, "arguments": {"function": "dp_query", "sql": "SELECT 1"}}, {"G012"}
    ),
    "describe of staff": ({"function": "describe", "source": "staff", "arguments": {}}, {"G015"}),
}  # fmt: skip


@cases("case", HOSTILE, quick=22)
@cases("want", ["call", "estimate"])
def test_what_is_not_granted_is_refused(served: Served, case: str, want: str) -> None:
    request, codes = HOSTILE[case]
    before = served.ledger.head()
    reply, tables = served.ask("ana", want=want, **request)
    if want == "call" or request["function"] not in ("dp_estimate", "describe", "dp_synthetic_rows"):
        told = reply.get("error") or (reply.get("estimate") or {}).get("refusal") or {}
        assert told.get("code") in codes, (reply, case)
    assert tables == []
    assert SECRET not in json.dumps(reply)
    assert served.ledger.head() == before


@pytest.mark.parametrize("name", ["dataset", "engine", "release"])
def test_whose_rows_and_which_answer_are_not_stated_in_a_call(served: Served, name: str) -> None:
    assert served.code("ana", **count(**{name: "patients"})) == "G016"
    assert served.code("ana", **query("SELECT count(*) FROM patients", **{name: "patients"})) == "G016"


def test_there_are_as_many_hostile_cases_as_were_asked_for() -> None:
    assert len(HOSTILE) >= 38


@pytest.mark.parametrize("name", ["staff", "nothing", "/etc/passwd"])
def test_what_exists_is_told_like_what_does_not(served: Served, name: str) -> None:
    expected = served.ask("ana", **count(source="no_such_table"))[0]
    assert served.ask("ana", **count(source=name))[0] == expected
    assert served.ask("ana", want="describe", name=name)[0] == expected


@cases(
    "token", [None, "", "dpsql_", 7, ["x"], {"a": 1}, "dpsql_" + "a" * 43, "A" * 10**6, "\x00"]
)  # fmt: skip
@cases("want", ["call", "datasets", "releases"])
def test_without_a_token_nothing_is_told(served: Served, token: object, want: str) -> None:
    before = served.ledger.head()
    reply, tables = served.desk.answer({"token": token, "want": want, **count()})
    assert (reply["error"]["code"], tables) == ("G020", [])
    assert served.ledger.head() == before


@cases("request_", [{}, {"want": None}, {"want": ["call"]}, {"want": "__init__"}, {"want": "answer"}, {"want": {}}])
def test_requests_of_no_kind(served: Served, request_: dict[str, object]) -> None:
    assert served.desk.answer(request_)[0]["error"]["code"] == "G020"
    token = served.gateway.tokens["ana"]
    assert served.desk.answer({"token": token, **request_})[0]["error"]["code"] == "G098"


@pytest.mark.long
def test_equal_questions_are_one_release_however_they_are_written(served: Served) -> None:
    asked = [
        served.ask("ana", **count(spelled))[0]["receipts"][0]
        for spelled in ("0.07770", "7.77e-2", "0.0777", ".0777", "+0.0777")
    ]
    assert len({one["entry"] for one in asked}) == 1
    assert [one["charged"] for one in asked] == [True, False, False, False, False]
    queries = [
        served.ask("ana", **query(sql, "0.11"))[0]["receipts"][0]
        for sql in ("SELECT count(*) FROM patients", "select COUNT(*) as n from patients order by 1 limit 3")
    ]
    assert queries[0]["entry"] == queries[1]["entry"]


def test_a_view_that_is_replaced_is_a_new_question(served: Served) -> None:
    entries = []
    for least in (18, 18, 30):
        served.context.sql(f"CREATE OR REPLACE VIEW adults AS SELECT * FROM patients WHERE age >= {least}")
        for call in (count(source="adults"), query("SELECT count(*) FROM adults")):
            reply, _ = served.ask("fay", **call)
            entries.append(reply["receipts"][0]["entry"])
    assert entries[:2] == entries[2:4]
    assert len(set(entries)) == 4


def test_fresh_is_a_new_draw_and_a_key_makes_it_repeatable(served: Served) -> None:
    first = served.ask("ana", **count("0.12"))[0]["receipts"][0]
    fresh = served.ask("ana", **count("0.12"), settings={"fresh": "true"})[0]["receipts"][0]
    assert fresh["charged"]
    assert fresh["entry"] != first["entry"]
    assert served.ask("ana", **count("0.12"))[0]["receipts"][0]["entry"] == fresh["entry"]
    keyed = [
        served.ask("ana", **count("0.12"), settings={"fresh": "true", "idempotency_key": key})[0]["receipts"][0]
        for key in ("a", "a", "b")
    ]
    assert [one["charged"] for one in keyed] == [True, False, True]
    old = served.ask("ana", **count("0.12"), settings={"max_age": "0"})[0]["receipts"][0]
    assert old["charged"]


def test_who_shares_has_one_answer_and_others_have_their_own(served: Served) -> None:
    cora, dan, ana = (served.ask(who, **count("0.13"))[0]["receipts"][0] for who in ("cora", "dan", "ana"))
    assert cora["entry"] == dan["entry"] != ana["entry"]
    assert not dan["charged"]
    spent = {row["dataset"]: row["epsilon_spent"] for row in served.ask("dan", "budget")[0]["budget"]}
    assert spent == {"patients": 0.0}


def test_only_own_releases_are_seen(served: Served) -> None:
    mine = served.ask("ana", **count("0.14"))[0]["receipts"][0]["entry"]
    assert mine in {one["entry"] for one in served.ask("ana", "releases")[0]["releases"]}
    assert mine not in {one["entry"] for one in served.ask("ben", "releases")[0]["releases"]}
    again, [table] = served.ask("ana", "release", number=mine)
    assert again["receipts"][0]["entry"] == mine
    assert table.num_rows == 1
    for number_ in (mine, 10**9, -1, "1", None, True, 1.5):
        assert served.code("ben", want="release", number=number_) == "G018"


def test_a_grant_says_which_functions_and_what_they_spend(served: Served) -> None:
    reply, _ = served.ask("ben", function="dp_count", source="patients", arguments={})
    assert reply["receipts"][0]["epsilon"] == "0.2"
    reply, _ = served.ask("ben", function="dp_count", source="patients", arguments={}, settings={"epsilon": "0.03"})
    assert reply["receipts"][0]["epsilon"] == "0.03"
    for call in (query("SELECT count(*) FROM patients"), {"function": "dp_avg", "source": "patients", "arguments": {}}):
        assert served.code("ben", **call) == "G009"
    assert served.code("eve", **count()) == "G009"


def test_the_order_of_what_a_question_spends(tmp_path: Path) -> None:
    """The statement goes before SET, SET before the grant, and the grant before the owner; delta where it is needed."""
    gateway = made(tmp_path, ana={"default_epsilon": 0.2, "default_delta": 1e-7}, ben={})
    with dpsql.Context(gateway.database) as context:
        context.dp_protect(
            "patients",
            epsilon=100,
            delta=1e-3,
            default_epsilon=0.4,
            default_delta=1e-6,
            default_daily_epsilon=1.6,
            replace=True,
        )
        served = Served(Desk(context, Audit(gateway.log), QUICK, buckets=AT_ONCE), gateway, context)

        def spent(principal: str, age: int, sql: str = "", **settings: str) -> tuple[str, str, str]:
            number_ = {"epsilon": number(settings.pop("stated"))} if "stated" in settings else {}
            arguments = {"tree": tree_of(sql or f"SELECT count(*) FROM patients WHERE age > {age}"), **number_}
            reply, _ = served.ask(principal, function="dp_query", source=None, arguments=arguments, settings=settings)
            if "error" in reply:
                return reply["error"]["code"], "", ""
            [receipt] = reply["receipts"]
            return receipt["epsilon"], receipt["delta"], ",".join(receipt["defaults"])

        ages = "SELECT age, count(*) FROM patients GROUP BY age"
        assert spent("ana", 1, stated="0.3", epsilon="0.5") == ("0.3", "0", "")
        assert spent("ana", 2, epsilon="0.5") == ("0.5", "0", "")
        assert spent("ana", 3) == ("0.2", "0", "epsilon")
        assert spent("ben", 4) == ("0.4", "0", "epsilon")
        halves = ages.replace("age", "age * 1.5", 1).replace("BY age", "BY 1")
        assert spent("ana", 0, halves, delta="1e-5") == ("0.2", "1e-05", "epsilon")
        assert spent("ana", 0, halves) == ("0.2", "1e-07", "delta,epsilon")
        assert spent("ben", 0, halves) == ("0.4", "1e-06", "delta,epsilon")
        assert spent("ben", 5)[0] == "0.4"
        usual = [{"function": "dp_count", "source": "patients", "arguments": {"by": by}} for by in (None, "ward")]
        assert served.code("ben", calls=usual) == "B022"  # together, though each would fit
        reply, _ = served.ask("ben", calls=[usual[0], count("5")])
        assert [receipt["epsilon"] for receipt in reply["receipts"]] == ["0.4", "5"]
        assert spent("ben", 7)[0] == "B022"
        assert spent("ben", 7, epsilon="0.4") == ("0.4", "0", "")
        assert spent("ben", 5) == ("0.4", "0", "epsilon")  # stored
        assert spent("ana", 8) == ("0.2", "0", "epsilon")
        listed = {principal: served.ask(principal, "datasets")[0]["datasets"][0] for principal in ("ana", "ben")}
        assert [(row["default_epsilon"], row["default_delta"]) for row in listed.values()] == [
            ("0.2", "1e-07"),
            ("0.4", "1e-06"),
        ]
        assert served.ask("ben", "describe", name="patients")[0]["describe"]["stated"]["default_epsilon"] == "0.4"


def test_keys_of_what_is_not_public_are_refused_alike(served: Served) -> None:
    told = [
        str(served.ask("ana", **count(by="ward", keys=name))[0]["error"]).replace(name, "?")
        for name in ("staff", "nothing", "adults")
    ]
    assert len(set(told)) == 1


def test_an_estimate_is_free_and_says_what_would_refuse(served: Served) -> None:
    before = served.ledger.head()
    priced = served.ask("ana", "estimate", **count("0.5"))[0]["estimate"]
    assert (priced["epsilon"], priced["free"], priced["refusal"]) == ("0.5", False, None)
    assert served.ask("ana", "estimate", **count("41"))[0]["estimate"]["refusal"]["code"] == "G017"
    assert served.ledger.head() == before
    served.ask("ana", **count("0.15"))
    assert served.ask("ana", "estimate", **count("0.15"))[0]["estimate"]["free"]


def test_the_totals_of_a_dataset_are_for_those_who_may_see_them(served: Served) -> None:
    served.ledger.grant(Grant.of("gus", "patients"))
    served.gateway.tokens["gus"] = served.ledger.issue_token("gus").text
    reply, _ = served.ask("gus", **count("200"))
    assert reply["error"]["code"] == "B001"
    assert not any(letter.isdigit() for letter in reply["error"]["message"])
    refusal = served.ask("gus", "estimate", **count("200"))[0]["estimate"]["refusal"]
    assert refusal == reply["error"]
    assert "total_spent" not in served.ask("ana", "budget")[0]["budget"][0]
    assert "total_spent" in served.ask("eve", "budget")[0]["budget"][0]


def test_a_statement_asks_for_what_each_grant_of_its_tables_allows(served: Served) -> None:
    served.ledger.grant(Grant.of("ivy", "patients"))
    served.ledger.grant(Grant.of("ivy", "staff", functions=["dp_count"], total=True))
    served.gateway.tokens["ivy"] = served.ledger.issue_token("ivy").text
    before = served.ledger.head()
    for one, other in (("patients", "staff"), ("staff", "patients")):
        both = f"SELECT (SELECT count(*) FROM {one}) AS n, (SELECT count(*) FROM {other}) AS m"
        assert served.code("ivy", **query(both)) == "G009"
    # What is left of all datasets shows in refusals to those alone who may see the totals of each.
    told = served.ask("ivy", **count("200"))[0]["error"]
    assert told["code"] == "B001"
    assert not any(letter.isdigit() for letter in told["message"])
    assert served.ledger.head() == before


def test_the_catalog_is_read_by_nobody_beside_a_dataset_either(served: Served) -> None:
    beside = "SELECT count(*) AS n, (SELECT max(table_name) FROM information_schema.tables) AS t FROM patients"
    assert served.code("ana", **query(beside)) == "G015"


def test_labels_that_their_owner_did_not_declare_are_not_described(tmp_path: Path) -> None:
    gateway = made(tmp_path, ana={})
    with dpsql.Context(gateway.database) as context:
        context.sql(f"CREATE TABLE beds AS SELECT i AS id, '{SECRET}'::ENUM('{SECRET}') AS who FROM range(9) AS r(i)")
        context.dp_protect("beds", epsilon=9, privacy_unit="id", max_rows_per_unit=1)
        context.ledger.grant(Grant.of("ana", "beds"))
        here = Served(Desk(context, Audit(None), QUICK, buckets=AT_ONCE), gateway, context)
        told = here.ask("ana", "describe", name="beds")[0]["describe"]
        assert [(one["name"], one["type"]) for one in told["columns"]] == [("id", "BIGINT"), ("who", "VARCHAR")]
        _, [table] = here.ask("ana", function="describe", source="beds", arguments={})
        assert SECRET not in str(table.to_pylist())


def test_what_is_told_of_a_dataset_is_public(served: Served) -> None:
    told = served.ask("ana", "describe", name="patients")[0]["describe"]
    assert [(one["name"], one["type"]) for one in told["columns"]] == [
        ("id", "BIGINT"), ("ward", "VARCHAR"), ("age", "DOUBLE"),
    ]  # fmt: skip
    assert told["columns"][2]["upper"] == "90"
    assert [one["name"] for one in served.ask("fay", "datasets")[0]["datasets"]] == ["adults", "patients"]
    reply, [table] = served.ask("ana", function="dp_budget", source=None, arguments={})
    assert reply == {"receipts": []}
    assert table.column("dataset").to_pylist() == ["patients"]
    _, [table] = served.ask("ana", function="show_tables", source=None, arguments={})
    assert table.to_pydict() == {"name": ["patients"]}
    _, [table] = served.ask(
        "ana", function="dp_estimate", source=None, arguments={"function": "dp_count", "epsilon": number("0.1")}
    )
    assert "epsilon" in table.column("quantity").to_pylist()


@pytest.mark.long
def test_rows_of_a_synthetic_table_are_free_and_of_its_owner_alone(tmp_path: Path) -> None:
    gateway = made(tmp_path, **GRANTS, ida={"epsilon": 9, "delta": 1e-5})
    with dpsql.Context(gateway.database) as context:
        stated: dict[str, Any] = {"privacy_unit": "id", "max_rows_per_unit": 1, "keys": {"ward": ["A", "B"]}}
        context.dp_protect(
            "patients", epsilon=100, delta=1e-4, replace=True, lower={"age": 0}, upper={"age": 90}, **stated
        )
        served = Served(Desk(context, Audit(gateway.log), QUICK, buckets=AT_ONCE), gateway, context)
        asked = {"columns": ["ward", "age"], "epsilon": number(5), "delta": number("1e-6")}
        reply, tables = served.ask("ida", function="dp_synthetic", source="patients", arguments=asked)
        assert "error" not in reply, reply
        [receipt], [report] = reply["receipts"], tables
        assert report.num_rows == 1
        spent = served.ledger.entries()[-1].sequence

        def rows(principal: str, **more: object) -> tuple[dict[str, Any], list[pa.Table]]:
            given = {"release": number(receipt["entry"]), **more}
            return served.ask(principal, function="dp_synthetic_rows", source=None, arguments=given)

        reply, [table] = rows("ida", n=number(50), seed=number(1))
        assert reply == {"receipts": []}
        assert (table.column_names, table.num_rows) == (["ward", "age"], 50)
        assert table.equals(rows("ida", n=number(50), seed="1")[1][0])
        assert rows("ida", n=number(1_000_001))[0]["error"]["code"] == "P050"
        assert rows("ida", n=number("1.5"))[0]["error"]["code"] == "P002"
        assert rows("ida", source="patients")[0]["error"]["code"] == "G012"
        for other in ("ana", "cora", "eve", "fay"):
            assert rows(other)[0]["error"]["code"] == "G018"
        assert served.ledger.entries()[-1].sequence == spent


def test_a_known_token_costs_nothing(served: Served) -> None:
    served.ask("ana", "datasets")
    before = served.gateway.log.read_text()
    assert served.ask("ana", "known") == ({"principal": "ana"}, [])
    assert served.gateway.log.read_text() == before


def test_a_revoked_principal_is_refused_at_once(served: Served) -> None:
    served.ledger.grant(Grant.of("hal", "patients"))
    served.gateway.tokens["hal"] = served.ledger.issue_token("hal").text
    assert served.code("hal", **count()) == ""
    served.ledger.revoke("hal", "patients")
    assert served.code("hal", **count()) == "G015"
    served.ledger.revoke("hal")
    assert served.code("hal", **count()) == "G020"


def test_a_grant_that_goes_while_a_call_runs_is_judged_where_it_is_charged(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ledger.grant(Grant.of("ian", "patients"))
    served.gateway.tokens["ian"] = served.ledger.issue_token("ian").text
    charge, spent = Ledger.charge, served.ledger.budgets()

    def revoked_first(self: Ledger, *arguments: Any, **named: Any) -> Any:
        Ledger.revoke(self, "ian")
        return charge(self, *arguments, **named)

    monkeypatch.setattr(Ledger, "charge", revoked_first)
    assert served.code("ian", **count("0.16")) in ("G015", "I001")
    assert served.ledger.budgets() == spent


def test_nothing_of_a_failure_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr(dpsql.Context, "planned", fail)
    reply, _ = served.ask("ana", **count("0.17"))
    assert reply["error"]["code"] == "I000"
    assert SECRET not in json.dumps(reply)
    told = reply["error"]["message"].split()[-1].rstrip(".")
    assert told in served.gateway.log.read_text()


def test_duckdbs_words_about_rows_are_not_told(served: Served) -> None:
    served.context.sql(
        "CREATE OR REPLACE VIEW raising AS SELECT id, ward, (ward || 'x')::INTEGER::DOUBLE AS age FROM patients"
    )
    served.ledger.grant(Grant.of("jan", "patients", sources=["raising"]))
    served.gateway.tokens["jan"] = served.ledger.issue_token("jan").text
    call = {"function": "dp_avg", "source": "raising", "arguments": {
        "target": "age", "epsilon": number("0.1"), "lower": number(0), "upper": number(9)}}  # fmt: skip
    reply, _ = served.ask("jan", **call)
    text = json.dumps(reply)
    assert "error" in reply
    assert "Ax" not in text
    assert "Bx" not in text


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.long
def test_many_clients_with_one_new_question_are_one_draw_and_one_charge(served: Served) -> None:
    before = {row.dataset: row.releases for row in served.ledger.budgets()}["patients"]
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: served.ask("ana", **count("0.18")), range(16)))
    receipts = [reply["receipts"][0] for reply, _ in replies]
    assert len({one["entry"] for one in receipts}) == 1
    assert sum(one["charged"] for one in receipts) == 1
    assert len({str(table.to_pylist()) for _, [table] in replies}) == 1
    assert {row.dataset: row.releases for row in served.ledger.budgets()}["patients"] == before + 1


@pytest.mark.odds("0: looks at codes and charges")
@pytest.mark.long
def test_a_cap_holds_under_many_clients(served: Served) -> None:
    served.ledger.grant(Grant.of("kim", "patients", epsilon=0.5))
    served.gateway.tokens["kim"] = served.ledger.issue_token("kim").text
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda n: served.code("kim", **count(f"0.1{n:03}")), range(10)))
    assert codes.count("") == 4  # of 0.1 and a little each
    assert set(codes) == {"", "G017"}
    assert served.ask("kim", "budget")[0]["budget"][0]["epsilon_spent"] <= 0.5


def test_what_is_nested_deep_is_refused(served: Served) -> None:
    deep: object = "x"
    for _ in range(5_000):
        deep = [deep]
    assert served.code("ana", **count(by=deep)) == "G012"
    assert served.code("ana", want="describe", name=deep) == "G012"
    assert served.code("ana", **count(), settings=deep) == "G012"


def test_a_log_that_cannot_be_written_stops_no_answer(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(served.context, Audit(tmp_path / "nowhere" / "log"), QUICK, buckets=AT_ONCE)
    assert "datasets" in desk.answer({"token": served.gateway.tokens["ana"], "want": "datasets"})[0]
    assert "cannot be written" in capsys.readouterr().err


def test_a_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.gateway.audit._MOST_BYTES", 200)
    audit = Audit(tmp_path / "log")
    for number_ in range(40):
        audit.request(0.0, "ana", {"want": "call"}, "", number_)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", *(f"log.{n}" for n in range(1, 6))]
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["entry"] == 39


@pytest.mark.long
def test_refusals_grow_nothing(served: Served) -> None:
    before = served.ledger.head()
    for _ in range(50):
        served.ask("ana", **count("-1"))
        served.ask("ana", **count(source="staff"))
    assert served.ledger.head() == before
    assert served.ledger.verify().ok


@pytest.mark.long
def test_what_takes_too_long_is_stopped_and_charged(tmp_path: Path) -> None:
    gateway = made(tmp_path, ana={"epsilon": 5, "sources": ["slow"]})
    with dpsql.Context(gateway.database) as context:
        context.sql(
            "CREATE VIEW slow AS SELECT p.id, p.ward, p.age FROM patients p "
            "LEFT JOIN (SELECT DISTINCT id FROM patients) d ON d.id = p.id"
        )
        desk = Desk(context, Audit(None), QUICK, seconds=0.0)
        answer = desk.answer({"token": gateway.tokens["ana"], "want": "call", **count(source="slow")})[0]
        # Either it was faster than the timer, or it is refused; it never costs less than a release that was seen.
        [budget] = context.ledger.granted_budgets("ana")
        if "error" in answer:
            assert answer["error"]["code"] in ("I001", "S001")
            assert budget.releases == (answer["error"]["code"] == "I001")
        else:
            assert budget.releases == 1


def test_answers_leave_at_a_few_times() -> None:
    clock, slept = [0.0], list[float]()
    buckets = Buckets(clock=lambda: clock[0], sleep=slept.append)
    for took in (0.0, 0.05, 0.11, 0.9, 3.1, 3.3, 12.0, 31.0):
        with pytest.raises(ValueError, match="it"), buckets.padded():
            clock[0] += took
            raise ValueError("it")
        slept[-1] += took
    assert slept == pytest.approx([0.1, 0.1, 0.2, 1.6, 3.2, 10.0, 20.0, 40.0])
    fixed = Buckets(5.0)
    assert [fixed.leaves(took) for took in (0.0, 4.9, 5.0)] == [5.0] * 3
    assert fixed.most(120.0) == 4.0  # so that it is told in time


def test_with_a_fixed_time_new_answers_leave_at_it(served: Served) -> None:
    slept: list[float] = []
    desk = Desk(served.context, Audit(None), QUICK, buckets=Buckets(60.0, lambda: 0.0, slept.append))
    request = {"token": served.gateway.tokens["ana"], "want": "call", **count("0.123")}
    assert desk.answer(request)[0]["receipts"][0]["charged"]
    assert not desk.answer(request)[0]["receipts"][0]["charged"]
    assert desk.answer({**request, **count("0")})[0]["error"]["code"] == "P001"
    assert slept == [60.0]  # replays and refusals leave at once


@pytest.mark.long
def test_a_public_table_is_joined_by_those_to_whom_it_was_granted(tmp_path: Path) -> None:
    gateway = made(tmp_path, ana={}, fay={"sources": ["patients", "wards"]})
    with dpsql.Context(gateway.database) as context:
        context.sql("CREATE TABLE wards AS SELECT unnest(['A', 'B']) AS ward, unnest([1, 2]) AS floor")
        context.dp_public("wards")
        here = Served(Desk(context, Audit(None), QUICK, buckets=AT_ONCE), gateway, context)
        join = "SELECT floor, count(*) AS n FROM patients JOIN wards USING (ward) GROUP BY floor"
        assert here.code("ana", **query(join)) == "G015"
        assert here.code("ana", **query("SELECT count(*) FROM wards")) == "G015"
        assert [row["name"] for row in here.ask("ana", "datasets")[0]["datasets"]] == ["patients"]
        _, [table] = here.ask("fay", **query(join))
        assert table.column("floor").to_pylist() == [1, 2]
        assert here.ask("fay", **query("SELECT count(*) AS n FROM wards"))[0]["receipts"] == []


def test_an_auditor_sees_entries_and_grants(served: Served) -> None:
    told = served.ask("eve", "ledger")[0]
    assert {row["dataset"] for row in told["ledger"]} == {"patients"}
    assert "ana" in {row["principal"] for row in told["grants"]}
    last = told["ledger"][-1]["sequence"]
    assert served.ask("eve", "ledger", before=last)[0]["ledger"] == told["ledger"][:-1]
    assert {"ana", None} <= {row["principal"] for row in told["ledger"]}
    assert served.ask("eve", "ledger", before=True)[0]["error"]["code"] == "G012"
    assert served.ask("ana", "ledger")[0] == {"ledger": [], "grants": []}


@pytest.mark.long
def test_an_error_of_a_row_shows_in_no_code(tmp_path: Path) -> None:
    """Two neighbours, one of which has a row that raises where it is computed: equal codes, and equal charges."""
    told = []
    for number_, age in enumerate((7, 8)):
        folder = tmp_path / str(number_)
        folder.mkdir()
        gateway = made(folder, ana={"epsilon": 5})
        with dpsql.Context(gateway.database) as context:
            context.sql(f"UPDATE patients SET age = {age} WHERE age = 7")
            desk = Desk(context, Audit(None), QUICK, buckets=AT_ONCE)
            codes = [
                desk.answer({"token": gateway.tokens["ana"], "want": "call", **count(condition=condition)})[0]
                .get("error", {})
                .get("code")
                for condition in ("1 / (age - 7) > 0", "CAST(ward AS INTEGER) > 1", "age > 7", "sqrt(age - 8) > 1")
            ]
            told.append((codes, [row.epsilon_spent for row in context.ledger.granted_budgets("ana")]))
    assert told[0] == told[1]


def test_rates_are_token_buckets() -> None:
    clock = [0.0]
    rates = Rates(lambda: clock[0])

    def refused(kind: str) -> bool:
        try:
            rates.take("ana", kind)
        except dpsql.DpsqlError as error:
            assert error.code == "DPSQL-G030"
            return True
        return False

    assert [refused("requests") for _ in range(41)].count(True) == 1
    rates.take("ben", "requests")
    clock[0] = 1.0
    assert [refused("requests") for _ in range(11)].count(True) == 1
    assert [refused("releases") for _ in range(21)].count(True) == 1
    assert [refused("refusals") for _ in range(61)].count(True) == 1
    with pytest.raises(dpsql.DpsqlError):
        rates.refuse("ana", "refusals")
    clock[0] = 61.0
    rates.refuse("ana", "refusals")


def test_a_flood_of_refusals_is_refused(served: Served) -> None:
    desk = Desk(served.context, Audit(None))
    token = served.gateway.tokens["ana"]
    codes = [desk.answer({"token": token, "want": "describe", "name": "x"})[0]["error"]["code"] for _ in range(70)]
    assert codes[0] == "G015"
    assert codes[-1] == "G030"


def test_lines_are_short() -> None:
    lines, inside, done = Lines(), threading.Event(), threading.Event()
    codes: list[str] = []

    def wait(principal: str, run: Callable[[], object]) -> None:
        try:
            with lines.alone(principal, ["patients"]):
                run()
        except dpsql.DpsqlError as error:
            codes.append(error.code)

    def hold() -> None:
        inside.set()
        done.wait(20)

    threads = [threading.Thread(target=wait, args=("ana", hold))]
    threads[0].start()
    assert inside.wait(20)
    threads += [threading.Thread(target=wait, args=("ana", lambda: None)) for _ in range(9)]
    for thread in threads[1:]:
        thread.start()
    while len(codes) < 6:
        done.wait(0.01)
    done.set()
    for thread in threads:
        thread.join(20)
    assert codes == ["DPSQL-G032"] * 6  # one holds, three wait
    with lines.alone("ana", ["patients", "visits"]):
        pass


def test_the_log_has_no_token_and_no_text(served: Served) -> None:
    served.ask("ana", **count(condition="age > 17.125"))
    text = served.gateway.log.read_text()
    assert served.gateway.tokens["ana"][6:] not in text
    assert "17.125" not in text
    last = json.loads(text.splitlines()[-1])
    assert (last["principal"], last["kind"]) == ("ana", "call")
    assert (served.gateway.log.stat().st_mode & 0o777) == 0o600


def test_no_table_is_left_behind(served: Served) -> None:
    """A call changes nothing that another one sees, but the budget."""

    def seen() -> list[Any]:
        return served.context.sql(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT starts_with(schema_name, 'dpsql') ORDER BY ALL"
        ).to_pylist()

    before = seen()
    served.ask("ana", **count("0.19"))
    served.ask("ana", **query("SELECT ward, avg(age) FROM patients GROUP BY ward", "0.19"))
    assert seen() == before


@pytest.mark.long
def test_nobody_reads_what_the_database_remembers(served: Served) -> None:
    [(schema,)] = served.context.connection.execute(
        "SELECT schema_name FROM duckdb_schemas() WHERE starts_with(schema_name, 'dpsql_ledger_')"
    ).fetchall()
    before = served.ledger.head()
    for table in ("spent", "place"):
        for name in (f"{schema}.{table}", f"hospital.{schema}.{table}", f'"{schema}"."{table}"'):
            assert served.code("ana", **count(source=name)) == "G015"
            assert served.code("ana", **query(f"SELECT count(*) FROM {name}")).startswith("G0")
            joined = f"SELECT count(*) FROM patients WHERE age > (SELECT count(*) FROM {name})"
            assert served.code("ana", **query(joined)).startswith(("G0", "S0", "P0"))
    assert served.ledger.head() == before
