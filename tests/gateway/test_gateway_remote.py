"""A gateway from Python: what is sent, what comes back, and where a token never goes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import BudgetError, GatewayError, InternalError, ParameterError
from dpsql.remote import Remote, saved_token, tokens_file
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor, listening


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with listening(door) as url:
        yield door, url


@pytest.fixture
def remote(door: FakeDoor, served: tuple[FakeDoor, str]) -> Remote:
    return dpsql.connect_remote(served[1], TOKEN)


def test_sql_returns_rows(door: FakeDoor, remote: Remote) -> None:
    assert remote.sql("SELECT a", epsilon=Decimal("0.5")).to_pylist() == [{"value": 42.5}]
    assert door.asked == [("SELECT a", {"epsilon": "0.5"})]
    assert remote.sql("SELECT nasty").column("infinite").to_pylist() == [float("inf"), float("-inf")]


def test_a_method_writes_its_call_and_returns_a_release(door: FakeDoor, remote: Remote) -> None:
    release = remote.dp_count("it's", epsilon=0.1, by=("ward",), keys={"ward": ["A", "B"]}, condition=None)
    assert door.asked[0][0] == (
        """FROM dp_count('it''s', "epsilon" := 0.1, "by" := ['ward'], "keys" := {'ward': ['A', 'B']})"""
    )
    assert isinstance(release, dpsql.Release)
    assert (release.ledger_id, release.dataset, release.guarantee) == (1, "patients", "0.5-DP, one row")
    assert not release.replayed
    assert release.verdict == "clear"
    assert release.covers == "all rows"
    assert release.result == {"count": 42.5}
    assert pickle.loads(pickle.dumps(release)).result == {"count": 42.5}
    again = remote.dp_count("it's", epsilon=0.1, by=("ward",), keys={"ward": ["A", "B"]})
    assert again.replayed
    assert "replay of entry 1" in repr(again)
    assert release.to_arrow() == again.to_arrow() == remote.release(1).value


@cases(
    ("value", "spelled"),
    [
        (0.1, "0.1"), (1e-7, "1e-07"), (np.float64(0.1), "0.1"), (np.int64(3), "3"), (Decimal("0.10"), "0.10"), (True, "true"),
        (10**30, str(10**30)), ([1, [2.5]], "[1, [2.5]]"), ({"a": {"b'": None}}, "{'a': {'b''': NULL}}"), ((), "[]"),
    ],
alone=True)  # fmt: skip
def test_values_are_written_as_literals(door: FakeDoor, remote: Remote, value: object, spelled: str) -> None:
    remote.dp_count("t", epsilon=value)  # type: ignore[arg-type]
    assert door.asked[0][0] == f"""FROM dp_count('t', "epsilon" := {spelled})"""


@cases("value", [float("nan"), float("inf"), "a\0b", object(), {1: 2}, [object()]])
def test_what_is_no_value_is_refused_here(door: FakeDoor, remote: Remote, value: object) -> None:
    with pytest.raises(ParameterError, match="P090"):
        remote.dp_count("t", epsilon=value)  # type: ignore[arg-type]
    assert door.asked == []


def test_arguments_that_are_not_there_are_refused_here(door: FakeDoor, remote: Remote) -> None:
    with pytest.raises(ParameterError, match="P016"):
        remote.dp_count("t", **{"epsilon := 1) --": 1})  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="P013"):
        remote.dp_count(pa.table({"a": [1]}), epsilon=1)
    with pytest.raises(GatewayError, match="G040"):
        remote.dp_protect("t", epsilon=1)
    assert door.asked == []


def test_a_query_is_a_release(door: FakeDoor, remote: Remote) -> None:
    release = remote.query("SELECT count(*) FROM t", epsilon=0.5)
    assert isinstance(release, dpsql.Release)
    assert door.asked[0][0] == """FROM dp_query('SELECT count(*) FROM t', "epsilon" := 0.5)"""
    nothing_charged = remote.query("SELECT nasty")
    assert isinstance(nothing_charged, pa.Table)


def test_what_is_free_is_asked(remote: Remote) -> None:
    assert remote.datasets() == [{"name": "patients"}]
    assert remote.dataset("patients")["name"] == "patients"
    assert remote.estimate("SELECT a", epsilon=0.25)["calls"][0]["epsilon"] == "0.25"
    remote.sql("SELECT a")
    assert remote.budget()[0]["remaining"] == "4.5"
    assert remote.releases() == [{"entry": 1}]
    assert remote.health() == {"broker": "ok"}


def test_refusals_are_the_errors_of_dpsql(remote: Remote) -> None:
    with pytest.raises(BudgetError, match="B001"):
        remote.sql("SELECT spent")
    with pytest.raises(GatewayError, match="G006") as refused:
        remote.sql("SELECT rows")
    assert (refused.value.position, refused.value.hint) == (14, "dp_count('patients')")
    with pytest.raises(GatewayError, match="G021"):
        remote.dataset("../../etc/passwd")
    with pytest.raises(GatewayError, match="G021"):
        remote.sql("SELECT 1", epsilo=1)


def test_a_failure_is_an_internal_error_with_a_number(door: FakeDoor, remote: Remote) -> None:
    door.failure = KeyError("row")
    with pytest.raises(InternalError, match="I000") as failed:
        remote.sql("SELECT 1")
    assert "row" not in str(failed.value)


def test_a_wrong_token_is_refused(served: tuple[FakeDoor, str], door: FakeDoor) -> None:
    with pytest.raises(GatewayError, match="G020"):
        dpsql.connect_remote(served[1], "dpsql_wrong").budget()


def test_connect_takes_an_address(served: tuple[FakeDoor, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with dpsql.connect() as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert isinstance(dpsql.connect(served[1], token=TOKEN), Remote)
    monkeypatch.setenv("DPSQL_TOKEN", TOKEN)
    assert dpsql.connect(served[1], token=None).datasets() == [{"name": "patients"}]


def test_a_token_is_read_from_a_file_that_others_cannot_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(GatewayError, match="there is no token"):
        saved_token("https://a.example")
    path = tokens_file()
    path.parent.mkdir(parents=True)
    path.write_text("https://b.example dpsql_b\nhttps://a.example/ dpsql_a\n\n")
    path.chmod(0o644)
    with pytest.raises(GatewayError, match="chmod 600"):
        saved_token("https://a.example")
    path.chmod(0o600)
    assert saved_token("https://a.example") == "dpsql_a"
    monkeypatch.setenv("DPSQL_TOKEN", "dpsql_c")
    assert saved_token("https://a.example") == "dpsql_c"


@cases(
    "url",
    [
        "http://dpsql.example.org", "ftp://a", "file:///etc/passwd", "hospital.duckdb", "https://", "https://u:p@a", "https://a?t=1",
        "http://127.0.0.1.example.org", "http://127.1",
    ],
)  # fmt: skip
def test_addresses_that_show_the_token_or_are_none_are_refused(url: str) -> None:
    with pytest.raises(GatewayError, match="G040"):
        Remote(url, TOKEN)


def test_plaintext_to_another_machine_is_asked_for() -> None:
    assert Remote("http://dpsql.example.org", TOKEN, insecure_plaintext=True).url == "http://dpsql.example.org"


class Elsewhere(BaseHTTPRequestHandler):
    """Redirects a first request, and notes what comes then."""

    seen: list[str] = []  # noqa: RUF012 - of the test

    def do_GET(self) -> None:
        self.seen.append(self.path)
        if self.path.startswith("/v1"):
            self.send_response(302)
            self.send_header("Location", "/taken")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_a_redirection_is_not_followed() -> None:
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(GatewayError, match="G041"):
            Remote(f"http://127.0.0.1:{server.server_port}", TOKEN).budget()
    finally:
        server.shutdown()
        server.server_close()
    assert Elsewhere.seen == ["/v1/budget"]


def test_nobody_there_is_said() -> None:
    with pytest.raises(GatewayError, match="G041"):
        Remote("http://127.0.0.1:9", TOKEN).budget()


@pytest.mark.long
def test_importing_dpsql_imports_nothing_of_the_gateway_or_the_network() -> None:
    code = (
        "import sys, dpsql; dpsql.connect; dpsql.Context;"
        "print([m for m in sys.modules if m.startswith(('dpsql.gateway', 'dpsql.remote', 'starlette', 'uvicorn', 'mcp'))])"
    )
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.long
def test_the_front_knows_no_ledger_and_no_database() -> None:
    code = (
        "import sys, dpsql.gateway.http, dpsql.gateway.listening;"
        "print([m for m in sys.modules if m.startswith(('dpsql.ledger', 'duckdb', 'dpsql.engines', 'dpsql.noise'))])"
    )
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert ran.stdout.strip() == "[]"
