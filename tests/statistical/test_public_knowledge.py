"""What a caller knows never makes an answer worse: bounds, levels, keys, sizes, types, keys of a table and NOT NULL.

Each function is asked with and without a piece of public knowledge that is true, over tables that are shaped as real
ones: money, counts, flags, heavy tails, categories, dates, and few rows. The noise has fixed bits, so a case draws the
same whenever it runs. With independent bits, a case whose two laws are equal would fail with odds below 1e-6: the
difference of two means of bounded errors would have to exceed five of its standard errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import dpsql
from support.cases import cases

DELTA = 1e-5
# Differences below so many standard errors, or below this share of the error, are chance.
CHANCE, SMALL = 5.0, 0.02
KINDS = ["a", "b", "c", "d", "e"]


@dataclass(frozen=True)
class Table:
    """A table with columns x, z, y, label, kind, id, noise and other; `public` has the true bounds of x."""

    columns: Mapping[str, np.ndarray]
    public: tuple[float, float]

    @property
    def y_bounds(self) -> tuple[float, float]:
        return float(np.floor(self.columns["y"].min())), float(np.ceil(self.columns["y"].max()))


def _table(name: str) -> Table:
    rng = np.random.default_rng(sum(map(ord, name)))
    n = 250 if name == "small" else 6000
    x, public = {
        "money": lambda: (np.round(rng.lognormal(3.0, 1.3, n), 2), (0.0, 20_000.0)),
        "counts": lambda: (rng.negative_binomial(1, 0.15, n), (0, 1_000)),
        "rare flag": lambda: ((rng.random(n) < 0.02).astype(int), (0, 1)),
        "common flag": lambda: ((rng.random(n) < 0.4).astype(int), (0, 1)),
        "tails": lambda: (np.clip(rng.standard_t(2.0, n) * 10, -5_000, 5_000), (-5_000.0, 5_000.0)),
        "categories": lambda: (rng.integers(1, 6, n), (1, 5)),
        "dates": lambda: (19_000 + rng.integers(0, 365, n), (0, 40_000)),
        "small": lambda: (rng.integers(18, 90, n), (0, 120)),
    }[name]()
    z = rng.normal(50, 10, n)
    ranks = np.argsort(np.argsort(x, kind="stable")) / n
    signal = 3.0 * (x > np.quantile(x, 0.97)) if "flag" in name else 2.0 * ranks
    y = np.round(10 * (signal + 0.05 * (z - 50) + rng.normal(0, 0.5, n)), 3)
    label = (y + rng.normal(0, 3, n) > np.median(y)).astype(int)
    kind = rng.choice(KINDS, n, p=[0.5, 0.25, 0.15, 0.08, 0.02])
    columns = {"x": x, "z": z, "y": y, "label": label, "kind": kind, "id": np.arange(n)}
    return Table({**columns, "noise": rng.normal(50, 10, n), "other": rng.normal(50, 10, n)}, public)


NUMBERS = itertools.count()
TABLES = ["money", "counts", "rare flag", "common flag", "tails", "categories", "dates", "small"]
table = lru_cache(_table)
Call = Callable[[dpsql.Context, Table, float, Mapping[str, Any]], float]


def _mean(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    found = context.dp_avg("t", target="x", epsilon=epsilon, **known).to_arrow()
    value, x = found["value"][0].as_py(), of.columns["x"]
    return 4.0 if value is None else min(4.0, abs(value - x.mean()) / x.std())


def _quantile(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    value = (
        context.dp_quantile("t", target="x", quantiles=[0.75], epsilon=epsilon, **known).to_arrow()["value"][0].as_py()
    )
    if value is None:
        return 1.0
    x, near = of.columns["x"], (of.public[1] - of.public[0]) / 500  # a value stands for its cell
    return max(0.0, np.mean(x < value - near) - 0.75, 0.75 - np.mean(x <= value + near))


def _counts(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    found = context.dp_count("t", by="kind", epsilon=epsilon, **known).to_arrow()
    told = dict(zip(found["kind"].to_pylist(), found["value"].to_pylist(), strict=True))
    kinds = of.columns["kind"]
    return float(np.mean([min(1.0, abs((told.get(kind) or 0) - np.sum(kinds == kind)) / len(kinds)) for kind in KINDS]))


def _slopes(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    rows = np.column_stack([of.columns[name] for name in ("x", "z")]).astype(float)
    given = {
        "epsilon": epsilon,
        "delta": DELTA,
        "release": f"m{context.dp_budget().num_rows}{len(known)}{id(rows)}",
        **known,
    }
    found = context.dp_linear_regression("t", target="y", features=["x", "z"], **given)
    y = of.columns["y"]
    if found.result["coefficients"] is None:
        return 1.0
    predicted = np.asarray(context.model(given["release"]).predict(rows), dtype=float)
    return min(1.0, float(((predicted - y) ** 2).mean() / y.var()))  # no worse than no model


def _classes(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    rows = np.column_stack([of.columns[name] for name in ("x", "z")]).astype(float)
    found = context.dp_logistic_regression(
        "t", target="label", target_levels=[0, 1], features=["x", "z"], epsilon=epsilon, delta=DELTA, **known
    )
    slopes, bounds = np.array(found.result["coefficients"][1:]), found.result["bounds"]
    scores = sum(
        slope * np.clip(column, *pair)
        for slope, column, pair in zip(slopes, rows.T, bounds, strict=True)
        if pair is not None
    )
    return 1.0 - float(roc_auc_score(of.columns["label"], scores + np.zeros(len(rows))))


def _spread(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    value = context.dp_stddev("t", target="x", epsilon=epsilon, **known).to_arrow()["value"][0].as_py()
    spread = of.columns["x"].std()
    return 2.0 if value is None else min(2.0, abs(value - spread) / spread)


def _groups(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    found = context.dp_avg("t", target="x", by="kind", epsilon=epsilon, **_column(of), **known).to_arrow()
    told = dict(zip(found["kind"].to_pylist(), found["value"].to_pylist(), strict=True))
    x, kinds = of.columns["x"], of.columns["kind"]
    exact = {kind: x[kinds == kind].mean() for kind in KINDS}
    misses = (4.0 if told.get(kind) is None else abs(told[kind] - exact[kind]) / x.std() for kind in KINDS)
    return float(np.mean([min(4.0, miss) for miss in misses]))


def _area(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    value = context.dp_auc("t", label="label", score="x", epsilon=epsilon, **_column(of), **known).to_arrow()["auc"][0]
    exact = roc_auc_score(of.columns["label"], of.columns["x"])
    return 0.5 if value.as_py() is None else min(0.5, abs(value.as_py() - exact))


def _chosen(function: str) -> Call:
    """Return a call that selects one of a real feature and two of noise; its error is whether it is not the real one."""

    def call(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
        given = {"target": "y", "features": ["noise", "z", "other"], "k": 1, "epsilon": epsilon / 100, **known}
        [row] = getattr(context, function)("t", **given).to_arrow().to_pylist()
        return float(row["feature"] != "z")

    return call


def _synthetic(context: dpsql.Context, of: Table, epsilon: float, known: Mapping[str, Any]) -> float:
    """Return the greatest differences of the shares of rows up to a value of x, summed over the kinds."""
    release = f"release {next(NUMBERS)}"
    context.dp_synthetic("t", columns=["x", "kind"], epsilon=epsilon, delta=DELTA, release=release, **known)
    made = context.dp_synthetic_rows(release)
    made_x = np.array([math.inf if x is None else x for x in made["x"].to_pylist()], dtype=float)
    made_kinds, x, kinds = np.array(made["kind"].to_pylist()), of.columns["x"], of.columns["kind"]
    error = 0.0
    for kind in KINDS:
        held = np.sort(x[kinds == kind])
        below = np.searchsorted(np.sort(made_x[made_kinds == kind]), held, side="right") / max(1, len(made_x))
        error += float(np.abs(below - np.searchsorted(held, held, side="right") / len(x)).max(initial=0.0))
    return error


def _features(of: Table) -> dict[str, Any]:
    return {"lower": {"x": of.public[0], "z": 0}, "upper": {"x": of.public[1], "z": 120}}


def _target(of: Table) -> dict[str, Any]:
    return dict(zip(("target_lower", "target_upper"), of.y_bounds, strict=True))


def _column(of: Table) -> dict[str, Any]:
    return dict(zip(("lower", "upper"), of.public, strict=True))


@dataclass(frozen=True)
class Knowledge:
    """A call, and what is said beside it: arguments, and the definition of the table.

    Attributes
    ----------
    call : callable
        Returns the error of an answer, in [0, 4].
    told : callable
        The arguments that say what is known.
    asked : mapping
        The arguments that are given without it.
    defined : str
        What the table's definition says: 'types', 'primary key' or 'not null'.
    """

    call: Call
    told: Callable[[Table], Mapping[str, Any]] = lambda of: {}
    asked: Mapping[str, Any] | None = None
    both: Mapping[str, Any] | None = None
    defined: str = ""


PERSON = {"privacy_unit": "id", "max_rows_per_unit": 1}
ADDITIVE = {"method": "additive"}
WITHIN = {"lower": -200, "upper": 200, "target_lower": -100, "target_upper": 100}
KNOWLEDGE = {
    "mean, bounds": Knowledge(_mean, _column),
    "mean, type": Knowledge(_mean, defined="types"),
    "mean, primary key": Knowledge(_mean, both=PERSON, defined="primary key"),
    "mean, not null": Knowledge(_mean, defined="not null"),
    "quantile, bounds": Knowledge(_quantile, _column),
    "quantile, type": Knowledge(_quantile, defined="types"),
    "counts, keys": Knowledge(_counts, lambda of: {"keys": KINDS}, {"keys": "private", "delta": DELTA}),
    "counts, primary key": Knowledge(_counts, both={"keys": KINDS, **PERSON}, defined="primary key"),
    "regression, bounds": Knowledge(_slopes, _features),
    "regression, target's bounds": Knowledge(_slopes, _target),
    "regression, all bounds": Knowledge(_slopes, lambda of: {**_features(of), **_target(of)}),
    "regression, size": Knowledge(_slopes, lambda of: {"n_rows": len(of.columns["x"])}),
    "regression, type": Knowledge(_slopes, defined="types"),
    "classes, bounds": Knowledge(_classes, _features),
    "classes, type": Knowledge(_classes, defined="types"),
    "additive classes, bounds": Knowledge(_classes, _features, both=ADDITIVE),
    "deviation, bounds": Knowledge(_spread, _column),
    "deviation, type": Knowledge(_spread, defined="types"),
    "deviation, not null": Knowledge(_spread, defined="not null"),
    "groups, keys": Knowledge(_groups, lambda of: {"keys": KINDS}, {"keys": "private", "delta": DELTA}),
    "groups, sizes": Knowledge(
        _groups,
        lambda of: {"group_sizes": [int(np.sum(of.columns["kind"] == kind)) for kind in KINDS]},
        both={"keys": KINDS},
    ),
    "area, levels": Knowledge(_area, lambda of: {"target_levels": [0, 1]}),
    "area, type": Knowledge(_area, defined="types"),
    "ranks, size": Knowledge(_chosen("dp_kendall"), lambda of: {"n_rows": len(of.columns["x"])}),
    "ranks, not null": Knowledge(_chosen("dp_kendall"), defined="not null"),
    "scores, size": Knowledge(_chosen("dp_sis"), lambda of: {"n_rows": len(of.columns["x"])}, both=WITHIN),
    "scores, primary key": Knowledge(_chosen("dp_sis"), both={**WITHIN, **PERSON}, defined="primary key"),
    "synthetic, bounds": Knowledge(
        _synthetic,
        lambda of: {side: {"x": end} for side, end in _column(of).items()},
        both={"keys": {"kind": KINDS}},
    ),
    "synthetic, keys": Knowledge(_synthetic, lambda of: {"keys": {"kind": KINDS}}, {"private_keys": True}),
    "synthetic, type": Knowledge(_synthetic, defined="types", both={"keys": {"kind": KINDS}}),
}


def _opened(of: Table, defined: str) -> dpsql.Context:
    """Return a context with the table `t`, whose definition says so much."""
    context = dpsql.Context()
    context.connection.register("frame", pa.table(dict(of.columns)))
    whole = of.columns["x"].dtype.kind in "iu" and defined == "types"
    kind, null = "INTEGER" if whole else "DOUBLE", "NOT NULL" if defined == "not null" else ""
    key = "PRIMARY KEY" if defined == "primary key" else ""
    context.connection.execute(
        f"SET threads = 1; CREATE TABLE t (x {kind} {null}, z DOUBLE {null}, y DOUBLE {null}, label INTEGER {null}, "
        f"kind VARCHAR {null}, id BIGINT {key}, noise DOUBLE {null}, other DOUBLE {null})"
    )
    context.connection.execute("INSERT INTO t FROM frame")
    return context


def errors(name: str, of: Table, epsilon: float, calls: int) -> list[np.ndarray]:
    """Return the errors of so many calls without the knowledge and with it."""
    knowledge = KNOWLEDGE[name]
    both = knowledge.both or {}
    found = []
    for defined, given in (("", knowledge.asked or {}), (knowledge.defined, knowledge.told(of))):
        context = _opened(of, defined)
        found.append(np.array([knowledge.call(context, of, epsilon, {**both, **given}) for _ in range(calls)]))
        context.connection.close()
    return found


def is_worse(without: np.ndarray, told: np.ndarray) -> bool:
    """Whether answers with the knowledge are worse beyond chance."""
    deviation = math.sqrt(sum(part.var(ddof=1) / len(part) for part in (without, told)))
    return bool(told.mean() - without.mean() > CHANCE * deviation + SMALL * without.mean() + 1e-9)


# A mean or deviation, and the ends that values are clipped to, trade noise for bias: within public bounds nothing is
# clipped, so the noise is as wide as the bounds. Where these are far wider than the values, private ones have the
# smaller error.
UNCLIPPED = {
    (knowledge, name)
    for knowledge in ("mean, bounds", "deviation, bounds")
    for name in ("money", "counts", "tails", "dates")
}
CASES = [(knowledge, name) for knowledge in KNOWLEDGE for name in TABLES if (knowledge, name) not in UNCLIPPED]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@cases("knowledge, name", CASES)
def test_knowing_more_is_never_worse(knowledge: str, name: str, epsilon: float) -> None:
    without, told = errors(knowledge, table(name), epsilon, 10)
    assert not is_worse(without, told), (without.mean(), told.mean())


@cases("knowledge", ["regression, all bounds", "classes, bounds", "additive classes, bounds"], quick=1)
def test_far_too_wide_bounds_are_no_worse(knowledge: str) -> None:
    """A sample of the long test."""
    without, told = errors(knowledge, table("money"), 1.0, 4)
    assert not is_worse(without, told), (without.mean(), told.mean())


def test_the_comparison_sees_a_worse_answer() -> None:
    """Units of the whole width of bounds, as they were, fail it."""
    without, _ = errors("classes, bounds", table("money"), 3.0, 6)
    assert is_worse(without, without + 0.02)
    assert not is_worse(without, without)
