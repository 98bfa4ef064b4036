"""Error of private aggregates at equal guarantees, beside OpenDP, Tumult Analytics and diffprivlib.

    python benchmarks/papers/aggregates.py [--draws 1000] [--calls 4] [--data DIR] [--out DIR] [--quick]

Writes ``results.csv`` (an error per table, promise, question and contender), ``keys.csv`` (private keys found),
``sql.csv`` (a few whole calls in SQL, beside the draws) and what `aggregates_report.py` makes of them: ``table.md`` and
``errors.png``. README.md beside this file says what came out. Takes about five minutes.

Every contender answers about the same rows, in which no unit exceeds its limits, under the same promise. Ours are drawn
by what `dp_aggregate` itself calls; the others by their laws in `aggregates_peers.py`, which can be compared with the
libraries themselves. A group's noise does not depend on other groups, so one draw of many copies of the groups is many
draws. Nothing is charged to a budget: this is a study, not a release.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from aggregates_peers import (
    KEYS,
    PEERS,
    Doubles,
    Exact,
    KeyLaw,
    Promise,
    example,
    opendp_gaussian_keys,
    opendp_keys,
    tumult_keys,
)
from aggregates_report import write_report
from numpy.typing import NDArray

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.functions.grouped.aggregate import AggregatePlan, draw_aggregates
from dpsql.kernels.fixed_point import quantise
from dpsql.mechanisms.keyed_aggregates import KeyedNoise
from dpsql.released.covariance import estimates
from dpsql.statistics.aggregates import Sums, ValueBlock

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1].parent / "shared" / "data"
EPSILON, DELTA = 1.0, 1e-6
SEED = 20240607  # of the tables and of the others' noise; ours is drawn from the operating system
OURS = "dpsql"
SIZES, GAUSSIAN = "dpsql, public sizes", "dpsql, noise := 'gaussian'"
Asked = tuple[str, ...]
# Histograms are counts by bin: a line ("count",) of a table whose groups are bins. Crosstabs with their margins, and
# keys without counts, get lines of their own when their functions are there.
QUESTIONS: tuple[Asked, ...] = (("count",), ("sum",), ("count", "sum"), ("avg",), ("count", "avg"), ("variance",))
HOSPITAL = "tables/diabetes130_hospital.parquet"
# (file, columns k, u, x, what to keep, groups per person, bounds); rows are persons where there is no id.
_REAL = {
    # A patient counts in at most two specialities, with one stay in each: the first by a hash.
    "hospital": (
        HOSPITAL,
        "coalesce(medical_specialty, '?') AS k, patient_nbr AS u, time_in_hospital AS x",
        "QUALIFY row_number() OVER (PARTITION BY u, k ORDER BY hash(encounter_id)) = 1 "
        "AND dense_rank() OVER (PARTITION BY u ORDER BY hash(u, k), k) <= 2",
        *(2, 1.0, 14.0),
    ),
    "adult": (
        "tables/adult.parquet",
        "occupation AS k, row_number() OVER () AS u, hours_per_week AS x",
        "",
        *(1, 0.0, 100.0),
    ),
    "houses": (
        "regression/house_sales.parquet",
        "zipcode::VARCHAR AS k, row_number() OVER () AS u, y AS x",
        "",
        *(1, 0.0, 2e6),
    ),
}
_FIVE_DIAGNOSES = "QUALIFY dense_rank() OVER (PARTITION BY u ORDER BY hash(u, k), k) <= 5"


@dataclass(frozen=True)
class Table:
    """Rows of units in groups with public keys; no unit has two rows in a group, or rows in over `reach` groups."""

    name: str
    keys: tuple[str, ...]
    groups: NDArray[np.intp]
    units: NDArray[np.int64]
    values: Doubles
    reach: int
    lower: float
    upper: float

    @property
    def exact(self) -> Exact:
        """The exact sums of every group."""
        return Exact.of(self.groups, self.values, len(self.keys), self.lower, self.upper)

    def arrow(self) -> pa.Table:
        """Return the rows as a table (k, u, x)."""
        return pa.table({"k": np.array(self.keys, dtype=object)[self.groups], "u": self.units, "x": self.values})


def synthetic(kind: str, reach: int) -> Table:
    """Return the specification's example: 50 groups of 200 rows, in `reach` of which every person has a row."""
    groups, values = example(kind)
    row = np.arange(len(groups)) % 200
    units = row * len(KEYS) + groups // reach
    return Table(kind, tuple(KEYS), groups, units, values, reach, 0.0, 100.0)


def real(data: Path) -> Iterator[Table]:
    """Yield the real tables that are there."""
    for name, (file, columns, kept, reach, lower, upper) in _REAL.items():
        if not (data / file).exists():
            print(f"{name}: its table is not in {data}; skipped")
            continue
        rows = duckdb.sql(f"SELECT {columns} FROM '{data / file}' {kept}").fetchnumpy()
        keys, groups = np.unique(np.asarray(rows["k"], dtype=str), return_inverse=True)
        units = np.asarray(rows["u"], dtype=np.int64)
        yield Table(name, tuple(keys.tolist()), groups, units, np.asarray(rows["x"], float), reach, lower, upper)


def given(asked: Asked, promise: Promise, *, keys: object, bounds: tuple[float, float]) -> dict[str, object]:
    """Return the arguments of dp_aggregate."""
    found: dict[str, object] = {
        "aggregates": list(asked), "by": ["k"], "keys": keys,
        "epsilon": promise.epsilon, "neighbours": promise.relation,
        "left_out_share": 0,  # the others release nothing of what their limits leave out
    }  # fmt: skip
    if asked != ("count",):
        found |= {"target": "x", "lower": bounds[0], "upper": bounds[1]}
    if promise.delta is not None:
        found["delta"] = promise.delta
    if promise.groups > 1:
        found |= {"privacy_unit": "u", "max_groups_per_unit": promise.groups, "max_rows_per_unit_group": 1}
    return found


def plan_of(
    asked: Asked, promise: Promise, table: Table, *, bounds: tuple[float, float] | None = None, noise: str = "auto"
) -> AggregatePlan:
    """Return the plan of a question about a table."""
    bounds = bounds or (table.lower, table.upper)
    arguments = given(asked, promise, keys=list(table.keys), bounds=bounds) | {"noise": noise}
    return AggregatePlan.from_arguments("t", arguments)


def sums_of(plan: AggregatePlan, groups: NDArray[np.intp], values: Doubles, count: int) -> Sums:
    """Return the exact integers of every group, as the engine adds them up."""
    block = plan.blocks[-1]
    codes = np.zeros(len(values), dtype=np.int64)
    if isinstance(block, ValueBlock):
        codes = quantise(np.clip(values, block.lower, block.upper), *block.affine).astype(np.int64)
    totals = np.zeros((3, count), dtype=object if block.needs_squares else np.int64)
    for row, part in enumerate((np.ones_like(codes), codes, codes**2)):
        if row < 2 or block.needs_squares:
            np.add.at(totals[row], groups, part.astype(totals.dtype))
    return Sums(totals[0].astype(np.int64), totals[1].astype(np.int64), totals[2] if block.needs_squares else None)


def copies(sums: Sums, count: int) -> Sums:
    """Return the same groups many times."""
    return Sums(np.tile(sums.n, count), np.tile(sums.s1, count), None if sums.s2 is None else np.tile(sums.s2, count))


def ours(
    asked: Asked, promise: Promise, table: Table, draws: int, noise: str = "auto"
) -> dict[str, tuple[Doubles, Doubles]]:
    """Return values of shape (draws, G), and the standard deviation that a release states of itself, per group."""
    plan = plan_of(asked, promise, table, noise=noise)
    sums = sums_of(plan, table.groups, table.values, len(table.keys))
    (noisy,) = draw_once(draw_aggregates, plan, [copies(sums, draws)])
    found = {}
    for name, released in estimates(noisy, asked).items():
        # A variance is NULL where the noisy count is below 2; the others answer something there, so this counts as 0.
        value = np.nan_to_num(released.value).reshape(draws, -1)
        found[name] = value, np.nanmedian(released.std_error.reshape(draws, -1), axis=0)
    return found


def ours_of_public_sizes(promise: Promise, table: Table, name: str, draws: int) -> tuple[Doubles, Doubles]:
    """Return sums and means where sizes are public: dp_sum about the middle of the bounds, and free arithmetic."""
    middle, half = (table.lower + table.upper) / 2, (table.upper - table.lower) / 2
    plan = plan_of(("sum",), promise, table, bounds=(-half, half))
    sums = sums_of(plan, table.groups, table.values - middle, len(table.keys))
    (noisy,) = draw_once(draw_aggregates, plan, [copies(sums, draws)])
    released = estimates(noisy, ("sum",))["sum"]
    value, error = released.value.reshape(draws, -1), np.median(released.std_error.reshape(draws, -1), axis=0)
    sizes = table.exact.n
    if name == "sum":
        return value + middle * sizes, error
    return np.clip(value / sizes + middle, table.lower, table.upper), error / sizes


def measured(drawn: Doubles, truth: Doubles, theory: Doubles) -> dict[str, float]:
    """Return the root mean square errors of all groups together and of the median group, and what theory says."""
    there = ~np.isnan(truth)
    errors = (drawn - truth)[:, there] ** 2
    return {
        "rms": math.sqrt(errors.mean()),
        "median": float(np.median(np.sqrt(errors.mean(axis=0)))),
        "theory": math.sqrt(np.mean(theory[there] ** 2)),
    }


def contest(table: Table, promise: Promise, asked: Asked, draws: int) -> Iterator[dict[str, Any]]:
    """Yield the error of every contender that can give the promise, for every aggregate of the question."""
    head = {
        "table": table.name, "relation": promise.relation, "epsilon": promise.epsilon, "delta": promise.delta or 0,
        "groups per person": promise.groups, "asked": " ".join(asked), "draws": draws,
    }  # fmt: skip
    exact, random = table.exact, np.random.default_rng(SEED)
    laws = {OURS: "auto"} | ({GAUSSIAN: "gaussian"} if promise.delta is not None else {})
    for contender, noise in laws.items():
        for name, (value, stated) in ours(asked, promise, table, draws, noise).items():
            yield head | {"aggregate": name, "contender": contender} | measured(value, exact.truth(name), stated)
    for peer in PEERS:
        if not peer.offers(promise, asked):
            continue
        answers = peer.answer(promise, asked, exact, draws, random)
        for name in asked:
            theory = peer.theory(promise, asked, name, exact)
            yield (
                head | {"aggregate": name, "contender": peer.name} | measured(answers[name], exact.truth(name), theory)
            )
    if promise.relation == "replace" and asked in (("sum",), ("avg",)):
        drawn = ours_of_public_sizes(promise, table, asked[0], draws)
        yield head | {"aggregate": asked[0], "contender": SIZES} | measured(drawn[0], exact.truth(asked[0]), drawn[1])


def questions(data: Path) -> Iterator[tuple[Table, Promise, Sequence[Asked]]]:
    """Yield every table with the promises and questions that are asked of it."""
    for kind in ("uniform", "narrow"):
        for reach in (1, 5, 20):
            table = synthetic(kind, reach)
            yield table, Promise(EPSILON, None, reach), QUESTIONS
            if reach > 1:
                yield table, Promise(EPSILON, DELTA, reach), QUESTIONS
        yield synthetic(kind, 1), Promise(EPSILON, None, 1, "replace"), (("sum",), ("avg",), ("variance",))
    for table in real(data):
        yield table, Promise(EPSILON, None, table.reach), QUESTIONS


# Private keys.


def zipf(units: int, reach: int, keys: int = 100_000) -> NDArray[np.int64]:
    """Return how many units have each key: every unit has `reach` different keys, of chances 1/k."""
    random = np.random.default_rng(SEED)
    edges = np.cumsum(1.0 / np.arange(1, keys + 1))
    counts = np.zeros(keys, dtype=np.int64)
    for _ in range(units):
        _, first = np.unique(drawn := np.searchsorted(edges, random.random(8 * reach) * edges[-1]), return_index=True)
        counts[drawn[np.sort(first)[:reach]]] += 1
    return counts[counts > 0]


def key_tables(data: Path, units: int) -> Iterator[tuple[str, int, NDArray[np.int64]]]:
    """Yield a name, the keys of one unit, and the number of units of each key."""
    for reach in (1, 5, 20):
        yield "zipf", reach, zipf(units, reach)
    if (data / HOSPITAL).exists():
        columns = "DISTINCT diag_1 AS k, patient_nbr AS u"
        rows = duckdb.sql(f"SELECT {columns} FROM '{data / HOSPITAL}' {_FIVE_DIAGNOSES}").fetchnumpy()
        yield "diagnoses", 5, np.unique(np.asarray(rows["k"], dtype=str), return_counts=True)[1].astype(np.int64)


def our_keys(asked: Asked, promise: Promise, counts: NDArray[np.int64], draws: int) -> dict[str, float]:
    """Return the mean number of keys that are released, the error of their counts, and the least count."""
    # 'auto' looks at the numbers alone; Gaussian noise finds more keys.
    asked_for = {**given(asked, promise, keys="private", bounds=(0.0, 100.0)), "noise": "gaussian"}
    plan = AggregatePlan.from_arguments("t", asked_for)
    released, squares = 0, 0.0

    def draw(plan: AggregatePlan, given: Sums) -> Any:
        assert isinstance(plan.part, KeyedNoise)
        return plan.part.draw([given] * len(plan.part.blocks))

    for _ in range(draws):
        places, noisy = draw_once(draw, plan, Sums(counts, np.zeros_like(counts), counts * 0))
        found = estimates(noisy[-1], ("count",))["count"].value
        released += len(places)
        squares += float(((found - counts[places]) ** 2).sum())
    assert isinstance(plan.part, KeyedNoise)
    return {"least": plan.part.least_count, "found": released / draws, "rms": math.sqrt(squares / max(1, released))}


def find_keys(name: str, reach: int, counts: NDArray[np.int64], draws: int) -> Iterator[dict[str, Any]]:
    """Yield what each contender finds."""
    promise, random = Promise(EPSILON, DELTA, reach), np.random.default_rng(SEED)
    for asked in (("count",), ("count", "avg")):
        head = {
            "table": name,
            "groups per person": reach,
            "keys": len(counts),
            "asked": " ".join(asked),
            "draws": draws,
        }
        yield head | {"contender": OURS} | our_keys(asked, promise, counts, draws)
        laws: dict[str, KeyLaw] = {
            "OpenDP": opendp_keys(promise, 1 / len(asked)),
            "OpenDP, Gaussian": opendp_gaussian_keys(promise, 1 / len(asked)),
        }
        if asked == ("count",):
            laws["Tumult (keys without counts)"] = tumult_keys(promise)
        for contender, law in laws.items():
            found, error = law.found(counts, draws, random)
            yield head | {"contender": contender, "least": law.least, "found": found, "rms": error}


# Whole calls in SQL.


def whole_calls(table: Table, promise: Promise, asked: Asked, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the error of whole calls, beside the error that a release states of itself."""
    context = dpsql.Context()
    context.connection.register("frame", table.arrow())
    context.connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    found: dict[str, list[list[float]]] = {name: [] for name in asked}
    arguments = given(asked, promise, keys=list(table.keys), bounds=(table.lower, table.upper))
    for _ in range(calls):
        rows = context.dp_aggregate("t", **arguments).to_arrow().to_pylist()
        for name in asked:
            found[name].append([row["value"] for row in rows if row["aggregate"] == name])
    context.close()
    for name, (drawn, _) in ours(asked, promise, table, 1000).items():
        truth = table.exact.truth(name)
        sql, law = (math.sqrt(np.mean((each - truth) ** 2)) for each in (np.array(found[name]), drawn))
        yield {
            "table": table.name, "delta": promise.delta or 0, "groups per person": promise.groups,
            "asked": " ".join(asked), "aggregate": name, "answers": calls * len(table.keys),
            "SQL": sql, "draws": law, "ratio": sql / law,
        }  # fmt: skip


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write lines as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in line.items()}
            for line in lines
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="draws per line")
    parser.add_argument("--calls", type=int, default=4, help="whole calls in SQL per line of sql.csv")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real tables")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "aggregates", help="folder of what is written")
    parser.add_argument("--quick", action="store_true", help="200 draws of the example alone, and four calls in SQL")
    options = parser.parse_args(arguments)
    data = Path("/nowhere") if options.quick else options.data
    draws, calls, units = (200, 4, 2000) if options.quick else (options.draws, options.calls, 20_000)
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    results = [
        line
        for table, promise, listed in questions(data)
        for asked in listed
        for line in contest(table, promise, asked, draws)
    ]
    write(options.out / "results.csv", results)
    keys = [line for each in key_tables(data, units) for line in find_keys(*each, max(10, draws // 5))]
    write(options.out / "keys.csv", keys)
    limits = ((1, None),) if options.quick else ((1, None), (5, None), (20, DELTA))
    whole = [
        line
        for reach, delta in limits
        for asked in (("count", "avg"), ("variance",))
        for line in whole_calls(synthetic("uniform", reach), Promise(EPSILON, delta, reach), asked, calls)
    ]
    write(options.out / "sql.csv", whole)
    write_report(options.out)
    print(f"{time.monotonic() - started:.0f} s; written to {options.out}")


if __name__ == "__main__":
    main()
