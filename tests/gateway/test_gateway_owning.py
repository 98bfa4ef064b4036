"""The pages of owners without a browser: who gets in, which forms are taken, and that a token is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dpsql.errors import GatewayError, ParameterError
from dpsql.gateway.pages.owning import owning_routes
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
        ("grant", {"grant": said}),
        ("revoke", {"revoke": {"principal": "ana", "token": "abcdefgh"}}),
    ]


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
