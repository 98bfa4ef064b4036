"""The gateway over HTTP: each operation, each refusal, and that no exception leaves."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from dpsql.errors import original
from dpsql.gateway import http
from dpsql.gateway.encoding import ARROW, RECEIPTS, arrow_bytes, json_bytes, read_arrow, table_document
from dpsql.gateway.listening import Listening, is_local
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor, listening

BEARER = {"Authorization": f"Bearer {TOKEN}"}
SECRET = "row of Ms Smith"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with listening(door) as url:
        yield door, url


def ask(url: str, body: bytes | dict[str, Any] | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    sent = {**BEARER, "Content-Type": "application/json"}
    sent.update({name.replace("_", "-"): value for name, value in headers.items()})
    request = urllib.request.Request(url, data, {name: value for name, value in sent.items() if value})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


def refused(url: str, body: bytes | dict[str, Any] | None = None, **headers: str) -> tuple[int, str]:
    status, given, data = ask(url, body, **headers)
    assert given["content-type"] == "application/problem+json"
    problem = json.loads(data)
    assert problem["status"] == status
    return status, problem["code"]


def test_every_operation_of_the_document_is_answered_as_it_says(door: FakeDoor, url: str) -> None:
    _, _, text = ask(f"{url}/v1/openapi.json", Authorization="")
    document = json.loads(text)
    ask(f"{url}/v1/query", {"sql": "SELECT 1"})  # there is a release to be asked for
    called = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            spelled = path
            for one in operation.get("parameters", ()):
                if one["in"] == "path":
                    spelled = spelled.replace(f"{{{one['name']}}}", str(one["example"]))
            body = {"sql": "SELECT 1", "epsilon": 0.5} if "requestBody" in operation else None
            status, headers, data = ask(url + spelled, body)
            assert status == 200, (path, data)
            schema = operation["responses"]["200"]["content"][headers["content-type"]]["schema"]
            jsonschema.validate(json.loads(data), {**schema, "components": document["components"]})
            status, headers, data = ask(url + spelled, body, Authorization="Bearer dpsql_wrong")
            if operation.get("security", document["security"]):
                assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="dpsql"')
                problem = document["components"]["responses"]["Refused"]["content"]["application/problem+json"]
                jsonschema.validate(json.loads(data), {**problem["schema"], "components": document["components"]})
            else:
                assert status == 200
            called.add((method.upper(), path))
    assert called == {(one.method, one.path) for one in http.OPERATIONS}


def test_rows_and_receipts_come_as_json(url: str) -> None:
    status, headers, data = ask(f"{url}/v1/query", {"sql": "SELECT a", "epsilon": 0.5})
    answer = json.loads(data)
    assert status == 200
    assert headers["connection"] == "close"
    assert headers["cache-control"] == "no-store"
    assert answer["columns"] == [{"name": "value", "type": "double"}]
    assert answer["rows"] == [[42.5]]
    assert answer["receipts"][0]["guarantee"] == "0.5-DP, one row"


def test_numbers_that_json_lacks_are_texts(url: str) -> None:
    _, _, data = ask(f"{url}/v1/query", {"sql": "SELECT nasty"})
    answer = json.loads(data, parse_constant=pytest.fail)
    assert answer["rows"] == [
        ["NaN", "Infinity", str(2**53 + 1), "<img src=x onerror=alert(1)>", [1.0, "NaN"]],
        [1.5, "-Infinity", 2**53, None, []],
    ]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("s", "UTC")])
def test_dates_that_python_has_not_are_texts(kind: pa.DataType) -> None:
    """Planted: `to_pylist` alone, which ended an answer in I000."""
    most = 2**31 - 1 if kind == pa.date32() else 2**63 - 1
    if kind == pa.date64():
        most = most // 86_400_000 * 86_400_000
    column = pa.array([0, None, most, -most], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), column)
    told = json.loads(json_bytes(table_document(pa.table({"a": column[:2], "b": nested}), [])))
    first, last = told["rows"]
    assert first[0].startswith("1970-01-01")
    assert first[1] == [first[0], None]
    assert last[0] is None
    assert all(isinstance(one, str) for one in last[1])
    assert kind == pa.date64() or last[1] == ["infinity", "-infinity"]


def test_rows_and_receipts_come_as_arrow(url: str) -> None:
    _, headers, data = ask(f"{url}/v1/query", {"sql": "SELECT nasty"}, Accept=ARROW)
    assert headers["content-type"] == ARROW
    table, receipts = read_arrow(data)
    assert math.isnan(table["nan"][0].as_py())
    assert receipts == []
    _, _, data = ask(f"{url}/v1/query", {"sql": "SELECT a"}, Accept=f"{ARROW}, application/json;q=0.1")
    table, [receipt] = read_arrow(data)
    assert (table.to_pylist(), receipt["entry"]) == ([{"value": 42.5}], 1)
    assert RECEIPTS not in (table.schema.metadata or {})


def test_an_arrow_stream_keeps_the_metadata_of_its_schema() -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"mine": "kept"})
    found, receipts = read_arrow(arrow_bytes(table, [{"entry": 3}]))
    assert (found.schema.metadata, receipts) == ({b"mine": b"kept"}, [{"entry": 3}])


def test_numbers_reach_the_door_as_they_were_written(door: FakeDoor, url: str) -> None:
    body = b'{"sql": "SELECT a", "epsilon": 0.07770, "delta": 1e-6, "fresh": true, "max_age": 24, "dataset": null}'
    ask(f"{url}/v1/query", body, Idempotency_Key="k1")
    [(_, settings)] = door.asked
    assert settings == {
        "epsilon": "0.07770", "delta": "1e-6", "fresh": "true", "max_age": "24", "idempotency_key": "k1",
    }  # fmt: skip


@cases(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b'"SELECT 1"',
        b"{}",
        b'{"sql": null}',
        b'{"sql": 1}',
        b'{"sql": 1.0}',
        b'{"sql": ["SELECT 1"]}',
        b'{"sql": "SELECT 1", "sql": "SELECT 2"}',
        b'{"sql": "SELECT 1", "epsilon": 1, "epsilon": 2}',
        b'{"sql": "SELECT 1", "epsilon": NaN}',
        b'{"sql": "SELECT 1", "epsilon": Infinity}',
        b'{"sql": "SELECT 1", "epsilon": -Infinity}',
        b'{"sql": "SELECT 1", "epsilon": true}',
        b'{"sql": "SELECT 1", "epsilon": [1]}',
        b'{"sql": "SELECT 1", "epsilon": 1' + b"0" * 50 + b"}",
        b'{"sql": "SELECT 1", "epsilon": 1' + b"0" * 5000 + b"}",
        b'{"sql": "SELECT 1", "fresh": 1}',
        b'{"sql": "SELECT 1", "fresh": "true"}',
        b'{"sql": "SELECT 1", "dataset": 1}',
        b'{"sql": "SELECT 1", "epsilo": 1}',
        b'{"sql": "SELECT 1", "__class__": "x"}',
        b'{"sql": "SELECT \\ud800"}',
        b'{"sql": "SELECT 1", "dataset": "\\udfff"}',
        b'{"sql": "\xff\xfe"}',
        b'{"sql": "\xc0\xaf"}',
        '{"sql": "SELECT 1"}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 20_000,
        b'{"sql": "SELECT 1"} {}',
    ],
)
def test_bodies_that_are_no_question_are_refused(door: FakeDoor, url: str, body: bytes) -> None:
    assert refused(f"{url}/v1/query", body) == (400, "G021")
    assert refused(f"{url}/v1/estimate", body) == (400, "G021")
    assert door.asked == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "json"])
def test_bodies_of_other_kinds_are_refused(url: str, kind: str) -> None:
    assert refused(f"{url}/v1/query", {"sql": "SELECT 1"}, Content_Type=kind or "x/y") == (400, "G021")


@cases(
    "authorization",
    ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}",
     f"Bearer {TOKEN} {TOKEN}", "Bearer " + "a" * 9000],
)  # fmt: skip
def test_other_tokens_are_refused(door: FakeDoor, url: str, authorization: str) -> None:
    assert refused(f"{url}/v1/query", {"sql": "SELECT 1"}, Authorization=authorization) == (401, "G020")
    assert refused(f"{url}/v1/budget", Authorization=authorization) == (401, "G020")
    assert door.asked == []


def test_a_token_in_the_address_is_refused(door: FakeDoor, url: str) -> None:
    assert refused(f"{url}/v1/budget?token={TOKEN}") == (400, "G021")
    assert refused(f"{url}/v1/budget?access_token={TOKEN}", Authorization="") == (400, "G021")


def test_a_refusal_keeps_its_code_place_and_hint(url: str) -> None:
    status, _, data = ask(f"{url}/v1/query", {"sql": "SELECT rows"})
    problem = json.loads(data)
    assert status == 400
    assert (problem["code"], problem["position"], problem["hint"]) == ("G006", 14, "dp_count('patients')")
    assert refused(f"{url}/v1/query", {"sql": "SELECT spent"}) == (403, "B001")


def test_a_set_is_refused_where_there_is_no_session(url: str) -> None:
    assert refused(f"{url}/v1/query", {"sql": "SET epsilon = 0.1"}) == (400, "G021")


@cases(
    ("code", "status", "header"),
    [
        ("G001", 400, ""), ("G015", 404, ""), ("G017", 403, ""), ("G018", 404, ""), ("G020", 401, "www-authenticate"),
        ("G030", 429, "retry-after"), ("G031", 501, ""), ("G032", 503, "retry-after"), ("G033", 503, "retry-after"),
        ("G036", 503, "retry-after"), ("G098", 500, ""), ("G099", 400, ""), ("P001", 400, ""), ("S002", 400, ""),
        ("B001", 403, ""), ("L006", 503, "retry-after"), ("I001", 500, ""),
    ],
)  # fmt: skip
def test_a_code_has_its_status(door: FakeDoor, url: str, code: str, status: int, header: str) -> None:
    door.failure = original(ValueError(f"[DPSQL-{code}] said. Next step."))
    found, headers, data = ask(f"{url}/v1/query", {"sql": "SELECT 1"})
    assert (found, json.loads(data)["code"], json.loads(data)["title"]) == (status, code, "said. Next step.")
    assert {name for name in headers if name in ("www-authenticate", "retry-after")} == ({header} if header else set())


def test_a_lost_broker_shows_in_health(door: FakeDoor, url: str) -> None:
    door.works = {"broker": "lost"}
    status, _, data = ask(f"{url}/health", Authorization="")
    assert (status, json.loads(data)) == (503, {"broker": "lost"})


def test_lists_have_pages_and_nothing_else_may_stand_behind_a_question_mark(door: FakeDoor, url: str) -> None:
    for number in range(3):
        ask(f"{url}/v1/query", {"sql": f"SELECT {number}"})
    for path, name in (("/v1/releases", "releases"), ("/v1/ledger", "ledger")):
        for query, entries in (("", [1, 2, 3]), ("?before=3", [1, 2]), ("?before=1", [])):
            assert [row["entry"] for row in json.loads(ask(url + path + query)[2])[name]] == entries
        for query in ("?before=", "?before=-1", "?before=1&before=2", "?token=x", "?before=1;", "?before=" + "9" * 16):
            assert refused(url + path + query) == (400, "G021")
    assert refused(f"{url}/v1/budget?before=3") == (400, "G021")


def test_paths_that_are_not_there_are_refused_as_problems(url: str) -> None:
    assert refused(f"{url}/") == (404, "G031")
    assert refused(f"{url}/v1/query") == (405, "G031")
    assert refused(f"{url}/v1/releases/x") == (400, "G021")
    assert refused(f"{url}/v1/releases/9999999999999999999") == (400, "G021")
    assert refused(f"{url}/v1/releases/%D9%A3") == (400, "G021")
    assert refused(f"{url}/v1/datasets/..%2f..%2fetc%2fpasswd") in ((400, "G021"), (404, "G031"))


@pytest.mark.parametrize("failure", [RecursionError(SECRET), KeyError(SECRET), MemoryError(SECRET), OSError(SECRET)])
def test_no_exception_of_a_handler_leaves(door: FakeDoor, url: str, failure: Exception, caplog: Any) -> None:
    door.failure = failure
    for operation in http.OPERATIONS:
        if operation.path == "/v1/openapi.json":
            continue
        path = operation.path.replace("{name}", "patients").replace("{number}", "1")
        body = {"sql": "SELECT 1"} if operation.method == "POST" else None
        status, headers, data = ask(url + path, body)
        problem = json.loads(data)
        assert (status, problem["code"], headers["content-type"]) == (500, "I000", "application/problem+json")
        assert SECRET.encode() not in data
        assert b"Traceback" not in data
        number = problem["title"].split("look for ")[1].split(" ")[0]
        assert any(number in record.getMessage() for record in caplog.records)


def test_no_exception_of_an_application_leaves(door: FakeDoor) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            raise RecursionError(SECRET)
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    with listening(door, app=broken) as url:
        status, _, data = ask(f"{url}/v1/budget")
    assert (status, json.loads(data)["code"]) == (500, "I000")
    assert SECRET.encode() not in data


@cases(("text", "good"), [("0.1", True), ("0.07770", True), ("1e-6", True), ("-1", True), ("", False),
    (".1", False), ("0,1", False), ("nan", False), ("inf", False), ("0x1", False), ("1_0", False), (" 1", False),
    ("\u0661", False), ("1\n", False), ("1" * 41, False)], alone=True)  # fmt: skip
def test_a_number_may_be_a_text(door: FakeDoor, url: str, text: str, good: bool) -> None:
    status, _, _ = ask(f"{url}/v1/query", {"sql": "SELECT a", "epsilon": text})
    assert status == (200 if good else 400)
    assert [settings for _, settings in door.asked] == ([{"epsilon": text}] if good else [])


def test_no_header_lets_other_sites_in(url: str) -> None:
    _, headers, _ = ask(f"{url}/v1/budget", Origin="https://evil.example")
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


@cases(("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
    ("::", False), ("192.168.1.2", False), ("example.org", False), ("127.0.0.1.example.org", False)])  # fmt: skip
def test_plaintext_stays_on_this_machine(host: str, local: bool) -> None:
    assert is_local(host) == local
    if local:
        Listening(host=host).check()
    else:
        with pytest.raises(Exception, match="G023"):
            Listening(host=host).check()
    Listening(host=host, insecure_plaintext=True).check()
    with pytest.raises(Exception, match="certificate or its key cannot be read"):  # what comes after the host
        Listening(host=host, tls_cert="c", tls_key="k").check()


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(Exception, match="G023"):
        Listening(tls_cert="c").check()


def test_a_free_question_does_not_wait_for_releases(door: FakeDoor) -> None:
    assert set(http._SPENDING) < {one.path for one in http.OPERATIONS}
