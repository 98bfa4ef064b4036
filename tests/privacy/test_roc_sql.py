"""dp_roc, dp_auc and dp_confusion through SQL: what they draw on neighbouring tables, audits, planted faults.

Every draw of a call is recorded. The call on a neighbouring table repeats its choices, and the draws of both then say
how far the tables can be told apart (`support.laws.roc`). A right release is accused by an audit with probability at
most 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import dpsql
from dpsql.contract.gaussian_profile import gaussian_covers
from dpsql.functions.registry import FUNCTIONS
from dpsql.testing import audit_sql
from dpsql.testing.neighbours import RELATIONS, Relation, Table, random_pairs, random_unit_pairs, to_arrow
from dpsql.testing.sql import load
from support.audits import connecting
from support.broken.roc import BROKEN_ROC, broken_roc
from support.cases import cases
from support.laws.roc import RocDraw, RocLoss, observe_roc, roc_loss

CONFIDENCE = 1 - 1e-6
EPSILON = 0.6
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "recursive": ("dp_roc", {"cells": 300}),
    "recursive, uneven": ("dp_roc", {"n_thresholds": 5, "threshold_share": 0.5, "cells": 64}),
    "recursive, wavelet": ("dp_roc", {"n_thresholds": 20, "curve": "wavelet", "cells": 64}),
    "recursive, gaussian": ("dp_roc", {"n_thresholds": 7, "delta": 1e-5, "cells": 64}),
    "fixed": ("dp_roc", {"thresholds": "fixed", "n_thresholds": 30}),
    "fixed, toeplitz": ("dp_roc", {"thresholds": "fixed", "curve": "toeplitz", "delta": 1e-5}),
    "smooth_medians": ("dp_roc", {"thresholds": "smooth_medians", "n_thresholds": 3, "cells": 64}),
    "auc": ("dp_auc", {"cells": 50}),
    "auc, gaussian": ("dp_auc", {"cells": 50, "delta": 1e-5, "noise": "gaussian"}),
    "auc, smooth": ("dp_auc", {"cells": 50, "method": "smooth"}),
    "confusion": ("dp_confusion", {"thresholds": [0.25, 0.5, 0.9]}),
    "confusion, gaussian": ("dp_confusion", {"delta": 1e-6}),
}
# With Laplace noise on counts alone, which reach what they may.
TIGHT = [name for name, (_, given) in CASES.items() if "delta" not in given and not name.startswith("auc")]
UNIT = {"privacy_unit": "owner", "max_rows_per_unit": 3}
LEVELS = {"target_levels": ["no", "yes"]}
# Two thirds of the labels are levels.
VIEW = (
    "CREATE OR REPLACE VIEW t AS SELECT * EXCLUDE (label), CASE WHEN label > 0.6 THEN 'yes' WHEN label > 0.2 THEN 'no' "
    "ELSE label::VARCHAR END AS label FROM raw"
)


def test_every_function_is_here() -> None:
    here = {name for name, function in FUNCTIONS.items() if function.shape.name in ("roc", "area", "confusion")}
    assert here == {name for name, _ in CASES.values()}


def call(name: str, source: str = "t", **more: Any) -> str:
    function, given = CASES[name]
    given = {"label": "label", "score": "score", "epsilon": EPSILON, **given, **LEVELS, **more}
    return f"FROM {function}('{source}', {', '.join(f'{key} := {value!r}' for key, value in given.items())})"


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    yield opened
    opened.close()


def draws(connection: Any, sql: str, answers: list[RocDraw] | None = None) -> list[RocDraw]:
    with observe_roc(answers) as found:
        connection.execute(sql).fetchall()
    return found


def compare(connection: Any, sql: str, pair: tuple[Table, Table], names: list[str]) -> RocLoss:
    """Return what two tables lose, and check that either order is the same to within the choices."""
    found: list[list[RocDraw]] = []
    for table in pair:
        types = ["int64" if name == "owner" else "double" for name in names]
        load(connection, to_arrow(table, names, types), "raw")
        connection.execute(VIEW)
        found.append(draws(connection, sql, found[0] if found else None))
        assert found[-1], "nothing was drawn"
    return roc_loss(*found)


def assert_covered(name: str, loss: RocLoss) -> None:
    given = CASES[name][1]
    if "delta" not in given:
        assert loss.mu == 0
        assert loss.epsilon <= EPSILON * (1 + 1e-9)
        return
    share = given.get("threshold_share", 0.2) if name.startswith("recursive") else 0
    assert loss.epsilon <= EPSILON * share * (1 + 1e-9)
    plan = FUNCTIONS[CASES[name][0]].plan.from_arguments("t", {"label": "l", "score": "s", "epsilon": EPSILON, **given})
    assert loss.mu <= float(plan.mu) * (1 + 1e-9)
    assert gaussian_covers(plan.mu, getattr(plan, "count_epsilon", plan.epsilon), plan.delta)


@cases("relation", RELATIONS)
@cases("name", CASES)
def test_rows(connection: Any, name: str, relation: Relation) -> None:
    """NULL, NaN, infinities, ties, labels that are no level: a row costs epsilon at most, and about that at worst."""
    sql = call(name, neighbours=relation)
    pairs = random_pairs(5, relation, columns=2, count=5, lower=0.0, upper=1.0)
    losses = [compare(connection, sql, pair, ["label", "score"]) for pair in pairs]
    for loss in losses:
        assert_covered(name, loss)
    if name in TIGHT:
        share = CASES[name][1].get("threshold_share", 0.2) if name.startswith(("recursive", "smooth")) else 0
        assert max(loss.epsilon for loss in losses) >= EPSILON * (1 - share) * (
            0.999 if relation == "add_remove" else 0.5
        )


@cases("relation", RELATIONS)
@cases(
    "name", ["recursive", "recursive, gaussian", "smooth_medians", "auc", "auc, gaussian", "auc, smooth", "confusion"]
)
def test_units(connection: Any, name: str, relation: Relation) -> None:
    """All rows of a privacy unit, of which three count."""
    sql = call(name, neighbours=relation, **UNIT)
    pairs = random_unit_pairs(7, relation, columns=2, count=4, max_rows_per_unit=5, lower=0.0, upper=1.0)
    for pair in pairs:
        assert_covered(name, compare(connection, sql, pair, ["owner", "label", "score"]))


# --- planted faults: name of the fault, call, two tables of (owner, label, score) with how many rows of each

Rows = list[tuple[int, int, float, int]]
FLIP: tuple[Rows, Rows] = ([(1, 0, 0.5, 1)], [(1, 1, 0.5, 1)])
ONE_MORE: tuple[Rows, Rows] = ([(1, 0, 0.3, 5)], [(1, 0, 0.3, 5), (2, 1, 0.7, 1)])
THREE_MORE: tuple[Rows, Rows] = ([(1, 0, 0.3, 3)], [(1, 0, 0.3, 3), (2, 1, 0.7, 3)])
LOWERED: tuple[Rows, Rows] = ([(1, 1, 0.5, 1), (2, 0, 0.1, 1)], [(1, 1, 0.5, 1), (2, 0, 0.9, 1)])
SWAPPED: tuple[Rows, Rows] = ([(1, 0, 0.3, 1), (2, 1, 0.7, 1)], [(1, 0, 0.3, 1), (2, 0, 0.7, 1)])
REPLACED = {"neighbours": "replace"}
# All but nothing of an epsilon of 2 for the medians.
MEDIANS = {"threshold_share": 0.999999, "epsilon": 2}


def cells(*places: int) -> Rows:
    """Return negative rows in some of the 64 cells."""
    return [(number, 0, (place + 0.5) / 64, 1) for number, place in enumerate(places)]


FAULTS: dict[str, tuple[str, dict[str, Any], tuple[Rows, Rows]]] = {
    "half of epsilon forgotten under replace": ("confusion", REPLACED, FLIP),
    "noise for one row": ("confusion", UNIT, THREE_MORE),
    "thresholds not paid for": ("recursive", {"n_thresholds": 1}, ONE_MORE),
    "empty cells dropped": ("fixed", {}, ONE_MORE),
    "levels of the tree forgotten": ("fixed", {}, ONE_MORE),
    "ties on both sides": ("smooth_medians", MEDIANS, (cells(31, 63), cells(63))),
    "halves by rank": ("smooth_medians", MEDIANS, (cells(0, 22, 22, 24, 63), cells(0, 22, 22, 24, 42, 63))),
    "total epsilon at every level": ("smooth_medians", MEDIANS, (cells(2, 23), cells(2, 23, 23))),
    "noise multiplied for units": ("smooth_medians", {"n_thresholds": 1, **UNIT}, THREE_MORE),
    "counts of the table": ("auc", {}, ONE_MORE),
    "concordance for one row": ("auc", UNIT, THREE_MORE),
    "both counts at all of their share": ("auc", REPLACED, SWAPPED),
    "concordance of replaced rows as of added ones": ("auc", REPLACED, LOWERED),
    "area for one row": (
        "auc, smooth",
        UNIT,
        ([(1, 1, 0.5, 1), (2, 0, 0.1, 1)], [(1, 1, 0.5, 1), (2, 0, 0.1, 1), (3, 0, 0.9, 3)]),
    ),
    "steps of added rows under replace": ("smooth_medians", {**MEDIANS, **REPLACED}, (cells(31), cells(63))),
    "constant of added rows under replace": (
        "auc, smooth",
        REPLACED,
        LOWERED,
    ),
}


def created(rows: Rows) -> str:
    parts = " UNION ALL ".join(
        f"SELECT {owner} AS owner, {(1 + label) / 2} AS label, {score}::DOUBLE AS score FROM range({count})"
        for owner, label, score, count in rows
    )
    return f"CREATE OR REPLACE TABLE raw AS {parts}"


def lost(connection: Any, fault: str | None, sql: str, tables: tuple[Rows, Rows]) -> float:
    found: list[list[RocDraw]] = []
    with broken_roc(fault) if fault else nullcontext():
        for rows in tables:
            connection.execute(created(rows))
            connection.execute(VIEW)
            found.append(draws(connection, sql, found[0] if found else None))
    return roc_loss(*found).epsilon


def test_every_fault_is_here() -> None:
    assert FAULTS.keys() == BROKEN_ROC.keys()


@cases("fault", FAULTS)
def test_planted_faults(connection: Any, fault: str) -> None:
    name, more, tables = FAULTS[fault]
    sql, epsilon = call(name, **more), more.get("epsilon", EPSILON)
    # Half of the draws of the first and three quarters of those of the second show it, and all draws of the others.
    runs = {"ties on both sides": 24, "steps of added rows under replace": 12}.get(fault, 2)
    worst = max(lost(connection, fault, sql, tables) for _ in range(runs))
    assert worst > 1.05 * epsilon, worst
    assert max(lost(connection, None, sql, tables) for _ in range(runs)) <= epsilon * (1 + 1e-9)


# --- audits of what comes out, with no look inside

AUDITS: dict[str, tuple[str, tuple[Rows, Rows], float, float]] = {
    "roc": (
        "SELECT list_transform(dp_roc(label, score, epsilon := 4, thresholds := 'fixed', n_thresholds := 1, {more}), "
        "lambda entry: round(entry.tpr, 1)) FROM t, range({{count}}) AS r(copy) GROUP BY copy",
        ([(1, 0, 0.3, 3), (2, 1, 0.3, 2)], [(1, 0, 0.3, 3), (2, 1, 0.3, 2), (3, 1, 0.7, 1)]),
        4.0,
        0.5,
    ),
    "auc": (
        "SELECT coalesce(dp_auc(label, score, epsilon := 8, cells := 8, {more})[1].auc > 0.5, false) "
        "FROM t, range({{count}}) AS r(copy) GROUP BY copy",
        ([(1, 1, 0.5, 1), (2, 0, 0.1, 1)], [(1, 1, 0.5, 1), (2, 0, 0.1, 1), (3, 0, 0.9, 1)]),
        8.0,
        2.0,
    ),
    "auc, smooth": (
        "SELECT dp_auc(label, score, epsilon := 3, neighbours := 'replace', method := 'smooth', {more})[1].auc > 0.5 "
        "FROM t, range({{count}}) AS r(copy) GROUP BY copy",
        LOWERED,
        3.0,
        0.5,
    ),
    "confusion": (
        "SELECT round(dp_confusion(label, score, epsilon := 3, {more})[1].true_positives) "
        "FROM t, range({{count}}) AS r(copy) GROUP BY copy",
        ([(1, 1, 0.7, 3)], [(1, 1, 0.7, 4)]),
        3.0,
        1.5,
    ),
    "roc, units": (
        "SELECT tpr > 0.5 FROM dp_roc('t', label := 'label', score := 'score', thresholds := 'fixed', "
        "n_thresholds := 1, epsilon := 6, privacy_unit := 'owner', max_rows_per_unit := 3, "
        "target_levels := ['no', 'yes']) WHERE threshold = 0.5",
        ([(1, 1, 0.3, 2)], [(1, 1, 0.3, 2), (2, 1, 0.7, 3)]),
        6.0,
        0.5,
    ),
}


def audited(opened: list[Any], name: str, runs: int, claim: float | None = None) -> Any:
    sql, tables, epsilon, _ = AUDITS[name]

    scripts = tuple(f"{created(rows)}; {VIEW}" for rows in tables)
    more = "target_levels := ['no', 'yes'], dataset := 't'"
    batch = 200 if "{count}" in sql else 20
    return audit_sql(
        connecting(opened),
        sql.format(more=more),
        scripts,
        epsilon=claim or epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.1,
        batch=batch,
    )


@pytest.mark.parametrize("name", AUDITS)
def test_audit(opened: list[Any], name: str) -> None:
    report = audited(opened, name, 40 if "units" in name else 150)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AUDITS if "units" not in name])
def test_long_audit(opened: list[Any], name: str) -> None:
    """It sees what is lost, finds no more than the claim, and accuses the same call of a smaller one."""
    seen = AUDITS[name][3]
    report = audited(opened, name, 5000)
    assert report.verdict != "violates", str(report)
    assert report.epsilon_lower > seen, str(report)
    assert audited(opened, name, 5000, claim=seen).verdict == "violates"
