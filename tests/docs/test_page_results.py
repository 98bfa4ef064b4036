"""What pages of the documentation give when they run: releases, and what their budgets have paid for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_runner import ROOT, run_page

import dpsql


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "database", "spent"),
    [
        ("index", "hospital", {"patients": 1.7}),
        pytest.param("models", "hospital", {"patients": 0.5, "words": 1.5}, marks=pytest.mark.long),
        pytest.param("tutorial", "clinic", {"tumours": 4.5}, marks=pytest.mark.long),
    ],
)
def test_what_is_spent(page: str, database: str, spent: dict[str, float]) -> None:
    run_page(ROOT / "docs" / f"{page}.md")
    with dpsql.Context(f"{database}.duckdb") as ctx:
        assert {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()} == spent


@pytest.mark.long
def test_python_gives_releases_and_models() -> None:
    scope = run_page(ROOT / "docs" / "models.md")
    assert isinstance(scope["fit"], dpsql.Release)
    assert len(scope["fit"].features) == 2
    assert len(scope["model"].coef_) == 2


@pytest.mark.odds("0: how many names are chosen is no noise")
@pytest.mark.long
def test_the_forms_of_a_call_answer() -> None:
    run_page(ROOT / "docs" / "calls.md")
    con = dpsql.connect("hospital.duckdb")
    try:
        aggregate = "SELECT dp_sis(x, y, k := 2, epsilon := 1.0, lower := 0, upper := 200) FROM expression"
        assert len(con.execute(aggregate).fetchall()[0][0]) == 2
        assert con.execute("FROM dp_estimate('dp_sis', n_features := 4, k := 2, epsilon := 1)").fetchall()
    finally:
        con.close()
