"""The least epsilon of a new statement: below it nothing is read or charged, by whatever door it is asked."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.events import Cost
from dpsql.engines.duckdb.session import Session
from dpsql.errors import GatewayError
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import AskedCall, Desk, LeastEpsilon
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.budget import Budget
from dpsql.ledger.grants import Grant
from support.cases import cases
from support.gateway_broker import Gateway, count, made, number, tree_of

AT_ONCE = Buckets(sleep=lambda _: None)


def query(sql: str, **settings: str) -> dict[str, Any]:
    return {"function": "dp_query", "source": None, "arguments": {"tree": tree_of(sql)}, "settings": settings}


@dataclass
class Served:
    """A desk, and what it did with rows."""

    desk: Desk
    gateway: Gateway
    context: dpsql.Context
    read: list[str]

    def __call__(self, *calls: dict[str, Any], want: str = "call", **settings: str) -> dict[str, Any]:
        """Ask one call alone, or several as one statement."""
        asked = calls[0] if len(calls) == 1 else {"calls": list(calls)}
        request = {"settings": settings, **asked, "token": self.gateway.tokens["ana"], "want": want}
        return self.desk.answer(request)[0]

    def code(self, *calls: dict[str, Any], **settings: str) -> str:
        """Return the code of a refusal, or ''."""
        return str(self(*calls, **settings).get("error", {}).get("code", ""))

    @property
    def spent(self) -> list[object]:
        """What the principal has spent, with the last entry of the ledger."""
        budgets = self.context.ledger.granted_budgets("ana")
        return [*((one.epsilon_spent, one.rho_spent) for one in budgets), self.context.ledger.head()]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path, monkeypatch) as found:
        yield found


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Iterator[Served]:
    """Yield a desk over patients, which notes what it runs."""
    folder.mkdir(exist_ok=True)
    gateway = made(folder, ana={"epsilon": 5})
    with dpsql.Context(gateway.database) as context:
        rates = given.pop("rates", Rates(factor=10_000.0))
        desk = Desk(context, Audit(None), rates, buckets=AT_ONCE, **given)
        read: list[str] = []
        run = AskedCall.run

        def noted(call: AskedCall, context: dpsql.Context) -> Any:
            read.append(call._function)
            return run(call, context)

        monkeypatch.setattr(AskedCall, "run", noted)
        yield Served(desk, gateway, context, read)


@dataclass
class New:
    """A new call of a plan with an epsilon, and a cost in rho."""

    epsilon: str
    rho: str | None = None
    charged: tuple[str, ...] = ("patients",)
    in_call: bool = True

    @property
    def epsilon_text(self) -> str:
        return self.epsilon

    @property
    def plan(self) -> Any:
        cost = Cost(Fraction(self.epsilon), Fraction(0), None if self.rho is None else Fraction(self.rho))
        event = SimpleNamespace(cost=cost)
        return SimpleNamespace(epsilon=Fraction(self.epsilon), charged=self.charged, event=event)


BUDGETS = {"patients": Budget.of(epsilon=3), "visits": Budget.of(rho=3)}


@cases(
    "calls, refused",
    [
        pytest.param([New("0.00999")], True, id="less"),
        pytest.param([New("0.01")], False, id="as much"),
        pytest.param([New("0.005"), New("0.004")], True, id="two that are less"),
        pytest.param([New("0.005"), New("0.005")], False, id="two that are as much"),
        pytest.param([New("1", "0.000049", ("visits",))], True, id="less rho"),
        pytest.param([New("0.001", "0.00005", ("visits",))], False, id="as much rho"),
        pytest.param([New("1", "0.00001", ("patients", "visits"))], True, id="less rho of one table"),
        pytest.param([New("1", "0.00001", ("visits", "patients"))], True, id="less rho of the other table"),
        pytest.param([], False, id="none"),
    ],
)
def test_the_least_of_some_calls(calls: list[New], *, refused: bool) -> None:
    with pytest.raises(GatewayError, match="G026") if refused else nullcontext():
        LeastEpsilon().refuse(calls, BUDGETS.get)


@pytest.mark.long
def test_below_it_nothing_is_read_or_charged(served: Served) -> None:
    before = served.spent
    for call in (
        count("0.00001"),
        count("1e-5", by="ward"),
        count("0.009999999999"),
        query("SELECT count(*) FROM patients", epsilon="0.00001"),
    ):
        assert served.code(call) == "G026"
    assert (served.spent, served.read) == (before, [])
    told = served(count("1e-5"))["error"]["message"]
    assert told.startswith("epsilon 1e-5 is below epsilon 0.01, the least ")
    assert "Write epsilon := 0.01 in the call." in told
    told = served(query("SELECT count(*) FROM patients", epsilon="0.0010"))["error"]["message"]
    assert told.startswith("epsilon 0.0010 is below epsilon 0.01, ")
    assert "SET epsilon = 0.01, or send epsilon 0.01 beside the statement" in told
    assert served.code(count("0.01")) == ""
    assert len(served.read) == 1


@pytest.mark.long
def test_it_is_of_the_whole_query_and_not_of_its_parts(served: Served) -> None:
    """Its numbers share the epsilon, so each of them has less than the least."""
    sql = "SELECT count(*), avg(age), median(age) FROM patients"
    assert served.code(query(sql, epsilon="0.009")) == "G026"
    assert served.code(query(sql, epsilon="0.01")) == ""


@pytest.mark.long
def test_several_calls_of_a_statement_count_together(served: Served) -> None:
    before = served.spent
    halves = count("0.005"), count("0.005", condition="age > 40")
    assert served.code(halves[0]) == "G026"
    assert served.code(*halves[:1], count("0.004", condition="age > 40")) == "G026"
    told = served(count("0.001"), count("0.002", condition="age > 3"))["error"]["message"]
    assert told.startswith("the 2 new private calls of this statement spend epsilon 0.003, which is below")
    assert "epsilon := 0.005 in each call" in told
    assert served.spent == before
    reply = served(*halves)
    assert [one["epsilon"] for one in reply["receipts"]] == ["0.005", "0.005"]
    assert len(served.read) == 2


def test_answers_that_are_stored_stay_free_and_carry_no_new_question(served: Served) -> None:
    stored = count("0.5")
    assert served.code(stored) == ""
    spent = served.spent
    assert served(stored)["receipts"][0]["charged"] is False
    served.read.clear()
    tiny = count("0.00001", condition="age > 40")
    assert served.code(stored, tiny) == "G026"
    assert served.code(tiny, stored, stored) == "G026"
    assert (served.code(tiny, tiny), served.code(tiny)) == ("G026", "G026")
    halves = [count("0.006", condition="age > 41")] * 2  # one question, asked twice
    assert served.code(*halves) == "G026"
    assert served.spent[:-1] == spent[:-1]


def test_an_answer_of_a_gateway_without_it_is_still_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, monkeypatch, least=LeastEpsilon(Fraction(0))) as open_to_all:
        first = open_to_all(count("0.00001"))["receipts"][0]
        desk = Desk(open_to_all.context, Audit(None), Rates(factor=10_000.0), buckets=AT_ONCE)
        again = Served(desk, open_to_all.gateway, open_to_all.context, open_to_all.read)(count("0.00001"))
        assert (first["charged"], again["receipts"][0]["charged"]) == (True, False)
        assert (
            desk.answer({"token": open_to_all.gateway.tokens["ana"], "want": "call", **count("0.00002")})[0]["error"][
                "code"
            ]
            == "G026"
        )


@pytest.mark.long
def test_what_is_free_stays_free(served: Served) -> None:
    for want in ("datasets", "budget", "releases"):
        assert "error" not in served({}, want=want)
    assert served({}, want="datasets")["datasets"][0]["least_epsilon"] == "0.01"
    assert served.code({"function": "describe", "source": "patients", "arguments": {}}) == ""
    assert served.code({"function": "show_tables", "source": None, "arguments": {}}) == ""
    assert served.code({**query("SELECT ward FROM patients LIMIT 0")}) == ""


@pytest.mark.long
def test_a_price_says_that_it_is_below(served: Served) -> None:
    tiny, usual = count("0.00001"), count("0.5")
    price = served(tiny, want="estimate")["estimate"]
    assert (price["epsilon"], price["free"], price["refusal"]["code"]) == ("1e-05", False, "G026")
    assert served(usual, want="estimate")["estimate"]["refusal"] is None
    halves = [count("0.005"), count("0.005", condition="age > 40")]
    assert [one["refusal"] for one in served(*halves, want="estimate")["estimate"]] == [None, None]
    served(usual)
    prices = served(usual, tiny, want="estimate")["estimate"]
    assert [one["free"] for one in prices] == [True, False]
    assert [one["refusal"] and one["refusal"]["code"] for one in prices] == [None, "G026"]


@pytest.mark.long
def test_of_a_budget_in_rho_it_is_half_of_the_square(served: Served) -> None:
    with dpsql.Context(served.gateway.database) as context:
        context.sql("CREATE TABLE scores AS SELECT i AS id, i % 10 AS score FROM range(100) t(i)")
        context.dp_protect("scores", rho=1, delta=1e-6, lower={"score": 0}, upper={"score": 10})
        context.ledger.grant(Grant.of("ana", "scores", rho=1))
    before = served.spent
    assert served.code(count("0.009", "scores")) == "G026"
    assert served.code(count("0.01", "scores")) == ""
    gaussian = {"noise": "gaussian", "delta": number("1e-6")}
    columns = {"function": "dp_count", "source": "scores"}
    asked = {**columns, "arguments": {"epsilon": number("0.02"), **gaussian}}
    if served.code({**columns, "arguments": {"epsilon": number("1"), **gaussian}}) == "P016":
        pytest.fail("dp_count has no Gaussian noise any more: ask another function")
    told = served(asked)["error"]
    assert told["code"] == "G026"
    assert "is charged at a rho below epsilon²/2 of 0.01" in told["message"]
    enough = told["message"].split("epsilon := ")[1].split(" ")[0]
    assert served.code({**columns, "arguments": {"epsilon": number(enough), **gaussian}}) == ""  # as it says
    assert before != served.spent


# Ways to have a tiny question answered, and to lose the rest of the statement.


def test_a_call_that_does_not_fit_stops_the_whole_statement(served: Served) -> None:
    """The remaining cap is 5: [1e-5, 5] would be charged 1e-5 and refused, time and again."""
    before = served.spent
    for large in ("5", "99", "4.999995"):
        assert served.code(count("0.00001", condition="age > 40"), count(large)) in ("G017", "B001")
        assert served.code(count(large), count("0.00001", condition="age > 40")) in ("G017", "B001")
    assert (served.spent, served.read) == (before, [])


@pytest.mark.long
@pytest.mark.parametrize(
    "last", [count("0"), count("0.5", by="nothing"), count("0.5", source="staff"), {"function": 1}]
)
def test_a_refused_call_stops_the_whole_statement(served: Served, last: dict[str, Any]) -> None:
    before = served.spent
    assert served.code(count("0.5", condition="age > 40"), last) != ""
    assert (served.spent, served.read) == (before, [])


@pytest.mark.long
def test_a_rate_stops_the_whole_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with serving(tmp_path, monkeypatch, rates=Rates(lambda: now[0])) as served:
        for place in range(19):
            assert served.code(count("0.011", condition=f"age > {place}")) == ""
        spent = served.spent
        assert served.code(count("0.00001", condition="age > 40"), count("0.5")) == "G030"  # one release is left
        assert served.spent == spent


def test_after_a_failed_call_the_others_are_charged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    run, failing = AskedCall.run, itertools.count()

    def fails(call: AskedCall, context: dpsql.Context) -> Any:
        if next(failing) == 0:
            raise RuntimeError("lost")
        return run(call, context)

    monkeypatch.setattr(AskedCall, "run", fails)
    assert served.code(count("0.005", condition="age > 40"), count("0.5"), count("0.4")) == "I000"
    [budget] = served.context.ledger.granted_budgets("ana")
    assert budget.epsilon_spent == pytest.approx(0.405)  # the largest was the first one, and failed before its charge


@pytest.mark.long
def test_lists_of_calls_that_are_none(served: Served) -> None:
    token = served.gateway.tokens["ana"]
    for calls in ([], [count("0.5")] * 9, [1], "x", {}, [None], [[count("0.5")]], [{"calls": [count("0.5")]}]):
        assert served.desk.answer({"token": token, "want": "call", "calls": calls})[0]["error"]["code"] == "G012"
    assert served.read == []


# Planted faults.


def of_each(self: LeastEpsilon, calls: Sequence[Any], budget_of: Callable[[str], Any]) -> None:
    """Planted: each call by itself, and each part of a query."""
    for call in calls:
        for part in call.plan.event.cost.mechanisms:
            if part.epsilon is not None and part.epsilon < self.amount:
                LeastEpsilon._refused(self)  # type: ignore[attr-defined]


@pytest.mark.long
def test_planted_the_least_of_each_part_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: LeastEpsilon) -> None:
        raise GatewayError("G026", "planted.")

    monkeypatch.setattr(LeastEpsilon, "_refused", refused, raising=False)
    monkeypatch.setattr(LeastEpsilon, "refuse", of_each)
    for check in (test_it_is_of_the_whole_query_and_not_of_its_parts, test_several_calls_of_a_statement_count_together):
        with serving(tmp_path / check.__name__, monkeypatch) as served, pytest.raises((AssertionError, KeyError)):
            check(served)


@pytest.mark.long
def test_planted_a_check_after_reading_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse, released = LeastEpsilon.refuse, Desk._released

    def later(self: Desk, call: AskedCall) -> Any:
        try:
            return released(self, call)
        finally:
            refuse(self._least, [call], self._ledger.policy)

    monkeypatch.setattr(LeastEpsilon, "refuse", lambda *_: None)
    monkeypatch.setattr(Desk, "_released", later)
    with serving(tmp_path, monkeypatch) as served, pytest.raises(AssertionError):
        test_below_it_nothing_is_read_or_charged(served)


@pytest.mark.long
def test_planted_calls_that_are_judged_one_by_one_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "check_together", lambda *_: None)
    with serving(tmp_path, monkeypatch) as served, pytest.raises(AssertionError):
        test_a_call_that_does_not_fit_stops_the_whole_statement(served)


# Every transport.


@pytest.mark.odds("0: a number is compared with its own replays")
@pytest.mark.long
def test_all_transports_refuse_alike(tmp_path: Path) -> None:
    """Over HTTP, Flight SQL, MCP and the page, and with the owner's own least."""
    import anyio
    import httpx2
    from adbc_driver_flightsql import dbapi
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    from support.gateway_command import serving as by_command

    with by_command(tmp_path, "--demo", "--least-epsilon", "0.02") as (_, url, token):
        headers = {"Authorization": f"Bearer {token}"}
        sql = "SELECT count(*) AS n FROM patients"

        def over_http(epsilon: float, operation: str = "query") -> Any:
            return httpx2.post(
                f"{url}/v1/{operation}", headers=headers, json={"sql": sql, "epsilon": epsilon}, timeout=60
            ).json()

        async def over_mcp(epsilon: float) -> Any:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http), mode="legacy") as client,
            ):
                result = await client.call_tool("query", {"sql": sql, "epsilon": epsilon})
                return result.content[0].text

        def over_flight(epsilon: float) -> pa.Table:
            flight = next(
                line for line in (tmp_path / "said").read_text().splitlines() if "drivers of Arrow Flight SQL" in line
            )
            address = flight.split(" is for")[0].removeprefix("dpsql: ")
            options = {
                "adbc.flight.sql.authorization_header": f"Bearer {token}",
                "adbc.flight.sql.rpc.call_header.epsilon": str(epsilon),
            }
            with dbapi.connect(address, options, autocommit=True) as db, db.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()

        said = "epsilon 0.019 is below epsilon 0.02, the least"
        assert over_http(0.019)["code"] == "G026"
        assert over_http(0.019)["title"].startswith(said)
        assert over_http(0.019, "estimate")["calls"][0]["refusal"]["code"] == "G026"
        assert "G026" in anyio.run(over_mcp, 0.019)
        with pytest.raises(dbapi.Error, match="G026"):
            over_flight(0.019)
        two = "SELECT a.value + b.value AS s FROM dp_count('patients', epsilon := 0.001) a, dp_count('visits', epsilon := 0.018) b"
        refused = httpx2.post(f"{url}/v1/query", headers=headers, json={"sql": two}, timeout=60).json()
        assert refused["code"] == "G026"
        assert all(
            one["epsilon_spent"] == 0 for one in httpx2.get(f"{url}/v1/budget", headers=headers).json()["budget"]
        )
        answered = httpx2.post(
            f"{url}/v1/query", headers=headers, json={"sql": two.replace("0.001", "0.002")}, timeout=60
        ).json()
        assert [one["charged"] for one in answered["receipts"]] == [True, True]
        [[n]] = over_http(0.02)["rows"]
        assert json.loads(anyio.run(over_mcp, 0.02))["rows"] == [[n]]
        assert over_flight(0.02).column("n").to_pylist() == [n]
