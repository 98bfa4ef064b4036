"""What the page about dbt quotes stands in the example project, which `tests/integration/test_dbt.py` builds.

A model that the page names is not in the project: that test puts it there.
"""

from __future__ import annotations

import re

from page_runner import ROOT

FENCE = re.compile(
    r"^```(?:sql|yaml)(?![^\n]*model, (?:twin_report|twin)$)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
HOOK = "on-run-start:"  # a project has sources or makes its table; a test of its own builds with a source


def test_quoted_code_is_in_the_project() -> None:
    project = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "examples" / "dbt").rglob("*")
        if path.suffix in {".sql", ".yml"} and not {"target", "logs"} & set(path.parts)
    ]
    quoted = FENCE.findall((ROOT / "docs" / "dbt.md").read_text(encoding="utf-8"))
    assert len(quoted) >= 7
    assert [code for code in quoted if not any(code in text for text in project) and HOOK not in code] == []
