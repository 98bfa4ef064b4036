"""What docs/engines.md shows runs as it stands there; what needs a server is compiled."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from dpsql.cli.commands import main
from dpsql.cli.engine_option import EngineOption
from dpsql.contract.codes import CODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(1)
    rows = 400
    frame = pl.DataFrame(
        {
            "patient": generator.integers(0, 150, rows),
            "ward": generator.choice(["A", "B"], rows),
            "age": generator.uniform(0, 100, rows),
            "dose": generator.uniform(0, 10, rows),
            "days": generator.uniform(0, 60, rows),
        }
    )
    (tmp_path / "visits").mkdir()
    frame.write_parquet(tmp_path / "visits" / "first.parquet")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_blocks_for_polars_run(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, scope)
    predicted = scope["predicted"]
    assert isinstance(predicted, pl.LazyFrame)
    assert predicted.collect()["prediction"].null_count() == 0
    assert "-- engine files: polars" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["spark", "datafusion"])
def test_blocks_for_other_engines_compile(engine: str) -> None:
    (block,) = blocks(f"python {engine}")
    compile(block, engine, "exec")


@pytest.mark.usefixtures("folder")
def test_the_commands_are_understood() -> None:
    (block,) = blocks("sh")
    options = re.findall(r"--engine (\S+)", block)
    kinds = [EngineOption.read(option.replace("'", "")) for option in options]
    assert [one.kind for one in kinds] == ["spark", "polars", "datafusion"]
    Path("job.sql").write_text("FROM dp_count('visits', epsilon := 1, engine := 'visits')", encoding="utf-8")
    done = CliRunner().invoke(main, ["run", "job.sql", "--engine", f"visits=polars:{kinds[1].location}"])
    assert (done.exit_code, done.stderr) == (0, "")


def test_every_code_is_registered() -> None:
    found = set(re.findall(r"\b[PSBLI]\d{3}\b", PAGE))
    assert len(found) > 8
    assert found <= set(CODES)
