"""Every code block of the documentation runs as a stranger pastes it, and gives the output that its page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_runner import DECISIONS, FENCED, ROOT, blocks, run_page

from support.cases import cases

# Pages whose blocks have a test of their own, because they need servers.
ELSEWHERE = {"engines.md"}
PAGES = sorted(
    path for path in (ROOT / "docs").rglob("*.md") if path.name not in ELSEWHERE and path.parent.name != "functions"
)
HIDDEN = re.compile(r"<!--(?! (?:demo|tests) -->)")


@pytest.mark.long
@cases("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_nothing_that_a_reader_needs_is_hidden() -> None:
    assert not [page.name for page in (*PAGES, ROOT / "README.md") if HIDDEN.search(page.read_text(encoding="utf-8"))]


def test_the_site_has_what_a_page_links_to_and_shows_code_as_such() -> None:
    """Code stands between fences: what is indented by four spaces is no block to those who read the text."""
    shown = {page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != DECISIONS}
    wrong = []
    for page in sorted(shown):
        text = page.read_text(encoding="utf-8")
        linked = (page.parent / found for found in re.findall(r"\]\((?!\w+:)([^)#]+\.md)", text))
        wrong += [(page.name, one.name) for one in linked if one.resolve() not in shown]
        indented = re.findall(r"(?<=\n\n) {4,}(?![-*\d]).*", FENCED.sub("", text))
        wrong += [(page.name, line) for line in indented]
    assert wrong == []


def test_what_does_not_run_says_why() -> None:
    silent = [
        (page.name, block.line)
        for page in PAGES
        for block in blocks(page)
        if "no-run" in block.more and not block.reason
    ]
    assert not silent


@pytest.mark.long
def test_a_stale_output_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    block = "```sh\ndpsql example x.duckdb\ndpsql shell x.duckdb\n```\n\n```sql\nSELECT 1 AS sequence\n```\n\n"
    shown = "```text\n│ sequence │\n│  int32   │\n│        1 │\n```\n"
    page.write_text(block + shown, encoding="utf-8")
    run_page(page)
    (tmp_path / "x.duckdb").unlink()
    (tmp_path / "x.duckdb.dpsql-ledger").unlink()
    page.write_text(block + shown.replace("1 │", "2 │"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:11: .*'2' is shown, '1' is printed"):
        run_page(page)


def test_a_broken_block_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for broken in (
        "```python\n1 / 0\n```\n",
        "```sh\ndpsql shell x.duckdb\n```\n```sql\nSELECT nothing\n```\n",
        "```sh\nfalse\n```\n",
    ):
        (tmp_path / "page.md").write_text(f"# Page\n\n{broken}", encoding="utf-8")
        with pytest.raises((ZeroDivisionError, AssertionError)):
            run_page(tmp_path / "page.md")
