"""How often an interval that is called `clear` misses the exact value, and how many are clear (docs/verdicts.md).

    PYTHONPATH=. python benchmarks/intervals.py [means|quantiles|slopes|areas …] [--rows 10000] [--draws 20]

Heavy tails, atoms and crowded scores under private bounds, epsilon .3, 1 and 3. A line says of how many answers
how many were clear, biased and undetermined, how many of the clear ones missed, and the median width of those.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

import dpsql

Columns = Mapping[str, np.ndarray]
EPSILONS = (0.3, 1.0, 3.0)
COLUMNS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, rows: rng.normal(50, 10, rows),
    "exponential": lambda rng, rows: rng.exponential(100, rows),
    "lognormal": lambda rng, rows: rng.lognormal(3, 1.3, rows),
    "pareto": lambda rng, rows: 10 * (1 + rng.pareto(2.2, rows)),
    "t, 2 degrees": lambda rng, rows: 10 * rng.standard_t(2, rows),
    "90 % zeros": lambda rng, rows: np.where(rng.random(rows) < 0.9, 0.0, rng.lognormal(5, 1, rows)),
    "counts": lambda rng, rows: rng.negative_binomial(1, 0.1, rows).astype(float),
    "sentinel": lambda rng, rows: np.where(rng.random(rows) < 0.02, 999.0, rng.normal(120, 15, rows)),
}
SCORES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "calibrated": lambda rng, label: rng.beta(1 + 3 * label, 4 - 3 * label),
    "fraud-like": lambda rng, label: np.where(label, rng.beta(2, 8, len(label)), rng.beta(0.3, 30, len(label))),
    "crowded at 0": lambda rng, label: np.where(rng.random(len(label)) < 0.7, 0.0, rng.beta(1 + label, 2)) * 1e-3,
    "crowded at 1": lambda rng, label: 1 - 1e-6 * rng.exponential(2 - label),
    "ten values": lambda rng, label: np.floor(10 * rng.beta(2 + 2 * label, 3)) / 10,
    "no use": lambda rng, label: rng.random(len(label)),
}


def means(rng: np.random.Generator, rows: int) -> Iterator[tuple[str, Columns, str, float]]:
    """Yield a name, a table, a query of one number and the exact answer, as all of the following do."""
    for name, drawn in COLUMNS.items():
        x = drawn(rng, rows)
        yield f"mean, {name}", {"x": x}, "SELECT avg(x) AS value FROM t", float(x.mean())
        yield f"deviation, {name}", {"x": x}, "SELECT stddev(x) AS value FROM t", float(x.std(ddof=1))


def quantiles(rng: np.random.Generator, rows: int) -> Iterator[tuple[str, Columns, str, float]]:
    for name, drawn in COLUMNS.items():
        x = drawn(rng, rows)
        for share in (0.1, 0.5, 0.9):
            exact = float(np.quantile(x, share, method="inverted_cdf"))
            yield f"quantile {share}, {name}", {"x": x}, f"SELECT quantile_cont(x, {share}) AS value FROM t", exact


def slopes(rng: np.random.Generator, rows: int) -> Iterator[tuple[str, Columns, str, float]]:
    for name, drawn in COLUMNS.items():
        x, z = drawn(rng, rows), rng.normal(0, 1, rows)
        y = 2 * x / x.std() + z + rng.normal(0, 1, rows)
        call = "dp_linear_regression('t', target := 'y', features := ['x', 'z'], delta := 1e-6, {})"
        asked = f"SELECT coefficient AS value, * FROM {call} WHERE term = 'x'"
        yield f"slope, {name}", {"x": x, "z": z, "y": y}, asked, float(2 / x.std())


def areas(rng: np.random.Generator, rows: int) -> Iterator[tuple[str, Columns, str, float]]:
    for name, drawn in SCORES.items():
        label = (rng.random(rows) < (0.03 if name == "fraud-like" else 0.3)).astype(np.int64)
        score = drawn(rng, label)
        below, up_to = (
            np.searchsorted(np.sort(score[label == 0]), score[label == 1], side) for side in ("left", "right")
        )
        exact = float((below + up_to).mean() / 2 / (label == 0).sum())
        asked = "SELECT auc AS value, * FROM dp_auc('t', label := 'label', score := 'score', {})"
        yield f"area, {name}", {"label": label, "score": score}, asked, exact


def answer(context: dpsql.Context, asked: str, epsilon: float) -> dict[str, Any]:
    """Return the first row of a query or of a function, with its interval and verdict."""
    quoted = asked.replace("'", "''")
    call = f"FROM dp_query('{quoted}', epsilon := {epsilon}, errors := true, fresh := true)"
    result = context.connection.execute(asked.format(f"epsilon := {epsilon}") if "{}" in asked else call)
    names = [name.removeprefix("value_") for name, *_ in result.description]
    return dict(zip(names, result.fetchall()[0], strict=True))


def study(name: str, columns: Columns, asked: str, exact: float, draws: int) -> None:
    """Print the line of a case for each epsilon."""
    context = dpsql.Context()
    context.connection.register("frame", pa.table(dict(columns)))
    context.connection.execute("CREATE TABLE t AS FROM frame")
    context.connection.execute("SELECT dp_protect('t', epsilon := 1e9, delta := 0.1)").fetchall()
    for epsilon in EPSILONS:
        rows = [answer(context, asked, epsilon) for _ in range(draws)]
        verdicts = Counter(row["verdict"] for row in rows)
        clear = [row for row in rows if row["verdict"] == "clear"]
        half = [(row["upper"] - row["lower"]) / 2 if "lower" in row else 1.96 * row["std_error"] for row in clear]
        missed = sum(
            abs(exact - (row["upper"] + row["lower"]) / 2 if "lower" in row else exact - row["value"]) > by
            for row, by in zip(clear, half, strict=True)
        )
        width = 2 * np.median(half) if clear else np.nan
        kinds = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        print(
            f"{name}, epsilon {epsilon:g}: {kinds}; {missed} missed; width {width:.4g}, exact {exact:.4g}", flush=True
        )
    context.connection.close()


STUDIES = {of.__name__: of for of in (means, quantiles, slopes, areas)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    for study_name in options.studies or STUDIES:
        rng = np.random.default_rng(7)
        for case in STUDIES[study_name](rng, options.rows):
            study(*case, options.draws)


if __name__ == "__main__":
    main()
