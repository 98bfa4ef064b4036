"""Additive models beside linear ones, interpret's DP-EBM, and what there is without privacy; with nothing but a budget.

    python benchmarks/papers/additive_study.py [--data DIR] [--splits 4] [--sets sulfur,pol] [--fits auto] [--out DIR]

`dp_linear_regression` gets the rows, epsilon and delta; method 'auto', and boosting alone. DP-EBM (interpret-core,
`pip install interpret-core`) gets the range of the whole table as public bounds, which favours it; without the package
it is left out. Least squares and gradient boosting (scikit-learn) are NOT PRIVATE. Of a fifth of the rows, held out at
random, R²; at most 20,000 rows are fitted. README.md has what came out, and what interpret's accounting leaves out.

Appends a line per fit to ``results.csv`` and skips what is there, so an interrupted run goes on; then writes
``table.md``. Splits are seeded; privacy noise cannot be.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from dp_kendall import DATA, HERE, SMALLER, Doubles, Table, load, r_squared
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import dpsql

OUT = HERE / "results" / "additive"
DELTA = 1e-5
EPSILONS = (0.1, 1.0986, 3.0)
MOST_ROWS = 20_000
LEAST_SQUARES, TREES = "least squares, not private", "gradient boosting, not private"
LINEAR, AUTO, EBM = "boosted_ada_ssp", "auto", "DP-EBM"
FITS = (LEAST_SQUARES, TREES, LINEAR, AUTO, EBM)
# A set, what was fitted, epsilon as text ('' without privacy), and the split.
Key = tuple[str, str, str, str]
Fit = Callable[[Doubles, Doubles, Doubles], Doubles]


def product(context: dpsql.Context, method: str, epsilon: float) -> Fit:
    """Return the fit of a method of dp_linear_regression; a call without a model predicts the mean, as R² 0 does.

    The table `t` of the context holds the rows.
    """

    def fit(rows: Doubles, target: Doubles, test: Doubles) -> Doubles:
        names = [f"x{place}" for place in range(rows.shape[1])]
        name = f"{method} {epsilon}"
        found = context.dp_linear_regression(
            "t", target="y", features=names, epsilon=epsilon, delta=DELTA, method=method, release=name
        )
        if found.result["coefficients"] is None:
            return np.full(len(test), float(target.mean()))
        return np.asarray(context.model(name).predict(test))

    return fit


def opened(rows: Doubles, target: Doubles) -> dpsql.Context:
    """Return a context whose table `t` holds some rows."""
    columns = {f"x{place}": whole_numbers(column) for place, column in enumerate(rows.T)}
    context = dpsql.Context()
    context.connection.register("frame", pa.table({**columns, "y": target}))
    context.connection.execute("CREATE TABLE t AS FROM frame")
    return context


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


def fits(table: Table, context: dpsql.Context) -> dict[tuple[str, str], Fit]:
    """Return what is fitted, by its name and epsilon."""
    found: dict[tuple[str, str], Fit] = {
        (LEAST_SQUARES, ""): without_privacy(LinearRegression()),
        (TREES, ""): without_privacy(HistGradientBoostingRegressor()),
    }
    for epsilon in EPSILONS:
        for method in (LINEAR, AUTO):
            found[method, f"{epsilon:g}"] = product(context, method, epsilon)
        boosted = ebm(table, epsilon)
        if boosted is not None:
            found[EBM, f"{epsilon:g}"] = boosted
    return found


def measured(path: Path) -> dict[Key, float]:
    """Return R² of what was fitted before."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (one["set"], one["fit"], one["epsilon"], one["split"]): float(one["r2"]) for one in csv.DictReader(file)
        }


def measure(data: Path, path: Path, sets: list[str], splits: int, wanted: list[str]) -> None:
    """Fit what is wanted and missing, split by split, and append its R²."""
    done = measured(path)
    with path.open("a", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not done:
            lines.writerow(("set", "fit", "epsilon", "split", "r2"))
        for split, name in ((split, name) for split in range(splits) for name in sets):
            table = load(data, name)
            order = np.random.default_rng([split, 11]).permutation(len(table.target))
            test, rows = np.split(order, [len(order) // 5])
            rows = rows[:MOST_ROWS]
            with opened(table.features[rows], table.target[rows]) as context:
                for (what, epsilon), fit in fits(table, context).items():
                    if what not in wanted or (name, what, epsilon, str(split)) in done:
                        continue
                    predicted = fit(table.features[rows], table.target[rows], table.features[test])
                    score = r_squared(table.target[test], predicted)
                    lines.writerow((name, what, epsilon, split, f"{score:.4f}"))
                    file.flush()


def report(found: dict[Key, float]) -> str:
    """Return the tables: means over splits, with their standard errors, and over sets with negative ones as 0."""
    sets = list(dict.fromkeys(name for name, *_ in found))
    columns = list(dict.fromkeys((what, epsilon) for _, what, epsilon, _ in found))
    columns.sort(key=lambda column: (FITS.index(column[0]), float(column[1] or 0)))
    lines = [
        "| set | " + " | ".join(f"{what}{epsilon and f', ε = {epsilon}'}" for what, epsilon in columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    means: list[list[float]] = [[] for _ in columns]
    for name in sets:
        cells = []
        for place, (what, epsilon) in enumerate(columns):
            scores = [score for key, score in found.items() if key[:3] == (name, what, epsilon)]
            if scores:
                means[place].append(max(0.0, float(np.mean(scores))))
            error = f" ± {np.std(scores, ddof=1) / len(scores) ** 0.5:.3f}" if len(scores) > 1 else ""
            cells.append(f"{np.mean(scores):.3f}{error}" if scores else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| mean | " + " | ".join(f"**{np.mean(some):.3f}**" for some in means) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds regression/*.parquet")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--sets", default=",".join(SMALLER), help="names, with commas between them")
    parser.add_argument("--fits", default=";".join(FITS), help="names, with semicolons between them")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.csv"
    measure(options.data, path, options.sets.split(","), options.splits, options.fits.split(";"))
    table = report(measured(path))
    (options.out / "table.md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
