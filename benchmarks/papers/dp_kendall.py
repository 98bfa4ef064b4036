"""Repeat the regression study of the DPKendall paper; README.md beside this file says what came out.

    python benchmarks/papers/dp_kendall.py [--quick] [--data DIR] [--only sulfur wine_quality] [--workers 2] [--out DIR]
    python benchmarks/papers/dp_kendall.py --tune          # how the public defaults fare, on the smaller sets

Ten random splits of every set, 90 % of the rows for the fit. Everything private is one call of ``dp_linear_regression``
or ``dp_pipeline`` at (1.0986, 1e-5), 1.0986 being ln 3 cut to four digits, and predicts the other rows by
`dpsql.released.model`. Beside them three references that are NOT PRIVATE: least squares, boosted AdaSSP on unscaled
labels as in the paper, and the Tukey mechanism with the paper's rules. The splits are seeded; privacy noise cannot be.

Appends one JSON line per cell to ``results.jsonl`` (``tuning.jsonl`` with ``--tune``) and skips what is there, so an
interrupted run goes on; null stands for an R² of -infinity, of a fit that was not released. Nothing is charged to a
budget: this is a study, not a release.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dp_kendall_report import write_report
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import dpsql
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.errors import ParameterError
from dpsql.kernels.block_gram import BlockGram, BlockRanges
from dpsql.kernels.gram import one_thread
from dpsql.mechanisms.tukey import (
    DepthBoxes,
    draw_depth,
    growth_per_level,
    longest_reach,
    models_needed,
    passing_score,
    stable_reach,
    tail_weights,
)
from dpsql.noise.entropy import SYSTEM, WordReader

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1].parent / "shared" / "data"
EPSILON = 1.0986
DELTA = 1e-5
SPLITS = 10
TUNING_SPLITS = 3
SEED = 20240607  # of the splits, and of the noise of the references; the product draws from the operating system
# A sample recoded to integers, in place of the set of the paper's suite: measured, and in no count.
SUBSTITUTE = "black_friday_sample100k"
SMALLER = (
    "sulfur",
    "wine_quality",
    "california",
    "elevators",
    "cpu_act",
    "brazilian_houses",
    "house_sales",
    "ailerons",
)
SELECTORS = {"K": "kendall", "L": "two_stage"}
METHODS = {"BAS": "boosted_ada_ssp", "Tukey": "tukey", "AdaSSP": "ada_ssp"}
# The shares of the paper: selection, number of rows, fit.
SELECTION_SHARE = COUNT_SHARE = Fraction(1, 20)
COUNT_FAILURE = 1e-4
BOOSTING_ROUNDS = 100
# Added to the target of one set, once more: what labels such as years do to boosting.
SHIFT = 2000.0
SHIFTED = "wine_quality"

Doubles = NDArray[np.float64]
Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Cell:
    """One fit to measure.

    Attributes
    ----------
    set : str
    split : int
    selector : {'', 'K', 'L'}
        None, Kendall's tau, or two-stage.
    k : int
        Features selected; 0 without selection.
    method : str
        A key of `METHODS`, 'auto', or a reference: 'OLS', 'BAS unscaled', 'Tukey unsafe'.
    settings : tuple of pairs
        Arguments of the call that are not the defaults. A `row_norm` is a multiple of d, under a root; 0 is for 1.
        `bounds` is 'range' for the least and the largest value of the whole set, as public bounds. A `block_size` is
        the number of rows per block of the Tukey mechanism, as a multiple of d + 1. `shift` is added to the target.
    """

    set: str
    split: int
    selector: str
    k: int
    method: str
    settings: Settings = ()

    @property
    def key(self) -> str:
        """What a line is known by."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Table:
    """A set as the suite has it: categories as columns of 0 and 1, one per level, and the transformed target."""

    names: tuple[str, ...]
    features: Doubles
    target: Doubles


@lru_cache(maxsize=2)
def load(data: Path, name: str) -> Table:
    """Read a set. Levels of categories count as public."""
    variants = json.loads((data / "regression" / "suite_variants.json").read_text())
    table = pq.read_table(data / "regression" / f"{name}.parquet")
    told = variants.get(name, {"columns": table.column_names[:-1], "categorical": [], "target_transform": "none"})
    columns: dict[str, Doubles] = {}
    for column in told["columns"]:
        values = table[column].to_numpy(zero_copy_only=False)
        if column in told["categorical"]:
            columns |= {f"{column}={level}": (values == level).astype(float) for level in sorted(set(values.tolist()))}
        else:
            columns[column] = values.astype(float)
    target = table["y"].to_numpy().astype(float)
    if told["target_transform"] == "log":
        target = np.log(target)
    return Table(tuple(columns), np.column_stack(list(columns.values())), target)


@dataclass(frozen=True)
class Split:
    """A set cut in two, the larger part in DuckDB as ``rows``."""

    table: Table
    fit: NDArray[np.intp]
    test: NDArray[np.intp]
    context: dpsql.Context

    def score(self, prediction: Doubles) -> float:
        """Return R² on the test rows."""
        return r_squared(self.table.target[self.test], prediction)


@lru_cache(maxsize=1)
def cut(data: Path, name: str, number: int) -> Split:
    """Cut a set at random, the same way every time."""
    table = load(data, name)
    count = len(table.target)
    order = np.random.default_rng([SEED, number, count]).permutation(count)
    test, fit = order[: count // 10], order[count // 10 :]
    context = dpsql.Context()
    context.connection.execute("SET threads = 1")
    columns = dict(zip(table.names, table.features[fit].T, strict=True))
    context.connection.register("frame", pa.table({**columns, "y": table.target[fit]}))
    context.connection.execute("CREATE TABLE rows AS SELECT * FROM frame")
    context.connection.unregister("frame")
    context.connection.execute(f"CREATE VIEW moved AS SELECT * REPLACE (y + {SHIFT} AS y) FROM rows")
    return Split(table, fit, test, context)


def r_squared(target: Doubles, prediction: Doubles) -> float:
    """Return 1 - squared error / squared deviation from the mean of these targets."""
    deviation = target - target.mean()
    error = target - prediction
    return 1.0 - float(error @ error) / float(deviation @ deviation)


def measure(data: Path, cell: Cell) -> dict[str, Any]:
    """Measure one cell; the line of the results."""
    split = cut(data, cell.set, cell.split)
    started = time.monotonic()
    with one_thread():
        if cell.method == "OLS":
            found = {"r2": least_squares(split, range(len(split.table.names)))}
        elif cell.method == "BAS unscaled":
            found = {"r2": boosted_unscaled(split, cell)}
        elif cell.method == "Tukey unsafe":
            found = tukey_unsafe(split, cell)
        else:
            found = call(split, cell)
    rounded = {
        name: value if not isinstance(value, float) else round(value, 4) if math.isfinite(value) else None
        for name, value in found.items()
    }
    return {**asdict(cell), **rounded, "seconds": round(time.monotonic() - started, 2)}


def call(split: Split, cell: Cell) -> dict[str, Any]:
    """Fit by one call, and predict the test rows. What was not released has R² = -inf."""
    table = split.table
    count = cell.k or len(table.names)
    arguments: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, **dict(cell.settings)}
    arguments["method"] = METHODS.get(cell.method, cell.method)
    if (norm := arguments.get("row_norm")) is not None:
        arguments["row_norm"] = math.sqrt(norm * count) or 1.0
    if (size := arguments.pop("block_size", None)) is not None:
        arguments["blocks"] = len(split.fit) // (size * (count + 1))
    shift = arguments.pop("shift", 0.0)
    source = "moved" if shift else "rows"
    if arguments.pop("bounds", None) == "range":
        arguments |= {"lower": table.features.min(axis=0).tolist(), "upper": table.features.max(axis=0).tolist()}
        arguments |= {"target_lower": float(table.target.min()), "target_upper": float(table.target.max())}
    arguments |= {"target": "y", "features": list(table.names)}
    if cell.selector:
        arguments |= {"k": cell.k, "selector": SELECTORS[cell.selector]}
        release = split.context.dp_pipeline(source, **arguments)
    else:
        release = split.context.dp_linear_regression(source, **arguments)
    places = [table.names.index(name) for name in release.features]
    try:
        model = split.context.model(release)
    except ParameterError as error:
        if error.code != "DPSQL-P053":
            raise
        return {"r2": -math.inf} | ({"picked": "tukey"} if cell.method == "auto" else {})
    found: dict[str, Any] = {"r2": split.score(model.predict(table.features[split.test][:, places]) - shift)}
    if cell.method == "auto":
        found["picked"] = model.method
    if cell.selector and cell.method == "AdaSSP":
        found["ols"] = least_squares(split, places)
    return found


def least_squares(split: Split, places: Iterable[int]) -> float:
    """Return R² of least squares on some columns. NOT PRIVATE."""
    features = np.column_stack([np.ones(len(split.table.target)), split.table.features[:, list(places)]])
    features[:, 1:] = (features[:, 1:] - features[:, 1:].mean(axis=0)) / np.maximum(features[:, 1:].std(axis=0), 1e-12)
    theta = np.linalg.lstsq(features[split.fit], split.table.target[split.fit])[0]
    return split.score(features[split.test] @ theta)


def boosted_unscaled(split: Split, cell: Cell) -> float:
    """Return R² of boosted AdaSSP as in the paper: rows of features and labels in their own units.

    Rows are shortened to norm 1, also those to predict, residuals clipped to [-1, 1]; ridge and calibration are those
    of Tang et al. The noise is seeded and its arithmetic floating point: NOT PRIVATE as it stands.
    """
    table, generator = split.table, np.random.default_rng([SEED, cell.split, len(split.fit), len(cell.set)])
    rows = np.column_stack([np.ones(len(table.target)), table.features])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    shift = float(dict(cell.settings).get("shift", 0.0))
    fit, target, width = rows[split.fit], table.target[split.fit] + shift, rows.shape[1]
    sigma = math.sqrt(BOOSTING_ROUNDS + 2) / float(gaussian_mu(Fraction(str(EPSILON)), Fraction(str(DELTA))))
    gram = fit.T @ fit
    noise = np.triu(generator.normal(scale=sigma, size=gram.shape))
    least = float(np.linalg.eigvalsh(gram)[0]) + sigma * generator.normal()
    ridge = max(0.0, 1.96 * math.sqrt(width) * sigma - max(0.0, least - 1.96 * sigma))
    inverse = np.linalg.inv(gram + noise + np.triu(noise, 1).T + ridge * np.eye(width))
    theta = np.zeros(width)
    for _ in range(BOOSTING_ROUNDS):
        products = fit.T @ np.clip(target - fit @ theta, -1.0, 1.0)
        theta += inverse @ (products + generator.normal(scale=sigma, size=width))
    return split.score(rows[split.test] @ theta - shift)


def tukey_unsafe(split: Split, cell: Cell) -> dict[str, Any]:
    """Compare the paper's rules for the Tukey mechanism with ours, on the same models. NOT PRIVATE.

    The paper's: a model for every d + 1 rows, a density that grows by e**epsilon' per level of depth, K + 1 for K, and
    noise of scale epsilon' instead of 1 / epsilon'. Also one level too deep.

    Returns
    -------
    found : dict
        `r2` of a point by the paper's rules; the chance that the test passes by theirs (`passes_unsafe`), by ours on
        the same models (`passes_same`), and by ours on as many blocks as ours takes (`passes_ours`); both numbers of
        blocks.
    """
    table, epsilon, delta = split.table, Fraction(str(EPSILON)), Fraction(str(DELTA))
    places = list(range(len(table.names)))
    share = 1 - COUNT_SHARE
    if cell.selector:
        share -= SELECTION_SHARE
        arguments = {
            "target": "y",
            "features": list(table.names),
            "k": cell.k,
            "epsilon": float(epsilon * SELECTION_SHARE),
        }
        release = split.context.dp_kendall("rows", **arguments)
        places = [table.names.index(name) for name in release.features]
    columns = np.concatenate([table.features[split.fit][:, places].T, table.target[split.fit][np.newaxis]])
    half = epsilon * share / 2
    width = len(columns)  # the features and the intercept
    rows = len(split.fit) + math.log(2 * COUNT_FAILURE) / float(epsilon * COUNT_SHARE)
    theirs = int(rows / width)
    ours = min(theirs, models_needed(width, 2 * half, delta))
    generator = np.random.default_rng([SEED, cell.split, len(split.fit), cell.k])
    models = {count: block_models(columns, count, generator) for count in {theirs, ours}}
    boxes, growth = DepthBoxes(models[theirs]), growth_per_level(2 * half)
    tails = tail_weights(boxes, growth)
    factor = math.exp(float(half))
    # stable_reach compares with delta / (1 + 2 r**2), the paper with delta / (8 e**epsilon').
    reach = stable_reach(boxes, tails, growth, delta * Fraction((1 + 2 * factor**2) / (8 * factor)))
    threshold = math.log(1 / (2 * float(delta))) / float(half)
    chance = laplace_tail((threshold - reach - 1) / float(half))
    found: dict[str, Any] = {"r2": -math.inf, "blocks_unsafe": theirs, "blocks_ours": ours, "passes_unsafe": chance}
    found |= {"passes_same": passing(models[theirs], half, delta), "passes_ours": passing(models[ours], half, delta)}
    if generator.random() < chance:
        reader = WordReader(SYSTEM)
        depth = draw_depth(boxes, tails, growth, reader)
        point = boxes.point(min(depth + 1, boxes.deepest), reader)
        found["r2"] = split.score(point[0] + table.features[split.test][:, places] @ point[1:])
    return found


def block_models(columns: Doubles, blocks: int, generator: np.random.Generator) -> Doubles:
    """Return least squares on random blocks, as the product computes it."""
    assigned: NDArray[np.int64] = generator.integers(0, blocks, size=(columns.shape[1],))
    ranges = BlockRanges(blocks, len(columns))
    ranges.add(assigned, columns)
    gram = BlockGram(*ranges.maps())
    gram.add(assigned, columns)
    return gram.models()


def passing(models: Doubles, epsilon: Fraction, delta: Fraction) -> float:
    """Return the chance that our test passes these models, half of the budget for the test and half for the draw."""
    if longest_reach(len(models)) < 0:
        return 0.0
    boxes, growth = DepthBoxes(models), growth_per_level(epsilon)
    needed = passing_score(epsilon, delta) - stable_reach(boxes, tail_weights(boxes, growth), growth, delta)
    ratio = math.exp(-float(epsilon))
    return ratio**needed / (1 + ratio) if needed > 0 else 1 - ratio ** (1 - needed) / (1 + ratio)


def laplace_tail(at: float) -> float:
    """Return the chance that a Laplace variable of scale 1 exceeds a number."""
    return 0.5 * math.exp(-at) if at > 0 else 1 - 0.5 * math.exp(at)


def study_cells(name: str, features: int, splits: int) -> Iterator[Cell]:
    """Yield the cells of a set."""
    for split in range(splits):
        for method in ("OLS", *METHODS, "BAS unscaled", "Tukey unsafe"):
            yield Cell(name, split, "", 0, method)
        for k in (5, 10):
            if k >= features:
                continue
            for selector in SELECTORS:
                for method in METHODS:
                    yield Cell(name, split, selector, k, method)
            yield Cell(name, split, "K", k, "Tukey unsafe")
        if name == SHIFTED:
            for method in ("BAS", "BAS unscaled"):
                yield Cell(name, split, "", 0, method, (("shift", SHIFT),))
    # One split tells what auto picks: the report takes the R² of the method that it stands for, where it is measured.
    yield Cell(name, 0, "", 0, "auto")
    yield Cell(name, 0, "K", 5, "auto")


def tuning_settings() -> Iterator[tuple[str, Settings]]:
    """Yield methods and settings to compare."""
    for method in METHODS:
        for bounds in ((), (("bounds", "range"),)):
            yield method, bounds
            for epsilon in (0.1, 0.3, 3.0):
                yield method, (*bounds, ("epsilon", epsilon))
    for method in ("AdaSSP", "BAS"):
        for norm in (0.5, 0.3333, 0.0):
            yield method, (("row_norm", norm),)
            yield method, (("row_norm", norm), ("bounds", "range"))
        for share in (0.05, 0.1, 0.2, 0.3):
            yield method, (("bounds_share", share),)
    for rounds in (1, 3, 10, 30, 100):
        for epsilon in (0.1, 0.3, 3.0):
            yield "BAS", (("rounds", rounds), ("epsilon", epsilon))
        for split in ("even", "thirds"):
            yield "BAS", (("rounds", rounds), ("split", split))
    for share in (0.02, 0.1, 0.2):
        yield "BAS", (("scale_share", share),)
    for size in (1, 2, 3, 5, 10, 20):
        yield "Tukey", (("block_size", size),)


def tuning_cells(name: str, splits: int) -> Iterator[Cell]:
    for split in range(splits):
        for method, settings in tuning_settings():
            yield Cell(name, split, "", 0, method, settings)
            yield Cell(name, split, "K", 5, method, settings)


class Lines:
    """A file of JSON lines, each known by its cell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        if not text.endswith("\n"):  # cut off when it was last written
            text = text[: text.rfind("\n") + 1]
            path.write_text(text)
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    @property
    def done(self) -> set[str]:
        """Keys of the lines."""
        return {json.dumps({name: line[name] for name in Cell.__dataclass_fields__}) for line in self.lines}

    def append(self, line: dict[str, Any]) -> None:
        """Write a line now, so that an interrupted run keeps it."""
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def gather(data: Path, only: Sequence[str]) -> list[str]:
    """Return the sets that are there, the largest last; say which are absent."""
    names = [*SMALLER, "diamonds", SUBSTITUTE, "sgemm_gpu_kernel"]
    found = []
    for name in names:
        if only and name not in only:
            continue
        if (data / "regression" / f"{name}.parquet").exists():
            found.append(name)
        else:
            print(f"skipped {name}: it is not in {data / 'regression'}; give --data DIR, the folder above it")
    return found


def run(data: Path, cells: Sequence[Cell], lines: Lines, workers: int) -> None:
    """Measure what is missing, and write every line as it comes."""
    done = lines.done
    todo = [cell for cell in cells if cell.key not in done]
    bar = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, TimeRemainingColumn()) as progress:
        task = progress.add_task("cells", total=len(todo))

        def keep(line: dict[str, Any]) -> None:
            lines.append(line)
            progress.update(task, advance=1, description=line["set"])

        if not workers:
            for cell in todo:
                keep(measure(data, cell))
            return
        with ProcessPoolExecutor(workers) as pool:
            for future in as_completed([pool.submit(measure, data, cell) for cell in todo]):
                keep(future.result())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds regression/*.parquet")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "dp_kendall", help="folder of what is written")
    parser.add_argument("--only", nargs="+", default=[], help="these sets")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 measures in this one")
    parser.add_argument("--quick", action="store_true", help="two splits, in this process; give another --out")
    parser.add_argument("--tune", action="store_true", help="compare settings on the smaller sets instead")
    parser.add_argument("--no-figure", action="store_true", help="leave the figure out (it needs matplotlib)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    names = gather(options.data, options.only)
    cells: list[Cell] = []
    for name in names:
        if options.tune and name in SMALLER:
            cells += tuning_cells(name, 1 if options.quick else TUNING_SPLITS)
        elif not options.tune:
            features = len(load(options.data, name).names)
            cells += study_cells(name, features, 2 if options.quick else SPLITS)
    lines = Lines(options.out / ("tuning.jsonl" if options.tune else "results.jsonl"))
    run(options.data, cells, lines, 0 if options.quick else options.workers)
    write_report(options.out, figures=not options.no_figure)
    print(f"{len(lines.lines)} lines in {lines.path}; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
