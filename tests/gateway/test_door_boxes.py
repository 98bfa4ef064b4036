"""A door with real boxes and a real broker: statements of strangers, from their text to released rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from dpsql.errors import DpsqlError
from dpsql.gateway.box import Box, Boxes
from dpsql.gateway.door import Answer, Door
from support.cases import cases
from support.gateway_boxes import boxes_in
from support.gateway_broker import SECRET, Gateway, made


class Asked:
    """A door, and the tokens of those who ask."""

    def __init__(self, door: Door, gateway: Gateway) -> None:
        self.door, self.gateway = door, gateway

    def __call__(self, sql: str, principal: str = "ana", **settings: str) -> Answer:
        """Answer a statement."""
        return self.door.answer(self.gateway.tokens[principal], sql, settings)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("door")
    gateway = made(folder, ana={"epsilon": 50, "default_epsilon": 0.2}, cora={"share": True}, dan={"share": True})
    gateway.start("--log-refused")
    with boxes_in(folder / "boxes") as boxes:
        door = Door(gateway.socket, boxes)
        try:
            yield Asked(door, gateway)
        finally:
            door.close()
            gateway.kill()


@pytest.mark.long
def test_a_query_is_a_release_and_sorting_it_is_free(asked: Asked) -> None:
    grouped = "SELECT ward, count(*) AS n, avg(age) AS mean FROM patients GROUP BY ward"
    first, again = asked(f"{grouped} ORDER BY n DESC"), asked(f"{grouped} ORDER BY mean LIMIT 1")
    assert first.table.column_names == ["ward", "n", "mean"]
    assert sorted(first.table.column("ward").to_pylist()) == ["A", "B"]
    assert (first.receipts[0]["charged"], again.receipts[0]["charged"]) == (True, False)
    assert again.table.num_rows == 1
    assert set(again.table.column("mean").to_pylist()) <= set(first.table.column("mean").to_pylist())


@pytest.mark.long
@pytest.mark.odds("0: numbers are compared with their own replays")
def test_an_enum_is_a_text_whether_a_box_computes_with_it_or_not(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary of a column is no part of Flight's stream, and HTTP told its type."""
    release = pa.table({"ward": pa.array(["A", None, "B"]).dictionary_encode(), "n": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, release.schema) as writer:
        writer.write_table(release)
    stream = sink.getvalue().to_pybytes()
    monkeypatch.setattr(asked.door, "call", lambda *_: ({"receipts": []}, [stream]))
    for sql in (
        "FROM dp_count('patients', epsilon := 0.7)",
        "SELECT ward, n FROM dp_count('patients', epsilon := 0.7)",
    ):
        table = asked(sql).table
        assert table.schema.types == [pa.string(), pa.int64()]
        assert table.to_pydict() == {"ward": ["A", None, "B"], "n": [1, 2, 3]}
    nested = asked("SELECT list(ward) AS l, {'w': max(ward)} AS s FROM dp_count('patients', epsilon := 0.7)").table
    assert nested.schema.types == [pa.list_(pa.string()), pa.struct([("w", pa.string())])]
    assert nested.to_pylist() == [{"l": ["A", None, "B"], "s": {"w": "B"}}]


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_calls_and_what_is_computed_of_them(asked: Asked) -> None:
    one = asked("SELECT value FROM dp_count('patients', epsilon := 0.3)")
    half = asked("SELECT value / 2 AS half FROM DP_COUNT('patients', \"epsilon\" => 3e-1)")
    assert half.table.column("half").to_pylist() == [one.table.column("value").to_pylist()[0] / 2]
    assert not half.receipts[0]["charged"]


@pytest.mark.odds("0: numbers are compared with their own replays")
@cases(
    ("sql", "code"),
    [
        ("SELECT * FROM patients", "G006"),
        ("SELECT count(*) FROM staff", "G015"),
        ("SELECT count(*) FROM nothing", "G015"),
        ("SELECT count(*) FROM PATIENTS", "G015"),
        ("FROM dp_count('staff', epsilon := 0.1)", "G015"),
        ("FROM dp_count('/etc/passwd', epsilon := 0.1)", "G015"),
        ("SELECT * FROM read_csv('/etc/passwd')", "G007"),
        ("FROM dp_count('patients', epsilon := -1)", "P001"),
        ("FROM dp_count('patients', epsilon := 0.1, dataset := 'staff')", "G016"),
        ("SELECT count(*) FROM patients WHERE age > (SELECT salary FROM staff)", "G015"),
        ("SELECT count(*) FROM patients; SELECT 1", "G002"),
        ("DROP TABLE patients", "G001"),
        ("DESCRIBE staff", "G015"),
    ],
    quick=6,
)
def test_what_is_refused_charges_nothing(asked: Asked, sql: str, code: str) -> None:
    token = asked.gateway.tokens["ana"]
    before = asked.door.budget(token)
    with pytest.raises(DpsqlError, match=f"DPSQL-{code}") as caught:
        asked(sql)
    assert SECRET not in str(caught.value)
    assert asked.door.budget(token) == before


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_privacy_options_of_a_statement_go_before_settings(asked: Asked) -> None:
    """They are arguments of the one query, and no other epsilon is spent."""
    options = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.3, max_rows_contributed = 1{}) ward, count(*) AS n FROM patients GROUP BY ward"
    first = asked(options.format(""), epsilon="0.7")
    again = asked(f"FROM dp_query('{options.format(', min_privacy_units_per_group = 1')}', epsilon := 0.3)")
    third = asked(
        "FROM dp_query('SELECT ward, count(*) AS n FROM patients GROUP BY ward', epsilon := 0.3, max_rows_per_unit := 1)"
    )
    assert [answer.receipts[0]["epsilon"] for answer in (first, third)] == ["0.3", "0.3"]
    assert sorted(map(str, third.table.to_pylist())) == sorted(map(str, first.table.to_pylist()))
    assert [answer.receipts[0]["charged"] for answer in (first, third)] == [True, False]
    assert again.table.num_rows == 2
    for sql, code in (
        (options.format(", colour = 1"), "G012"),
        (f"FROM dp_query('{options.format('')}', epsilon := 0.1)", "G012"),
        (options.format(", privacy_unit_column = ward"), "B003"),
    ):
        with pytest.raises(DpsqlError, match=f"DPSQL-{code}"):
            asked(sql)


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_what_a_box_refuses_is_logged_and_counted(asked: Asked) -> None:
    with pytest.raises(DpsqlError):
        asked("SELECT * FROM patients -- mine")
    line = json.loads(asked.gateway.log.read_text().splitlines()[-1])
    assert (line["principal"], line["kind"], line["code"]) == ("ana", "refused", "DPSQL-G006")
    assert json.loads(line["asked"])["sql"] == "SELECT * FROM patients -- mine"
    assert asked.gateway.tokens["ana"] not in asked.gateway.log.read_text()


class Reading:
    """Boxes that count how many were opened."""

    def __init__(self, boxes: Boxes) -> None:
        self.boxes, self.opened = boxes, 0

    def open(self) -> Box:
        """Open a box."""
        self.opened += 1
        return self.boxes.open()


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.long
def test_what_a_token_sent_before_is_not_read_again(asked: Asked) -> None:
    """And only for this token: how long it takes tells nobody what others ask."""
    reading = Reading(asked.door._opened())  # type: ignore[arg-type]
    door, [ana, cora] = Door(asked.gateway.socket, reading), (asked.gateway.tokens[one] for one in ("ana", "cora"))
    whole = "SELECT ward, count(*) AS n FROM patients GROUP BY ward ORDER BY n"
    found = [door.answer(ana, whole, {"epsilon": "0.2"}) for _ in range(3)]
    assert reading.opened == 1
    assert found[0].table == found[1].table == found[2].table
    assert [one.receipts[0]["charged"] for one in found[1:]] == [False, False]
    door.estimate(ana, whole, {"epsilon": "0.21"})
    assert reading.opened == 1
    door.answer(ana, whole, {"epsilon": "0.2", "fresh": "true"})
    assert reading.opened == 1
    door.answer(cora, whole, {"epsilon": "0.2"})
    assert reading.opened == 2
    door.answer(ana, f"{whole} ", {"epsilon": "0.2"})
    assert reading.opened == 3
    half = "SELECT value / 2 AS half FROM dp_count('patients', epsilon := 0.2)"
    assert door.answer(ana, half, {}).table == door.answer(ana, half, {}).table
    assert reading.opened == 5  # its second half needs a box each time
    for _ in range(2):
        with pytest.raises(DpsqlError, match="DPSQL-G006"):
            door.answer(ana, "SELECT * FROM patients", {})
    assert reading.opened == 7  # and so does a refusal
    with pytest.raises(DpsqlError, match="DPSQL-G020"):
        door.answer(f"{ana}x", whole, {})
    assert reading.opened == 7
    door.close()


def test_what_is_kept_of_statements_is_bounded(asked: Asked) -> None:
    reading = Reading(asked.door._opened())  # type: ignore[arg-type]
    door, ana = Door(asked.gateway.socket, reading), asked.gateway.tokens["ana"]
    padded = [f"SHOW TABLES -- {letter * 60_000}" for letter in "abcdef"]
    for text in [*padded, padded[-1], padded[0]]:
        assert door.answer(ana, text, {}).table.to_pydict() == {"name": ["patients"]}
    assert reading.opened == 7  # the first one was forgotten, the last one was not
    door.close()


@pytest.mark.odds("0: numbers are compared with their own replays")
@cases(
    "call",
    [
        "dp_count('patients', epsilon := 0.1)",
        "dp_avg('patients', 'age', by := 'ward', epsilon := 0.1)",
        "dp_budget()",
        "dp_query('SELECT ward, count(*) AS n, avg(age) AS mean FROM patients GROUP BY ward', epsilon := 0.1)",
    ],
    quick=1,
)
def test_a_whole_answer_is_what_a_box_makes_of_it(asked: Asked, call: str) -> None:
    whole, through = asked(f"FROM {call}"), asked(f"SELECT * FROM {call} LIMIT 1000")
    assert whole.table.equals(through.table)
    assert whole.table.schema == through.table.schema


class Counting:
    """Boxes and a broker in one, which count how many work at once: each waits for a second one, if one may come."""

    def __init__(self, serial: bool) -> None:
        self.now, self.most = 0, 0
        self._seconds = 0.01 if serial else 60.0
        self._changed = threading.Condition()

    @contextmanager
    def works(self) -> Iterator[None]:
        """Count one who works."""
        with self._changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most > 1, self._seconds)
        yield
        with self._changed:
            self.now -= 1

    @contextmanager
    def open(self) -> Iterator[Counting]:
        """Return a box that has nothing to ask."""
        with self.works():
            yield self

    calls, settings, is_whole = (), {}, False  # type: ignore[var-annotated]

    def parse(self, _: str) -> Counting:
        """Say what is asked: nothing."""
        return self

    def finish(self, _: object) -> pa.Table:
        """Return nothing."""
        return pa.table({})


@pytest.mark.parametrize("serial", [False, True])
def test_no_box_runs_while_another_statement_is_answered(serial: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Counting(serial)
    door = Door("nowhere", both, serial=serial)

    def ask(_: str, request: Mapping[str, object]) -> Any:
        if request["want"] != "call":
            return {}, []
        with both.works():
            return {"receipts": []}, []

    monkeypatch.setattr(door, "_ask", ask)
    work = [lambda: door.answer("", "", {}), lambda: door.estimate("", "", {}), lambda: door.call("", {}, {})] * 4
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(one) for one in work]:
            each.result()
    assert (both.most == 1) == serial


def test_probes_of_columns_are_free(asked: Asked) -> None:
    found = asked("SELECT * FROM patients LIMIT 0")
    assert (found.table.num_rows, found.table.column_names, found.receipts) == (0, ["id", "ward", "age"], [])
    assert asked("SHOW TABLES").table.to_pydict() == {"name": ["patients"]}
    assert asked("SELECT 1 AS one").table.to_pydict() == {"one": [1]}
    assert asked("FROM dp_budget()").table.column("dataset").to_pylist() == ["patients"]


@pytest.mark.odds("0: numbers are compared with their own replays")
def test_a_setting_is_given_back_and_taken(asked: Asked) -> None:
    settings = asked("SET epsilon = 0.07").settings
    assert settings == {"epsilon": "0.07"}
    found = asked("FROM dp_count('patients')", **settings)
    assert found.receipts[0]["epsilon"] == "0.07"


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.long
def test_many_with_one_new_question(asked: Asked) -> None:
    with ThreadPoolExecutor(4) as pool:
        who = ("cora", "dan") * 4
        answers = list(pool.map(lambda name: asked("FROM dp_count('patients', epsilon := 0.17)", name), who))
    assert len({one.receipts[0]["entry"] for one in answers}) == 1
    assert sum(one.receipts[0]["charged"] for one in answers) == 1


def test_an_estimate_reads_and_charges_nothing(asked: Asked) -> None:
    token = asked.gateway.tokens["ana"]
    before = asked.door.budget(token)
    told = asked.door.estimate(token, "SELECT avg(age) FROM patients", {"epsilon": "0.9"})
    assert (told["free"], told["calls"][0]["epsilon"]) == (False, "0.9")
    assert asked.door.estimate(token, "SELECT 1", {}) == {"calls": [], "free": True}
    assert asked.door.budget(token) == before
