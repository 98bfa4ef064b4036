"""The documentation's site: its pages and the navigation agree, no link is broken, and a browser shows it well.

It is built and shown without a network: the browser may speak to the test's own server alone.
"""

from __future__ import annotations

import functools
import http.server
import io
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np
import pytest
from page_runner import DECISIONS, FENCED, ROOT

from support.browser import chromium, opened

pytest.importorskip("zensical", reason="the site is built by zensical: pip install 'dpsql[site]'")

pytestmark = pytest.mark.long

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != DECISIONS)
PHONE = {"width": 400, "height": 800}
DESK = {"width": 1280, "height": 900}
# The least contrast of graphical objects, by the Web Content Accessibility Guidelines 2.1.
CONTRAST = 3.0


def listed(nav: list[Any]) -> list[str]:
    """Return the pages of a navigation, in order."""
    found = []
    for entry in nav:
        (under,) = entry.values()
        found += listed(under) if isinstance(under, list) else [under]
    return found


class Links(HTMLParser):
    """What a page links to and loads, and what may be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built site; without a network where the system can take it away."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns(DECISIONS))
    shutil.copy(ROOT / "zensical.toml", folder)
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []
    done = subprocess.run(
        [*alone, sys.executable, "-m", "zensical", "build", "--clean"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Links]:
    """Return what is in each page, by its path in the site."""
    return {
        path.relative_to(site).as_posix(): Links(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }


def test_the_navigation_lists_every_page_once() -> None:
    nav = listed(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])
    assert sorted(nav) == PAGES


def test_every_page_is_built(pages: dict[str, Links]) -> None:
    assert {page.removesuffix(".md") + ".html" for page in PAGES} | {"404.html"} == set(pages)


def shape(markdown: str) -> dict[str, int]:
    """Count what a page is made of."""
    prose = FENCED.sub("", markdown)
    return {
        "pre": len(FENCED.findall(markdown)),
        "table": len(re.findall(r"^\|[-| :]+\|$", prose, re.MULTILINE)),
        **{f"h{level}": len(re.findall(rf"^{'#' * level} ", prose, re.MULTILINE)) for level in range(1, 5)},
    }


@pytest.mark.parametrize("page", PAGES)
def test_markdown_becomes_what_it_says(page: str, site: Path) -> None:
    """Code blocks, tables and headings are such in the site, too, and no list stays text."""
    expected = shape((DOCS / page).read_text(encoding="utf-8"))
    html = (site / page).with_suffix(".html").read_text(encoding="utf-8")
    (article,) = re.findall(r"<article.*?</article>", html, re.DOTALL)
    assert {tag: len(re.findall(rf"<{tag}[ >]", article)) for tag in expected} == expected
    paragraphs = re.findall(r"<p>(.*?)</p>", article, re.DOTALL)
    assert [text for text in paragraphs if re.search(r"^ *([*-]|\d+\.|\|) ", text, re.MULTILINE)] == []


def broken(pages: dict[str, Links], site: Path) -> list[tuple[str, str]]:
    """Return links inside the site that lead nowhere, as (page, link)."""
    found = []
    for page, links in pages.items():
        for link in [*links.links, *links.loaded]:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            to = urlsplit(urljoin(f"/{page}", link))
            path = unquote(to.path).removeprefix("/")
            path = f"{path}index.html" if path.endswith("/") or not path else path
            known = pages[path].anchors if path in pages else None
            if not (site / path).exists() or (to.fragment and known is not None and unquote(to.fragment) not in known):
                found.append((page, link))
    return found


def test_no_link_anchor_or_picture_is_broken(pages: dict[str, Links], site: Path) -> None:
    assert broken(pages, site) == []


def test_a_broken_link_is_found(site: Path) -> None:
    page = Links('<h1 id="a">A</h1><a href="#a">a</a><a href="#b">b</a><a href="gone.html">c</a><img src="no.svg">')
    assert broken({"index.html": page}, site) == [
        ("index.html", "#b"),
        ("index.html", "gone.html"),
        ("index.html", "no.svg"),
    ]


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Links]) -> None:
    elsewhere = {link for links in pages.values() for link in links.loaded if urlsplit(link).netloc}
    assert elsewhere == set()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a Chromium without a window."""
    with chromium() as running:
        yield running


def test_pages_render_on_a_phone_and_ask_nobody_else(browser: Any, address: str, pages: dict[str, Links]) -> None:
    tab, errors, asked = opened(browser, viewport=PHONE)
    wide = {}
    for page in pages:
        tab.goto(address + page)
        tab.wait_for_load_state("load")
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide[page] = width
    tab.context.close()
    assert errors == []
    assert wide == {}
    assert len(asked) > len(pages)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_search_finds_a_function(browser: Any, address: str) -> None:
    tab, errors, _ = opened(browser, viewport=DESK)
    tab.goto(address)
    tab.keyboard.press("/")
    box = tab.locator("input:visible").last
    box.wait_for()
    box.fill("kendall")
    found = tab.locator("a[href*='functions/dp_kendall.html']:visible").first
    found.wait_for(timeout=10_000)
    found.click()
    tab.wait_for_url("**/functions/dp_kendall.html*")
    assert "dp_kendall" in tab.title()
    assert errors == []
    tab.context.close()


def contrasts(png: bytes) -> Any:
    """Return the contrast of each pixel with the ground, which is the most frequent colour."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    ground = colours[counts.argmax()]

    def luminance(colour: Any) -> Any:
        part = colour / 255
        linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        return linear @ np.array([0.2126, 0.7152, 0.0722])

    drawn = luminance(pixels) + 0.05
    under = luminance(ground) + 0.05
    return np.maximum(drawn, under) / np.minimum(drawn, under)


def legible(png: bytes) -> bool:
    """Return whether lines and letters, which fill some hundredths of a picture, stand out from the ground."""
    return bool(np.mean(contrasts(png) >= CONTRAST) > 0.005)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_legible(browser: Any, address: str, pages: dict[str, Links], scheme: str) -> None:
    tab, _, _ = opened(browser, viewport=DESK, color_scheme=scheme, device_scale_factor=2)
    seen = 0
    for page, links in pages.items():
        if not any("pictures/" in link for link in links.loaded):
            continue
        tab.goto(address + page)
        assert tab.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        for picture in tab.locator("article img:visible").all():
            assert picture.evaluate("one => one.complete && one.naturalWidth > 0")
            assert legible(picture.screenshot()), (page, picture.get_attribute("src"))
            seen += 1
    assert seen > 0
    tab.context.close()


def test_a_picture_in_black_is_not_legible_in_the_dark(browser: Any, address: str) -> None:
    ink = "<svg xmlns='http://www.w3.org/2000/svg' width='200' height='60'><text x='9' y='40' font-size='30'>Ink</text></svg>"
    verdicts = []
    for scheme in ("light", "dark"):
        tab, _, _ = opened(browser, viewport=DESK, color_scheme=scheme, device_scale_factor=2)
        tab.goto(address)
        tab.evaluate("svg => { document.querySelector('article').innerHTML = svg }", ink)
        verdicts.append(legible(tab.locator("article svg").screenshot()))
        tab.context.close()
    assert verdicts == [True, False]
