"""The pages in a browser: with and without scripts, with the keyboard alone, on a phone, in the dark, and attacked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.errors import GatewayError
from dpsql.gateway.http import application
from dpsql.gateway.pages.asking import asking_routes
from support.browser import CONTRAST, DESK, FAINT, PHONE, accused, faults, opened
from support.fake_door import TOKEN, FakeDoor, listening

pytestmark = pytest.mark.long

EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(2)</script>"
QUESTION = "SELECT count(*) AS n FROM patients"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with listening(door, app=application(door, more=asking_routes(door))) as url:
        yield door, url


def logged_in(browser: Any, url: str, **options: Any) -> tuple[Any, list[str], list[str]]:
    tab, errors, asked = opened(browser, **{"viewport": DESK, **options})
    tab.goto(url)
    tab.get_by_label("Token").fill(TOKEN)
    tab.get_by_role("button", name="Log in").click()
    tab.wait_for_url("**/datasets")
    return tab, errors, asked


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "no script"])
def test_a_question_from_login_to_logout(browser: Any, url: str, door: FakeDoor, scripts: bool) -> None:
    tab, errors, asked = logged_in(browser, url, java_script_enabled=scripts)
    tab.get_by_role("link", name="Ask", exact=True).first.click()
    tab.locator("#sql").fill(QUESTION)
    tab.get_by_label("Epsilon").fill("0.5")
    tab.get_by_role("button", name="Price").click()
    assert "ε 0.5 of patients" in tab.locator("#price").inner_text()
    assert door.asked == []
    tab.get_by_role("button", name="Ask", exact=True).click()
    tab.wait_for_url("**/answers/*")
    assert "Charged ε 0.5 of patients." in tab.locator("main").inner_text()
    assert tab.get_by_role("cell", name="42.5").is_visible()
    tab.reload()
    with tab.expect_download() as file:
        tab.get_by_role("link", name="CSV").click()
    assert file.value.path().read_text() == "value\n42.5\n"
    tab.get_by_role("link", name="History").click()
    tab.get_by_role("link", name="Ask again (free)").first.click()
    assert "Free: nothing was charged." in tab.locator("main").inner_text()
    assert door.asked == [(QUESTION, {"epsilon": "0.5"})]
    tab.get_by_role("button", name="Log out").click()
    tab.wait_for_url("**/login")
    tab.goto(f"{url}/datasets")
    assert tab.url.endswith("/login")
    assert errors == []
    assert [one for one in asked if not one.startswith(url)] == []
    tab.context.close()


def test_the_price_comes_by_itself(browser: Any, url: str, door: FakeDoor) -> None:
    tab, errors, _ = logged_in(browser, url)
    tab.goto(f"{url}/ask")
    tab.locator("#sql").press_sequentially(QUESTION)
    tab.locator("#price strong").wait_for()
    assert "ε 0.5" in tab.locator("#price").inner_text()
    assert door.asked == []
    assert errors == []
    tab.context.close()


def test_words_are_completed(browser: Any, url: str) -> None:
    tab, errors, _ = logged_in(browser, url)
    tab.goto(f"{url}/ask")
    editor = tab.locator("#sql")
    editor.press_sequentially("SELECT x FROM pat")
    tab.get_by_role("option", name="patients").wait_for()
    editor.press("Alt+ArrowDown")
    assert tab.get_by_role("option", name="patients").get_attribute("aria-selected") == "true"
    editor.press("Enter")
    assert editor.input_value() == "SELECT x FROM patients"
    editor.press_sequentially(" WHERE ign")
    tab.get_by_role("option", name=re.compile("ignore all")).click()
    assert editor.input_value() == 'SELECT x FROM patients WHERE ignore all "rules"'
    assert errors == []
    tab.context.close()


def test_the_keyboard_is_enough(browser: Any, url: str, door: FakeDoor) -> None:
    tab, errors, _ = opened(browser, viewport=DESK)
    tab.goto(url)
    tab.keyboard.type(TOKEN)  # the field has the focus
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/datasets")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(12):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "Ask":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/ask*")
    tab.keyboard.press("Control+A")
    tab.keyboard.type(QUESTION)
    for _ in range(12):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.value") == "ask":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/answers/*")
    # Whoever cannot see begins to read at the answer.
    assert tab.evaluate("document.activeElement.tagName") == "H1"
    assert len(door.asked) == 1
    assert errors == []
    tab.context.close()


def test_enter_in_a_field_does_not_spend(browser: Any, url: str, door: FakeDoor) -> None:
    tab, _, _ = logged_in(browser, url)
    tab.goto(f"{url}/ask?dataset=patients")
    tab.get_by_label("Epsilon").press("Enter")
    tab.locator("#price strong").wait_for()
    assert door.asked == []
    tab.context.close()


def test_a_refusal_has_the_focus(browser: Any, url: str) -> None:
    tab, _, _ = logged_in(browser, url, java_script_enabled=False)
    tab.goto(f"{url}/ask")
    tab.locator("#sql").fill("SELECT rows\nFROM patients")
    tab.get_by_role("button", name="Ask", exact=True).click()
    alert = tab.get_by_role("alert")
    assert "Line 2, character 3" in alert.inner_text()
    assert "dp_count('patients')" in alert.inner_text()
    alert.get_by_role("button", name="Use it").click()
    assert tab.locator("#sql").input_value() == "dp_count('patients')"
    tab.context.close()


@pytest.fixture
def evil(door: FakeDoor, monkeypatch: pytest.MonkeyPatch) -> FakeDoor:
    described = {"name": EVIL, "columns": [{"name": EVIL, "type": SCRIPT, "keys": SCRIPT}], "stated": {EVIL: SCRIPT}}
    budget = [{"dataset": SCRIPT, "epsilon_spent": 1.0, "epsilon_cap": 2.0, "total_budget": EVIL}]
    monkeypatch.setattr(door, "describe", lambda _token, _name: described)
    monkeypatch.setattr(door, "datasets", lambda _token: [{"name": EVIL, "functions": ["dp_avg", SCRIPT]}])
    monkeypatch.setattr(door, "budget", lambda _token: budget)
    return door


def test_names_and_values_are_text(browser: Any, url: str, evil: FakeDoor) -> None:
    tab, errors, asked = logged_in(browser, url)
    said: list[str] = []
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    for path in (f"/dataset?name={EVIL}", f"/form?dataset={EVIL}", f"/ask?dataset={EVIL}", "/datasets", "/releases"):
        tab.goto(url + path)
        assert tab.locator("img, main script").count() == 0, path
    tab.goto(f"{url}/ask")
    tab.locator("#sql").fill(f"SELECT nasty -- {EVIL} {SCRIPT}")
    tab.locator("#price .price").wait_for()
    tab.get_by_role("button", name="Ask", exact=True).click()
    tab.wait_for_url("**/answers/*")
    assert EVIL in tab.locator("tbody").inner_text()
    assert SCRIPT in tab.locator("pre.statement").inner_text()
    assert tab.locator("img, main script").count() == 0
    assert (said, errors) == ([], [])
    assert [one for one in asked if not one.startswith(url)] == []
    tab.context.close()


def test_an_injected_script_does_not_run(browser: Any, url: str) -> None:
    tab, errors, _ = logged_in(browser, url)
    tab.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = 1';
            document.body.append(script);
            const button = document.createElement('button');
            button.setAttribute('onclick', 'window.ran = 2');
            document.body.append(button);
            button.click();
            const far = document.createElement('script');
            far.src = 'https://evil.example/a.js';
            document.body.append(far);
        }"""
    )
    assert tab.evaluate("window.ran") is None
    assert len([one for one in errors if "Content Security Policy" in one]) == 3
    tab.context.close()


def test_another_site_can_send_no_form(browser: Any, url: str, door: FakeDoor) -> None:
    """A page on another port of this machine shares its cookies: the browser says where a form comes from."""
    tab, _, _ = logged_in(browser, url)
    secret = tab.locator("input[name=csrf]").first.get_attribute("value")
    other = tab.context.new_page()
    other.route("http://127.0.0.1:1/**", lambda route: route.fulfill(content_type="text/html", body=form(url, secret)))
    other.goto("http://127.0.0.1:1/evil")
    with other.expect_navigation():
        other.get_by_role("button").click()
    assert "G022" in other.content()
    assert door.asked == []
    tab.context.close()


def form(url: str, secret: str) -> str:
    fields = {"csrf": secret, "sql": QUESTION, "do": "ask"}
    inside = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    return f'<form method="post" action="{url}/ask">{inside}<button>win</button></form>'


def test_a_revoked_token_ends_the_session(browser: Any, url: str, door: FakeDoor) -> None:
    tab, _, _ = logged_in(browser, url)
    door.failure = GatewayError("G020", "the token is none that holds.")
    tab.goto(f"{url}/releases")
    assert "Your token does not hold any more." in tab.locator("main").inner_text()
    door.failure = None
    tab.goto(f"{url}/releases")
    assert tab.url.endswith("/login")
    tab.context.close()


PATHS = ("/datasets", "/dataset?name=patients", "/form?dataset=patients", "/ask", "/releases", "/releases/1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_stand_out_from_their_ground(browser: Any, url: str, scheme: str) -> None:
    tab, errors, _ = logged_in(browser, url, viewport=PHONE, color_scheme=scheme)
    tab.goto(f"{url}/ask")
    tab.locator("#sql").fill("SELECT a_very_long_name_without_any_place_to_break_it_" + "x" * 200)
    tab.get_by_role("button", name="Ask", exact=True).click()
    tab.wait_for_url("**/answers/*")
    for path in ("", *PATHS):
        if path:
            tab.goto(url + path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert tab.evaluate(FAINT, CONTRAST) == [], path
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is (scheme == "dark")
    assert errors == []
    tab.context.close()


def test_a_faint_text_is_found(browser: Any, url: str) -> None:
    tab, _, _ = logged_in(browser, url)
    tab.evaluate("document.querySelector('h1').style.color = 'rgb(200, 200, 200)'")
    assert len(tab.evaluate(FAINT, CONTRAST)) == 1
    tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser: Any, url: str, scheme: str) -> None:
    tab, _, _ = opened(browser, viewport=DESK, color_scheme=scheme)
    tab.goto(f"{url}/login")
    assert faults(tab) == []
    tab.context.close()
    tab, _, _ = logged_in(browser, url, color_scheme=scheme)
    assert accused(tab, url, PATHS) == {}
    for sql in ("SELECT rows FROM patients", "SELECT nasty", QUESTION):  # refused, with nasty values, and an answer
        tab.goto(f"{url}/ask")
        tab.locator("#sql").fill(sql)
        tab.get_by_role("button", name="Price").click()
        tab.locator("#price .price, [role=alert]").first.wait_for()
        assert faults(tab) == [], sql
        tab.get_by_role("button", name="Ask", exact=True).click()
        tab.locator("[role=alert], pre.statement").first.wait_for()
        assert faults(tab) == [], sql
    tab.context.close()


def test_axe_finds_a_field_without_a_name(browser: Any, url: str) -> None:
    tab, _, _ = logged_in(browser, url)
    tab.evaluate("document.querySelector('main').append(document.createElement('select'))")
    assert [fault.split(":")[0] for fault in faults(tab)] == ["select-name"]
    tab.context.close()
