"""What a process writes beside its results: nothing on standard error, and something for every character."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CALLS = """
import dpsql
with dpsql.Context() as c:
    c.connection.execute("SET enable_progress_bar = false")  # DuckDB 2.0 writes its own where a call takes two seconds
    c.connection.execute(
        "CREATE TABLE t AS SELECT i % 2 = 0 AS label, (i * 7 % 13) / 13 AS score, (i % 5)::DOUBLE AS a, "
        "(i % 3)::DOUBLE AS b, (i % 10)::DOUBLE AS y, 'x' AS name, i % 3 = 0 AS smoker FROM range(400) AS r(i)"
    )
    wide = {"lower": -1e308, "upper": 1e308}
    c.dp_kendall("t", target="y", k=1, epsilon=1)
    c.dp_two_stage("t", target="y", k=1, epsilon=1, blocks=20)
    c.dp_best_subset("t", target="y", k=1, epsilon=1, lower=0, upper=5, target_lower=0, target_upper=10)
    c.dp_sis("t", target="y", k=1, epsilon=1, lower=0, upper=5, target_lower=0, target_upper=10)
    c.dp_linear_regression("t", target="y", epsilon=1, delta=1e-6)
    c.dp_naive_bayes("t", target="label", features=["a", "smoker"], present_above=0, epsilon=1)
    c.dp_logistic_regression("t", target="label", features=["a"], lower=0, upper=5, epsilon=1)
    c.dp_roc("t", label="label", score="score", epsilon=1)
    c.dp_quantile("t", target="y", epsilon=1, lower=0, upper=10, quantiles=[0.5])
    c.dp_bounds("t", target="y", epsilon=1)
    c.dp_estimate("dp_sis", epsilon=1, k=1, n_features=5)
    for call in (
        lambda: c.dp_logistic_regression("t", target="label", features=["a"], epsilon=1, **wide),
        lambda: c.dp_sis("t", target="y", k=1, epsilon=1, target_lower=-1e308, target_upper=1e308, **wide),
        lambda: c.dp_quantile("t", target="y", epsilon=1, quantiles=[0.5], **wide),
        lambda: c.dp_auc("t", label="label", score="score", epsilon=1, **wide),
    ):
        try:
            call()
        except dpsql.DpsqlError as error:
            assert error.code.startswith("DPSQL-P"), error
"""


def _own(text: str) -> list[str]:
    """Return the lines of standard error that are not DuckDB's own, which nanobind writes at exit."""
    noise = ("nanobind:", " - leaked", " - ...", "See https://nanobind")
    return [line for line in text.splitlines() if not line.startswith(noise)]


@pytest.mark.odds("0: looks at standard error, where no number is written")
@pytest.mark.parametrize("flags", [[], ["-W", "error"]])
def test_nothing_reaches_standard_error(flags: list[str]) -> None:
    done = subprocess.run([sys.executable, *flags, "-c", _CALLS], capture_output=True, text=True, check=False)
    assert (_own(done.stderr), done.returncode, done.stdout) == ([], 0, "")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_every_encoding_prints_a_result(encoding: str) -> None:
    statement = "SELECT 'é→' AS word, 1.5 AS number"
    done = subprocess.run(
        [sys.executable, "-m", "dpsql", "query", statement],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode(encoding)
    assert "1.5" in shown
    assert "+--" in shown
    assert ("é?" if encoding == "cp1252" else "??") in shown
