"""The owner's pages in a browser: over a broker, with the keyboard alone, on a phone, in the dark, and attacked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette

import dpsql
from dpsql.gateway.door import Door
from dpsql.gateway.pages.owning import owning_routes
from dpsql.ledger.grants import Grant
from support.browser import CONTRAST, DESK, FAINT, PHONE, accused, faults, opened
from support.fake_door import TOKEN, listening
from support.gateway_broker import SECRET, Gateway, made
from support.owners_door import SCRIPT, OwnersDoor

pytestmark = pytest.mark.long

PATHS = ("/datasets", "/lineage", "/grants", "/ledger", "/ledger?before=150", "/ledger/7", "/refused")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[OwnersDoor, str]]:
    door = OwnersDoor()
    with listening(door, app=Starlette(routes=owning_routes(door))) as url:
        yield door, url


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str]]:
    """A broker over patients, whose owner is olga, and the address of the owner's site."""
    grants: dict[str, dict[str, Any]] = {"ana": {"epsilon": 5}, "eve": {"role": "auditor"}, "olga": {"role": "owner"}}
    gateway = made(tmp_path_factory.mktemp("owned"), **grants)
    with dpsql.Context(gateway.database) as context:
        context.sql("CREATE TABLE rooms AS SELECT 1 AS room")
        context.sql("CREATE TABLE loose AS SELECT 1 AS room")
        context.dp_public("rooms")
        context.ledger.grant(Grant.of("olga", "staff", role="owner"))
    gateway.start()
    door = Door(gateway.socket)
    try:
        door.call(gateway.tokens["ana"], {"function": "dp_count", "source": "patients", "arguments": EPSILON}, {})
        with listening(door, app=Starlette(routes=owning_routes(door))) as url:
            yield gateway, url
    finally:
        door.close()
        gateway.kill()


EPSILON = {"epsilon": {"number": "0.5"}}


def logged_in(browser: Any, url: str, token: str = TOKEN, **options: Any) -> tuple[Any, list[str], list[str]]:
    tab, errors, asked = opened(browser, **{"viewport": DESK, **options})
    tab.goto(url)
    tab.get_by_label("Token").fill(token)
    tab.get_by_role("button", name="Log in").click()
    tab.wait_for_url("**/datasets")
    return tab, errors, asked


def told(tab: Any) -> str:
    found: str = tab.locator("main").inner_text()
    return found


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "no script"])
def test_an_owner_looks_and_grants(browser: Any, hospital: tuple[Gateway, str], scripts: bool) -> None:
    gateway, url = hospital
    name = f"cleo{scripts:d}"
    tab, errors, asked = logged_in(browser, url, gateway.tokens["olga"], java_script_enabled=scripts)
    assert "epsilon 0.5 of epsilon 100 spent" in told(tab)
    tab.get_by_role("link", name="Lineage").click()
    assert re.search(r"patients\s+patients\s+main\.patients\s+id\s+3", told(tab))
    assert "SELECT dp_public('loose');" in told(tab)
    tab.get_by_role("link", name="Grants").click()
    tab.get_by_label("Principal", exact=True).last.fill(name)
    tab.get_by_label("Dataset", exact=True).select_option("patients")
    tab.get_by_label("Cap in epsilon").fill("0.75")
    tab.get_by_label("The cap is for each").select_option("month")
    tab.get_by_role("button", name="Grant", exact=True).click()
    assert "epsilon 0.75 per month" in tab.locator("tr", has_text=name).inner_text()
    tab.get_by_label("Principal", exact=True).first.select_option(name)
    tab.get_by_role("button", name="Make a token").click()
    [token] = re.findall(r"dpsql_[\w-]{43}", told(tab))
    tab.reload()  # the browser asks whether to send the form again, and takes that for no
    tab.get_by_role("link", name="Grants").click()
    assert token not in tab.content()
    door = Door(gateway.socket)
    assert door.principal(token) == name
    [budget] = door.budget(token)
    assert (budget["epsilon_cap"], budget["per"]) == (0.75, "month")
    tab.get_by_role("button", name=f"Revoke {name}, patients").click()
    assert tab.locator("tr", has_text=name).count() == 0
    door.close()
    assert errors == []
    assert [one for one in asked if not one.startswith(url)] == []
    tab.context.close()


def test_the_ledger_is_turned_back_and_has_receipts(browser: Any, hospital: tuple[Gateway, str]) -> None:
    gateway, url = hospital
    with gateway.ledger() as ledger:
        for number in range(205):
            ledger.grant(Grant.of("bob", "patients", epsilon=1 + number % 2))
    tab, errors, _ = logged_in(browser, url, gateway.tokens["eve"])
    tab.get_by_role("link", name="Ledger").click()
    rows = tab.locator("table", has_text="The last entries").locator("tbody tr")
    assert rows.count() == 200
    assert tab.get_by_role("link", name="The last ones").count() == 0
    tab.get_by_role("link", name="Earlier ones").click()
    release = tab.get_by_role("row").filter(has_text="dp_count").filter(has=tab.locator("a"))
    release.get_by_role("link").click()
    assert "0.5-DP" in told(tab)
    assert SECRET not in tab.content()
    tab.get_by_role("link", name="In the ledger").click()
    assert tab.get_by_role("row").filter(has_text="dp_count").count() == 1  # the last of those shown
    tab.get_by_role("link", name="The last ones").click()
    tab.get_by_role("button", name="Walk the chain").click()
    assert "whole" in tab.get_by_role("status").inner_text()
    assert tab.evaluate("document.activeElement.getAttribute('role')") == "status"
    head = tab.locator("dd code.wraps").inner_text()
    tab.get_by_label("A hash that you kept").fill("0" * 64)
    tab.get_by_role("button", name="Walk the chain").click()
    assert "broken" in tab.get_by_role("alert").inner_text()
    tab.get_by_label("A hash that you kept").fill(head)
    tab.get_by_role("button", name="Walk the chain").click()
    assert "whole" in tab.get_by_role("status").inner_text()
    assert errors == []
    tab.context.close()


def test_the_keyboard_is_enough(browser: Any, url: str, door: OwnersDoor) -> None:
    tab, errors, _ = opened(browser, viewport=DESK)
    tab.goto(url)
    tab.keyboard.type(TOKEN)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/datasets")
    reach(tab, "document.activeElement.textContent == 'Grants'")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/grants")
    reach(tab, "document.activeElement.id == 'principal'")
    for text in ("dora", None, None, "2", None, None, "m"):  # the fields in their order; m chooses a month
        if text is not None:
            tab.keyboard.type(text)
        tab.keyboard.press("Tab")
    reach(tab, "document.activeElement.textContent == 'Grant'")
    with tab.expect_navigation():
        tab.keyboard.press("Enter")
    said = {"principal": "dora", "dataset": SCRIPT, "role": "analyst", "epsilon": "2", "per": "month"}
    assert ("grant", {"grant": said}) in door.wanted
    assert errors == []
    tab.context.close()


def reach(tab: Any, there: str) -> None:
    """Press Tab until the focus is where it should be."""
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate(there):
            return
    raise AssertionError(there)


def test_names_and_values_are_text(browser: Any, url: str) -> None:
    tab, errors, asked = logged_in(browser, url)
    said: list[str] = []
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    for path in PATHS:
        tab.goto(url + path)
        assert SCRIPT in told(tab), path
        assert tab.locator("img, main script").count() == 0, path
    assert (said, errors) == ([], [])
    assert [one for one in asked if not one.startswith(url)] == []
    tab.context.close()


def test_another_site_can_grant_nothing(browser: Any, url: str, door: OwnersDoor) -> None:
    tab, _, _ = logged_in(browser, url)
    secret = tab.locator("input[name=csrf]").first.get_attribute("value")
    fields = {"csrf": secret, "principal": "mallory", "dataset": SCRIPT}
    inside = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    form = f'<form method="post" action="{url}/grants">{inside}<button>win</button></form>'
    door.wanted = []
    other = tab.context.new_page()
    other.route("http://127.0.0.1:1/**", lambda route: route.fulfill(content_type="text/html", body=form))
    other.goto("http://127.0.0.1:1/evil")
    with other.expect_navigation():
        other.get_by_role("button").click()
    assert "G022" in other.content()
    assert door.wanted == []
    tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_stand_out_from_their_ground(browser: Any, url: str, scheme: str) -> None:
    tab, errors, _ = logged_in(browser, url, viewport=PHONE, color_scheme=scheme)
    for path in PATHS:
        tab.goto(url + path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert tab.evaluate(FAINT, CONTRAST) == [], path
    assert errors == []
    tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser: Any, url: str, scheme: str) -> None:
    tab, _, _ = opened(browser, viewport=DESK, color_scheme=scheme)
    tab.goto(f"{url}/login")
    assert faults(tab) == []
    tab.context.close()
    tab, _, _ = logged_in(browser, url, color_scheme=scheme)
    assert accused(tab, url, PATHS) == {}
    tab.goto(f"{url}/ledger")
    tab.get_by_role("button", name="Walk the chain").click()
    assert faults(tab) == []
    tab.goto(f"{url}/grants")
    tab.get_by_role("button", name="Make a token").click()
    assert faults(tab) == []
    tab.context.close()
