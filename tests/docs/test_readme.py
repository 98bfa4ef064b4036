"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import dpsql

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("patients.duckdb") as con:
        con.execute(
            "CREATE TABLE patients AS SELECT random() < 0.3 AS relapse, 365 * random() AS days, "
            "['A', 'B', 'C', 'D'][1 + (4 * random())::INT % 4] AS ward, "
            + ", ".join(f"16 * random() AS g{j}" for j in range(9))
            + " FROM range(20000)"
        )
        con.execute("CREATE VIEW held_out AS FROM patients WHERE g8 < 2")
        # Every word is in a message with a chance of its own, of spam twice that.
        con.execute(
            "CREATE TABLE sms AS SELECT i AS message, i % 2 = 0 AS spam, 'w' || w AS token FROM range(1000) AS m(i), "
            "range(20) AS v(w) WHERE random() < (1 + (i % 2 = 0)::INT * (w % 2)) * w / 40"
        )
        con.execute("CREATE VIEW new_sms AS FROM sms WHERE message < 200")
        con.execute("CREATE TABLE visits AS FROM patients LIMIT 9")
        con.execute("CREATE TABLE expression AS SELECT [g0, g1, g2]::FLOAT[3] AS x, relapse AS y FROM patients")
    return tmp_path / "patients.duckdb"


def test_sql_blocks_run(patients: Path) -> None:
    con = dpsql.connect(patients)
    con.execute("SET VARIABLE lexicon = list_transform(range(20), lambda w: 'w' || w)")
    try:
        for block in blocks("sql"):
            for statement in con.extract_statements(block):
                con.execute(statement).fetchall()
        spent = dict(con.execute("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall())
        assert spent == {"patients": 2.7, "sms": 1.5, "visits": 0.0}
    finally:
        con.close()


def test_python_blocks_run(patients: Path) -> None:
    for block in blocks("python"):
        scope: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), scope)
        release = scope["release"]
        assert isinstance(release, dpsql.Release)
        assert len(release.features) == 5
        scope["ctx"].close()  # type: ignore[attr-defined]
        scope["con"].close()  # type: ignore[attr-defined]


def test_inline_calls_run(patients: Path) -> None:
    con = dpsql.connect(patients)
    try:
        aggregate = "SELECT dp_sis(x, y, k := 2, epsilon := 1.0, lower := 0, upper := 16) FROM expression"
        rows = con.execute(aggregate).fetchall()
        assert len(rows[0][0]) == 2
        assert con.execute("SELECT * FROM dp_estimate('dp_sis', n_features := 9, k := 5, epsilon := 1)").fetchall()
    finally:
        con.close()


def test_the_gate_finds_both_commands() -> None:
    for name in ("demo", "tests"):
        block = README.split(f"<!-- {name} -->", 1)[1]
        assert re.match(r"\n```sh\n.+\n```\n", block)
