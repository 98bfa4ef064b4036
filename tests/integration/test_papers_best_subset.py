"""benchmarks/papers/best_subset.py runs, resumes and measures what it says, on a tiny grid."""

from __future__ import annotations

import csv
import importlib
import math
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dpsql.testing.bits import SeededBits

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("best_subset", "dp_sis_report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("best_subset")
    monkeypatch.setattr(module, "SYSTEM", SeededBits(5))
    return module


def near(hits: int, draws: int, chance: float) -> bool:
    """Whether a binomial count is within six standard deviations."""
    return abs(hits - draws * chance) <= 1.0 + 6.0 * math.sqrt(draws * chance * (1.0 - chance))


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_exact_recovers_most_and_rows_help(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--quick", "--out", str(tmp_path), "--no-figure"]
    study.main(arguments)
    results = {
        (line["snr"] + line["epsilon"] + line["k"], int(line["n"]), line["contender"]): line
        for line in lines(tmp_path / "results.csv")
    }
    assert len(results) == 3 * 2 * len(study.NAMES)
    assert "| 100 | 120 | 5 | 1 | 5 | exact |" in (tmp_path / "table.md").read_text()
    assert [line["contender"] for line in lines(tmp_path / "sql.csv")] == ["exact", "top_r"]

    chance = {key: float(line["exact"]) for key, line in results.items()}
    for (setting, n, name), line in results.items():
        draws = int(line["draws"])
        if not name.startswith("exact"):
            assert draws > 0
            continue
        # The exact law gives the truth, here the best subset, at least as often as the truncated one, drawn or computed.
        truncated = chance[setting, n, name.replace("exact", "top_r")]
        assert chance[setting, n, name] >= truncated - 1e-3
        if draws:
            hits = round(float(line["drawn_exact"]) * draws)
            assert hits >= draws * truncated or near(hits, draws, truncated), line
    for setting in ("255", "527", "515"):
        for law in study.SUBSET_LAWS:
            assert chance[setting, 3000, law.name] > chance[setting, 500, law.name]
        assert chance[setting, 3000, "exact"] > 0.99
        assert chance[setting, 3000, "top_r"] >= chance[setting, 3000, "top_r, replace"]
        assert chance[setting, 3000, "top_r, replace"] >= chance[setting, 3000, "top_r, as printed"]
    assert chance["515", 3000, "exact, replace"] > chance["515", 3000, "top_r, replace"] + 0.3

    before = (tmp_path / "results.csv").read_text()
    study.main(arguments)
    assert (tmp_path / "results.csv").read_text() == before
    assert "48 lines" in capsys.readouterr().out


def test_chances_are_those_of_all_subsets(study: ModuleType) -> None:
    """With 20 features all 3-subsets can be scored: chances, F1 and rounds follow exp(-b score), and so do draws."""
    setting = study.Setting(2, 3, 3, 0)
    listing = study.Listing(study.Table.draw(20, setting, 150, 0), setting, 10)
    every = np.array(list(combinations(range(20), 3)))
    scores = listing._problem.scores(every).astype(np.float64) * float(study.SCORE_UNIT)
    common = np.isin(every, setting.truth).sum(axis=1)
    reach = 1.1 * math.sqrt(3.0)
    printed, add_remove = 2.0 * (2.0 + 2.0 * reach**2), (1.0 + reach) ** 2
    ranges = [add_remove, add_remove, 2.0 * add_remove, 2.0 * add_remove, printed]
    for law, spread in zip(study.SUBSET_LAWS, ranges, strict=True):
        capped = scores if law.method == "exact" else np.minimum(scores, np.sort(scores)[3 * 17 + 1])

        def chances(factor: float, capped: np.ndarray = capped, spread: float = spread) -> np.ndarray:
            weights = np.exp(-3.0 / spread * factor * (capped - capped.min()))
            return weights / weights.sum()

        outcome = listing.outcome(law, np.random.default_rng(1))
        exact = chances(1.0)[common == 3][0]
        assert outcome.exact == pytest.approx(exact, abs=1e-5 * exact + 5 * outcome.error)
        assert outcome.error < 0.1 * exact
        assert outcome.f1 == pytest.approx(chances(1.0) @ common / 3, rel=0.02)
        for factor in (0.7, 1.3):
            assert outcome.exact != pytest.approx(chances(factor)[common == 3][0], rel=0.1)
        drawn, begun = study.draw_up_to(listing.sampler(law), 200, 10**6)
        assert near(sum(subset == setting.truth for subset in drawn), 200, exact), law.name
        assert begun >= 200


def test_product_law_draws_in_proportion(study: ModuleType) -> None:
    logs = np.array([0.0, 1.0, -1.0, 2.0, 0.5])
    rows, log_total = study.product_law(logs, 2, 20_000, np.random.default_rng(3))
    every = np.array(list(combinations(range(5), 2)))
    weights = np.exp(logs[every].sum(axis=1))
    assert log_total == pytest.approx(math.log(weights.sum()), rel=1e-12)
    counts = [int((rows == pair).all(axis=1).sum()) for pair in every]
    for count, share in zip(counts, weights / weights.sum(), strict=True):
        assert near(count, 20_000, share)


def test_draws_stop_at_their_rounds(study: ModuleType) -> None:
    setting = study.Setting(5, 2, 7, 0)
    listing = study.Listing(study.Table.draw(60, setting, 400, 0), setting, 0)
    law = study.SUBSET_LAWS[0]
    drawn, begun = study.draw_up_to(listing.sampler(law), 10**6, 3000)
    assert len(drawn) < 10**6
    assert 3000 < begun <= 3000 + 4096
    assert listing.outcome(law, np.random.default_rng(2)).rounds > 10.0


def test_table_follows_the_design(study: ModuleType) -> None:
    setting = study.SETTINGS[0]
    table = study.Table.draw(12, setting, 20_000, 1)
    assert setting.truth == (1, 3, 5, 7, 9)
    apart = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    assert np.abs(np.corrcoef(table.x.T) - 0.1**apart).max() < 0.05
    signal = table.x[:, list(setting.truth)].sum(axis=1) / math.sqrt(5.0)
    assert signal @ signal / ((table.y - signal) @ (table.y - signal)) == pytest.approx(setting.snr, rel=1e-9)
    clipped = np.clip(np.column_stack((table.x, table.y)), -0.5, 0.5) / 0.5
    assert table.products / 4.0**20 == pytest.approx(clipped.T @ clipped, rel=1e-6, abs=0.05)


def test_ridge_is_in_the_units_of_the_paper(study: ModuleType) -> None:
    """A score is 4 times the paper's: squared residuals of data in [-0.5, 0.5], plus 120 times squared coefficients."""
    setting = study.Setting(5, 1, 2, 0)
    table = study.Table.draw(6, setting, 800, 0)
    listing = study.Listing(table, setting, 120)
    x, y = np.clip(table.x, -0.5, 0.5)[:, list(listing.best)], np.clip(table.y, -0.5, 0.5)
    b = np.linalg.solve(x.T @ x + 120 * np.eye(2), x.T @ y)
    assert np.linalg.norm(b) < float(study.RADIUS)
    paper = float((y - x @ b) @ (y - x @ b) + 120 * b @ b)
    assert float(listing.found.scores[0] * study.SCORE_UNIT) == pytest.approx(4 * paper, rel=1e-5)


def test_draws_that_contradict_their_law_stop_the_study(study: ModuleType) -> None:
    outcomes = [study.Outcome(0.3, 0.5), study.Outcome(0.5, 0.5, error=0.01)]
    study.check("fine", 80, [100, 100], outcomes)
    for hits in (30, 130):
        with pytest.raises(SystemExit, match=r"80\.0 expected"):
            study.check("wrong", hits, [100, 100], outcomes)
