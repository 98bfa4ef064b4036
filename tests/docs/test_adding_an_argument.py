"""An argument for all selectors is an edit of one file: in a copy of the checkout it is added, and every form takes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checkout_copy import copy_to, replace_once, run

FILE = "dpsql/functions/selection.py"
EDITS = {
    "Signature(*COLUMNS, *own, *PROTECTION)": 'Signature(*COLUMNS, *own, Argument("note", "A text that is stored with '
    'the release.", kind="str"), *PROTECTION)',
    "\n    k: int | None  #": "\n    note: str | None = None\n    k: int | None  #",
    'cls._read(arguments, "k")': 'cls._read(arguments, "k", "note")',
}
CALLS = """
import inspect
import polars as pl
import dpsql.polars
from dpsql.frames import Frames
from dpsql.functions.registry import SELECTORS

bounds = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
own = {
    "dp_sis": {"target": "y", **bounds},
    "dp_kendall": {"target": "y"},
    "dp_two_stage": {"target": "y", "blocks": 2},
    "dp_best_subset": {"target": "y", **bounds},
    "dp_score_filter": {"target": "b", "present_above": 0.5},
}
assert set(own) == set(SELECTORS)
table = "CREATE TABLE t AS SELECT i / 9 AS y, i % 2 = 0 AS b, i / 9 AS c, 0.5 AS d FROM range(10) AS r(i)"
ctx = dpsql.Context()
ctx.connection.execute(table)
job = []
for name, given in own.items():
    given = {**given, "k": 1, "epsilon": 1, "note": "here"}
    plan = ctx.planned(name, "t", {**given, "features": ["c", "d"]})
    assert plan.note == plan.public_arguments["note"] == "here"
    assert "note" not in ctx.planned(name, "t", {**given, "features": ["c", "d"], "note": None}).public_arguments
    for method in (getattr(ctx, name), getattr(Frames, name.removeprefix("dp_"))):
        assert "note" in inspect.signature(method).parameters
    target = given.pop("target")
    said = ", ".join(f"{key} := {value!r}" for key, value in given.items())
    job.append(f"FROM {name}('t', target := '{target}', features := ['c', 'd'], {said})")
    ctx.connection.execute(f"EXPLAIN {job[-1]}")
    ctx.connection.execute(f"EXPLAIN SELECT {name}([c, d], {target}, n_features := 2, {said}) FROM t")
dpsql.run("; ".join([table, *job]), database="job.duckdb", dry_run=True)
# One of them is run, too: each compiles its kernels anew in a new folder.
given = {**own["dp_sis"], "k": 1, "epsilon": 1, "note": "here"}
assert len(ctx.dp_sis("t", features=["c", "d"], **given).value) == 1
assert len(pl.DataFrame(ctx.sql("FROM t")).dp.sis(features=["c", "d"], **given)) == 1
"""


@pytest.mark.long
def test_an_argument_for_all_selectors_is_an_edit_of_one_file(tmp_path: Path) -> None:
    copy_to(tmp_path)
    replace_once(tmp_path / FILE, EDITS)
    for words in (("-m", "dpsql.generate"), ("-m", "dpsql.generate", "--check"), ("-c", CALLS)):
        run(tmp_path, *words)
    stub = (tmp_path / "dpsql" / "methods.pyi").read_text(encoding="utf-8")
    assert len(re.findall(r"^        note: str \| None = None,$", stub, re.MULTILINE)) == 10
    for name in ("dp_sis", "dp_score_filter"):
        assert "| `note` |" in (tmp_path / "docs" / "functions" / f"{name}.md").read_text(encoding="utf-8")
