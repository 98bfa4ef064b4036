"""dp_roc, dp_auc and dp_confusion in SQL: exact answers, labels and scores of every kind, forms, refusals, estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, f1_score, roc_auc_score, roc_curve

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.functions.auc import AucPlan, ConfusionPlan
from dpsql.functions.roc import RocPlan, candidate_ends, chosen_cells, draw_roc, threshold_places
from dpsql.released.curves import area_under, calibration, precision_recall
from support.cases import cases

ROWS = 3000
HUGE = 10**5
FUNCTIONS = ("dp_roc", "dp_auc", "dp_confusion")
GIVEN = "label := 'y', score := 'p'"
LABELS = ("y", "y::INTEGER", "CASE WHEN y THEN 'yes' ELSE 'no' END")


def columns() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    p = rng.beta(1, 2, size=ROWS)
    return rng.random(ROWS) < p, p


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    y, p = columns()
    opened.register("frame", pl.DataFrame({"id": range(ROWS), "y": y, "p": p}).to_arrow())
    opened.execute("CREATE TABLE t AS FROM frame")
    yield opened
    opened.close()


def rows(con: Any, function: str, source: str = "t", epsilon: float = HUGE, more: str = "") -> list[tuple[Any, ...]]:
    text = f"FROM {function}('{source}', {GIVEN}, epsilon := {epsilon}{more and ', ' + more})"
    return [without_noise(function, row) for row in con.execute(text).fetchall()]


def without_noise(function: str, row: Any) -> tuple[Any, ...]:
    """Return the columns of a row that are not about the noise of a curve; of an area all of them."""
    return tuple(row)[: {"dp_roc": 3, "dp_confusion": 10}.get(function)]


def one_row(con: Any, source: str = "t", threshold: float = 0.5, more: str = "") -> dict[str, float]:
    """Return the counts at one threshold, to the row."""
    [found] = rows(con, "dp_confusion", source, more=f"thresholds := {threshold}{more and ', ' + more}")
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    return dict(zip(names, (round(count, 3) for count in found[1:5]), strict=True))


def exact_points(y: Any, p: Any, thresholds: list[float]) -> list[tuple[float, float, float]]:
    """Return the ROC curve of scikit-learn on thresholds: the scores are rounded down to them."""
    ends = np.array([0.0, *sorted(thresholds)])
    fpr, tpr, found = roc_curve(y, ends[np.searchsorted(ends, p, side="right") - 1], drop_intermediate=False)
    return list(zip(found.tolist(), fpr.tolist(), tpr.tolist(), strict=True))


WAYS = [
    "",
    "n_thresholds := 1",
    "n_thresholds := 60, threshold_share := 0.5",
    "thresholds := 'fixed', n_thresholds := 9, cells := 10",
    "thresholds := 'fixed', n_thresholds := 40, curve := 'identity'",
    "thresholds := 'fixed', curve := 'wavelet'",
    "thresholds := 'smooth_medians', n_thresholds := 7",
    "thresholds := 'fixed', curve := 'toeplitz', delta := 1e-6",
    "delta := 1e-6, neighbours := 'replace'",
]


@cases("more", WAYS, quick=2)
def test_a_huge_epsilon_gives_the_exact_curve(con: Any, more: str) -> None:
    found = rows(con, "dp_roc", more=more)
    thresholds = [row[0] for row in found]
    assert found[0] == (math.inf, 0, 0)
    assert found[-1] == (0, 1, 1)
    assert thresholds == sorted(set(thresholds), reverse=True)
    y, p = columns()
    by_hand = [((p[~y] >= threshold).mean(), (p[y] >= threshold).mean()) for threshold in thresholds]
    assert np.array(found)[:, 1:] == pytest.approx(np.array(by_hand), abs=1e-3)
    # scikit-learn leaves out thresholds that no row reaches.
    rates = {round(threshold, 9): rest for threshold, *rest in found}
    for threshold, *expected in exact_points(y, p, thresholds[1:-1]):
        assert rates[round(threshold, 9)] == pytest.approx(expected, abs=1e-3)
    if "fixed" in more and "n_thresholds := 9" in more:
        assert thresholds[1:-1] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def test_recursive_thresholds_are_quantiles(con: Any) -> None:
    found = [row[0] for row in rows(con, "dp_roc", more="n_thresholds := 3")][1:-1]
    assert found[::-1] == pytest.approx(np.quantile(columns()[1], [0.25, 0.5, 0.75]), abs=0.01)


@cases("thresholds", ["recursive", "smooth_medians"])
@cases(("cells", "step"), [(4096, 16), (600, 2), (64, 1)])
def test_a_threshold_is_where_the_cell_of_the_median_ends(thresholds: str, cells: int, step: int) -> None:
    """Candidates are some 256 and single cells at both ends of the bounds; of the last one it is where that starts."""
    given = {"label": "y", "score": "p", "epsilon": HUGE, "n_thresholds": 1, "thresholds": thresholds, "cells": cells}
    plan = RocPlan.from_arguments("t", given)
    for cell in (0, 1, 7, 40, cells - 1):
        counts = np.bincount([cell] * 9, minlength=cells)
        end = 1 if cell == 0 else (cell // step + 1) * step
        assert draw_once(chosen_cells, plan, counts).tolist() == [min(end, cells - 1)]


@cases(("cells", "most"), [(2, 1), (300, 255), (4096, 15), (65536, 15), (257, 1), (1000, 200)])
def test_candidates_are_finest_at_both_ends(cells: int, most: int) -> None:
    ends = candidate_ends(cells, most)
    widths = np.diff(ends, prepend=0)
    assert (widths > 0).all()
    assert ends[-1] == cells
    assert widths[0] == widths[-1] == 1
    assert most < len(ends) <= 2 * max(256, most + 1) + 128


def test_thresholds_set_a_cell_of_many_rows_apart_and_halve_the_widest_gaps() -> None:
    def places(found: list[int], most: int) -> list[int]:
        return threshold_places(found, 10, most).tolist()

    assert places([2, 4, 7], 3) == [2, 4, 7]
    assert places([4, 4, 4], 3) == [3, 4, 6]
    assert places([9, 9, 9], 1) == [8]
    assert places([0, 0, 0], 2) == [0, 4]
    assert places([0, 0, 9], 9) == list(range(9))


# Shares of negative and positive rows at 0 and at 1; the others are uniform.
SPIKES = {
    "at 0": ((0.95, 0), (0.5, 0)),
    "at 1": ((0, 0.5), (0, 0.95)),
    "at both": ((0.9, 0.05), (0.05, 0.9)),
    "constant 0": ((1, 0), (1, 0)),
    "constant 1": ((0, 1), (0, 1)),
    "two values": ((0.9, 0.1), (0.5, 0.5)),
}


def crowded(shape: str) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return labels and scores of 10,000 rows, of which many have a score at one end, or near it."""
    rng = np.random.default_rng(1)
    y = rng.random(10_000) < 0.5
    if shape in SPIKES:
        (none, all_), (low, high) = SPIKES[shape]
        at_zero, at_one = np.where(y, low, none), np.where(y, high, all_)
        u = rng.random(len(y))
        return y, np.where(u < at_zero, 0.0, np.where(u < at_zero + at_one, 1.0, rng.random(len(y))))
    if shape == "beta":
        scores = rng.beta(0.1, 0.1, len(y))
        return rng.random(len(y)) < scores, scores
    spread, lead = {"constant": (0.0, 0.0), "nearly perfect": (6.0, 14.0), "log odds": (4.0, 3.0)}[shape]
    return y, 1 / (1 + np.exp(-rng.normal(np.where(y, lead, -lead), spread)))


@cases("thresholds", ["recursive", "smooth_medians"], quick=1)
@cases("shape", [*SPIKES, "constant", "beta", "nearly perfect", "log odds"])
def test_the_area_of_crowded_scores(shape: str, thresholds: str) -> None:
    """Once the upper half's median fell in the last cell, all further thresholds fell there: errors up to 0.23."""
    y, p = crowded(shape)
    counts = [np.histogram(p[y == level], bins=4096, range=(0, 1))[0] for level in (False, True)]
    exact = roc_auc_score(y, p)
    errors = []
    for epsilon in (0.1, 1, 3, 100):
        given = {"label": "y", "score": "p", "epsilon": epsilon, "thresholds": thresholds}
        plan = RocPlan.from_arguments("t", given)
        curves = [draw_once(lambda plan: draw_roc(plan, *counts), plan).rates for _ in range(12)]
        found = [area_under(np.append(0, fpr), np.append(0, tpr)) for fpr, tpr in curves]
        errors.append(np.abs(np.array(found) - exact).mean())
    assert errors[0] <= 0.04
    assert max(errors[1:]) <= 0.01
    assert errors[3] <= errors[1] + 1e-3
    assert errors[1] <= errors[0] + 2e-3


def numbers(function: str, found: Any) -> NDArray[np.float64]:
    """Return what is not a verdict."""
    return np.array([row[:4] if function == "dp_auc" else row for row in found], dtype=float)


def test_a_huge_epsilon_gives_the_exact_area(con: Any) -> None:
    y, p = columns()
    [(auc, error, lower, upper, verdict)] = rows(con, "dp_auc")
    assert lower <= auc <= upper <= lower + 1e-5
    assert (error < 1e-5, verdict) == (True, "clear")
    assert auc == pytest.approx(roc_auc_score(y, p), abs=1e-5)
    [(coarse, *_)] = rows(con, "dp_auc", more="cells := 4")
    assert coarse == pytest.approx(roc_auc_score(y, np.floor(p * 4)), abs=1e-5)
    [(gaussian, *_)] = rows(con, "dp_auc", more="delta := 1e-6")
    assert gaussian == pytest.approx(auc, abs=1e-3)
    [(smooth, *rest)] = rows(con, "dp_auc", more="method := 'smooth'")
    assert smooth == pytest.approx(auc, abs=1e-5)
    assert rest == [None, None, None, "not measured"]


# Scores at every resolution, of rows with a label y, by draws u in [0, 1) and z of a normal law. Of those that are marked a
# grid of 4,096 cells tells another area.
SHAPES: dict[str, tuple[Callable[..., Any], bool]] = {
    "fraud": (lambda y, u, z: 0.002 * u ** np.where(y, 1, 4), True),
    "near 1": (lambda y, u, z: 1 - 0.0001 * u ** np.where(y, 4, 1), True),
    "calibrated": (lambda y, u, z: np.where(y, np.sqrt(u), u), False),
    "crowded": (lambda y, u, z: 0.5 + 1e-6 * (z + y), True),
    "integers": (lambda y, u, z: np.floor(9 * u + 3 * y) / 16, False),
    "a tree": (lambda y, u, z: np.floor(7 * u ** np.where(y, 1, 2)) / 13, False),
    "below resolution": (lambda y, u, z: 1e-300 * (u + y / 2), True),
    "a sentinel": (lambda y, u, z: np.where(u < 0.5, -999, u + y / 4), False),
    "one value": (lambda y, u, z: 0.3 + 0 * u, False),
    "at the edge of a cell": (lambda y, u, z: np.where(u < 0.3 + 0.4 * y, 0.25, np.nextafter(0.25, 0)), False),
    "two neighbours": (lambda y, u, z: np.where(u < 0.3 + 0.4 * y, np.nextafter(0.7, 1), 0.7), True),
    "beyond the bounds, and none": (lambda y, u, z: np.where(u < 0.1, np.inf, np.where(u < 0.3, np.nan, z + y)), False),
}


@pytest.fixture(scope="module")
def shaped() -> Iterator[dpsql.Context]:
    rng = np.random.default_rng(4)
    y, u, z = rng.random(ROWS) < 0.3, rng.random(ROWS), rng.normal(size=ROWS)
    with dpsql.Context() as opened:
        scores = {name: make(y, u, z).astype(np.float64) for name, (make, _) in SHAPES.items()}
        opened.connection.register("frame", pl.DataFrame({"y": y, "id": range(ROWS), **scores}).to_arrow())
        opened.connection.execute("CREATE TABLE t AS FROM frame")
        opened.connection.execute("SELECT dp_protect('t', epsilon := 1e12, delta := 1e-2)")
        yield opened


def area_of(ctx: dpsql.Context, score: str) -> float:
    """Return the area of a score between 0 and 1, where a missing one is in the middle."""
    values = ctx.connection.execute(f'SELECT y, "{score}" FROM t').fetchnumpy()
    return float(roc_auc_score(values["y"], np.clip(np.nan_to_num(values[score], nan=0.5, posinf=1), 0, 1)))


@cases("shape", SHAPES, quick=2)
def test_an_area_holds_at_any_resolution(shaped: dpsql.Context, shape: str) -> None:
    """The interval holds the area itself; rounding to cells tells another one of some shapes."""
    exact = area_of(shaped, shape)
    [row] = shaped.dp_auc("t", label="y", score=shape, epsilon=HUGE).value.to_pylist()
    assert [row[name] for name in ("auc", "lower", "upper")] == pytest.approx([exact] * 3, abs=1e-6)
    assert row["verdict"] == "clear" or shape == "one value"
    [rounded] = shaped.dp_auc("t", label="y", score=shape, epsilon=HUGE, cells=4096).value.to_pylist()
    assert (abs(rounded["auc"] - exact) > 1e-3) == SHAPES[shape][1]


@cases("shape", [shape for shape in SHAPES if shape != "calibrated"], quick=1)
def test_a_difference_of_areas_holds_at_any_resolution(shaped: dpsql.Context, shape: str) -> None:
    """The worse of two scores was declared the better one where pairs were tied in a cell."""
    exact = area_of(shaped, shape) - area_of(shaped, "calibrated")
    given = {"label": "y", "of": "auc", "epsilon": HUGE, "sampling": False}
    [row] = shaped.dp_compare("t", scores=[shape, "calibrated"], **given).value.to_pylist()
    assert row["difference"] == pytest.approx(exact, abs=1e-5)


def test_an_area_of_cells_is_replayed() -> None:
    """A release of a version that rounded every score is returned as it was made, to the call that made it."""
    plan = AucPlan.from_arguments("t", {"label": "y", "score": "p", "epsilon": 1, "release": "area"})
    rounded = AucPlan.from_arguments("t", {"label": "y", "score": "p", "epsilon": 1, "release": "area", "cells": 4096})
    assert "grid" not in plan.public_arguments
    assert rounded.public_arguments in list(plan.earlier_arguments())
    assert plan.public_arguments not in list(rounded.earlier_arguments())


@pytest.mark.parametrize("more", ["", ", delta := 1e-6, curve := 'toeplitz'"])
def test_a_huge_epsilon_gives_exact_confusion_matrices(con: Any, more: str) -> None:
    y, p = columns()
    thresholds = [0.0, 0.1, 0.5, 1 / 3 + 1 / 3, 1.0]
    found = rows(con, "dp_confusion", more=f"thresholds := {thresholds}{more}")
    assert [row[0] for row in found] == thresholds
    for threshold, tp, fp, fn, tn, accuracy, precision, recall, f1, error in found:
        predicted = p >= threshold
        matrix = confusion_matrix(y, predicted).ravel()
        assert [tn, fp, fn, tp] == pytest.approx(matrix, abs=0.5)
        assert accuracy == pytest.approx((predicted == y).mean(), abs=1e-3)
        assert f1 == pytest.approx(f1_score(y, predicted), abs=1e-3)
        assert recall == pytest.approx(tp / (tp + fn))
        assert precision is None or precision == pytest.approx(tp / (tp + fp))
        assert 0 <= error < 0.1


@cases("label", LABELS, quick=2)
@cases("function", FUNCTIONS)
def test_labels_of_every_kind(con: Any, function: str, label: str) -> None:
    """Booleans and 0/1 as they are, text by its levels; levels may be turned round."""
    con.execute(f"CREATE OR REPLACE VIEW typed AS SELECT {label} AS y, p FROM t")
    fixed = {"dp_roc": "thresholds := 'fixed'", "dp_auc": "", "dp_confusion": "thresholds := [0.2, 0.7]"}[function]
    joined = ", ".join(part for part in (fixed, "target_levels := ['no', 'yes']" if "yes" in label else "") if part)
    expected, found = rows(con, function, more=fixed), rows(con, function, "typed", more=joined)
    assert numbers(function, found) == pytest.approx(numbers(function, expected), abs=1e-3, nan_ok=True)
    if function == "dp_auc":
        first, second = {"y": ("false", "true"), LABELS[2]: ("'no'", "'yes'")}.get(label, ("0", "1"))
        [(turned, *_)] = rows(con, function, "typed", more=f"target_levels := [{second}, {first}]")
        assert turned == pytest.approx(1 - expected[0][0], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("form", ["table", "view", "frame"])
def test_odd_rows(con: Any, form: str) -> None:
    """Scores that are missing count as the middle, others outside as a bound; labels that are no level as no row."""
    parts = [
        ("true", "NULL"),
        ("true", "'nan'"),
        ("true", "'inf'"),
        ("true", "7"),
        ("false", "'-inf'"),
        ("false", "-3"),
        ("false", "0.4"),
        ("NULL", "0.9"),
    ]
    text = " UNION ALL ".join(f"SELECT {label}::BOOLEAN AS y, {score}::DOUBLE AS p" for label, score in parts)
    source = "odd"
    if form == "frame":
        con.register("odd", con.sql(text).to_arrow_table())
    else:
        con.execute(f"CREATE OR REPLACE {form} odd AS {text}")
    expected = {"true_positives": 4, "false_positives": 0, "false_negatives": 0, "true_negatives": 3}
    assert one_row(con, source) == expected
    above = {"true_positives": 2, "false_positives": 0, "false_negatives": 2, "true_negatives": 3}
    assert one_row(con, source, 0.51) == above
    assert one_row(con, source, 1) == above
    everything = {"true_positives": 4, "false_positives": 3, "false_negatives": 0, "true_negatives": 0}
    assert one_row(con, source, 0) == everything
    # Other bounds: the middle is 0, and 7 is inside.
    wide = {"true_positives": 2, "false_positives": 0, "false_negatives": 2, "true_negatives": 3}
    assert one_row(con, source, 5, "lower := -10, upper := 10") == wide
    # In one call of a hundred the noise carries the numbers beyond the area of 1, and there is none.
    areas = [row[0][0] for row in (rows(con, "dp_auc", source) for _ in range(5)) if row[0][0] is not None]
    assert areas == pytest.approx([1] * len(areas), abs=1e-3)
    assert areas
    if form == "frame":
        con.unregister("odd")
    else:
        con.execute(f"DROP {form} odd")


def test_labels_outside_of_the_levels(con: Any) -> None:
    con.execute("CREATE OR REPLACE VIEW three AS SELECT CASE WHEN id < 9 THEN 'maybe' ELSE 'a' END AS y, p FROM t")
    found = one_row(con, "three", 0, "target_levels := ['b', 'a']")
    assert found["true_positives"] == ROWS - 9
    assert found["false_positives"] == 0
    assert sum(one_row(con, "three", 0, "target_levels := ['x', 'z']").values()) == 0
    con.execute("CREATE OR REPLACE VIEW numbers AS SELECT id % 3 AS y, p FROM t")
    assert sum(one_row(con, "numbers", 0).values()) == ROWS * 2 / 3
    with pytest.raises(duckdb.Error, match="levels"):
        rows(con, "dp_auc", "three")


@cases("where", ["y", "NOT y", "false", "id = 5"], quick=1)
@cases("epsilon", [1, HUGE])
def test_one_level_or_no_row(con: Any, where: str, epsilon: float) -> None:
    """Nothing fails, and every answer is one of a ROC curve."""
    con.execute(f"CREATE OR REPLACE VIEW part AS FROM t WHERE {where}")
    curve = rows(con, "dp_roc", "part", epsilon)
    assert (curve[0], curve[-1]) == ((math.inf, 0, 0), (0, 1, 1))
    [(auc, _, lower, upper, verdict)] = rows(con, "dp_auc", "part", epsilon)
    assert 0 <= lower < upper <= 1
    assert (auc is None) == (verdict == "undetermined")
    [matrix] = rows(con, "dp_confusion", "part", epsilon)
    assert all(count >= 0 for count in matrix[1:5])
    if epsilon == HUGE:
        assert auc == pytest.approx(0.5, abs=1e-3)
        assert [row[1] for row in curve] == pytest.approx([row[2] for row in curve]), "the diagonal"
        assert matrix[5] is None or 0 <= matrix[5] <= 1


def aggregate(function: str, more: str = "") -> str:
    return f"{function}(y, p, epsilon := {HUGE}, dataset := 't'{more})"


@pytest.mark.long
@pytest.mark.parametrize("function", FUNCTIONS)
def test_aggregate_form(con: Any, function: str) -> None:
    """Per group, as the table form does of each group alone."""
    more = ", thresholds := 'fixed'" if function == "dp_roc" else ""
    groups = con.execute(f"SELECT id % 3 AS g, {aggregate(function, more)} FROM t GROUP BY g ORDER BY g").fetchall()
    for group, found in groups:
        con.execute(f"CREATE OR REPLACE VIEW part AS FROM t WHERE id % 3 = {group}")
        expected = numbers(function, rows(con, function, "part", more=more[2:]))
        assert numbers(function, [without_noise(function, row.values()) for row in found]) == pytest.approx(
            expected, abs=1e-3
        )
    [(empty,)] = con.execute(f"SELECT {aggregate(function, more)} FROM t WHERE false").fetchall()
    assert len(empty) == (17 if function == "dp_roc" else 1)
    odd = "VALUES (true, NULL), (true, 'nan'::DOUBLE), (false, '-inf'::DOUBLE), (NULL, 0.3)"
    [(found,)] = con.execute(f"SELECT {aggregate('dp_confusion')} FROM ({odd}) AS v(y, p)").fetchall()
    assert [round(count) for count in list(found[0].values())[1:5]] == [2, 0, 0, 1]


@pytest.mark.long
@pytest.mark.parametrize("function", FUNCTIONS)
def test_replay_by_name(function: str) -> None:
    """The same call again under its release's name costs nothing; another call under that name is refused."""
    with dpsql.Context() as context:
        y, p = columns()
        frame = pl.DataFrame({"y": y, "p": p})
        run = getattr(context, function)
        first = run(frame, label="y", score="p", epsilon=1, release="r")
        again = run(frame, label="y", score="p", epsilon=1, release="r")
        assert again.replayed
        assert again.to_arrow() == first.to_arrow()
        assert context.dp_ledger().column("kind").to_pylist()[0] == "release"
        assert set(context.dp_ledger().column("kind").to_pylist()[1:]) <= {"replay"}
        with pytest.raises(dpsql.ParameterError, match="P014"):
            run(frame, label="y", score="p", epsilon=2, release="r")


def test_views_of_a_released_curve(con: Any) -> None:
    """Precision, recall and calibration are read off the stored counts."""
    y, p = columns()
    rows(con, "dp_roc", more="thresholds := 'fixed', n_thresholds := 9, cells := 10, release := 'views'")
    [found] = dpsql.install(con).ledger.releases(["dp_roc"], "t", "views")
    stored = found.result
    assert stored["levels"] == [False, True]
    for row in precision_recall(stored):
        chosen = p >= row["threshold"] - 1e-9
        assert row["precision"] == pytest.approx(y[chosen].mean(), abs=1e-3)
        assert row["recall"] == pytest.approx(y[chosen].sum() / y.sum(), abs=1e-3)
    bins = calibration(stored)
    assert [one["mean_score"] for one in bins] == pytest.approx(np.arange(10) / 10 + 0.05)
    shares = [y[(p >= low) & (p < low + 0.1)].mean() for low in np.arange(10) / 10]
    assert [one["positive_rate"] for one in bins] == pytest.approx(shares, abs=0.01)
    assert sum(one["rows"] for one in bins) == pytest.approx(ROWS, abs=0.5)


@cases("function", FUNCTIONS, quick=2)
@cases("neighbours", ["add_remove", "replace"])
def test_user_level(con: Any, function: str, neighbours: str) -> None:
    """Units with more rows than count are cut, and rows without a unit left out."""
    con.execute(
        "CREATE OR REPLACE VIEW owned AS SELECT CASE WHEN id < 100 THEN NULL WHEN id < 2000 THEN 1 ELSE id END AS u, * FROM t"
    )
    unit = f"privacy_unit := 'u', max_rows_per_unit := 2, neighbours := '{neighbours}'"
    more = {"dp_roc": "thresholds := 'fixed', ", "dp_auc": "", "dp_confusion": "thresholds := 0, "}[function]
    found = rows(con, function, "owned", more=more + unit)
    if function == "dp_confusion":
        assert found[0][1] + found[0][2] == pytest.approx(1002, abs=0.5)
    assert found


@pytest.mark.long
def test_charges(con: Any) -> None:
    """Pure without delta; with it the counts alone are Gaussian, where that noise is smaller; thresholds cost what they do."""
    session = dpsql.install(con)
    for function, more, guarantee in (
        ("dp_roc", "", "pure 1-DP"),
        ("dp_roc", "delta := 1e-6", "(1, 1e-06)-DP"),
        ("dp_roc", "delta := 1e-6, thresholds := 'fixed'", "(1, 1e-06)-DP"),
        ("dp_roc", "thresholds := 'smooth_medians'", "pure 1-DP"),
        ("dp_auc", "", "pure 1-DP"),
        ("dp_auc", "delta := 1e-6", "pure 1-DP"),
        ("dp_auc", "delta := 1e-6, noise := 'gaussian'", "(1, 1e-06)-DP"),
        ("dp_auc", "method := 'smooth'", "pure 1-DP"),
        ("dp_confusion", "", "pure 1-DP"),
        ("dp_confusion", "delta := 1e-7", "(1, 1e-07)-DP"),
    ):
        rows(con, function, epsilon=1, more=more)
        entry = [entry for entry in session.ledger.entries() if entry.kind == "release"][-1]
        assert entry.guarantee == f"{guarantee}, add_remove of one row"
        assert entry.epsilon == 1


REFUSED = [
    ("dp_roc", "thresholds := 'quartiles'", "P005"),
    ("dp_roc", "curve := 'matrix'", "P005"),
    ("dp_roc", "curve := 'toeplitz'", "P046.*delta"),
    ("dp_roc", "n_thresholds := 0", "P021"),
    ("dp_roc", "n_thresholds := 256", "P050.*255"),
    ("dp_roc", "n_thresholds := 10, cells := 10", "P050.*9"),
    ("dp_roc", "n_thresholds := 10, thresholds := 'smooth_medians'", "P052.*15"),
    ("dp_roc", "threshold_share := 1", "P006"),
    ("dp_roc", "cells := 100000", "P050"),
    ("dp_roc", "delta := 2", "P027"),
    ("dp_roc", "lower := 1", "P003"),
    ("dp_roc", "lower := [0, 1], upper := [1, 2]", "P037"),
    ("dp_roc", "epsilon := 1e-18", "P001"),
    ("dp_roc", "epsilon := 1e-12, thresholds := 'smooth_medians'", "P038"),
    ("dp_auc", "cells := 0", "P021"),
    ("dp_auc", "epsilon := 1e-15", "P038"),
    ("dp_auc", "epsilon := 1e-15, method := 'smooth'", "P038"),
    ("dp_auc", "epsilon := 1e-9, delta := 1e-9, noise := 'gaussian'", "P038"),
    ("dp_auc", "noise := 'gaussian'", "P046.*delta"),
    ("dp_auc", "noise := 'laplace', method := 'smooth'", "P045"),
    ("dp_auc", "method := 'cauchy'", "P005"),
    ("dp_auc", "method := 'smooth', delta := 1e-6", "P045.*delta"),
    ("dp_confusion", "thresholds := []", "P032"),
    ("dp_confusion", "thresholds := [0.5, 0.5]", "P032"),
    ("dp_confusion", "thresholds := [0.5, 1.5]", "P032"),
    ("dp_confusion", "thresholds := 'half'", "P024"),
    ("dp_confusion", "thresholds := list_transform(range(101), lambda i: i / 101)", "P032.*100"),
    ("dp_confusion", "epsilon := 1e-18", "P001"),
    ("dp_confusion", "target_levels := ['a']", "P012"),
]


@cases(("function", "more", "code"), REFUSED, quick=1)
def test_refusals(con: Any, function: str, more: str, code: str) -> None:
    """By public values alone, and before anything is charged."""
    session = dpsql.install(con)
    before = len(list(session.ledger.entries()))
    text = more if "epsilon" in more else f"epsilon := 1, {more}"
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"FROM {function}('t', {GIVEN}, {text})").fetchall()
    assert len(list(session.ledger.entries())) == before


def quantities(con: Any, function: str, more: str) -> dict[str, float]:
    text = f"SELECT quantity, value FROM dp_estimate('{function}', epsilon := 1, {more})"
    return dict(con.execute(text).fetchall())


def test_estimates() -> None:
    """The standard error before the call is that of the call, and needs no table."""
    given = {"label": "y", "score": "p", "epsilon": 1}
    for plan in (
        RocPlan.from_arguments("t", {**given, "thresholds": "fixed"}),
        RocPlan.from_arguments("t", {**given, "thresholds": "fixed", "delta": 1e-6, "neighbours": "replace"}),
        ConfusionPlan.from_arguments("t", {**given, "thresholds": [0.1, 0.2, 0.7]}),
    ):
        cells = 16 if isinstance(plan, RocPlan) else 4
        zeros = np.zeros(cells, dtype=np.int64)
        stored = draw_once(type(plan).draw_counts, plan, zeros, zeros, np.arange(1.0, cells))
        found = {name: value for name, value, _ in plan.noise(0, 1000)}
        mean = math.sqrt(np.square(stored.std_error).mean())
        assert found["count_std_error"] == pytest.approx(mean, rel=1e-6)
        assert found["rate_std_error"] == pytest.approx(mean / 500, rel=1e-6)
    assert {name for name, *_ in AucPlan.from_arguments("t", given).noise(0, None)} == {
        "concordance_std_error",
        "count_std_error",
    }
    auc = AucPlan.from_arguments("t", {**given, "method": "smooth"})
    assert {name: value for name, value, _ in auc.noise(0, 600)}["auc_median_error"] == pytest.approx(
        0.9595 / 300, rel=1e-3
    )
    assert auc.noise(0, None)[0][1] == 1
    assert auc.row_epsilon == Fraction(1)


def test_estimates_in_sql(con: Any) -> None:
    for function in FUNCTIONS:
        assert quantities(con, function, "n_rows := 1000")
