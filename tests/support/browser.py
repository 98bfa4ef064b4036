"""A Chromium without a window, for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1200, "height": 900}
# The least contrast of text, by the Web Content Accessibility Guidelines 2.1.
CONTRAST = 4.5
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


def faults(tab: Any) -> list[str]:
    """Return what axe-core finds wrong with a page for readers who do not see it, or have no mouse."""
    pytest.importorskip("axe_playwright_python", reason="axe-core is not here: pip install 'dpsql[site]'")
    tab.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run({resultTypes: ['violations', 'incomplete']}).then(told => told.violations)")
    return [f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes']]}" for one in found]


def accused(tab: Any, url: str, paths: Sequence[str]) -> dict[str, list[str]]:
    """Return what is wrong with pages, by their paths: by axe-core, and by what it does not look at."""
    found = {}
    for path in paths:
        tab.goto(url + path)
        wrong = faults(tab)
        wrong += tab.evaluate(
            """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
                .filter(one => !one.labels.length).map(one => one.outerHTML)"""
        )
        wrong += [one for one in ("table:not(:has(caption))", "th:not([scope])") if tab.locator(one).count()]
        wrong += ["h1"] * (tab.locator("h1").count() != 1) + ["lang"] * (tab.locator("html[lang=en]").count() != 1)
        ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
        wrong += sorted({one for one in ids if ids.count(one) > 1})
        if wrong:
            found[path] = wrong
    return found


# Texts whose contrast with the nearest ground behind them is too small.
FAINT = """least => {
    const channels = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
        return .2126 * x + .7152 * y + .0722 * z;
    };
    const ground = element => {
        for (let one = element; one; one = one.parentElement) {
            const colour = channels(getComputedStyle(one).backgroundColor);
            if (colour.length < 4 || colour[3] > .99) return colour;
        }
        return [255, 255, 255];
    };
    const texts = [...document.body.querySelectorAll('*')].filter(one => one.checkVisibility() &&
        !one.closest('svg') && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
    return texts.map(one => {
        const [a, b] = [light(channels(getComputedStyle(one).color)), light(ground(one))];
        return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), one.outerHTML.slice(0, 80)];
    }).filter(([contrast]) => contrast < least);
}"""
