"""Checkers of types and editors know the arguments of every function: what is misspelt is refused, what works is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_fingerprints import CALLS

from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import DECLARATIONS, FUNCTIONS
from support.cases import cases

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pyarrow as pa

import dpsql
from dpsql.frames import Frames

ctx = dpsql.Context()
frame = pl.DataFrame()
frames: Frames[pl.DataFrame]
released: dpsql.Release
table: pa.Table
rows: pl.DataFrame
words: str
"""
ACCEPTED = """
released = ctx.dp_sis(frame, target="y", k=np.int64(3), epsilon=Fraction(1, 2), lower=[0, 1.5], upper={"a": 2, "b": 3})
released = ctx.dp_sis(frame.lazy(), target="y", k=3, epsilon=Decimal("0.5"), features=released, gamma=None)
released = ctx.dp_sis("t", target="y", k=3, epsilon=np.float32(1), features={"release": "r"}, lower=np.zeros(3), upper=1)
released = ctx.dp_sis("t", target="y", k=3, epsilon=1, features=(name for name in ("a", "b")), names=None)
released = ctx.select_then_fit("t", target="y", epsilon=1, delta=1e-6)
released = ctx.dp_count("t", by=["g", "h"], keys=[{"g": 1, "h": None}], epsilon=1, max_groups_per_unit=2)
table = ctx.dp_auc(release="roc", dataset="t")
table = ctx.dp_estimate("dp_count", n_rows=1e6, epsilon=1)
table = ctx.dp_unplaced()
words = ctx.dp_protect("t", epsilon=1, delta=1e-6, lower={"a": 0}, upper={"a": 1}, keys={"g": ["a"]}, public="u")
words = ctx.dp_public("t", force=True)
words = ctx.dp_derive("t", "base", own_rows_only=True)
words = frames.of("t").dp.protect(epsilon=1)  # type: ignore[attr-defined]
rows = frames.linear_regression(target="y", features=rows, epsilon=1, delta=1e-6)
"""
REFUSED = """
ctx.dp_sis("t", k="three", epsilom=1)
ctx.dp_sis("t", k=3, epsilon=1)
ctx.dp_sis("t", target="y", k=3, epsilon=1, mechanism="gumble")
ctx.dp_count("t", epsilon="1")
ctx.dp_count("t", epsilon=1, labels="y")
ctx.dp_auc(release="roc", epsilon=1)
ctx.dp_protect("t", epsilon=[1])
ctx.dp_conut("t", epsilon=1)
ctx.dp_sis("t", target="y", k=3, epsilon=1, lower="zero")
frames.count(epsilon=1, dataset="t")
frames.sis(target="y", k="three", epsilon=1)
"""


@cases("name", [*FUNCTIONS, *DECLARATIONS, "dp_estimate"])
def test_every_argument_says_what_a_call_may_give(name: str) -> None:
    signature = FUNCTIONS[name].plan.arguments if name in FUNCTIONS else {**DECLARATIONS, "dp_estimate": ESTIMATE}[name]
    assert [argument.name for argument in signature.values() if argument.annotation == "object"] == []


@pytest.mark.long
def test_checkers_of_types_refuse_what_is_wrong_alone(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")

    def written(function: str, given: dict[str, object]) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in given.items())

    calls = [f"released = ctx.{name}('t', {written(name, given)})" for name, given, _ in CALLS]
    calls += [
        f"rows = frames.{name.removeprefix('dp_')}({written(name, {k: v for k, v in given.items() if k != 'dataset'})})"
        for name, given, _ in CALLS
    ]
    right = "\n".join([HEAD, ACCEPTED, *calls, ""])
    program = tmp_path / "program.py"
    program.write_text(right + REFUSED, encoding="utf-8")
    told, failed, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(program)])
    assert not failed, failed
    refused = {int(line) for line in re.findall(r"program\.py:(\d+): error", told)}
    wrong = (number for number, line in enumerate(REFUSED.splitlines(), right.count("\n") + 1) if line)
    assert refused == set(wrong), told


@pytest.mark.long
@cases(
    ("call", "offered"),
    [
        ('dpsql.Context().dp_sis("t", ', {"epsilon=", "k=", "features=", "dataset="}),
        ('dpsql.Context().dp_protect("t", ', {"epsilon=", "mark="}),
        ("dpsql.Context().dp_s", {"dp_sis", "dp_sum"}),
        ("frames.sis(", {"epsilon=", "k=", "features="}),
    ],
)
def test_editors_complete_arguments(
    call: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jedi = pytest.importorskip("jedi")
    # In a shared one, another process would write what this one reads.
    monkeypatch.setattr(jedi.settings, "cache_directory", str(tmp_path))
    script = jedi.Script(f"{HEAD}{call}", project=jedi.Project(ROOT))
    assert offered <= {completion.name_with_symbols for completion in script.complete()}
