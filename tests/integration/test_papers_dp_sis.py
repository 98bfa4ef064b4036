"""benchmarks/papers/dp_sis.py runs, resumes and says what it skips, on a tiny grid."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("sklearn", reason="the references are scikit-learn's: pip install 'dpsql[bench]'")
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("dp_sis", "dp_sis_report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("dp_sis")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three sets of the folder: a text label with two levels, one with five, and intensities."""
    folder = tmp_path / "data" / "microarray"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(7)
    for name, levels, centre in (("alon", ["n", "t"], 8.0), ("sorlie", ["1", "2", "3", "4", "5"], 0.0)):
        code = generator.integers(0, len(levels), size=50)
        x = generator.normal(centre, 1.0, size=(50, 40))
        x[:, 3] += 2.0 * code
        x = 2.0**x if name == "alon" else x
        pq.write_table(
            pa.table({"y": [levels[c] for c in code], "x": pa.array(list(x.astype(np.float32)))}),
            folder / f"{name}.parquet",
        )
    return tmp_path / "data"


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_and_resumes(study: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["--quick", "--trials", "3", "--data", str(data), "--out", str(out), "--no-figure"]
    study.main(arguments)
    said = capsys.readouterr().out
    assert "skipped khan: there is no" in said
    measured = lines(out / "results.csv")
    assert {line["set"] for line in measured} == {"alon", "sorlie", "synthetic"}
    assert {line["view"] for line in measured if line["set"] == "alon"} == {"raw", "log2"}
    assert all(
        0.0 <= float(line[name]) <= 1.0
        for line in measured
        for name in line
        if name.startswith("overlap") and line[name]
    )
    assert "| sorlie | ratio |" in (out / "table.md").read_text()

    before = (out / "results.csv").read_text()
    kept = before.splitlines()[:-5]
    (out / "results.csv").write_text("\n".join(kept) + "\n")  # as after an interruption
    study.main(arguments)
    resumed = (out / "results.csv").read_text().splitlines()
    assert resumed[: len(kept)] == kept
    assert len(resumed) == len(before.splitlines())
    assert len(lines(out / "results.csv")) == len(
        {tuple(line[name] for name in study.KEY) for line in lines(out / "results.csv")}
    )


def test_a_strong_signal_is_found(study: ModuleType, data: Path) -> None:
    """At a huge epsilon the drawn selection is the top k of the exact statistic, for every mechanism and centre."""
    source = study.gather(data, ["sorlie"], data, 0)["sorlie"][0]
    (only,) = study.studies(source)
    for setting in study.PRIVATE:
        (drawn,) = study.draw(only, setting, 3, 1e9, 1)
        assert set(drawn) == set(only.limit(setting[2])[:3].tolist())
        assert 3 in drawn


def test_a_lasso_with_fewer_coefficients_is_filled_by_sis(study: ModuleType) -> None:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(60, 12))
    by_lasso, by_sis, nonzero = study.non_private_orders(x, x[:, 5] + 0.01 * generator.normal(size=60))
    assert 1 <= nonzero < 12
    assert by_lasso[0] == by_sis[0] == 5
    rest = [feature for feature in by_sis if feature not in by_lasso[:nonzero]]
    assert by_lasso[nonzero:].tolist() == rest
