"""What docs/engines.md shows runs as it stands there, on Sail in place of Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.cli.options import EngineOption
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


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_blocks_for_polars_run(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, scope)
    predicted = scope["predicted"]
    assert isinstance(predicted, pl.LazyFrame)
    assert predicted.collect()["prediction"].null_count() == 0
    assert "-- engine files: polars" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_block_for_datafusion_runs() -> None:
    (block,) = blocks("python datafusion")
    scope: dict[str, object] = {"dpsql": dpsql}
    exec(block, scope)
    assert isinstance(scope["ctx"], dpsql.Context)
    assert [row["dataset"] for row in scope["ctx"].dp_budget().to_pylist()] == ["datafusion.datafusion.public.visits"]


@pytest.mark.long
def test_the_block_for_spark_runs(sail_session: Any, folder: Path) -> None:
    (folder / "codes").mkdir()
    pl.DataFrame({"code": [1, 2]}).write_parquet(folder / "codes" / "first.parquet")
    sail_session.sql("CREATE DATABASE IF NOT EXISTS clinic")
    tables = {"visits": "visits", "stays": "visits", "codes": "codes"}
    for name, files in tables.items():
        sail_session.sql(f"DROP TABLE IF EXISTS clinic.{name}")
        sail_session.sql(f"CREATE TABLE clinic.{name} USING parquet LOCATION '{folder / files}'")
    _, text = "".join(blocks("python spark")).split(".getOrCreate()\n")
    scope: dict[str, Any] = {"dpsql": dpsql, "session": sail_session}
    exec(text.replace("postgresql://dpsql@host/ledger", "kept"), scope)
    ctx = scope["ctx"]
    found = {row["dataset"]: row["epsilon_spent"] for row in ctx.dp_budget().to_pylist()}
    assert found == {"lake.sail.clinic.visits": 1.0}
    assert not {f"lake.sail.clinic.{name}" for name in tables} & set(ctx.dp_unplaced()["table_name"].to_pylist())


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_the_commands_are_understood() -> None:
    (block,) = blocks("sh")
    options = re.findall(r"--engine (\S+)", block)
    kinds = [EngineOption.read(option.replace("'", "")) for option in options]
    assert [one.kind for one in kinds] == ["spark", "polars", "datafusion"]
    Path("job.sql").write_text("FROM dp_count('visits', epsilon := 1, engine := 'visits')", encoding="utf-8")
    for one in kinds[1:]:
        done = CliRunner().invoke(main, ["run", "job.sql", "--engine", f"visits={one.kind}:{one.location}"])
        assert (done.exit_code, done.stderr) == (0, "")


def test_every_code_is_registered() -> None:
    found = set(re.findall(r"\b[PSBLIG]\d{3}\b", PAGE))
    assert len(found) > 8
    assert found <= set(CODES)
