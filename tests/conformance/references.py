"""Exact statistics in plain Python, from the rows themselves: what the native table must give under default settings."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from seam import Seen
from tables import FAR, NAMES, base

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))

from exact_reference import ONE, coded, cross_products, of_documents, quantised

Row = dict[str, Any]
FEATURES = ("a", "b", "e", "k", "s")


def _rows(name: str) -> list[Row]:
    return base(name).to_pylist()  # type: ignore[no-any-return]


def _sums(names: Iterable[str], sums: Iterable[int]) -> list[tuple[Any, ...]]:
    return sorted(zip(names, sums, strict=True), key=repr)


def _number(value: Any) -> int:
    return quantised(value, -2, 2)


def _truth(value: Any) -> int:
    return coded(value, (False, True))


def _letter(value: Any) -> int:
    return coded(value, ("a", "b"))


def _wide(column: str, code: Callable[[Any], int], features: tuple[str, ...]) -> Callable[[Seen], Any]:
    def reference(_: Seen) -> Any:
        rows = [([row[name] for name in features], code(row[column])) for row in _rows("wide")]
        return _sums(features, cross_products(rows, len(features), (-4, 4)))

    return reference


def _vectors(_: Seen) -> Any:
    rows = [((row["x"] or [])[:3], _number(row["z"])) for row in _rows("vectors")]
    return _sums((f"x[{place}]" for place in (1, 2, 3)), cross_products(rows, 3, (-4, 4)))


def _long(
    target: str, code: Callable[[Any], int], bounds: tuple[float, float], value: str = "", far: bool = False
) -> Callable[[Seen], Any]:
    word, doc, names = ("far_word", "far", [f"{FAR}{n}" for n in range(3)]) if far else ("word", "doc", NAMES)

    def reference(_: Seen) -> Any:
        cells = [
            {"doc": row[doc], "token": row[word], "value": row[value or "v"], "y": row[target]} for row in _rows("long")
        ]
        return _sums(names, of_documents(cells, names, bounds, code, has_value=bool(value)))

    return reference


def _pairs(_: Seen) -> Any:
    rows = _rows("wide")

    def signs(name: str) -> Any:
        values = np.array([math.nan if row[name] is None else float(row[name]) for row in rows])
        with np.errstate(invalid="ignore"):
            return np.where(values[:, None] > values, 1, np.where(values[:, None] < values, -1, 0)).astype(np.int8)

    target = signs("z")
    products = {name: signs(name) * target for name in FEATURES}
    return sorted(((name, int((p < 0).sum()) // 2, int((p > 0).sum()) // 2) for name, p in products.items()), key=repr)


def _scores(label: str, levels: tuple[Any, Any], score: str) -> Callable[[Seen], Any]:
    def reference(seen: Seen) -> Any:
        plan, scores = seen.call.plan, ([], [])
        for row in _rows("wide"):
            if row[label] in levels and row[label] is not None:
                value = row[score]
                missing = value is None or math.isnan(value)
                scores[levels.index(row[label])].append(
                    plan.missing_score if missing else min(max(value, plan.lower), plan.upper)
                )
        if getattr(plan, "grid", 0) is None:  # pairs of the scores themselves
            balance = sum((high > low) - (high < low) for low, high in product(*scores))
            return [balance, len(scores[1]), len(scores[0])]
        edges, count = plan.cells.edges.tolist(), plan.cells.count
        counts = [0] * (2 * count)
        for level, values in enumerate(scores):
            for value in values:
                counts[level * count + bisect_right(edges, value)] += 1
        return counts

    return reference


def _documents(has_value: bool) -> list[tuple[int, set[str]]]:
    """Return label and distinct names of every document."""
    found: dict[str, tuple[int, set[str]]] = {}
    for row in _rows("long"):
        label, names = found.get(row["doc"], (-2, set()))
        if row["word"] is not None and (
            not has_value or (row["v"] is not None and row["v"] != 0 and row["v"] == row["v"])
        ):
            names.add(row["word"])
        code = -2 if row["y"] is None else 1 if row["y"] else -1
        found[row["doc"]] = max(label, code), names
    return [*found.values()]


def _feature_counts(_: Seen) -> Any:
    """Whole rows: no more names are listed than count."""
    documents = _documents(False)
    counts = [sum(name in names for label, names in documents if label == side) for side in (1, -1) for name in NAMES]
    return [*counts, *(sum(label == side for label, _ in documents) for side in (1, -1))]


def _vocabulary(_: Seen) -> Any:
    return dict(Counter(name for _, names in _documents(False) for name in names))


def _errors(seen: Seen) -> Any:
    bound = 2 * ONE
    pairs = [(quantised(row["z"], -4, 4), quantised(row["s"], -4, 4)) for row in _rows("wide")]
    errors = [min(max(t - p, -bound), bound) for t, p in pairs]
    return [
        len(pairs),
        sum(t for t, _ in pairs),
        sum(t * t - ONE**2 // 2 for t, _ in pairs),
        sum(e * e - bound**2 // 2 for e in errors),
        sum(abs(e) - bound // 2 for e in errors),
    ]


def _moments(table: str, values: Callable[[Row], list[Any]]) -> Callable[[Seen], Any]:
    def reference(_: Seen) -> Any:
        rows = [values(row) for row in _rows(table)]
        kept = [row for row in rows if all(value is not None and not math.isnan(value) for value in row)]
        q = [[quantised(value, -4, 4) for value in row] for row in kept]
        p = range(len(rows[0]))
        squares = [2 * sum(row[i] ** 2 for row in q) - ONE**2 * len(q) for i in p]
        products = [2 * sum(row[i] * row[j] for row in q) for i in p for j in p if i < j]
        return [2 * ONE**2 * len(q), *(2 * ONE * sum(row[i] for row in q) for i in p), *squares, *products]

    return reference


REFERENCES: dict[str, Callable[[Seen], Any]] = {
    "exact_xty of listed columns": _wide("z", _number, FEATURES),
    "exact_xty of every column": _wide(
        "y", _truth, ("a", "b", "c", "d", "e", "f", "id", "k", "m", "n", "s", "unit_number", "z")
    ),
    "exact_xty of constants": _wide("d", _number, ("c", "a")),
    "exact_xty of a text": _wide("t", _letter, FEATURES),
    "exact_xty of vectors": _vectors,
    "exact_xty with values": _long("z", _number, (-4, 4), "v"),
    "exact_xty of presence": _long("y", _truth, (0, 1)),
    "exact_xty with constants": _long("z", _number, (-4, 4), "c"),
    "exact_xty of long texts": _long("z", _number, (-4, 4), "v", far=True),
    "exact_discordant of columns": _pairs,
    "dp_roc plain": _scores("y", (False, True), "s"),
    "dp_roc at fixed thresholds": _scores("t", ("a", "b"), "n"),
    "dp_auc plain": _scores("y", (False, True), "n"),
    "dp_confusion plain": _scores("y", (False, True), "n"),
    "dp_roc of a constant score": _scores("y", (False, True), "c"),
    "dp_roc of a constant score at a bound": _scores("y", (False, True), "c"),
    "dp_roc of a constant label": _scores("d", (0, 1), "n"),
    "dp_confusion of constants": _scores("d", (0, 1), "c"),
    "dp_roc of a label in several forms": _scores("f", (0, 1), "n"),
    "dp_roc of a long text": _scores("far_label", (f"{FAR}1", f"{FAR}2"), "n"),
    "dp_confusion of numbers": _scores("k", (0, 1), "a"),
    "dp_roc aggregate over wide": _scores("y", (False, True), "s"),
    "dp_confusion aggregate over wide": _scores("y", (False, True), "s"),
    "dp_score_filter of public names": _feature_counts,
    "dp_naive_bayes of presence": _feature_counts,
    "dp_score_filter private vocabulary": _vocabulary,
    "dp_regression_metrics plain": _errors,
    "dp_covariance plain": _moments("wide", lambda row: [row[name] for name in FEATURES]),
    "dp_correlation of vectors": _moments("vectors", lambda row: [*(row["x"] or []), None, None, None][:3]),
}


def statistic(seen: Seen) -> Any:
    """Return what a reference is compared with."""
    if seen.rows is not None:
        return seen.rows
    first = seen.passes[0]
    return first.named if first.integers is None else list(first.integers)
