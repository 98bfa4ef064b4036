"""Additive models beside linear ones, interpret's DP-EBM, and what there is without privacy; with nothing but a budget.

    python benchmarks/papers/additive_study.py [--data DIR] [--splits 2] [--sets wine_quality,sulfur]

`dp_linear_regression` gets the rows, epsilon and delta. DP-EBM (interpret-core, `pip install interpret-core`) gets the
range of the whole table as public bounds, which favours it; without the package it is left out. Least squares and
gradient boosting (scikit-learn) are NOT PRIVATE. Of a fifth of the rows, held out at random, R²; at most 20,000 rows
are fitted. README.md has what came out, and what interpret's accounting leaves out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from dp_kendall import DATA, SMALLER, Doubles, Table, load, r_squared
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import dpsql

DELTA = 1e-5
EPSILONS = (0.1, 1.0986, 3.0)
MOST_ROWS = 20_000
PRIVATE = ("boosted_ada_ssp", "additive", "DP-EBM")
Fit = Callable[[Doubles, Doubles, Doubles], Doubles]


def product(method: str, epsilon: float) -> Fit:
    """Return the fit of a method of dp_linear_regression; a call without a model predicts the mean, as R² 0 does."""

    def fit(rows: Doubles, target: Doubles, test: Doubles) -> Doubles:
        names = [f"x{place}" for place in range(rows.shape[1])]
        columns = {name: whole_numbers(column) for name, column in zip(names, rows.T, strict=True)}
        with dpsql.Context() as context:
            context.connection.register("frame", pa.table({**columns, "y": target}))
            context.connection.execute("CREATE TABLE t AS FROM frame")
            found = context.dp_linear_regression(
                "t", target="y", features=names, epsilon=epsilon, delta=DELTA, method=method, release="fit"
            )
            if found.result["coefficients"] is None:
                return np.full(len(test), float(target.mean()))
            return np.asarray(context.model("fit").predict(test))

    return fit


def whole_numbers(column: Doubles) -> pa.Array:
    """Return a column with the type that its values have: flags, integers or doubles."""
    if not (column == np.rint(column)).all() or abs(column).max() > 2**31 - 1:
        return pa.array(column)
    return pa.array(column == 1) if set(column.tolist()) <= {0.0, 1.0} else pa.array(column.astype(np.int32))


def ebm(table: Table, epsilon: float) -> Fit | None:
    """Return the fit of DP-EBM within the range of the table; None without interpret."""
    try:
        from interpret.privacy import DPExplainableBoostingRegressor
    except ImportError:
        return None
    low, high = table.features.min(axis=0), table.features.max(axis=0)
    bounds = dict(enumerate(zip(low.tolist(), np.where(high > low, high, low + 1).tolist(), strict=True)))

    def fit(rows: Doubles, target: Doubles, test: Doubles) -> Doubles:
        model = DPExplainableBoostingRegressor(
            epsilon=epsilon,
            delta=DELTA,
            privacy_bounds=bounds,
            privacy_target_min=float(table.target.min()),
            privacy_target_max=float(table.target.max()),
            feature_types=["continuous"] * rows.shape[1],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows, target)
        return np.clip(model.predict(test), table.target.min(), table.target.max())

    return fit


def without_privacy(model: LinearRegression | HistGradientBoostingRegressor) -> Fit:
    """Return the fit of an estimator of scikit-learn. NOT PRIVATE."""
    return lambda rows, target, test: np.asarray(model.fit(rows, target).predict(test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds regression/*.parquet")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--sets", default=",".join(SMALLER), help="names, with commas between them")
    options = parser.parse_args()
    means: dict[str, list[float]] = {}
    for name in options.sets.split(","):
        table = load(options.data, name)
        fits: dict[str, Fit | None] = {
            "least squares, not private": without_privacy(LinearRegression()),
            "gradient boosting, not private": without_privacy(HistGradientBoostingRegressor()),
        }
        for epsilon in EPSILONS:
            fits |= {f"{method}, epsilon {epsilon:g}": product(method, epsilon) for method in PRIVATE[:2]}
            fits[f"DP-EBM, epsilon {epsilon:g}"] = ebm(table, epsilon)
        for what, fit in fits.items():
            if fit is None:
                continue
            scores = []
            for split in range(options.splits):
                order = np.random.default_rng([split, 11]).permutation(len(table.target))
                test, rows = np.split(order, [len(order) // 5])
                rows = rows[:MOST_ROWS]
                predicted = fit(table.features[rows], table.target[rows], table.features[test])
                scores.append(r_squared(table.target[test], predicted))
            means.setdefault(what, []).append(max(0.0, float(np.mean(scores))))
            print(f"{name:18} {what:32} {np.mean(scores):.3f}", flush=True)
    for what, found in means.items():
        print(f"mean of {len(found)} sets {what:32} {np.mean(found):.3f}")


if __name__ == "__main__":
    main()
