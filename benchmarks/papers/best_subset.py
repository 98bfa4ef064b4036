"""Repeat the support recovery study of the DP best-subset slides and paper; README.md beside this file says what came out.

    python benchmarks/papers/best_subset.py [--quick] [--only 100 250] [--trials 10] [--workers 2] [--out DIR] [--no-figure]

Rows X ~ N(0, Sigma), Sigma_ij = 0.1^|i-j|; the target is the sum of features 1, 3, 5, ... over sqrt(k) plus noise at a
given signal-to-noise ratio; both are clipped to [-0.5, 0.5]. Per table the best subsets are listed once, and every
contender draws from that list, by the samplers that ``dp_best_subset`` itself calls. Calls in SQL are checked
against them. Appends to ``results.csv`` (a line per contender) and ``searches.csv`` (what listing and rejections
took) and skips what is there, so an interrupted run goes on. Nothing is charged to a budget: this is a study, not a
release.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from dp_sis_report import markdown, read, save_small
from numpy.typing import NDArray
from rich.progress import track

import dpsql
from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets import LIST_WIDTH, BestSubsets, best_subsets, score_floors
from dpsql.kernels.blas import one_thread
from dpsql.kernels.gram import gram_products
from dpsql.kernels.lasso_votes import lasso_votes
from dpsql.mechanisms.subset_exponential import SubsetList, SubsetRejection
from dpsql.noise.entropy import SYSTEM
from dpsql.selectors.sis import SisPlan, draw_selection
from dpsql.selectors.two_stage import TwoStagePlan, draw_votes
from dpsql.statistics.fixed_point import affine_map, quantise
from dpsql.statistics.gram import utility_range

HERE = Path(__file__).resolve().parent
SEED = 20251022  # of the data and of the blocks; the mechanisms draw from the operating system
RHO = 0.1
BOUND = 0.5
RADIUS = Fraction(11, 10)  # coefficients are ratios, so clipping to +-0.5 and mapping that to +-1 leaves them alone
SCORE_SCALE = 4  # squares in units of the bound, 0.5, are 4 times the paper's; its ridge becomes ours times 4
TRIALS = 10
ROWS = (500, 1000, 1500, 2000, 3000, 5000, 8000)
# (features, ridges in the paper's units, trials as a share of those asked for)
WIDTHS = ((100, (120, 0), 1.0), (250, (120, 0), 1.0), (1000, (120, 0), 0.3))
SQL_DRAWS = 25
DIRECT_DRAWS = 400
# Draws that deviate from a known law by more standard errors, or with a smaller p-value, stop the study.
LARGEST_Z = 6.0
LEAST_P = 1e-6

Doubles = NDArray[np.float64]
Subset = tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """Signal-to-noise ratio, epsilon, and subset size; and the rows for which calls in SQL are checked."""

    snr: int
    epsilon: int
    size: int
    sql_rows: int

    @property
    def truth(self) -> Subset:
        """The features that the target is a sum of."""
        return tuple(range(1, 2 * self.size, 2))


SETTINGS = (Setting(2, 5, 5, 500), Setting(5, 2, 7, 1500), Setting(5, 1, 5, 1000))


@dataclass(frozen=True)
class Contender:
    """A law on subsets: all of them or the best ones, and the range of scores that it is calibrated to."""

    name: str
    method: str
    neighbours: str
    printed: bool = False

    def coefficient(self, setting: Setting) -> Fraction:
        """Return the exponent per unit of score."""
        width = SCORE_WIDTH + (LIST_WIDTH if self.method == "top_r" else 0)
        spread = utility_range(self.neighbours, setting.size, RADIUS, width=width)
        if self.printed:
            # The slides' sensitivity 2 b_y^2 + 2 b_x^2 r^2 k, in units of b_x = b_y; rows are replaced, hence twice.
            spread = 2 * (2 + 2 * RADIUS**2 * setting.size + width)
        return setting.epsilon / (spread / SCORE_UNIT)


SUBSET_LAWS = (
    Contender("exact", "exact", "add_remove"),
    Contender("top_r", "top_r", "add_remove"),
    Contender("exact, replace", "exact", "replace"),
    Contender("top_r, replace", "top_r", "replace"),
    Contender("top_r, as printed", "top_r", "replace", printed=True),
)
OTHERS = ("dp_sis", "dp_two_stage", "best subset")
NAMES = (*(law.name for law in SUBSET_LAWS), *OTHERS)

KEY = ("p", "ridge", "snr", "epsilon", "k", "n", "contender")
MEASURES = ("trials", "draws", "exact", "exact_error", "f1", "f1_error", "law")
SEARCH_KEY = KEY[:-1]
SEARCHES = (
    *("trials", "seconds", "slowest", "nodes", "exhausted"),
    *("list_draws", "rounds_per_draw", "ms_per_draw", "long_draws", "long_rounds_per_draw", "long_ms_per_draw"),
)


@dataclass(frozen=True)
class Effort:
    """Draws per table and law; the rounds of rejection after which they stop, first on the product's list, then on a
    longer one; and the subsets on that.
    """

    draws: int = 100
    rounds: int = 30_000
    long_list: int = 50_000


@dataclass(frozen=True)
class Table:
    """One synthetic table: values as generated, and exact products of the clipped ones."""

    x: Doubles
    y: Doubles

    @classmethod
    def draw(cls, p: int, setting: Setting, n: int, trial: int) -> Table:
        """Return the table of a trial; the noise is scaled by the sample's norms, as in the paper's code."""
        generator = np.random.default_rng([SEED, p, setting.snr, setting.size, n, trial])
        columns = generator.standard_normal((p, n))
        for place in range(1, p):
            columns[place] = RHO * columns[place - 1] + math.sqrt(1.0 - RHO**2) * columns[place]
        signal = columns[list(setting.truth)].sum(axis=0) / math.sqrt(setting.size)
        noise = generator.standard_normal(n)
        noise *= np.linalg.norm(signal) / (math.sqrt(setting.snr) * np.linalg.norm(noise))
        return cls(columns.T, signal + noise)

    @cached_property
    def products(self) -> NDArray[np.int64]:
        """Exact products of features and target (last), in units of S**2."""
        return gram_products(quantise(np.column_stack((self.x, self.y)), *affine_map(-BOUND, BOUND)))


class Listing:
    """The best subsets of a table, and the samplers of laws on subsets."""

    def __init__(self, table: Table, setting: Setting, ridge: int, long_list: int) -> None:
        self._setting, self._long_list = setting, long_list
        products = table.products
        self._gram = products[:-1, :-1], products[:-1, -1], int(products[-1, -1])
        self._penalty = {"radius": RADIUS, "ridge": Fraction(SCORE_SCALE * ridge)}
        self._width = table.x.shape[1]
        self._problem = BallLeastSquares(*self._gram, **self._penalty)
        started = time.perf_counter()
        self.found = self._list(setting.size * (self._width - setting.size) + 2)
        self.seconds = time.perf_counter() - started

    def _list(self, count: int) -> BestSubsets:
        return best_subsets(*self._gram, size=self._setting.size, count=count, **self._penalty)

    @cached_property
    def long(self) -> BestSubsets:
        """A longer list than dp_best_subset makes unless told: fewer rejections, and the same law."""
        return self._list(self._long_list)

    @property
    def best(self) -> Subset:
        """The best subset. NOT PRIVATE."""
        return tuple(self.found.subsets[0].tolist())

    def exact(self, law: Contender, found: BestSubsets) -> SubsetRejection:
        """Return the sampler of the exponential mechanism over all subsets."""
        listed = SubsetList(found.subsets, self._width)
        coefficient, floor = law.coefficient(self._setting), partial(score_floors, self._problem)
        return SubsetRejection(listed, found.scores, found.lower_bound, self._problem.scores, coefficient, floor)

    def top_r(self, law: Contender) -> SubsetRejection:
        """Return the sampler that gives every subset beyond the best ones the score of the last of these."""
        listed, limit = SubsetList(self.found.subsets, self._width), int(self.found.scores[-1])
        coefficient = law.coefficient(self._setting)
        return SubsetRejection(listed, self.found.scores, limit, lambda rows: [limit] * len(rows), coefficient)

    def chance(self, law: Contender) -> float:
        """Return the chance of the true support under the law of `top_r`."""
        b = float(law.coefficient(self._setting))
        weights = np.exp(-b * (self.found.scores - self.found.scores[0]))
        rest = (math.comb(self._width, self._setting.size) - len(weights)) * weights[-1]
        places = np.flatnonzero((self.found.subsets == self._setting.truth).all(axis=1))
        weight = weights[places[0]] if len(places) else weights[-1]
        return float(weight / (weights.sum() + rest))


class Spent(Exception):  # noqa: N818
    """The rounds of rejection of a table are used up."""


@dataclass
class Drawn:
    """Draws of one law on one table, and what they took."""

    subsets: list[Subset]
    rounds: int = 0
    seconds: float = 0.0


def draw_up_to(sampler: SubsetRejection, count: int, rounds: int) -> Drawn:
    """Draw until `count` subsets or `rounds` rounds are reached.

    Rounds are independent and alike, so what a draw gives says nothing of how many it took: to stop by their number,
    and to drop the draw that was under way, changes no law.
    """
    out, now = Drawn([]), 0

    def watch(begun: int) -> None:
        nonlocal now
        now = begun
        if out.rounds + begun > rounds:
            raise Spent

    started = time.perf_counter()
    try:
        while len(out.subsets) < count:
            now = 0
            out.subsets.append(sampler.draw(SYSTEM, watch))
            out.rounds += now
    except Spent:
        out.rounds += now
    out.seconds = time.perf_counter() - started
    return out


@dataclass
class Trial:
    """Draws of all contenders on one table under one ridge."""

    listing: Listing
    drawn: dict[str, list[Subset]]
    chances: dict[str, float]
    on_list: Drawn
    on_long: Drawn | None = None


def draw_subsets(listing: Listing, effort: Effort) -> Trial:
    """Draw from every law on subsets."""
    draws, rounds = effort.draws, effort.rounds
    trial = Trial(listing, {"best subset": [listing.best]}, {}, Drawn([]))
    for law in SUBSET_LAWS:
        if law.method == "top_r":
            trial.drawn[law.name] = draw_up_to(listing.top_r(law), draws, rounds).subsets
            trial.chances[law.name] = listing.chance(law)
            continue
        first = draw_up_to(listing.exact(law, listing.found), draws, rounds)
        rest = None
        if len(first.subsets) < draws:
            rest = draw_up_to(listing.exact(law, listing.long), draws - len(first.subsets), rounds)
        trial.drawn[law.name] = first.subsets + (rest.subsets if rest else [])
        if law.neighbours == "add_remove":
            trial.on_list, trial.on_long = first, rest
    return trial


def draw_others(table: Table, setting: Setting, trial: int, draws: int) -> dict[str, list[Subset]]:
    """Draw from screening and from two-stage selection, add_remove, at the same epsilon."""
    n, p = table.x.shape
    columns = {"target": "y", "features": "x", "n_features": p, "k": setting.size, "epsilon": setting.epsilon}
    bounds = {"lower": -BOUND, "upper": BOUND, "target_lower": -BOUND, "target_upper": BOUND}
    screening = SisPlan.from_arguments("t", columns | bounds)
    utility, features = np.abs(table.products[:-1, -1]), range(p)
    blocks = math.isqrt(n)
    voting = TwoStagePlan.from_arguments("t", columns | {"blocks": blocks})
    block = np.random.default_rng([SEED, n, trial]).integers(0, blocks, n)
    votes = lasso_votes(
        table.x, table.y, block, blocks=blocks, k=setting.size, penalty=voting.penalty, threads=0, source=SYSTEM
    )
    names: Any = features
    return {
        "dp_sis": [tuple(sorted(map(int, draw_selection(screening, utility, names)))) for _ in range(draws)],
        "dp_two_stage": [tuple(sorted(draw_votes(voting, votes))) for _ in range(draws)],
    }


@dataclass(frozen=True)
class Group:
    """The tables of one width, setting and number of rows."""

    p: int
    ridges: tuple[int, ...]
    setting: Setting
    n: int
    trials: int
    effort: Effort = Effort()

    def key(self, ridge: int) -> tuple[str, ...]:
        """Return the first columns of a line."""
        setting = self.setting
        return tuple(map(str, (self.p, ridge, setting.snr, setting.epsilon, setting.size, self.n)))

    def measure(self) -> list[tuple[tuple[str, ...], dict[str, list[Any]], list[Any]]]:
        """Return per ridge: key, the measures of every contender, what the searches took."""
        trials: dict[int, list[Trial]] = {ridge: [] for ridge in self.ridges}
        with one_thread():
            for number in range(self.trials):
                table = Table.draw(self.p, self.setting, self.n, number)
                others = draw_others(table, self.setting, number, self.effort.draws)
                for ridge in self.ridges:
                    trial = draw_subsets(Listing(table, self.setting, ridge, self.effort.long_list), self.effort)
                    trial.drawn |= others
                    trials[ridge].append(trial)
        return [
            (self.key(ridge), {name: self._measures(name, done) for name in NAMES}, search_measures(done))
            for ridge, done in trials.items()
        ]

    def _measures(self, name: str, trials: list[Trial]) -> list[Any]:
        truth, size = set(self.setting.truth), self.setting.size
        common = [np.array([len(truth.intersection(subset)) for subset in trial.drawn[name]]) for trial in trials]
        common = [counts for counts in common if len(counts)]
        draws = sum(map(len, common))
        chances = [trial.chances[name] for trial in trials if name in trial.chances]
        law = np.mean(chances) if chances else None
        if chances:
            hits = sum(int((counts == size).sum()) for counts in common)
            expected = sum(len(counts) * chance for counts, chance in zip(common, chances, strict=True))
            variance = sum(len(counts) * chance * (1 - chance) for counts, chance in zip(common, chances, strict=True))
            if abs(hits - expected) > 1.0 + LARGEST_Z * math.sqrt(variance):
                raise SystemExit(f"{name} {self}: {hits} of {draws} draws are the truth, {expected:.1f} expected")
        return [
            len(common),
            draws,
            *mean_and_error([float(np.mean(counts == size)) for counts in common]),
            *mean_and_error([float(np.mean(counts)) / size for counts in common]),
            law,
        ]


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean over trials and its standard error."""
    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def search_measures(trials: list[Trial]) -> list[Any]:
    """Return what listing took (median and most), and the rounds of the exact law under add_remove."""
    seconds = [trial.listing.seconds for trial in trials]
    long = [trial.on_long for trial in trials if trial.on_long is not None]
    out = [len(trials), float(np.median(seconds)), max(seconds)]
    out += [float(np.median([trial.listing.found.nodes for trial in trials]))]
    out += [all(trial.listing.found.exhausted for trial in trials)]
    for drawn in ([trial.on_list for trial in trials], long):
        count = sum(len(each.subsets) for each in drawn)
        rounds, spent = sum(each.rounds for each in drawn), sum(each.seconds for each in drawn)
        out += [count, rounds / count, 1e3 * spent / count] if count else [0, None, None]
    return out


class Lines:
    """A CSV file that only grows."""

    def __init__(self, path: Path, key: Sequence[str], columns: Sequence[str]) -> None:
        self.path, self._key = path, key
        self.done: set[tuple[str, ...]] = set()
        if path.exists():
            self.done = {tuple(line[name] for name in key) for line in read(path)}
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(",".join((*key, *columns)) + "\n")

    def append(self, lines: Iterable[Sequence[Any]]) -> None:
        """Add lines."""
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for line in lines:
                shown = [
                    f"{value:.4g}" if isinstance(value, float) else "" if value is None else value for value in line
                ]
                writer.writerow(shown)
                self.done.add(tuple(map(str, line[: len(self._key)])))


def check_against_sql(setting: Setting, ridge: int, draws: int) -> Iterator[list[Any]]:
    """Stop unless dp_best_subset in SQL finds the truth as often as the samplers do, and at a huge epsilon the best."""
    from scipy.stats import fisher_exact

    p, n = WIDTHS[0][0], setting.sql_rows
    table = Table.draw(p, setting, n, 0)
    listing = Listing(table, setting, ridge, 0)
    data = pa.table({"y": table.y, "x": pa.FixedSizeListArray.from_arrays(pa.array(table.x.reshape(-1)), p)})
    bounds = f"lower := {-BOUND}, upper := {BOUND}, target_lower := {-BOUND}, target_upper := {BOUND}"
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE rows_ AS SELECT * FROM data")

        def select(method: str, epsilon: float) -> Subset:
            rows = connection.execute(
                f"SELECT feature FROM dp_best_subset('rows_', target := 'y', features := 'x', n_features := {p}, "
                f"k := {setting.size}, epsilon := {epsilon}, {bounds}, ridge := {SCORE_SCALE * ridge}, "
                f"method := '{method}')"
            ).fetchall()
            return tuple(sorted(places[feature] for (feature,) in rows))

        names = connection.execute(
            f"SELECT feature FROM exact_xty('rows_', target := 'y', features := 'x', n_features := {p}, {bounds})"
        ).fetchall()
        places = {name: place for place, (name,) in enumerate(names)}
        for law in SUBSET_LAWS[:2]:
            if select(law.method, 1e9) != listing.best:
                raise SystemExit(f"dp_best_subset at a huge epsilon is not the best subset: {setting} {law.name}")
            started = time.perf_counter()
            in_sql = [select(law.method, setting.epsilon) == setting.truth for _ in range(draws)]
            seconds = (time.perf_counter() - started) / draws
            sampler = listing.top_r(law) if law.method == "top_r" else listing.exact(law, listing.found)
            here = [sampler.draw(SYSTEM) == setting.truth for _ in range(DIRECT_DRAWS)]
            hits = [[sum(each), len(each) - sum(each)] for each in (in_sql, here)]
            p_value = float(fisher_exact(hits).pvalue)
            if p_value < LEAST_P:
                raise SystemExit(f"dp_best_subset and the samplers differ: {setting} {law.name} {hits}")
            yield [p, ridge, setting.snr, setting.epsilon, setting.size, n, law.name]
            yield [sum(in_sql), draws, sum(here), len(here), p_value, seconds]


SQL_COLUMNS = ("sql_exact", "sql_draws", "direct_exact", "direct_draws", "p_value", "seconds_per_call")

# (contender, colour, dashes); the last is NOT PRIVATE.
STYLES = (
    ("exact", "#08519c", "-"),
    ("top_r", "#d94801", "-"),
    ("exact, replace", "#6baed6", "-"),
    ("top_r, replace", "#fdae6b", "-"),
    ("top_r, as printed", "#a63603", ":"),
    ("dp_sis", "#006d2c", "-."),
    ("dp_two_stage", "#756bb1", "-."),
    ("best subset", "#969696", "--"),
)


def figure(lines: list[dict[str, str]], path: Path, measure: str, title: str) -> None:
    """Draw one panel per setting, width and ridge: a measure against n."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = list(dict.fromkeys((line["p"], line["ridge"]) for line in lines))
    sheet, axes = pyplot.subplots(
        len(rows), len(SETTINGS), figsize=(9.6, 1.9 * len(rows) + 1.2), squeeze=False, sharex=True, sharey=True
    )
    for across, (p, ridge) in zip(axes, rows, strict=True):
        for axis, setting in zip(across, SETTINGS, strict=True):
            key = (p, ridge, str(setting.snr), str(setting.epsilon), str(setting.size))
            own = [line for line in lines if tuple(line[name] for name in KEY[:5]) == key and line[measure]]
            for name, colour, dashes in STYLES:
                points = sorted((int(line["n"]), float(line[measure])) for line in own if line["contender"] == name)
                label = "best subset, NOT PRIVATE" if name == "best subset" else name
                axis.plot(
                    *zip(*points, strict=True), dashes, color=colour, label=label, linewidth=1.4
                ) if points else None
            axis.set_title(
                f"p = {p}, λ = {ridge}; SNR {setting.snr}, ε = {setting.epsilon}, k = {setting.size}", fontsize=8
            )
            axis.set(xscale="log", ylim=(-0.03, 1.03), xticks=[500, 1000, 2000, 4000, 8000])
            axis.set_xticklabels(["500", "1000", "2000", "4000", "8000"])
            axis.minorticks_off()
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel("n", fontsize=8)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    sheet.suptitle(title, fontsize=10)
    sheet.legend(handles, labels, loc="lower center", ncols=4, fontsize=7.5, frameon=False)
    height = sheet.get_figheight()
    sheet.tight_layout(rect=(0, 0.6 / height, 1, 1))
    save_small(sheet, path)
    pyplot.close(sheet)


def recovery(lines: list[dict[str, str]], measure: str) -> str:
    """Show a measure of every contender against n."""
    grid = sorted({line["n"] for line in lines}, key=int)
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for line in lines:
        value = f"{float(line[measure]):.2f}" if line[measure] else "–"
        cells.setdefault(tuple(line[name] for name in (*KEY[:5], "contender")), {})[line["n"]] = value
    rows = [[*key, *(cells[key].get(n, "") for n in grid)] for key in cells]
    return markdown(["p", "λ", "SNR", "ε", "k", "", *(f"n = {n}" for n in grid)], rows)


def place(line: dict[str, str]) -> tuple[int, ...]:
    """Return what lines are sorted by."""
    contender = NAMES.index(line["contender"]) if "contender" in line else 0
    return int(line["p"]), -int(line["ridge"]), int(line["snr"]), -int(line["epsilon"]), contender, int(line["n"])


def write_report(folder: Path, *, figures: bool = True) -> None:
    """Write tables and figures from what the CSV files hold."""
    lines, searches, checks = (read(folder / f"{name}.csv") for name in ("results", "searches", "sql"))
    lines, searches = sorted(lines, key=place), sorted(searches, key=place)
    text = [
        "# DP best subsets: tables",
        "Written by `benchmarks/papers/best_subset.py`; read `benchmarks/papers/README.md` first.",
        "## Frequency of exactly the true support",
        recovery(lines, "exact"),
        "## F1: mean share of the true support that is found",
        recovery(lines, "f1"),
        "## Listing the best k (p - k) + 2 subsets, and rejections of the exact law under add_remove",
        markdown(tuple(searches[0]), [list(line.values()) for line in searches]),
        "## Calls in SQL against draws from the samplers, on one table",
        markdown(tuple(checks[0]), [list(line.values()) for line in checks]) if checks else "",
    ]
    (folder / "table.md").write_text("\n\n".join(text) + "\n")
    if figures:
        figure(lines, folder / "exact.png", "exact", "Fraction of draws that are exactly the true support")
        figure(lines, folder / "f1.png", "f1", "F1 of the drawn support")


def groups(options: argparse.Namespace) -> Iterator[Group]:
    """Yield what to measure, the longest first."""
    if options.quick:
        for setting in SETTINGS:
            for n in (500, 3000):
                yield Group(100, (120,), setting, n, options.trials or 2, Effort(50, 2000, 5000))
        return
    trials = options.trials or TRIALS
    for p, ridges, share in reversed(WIDTHS):
        if options.only and p not in options.only:
            continue
        for n in reversed(ROWS):
            for setting in SETTINGS:
                yield Group(p, ridges, setting, n, max(1, round(share * trials)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "best_subset", help="folder of what is written")
    parser.add_argument("--only", nargs="+", type=int, default=[], help="these numbers of features")
    parser.add_argument("--trials", type=int, default=None, help=f"tables per setting; {TRIALS} unless told")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 measures in this one")
    parser.add_argument("--quick", action="store_true", help="100 features, two numbers of rows, 2 tables; give --out")
    parser.add_argument("--no-figure", action="store_true", help="leave the figures out (they need matplotlib)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    results = Lines(options.out / "results.csv", KEY, MEASURES)
    searches = Lines(options.out / "searches.csv", SEARCH_KEY, SEARCHES)
    checks = Lines(options.out / "sql.csv", KEY, SQL_COLUMNS)
    todo = [group for group in groups(options) if not {group.key(ridge) for ridge in group.ridges} <= searches.done]

    def keep(found: Iterable[Any]) -> None:
        for ridges in track(found, "tables", total=len(todo), disable=options.quick):
            for key, measures, search in ridges:
                results.append([*key, name, *values] for name, values in measures.items())
                searches.append([[*key, *search]])

    if options.workers and not options.quick:
        with ProcessPoolExecutor(options.workers) as pool:
            keep(pool.map(Group.measure, todo))
    else:
        keep(map(Group.measure, todo))
    if not checks.done:
        for setting in SETTINGS[-1:] if options.quick else SETTINGS:
            found = check_against_sql(setting, WIDTHS[0][1][0], 3 if options.quick else SQL_DRAWS)
            checks.append([*key, *values] for key, values in zip(found, found, strict=True))
    write_report(options.out, figures=not options.no_figure)
    print(f"{len(results.done)} lines in {results.path}; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
