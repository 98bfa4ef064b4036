"""An additive classifier beside a linear one, with nothing but a budget, and one that is NOT PRIVATE.

    python benchmarks/papers/additive_classifiers.py [--data DIR] [--splits 2] [--sets adult,sulfur] [--out DIR]

`dp_logistic_regression` gets the rows, epsilon and delta; methods 'linear' and 'additive'. Sets are `adult` and
`diabetes130_hospital` with a column of 0 and 1 for each level of a category, levels counting as public, and the sets of
`additive_study.py`, whose target is whether it is above the median. Of a fifth of the rows, held out at random, the AUC
and the mean log loss; at most 20,000 rows are fitted. Logistic regression of scikit-learn is NOT PRIVATE. README.md has
what came out.

Appends a line per fit to ``results.csv`` and skips what is there, so an interrupted run goes on; then writes
``table.md``. Splits are seeded; privacy noise cannot be.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from additive_study import DELTA, EPSILONS, MOST_ROWS, opened
from dp_kendall import DATA, HERE, SMALLER, Doubles, Table, load
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpsql

OUT = HERE / "results" / "additive_classifiers"
LINEAR, ADDITIVE = "linear", "additive"
PLAIN = "logistic regression, not private"
FITS = (PLAIN, LINEAR, ADDITIVE)
# Tables with a label: its column and its positive level, and the columns that are read.
LABELLED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "adult": (
        "income",
        ">50K",
        (
            *("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"),
            *("workclass", "marital_status", "occupation", "relationship", "sex"),
        ),
    ),
    "diabetes130_hospital": (
        "readmitted",
        "<30",
        (
            *("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient"),
            *("number_emergency", "number_inpatient", "number_diagnoses", "age", "gender", "change", "diabetesMed"),
        ),
    ),
}
SETS = (*LABELLED, *SMALLER)
# A set, what was fitted, epsilon as text ('' without privacy), and the split.
Key = tuple[str, str, str, str]
Fit = Callable[[Doubles, Doubles, Doubles], Doubles]


@lru_cache(maxsize=1)
def labelled(data: Path, name: str) -> Table:
    """Read a set whose target is 0 or 1."""
    if name not in LABELLED:
        table = load(data, name)
        return Table(table.names, table.features, (table.target > np.median(table.target)).astype(float))
    label, positive, names = LABELLED[name]
    table = pq.read_table(data / "tables" / f"{name}.parquet")
    columns: dict[str, Doubles] = {}
    for column in names:
        values = table[column].to_numpy(zero_copy_only=False)
        if values.dtype.kind in "if":
            columns[column] = values.astype(float)
        else:
            levels = sorted(set(map(str, values.tolist())))
            columns |= {f"{column}={level}": (values == level).astype(float) for level in levels}
    target = (table[label].to_numpy(zero_copy_only=False) == positive).astype(float)
    return Table(tuple(columns), np.column_stack(list(columns.values())), target)


def product(context: dpsql.Context, method: str, epsilon: float) -> Fit:
    """Return the fit of a method of dp_logistic_regression, to the table `t` of the context."""

    def fit(rows: Doubles, target: Doubles, test: Doubles) -> Doubles:
        names = [f"x{place}" for place in range(rows.shape[1])]
        name = f"{method} {epsilon}"
        given = {"target": "y", "features": names, "epsilon": epsilon, "delta": DELTA, "method": method}
        context.dp_logistic_regression("t", **given, target_levels=[0, 1], release=name)
        return np.asarray(context.model(name).predict_proba(test)[:, 1])

    return fit


def without_privacy(model: object) -> Fit:
    """Return the fit of an estimator of scikit-learn. NOT PRIVATE."""
    return lambda rows, target, test: np.asarray(model.fit(rows, target).predict_proba(test)[:, 1])  # type: ignore[attr-defined]


def fits(context: dpsql.Context) -> dict[tuple[str, str], Fit]:
    """Return what is fitted, by its name and epsilon."""
    found: dict[tuple[str, str], Fit] = {
        (PLAIN, ""): without_privacy(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
    }
    for epsilon in EPSILONS:
        found |= {(method, f"{epsilon:g}"): product(context, method, epsilon) for method in (LINEAR, ADDITIVE)}
    return found


def measured(path: Path) -> dict[Key, tuple[float, float]]:
    """Return AUC and log loss of what was fitted before."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (one["set"], one["fit"], one["epsilon"], one["split"]): (float(one["auc"]), float(one["log_loss"]))
            for one in csv.DictReader(file)
        }


def measure(data: Path, path: Path, sets: list[str], splits: int, most: int, wanted: list[str]) -> None:
    """Fit what is wanted and missing, split by split, and append how good it is."""
    done = measured(path)
    with path.open("a", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not done:
            lines.writerow(("set", "fit", "epsilon", "split", "auc", "log_loss"))
        for split, name in ((split, name) for split in range(splits) for name in sets):
            table = labelled(data, name)
            order = np.random.default_rng([split, 11]).permutation(len(table.target))
            test, rows = np.split(order, [len(order) // 5])
            rows = rows[:most]
            with opened(table.features[rows], table.target[rows]) as context:
                for (what, epsilon), fit in fits(context).items():
                    if what not in wanted or (name, what, epsilon, str(split)) in done:
                        continue
                    chance = fit(table.features[rows], table.target[rows], table.features[test])
                    scores = roc_auc_score(table.target[test], chance), log_loss(table.target[test], chance)
                    lines.writerow((name, what, epsilon, split, *(f"{score:.4f}" for score in scores)))
                    file.flush()


def report(found: dict[Key, tuple[float, float]]) -> str:
    """Return a table of each number: means over splits and, in the last line, over sets."""
    parts = []
    for place, title in enumerate(("AUC", "log loss")):
        sets = list(dict.fromkeys(name for name, *_ in found))
        columns = list(dict.fromkeys((what, epsilon) for _, what, epsilon, _ in found))
        columns.sort(key=lambda column: (float(column[1] or 0), FITS.index(column[0])))
        lines = [
            f"| {title} | " + " | ".join(f"{what}{epsilon and f', ε = {epsilon}'}" for what, epsilon in columns) + " |",
            "|---" * (1 + len(columns)) + "|",
        ]
        means = np.array(
            [
                [
                    np.mean([scores[place] for key, scores in found.items() if key[:3] == (name, *column)])
                    for column in columns
                ]
                for name in sets
            ]
        )
        lines += [
            f"| {name} | " + " | ".join(f"{x:.3f}" for x in row) + " |" for name, row in zip(sets, means, strict=True)
        ]
        lines.append("| mean | " + " | ".join(f"**{x:.3f}**" for x in means.mean(axis=0)) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds regression/ and tables/")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--sets", default=",".join(SETS), help="names, with commas between them")
    parser.add_argument("--fits", default=";".join(FITS), help="names, with semicolons between them")
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="most rows that are fitted")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.csv"
    measure(options.data, path, options.sets.split(","), options.splits, options.rows, options.fits.split(";"))
    table = report(measured(path))
    (options.out / "table.md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
