"""The pages without a browser: what is escaped, who gets in, which forms are taken, and what is written to a file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dpsql.errors import GatewayError
from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.encoding import RECEIPTS, read_arrow
from dpsql.gateway.listening import Guarded
from dpsql.gateway.pages.asking import arguments_of, asking_routes, csv_bytes, field_of, statement_of
from dpsql.gateway.pages.elements import h
from dpsql.gateway.pages.picture import number_text, pictures
from dpsql.gateway.pages.sessions import SECONDS, KeptAnswer, Logins
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor

SAME = {"Sec-Fetch-Site": "same-origin"}
SCRIPT = "<script>alert(2)</script>"
# What a text is made of that tries to be more than one.
MARKUP = "<>/&\"'=;-! \n\0abp\u202e\u00e9"


class Clock:
    """Seconds that a test lets go by."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def door() -> FakeDoor:
    return FakeDoor()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(door: FakeDoor, clock: Clock) -> Iterator[TestClient]:
    app = Guarded(Starlette(routes=asking_routes(door, Logins(clock))), Addresses())
    with TestClient(app, base_url="https://dpsql.example.org", follow_redirects=False) as found:
        yield found


def logged_in(client: TestClient) -> str:
    """Log in, and return the secret of the session's forms."""
    answer = client.post("/login", data={"token": TOKEN}, headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return secret_of(client.get("/datasets").text)


def secret_of(page: str) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', page)[0]


class Texts(HTMLParser):
    """The elements and texts of a page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


# What is written.


@settings(max_examples=40, deadline=None)
@given(st.text(MARKUP), st.text(MARKUP))
def test_whatever_is_put_in_a_page_is_text(inside: str, beside: str) -> None:
    page = Texts(str(h("p", {"title": beside}, inside, h("b", {}, beside))))
    assert page.tags == ["p", "b"]
    assert [name for name, _ in page.attributes] == ["title"]


def test_texts_come_back_as_they_were() -> None:
    text = "\n<b>&amp; \"'\n</textarea>"
    page = Texts(str(h("textarea", {}, text)))
    assert page.text == f"\n{text}"  # a browser drops the first line break


def test_what_turns_a_text_around_is_written_out() -> None:
    assert Texts(str(h("td", {}, "age\u202egnp.exe\u200b"))).text == "age\\u202egnp.exe\\u200b"
    assert Texts(str(h("td", {}, "ردهه, 区, naïve"))).text == "ردهه, 区, naïve"


@cases(
    "attributes",
    [
        {"onclick": "a()"}, {"OnLoad": "a()"}, {"style": "color:red"}, {"href": "javascript:alert(1)"}, {"a b": "1"},
        {"href": "//evil.example"}, {"href": "https://evil.example"}, {"src": "/\\evil.example"}, {"action": " /"},
        {"srcdoc": "<script>"}, {'x"': "1"}, {"formaction": "data:text/html,x"}, {"http-equiv": "refresh"},
    ],
)  # fmt: skip
def test_no_attribute_holds_a_script_or_leads_elsewhere(attributes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"for these pages|leads elsewhere"):
        h("a", attributes, "x")


def test_a_script_is_a_file_of_its_own() -> None:
    with pytest.raises(ValueError, match="a file of its own"):
        h("script", {}, "alert(1)")
    with pytest.raises(ValueError, match="no element"):
        h("style", {}, "a")
    with pytest.raises(ValueError, match="no element"):
        h("a b")


# Who gets in.


def test_nobody_sees_a_page_without_a_token(client: TestClient) -> None:
    for path in (
        "/",
        "/datasets",
        "/dataset?name=patients",
        "/form",
        "/ask",
        "/releases",
        "/releases/1",
        "/answers/a/csv",
    ):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
    for path in ("/ask", "/form", "/ask/price"):
        assert client.post(path, data={"sql": "SELECT 1"}, headers=SAME).headers["location"] == "/login"
    assert TOKEN not in client.get("/login").text


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(client: TestClient) -> None:
    given = client.post("/login", data={"token": TOKEN}, headers=SAME).headers["set-cookie"]
    name, *flags = [part.strip().lower() for part in given.split(";")]
    assert name.startswith("__host-dpsql=")
    assert len(name.partition("=")[2]) == 43
    assert set(flags) == {"httponly", "secure", "samesite=strict", "path=/", "max-age=28800"}


def test_on_this_machine_alone_the_cookie_needs_no_tls(door: FakeDoor) -> None:
    app = Starlette(routes=asking_routes(door))
    with TestClient(app, base_url="http://localhost:8642", follow_redirects=False) as local:
        given = local.post("/login", data={"token": TOKEN}, headers=SAME).headers["set-cookie"]
    assert given.startswith("dpsql=")
    assert "secure" not in given.lower()
    with TestClient(app, base_url="http://dpsql.example.org", follow_redirects=False) as plain:
        assert "Secure" in plain.post("/login", data={"token": TOKEN}, headers=SAME).headers["set-cookie"]


def test_every_answer_has_the_headers(client: TestClient) -> None:
    logged_in(client)
    for path in ("/login", "/datasets", "/ask", "/gateway.js", "/gateway.css", "/releases/999"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_a_login_makes_a_new_session_and_a_logout_ends_it(client: TestClient) -> None:
    client.cookies.set("__Host-dpsql", "chosen by somebody else", domain="dpsql.example.org")
    assert client.get("/ask").headers["location"] == "/login"
    client.cookies.clear()
    secret = logged_in(client)
    cookie = client.cookies["__Host-dpsql"]
    client.post("/login", data={"token": TOKEN}, headers=SAME)
    assert client.cookies["__Host-dpsql"] != cookie
    client.cookies.set("__Host-dpsql", cookie, domain="dpsql.example.org", path="/")
    client.cookies.clear()
    secret = logged_in(client)
    cookie = client.cookies["__Host-dpsql"]
    assert client.post("/logout", data={"csrf": secret}, headers=SAME).headers["location"] == "/login"
    client.cookies.clear()
    assert client.get("/ask", headers={"Cookie": f"__Host-dpsql={cookie}"}).headers["location"] == "/login"


def test_a_session_ends_after_eight_hours(client: TestClient, clock: Clock) -> None:
    logged_in(client)
    clock.now = SECONDS - 1
    assert client.get("/ask").status_code == 200
    clock.now = SECONDS
    assert client.get("/ask").headers["location"] == "/login"


def test_a_revoked_token_ends_the_session(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    client.post("/ask", data={"csrf": secret, "sql": "SELECT a", "do": "ask"}, headers=SAME)
    door.failure = GatewayError("G020", "the token is none that holds.")
    for path in ("/answers/x", "/datasets"):
        assert client.get(path).headers["location"].startswith("/login")
    door.failure = None
    assert client.get("/datasets").headers["location"] == "/login"


@cases("token", ["dpsql_wrong", "", "a b", "x" * 9000, "dpsql_\u00e9", "'--"])
def test_a_wrong_token_is_refused(client: TestClient, token: str) -> None:
    answer = client.post("/login", data={"token": token}, headers=SAME)
    assert answer.status_code == 401
    assert "G020" in answer.text
    assert "set-cookie" not in answer.headers


def test_wrong_tokens_are_throttled_by_address(client: TestClient, clock: Clock) -> None:
    found = [client.post("/login", data={"token": "dpsql_no"}, headers=SAME).status_code for _ in range(22)]
    assert found == [401] * 20 + [429] * 2
    assert client.post("/login", data={"token": TOKEN}, headers=SAME).status_code == 429
    clock.now = 3.1
    assert client.post("/login", data={"token": TOKEN}, headers=SAME).status_code == 303


@cases(
    "headers",
    [
        {}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "https://dpsql.example.org.evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://dpsql.example.org"},
    ],
)  # fmt: skip
def test_a_form_from_elsewhere_is_refused(client: TestClient, door: FakeDoor, headers: dict[str, str]) -> None:
    assert client.post("/login", data={"token": TOKEN}, headers=headers).status_code == 403
    secret = logged_in(client)
    for path in ("/ask", "/ask/price", "/form", "/logout"):
        fields = {"csrf": secret, "sql": "SELECT a", "do": "ask", "function": "dp_count", "dataset": "patients"}
        answer = client.post(path, data=fields, headers=headers)
        assert (answer.status_code, "G022" in answer.text) == (403, True), path
    assert door.asked == []
    assert client.get("/ask").status_code == 200


def test_the_origin_says_it_where_a_browser_does_not(client: TestClient) -> None:
    origin = {"Origin": "https://dpsql.example.org"}
    assert client.post("/login", data={"token": TOKEN}, headers=origin).status_code == 303


@pytest.mark.parametrize("secret", ["", "wrong", "\u00e9"])
def test_a_form_without_the_secret_is_refused(client: TestClient, door: FakeDoor, secret: str) -> None:
    logged_in(client)
    for path in ("/ask", "/ask/price", "/form", "/logout"):
        fields = {"csrf": secret, "sql": "SELECT a", "do": "ask"} if secret else {"sql": "SELECT a"}
        assert client.post(path, data=fields, headers=SAME).status_code == 403, path
    assert door.asked == []


@pytest.mark.parametrize("body", [b"sql", b"\xff=1", b"&".join([b"a=1"] * 3000)])
def test_what_is_no_form_is_refused(client: TestClient, body: bytes) -> None:
    logged_in(client)
    form = {**SAME, "Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/ask", content=body, headers=form).status_code in (400, 403)
    answer = client.post("/ask", json={"sql": "SELECT a"}, headers=SAME)
    assert (answer.status_code, "G021" in answer.text) == (400, True)


# What is asked.


def ask(client: TestClient, secret: str, sql: str, **fields: str) -> Any:
    return client.post("/ask", data={"csrf": secret, "sql": sql, "do": "ask", **fields}, headers=SAME)


def test_a_question_is_asked_once_however_often_its_page_is_seen(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    place = ask(client, secret, "SELECT a", epsilon="0.07770", max_age="24").headers["location"]
    for path in (place, place, f"{place}/csv", f"{place}/parquet", f"{place}/arrows", "/releases"):
        assert client.get(path).status_code == 200
    assert door.asked == [("SELECT a", {"epsilon": "0.07770", "max_age": "24"})]
    page = client.get(place).text
    assert "Charged ε 0.5 of patients." in page
    assert ">42.5<" in page
    assert "0.5-DP, one row" in page


def test_what_is_fresh_has_a_key_and_stays_one_draw(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    key = re.findall(r'name="key" value="([^"]+)"', client.get("/ask").text)[0]
    for _ in range(2):
        ask(client, secret, "SELECT a", fresh="true", key=key)
    assert [given for _, given in door.asked] == [{"fresh": "true", "idempotency_key": key}] * 2


def test_the_price_is_shown_before_asking(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    for path in ("/ask", "/ask/price"):
        fields = {"csrf": secret, "sql": "SELECT a", "epsilon": "0.25", "do": "price"}
        answer = client.post(path, data=fields, headers=SAME)
        assert answer.status_code == 200
        assert "<strong>ε 0.25</strong> of <bdi>patients</bdi>" in answer.text
    assert door.asked == []
    ask(client, secret, "SELECT a")
    assert (
        "<strong>Free</strong>"
        in client.post("/ask/price", data={"csrf": secret, "sql": "SELECT a"}, headers=SAME).text
    )


def test_a_refusal_shows_where_and_what_instead(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    answer = ask(client, secret, "SELECT rows\r\nFROM patients")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "Line 2, character 3:" in answer.text
    assert "FROM patients\n  ^" in answer.text
    assert "SELECT rows\nFROM patients</textarea>" in answer.text
    taken = client.post("/ask", data={"csrf": secret, "sql": "x", "take": "SELECT good"}, headers=SAME)
    assert "SELECT good</textarea>" in taken.text
    assert "B001" in ask(client, secret, "SELECT spent").text
    assert "no session" in ask(client, secret, "SET epsilon = 1").text
    assert "G021" in ask(client, secret, "SELECT a", epsilon="1" * 41).text


def test_what_strangers_wrote_stays_text(client: TestClient, door: FakeDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = logged_in(client)
    place = ask(client, secret, f"SELECT nasty -- {SCRIPT}").headers["location"]
    described = {
        "name": SCRIPT,
        "columns": [{"name": SCRIPT, "type": SCRIPT, "keys": SCRIPT}],
        "stated": {SCRIPT: SCRIPT},
    }
    monkeypatch.setattr(door, "describe", lambda token, name: described)
    monkeypatch.setattr(door, "datasets", lambda token: [{"name": SCRIPT, "functions": ["dp_count", SCRIPT]}])
    for path in (place, f"/dataset?name={SCRIPT}", "/datasets", "/form", "/ask", "/releases", f"/ask?dataset={SCRIPT}"):
        page = client.get(path).text
        assert "alert(" in page, path
        assert "<script>" not in page, path
        assert "<img" not in page, path


def test_no_exception_is_shown(client: TestClient, door: FakeDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    logged_in(client)

    def fail(*_: object) -> None:
        raise KeyError("row of Ms Smith")

    for name in ("datasets", "budget", "releases", "release", "describe"):
        monkeypatch.setattr(door, name, fail)
    for path in ("/datasets", "/dataset?name=a", "/ask", "/form", "/releases", "/releases/1"):
        answer = client.get(path)
        assert (answer.status_code, "I000" in answer.text, "Smith" in answer.text) == (500, True, False)


def test_old_answers_make_room(clock: Clock) -> None:
    sessions = Logins(clock)
    session = sessions.find(sessions.begin("a", "ana"))
    assert session is not None
    names = [sessions.keep(session, KeptAnswer("", {}, pa.table({"a": [1]}), [])) for _ in range(30)]
    assert list(session.answers) == names[10:]


# Files.


@cases("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_a_spreadsheet_computes_nothing(text: str) -> None:
    table = pa.table({text: [text], "number": [-1.5], "list": [["=a"]]})
    assert (
        csv_bytes(KeptAnswer("", {}, table, []))
        .decode()
        .replace('"', "")
        .startswith(f"'{text},number,list\r\n'{text},-1.5")
    )


def test_downloads_hold_what_the_page_shows(client: TestClient, door: FakeDoor) -> None:
    secret = logged_in(client)
    place = ask(client, secret, "SELECT a").headers["location"]
    file = client.get(f"{place}/csv")
    assert (file.text, file.headers["content-disposition"]) == ("value\r\n42.5\r\n", 'attachment; filename="dpsql.csv"')
    table = pq.read_table(io.BytesIO(client.get(f"{place}/parquet").content))
    assert table.to_pylist() == [{"value": 42.5}]
    assert b"0.5-DP" in table.schema.metadata[RECEIPTS]
    again, [receipt] = read_arrow(client.get(f"{place}/arrows").content)
    assert (again.to_pylist(), receipt["entry"]) == ([{"value": 42.5}], 1)
    assert client.get(f"{place}/exe").status_code == 404
    assert client.get("/answers/other/csv").status_code == 404


# Forms and pictures.

COLUMNS = [{"name": "ward"}, {"name": "it's"}]


@cases("function", [name for name, one in FUNCTIONS.items() if one.spends])
def test_every_argument_has_a_field_with_a_label(function: str) -> None:
    for argument in arguments_of(function):
        page = Texts(str(field_of(argument, COLUMNS, None)))
        assert ("name", f"a.{argument.name}") in page.attributes
        assert "label" in page.tags
        assert argument.doc.split("'")[0] in page.text


def test_a_filled_form_is_a_statement() -> None:
    fields = {
        "a.target": ["it's"], "a.lower": ["-1.5"], "a.upper": ["{a: 1}"], "a.by": ["ward", "it's"], "a.delta": [" "],
        "a.keys": ["A, B, 3"], "a.epsilon": ["0.5"], "a.other": ["true"], "a.noise": ["laplace"], "a.engine": ["x"],
        "a.condition": ["days > 3, or 'x'"], "a.max_rows_per_unit": ["3"], "a.wrong": ["1"],
    }  # fmt: skip
    assert statement_of("dp_avg", "a'b", fields).split("\n") == [
        "SELECT * FROM dp_avg(", "  'a''b',", "  target := 'it''s',", "  epsilon := 0.5,", "  lower := -1.5,",
        "  upper := {a: 1},", "  by := ['ward', 'it''s'],", "  keys := ['A', 'B', 3],",
        "  condition := 'days > 3, or ''x''',", "  other := true,", "  max_rows_per_unit := 3,",
        "  noise := 'laplace'", ")",
    ]  # fmt: skip


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["a.target", "a.keys", "a.lower"]), st.lists(st.text(), max_size=3)), st.text())
def test_texts_of_a_form_end_where_they_should(fields: dict[str, list[str]], source: str) -> None:
    """A text that is quoted stays one: quotes in it are doubled."""
    safe = {
        name: [one.replace("[", "").replace("{", "").replace("'", "") for one in held] for name, held in fields.items()
    }
    assert statement_of("dp_count", source.replace("'", "''"), safe).count("'") % 2 == 0


def test_pictures_are_of_what_has_numbers_to_compare() -> None:
    rows = {
        "ward": ["A", "B"],
        "aggregate": ["avg"] * 2,
        "value": [1.0, 2.0],
        "lower": [0.5, 1.0],
        "upper": [1.5, None],
    }
    [one] = pictures(pa.table(rows))
    assert "A" in Texts(str(one)).text
    assert str(one).count('class="bar"') == 2
    assert pictures(pa.table({"value": [42.5]})) == []
    assert pictures(pa.table({"a": pa.array([], pa.float64()), "b": pa.array([], pa.string())})) == []
    days = {"day": ["2026-01-01", "2026-01-02", "2026-01-05", "2026-01-07"], "n": [1.0, float("nan"), 3.0, 4.0]}
    assert pictures(pa.table(days))
    assert "polyline" in str(pictures(pa.table({**days, "n": [1.0, 2.0, 3.0, 4.0]}))[0])
    bins = {
        "lower": [0.0, None],
        "upper": [1.0, None],
        "count": [5.0, -1.0],
        "count_lower": [1.0] * 2,
        "count_upper": [9.0] * 2,
    }
    assert "no value" in str(pictures(pa.table(bins))[0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=5))
def test_a_picture_of_any_numbers_is_drawn(values: list[float]) -> None:
    table = pa.table({"label": [SCRIPT] * len(values), "value": values, "lower": values, "upper": values})
    for one in pictures(table):
        assert "nan" not in str(one).lower().replace("nan ", "")
        assert SCRIPT not in str(one)


@cases(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (52.68154827, "52.6815"), (1234567.0, "1234567"), (-3.0, "−3"), (1e-7, "1e-07"),
        (float("nan"), "NaN"), (float("-inf"), "−∞"), (1e300, "1e+300"), (100.0, "100"),
    ],
)  # fmt: skip
def test_numbers_have_six_digits(value: float, text: str) -> None:
    assert number_text(value) == text
