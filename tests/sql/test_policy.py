"""dp_policy: what owners stated can be read back, in SQL, Python, the shell and the receipt of each call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.cli.runner import Runner
from dpsql.cli.shell import Shell

# What is stated of visits, by argument and column.
STATED = {
    ("epsilon", None): "4",
    ("delta", None): "1e-06",
    ("accountant", None): "'basic'",
    ("neighbours", None): "'add_remove'",
    ("privacy_unit", None): "'person'",
    ("max_rows_per_unit", None): "3",
    ("lower", "cost"): "0",
    ("upper", "cost"): "9.5",
    ("keys", "ward"): "['A', 'it''s']",
    ("keys", "urgent"): "[false, true]",
}


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[dpsql.Context]:
    with dpsql.Context(tmp_path / "clinic.duckdb") as made:
        made.connection.execute(
            "CREATE TABLE visits AS SELECT i // 2 AS person, 'A' AS ward, i % 2 = 0 AS urgent, 1.5 AS cost "
            "FROM range(20) AS r(i)"
        )
        made.sql("CREATE TABLE wards AS SELECT 'A' AS ward")
        made.sql("CREATE TABLE costly AS SELECT * FROM visits WHERE cost > 1")
        made.dp_protect(
            "visits",
            epsilon=4,
            delta=1e-6,
            neighbours="add_remove",
            privacy_unit="person",
            max_rows_per_unit=3,
            lower={"cost": 0},
            upper={"cost": 9.5},
            keys={"ward": ["A", "it's"], "urgent": [False, True]},
            public=["wards"],
        )
        made.dp_derive("costly", "visits", own_rows_only=True, privacy_unit="person")
        yield made


def _rows(ctx: dpsql.Context, dataset: str) -> dict[tuple[str, str | None], Any]:
    found = ctx.dp_policy(dataset).to_pylist()
    return {(row["argument"], row["column_name"]): row["value"] for row in found}


def test_what_was_stated_is_read_back(ctx: dpsql.Context) -> None:
    assert _rows(ctx, "visits") == STATED
    assert _rows(ctx, "VISITS") == STATED
    assert _rows(ctx, "wards") == {("public", None): "true"}
    assert _rows(ctx, "costly") == {("base", None): "'visits'", ("privacy_unit", None): "'person'"}
    assert ctx.policy().equals(ctx.dp_policy())
    assert ctx.dp_policy().num_rows == len(STATED) + 3


def test_who_declared_it_and_when_is_an_entry_of_the_ledger(ctx: dpsql.Context) -> None:
    entries = {row["sequence"]: row for row in ctx.dp_ledger().to_pylist()}
    for row in ctx.dp_policy().to_pylist():
        entry = entries[row["entry"]]
        assert (entry["dataset"], entry["function"]) == (row["dataset"], row["declaration"])
        assert entry["recorded_at"] == row["recorded_at"]


def test_what_is_read_back_can_be_stated_again(ctx: dpsql.Context) -> None:
    """The values are SQL: an owner who pastes them states the same policy, which is no new entry."""
    before = ctx.dp_ledger().num_rows
    found = [row for row in ctx.dp_policy("visits").to_pylist() if row["value"] is not None]
    by_column: dict[str, list[str]] = {}
    for row in found:
        if row["column_name"] is not None:
            by_column.setdefault(row["argument"], []).append(f"'{row['column_name']}': {row['value']}")
    given = [f"{row['argument']} := {row['value']}" for row in found if row["column_name"] is None]
    given += [f"{name} := {{{', '.join(parts)}}}" for name, parts in by_column.items()]
    ctx.connection.execute(f"SELECT dp_protect('visits', {', '.join(given)})").fetchall()
    assert ctx.dp_ledger().num_rows == before


@pytest.mark.long
def test_a_later_declaration_takes_the_place_of_an_earlier_one(ctx: dpsql.Context) -> None:
    ctx.dp_protect("visits", epsilon=5, replace=True, upper={"cost": 20})
    assert _rows(ctx, "visits")["epsilon", None] == "5"
    assert _rows(ctx, "visits")["upper", "cost"] == "20"
    ctx.sql("CREATE TABLE plain AS SELECT 1 AS x")
    ctx.dp_protect("plain", rho=0.5)
    assert _rows(ctx, "plain") == {
        ("rho", None): "0.5",
        ("accountant", None): "'zcdp'",
        ("neighbours", None): None,
        ("privacy_unit", None): "'row'",
    }


def test_nothing_stated_is_no_row() -> None:
    with dpsql.Context() as ctx:
        ctx.sql("CREATE TABLE t AS SELECT 1 AS x")
        ctx.dp_count("t", epsilon=1)
        assert ctx.dp_policy().num_rows == 0


@pytest.mark.long
def test_the_receipt_of_a_call_holds_what_bound_it(ctx: dpsql.Context, tmp_path: Path) -> None:
    release = ctx.dp_avg("visits", target="cost", by="ward", epsilon=1, release="mean")
    used = release.policy
    assert used["privacy_unit"] == "person"
    assert used["max_rows_per_unit"] == 3
    assert used["lower"] == {"cost": 0}
    assert used["upper"] == {"cost": 9.5}
    assert used["keys"] == [["A", "it's"]]
    assert ctx.release("mean").policy == used
    assert "max_rows_per_unit 3" in release._repr_html_()
    own = ctx.dp_avg("visits", target="cost", lower=1, upper=2, epsilon=1)
    assert (own.policy["lower"], own.policy["upper"]) == (1, 2)
    ctx.close()
    job = "FROM dp_avg('visits', target := 'cost', by := 'ward', epsilon := 1, release := 'mean');"
    (tmp_path / "job.sql").write_text(job, encoding="utf-8")
    done = dpsql.run(tmp_path / "job.sql", database=tmp_path / "clinic.duckdb")
    [statement] = done.receipt["statements"]
    assert statement["calls"][0]["policy"] == used
    shown = CliRunner().invoke(main, ["show", "mean", "--db", str(tmp_path / "clinic.duckdb")])
    told = json.loads(shown.output)
    assert told["policy"] == used
    # What was released, and not how the ledger keeps it.
    assert "result" not in told
    assert [row["value"] for row in told["rows"]] == release.value.column("value").to_pylist()


@pytest.mark.long
def test_the_shell_and_the_command_show_it(
    ctx: dpsql.Context, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx.close()
    database = str(tmp_path / "clinic.duckdb")
    with Runner(database) as runner:
        assert Shell(runner).run_dot(".policy visits")
    said = capsys.readouterr().out
    assert "9.5" in said
    assert "wards" not in said
    told = CliRunner().invoke(main, ["policy", "--db", database, "--format", "json"])
    assert {row["dataset"] for row in json.loads(told.output)} == {"visits", "wards", "costly"}


def test_the_budget_is_narrow_unless_details_are_asked_for(ctx: dpsql.Context) -> None:
    narrow, wide = ctx.dp_budget().column_names, ctx.dp_budget(details=True).column_names
    assert (*narrow[:3], narrow[-1]) == ("dataset", "spent", "block", "remaining")
    assert [name for name in wide if name in narrow] == narrow
    assert (len(narrow), len(wide)) == (10, 17)
