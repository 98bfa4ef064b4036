"""Repeat the accuracy study of the DP-SIS paper with public bounds; README.md beside this file says what came out.

    python benchmarks/papers/dp_sis.py [--quick] [--data DIR] [--only sorlie synthetic] [--out DIR]

Appends one line per setting to ``results.csv`` (overlaps) and ``r2.csv`` (fits) and skips the settings that are there,
so an interrupted run goes on.

The statistic comes from SQL (``exact_xty`` on a view over Parquet, a list column with ``n_features``); the selections
are then drawn by the functions that ``dp_sis`` itself calls, `dpsql.functions.sis`, not by a full SQL call each time.
Full calls are checked against the same statistic. Nothing is charged to a budget: this is a study, not a release.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dp_sis_report import write_report
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.functions.sis import SisPlan, draw_center, draw_selection
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, quantise
from dpsql.statistics.xty import mean_from_sums

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1].parent / "shared" / "data"
GRID = sorted({*(float(f"{value:.4g}") for value in np.geomspace(0.1, 20.0, 25)), 1.0, 10.0})
QUICK_GRID = [1.0, 20.0]
FIT_GRID = [1.0, 2.742, 5.318, 10.0, 20.0]
TRIALS = 100
DESIGNS = 10
SEED = 20240607  # of the synthetic data alone; the mechanisms draw from the operating system

Doubles = NDArray[np.float64]
Positions = NDArray[np.intp]


@dataclass(frozen=True)
class View:
    """What a query sees of the vectors: SQL of ``x``, by rows alone, and the public bounds."""

    name: str
    expression: str
    lower: float
    upper: float


# One rule per kind of platform, not per data set; README.md gives the reasons.
LOG_INTENSITY = View("log2", "list_transform(x, lambda v: log2(greatest(v, 1)))", 0.0, 16.0)
INTENSITY = View("raw", "x", 0.0, 65535.0)
LOG_RATIO = View("ratio", "x", -4.0, 4.0)
METHYLATION = View("beta", "x", 0.0, 1.0)
NORMAL = View("normal", "x", -2.0, 2.0)


@dataclass(frozen=True)
class Source:
    """A Parquet file with columns y and x.

    `levels` are the classes in the order of the source's factor, so that a class's code is its place; a numeric y has
    none, and public bounds instead. `signals` are the true features of synthetic data.
    """

    name: str
    path: Path
    views: tuple[View, ...]
    levels: tuple[str, ...] = ()
    bounds: tuple[float, float] = (0.0, 0.0)
    signals: frozenset[int] = frozenset()

    @property
    def target(self) -> dict[str, Any]:
        """The arguments of dp_sis for the target."""
        if len(self.levels) == 2:
            return {"target": "y", "target_levels": list(self.levels)}
        return {"target": "code", "target_lower": self.target_bounds[0], "target_upper": self.target_bounds[1]}

    @property
    def target_bounds(self) -> tuple[float, float]:
        """Public bounds of the code."""
        return (0.0, len(self.levels) - 1.0) if self.levels else self.bounds


MICROARRAYS = {
    "alon": ((LOG_INTENSITY, INTENSITY), ("n", "t")),
    "borovecki": ((LOG_INTENSITY, INTENSITY), ("control", "symptomatic")),
    "chowdary": ((LOG_INTENSITY, INTENSITY), ("breast", "colon")),
    "christensen": ((METHYLATION,), ("other", "blood", "placenta")),
    "gordon": ((LOG_INTENSITY, INTENSITY), ("adenocarcinoma", "mesothelioma")),
    "khan": ((LOG_RATIO,), ("BL", "EWS", "NB", "RMS")),
    "shipp": ((LOG_INTENSITY, INTENSITY), ("DLBCL", "FL")),
    "singh": ((LOG_INTENSITY, INTENSITY), ("Normal", "Tumor")),
    "sorlie": ((LOG_RATIO,), ("1", "2", "3", "4", "5")),
}

# (mechanism, gamma, centre). The centre 'data' is the paper's own centring and scaling by the rows: NOT PRIVATE.
_draws = (("one_shot", 0.5), ("canonical_lipschitz", 0.25), ("canonical_lipschitz", 0.5))
PRIVATE = tuple((mechanism, gamma, center) for center in ("public", "target") for mechanism, gamma in _draws)
NOT_PRIVATE = tuple((mechanism, gamma, "data") for mechanism, gamma in (_draws[0], _draws[2]))
RAW_SETTINGS = (("one_shot", 0.5, "public"), ("one_shot", 0.5, "target"), *NOT_PRIVATE)

TRUTHS = ("paper", "lasso", "sis", "own", "signals")
KEY = ("set", "view", "k", "mechanism", "gamma", "center", "epsilon")
OVERLAPS = tuple(f"{measure}_{truth}" for truth in TRUTHS for measure in ("overlap", "exact"))
Cell = tuple[int, tuple[str, float, str], float]  # k, setting, epsilon


@dataclass(frozen=True)
class Study:
    """One view of one source: exact quantised values, and the orders that count as the truth.

    Attributes
    ----------
    columns, target : ndarray, shapes (n, p) and (n,)
        Integers in [-S, S], stored as doubles.
    scaled : pair of ndarray
        The same after centring and scaling by the data. NOT PRIVATE.
    orders : dict of ndarray
        Positions in descending order: 'paper' (Lasso on the columns as stored), 'lasso' and 'sis' (on this view's).
    nonzero : int
        Features that the Lasso takes on this view.
    """

    source: Source
    view: View
    columns: Doubles
    target: Doubles
    scaled: tuple[Doubles, Doubles]
    orders: dict[str, Positions]
    nonzero: int

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of dp_sis but k, epsilon and the mechanism."""
        vectors = {
            "features": "x",
            "n_features": self.columns.shape[1],
            "lower": self.view.lower,
            "upper": self.view.upper,
        }
        return vectors | self.source.target

    def utilities(self, center: str, means: Sequence[int] = (0,)) -> NDArray[np.int64]:
        """Return the exact ``|s_j|``, one row per centre of the target."""
        columns, target = self.scaled if center == "data" else (self.columns, self.target)
        shifted = np.clip(target - np.array(means, dtype=np.float64)[:, None], -FIXED_POINT_ONE, FIXED_POINT_ONE)
        return np.abs(shifted @ columns).astype(np.int64)  # every sum is below 2**53, so doubles hold it

    def target_sums(self) -> tuple[int, int]:
        """Return the sums of S + t and of S - t."""
        return int((FIXED_POINT_ONE + self.target).sum()), int((FIXED_POINT_ONE - self.target).sum())

    def limit(self, center: str) -> Positions:
        """Return the order that the selection tends to as epsilon grows: the same statistic without noise."""
        mean = mean_from_sums(*self.target_sums()) if center == "target" else 0
        return descending(self.utilities(center, (mean,))[0])


def descending(score: NDArray[Any]) -> Positions:
    """Return positions by descending score."""
    return np.argsort(-score, kind="stable")


def non_private_orders(columns: Doubles, target: Doubles) -> tuple[Positions, Positions, int]:
    """Return the features in the order of Lasso and of SIS, and how many coefficients of the Lasso are not 0.

    Features that the Lasso leaves out follow those it takes, by SIS: k features are had from a Lasso with fewer.
    """
    from sklearn.linear_model import Lasso

    spread = columns.std(axis=0)
    standard = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    correlation = np.abs((target - target.mean()) @ standard)
    coefficients = np.abs(Lasso(alpha=0.1, max_iter=100_000).fit(standard, target).coef_)
    return np.lexsort((-correlation, -coefficients)), descending(correlation), int((coefficients > 0).sum())


def scale_by_data(values: Doubles) -> Doubles:
    """Centre by the sample's mean and divide by the largest deviation, as in the paper. NOT PRIVATE."""
    centred = values - values.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    return quantise(centred / np.where(largest > 0, largest, 1.0), *affine_map(-1.0, 1.0))


def studies(source: Source) -> Iterator[Study]:
    """Yield one study per view of a source, each checked against SQL."""
    with dpsql.connect() as connection:
        code = f"list_position({list(source.levels)}, y) - 1" if source.levels else "y"
        (p,) = connection.execute(f"SELECT max(len(x)) FROM '{source.path}'").fetchone()
        stored = None
        for view in sorted(source.views, key=lambda view: view.expression != "x"):
            connection.execute(
                f"CREATE VIEW {view.name} AS SELECT y, ({code})::DOUBLE AS code, {view.expression} AS x "
                f"FROM '{source.path}'"
            )
            rows = connection.execute(f"SELECT code FROM {view.name}").fetchnumpy()
            target = np.array(rows["code"], dtype=np.float64)
            flat = connection.execute(f"SELECT unnest(x) AS v FROM {view.name}").fetchnumpy()
            columns = np.array(flat["v"], dtype=np.float64).reshape(len(target), p)
            lasso, sis, nonzero = non_private_orders(columns, target)
            stored = lasso if stored is None else stored
            scaled = scale_by_data(columns), scale_by_data(target)
            study = Study(
                source=source,
                view=view,
                columns=quantise(columns, *affine_map(view.lower, view.upper)),
                target=quantise(target, *affine_map(*source.target_bounds)),
                scaled=scaled,
                orders={"paper": stored, "lasso": lasso, "sis": sis},
                nonzero=nonzero,
            )
            check_against_sql(connection, study)
            yield study


def check_against_sql(connection: Any, study: Study) -> None:
    """Stop unless SQL gives this study's statistic, and a full dp_sis call the form and the limit that it should."""
    statistic = call_sql(connection, "exact_xty", study.view.name, **study.arguments)
    exact = np.array([int(value) for _, value in statistic])
    if not np.array_equal(np.abs(exact), study.utilities("public")[0]):
        raise SystemExit(f"{study.source.name}: exact_xty and the study's statistic differ")
    names = [name for name, _ in statistic]
    for center in ("public", "target"):
        rows = call_sql(connection, "dp_sis", study.view.name, **study.arguments, k=5, epsilon=1.0, center=center)
        if [rank for rank, *_ in rows] != [1, 2, 3, 4, 5] or len({name for _, name, *_ in rows} & set(names)) != 5:
            raise SystemExit(f"{study.source.name}: dp_sis returned {rows}")
        rows = call_sql(connection, "dp_sis", study.view.name, **study.arguments, k=5, epsilon=1e9, center=center)
        if [name for _, name, *_ in rows] != [names[position] for position in study.limit(center)[:5]]:
            raise SystemExit(f"{study.source.name}: dp_sis at a huge epsilon is not the top 5 of its statistic")


def call_sql(connection: Any, function: str, source: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """Run a table function of dpsql with named arguments."""
    named = ", ".join(f"{name} := {value!r}" for name, value in arguments.items())
    return connection.execute(f"SELECT * FROM {function}('{source}', {named})").fetchall()  # type: ignore[no-any-return]


def draw(study: Study, setting: tuple[str, float, str], k: int, epsilon: float, trials: int) -> list[list[int]]:
    """Draw selections as dp_sis does, as positions of features."""
    mechanism, gamma, center = setting
    asked = {
        "k": k,
        "epsilon": epsilon,
        "mechanism": mechanism,
        "gamma": gamma,
        "center": "public" if center == "data" else center,
    }
    plan = SisPlan.from_arguments(study.view.name, study.arguments | asked)
    features: Any = range(study.columns.shape[1])
    if center != "target":
        utility = study.utilities(center)[0]
        return [draw_once(draw_selection, plan, utility, features) for _ in range(trials)]
    high, low = study.target_sums()
    utilities = study.utilities(center, [draw_once(draw_center, plan, high, low) for _ in range(trials)])
    return [draw_once(draw_selection, plan, utility, features) for utility in utilities]


def overlaps(study: Study, cell: Cell, chosen: list[list[int]]) -> dict[str, float]:
    """Return the mean overlap with each truth, as a fraction of k, and how often the set is exactly the truth."""
    k, (_, _, center), _ = cell
    truths = {name: set(order[:k].tolist()) for name, order in (study.orders | {"own": study.limit(center)}).items()}
    if study.source.signals:
        truths["signals"] = set(study.source.signals)
    out = {}
    for name, truth in truths.items():
        common = [len(truth.intersection(selection)) for selection in chosen]
        out[f"overlap_{name}"] = float(np.mean(common)) / k
        out[f"exact_{name}"] = float(np.mean([number == k for number in common]))
    return out


def fit(study: Study, cell: Cell, chosen: list[list[int]]) -> dict[str, float]:
    """Return the mean in-sample R² of least squares on the selected columns: what they are good for."""
    target = study.target - study.target.mean()
    total = target @ target
    out = []
    for selection in chosen:
        columns = study.columns[:, selection] - study.columns[:, selection].mean(axis=0)
        residual = target - columns @ np.linalg.lstsq(columns, target)[0]
        out.append(1.0 - residual @ residual / total)
    return {"r2": float(np.mean(out))}


def synthetic(folder: Path, designs: int) -> list[Source]:
    """Write the paper's synthetic design: n = 100, d = 2000, 8 signals of 4 ln n / sqrt n + |z|, noise of s.d. 1.5."""
    n, d, count = 100, 2000, 8
    sources = []
    for design in range(designs):
        generator = np.random.default_rng([SEED, design])
        x = generator.normal(size=(n, d))
        signals = generator.choice(d, size=count, replace=False)
        signs = np.where(generator.random(count) < 0.4, -1.0, 1.0)
        weights = signs * (4.0 * math.log(n) / math.sqrt(n) + np.abs(generator.normal(size=count)))
        y = x[:, signals] @ weights + generator.normal(scale=1.5, size=n)
        path = folder / f"synthetic_{design}.parquet"
        pq.write_table(pa.table({"y": y, "x": list(x)}), path)
        # By the design y has a standard deviation near 8: both x and y are clipped at two of them.
        sources.append(Source("synthetic", path, (NORMAL,), bounds=(-16.0, 16.0), signals=frozenset(signals.tolist())))
    return sources


def cells(group: Sequence[Study], grid: Sequence[float], ks: Sequence[int]) -> Iterator[Cell]:
    """Yield every (k, setting, epsilon) of a data set's view; an infinite epsilon is an order without noise."""
    settings = RAW_SETTINGS if group[0].view is INTENSITY else PRIVATE + NOT_PRIVATE
    for k in ks:
        for center in dict.fromkeys(center for _, _, center in settings):
            yield k, ("none", 0.5, center), math.inf
        for order in ("sis", "lasso", "random"):
            yield k, (order, 0.5, "data"), math.inf
        for setting in settings:
            for epsilon in grid:
                yield k, setting, epsilon


def selections(study: Study, cell: Cell, trials: int) -> list[list[int]]:
    """Return the selections of one cell: one where nothing is drawn."""
    k, setting, epsilon = cell
    if setting[0] == "random":
        generator = np.random.default_rng(SEED)
        return [generator.choice(study.columns.shape[1], size=k, replace=False).tolist() for _ in range(trials)]
    if math.isinf(epsilon):
        order = study.limit(setting[2]) if setting[0] == "none" else study.orders[setting[0]]
        return [order[:k].tolist()]
    return draw(study, setting, k, epsilon, trials)


class Results:
    """The lines measured so far, in a CSV file that only grows."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = columns
        self.done: set[tuple[str, ...]] = set()
        if path.exists():
            with path.open(newline="") as file:
                self.done = {tuple(line[name] for name in KEY) for line in csv.DictReader(file)}
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(",".join((*KEY, *columns)) + "\n")

    def append(self, key: tuple[str, ...], measures: dict[str, float]) -> None:
        """Add a line."""
        values = [f"{measures[name]:.4g}" if name in measures else "" for name in self._columns]
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([*key, *values])
        self.done.add(key)


@dataclass(frozen=True)
class Run:
    """What to measure, and how often."""

    overlaps: Results
    fits: Results
    grid: Sequence[float]
    trials: int
    progress: Progress

    def measure(self, sources: Sequence[Source]) -> list[dict[str, Any]]:
        """Measure what is missing of one data set; return what is worth knowing about its views."""
        facts = []
        for group in zip(*(studies(source) for source in sources), strict=True):
            study, view = group[0], group[0].view
            n, p = study.columns.shape
            facts.append({"set": study.source.name, "view": view.name, "n": n, "p": p, "lasso": study.nonzero})
            facts[-1] |= {"lower": view.lower, "upper": view.upper}
            ks = (5, 8) if study.source.signals else sorted({5, math.floor(math.log(p))})
            self._fill(group, self.overlaps, overlaps, self.grid, ks)
            self._fill(group, self.fits, fit, [level for level in FIT_GRID if level in self.grid], (5,))
        return facts

    def _fill(
        self,
        group: Sequence[Study],
        results: Results,
        measure: Callable[[Study, Cell, list[list[int]]], dict[str, float]],
        grid: Sequence[float],
        ks: Sequence[int],
    ) -> None:
        """Measure the cells that a file lacks, their trials split evenly over the designs of a synthetic set."""
        name, view = group[0].source.name, group[0].view.name
        todo = {}
        for cell in cells(group, grid, ks):
            k, (mechanism, gamma, center), epsilon = cell
            key = (name, view, str(k), mechanism, str(gamma), center, f"{epsilon:g}")
            if key not in results.done:
                todo[key] = cell
        task = self.progress.add_task(f"{name} ({view}), {measure.__name__}", total=len(todo))
        trials = max(1, self.trials // len(group))
        for key, cell in todo.items():
            parts = [measure(study, cell, selections(study, cell, trials)) for study in group]
            results.append(key, {item: float(np.mean([part[item] for part in parts])) for item in parts[0]})
            self.progress.advance(task)


def gather(data: Path, only: Sequence[str], folder: Path, designs: int) -> dict[str, list[Source]]:
    """Return the sources by data set, saying which are absent."""
    found = {}
    for name, (views, levels) in MICROARRAYS.items():
        path = data / "microarray" / f"{name}.parquet"
        if only and name not in only:
            continue
        if path.exists():
            found[name] = [Source(name, path, views, levels)]
        else:
            print(f"skipped {name}: there is no {path}; give --data DIR, the folder that holds microarray/")
    if not only or "synthetic" in only:
        found["synthetic"] = synthetic(folder, designs)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds microarray/*.parquet")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "dp_sis", help="folder of results.csv, table and figures"
    )
    parser.add_argument("--only", nargs="+", default=[], choices=[*MICROARRAYS, "synthetic"], help="these data sets")
    parser.add_argument("--trials", type=int, default=None, help=f"selections per setting; {TRIALS} unless told")
    parser.add_argument(
        "--quick", action="store_true", help="two epsilons, 10 trials, 2 synthetic designs; give another --out"
    )
    parser.add_argument("--no-figure", action="store_true", help="leave the figures out (they need matplotlib)")
    options = parser.parse_args(arguments)
    grid, designs = (QUICK_GRID, 2) if options.quick else (GRID, DESIGNS)
    trials = options.trials or (10 if options.quick else TRIALS)
    started = time.monotonic()
    bar = (TextColumn("{task.description:26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    facts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Progress(*bar, TimeRemainingColumn()) as progress:
        overlap_lines = Results(options.out / "results.csv", OVERLAPS)
        fit_lines = Results(options.out / "r2.csv", ("r2",))
        run = Run(overlap_lines, fit_lines, grid, trials, progress)
        for sources in gather(options.data, options.only, Path(folder), designs).values():
            facts += run.measure(sources)
    write_report(options.out, facts, figures=not options.no_figure)
    print(f"{len(overlap_lines.done)} lines in {overlap_lines.path}; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
