"""Metadata that rows can make: two gateways over neighbouring databases say the same at every door of theirs.

The kinds are those of `support.metadata`, each in a schema of its own. The doors are HTTP, MCP, Flight SQL and the site,
and what each says of names, types, prices and mistakes. Nothing that is asked here is charged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.testclient import TestClient

import dpsql
from dpsql.gateway.door import Door
from dpsql.gateway.http import application
from dpsql.gateway.mcp import Purse, over_http
from dpsql.gateway.pages.asking import asking_routes
from dpsql.ledger.grants import Grant
from support.cases import cases
from support.fake_door import listening
from support.flight_server import flying
from support.gateway_boxes import boxes_in
from support.gateway_broker import Gateway
from support.metadata import KINDS, made, without_names

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
pytestmark = pytest.mark.long  # two gateways start

SAME = {"Sec-Fetch-Site": "same-origin", "Origin": "https://dpsql.example.org"}
SCHEMAS = {kind: f"s{number}" for number, kind in enumerate(KINDS)}
# Statements that cost nothing, or are refused.
STATEMENTS = (
    "SHOW TABLES",
    "DESCRIBE {name}",
    "SHOW ALL TABLES",
    "SUMMARIZE {name}",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM duckdb_tables()",
    "SELECT column_default FROM duckdb_columns()",
    "SELECT * FROM duckdb_sequences()",
    "SELECT * FROM pragma_storage_info('{name}')",
    "SELECT * FROM {name}",
    "SELECT nosuch FROM {name}",
    "SELECT count(nosuch) FROM {name}",
    "SELECT sum(diagnosis) FROM {name}",
    "SELECT count(*) FROM {schema}.kept",
    "SELECT count(*) FROM {schema}.shown",
    "SELECT * FROM dp_count('{name}', target := 'nosuch')",
    "SELECT * FROM dp_avg('{name}', target := 'diagnosis')",
    "SELECT worst()",
    "SELECT currval('{schema}.numbered')",
    "SELECT NULL::{schema}.named",
)
PRICED = (
    "SELECT count(*) FROM {name}",
    "SELECT avg(cost) FROM {name}",
    "SELECT diagnosis, count(*) FROM {name} GROUP BY diagnosis",
    "SELECT * FROM dp_count('{name}')",
)


class Running(NamedTuple):
    """A gateway, as those who ask reach it."""

    http: TestClient
    pages: TestClient
    mcp: str
    flight: str
    token: str


@contextmanager
def gateway(folder: Path, people: int) -> Iterator[Running]:
    running = Gateway(folder)
    with dpsql.Context(running.database) as context:
        for kind, schema in SCHEMAS.items():
            context.connection.execute(f"CREATE SCHEMA {schema}; USE {schema}")
            made(context.connection, kind, folder, people)
            context.ledger.grant(Grant.of("ana", f"{schema}.people", epsilon=50, default_epsilon=0.2))
        running.tokens["ana"] = context.ledger.issue_token("ana").text
    running.start()
    token = running.tokens["ana"]
    with ExitStack() as open_ones:
        open_ones.callback(running.kill)
        door = Door(running.socket, open_ones.enter_context(boxes_in(folder / "boxes")))
        open_ones.callback(door.close)
        route, lifespan = over_http(door, Purse())
        base = "https://dpsql.example.org"
        pages = TestClient(application(door, more=asking_routes(door)), base_url=base)
        http = TestClient(application(door), base_url=base, headers={"Authorization": f"Bearer {token}"})
        assert pages.post("/login", data={"token": token}, headers=SAME).status_code == 200
        url = open_ones.enter_context(listening(door, app=application(door, more=[route], lifespan=lifespan)))
        flight = open_ones.enter_context(flying(door))
        yield Running(http, pages, f"{url}/mcp", flight, token)


def over_rest(one: Running, name: str, schema: str) -> Iterator[str]:
    yield one.http.get("/v1/datasets").text
    yield one.http.get(f"/v1/datasets/{name}").text
    yield one.http.get("/v1/budget").text
    yield one.http.get("/v1/openapi.json").text
    for sql in STATEMENTS:
        yield one.http.post("/v1/query", json={"sql": sql.format(name=name, schema=schema)}).text
    for sql in PRICED:
        yield one.http.post("/v1/estimate", json={"sql": sql.format(name=name, schema=schema)}).text


def over_the_site(one: Running, name: str, schema: str) -> Iterator[str]:
    for path in (
        "/datasets",
        f"/dataset?name={name}",
        f"/ask?dataset={name}",
        f"/form?dataset={name}&function=dp_count",
        "/words",
    ):
        yield one.pages.get(path).text
    [secret] = set(re.findall(r'name="csrf" value="([^"]+)"', one.pages.get("/ask").text))
    for sql in (*STATEMENTS, *PRICED):
        form = {"sql": sql.format(name=name, schema=schema), "csrf": secret, "epsilon": "0.2"}
        yield one.pages.post("/ask/price", data=form, headers=SAME).text


def over_flight(one: Running, name: str, schema: str) -> Iterator[str]:
    options = {"adbc.flight.sql.authorization_header": f"Bearer {one.token}"}
    with dbapi.connect(one.flight, options, autocommit=True) as connection:
        yield str(connection.adbc_get_objects(depth="all").read_all().to_pylist())
        yield str(connection.adbc_get_table_types())
        for sql in STATEMENTS:
            with connection.cursor() as cursor:
                try:
                    cursor.execute(sql.format(name=name, schema=schema))
                    yield str(cursor.fetch_arrow_table().to_pylist())
                except dbapi.Error as error:
                    yield str(error)


def over_mcp(one: Running, name: str, schema: str) -> Iterator[str]:
    async def ask() -> list[str]:
        out = []
        headers = {"Authorization": f"Bearer {one.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(one.mcp, http_client=http), mode="legacy") as client,
        ):
            for tool, given in (
                ("list_datasets", {}),
                ("describe_dataset", {"name": name}),
                ("budget", {}),
                *(("query", {"sql": sql.format(name=name, schema=schema)}) for sql in STATEMENTS),
                *(("estimate", {"sql": sql.format(name=name, schema=schema)}) for sql in PRICED),
            ):
                out.append("\n".join(part.text for part in (await client.call_tool(tool, given)).content))
        return out

    yield from anyio.run(ask)


DOORS: Mapping[str, Callable[[Running, str, str], Iterator[str]]] = {
    "HTTP": over_rest,
    "the site": over_the_site,
    "Flight SQL": over_flight,
    "MCP": over_mcp,
}


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Running, Path]]]:
    with ExitStack() as open_ones:
        folders = [tmp_path_factory.mktemp(f"people{people}") for people in (5, 6)]
        yield [
            (open_ones.enter_context(gateway(folder, people)), folder)
            for folder, people in zip(folders, (5, 6), strict=True)
        ]


def same_for_all(text: str, folder: Path) -> str:
    """Return a text without times, and what each process makes at random."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "TIME", without_names(text, folder))
    return re.sub(r'(name="(?:csrf|key)" value=|nonce[-=]"?)"?[\w=+/-]+', r"\1", text)


def apart(one: str, other: str) -> tuple[str, str]:
    """Return two texts from shortly before where they differ."""
    at = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return one[max(0, at - 80) : at + 80], other[max(0, at - 80) : at + 80]


@cases("door", DOORS)
@cases("kind", KINDS)
def test_neighbours_look_the_same(neighbours: list[tuple[Running, Path]], kind: str, door: str) -> None:
    schema = SCHEMAS[kind]
    without, with_person = (
        [same_for_all(text, folder) for text in DOORS[door](one, f"{schema}.people", schema)]
        for one, folder in neighbours
    )
    assert [apart(*texts) for texts in zip(without, with_person, strict=True) if texts[0] != texts[1]] == []
    assert any("cost" in text for text in without), "the door shows no column of the table"
    assert "Huntington" not in json.dumps(with_person)


def test_nothing_was_charged(neighbours: list[tuple[Running, Path]]) -> None:
    for one, _ in neighbours:
        assert one.http.get("/v1/releases").json() == {"releases": []}
