"""benchmarks/papers/dp_kendall.py: two splits of one small set, the references' arithmetic, and resuming."""

from __future__ import annotations

import importlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"
RESULTS = FOLDER / "results" / "dp_kendall"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("dp_kendall", "dp_kendall_report", "dp_sis_report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("dp_kendall")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_sulfur_is_measured_and_resumed(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (study.DATA / "regression" / "sulfur.parquet").exists():
        pytest.skip("the data are not in ../shared/data")
    arguments = ["--quick", "--only", "sulfur", "--out", str(tmp_path), "--no-figure"]
    study.main(arguments)
    file = tmp_path / "results.jsonl"
    found = lines(file)
    # Two splits of all columns (6 lines), of k = 5 (7 lines; k = 10 exceeds the six features), and two of auto.
    assert len(found) == 2 * (6 + 7) + 2
    scores = {
        (line["selector"], line["method"]): median(
            -math.inf if other["r2"] is None else other["r2"]
            for other in found
            if (other["selector"], other["method"]) == (line["selector"], line["method"])
        )
        for line in found
    }
    # y2 tells a third of the variance: what was fitted to it is no noise. Unscaled boosting fails here.
    assert scores["", "OLS"] > 0.3
    for selector, method in (("", "BAS"), ("", "AdaSSP"), ("K", "BAS"), ("K", "AdaSSP"), ("L", "AdaSSP")):
        assert 0.05 < scores[selector, method] < 0.6, (selector, method)
    assert scores["", "BAS unscaled"] < scores["", "BAS"]
    for line in found:
        if line["method"] == "Tukey unsafe":
            assert line["blocks_unsafe"] > line["blocks_ours"]
            assert 0.0 <= line["passes_ours"] <= 1.0
    table = (tmp_path / "table.md").read_text()
    assert "| sulfur | all |" in table
    assert "## k = 5: counts, beside the paper's 25 sets" in table

    # A line that was cut off is measured again, all others stand.
    file.write_text("\n".join(file.read_text().splitlines()[:-1]) + '\n{"set": "sul')
    study.main(arguments)
    assert lines(file)[:-1] == found[:-1]
    assert lines(file)[-1]["method"] == found[-1]["method"]
    assert "28 lines in" in capsys.readouterr().out


def test_absent_sets_are_named(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study.gather(tmp_path, ["sulfur"]) == []
    assert "skipped sulfur" in capsys.readouterr().out


def test_chance_of_passing_is_that_of_discrete_laplace(study: ModuleType) -> None:
    """The same models give the chance that draws of the test's noise give."""
    from dpsql.mechanisms.tukey import (
        DepthBoxes,
        growth_per_level,
        passing_score,
        stable_reach,
        tail_weights,
    )

    epsilon, delta = Fraction(1, 2), Fraction(1, 20)
    models = np.random.default_rng(3).normal(size=(90, 1))
    boxes, growth = DepthBoxes(models), growth_per_level(epsilon)
    reach = stable_reach(boxes, tail_weights(boxes, growth), growth, delta)
    ratio = math.exp(-0.5)
    noise = range(-200, 201)
    chances = [(1 - ratio) / (1 + ratio) * ratio ** abs(value) for value in noise]
    needed = passing_score(epsilon, delta)
    expected = sum(chance for value, chance in zip(noise, chances, strict=True) if reach + value >= needed)
    assert 0.01 < expected < 0.99
    assert study.passing(models, epsilon, delta) == pytest.approx(expected, rel=1e-9)
    assert study.passing(models[:7], epsilon, delta) == 0.0
    assert study.laplace_tail(0.0) == 0.5
    assert study.laplace_tail(2.0) + study.laplace_tail(-2.0) == pytest.approx(1.0)


def test_ranks(study: ModuleType) -> None:
    """Ties share a rank, and what was not released has none."""
    report = importlib.import_module("dp_kendall_report")
    values = {"BAS": 0.2, "K-BAS": 0.5, "K-Tukey": 0.5, "Tukey": None, "L-BAS": -1.0}
    made = [
        {"set": "one", "selector": name[0] if "-" in name else "", "k": 5 if "-" in name else 0}
        | {"method": name.split("-")[-1], "settings": [], "r2": value}
        for name, value in values.items()
    ]
    counts = report.counts(report.Study(made), report.PAPER_COLUMNS, 5)
    assert counts["K-BAS"] == counts["K-Tukey"] == (1, 1, 1)
    assert counts["BAS"] == (1, 0, 0)
    assert counts["L-BAS"] == counts["Tukey"] == (0, 0, 0)


def test_committed_results_are_whole(study: ModuleType) -> None:
    """Every set was measured in ten splits, and what auto stands for is known."""
    report = importlib.import_module("dp_kendall_report")
    found = report.Study(report.read_lines(RESULTS / "results.jsonl"))
    assert len(found.sets) == 11
    for name in found.sets:
        for method in ("OLS", *study.METHODS, "BAS unscaled", "Tukey unsafe", "K-BAS", "K-Tukey", "L-AdaSSP"):
            assert len(found.lines(name, method, 5)) == study.SPLITS, (name, method)
        assert found.picked(name, "auto", 0) in study.METHODS
