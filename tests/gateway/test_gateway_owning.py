"""The pages of owners without a browser: who gets in, which forms are taken, and that a token is shown once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dpsql.cli.commands import grant
from dpsql.contract.grant_fields import GRANT_FIELDS
from dpsql.errors import GatewayError, ParameterError
from dpsql.gateway.pages.owning import owning_routes
from dpsql.ledger.grants import Grant
from support.fake_door import TOKEN
from support.owners_door import NEW, SCRIPT, OwnersDoor

SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def door() -> OwnersDoor:
    return OwnersDoor()


@pytest.fixture
def client(door: OwnersDoor) -> Iterator[TestClient]:
    app = Starlette(routes=owning_routes(door))
    with TestClient(app, base_url="http://127.0.0.1:8650", follow_redirects=False) as found:
        yield found


def logged_in(client: TestClient) -> str:
    """Log in, and return the secret of the session's forms."""
    answer = client.post("/login", data={"token": TOKEN}, headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return re.findall(r'name="csrf" value="([^"]+)"', client.get("/datasets").text)[0]


def test_only_owners_and_auditors_get_in(client: TestClient, door: OwnersDoor) -> None:
    door.standing = {"owner": [], "auditor": []}
    answer = client.post("/login", data={"token": TOKEN}, headers=SAME)
    assert (answer.status_code, "G019" in answer.text, "set-cookie" in answer.headers) == (403, True, False)
    for path in ("/", "/datasets", "/grants", "/ledger", "/refused"):
        assert client.get(path).headers["location"] == "/login"


def test_the_cookie_is_another_than_that_of_analysts(client: TestClient) -> None:
    """Both sites may be on this machine, whose ports share their cookies."""
    logged_in(client)
    assert list(client.cookies.keys()) == ["dpsql-owner"]


def test_names_and_values_are_text(client: TestClient) -> None:
    logged_in(client)
    for path in ("/datasets", "/grants", "/ledger", "/refused"):
        page = client.get(path)
        assert page.status_code == 200
        assert "alert(2)" in page.text, path
        assert "<script>" not in page.text, path


CHANGES = ("/grants", "/grants/revoke", "/grants/token", "/ledger")


def test_forms_of_others_change_nothing(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    door.wanted = []
    for path in CHANGES:
        for fields, headers in (({}, SAME), ({"csrf": "x"}, SAME), ({"csrf": secret}, {"Sec-Fetch-Site": "same-site"})):
            answer = client.post(path, data={"principal": "ana", **fields}, headers=headers)
            assert (answer.status_code, "G022" in answer.text) == (403, True)
    assert door.wanted == []


def test_what_a_form_says_reaches_the_broker(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    door.wanted = []
    said = {"principal": "ana", "dataset": "visits", "role": "analyst", "epsilon": "0.07770", "share": "true"}
    assert client.post("/grants", data={"csrf": secret, "delta": " ", **said}, headers=SAME).status_code == 303
    client.post("/grants/revoke", data={"csrf": secret, "principal": "ana", "token": "abcdefgh"}, headers=SAME)
    assert door.wanted == [
        ("grants", {}),
        ("grant", {"grant": said}),
        ("revoke", {"revoke": {"principal": "ana", "token": "abcdefgh"}}),
    ]


def test_the_form_has_a_field_for_everything_that_is_said_of_a_grant(client: TestClient) -> None:
    """One list is behind the command line, the form, and what the ledger is told."""
    logged_in(client)
    page = client.get("/grants").text
    form = page[page.index('id="grant"') :].partition("</form>")[0]
    in_form = set(re.findall(r'name="([^"]+)"', form)) - {"csrf", "was", "principal"}
    on_command_line = {str(option.name) for option in grant.params} - {"principal", "database", "ledger"}
    by_ledger = set(inspect.signature(Grant.of).parameters) - {"principal"}
    assert in_form == by_ledger == {field.name for field in GRANT_FIELDS}
    assert {name.replace("expires", "days") for name in on_command_line} == by_ledger
    assert len(set(GRANT_FIELDS)) == len(by_ledger)


def test_a_grant_is_changed_by_what_stands(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    page = client.get("/grants", params={"principal": SCRIPT, "dataset": SCRIPT}).text
    form = page[page.index('id="grant"') :].partition("</form>")[0]
    assert "Grant as it stands" in form
    shown = {name: unescape(value) for name, value in re.findall(r'name="(\w+)"[^>]* value="([^"]*)"', form)}
    assert (shown["sources"], shown["days"], shown["was"]) == (SCRIPT, "9", f"{SCRIPT} {SCRIPT}")
    assert "New grant" in client.get("/grants", params={"principal": SCRIPT, "dataset": "x"}).text

    door.wanted = []
    typed = {"csrf": secret, "principal": SCRIPT, "dataset": SCRIPT, "role": "auditor", "epsilon": "7"}
    answer = client.post("/grants", data=typed, headers=SAME)  # in the empty form: it would lose the sources
    assert answer.status_code == 409
    assert "Nothing was changed" in answer.text
    form = answer.text[answer.text.index('id="grant"') :].partition("</form>")[0]
    assert re.search(r'name="epsilon"[^>]* value="7"', form)
    assert re.search(r'name="sources"[^>]* value="&lt;script', form)
    assert not [one for one, _ in door.wanted if one == "grant"]
    said = {**typed, "was": shown["was"], "sources": SCRIPT}
    assert client.post("/grants", data=said, headers=SAME).status_code == 303
    assert ("grant", {"grant": {name: said[name] for name in said if name not in ("csrf", "was")}}) in door.wanted


def test_what_was_typed_is_kept_when_it_is_refused(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    door.refusal = GatewayError("G012", "no.")
    typed = {"csrf": secret, "principal": "ana", "dataset": SCRIPT, "epsilon": "0,5", "share": "true"}
    page = client.post("/grants", data=typed, headers=SAME).text
    assert re.search(r'name="epsilon"[^>]* value="0,5"', page)
    assert re.search(r'name="share"[^>]* checked', page)


def test_a_token_is_shown_once(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    page = client.post("/grants/token", data={"csrf": secret, "grantee": "ana", "now": "true"}, headers=SAME)
    assert NEW in page.text
    assert ("token", {"principal": "ana", "now": True}) in door.wanted
    assert NEW not in client.get("/grants").text


def test_a_refusal_is_shown_beside_the_grants(client: TestClient, door: OwnersDoor) -> None:
    secret = logged_in(client)
    for refusal in (GatewayError("G019", "not here."), ParameterError("P013", f"no such {SCRIPT}.")):
        door.refusal = refusal
        for path in CHANGES[:3]:
            page = client.post(path, data={"csrf": secret, "principal": "ana"}, headers=SAME)
            assert page.status_code in (400, 403)
            assert 'role="alert"' in page.text
            assert "New grant" in page.text
            assert "<script>" not in page.text


def test_the_chain_is_walked_against_a_hash(client: TestClient) -> None:
    secret = logged_in(client)
    assert "whole" in client.post("/ledger", data={"csrf": secret, "head": " "}, headers=SAME).text
    broken = client.post("/ledger", data={"csrf": secret, "head": "cut"}, headers=SAME).text
    assert "broken" in broken
    assert 'role="alert"' in broken


def test_an_auditor_has_no_buttons(client: TestClient, door: OwnersDoor) -> None:
    door.standing = {"owner": [], "auditor": [SCRIPT]}
    logged_in(client)
    page = client.get("/grants").text
    assert "Revoke" not in page
    assert "New grant" not in page
    assert "Make a token" not in page
