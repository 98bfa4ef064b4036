"""Repeat the support recovery study of DP best-subset selection; README.md beside this file says what came out.

    python benchmarks/papers/best_subset.py [--quick] [--only 100 250] [--trials 10] [--workers 2] [--out DIR]

Rows X ~ N(0, Sigma), Sigma_ij = 0.1^|i-j|; the target is the sum of features 1, 3, 5, ... over sqrt(k) plus noise at a
given signal-to-noise ratio; both are clipped to [-0.5, 0.5]. Per table the best subsets are listed once. From that
list come the chance of the true support under every law (summed, or for the exact law estimated beyond the list), and
draws, by the samplers that ``dp_best_subset`` itself calls. Draws, and calls in SQL, that contradict the chances stop
the study. Appends to ``results.csv`` (a line per contender) and ``searches.csv`` (what listing and draws take), and
skips what is there, so an interrupted run goes on. Nothing is charged to a budget: this is a study, not a release.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from dpsql.contract.measurement import draw_once
from dpsql.functions.sis import SisPlan, draw_selection
from dpsql.functions.two_stage import TwoStagePlan, draw_votes
from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.best_subsets import LIST_WIDTH, best_subsets, score_floors
from dpsql.kernels.fixed_point import affine_map, quantise
from dpsql.kernels.gram import gram_products, one_thread
from dpsql.kernels.lasso_votes import lasso_votes
from dpsql.kernels.subset_strata import subset_strata
from dpsql.mechanisms.subset_exponential import Strata, SubsetRejection
from dpsql.mechanisms.subsets import SubsetList
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics.regression import utility_range

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
SQL_DRAWS = 40
# Draws that deviate from their law by more standard errors stop the study.
LARGEST_Z = 6.0
PROPOSALS = 2000

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


SETTINGS = (Setting(2, 5, 5, 500), Setting(5, 2, 7, 1500), Setting(5, 1, 5, 2000))


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
MEASURES = ("trials", "exact", "exact_error", "f1", "f1_error", "draws", "drawn_exact", "drawn_f1")
SEARCHES = (
    *("trials", "seconds", "slowest", "nodes", "exhausted", "rounds", "most_rounds", "rounds_replace"),
    *("most_rounds_replace", "draws", "rounds_begun", "draw_seconds", "least_sample"),
)


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


@dataclass(frozen=True)
class Outcome:
    """What a contender does on one table.

    Attributes
    ----------
    exact, f1 : float
        Chance of exactly the true support, and mean share of it that is found.
    error : float
        Standard error of `exact` where it is an estimate.
    rounds : float
        Rounds of rejection that a draw takes on average.
    sample : float
        Effective sample size of the estimate.
    common : ndarray of int
        True features per draw.
    begun, seconds
        Rounds begun, and time, of all draws.
    """

    exact: float
    f1: float
    error: float = 0.0
    rounds: float = 1.0
    sample: float = math.inf
    common: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    begun: int = 0
    seconds: float = 0.0


class Listing:
    """The best subsets of a table; the laws on subsets, and their samplers."""

    def __init__(self, table: Table, setting: Setting, ridge: int) -> None:
        gram = table.products[:-1, :-1], table.products[:-1, -1], int(table.products[-1, -1])
        penalty = {"radius": RADIUS, "ridge": Fraction(SCORE_SCALE * ridge)}
        self._setting, self._width = setting, table.x.shape[1]
        self._problem = BallLeastSquares(*gram, **penalty)
        started = time.perf_counter()
        count = setting.size * (self._width - setting.size) + 2
        self.found = best_subsets(*gram, size=setting.size, count=count, **penalty)
        self.seconds = time.perf_counter() - started
        self._listed = SubsetList(self.found.subsets, self._width)

    @property
    def best(self) -> Subset:
        """The best subset. NOT PRIVATE."""
        return tuple(self.found.subsets[0].tolist())

    def sampler(self, law: Contender) -> SubsetRejection:
        """Return what ``dp_best_subset`` would draw from."""
        found, coefficient = self.found, law.coefficient(self._setting)
        if law.method == "top_r":
            limit = int(found.scores[-1])
            return SubsetRejection(self._listed, found.scores, limit, lambda rows: [limit] * len(rows), coefficient)
        floor, scores = partial(score_floors, self._problem), self._problem.scores
        return SubsetRejection(
            self._listed, found.scores, found.lower_bound, scores, coefficient, floor, lambda: self._strata
        )

    @cached_property
    def _strata(self) -> Strata:
        return Strata(*subset_strata(self._problem, self.found))

    def outcome(self, law: Contender, generator: np.random.Generator) -> Outcome:
        """Return the law's chances: a sum for 'top_r'; for 'exact' the listed part is, and the rest is an estimate."""
        scores, total, size = self.found.scores, self._listed.total, self._setting.size
        b, best = float(law.coefficient(self._setting)), int(scores[0])
        weights = np.exp(-b * (scores - best))
        overlap = self._common(self.found.subsets)
        truth = int(self._problem.scores([self._setting.truth])[0])
        if law.method == "top_r":
            truth = min(truth, int(scores[-1]))
            rest = np.array([total - len(scores), total * size**2 / self._width - overlap.sum()]) * weights[-1]
            error, sample, bound = 0.0, math.inf, int(scores[-1])
        else:
            rest, error, sample = self._rest(b / float(SCORE_UNIT), best * float(SCORE_UNIT), generator)
            bound = self.found.lower_bound
        mass = weights.sum() + rest[0]
        exact = math.exp(-b * (truth - best)) / mass
        return Outcome(
            exact=exact,
            f1=float((weights @ overlap + rest[1]) / mass / size),
            error=exact * error / mass,
            rounds=float((weights.sum() + total * math.exp(-b * (bound - best))) / mass),
            sample=sample,
        )

    def _rest(self, b: float, best: float, generator: np.random.Generator) -> tuple[Doubles, float, float]:
        """Estimate the weight of all unlisted subsets, and that times true features.

        By importance sampling: features are nearly independent, so a subset's score is nearly a sum over its features.
        """
        gains = b * self._problem.vector**2 / self._problem.matrix.diagonal()
        rows, log_total = product_law(gains, self._setting.size, PROPOSALS, generator)
        logs = log_total - b * (self._problem.dual(rows) - best) - gains[rows].sum(axis=1)
        weights = np.exp(logs) * ~self._listed.holds(rows)
        sample = weights.sum() ** 2 / max((weights**2).sum(), 1e-300)
        rest = np.array([weights.mean(), (weights * self._common(rows)).mean()])
        return rest, float(weights.std() / math.sqrt(len(weights))), float(sample)

    def _common(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of true features in each row."""
        return np.isin(rows, self._setting.truth).sum(axis=1)


def product_law(logs: Doubles, size: int, count: int, generator: np.random.Generator) -> tuple[NDArray[np.intp], float]:
    """Draw subsets with probability proportional to the product of their members' weights; also return log of the sum.

    The sums of products over all j-subsets of the first i members follow from those of i - 1; members are then drawn
    from the last to the first.
    """
    sums = np.full((len(logs) + 1, size + 1), -np.inf)
    sums[:, 0] = 0.0
    for place, weight in enumerate(logs):
        sums[place + 1, 1:] = np.logaddexp(sums[place, 1:], sums[place, :-1] + weight)
    left, rows = np.full(count, size), np.empty((count, size), dtype=np.intp)
    for place in range(len(logs) - 1, -1, -1):
        open_ = np.flatnonzero(left)
        chance = np.exp(logs[place] + sums[place, left[open_] - 1] - sums[place + 1, left[open_]])
        taken = open_[generator.random(len(open_)) < chance]
        left[taken] -= 1
        rows[taken, left[taken]] = place
    return rows, float(sums[-1, -1])


class Spent(Exception):  # noqa: N818
    """The rounds of rejection of a table are used up."""


def draw_up_to(sampler: SubsetRejection, count: int, rounds: int) -> tuple[list[Subset], int]:
    """Draw until `count` subsets or `rounds` rounds are reached; return them and the rounds begun.

    Whatever came before, a round that ends with a subset has the law, so what a draw gives says nothing of how many
    it took: to stop by their number, and to drop the draw that was under way, changes no law.
    """
    subsets: list[Subset] = []
    before = now = 0

    def watch(begun: int) -> None:
        nonlocal now
        now = begun
        if before + begun > rounds:
            raise Spent

    with suppress(Spent):
        while len(subsets) < count:
            subsets.append(sampler.draw(SYSTEM, watch))
            before, now = before + now, 0
    return subsets, before + now


def draw_others(table: Table, setting: Setting, trial: int, draws: int) -> dict[str, list[Subset]]:
    """Draw from screening and from two-stage selection, add_remove, at the same epsilon."""
    n, p = table.x.shape
    columns = {"target": "y", "features": "x", "n_features": p, "k": setting.size, "epsilon": setting.epsilon}
    bounds = {"lower": -BOUND, "upper": BOUND, "target_lower": -BOUND, "target_upper": BOUND}
    screening = SisPlan.from_arguments("t", columns | bounds)
    utility, names = np.abs(table.products[:-1, -1]), [str(place) for place in range(p)]
    blocks = math.isqrt(n)
    voting = TwoStagePlan.from_arguments("t", columns | {"blocks": blocks})
    block = np.random.default_rng([SEED, n, trial]).integers(0, blocks, n)
    votes = lasso_votes(table.x, table.y, block, blocks=blocks, k=setting.size, penalty=voting.penalty, threads=0)
    return {
        "dp_sis": [tuple(map(int, draw_once(draw_selection, screening, utility, names))) for _ in range(draws)],
        "dp_two_stage": [tuple(draw_once(draw_votes, voting, votes)) for _ in range(draws)],
    }


@dataclass(frozen=True)
class Group:
    """The tables of one width, setting and number of rows; draws per table and law, and rounds they may take."""

    p: int
    ridges: tuple[int, ...]
    setting: Setting
    n: int
    trials: int
    draws: int = 100
    rounds: int = 60_000

    def key(self, ridge: int) -> tuple[str, ...]:
        """Return the first columns of a line."""
        setting = self.setting
        return tuple(map(str, (self.p, ridge, setting.snr, setting.epsilon, setting.size, self.n)))

    def measure(self) -> list[tuple[tuple[str, ...], dict[str, list[Any]], list[Any]]]:
        """Return per ridge: key, the measures of every contender, what the searches took."""
        outcomes: dict[int, list[dict[str, Outcome]]] = {ridge: [] for ridge in self.ridges}
        listings: dict[int, list[Listing]] = {ridge: [] for ridge in self.ridges}
        with one_thread():
            for trial in range(self.trials):
                table = Table.draw(self.p, self.setting, self.n, trial)
                others = draw_others(table, self.setting, trial, self.draws)
                for ridge in self.ridges:
                    listing = Listing(table, self.setting, ridge)
                    drawn = others | {"best subset": [listing.best]}
                    done = {name: self._drawn(subsets) for name, subsets in drawn.items()}
                    done |= {law.name: self._try(listing, law, trial) for law in SUBSET_LAWS}
                    outcomes[ridge].append(done)
                    listings[ridge].append(listing)
        return [
            (
                self.key(ridge),
                {name: self._measures(name, [each[name] for each in outcomes[ridge]]) for name in NAMES},
                search_measures(listings[ridge], outcomes[ridge]),
            )
            for ridge in self.ridges
        ]

    def _common(self, subsets: list[Subset]) -> NDArray[np.int64]:
        return np.array([len(set(self.setting.truth).intersection(subset)) for subset in subsets], dtype=np.int64)

    def _drawn(self, subsets: list[Subset]) -> Outcome:
        common = self._common(subsets)
        size = self.setting.size
        return Outcome(float(np.mean(common == size)), float(np.mean(common)) / size, common=common)

    def _try(self, listing: Listing, law: Contender, trial: int) -> Outcome:
        outcome = listing.outcome(law, np.random.default_rng([SEED, self.n, trial]))
        started = time.perf_counter()
        subsets, rounds = draw_up_to(listing.sampler(law), self.draws, self.rounds)
        seconds = time.perf_counter() - started
        return replace(outcome, common=self._common(subsets), begun=rounds, seconds=seconds)

    def _measures(self, name: str, outcomes: list[Outcome]) -> list[Any]:
        """Return the measures of a contender; stop where its draws contradict its law."""
        common = np.concatenate([each.common for each in outcomes])
        hits = int((common == self.setting.size).sum())
        check(f"{name}, {self}", hits, [len(each.common) for each in outcomes], outcomes)
        shares = [hits / len(common), float(common.mean()) / self.setting.size] if len(common) else [None, None]
        exact, f1 = [each.exact for each in outcomes], [each.f1 for each in outcomes]
        return [len(outcomes), *mean_and_error(exact), *mean_and_error(f1), len(common), *shares]


def check(what: str, hits: int, draws: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    """Stop where draws contradict their laws."""
    count = np.array(draws)
    exact, error = (np.array([getattr(each, name) for each in outcomes]) for name in ("exact", "error"))
    spread = math.sqrt(max(0.0, float(count @ (exact * (1.0 - exact)) + ((count * error) ** 2).sum())))
    if abs(hits - count @ exact) > 1.0 + LARGEST_Z * spread:
        raise SystemExit(f"{what}: {hits} of {count.sum()} draws are the truth, {count @ exact:.1f} expected")


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean over tables and its standard error."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error


def search_measures(listings: list[Listing], outcomes: list[dict[str, Outcome]]) -> list[Any]:
    """Return what listing took, and draws of the exact law: medians over tables, and the most."""
    seconds = [listing.seconds for listing in listings]
    out = [len(listings), float(np.median(seconds)), max(seconds)]
    out += [float(np.median([listing.found.nodes for listing in listings]))]
    out += [all(listing.found.exhausted for listing in listings)]
    for law in SUBSET_LAWS:
        if law.method == "exact":
            rounds = [each[law.name].rounds for each in outcomes]
            out += [float(np.median(rounds)), max(rounds)]
    drawn = [each[SUBSET_LAWS[0].name] for each in outcomes]
    out += [sum(len(each.common) for each in drawn), sum(each.begun for each in drawn)]
    out += [sum(each.seconds for each in drawn)]
    # Where the unlisted part hardly matters, so does its sample.
    telling = [each.sample for each in drawn if each.error > 0.01 * each.exact]
    return [*out, min(telling, default=None)]


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
    """Stop unless dp_best_subset in SQL finds the truth as often as the law says, and at a huge epsilon the best."""
    p, n = WIDTHS[0][0], setting.sql_rows
    table = Table.draw(p, setting, n, 0)
    listing = Listing(table, setting, ridge)
    data = pa.table({"y": table.y, "x": pa.FixedSizeListArray.from_arrays(pa.array(table.x.reshape(-1)), p)})
    bounds = f"lower := {-BOUND}, upper := {BOUND}, target_lower := {-BOUND}, target_upper := {BOUND}"
    with dpsql.connect() as connection:
        connection.register("rows_", data)

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
            outcome = listing.outcome(law, np.random.default_rng([SEED, n]))
            check(f"SQL, {law.name}, {setting}", sum(in_sql), [draws], [outcome])
            yield [p, ridge, setting.snr, setting.epsilon, setting.size, n, law.name]
            yield [sum(in_sql), draws, outcome.exact, seconds]


SQL_COLUMNS = ("hits", "calls", "law", "seconds_per_call")

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
                across_n = np.array(points).reshape(-1, 2).T
                axis.plot(*across_n, dashes, color=colour, label=label, linewidth=1.4)
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
        "## Chance of exactly the true support",
        recovery(lines, "exact"),
        "## F1: mean share of the true support that is found",
        recovery(lines, "f1"),
        "## Listing the best k (p - k) + 2 subsets, and draws of the exact law",
        "Seconds and nodes are medians. `rounds`, `rounds_replace`: per draw, expected with the list and one bound. "
        "`draws`, `rounds_begun`, `draw_seconds`: what they took under add_remove, with strata. `least_sample`: "
        "effective size of the sample behind the exact law's chance, where its error exceeds 1 %.",
        markdown(tuple(searches[0]), [list(line.values()) for line in searches]),
        "## Calls in SQL against the law, on one table",
        markdown(tuple(checks[0]), [list(line.values()) for line in checks]) if checks else "",
    ]
    (folder / "table.md").write_text("\n\n".join(text) + "\n")
    if figures:
        figure(lines, folder / "exact.png", "exact", "Chance of exactly the true support")
        figure(lines, folder / "f1.png", "f1", "F1 of the drawn support")


def groups(options: argparse.Namespace) -> Iterator[Group]:
    """Yield what to measure, the longest first."""
    if options.quick:
        for setting in SETTINGS:
            for n in (500, 3000):
                yield Group(100, (120,), setting, n, options.trials or 1, 30)
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
    searches = Lines(options.out / "searches.csv", KEY[:-1], SEARCHES)
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
