"""A Chromium without a window, for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser that speaks to nobody of its own accord."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not here: pip install 'dpsql[site]'")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *QUIET])
        try:
            yield running
        finally:
            running.close()


def opened(browser: Any, **options: Any) -> tuple[Any, list[str], list[str]]:
    """Return a tab, the errors that it will meet, and the addresses that it will ask for."""
    tab = browser.new_context(**options).new_page()
    errors: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    return tab, errors, asked
