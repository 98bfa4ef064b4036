"""What other libraries would answer: the laws of their noise, read in their sources, and the libraries themselves.

    python benchmarks/papers/aggregates_peers.py [--draws 5] [--out DIR]

writes ``checks.csv``: the error that each library that is installed really makes on the example of `aggregates.py`,
beside the error that its law here predicts. It needs NumPy alone, so that it runs in an environment per library.

- OpenDP 0.16, Context on Polars: noise on each sum and on each count, at equal shares; values are not centred. Under
  (epsilon, delta) its Laplace noise, or Gaussian noise at the rho of zero-concentrated privacy that implies epsilon and
  delta. It has no variance: the sums of x and x² and the count at a third each are what a user would write.
- Tumult Analytics 0.21: sums for means and variances are about the middle of the bounds of x, and of those of x².
- diffprivlib 0.6: the sizes are public, and one row is replaced by another of the same group. That is a weaker promise.

All means are clipped to the bounds and all variances to [0, R²/4] here, which is free and not what OpenDP does itself;
counts stay as they are drawn.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
PARTS = {"count": {0}, "sum": {1}, "avg": {0, 1}, "variance": {0, 1, 2}}
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Promise:
    """What a release guarantees, and to whom.

    Attributes
    ----------
    epsilon : float
    delta : float or None
        None is pure privacy.
    groups : int
        Groups in which one privacy unit has a row.
    relation : {'add_remove', 'replace'}
    """

    epsilon: float = 1.0
    delta: float | None = None
    groups: int = 1
    relation: str = "add_remove"


@dataclass(frozen=True)
class Exact:
    """The exact sums of every group, of values within public bounds, each of shape (G,)."""

    n: Doubles
    total: Doubles
    squares: Doubles
    lower: float
    upper: float

    @classmethod
    def of(cls, groups: NDArray[np.intp], values: Doubles, count: int, lower: float, upper: float) -> Exact:
        """Add up clipped values by group."""
        values = np.clip(values, lower, upper)
        sums = [np.bincount(groups, weights, minlength=count) for weights in (np.ones_like(values), values, values**2)]
        return cls(*(np.asarray(each, dtype=np.float64) for each in sums), lower, upper)

    def truth(self, name: str) -> Doubles:
        """Return an aggregate; a variance divides by n - 1. NaN where there is none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if name in ("count", "sum"):
                return self.n if name == "count" else self.total
            mean: Doubles = self.total / self.n
            if name == "avg":
                return mean
            spread: Doubles = (self.squares / self.n - mean**2) * self.n / (self.n - 1.0)
            return spread


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho of zCDP that implies (epsilon, delta), by the bound of Canonne, Kamath and Steinke."""
    alphas = 1.0 + np.geomspace(1e-3, 1e5, 40_000)

    def implied(rho: float) -> float:
        # delta = exp((a - 1)(a rho - epsilon)) / (a - 1) (1 - 1/a)^a, at the best order a.
        logs = (alphas - 1) * (alphas * rho - epsilon) + alphas * np.log1p(-1 / alphas) - np.log(alphas - 1)
        return float(np.exp(logs.min()))

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if implied(middle) <= delta else (low, middle)
    return low


def discrete_laplace(scale: float, size: tuple[int, ...], random: np.random.Generator) -> Doubles:
    """Draw from the two-sided geometric law."""
    chance = -math.expm1(-1.0 / scale)
    noise: Doubles = (random.geometric(chance, size) - random.geometric(chance, size)).astype(np.float64)
    return noise


@dataclass(frozen=True)
class Parts:
    """A library that puts noise on the count, on the sum and on the sum of squares, at equal shares.

    Attributes
    ----------
    name : str
    centred : bool
        Whether means and variances take values about the middle of their bounds.
    gaussian : bool
    """

    name: str
    centred: bool
    gaussian: bool

    def offers(self, promise: Promise, asked: Sequence[str]) -> bool:
        """Whether it can give the promise."""
        return promise.relation == "add_remove" and (promise.delta is not None or not self.gaussian)

    def _middles(self, asked: Sequence[str], exact: Exact) -> tuple[float, float]:
        if not self.centred or "sum" in asked:
            return 0.0, 0.0
        squares = self._squares(exact)
        return (exact.lower + exact.upper) / 2, sum(squares) / 2

    @staticmethod
    def _squares(exact: Exact) -> tuple[float, float]:
        ends = exact.lower**2, exact.upper**2
        return (0.0 if exact.lower < 0 < exact.upper else min(ends)), max(ends)

    def deviations(self, promise: Promise, asked: Sequence[str], exact: Exact) -> dict[int, float]:
        """Return the scale of Laplace noise, or the standard deviation of Gaussian noise, on every sum."""
        wanted = sorted(set().union(*(PARTS[name] for name in asked)))
        middle, middle_of_squares = self._middles(asked, exact)
        bounds = ((1.0, 1.0), (exact.lower - middle, exact.upper - middle))
        bounds += (tuple(end - middle_of_squares for end in self._squares(exact)),)  # type: ignore[assignment]
        reach = {part: max(abs(end) for end in bounds[part]) for part in wanted}
        if self.gaussian:
            assert promise.delta is not None
            rho = rho_of(promise.epsilon, promise.delta) / len(wanted)
            return {part: reach[part] * math.sqrt(promise.groups / (2 * rho)) for part in wanted}
        return {part: reach[part] * promise.groups * len(wanted) / promise.epsilon for part in wanted}

    def answer(
        self, promise: Promise, asked: Sequence[str], exact: Exact, draws: int, random: np.random.Generator
    ) -> dict[str, Doubles]:
        """Draw answers, each of shape (draws, G)."""
        middle, middle_of_squares = self._middles(asked, exact)
        sums = [exact.n, exact.total - middle * exact.n, exact.squares - middle_of_squares * exact.n]
        size = (draws, len(exact.n))
        noisy: dict[int, Doubles] = {}
        for part, scale in self.deviations(promise, asked, exact).items():
            if self.gaussian:
                noise = random.normal(0.0, scale, size)
            else:
                noise = random.laplace(0.0, scale, size) if part else discrete_laplace(scale, size, random)
            noisy[part] = sums[part] + (np.rint(noise) if part == 0 else noise)
        found: dict[str, Doubles] = {}
        if "count" in asked:
            found["count"] = noisy[0]
        if "sum" in asked:
            found["sum"] = noisy[1]
        if "avg" in asked or "variance" in asked:
            n = np.maximum(noisy[0], 1.0)
            mean = noisy[1] / n + middle
            if "avg" in asked:
                found["avg"] = np.clip(mean, exact.lower, exact.upper)
            if "variance" in asked:
                n = np.maximum(noisy[0], 2.0)
                spread = noisy[2] / n + middle_of_squares - (noisy[1] / n + middle) ** 2
                found["variance"] = np.clip(spread * n / (n - 1), 0.0, (exact.upper - exact.lower) ** 2 / 4)
        return found

    def theory(self, promise: Promise, asked: Sequence[str], name: str, exact: Exact) -> Doubles:
        """Return the standard deviation by group, to first order in the noise and without clips."""
        spread = self.deviations(promise, asked, exact)
        deviation = {}
        for part, scale in spread.items():
            a = math.exp(-1.0 / scale) if scale and not self.gaussian else 0.0
            law = scale if self.gaussian else (math.sqrt(2 * a) / (1 - a) if part == 0 else math.sqrt(2.0) * scale)
            deviation[part] = law
        if name in ("count", "sum"):
            return np.full_like(exact.n, deviation[0 if name == "count" else 1])
        middle, middle_of_squares = self._middles(asked, exact)
        n = np.maximum(exact.n, 1.0)
        mean, off = exact.total / n, exact.total / n - middle
        if name == "avg":
            return np.sqrt(deviation[1] ** 2 + (off * deviation[0]) ** 2) / n
        square = exact.squares / n - middle_of_squares
        slopes = (-square + 2 * mean * off, -2 * mean, np.ones_like(n))
        total: Doubles = sum((slopes[part] * deviation[part]) ** 2 for part in (0, 1, 2))
        return np.sqrt(total) / n


@dataclass(frozen=True)
class PublicSizes:
    """diffprivlib: exact sizes of groups, Laplace noise cut to the range of the answer."""

    name: str = "diffprivlib"

    def offers(self, promise: Promise, asked: Sequence[str]) -> bool:
        """Whether it can give the promise: replacement, and that of sizes that need none."""
        return promise.relation == "replace" and promise.groups == 1 and len(asked) == 1 and asked[0] != "count"

    def answer(
        self, promise: Promise, asked: Sequence[str], exact: Exact, draws: int, random: np.random.Generator
    ) -> dict[str, Doubles]:
        """Draw answers, each of shape (draws, G)."""
        (name,) = asked
        n, width = exact.n, exact.upper - exact.lower
        size = (draws, len(n))
        if name == "sum":
            noisy = exact.total + random.laplace(0.0, width / promise.epsilon, size)
            return {name: np.clip(noisy, exact.lower * n, exact.upper * n)}
        if name == "avg":
            noisy = exact.total / n + random.laplace(0.0, 1.0, size) * width / n / promise.epsilon
            return {name: np.clip(noisy, exact.lower, exact.upper)}
        truth, top = exact.truth("variance") * (n - 1) / n, width**2 / 4
        scale = np.array([_bounded_scale((width / one) ** 2 * (one - 1), top, promise.epsilon) for one in n])
        noisy = np.full(size, np.nan)
        while (out := ~((noisy >= 0) & (noisy <= top))).any():
            noisy = np.where(out, truth + random.laplace(0.0, 1.0, size) * scale, noisy)
        return {name: noisy * n / (n - 1)}

    def theory(self, promise: Promise, asked: Sequence[str], name: str, exact: Exact) -> Doubles:
        """Return the standard deviation by group without cuts."""
        width, n = exact.upper - exact.lower, exact.n
        per = {"sum": np.full_like(n, width), "avg": width / n, "variance": width**2 / n}[name]
        deviation: Doubles = math.sqrt(2.0) * per / promise.epsilon
        return deviation


def _bounded_scale(sensitivity: float, width: float, epsilon: float) -> float:
    """Return the scale of the bounded Laplace mechanism of Holohan and others, as diffprivlib's bisection finds it."""

    def needed(scale: float) -> float:
        gain = (2 - math.exp(-sensitivity / scale) - math.exp(-(width - sensitivity) / scale)) / -math.expm1(
            -width / scale
        )
        return sensitivity / (epsilon - math.log(gain))

    low = sensitivity / epsilon
    high = needed(low)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) >= middle else (low, middle)
    return (low + high) / 2


PEERS: tuple[Parts | PublicSizes, ...] = (
    Parts("OpenDP", centred=False, gaussian=False),
    Parts("OpenDP, Gaussian", centred=False, gaussian=True),
    Parts("Tumult", centred=True, gaussian=False),
    Parts("Tumult, Gaussian", centred=True, gaussian=True),
    PublicSizes(),
)


# Private keys: what a library finds of keys that few units have.


@dataclass(frozen=True)
class KeyLaw:
    """Noise on the number of units per key, and the least noisy number that is released."""

    noise: str
    scale: float
    least: int

    def found(self, counts: NDArray[np.int64], draws: int, random: np.random.Generator) -> tuple[float, float]:
        """Return the mean number of released keys, and the root mean square error of their counts."""
        released, squares = 0, 0.0
        for _ in range(draws):
            if self.noise == "gaussian":
                noise = np.rint(random.normal(0.0, self.scale, counts.shape))
            else:
                noise = discrete_laplace(self.scale, counts.shape, random)
            kept = counts + noise >= self.least
            released += int(kept.sum())
            squares += float((noise[kept] ** 2).sum())
        return released / draws, math.sqrt(squares / max(1, released))


def _laplace_least(scale: float, chance: float) -> int:
    """Return the least T with P(1 + noise >= T) <= chance."""
    a = math.exp(-1.0 / scale)
    return 1 + max(1, math.ceil(math.log(chance * (1 + a)) / math.log(a)))


def opendp_keys(promise: Promise, share: float = 1.0) -> KeyLaw:
    """OpenDP's Laplace threshold on the count, which gets a share of epsilon; delta is split among a unit's keys."""
    assert promise.delta is not None
    scale = promise.groups / (promise.epsilon * share)
    return KeyLaw("laplace", scale, _laplace_least(scale, promise.delta / promise.groups))


def opendp_gaussian_keys(promise: Promise, share: float = 1.0) -> KeyLaw:
    """OpenDP's Gaussian threshold: half of delta for the threshold, half for what rho means."""
    assert promise.delta is not None
    scale = math.sqrt(promise.groups / (2 * share * rho_of(promise.epsilon, promise.delta / 2)))
    chance = -math.expm1(math.log1p(-promise.delta / 2) / promise.groups)
    least = 1
    while 0.5 * math.erfc((least - 0.5) / scale / math.sqrt(2.0)) > chance:
        least += 1
    return KeyLaw("gaussian", scale, least + 1)


def tumult_keys(promise: Promise) -> KeyLaw:
    """Tumult's selection of keys alone: group privacy from one row to all rows of a unit. Counts cost more."""
    assert promise.delta is not None
    scale = promise.groups / promise.epsilon
    return KeyLaw("laplace", scale, _laplace_least(scale, promise.delta / promise.groups / math.exp(promise.epsilon)))


# The libraries themselves, on 50 groups of 200 rows.

GROUPS, ROWS = 50, 200
KEYS = [f"h{number:02d}" for number in range(GROUPS)]
CHECKED = (("count", 1), ("sum", 1), ("avg", 1), ("count", 5), ("avg", 5), ("avg", 20))


def example(kind: str = "uniform") -> tuple[NDArray[np.intp], Doubles]:
    """Return the groups and values of the specification's example: uniform on [0, 100], or narrow at 25."""
    random = np.random.default_rng(20240607)
    groups = np.repeat(np.arange(GROUPS), ROWS)
    values = random.uniform(0.0, 100.0, len(groups)) if kind == "uniform" else random.normal(25.0, 5.0, len(groups))
    return groups, values


def _opendp(name: str, promise: Promise) -> Iterator[Mapping[str, float]]:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    groups, values = example()
    frame = pl.DataFrame({"g": [KEYS[group] for group in groups], "x": values})
    x = pl.col("x").fill_nan(0.0).fill_null(0.0)
    bounds = (0.0, 100.0)
    column = {"count": dp.len(signed=True), "sum": x.dp.sum(bounds), "avg": x.dp.mean(bounds)}[name].alias("v")
    if promise.delta is None:
        loss = dp.loss_of(epsilon=promise.epsilon)
    else:
        loss = dp.loss_of(rho=rho_of(promise.epsilon, promise.delta))
    units = [
        dp.polars.Bound(by=[], per_group=promise.groups),
        dp.polars.Bound(by=["g"], per_group=1, num_groups=promise.groups),
    ]
    margin = dp.polars.Margin(by=["g"], max_length=len(groups), max_groups=GROUPS)
    while True:
        context = dp.Context.compositor(
            data=frame.lazy(), privacy_unit=dp.unit_of(contributions=units), privacy_loss=loss, split_evenly_over=1,
            margins=[margin],
        )  # fmt: skip
        query = context.query().group_by("g").agg(column).with_keys(pl.LazyFrame({"g": KEYS}))
        yield {row["g"]: float(row["v"]) for row in query.release().collect().to_dicts()}


def _tumult(name: str, promise: Promise) -> Iterator[Mapping[str, float]]:
    import pandas as pd
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddMaxRows, KeySet, PureDPBudget, QueryBuilder, RhoZCDPBudget, Session
    from tmlt.analytics import AddMaxRowsInMaxGroups as InGroups

    spark = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    groups, values = example()
    frame = spark.createDataFrame(pd.DataFrame({"g": [KEYS[group] for group in groups], "x": values})).cache()
    grouped = QueryBuilder("t").groupby(KeySet.from_dict({"g": KEYS}))
    if promise.delta is None:
        unit, spent = AddMaxRows(promise.groups), PureDPBudget(promise.epsilon)
        whole: Any = PureDPBudget(math.inf)
    else:
        unit, spent = InGroups("g", promise.groups, 1), RhoZCDPBudget(rho_of(promise.epsilon, promise.delta))
        whole = RhoZCDPBudget(math.inf)
    session = Session.from_dataframe(whole, "t", frame, protected_change=unit)
    ask = {
        "count": lambda: grouped.count(name="v"),
        "sum": lambda: grouped.sum("x", 0, 100, name="v"),
        "avg": lambda: grouped.average("x", 0, 100, name="v"),
        "variance": lambda: grouped.variance("x", 0, 100, name="v"),
    }[name]
    while True:
        yield {row["g"]: float(row["v"]) for row in session.evaluate(ask(), spent).collect()}


def _diffprivlib(name: str, promise: Promise) -> Iterator[Mapping[str, float]]:
    from diffprivlib import tools

    groups, values = example()
    function = {"sum": tools.sum, "avg": tools.mean, "variance": tools.var}[name]
    while True:
        found = {}
        for number, key in enumerate(KEYS):
            rows = np.clip(values[groups == number], 0.0, 100.0)
            factor = ROWS / (ROWS - 1) if name == "variance" else 1.0
            found[key] = factor * float(function(rows, epsilon=promise.epsilon, bounds=(0.0, 100.0)))
        yield found


LIBRARIES = {"opendp": ("OpenDP", _opendp), "tmlt": ("Tumult", _tumult), "diffprivlib": ("diffprivlib", _diffprivlib)}


def checks(draws: int) -> Iterator[dict[str, object]]:
    """Yield the error of each installed library beside that of its law here."""
    import importlib.util

    groups, values = example()
    exact = Exact.of(groups, values, GROUPS, 0.0, 100.0)
    laws = {law.name: law for law in PEERS}
    for package, (peer, library) in LIBRARIES.items():
        if importlib.util.find_spec(package) is None:
            continue
        for law_name, delta in ((peer, None), (f"{peer}, Gaussian", 1e-6)):
            if law_name not in laws:
                continue
            law = laws[law_name]
            for name, reach in (*CHECKED, ("variance", 1)):
                relation = "replace" if peer == "diffprivlib" else "add_remove"
                promise = Promise(1.0, delta, reach, relation)
                if not law.offers(promise, (name,)) or (name == "variance" and peer == "OpenDP"):
                    continue
                released = library(name, promise)
                wide = draws * 20 if peer == "diffprivlib" else draws
                answers = [[answer[key] for key in KEYS] for answer, _ in zip(released, range(wide), strict=False)]
                drawn = np.clip(answers, 0.0, 100.0) if name == "avg" else np.array(answers)
                random = np.random.default_rng(1)
                expected = law.answer(promise, (name,), exact, 4000, random)[name]
                truth = exact.truth(name)
                error, meant = (float(np.sqrt(np.mean((found - truth) ** 2))) for found in (drawn, expected))
                yield {"library": law_name, "groups per person": reach, "aggregate": name, "answers": drawn.size,
                       "library's error": f"{error:.4g}", "its law here": f"{meant:.4g}"}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5, help="releases per line, of 50 groups each")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "aggregates", help="folder of checks.csv")
    options = parser.parse_args(arguments)
    path = options.out / "checks.csv"
    known: dict[tuple[str, str, str], dict[str, object]] = {}
    if path.exists():
        with path.open(newline="") as file:
            known = {(line["library"], line["groups per person"], line["aggregate"]): dict(line) for line in csv.DictReader(file)}  # noqa: E501  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    for line in checks(options.draws):
        print(line, flush=True)
        known[str(line["library"]), str(line["groups per person"]), str(line["aggregate"])] = line
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            writer.writeheader()
            writer.writerows(known.values())


if __name__ == "__main__":
    main()
