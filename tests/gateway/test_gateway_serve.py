"""`dpsql serve --demo` as its users run it: one question over HTTP, MCP, Flight SQL and Python is one number, charged once."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from adbc_driver_flightsql import dbapi
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import dpsql
from dpsql.cli.commands import main
from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway.listening import Listening
from dpsql.ledger.ledger import Ledger
from support.gateway_command import serving

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "SELECT count(*) AS n FROM patients"
# The first statements of docs/gateway.md: curl, Python and ADBC.
DOCUMENTED = re.findall(r"SELECT [^\"\n]* FROM visits(?: GROUP BY \w+)?", (ROOT / "docs/gateway.md").read_text("utf-8"))


def asked(url: str, token: str, sql: str = QUESTION) -> dict[str, Any]:
    """Ask over HTTP as `curl` does."""
    body = json.dumps({"sql": sql, "epsilon": 0.5}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/query", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(error.read()) from None


async def over_mcp(url: str, token: str) -> Any:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode="legacy") as client,
    ):
        result = await client.call_tool("query", {"sql": QUESTION, "epsilon": 0.5})
        return json.loads(result.content[0].text)


async def over_stdio(url: str, token: str) -> Any:
    environment = {**os.environ, "DPSQL_TOKEN": token, "PYTHONPATH": str(ROOT)}
    words = ["-m", "dpsql", "mcp", url]
    async with Client(StdioServerParameters(command=sys.executable, args=words, env=environment)) as client:
        result = await client.call_tool("query", {"sql": QUESTION, "epsilon": 0.5})
        return json.loads(result.content[0].text)


def over_flight(folder: Path, token: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Ask by ADBC, where the command said that Flight SQL is."""

    [line] = [line for line in (folder / "said").read_text().splitlines() if "Flight SQL" in line]
    address = line.removeprefix("dpsql: ").partition(" ")[0]
    options = {
        "adbc.flight.sql.authorization_header": f"Bearer {token}",
        "adbc.flight.sql.rpc.call_header.epsilon": "0.5",
    }
    with dbapi.connect(address, options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(QUESTION)
        found = cursor.fetch_arrow_table()
        with pytest.raises(dbapi.Error, match="G006"):
            cursor.execute("SELECT * FROM patients")
        [schema] = connection.adbc_get_objects().read_all().to_pylist()[0]["catalog_db_schemas"]
        assert "patients" in [one["table_name"] for one in schema["db_schema_tables"]]
    return found.column("n").to_pylist(), json.loads(found.schema.metadata[b"dpsql.receipts"])


def children(process: int) -> dict[str, int]:
    """Return the parts of a gateway by name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (path / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if parent == process:
            found[next((word for word in words if word.startswith("dpsql.gateway.")), "")] = int(path.name)
    return found


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.long
def test_one_question_is_one_number_by_every_way_charged_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo") as (process, url, token):
        first = asked(url, token)
        remote = dpsql.connect_remote(url, token)
        number = first["rows"][0][0]
        table, receipts = remote.answer(QUESTION, {"epsilon": 0.5})
        assert table.to_pydict() == {"n": [number]}
        assert [one["charged"] for one in first["receipts"] + receipts] == [True, False]
        by_model = anyio.run(over_mcp, url, token)
        assert by_model["rows"] == [[number]]
        assert anyio.run(over_stdio, url, token)["rows"] == [[number]]
        by_driver, of_driver = over_flight(tmp_path, token)
        assert by_driver == [number]
        assert [one["charged"] for one in of_driver] == [False]
        release = remote.dp_count("patients", epsilon=0.5)
        assert remote.dp_count("patients", epsilon=0.5).to_arrow() == release.to_arrow()
        assert remote.release(release.ledger_id).result is not None
        assert len(remote.releases()) == 2
        with pytest.raises(GatewayError, match="G0"):
            remote.sql("SELECT * FROM patients")
        with pytest.raises(GatewayError, match="G015"):
            remote.dp_count("scores", epsilon=0.5)
        assert len(DOCUMENTED) >= 3
        for statement in DOCUMENTED:
            assert remote.sql(statement, epsilon=0.1).num_rows == (3 if "GROUP" in statement else 1)
        # What is refused is answered in the words of the hint.
        with pytest.raises(DpsqlError, match="P065") as refused:
            remote.sql("SELECT sex, count(*) AS n FROM patients GROUP BY sex", epsilon=0.5)
        assert remote.sql(refused.value.hint, epsilon=0.5).column("sex").to_pylist() == ["f", "m"]
        with pytest.raises(GatewayError, match="G020"):
            dpsql.connect_remote(url, token + "x").datasets()

        if sys.platform == "linux":
            os.kill(children(process.pid)["dpsql.gateway.broker"], signal.SIGKILL)
            end = time.monotonic() + 120
            while True:
                try:
                    again = remote.sql(QUESTION, epsilon=0.5)
                    break
                except GatewayError as lost:
                    assert lost.code == "DPSQL-G033"
                    assert time.monotonic() < end
                    time.sleep(0.2)
            assert again.to_pydict() == {"n": [number]}
        parts = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert not [one for one in parts.values() if Path(f"/proc/{one}").exists()]
    with closing(Ledger.open(str(tmp_path / "hospital.duckdb.dpsql-ledger"), read_only=True)) as ledger:
        charged = [row for row in ledger.entries() if row.kind == "release"]
        assert len(charged) == 5  # GROUP BY ward and GROUP BY 1 are one question
    with serving(tmp_path) as (_, url, _):  # tokens outlive the gateway, and no second one is made
        assert asked(url, token)["rows"] == [[number]]
    assert "Token of" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize("options", [["serve"], ["serve", "--demo", "--host", "0.0.0.0"]])
def test_what_cannot_be_served_makes_nothing(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert CliRunner().invoke(main, options).exit_code in (1, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_demonstration_needs_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[object] = []
    monkeypatch.setattr("dpsql.gateway.serving.Serving", lambda settings: seen.append(settings))
    CliRunner().invoke(main, ["serve", "--demo"])
    assert Path(seen[0].database).is_file()  # type: ignore[attr-defined]
    assert seen[0].database.startswith(str(tmp_path))  # type: ignore[attr-defined]


def test_what_would_show_tokens_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="G023"):
        Listening(host="0.0.0.0", port=0).check()
    assert list(tmp_path.iterdir()) == []
