"""Compare the selectors by how much of the target the five features that they choose explain.

    python benchmarks/papers/selector_study.py [--runs 20] [--data DIR] [--only alon ar_200] [--out DIR]

Six microarrays, three regression tables, and synthetic designs whose neighbouring columns have a correlation of 0.8.
There the target is the sum of five columns, or (signed) that with alternating signs, and noise of half its variance.

Every number is the mean over calls of the SQL functions of the in-sample R² of least squares on the chosen columns,
with an intercept. Beside them "no noise", the same call at epsilon = 10⁹, and "random", the mean of 500 random choices.
Bounds are those of `dp_sis.py` (microarrays, one rule per platform) and of `../feature_selection.py` (regression
tables, by what the columns mean), and two standard deviations of the design for synthetic ones. `score := 'rank'`,
`dp_kendall` and `dp_two_stage` take none.

Writes ``selectors.csv``, ``table.md`` and ``selectors.png``. Nothing is charged to a budget: this is a study.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import dp_sis  # noqa: E402
import feature_selection  # noqa: E402

import dpsql  # noqa: E402

DATA = HERE.parents[1].parent / "shared" / "data"
SIZE = 5
EPSILONS = (1.0, 3.0, 10.0)
NO_NOISE = 1e9
RANDOM = 500
# A call on a microarray of 456 columns took a minute.
MOST_FOR_SUBSETS = 200
SEED = 20240607  # of synthetic data and random choices; the product draws from the operating system
SETS = ("alon", "christensen", "gordon", "shipp", "singh", "sorlie")
CORRELATION, AR_ROWS, AR_WIDTHS = 0.8, 2000, (50, 200)
# A cell stops after so many seconds, with at least three calls.
SECONDS = 5.0

Doubles = NDArray[np.float64]
# Mean R² as text, by table, contender and epsilon.
Cells = dict[tuple[str, str, str], str]


@dataclass(frozen=True)
class Table:
    """A table in DuckDB with a vector column x, its values, and what a call is told of it."""

    name: str
    connection: Any
    columns: Doubles
    target: Doubles
    bounds: dict[str, Any]
    coded: dict[str, Any]
    levels: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.columns.shape


def contenders(table: Table) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the calls: function, and arguments beside those that all share."""
    rows, width = table.shape
    bounded = {**table.bounds, **table.coded}
    blocks = max(10, rows // 100)
    calls = {
        "dp_sis": ("dp_sis", {**bounded, "center": "target"}),
        "dp_sis, rank": ("dp_sis", {"score": "rank", "verdict_share": 0, **table.levels}),
        "dp_kendall": ("dp_kendall", table.levels),
        "dp_two_stage": ("dp_two_stage", {"blocks": blocks, **table.levels}),
    }
    if width <= MOST_FOR_SUBSETS:
        calls["dp_best_subset"] = ("dp_best_subset", {**bounded, "intercept": True})
    return calls


def microarray(data: Path, name: str) -> Table:
    """Return a microarray in its first view, with two levels or the code of the class as the target."""
    views, levels = dp_sis.MICROARRAYS[name]
    view, path = views[0], data / "microarray" / f"{name}.parquet"
    source = dp_sis.Source(name, path, views, levels)
    connection = dpsql.connect()
    code = f"(list_position({list(levels)}, y) - 1)::DOUBLE"
    connection.execute(f"CREATE TABLE t AS SELECT y, {code} AS code, {view.expression} AS x FROM '{path}'")
    target = np.array(connection.execute("SELECT code FROM t").fetchnumpy()["code"], dtype=np.float64)
    flat = connection.execute("SELECT unnest(x)::DOUBLE AS v FROM t").fetchnumpy()["v"]
    coded = source.target
    free = {name: value for name, value in coded.items() if name in ("target", "target_levels")}
    bounds = {"lower": view.lower, "upper": view.upper}
    return Table(
        name, connection, np.array(flat, dtype=np.float64).reshape(len(target), -1), target, bounds, coded, free
    )


def of_values(name: str, columns: Doubles, target: Doubles, bounds: dict[str, Any], coded: dict[str, Any]) -> Table:
    """Return a table of numbers."""
    connection = dpsql.connect()
    numbers = {"y": target, **{f"f{place}": column for place, column in enumerate(columns.T)}}
    connection.register("numbers", numbers)
    vector = ", ".join(f"f{place}" for place in range(columns.shape[1]))
    connection.execute(f"CREATE TABLE t AS SELECT y, [{vector}] AS x FROM numbers")
    return Table(name, connection, columns, target, bounds, {"target": "y", **coded}, {"target": "y"})


def tables(data: Path, only: list[str]) -> Iterator[Table]:
    """Yield all tables that were asked for, each with a connection of its own."""
    for name in SETS:
        if not only or name in only:
            yield microarray(data, name)
    for known in feature_selection.tables(data):
        if only and known.name not in only:
            continue
        columns = ", ".join(f'"{feature}"::DOUBLE' for feature in known.features)
        with dpsql.connect() as connection:
            rows = connection.execute(f"SELECT {columns}, y::DOUBLE FROM ({known.sql})").fetchnumpy()
        values = np.column_stack([np.asarray(column, dtype=np.float64) for column in rows.values()])
        bounds = {"lower": list(known.lower), "upper": list(known.upper)}
        coded = {"target_lower": known.target[0], "target_upper": known.target[1]}
        yield of_values(known.name, values[:, :-1], values[:, -1], bounds, coded)
    for width in AR_WIDTHS:
        for signed in (False, True):
            name = f"ar_{width}{'_signed' * signed}"
            if not only or name in only:
                yield autoregressive(name, width, signed=signed)


def autoregressive(name: str, width: int, *, signed: bool) -> Table:
    """Return a synthetic design; columns 2, 4, 6, 8 and 10 are the signals."""
    generator = np.random.default_rng([SEED, width])
    columns = generator.standard_normal((width, AR_ROWS))
    for place in range(1, width):
        columns[place] = CORRELATION * columns[place - 1] + math.sqrt(1 - CORRELATION**2) * columns[place]
    signs = np.where(signed, (-1.0) ** np.arange(SIZE), 1.0)
    signal = signs @ columns[1 : 2 * SIZE : 2]
    places = np.arange(SIZE)
    variance = float(signs @ CORRELATION ** (2.0 * np.abs(places[:, None] - places)) @ signs)
    target = signal + math.sqrt(variance / 2) * generator.standard_normal(AR_ROWS)
    limit = round(2 * math.sqrt(1.5 * variance), 1)
    bounds, coded = {"lower": -2, "upper": 2}, {"target_lower": -limit, "target_upper": limit}
    return of_values(name, columns.T, target, bounds, coded)


def explained(table: Table, chosen: Any) -> float:
    """Return R² of least squares on some columns, with an intercept."""
    target = table.target - table.target.mean()
    columns = table.columns[:, chosen] - table.columns[:, chosen].mean(axis=0)
    residual = target - columns @ np.linalg.lstsq(columns, target)[0]
    return float(1 - residual @ residual / (target @ target))


def measure(table: Table, call: tuple[str, dict[str, Any]], epsilon: float, runs: int) -> dict[str, float]:
    """Return the mean R² of some calls, its standard error, and seconds per call."""
    function, more = call
    shared = {"features": "x", "n_features": table.shape[1], "k": SIZE, "epsilon": epsilon}
    named = ", ".join(f"{name} := {value!r}" for name, value in {**shared, **more}.items())
    text = f"SELECT feature FROM {function}('t', {named})"
    found: list[float] = []
    start = time.monotonic()
    while len(found) < runs and (len(found) < 3 or time.monotonic() - start < SECONDS):
        names = [name for (name,) in table.connection.execute(text).fetchall()]
        found.append(explained(table, [int(name.removeprefix("x[").removesuffix("]")) - 1 for name in names]))
    taken = (time.monotonic() - start) / len(found)
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {"r2": float(np.mean(found)), "error": error, "runs": len(found), "seconds": taken}


def study(table: Table, runs: int) -> Iterator[dict[str, Any]]:
    """Yield a line per contender and epsilon."""
    rows, width = table.shape
    head = {"table": table.name, "n": rows, "p": width}
    generator = np.random.default_rng(SEED)
    random = [explained(table, generator.choice(width, SIZE, replace=False)) for _ in range(RANDOM)]
    error = float(np.std(random, ddof=1)) / math.sqrt(RANDOM)
    measured = {"r2": float(np.mean(random)), "error": error, "runs": RANDOM, "seconds": ""}
    yield {**head, "contender": "random", "epsilon": "", **measured}
    for name, call in contenders(table).items():
        for epsilon in (*EPSILONS, NO_NOISE):
            line = head | {"contender": name, "epsilon": epsilon}
            yield line | measure(table, call, epsilon, runs if epsilon < NO_NOISE else 3)


def write_report(folder: Path) -> None:
    """Write the table and the picture from the lines measured."""
    with (folder / "selectors.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    cells: Cells = {}
    for line in lines:
        epsilon = f"{float(line['epsilon']):g}" if line["epsilon"] else ""
        if epsilon == f"{NO_NOISE:g}":
            epsilon = "no noise"
        cells[line["table"], line["contender"], epsilon] = f"{float(line['r2']):.2f}"
    names = list(dict.fromkeys(line["table"] for line in lines))
    sizes = {line["table"]: f"{line['n']} × {line['p']}" for line in lines}
    who = [name for name in dict.fromkeys(line["contender"] for line in lines) if name != "random"]
    levels = [f"{level:g}" for level in EPSILONS]
    text = ["| table | rows × features | random | " + " | ".join(f"`{name}`" for name in who) + " |"]
    text.append("|---" * (3 + len(who)) + "|")
    for name in names:
        row = [" / ".join(cells.get((name, one, level), "–") for level in (*levels, "no noise")) for one in who]
        row = ["–" if cell.startswith("–") else cell for cell in row]
        text.append(" | ".join(["| " + name, sizes[name], cells[name, "random", ""], *row]) + " |")
    note = "In-sample R² of least squares on the five chosen features, at ε = 1 / 3 / 10 / without noise.\n\n"
    (folder / "table.md").write_text(note + "\n".join(text) + "\n", encoding="utf-8")
    draw(folder / "selectors.png", cells, names, who, levels)


def draw(
    path: Path, cells: dict[tuple[str, str, str], str], names: list[str], who: list[str], levels: list[str]
) -> None:
    """Draw a small picture per table: R² by epsilon, a line per selector, random choices as a dotted line."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    across = 4
    figure, axes = plt.subplots(-(-len(names) // across), across, figsize=(11, 7.5), sharey=True, squeeze=False)
    for place, ax in enumerate(axes.flat):
        if place >= len(names):
            ax.axis("off")
            continue
        name = names[place]
        for number, one in enumerate(who):
            shown = [cells.get((name, one, level)) for level in (*levels, "no noise")]
            if shown[0] is not None:
                ax.plot(
                    range(len(shown)), [float(cell or "nan") for cell in shown], "o-", ms=3, c=f"C{number}", label=one
                )
        ax.axhline(float(cells[name, "random", ""]), ls=":", c="grey", label="random")
        ax.set_title(name, fontsize=9)
        ax.set_xticks(range(len(levels) + 1), [*levels, "∞"], fontsize=8)
        ax.set_ylim(0, 1)
    for ax in axes[:, 0]:
        ax.set_ylabel("R²")
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes.flat), key=lambda pair: len(pair[1]))
    figure.legend(handles, labels, loc="lower right", fontsize=8)
    figure.supxlabel("epsilon", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Run the study, or what was asked of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "selectors")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"no data in {options.data}: give --data, the folder of the Parquet files")
    options.out.mkdir(parents=True, exist_ok=True)
    head = ("table", "n", "p", "contender", "epsilon", "r2", "error", "runs", "seconds")
    with (options.out / "selectors.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, head)
        writer.writeheader()
        for table in tables(options.data, options.only):
            for line in study(table, options.runs):
                writer.writerow(
                    {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in line.items()}
                )
                file.flush()
                print(*(f"{value:.3g}" if isinstance(value, float) else value for value in line.values()), flush=True)
            table.connection.close()
    write_report(options.out)


if __name__ == "__main__":
    main()
