"""`epsilon_needed` of dp_estimate is the inverse of `rows_needed`: the same line, at another epsilon."""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.functions.estimate import estimate
from support.cases import cases

FEATURES = {"n_features": 20, "k": 3}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("dp_avg", {"lower": 0, "upper": 1}),
    "mean within drawn bounds": ("dp_avg", {}),
    "count": ("dp_count", {}),
    "quantile": ("dp_quantile", {"quantiles": [0.1, 0.5], "lower": 0, "upper": 1}),
    "bounds": ("dp_bounds", {}),
    "selection": ("dp_kendall", FEATURES),
    "selection of a set": ("dp_sis", {**FEATURES, "score": "rank", "verdict_share": 0.1}),
    "regression": ("dp_linear_regression", {"n_features": 5, "delta": 1e-6}),
    "classifier": ("dp_logistic_regression", {"n_features": 5, "delta": 1e-6}),
    "two means": ("dp_compare", {"lower": 0, "upper": 1}),
    "two shares": ("dp_compare", {"of": "share"}),
    "two areas": ("dp_compare", {"of": "auc"}),
}


def lines(name: str, epsilon: float, rows: int | None = None) -> dict[str, float]:
    function, given = CALLS[name]
    found = estimate(function, **given, epsilon=epsilon, n_rows=rows)
    return {str(row["quantity"]): float(row["value"]) for row in found}


@pytest.mark.long
@cases("rows", [300, 40_000], quick=1)
@cases("name", CALLS)
def test_rows_and_epsilon_are_inverse(name: str, rows: int) -> None:
    found = lines(name, 1.0, rows)
    pairs = [(line, line.replace("rows", "epsilon")) for line in found if line.endswith("rows_needed")]
    assert pairs
    for line, inverse in pairs:
        if inverse not in found:  # no epsilon is enough
            assert lines(name, 1e3, rows)[line] > rows
            continue
        # A public number of rows may bear on the line, as on what is drawn of a set.
        assert lines(name, found[inverse], rows)[line] <= rows
        assert lines(name, found[inverse] / 1.003, rows)[line] > rows


def test_no_rows_no_epsilon() -> None:
    assert "epsilon_needed" not in lines("mean", 1.0)
