"""Draws the pictures of docs/gateway-page.md: a gateway over the example tables, in a browser without a window.

    python tests/gateway/page_pictures.py

Each is a PNG of few colours, below 60 kB.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import dpsql
from dpsql.ledger.grants import Grant
from dpsql.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 60_000
WIDTH, HEIGHT = 1120, 780
BUDGETS = (
    "SELECT dp_protect('patients', epsilon := 10, delta := 1e-6, lower := {age: 0, days: 0}, "
    "upper := {age: 100, days: 30}, keys := {ward: ['A', 'B', 'C', 'D']})",
    "SELECT dp_protect('visits', epsilon := 10, delta := 1e-6, privacy_unit := 'patient_id', max_rows_per_unit := 3)",
)
QUESTION = "SELECT * FROM dp_avg('patients', 'age', by := 'ward', epsilon := 0.5)"


@contextmanager
def served(folder: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the tokens of an analyst and of an owner, and where the two sites are."""
    database = folder / "hospital.duckdb"
    dpsql.example(database)
    with dpsql.Context(database) as context:
        for statement in BUDGETS:
            context.sql(statement)
    with closing(Ledger.open(f"{database}.dpsql-ledger")) as ledger:
        for dataset in ("patients", "visits"):
            ledger.grant(Grant.of("ana", dataset, epsilon=5, delta=1e-7, default_epsilon=0.5))
            ledger.grant(Grant.of("olga", dataset, role="owner"))
        tokens = {name: ledger.issue_token(name).text for name in ("ana", "olga")}
    command = [sys.executable, "-m", "dpsql", "serve", str(database), "--port", "0", "--owner-port", "0", "--no-flight"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert process.stderr is not None
        found: list[str] = []
        while len(found) < 2:
            line = process.stderr.readline()
            assert line, "the gateway ended"
            found += re.findall(r"(http://\S+) (?:answers|is for owners)", line)
        yield tokens, found
    finally:
        process.terminate()
        process.wait(60)


def save(tab: Any, name: str) -> None:
    """Write what a tab shows as a small PNG."""
    tab.evaluate("document.activeElement.blur()")
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    for colours in (128, 64, 32, 16):
        file = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        if file.tell() < MOST_BYTES:
            break
    (PICTURES / f"gateway_{name}.png").write_bytes(file.getvalue())


def log_in(browser: Any, url: str, token: str, **options: Any) -> Any:
    """Return a tab of somebody who is logged in."""
    tab = browser.new_context(**{"viewport": {"width": WIDTH, "height": HEIGHT}, **options}).new_page()
    tab.goto(url)
    if "color_scheme" not in options:
        save(tab, "login")
    tab.get_by_label("Token").fill(token)
    tab.get_by_role("button", name="Log in").click()
    tab.wait_for_url("**/datasets")
    return tab


def analyst(browser: Any, url: str, token: str) -> None:
    """Draw the pages of who asks."""
    tab = log_in(browser, url, token)
    tab.goto(f"{url}/ask")
    tab.locator("#sql").fill(QUESTION)
    tab.locator("#price .price").wait_for()
    save(tab, "ask")
    tab.get_by_role("button", name="Ask", exact=True).click()
    tab.wait_for_url("**/answers/*")
    save(tab, "answer")
    tab.goto(f"{url}/ask")
    tab.locator("#sql").fill("SELECT *\nFROM patients\nWHERE age > 90")
    tab.get_by_role("button", name="Price").click()
    save(tab, "refused")
    for name, path in (("datasets", "/datasets"), ("dataset", "/dataset?name=patients"), ("history", "/releases")):
        tab.goto(url + path)
        save(tab, name)
    tab.goto(f"{url}/form?dataset=patients&function=dp_histogram")
    save(tab, "form")
    dark = log_in(browser, url, token, color_scheme="dark", viewport={"width": 390, "height": HEIGHT})
    dark.goto(f"{url}/releases")
    dark.get_by_role("link", name="Ask again (free)").first.click()
    save(dark, "phone")


def owner(browser: Any, url: str, token: str) -> None:
    """Draw the pages of who owns the data."""
    tab = log_in(browser, url, token, color_scheme="light")
    save(tab, "budgets")
    tab.goto(f"{url}/lineage")
    save(tab, "lineage")
    tab.goto(f"{url}/grants")
    save(tab, "grants")
    tab.goto(f"{url}/ledger")
    tab.get_by_role("button", name="Walk the chain").click()
    save(tab, "ledger")
    tab.goto(f"{url}/refused")
    save(tab, "refusals")


def main() -> None:
    """Draw them all."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (tokens, sites), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        analyst(browser, sites[0], tokens["ana"])
        owner(browser, sites[1], tokens["olga"])
        browser.close()


if __name__ == "__main__":
    main()
