"""Every code block of the documentation runs, from top to bottom of its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_runner import ROOT, blocks, run_page

# Pages whose blocks have a test of their own, because they need servers.
ELSEWHERE = {"engines.md"}
PAGES = sorted(
    path for path in (ROOT / "docs").rglob("*.md") if path.name not in ELSEWHERE and path.parent.name != "functions"
)


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_what_does_not_run_says_why() -> None:
    silent = [
        (page.name, block.line)
        for page in PAGES
        for block in blocks(page)
        if "no-run" in block.more and not block.reason
    ]
    assert not silent


def test_a_broken_block_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for broken in ("```python\n1 / 0\n```\n", "```sql\nSELECT nothing\n```\n", "```sh\nfalse\n```\n"):
        (tmp_path / "page.md").write_text(f"# Page\n\n{broken}", encoding="utf-8")
        with pytest.raises((ZeroDivisionError, AssertionError)):
            run_page(tmp_path / "page.md")
