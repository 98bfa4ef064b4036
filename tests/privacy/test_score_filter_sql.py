"""dp_score_filter through SQL on neighbouring tables: what it costs, planted faults, laws and audits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.functions.feature_counts import Counts
from dpsql.functions.score_filter import ScoreFilterPlan
from dpsql.testing import audit_sql
from dpsql.testing.distribution import fit, runs_needed
from support.audits import connecting
from support.broken.filters import BROKEN_FILTERS, broken_filter
from support.cases import cases
from support.laws.filters import (
    FilterCall,
    filter_law,
    observe_filter,
    score_loss,
    sparse_vector_run_law,
    vocabulary_delta,
)
from support.sessions import one_key

NAMES = [f"w{j:02d}" for j in range(12)]
# Half of the words are in positive documents, half in negative ones: a row moves some scores up and others down.
DOCUMENTS = (
    "SELECT i AS doc, i % 40 AS person, (i % 2)::INT AS label, unnest(list_transform(range(3), "
    "lambda j: printf('w%02d', (i % 2) * 6 + (i // 2 + j) % 6))) AS token FROM range(240) AS r(i)"
)
FULL = "unnest(list_transform(range(0, 12, 3), lambda j: printf('w%02d', j)))"  # four words of both kinds
WIDE_ROW = "unnest(list_transform(range(12), lambda j: printf('w%02d', j)))"
REST = "unnest(list_transform(range(1, 12, 3), lambda j: printf('w%02d', j)))"  # four other words
ECHO = "unnest(['w00', 'w00', 'w00', 'w00', 'w03'])"
OWN = "unnest(list_transform(range(4), lambda j: 'own ' || j))"
R, UNIT = 4, 3


def document(doc: int, label: int, tokens: str = FULL, person: int = 1000) -> str:
    return f"SELECT {doc} AS doc, {person} AS person, {label} AS label, {tokens} AS token"


# Each is a neighbour of the table `t`: under add_remove, under replace of document 1, or of the unit that has 1000.
TABLES = {
    "t": "FROM documents",
    "more": f"FROM documents UNION ALL {document(1000, 1)}",
    "more negative": f"FROM documents UNION ALL {document(1000, 0)}",
    "longer": f"FROM documents UNION ALL {document(1000, 1, WIDE_ROW)}",
    "less": "FROM documents WHERE doc <> 1",
    "echo": f"FROM documents UNION ALL {document(1000, 1, ECHO)}",
    "no label": f"FROM documents UNION ALL {document(1000, 5)}",
    "words of its own": f"FROM documents UNION ALL {document(1000, 1, OWN)}",
    "before": f"FROM documents UNION ALL {document(1000, 0)}",
    "flipped": f"FROM documents UNION ALL {document(1000, 1)}",
    "rest": f"FROM documents UNION ALL {document(1000, 1, REST)}",
    "other": f"FROM documents UNION ALL {document(1000, 1, OWN)}",
    "unit": "FROM documents" + "".join(f" UNION ALL {document(1000 + i, 1)}" for i in range(UNIT)),
    "unit of many": "FROM documents" + "".join(f" UNION ALL {document(1000 + i, 1)}" for i in range(30)),
    "unit before": "FROM documents" + "".join(f" UNION ALL {document(1000 + i, 0)}" for i in range(UNIT)),
    "unit rest": "FROM documents" + "".join(f" UNION ALL {document(1000 + i, 1, REST)}" for i in range(UNIT)),
    "unit words": "FROM documents" + "".join(f" UNION ALL {document(1000 + i, 1, OWN)}" for i in range(UNIT)),
}
PAIRS = {
    "add_remove": [
        ("t", "more"),
        ("t", "more negative"),
        ("t", "longer"),
        ("t", "echo"),
        ("less", "t"),
        ("t", "no label"),
        ("t", "words of its own"),
    ],
    "replace": [
        ("before", "flipped"),
        ("before", "rest"),
        ("before", "other"),
        ("flipped", "no label"),
        ("before", "longer"),
    ],
}
UNIT_PAIRS = {
    "add_remove": [("t", "unit"), ("t", "unit of many"), ("t", "unit words"), ("t", "longer")],
    "replace": [
        ("unit before", "unit"),
        ("unit before", "unit rest"),
        ("unit before", "unit of many"),
        ("unit before", "unit words"),
        ("unit", "more"),
    ],
}
METHODS: dict[str, dict[str, Any]] = {
    "laplace": {"method": "laplace", "threshold": 5},
    "gaussian": {"method": "gaussian", "threshold": 5, "delta": 1e-5},
    "svt": {"method": "svt", "threshold": 5, "cutoff": 3},
    "gumbel": {"method": "gumbel", "k": 2},
    "canonical_lipschitz": {"method": "canonical_lipschitz", "k": 2},
    "cluster": {"method": "cluster"},
}
SCORES = ("total_count", "difference_count", "purity", "information_gain")
EPSILON, SHARE = 1, Fraction(1, 5)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    opened.execute(f"CREATE TABLE documents AS {DOCUMENTS}")
    for name, rows in TABLES.items():
        opened.execute(f'CREATE TABLE "{name}" AS {rows}')
    # One key for all calls, which keeps the rows by which the tables differ.
    with one_key(b"a sample of rows"):
        yield opened
    opened.close()


def seen(con: Any, table: str, more: dict[str, Any]) -> FilterCall:
    given: dict[str, Any] = {
        "target": "label",
        "features": "token",
        "row_id": "doc",
        "names": NAMES,
        "epsilon": EPSILON,
        "max_features_per_row": R,
        "dataset": "d",
        **more,
    }
    given = {name: value for name, value in given.items() if value is not None}
    text = ", ".join(f"{name} := {value!r}" for name, value in given.items())
    return observe_filter(lambda: con.execute(f"""FROM dp_score_filter('"{table}"', {text})""").fetchall(), names=NAMES)


def arguments(method: str, score: str, relation: str, unit: bool) -> dict[str, Any]:
    more = {**METHODS[method], "score": score, "neighbours": relation}
    if score == "information_gain" and method in ("svt", "gumbel", "canonical_lipschitz"):
        more["n_max"] = 200  # fewer than there are: an added row replaces another
    return more | ({"privacy_unit": "person", "max_rows_per_unit": UNIT} if unit else {})


def allowed(method: str) -> float:
    return float(gaussian_mu(Fraction(EPSILON), Fraction("1e-5"))) if method == "gaussian" else float(EPSILON)


def largest(con: Any, more: dict[str, Any], unit: bool) -> float:
    pairs = (UNIT_PAIRS if unit else PAIRS)[more["neighbours"]]
    calls = {table: seen(con, table, more) for table in {table for pair in pairs for table in pair}}
    return max(score_loss(calls[first], calls[second]) for first, second in pairs)


def every_call() -> Iterator[Any]:
    """Every method, score and relation, of single rows and of units; the fast ones have each method and each score."""
    for method, score, relation, unit in itertools.product(METHODS, SCORES, PAIRS, (False, True)):
        single = (relation == "add_remove" and not unit) and (
            score == "difference_count" or method in ("gaussian", "svt")
        )
        fast = single or (score == "difference_count" and relation == "replace" and unit)
        yield pytest.param(method, score, relation, unit, marks=[] if fast else [pytest.mark.slow])


@cases(("method", "score", "relation", "unit"), list(every_call()))
def test_neighbours_cost_what_was_charged(con: Any, method: str, score: str, relation: str, unit: bool) -> None:
    loss = largest(con, arguments(method, score, relation, unit), unit)
    assert loss <= allowed(method) * (1 + 1e-6)
    # The worst rows for sums are among the pairs; exact information scores move most in tables of few rows.
    sums = method in ("laplace", "gaussian") or (method == "cluster" and relation == "add_remove")
    assert loss > (0.9 if sums else 0.02) * allowed(method)


# Method, score, relation, whether of units, and the tables that show it.
FAULTS: dict[str, tuple[str, str, str, bool, tuple[str, str]]] = {
    "added rows only": ("laplace", "total_count", "replace", False, ("before", "rest")),
    "free labels": ("laplace", "purity", "add_remove", False, ("t", "more")),
    "footprint": ("gaussian", "difference_count", "replace", False, ("before", "flipped")),
    "norms of one row": ("gaussian", "difference_count", "add_remove", True, ("t", "unit")),
    "range of one row": ("gumbel", "total_count", "add_remove", True, ("t", "unit")),
    "sensitivity as range": ("gumbel", "difference_count", "add_remove", False, ("t", "more")),
    "all scores are monotone": ("svt", "difference_count", "add_remove", False, ("t", "more")),
    "row sensitivity": ("svt", "total_count", "add_remove", True, ("t", "unit")),
    "unlimited rows": ("laplace", "total_count", "add_remove", False, ("t", "longer")),
    "repeated features": ("gaussian", "total_count", "add_remove", False, ("t", "echo")),
    "shares rounded up": ("laplace", "total_count", "add_remove", False, ("t", "longer")),
}
# The loss that a fault must show over what was charged: roundings are a few millionths of it.
SHOWN = {"shares rounded up": 1e-6}


@cases("fault", FAULTS)
def test_faults_cost_more_than_was_charged(con: Any, fault: str) -> None:
    method, score, relation, unit, pair = FAULTS[fault]
    more = arguments(method, score, relation, unit)
    for planted in (False, True):
        with broken_filter(fault) if planted else nullcontext():
            loss = score_loss(*(seen(con, table, more) for table in pair))
        assert (loss > allowed(method) * (1 + SHOWN.get(fault, 0.05))) == planted, loss


@pytest.mark.parametrize("planted", [False, True])
def test_equal_rows_of_both_classes_differ_by_nothing(con: Any, planted: bool) -> None:
    """The error that is stated holds everything there is: no choice of features is left that could differ by class."""
    con.execute(
        f"CREATE OR REPLACE TABLE equal AS SELECT i AS doc, i % 2 AS label, {WIDE_ROW} AS token FROM range(600) AS r(i)"
    )
    more = {**arguments("laplace", "difference_count", "add_remove", False), "names": NAMES}
    with broken_filter("label chooses") if planted else nullcontext():
        found = seen(con, "equal", more)
    assert any(found.statistic) == planted


VOCABULARY: dict[str, Any] = {
    "names": None,
    "vocabulary": "private",
    "vocabulary_share": 0.2,
    "delta": 1e-3,
    "method": "laplace",
    "threshold": 5,
}


@cases("unit", [False, True])
@cases("relation", ["add_remove", "replace"])
@cases(
    ("method", "epsilon"),
    [
        ("gaussian", 1),
        ("laplace", 40),
        pytest.param("laplace", 1, marks=pytest.mark.slow),
        pytest.param("gaussian", 40, marks=pytest.mark.slow),
    ],
)
def test_a_private_vocabulary_costs_what_was_charged(
    con: Any, method: str, relation: str, unit: bool, epsilon: int
) -> None:
    more = {**VOCABULARY, "neighbours": relation, "method": method, "epsilon": epsilon}
    more |= {"privacy_unit": "person", "max_rows_per_unit": UNIT} if unit else {}
    tables = (UNIT_PAIRS if unit else PAIRS)[relation]
    calls = {table: seen(con, table, more) for table in {table for pair in tables for table in pair}}
    pairs = [(calls[first], calls[second]) for first, second in tables]
    part = Fraction(1, 1000) * (SHARE if method == "gaussian" else 1)
    largest_delta = max(vocabulary_delta(first, second, float(SHARE) * epsilon) for first, second in pairs)
    assert 0 < largest_delta <= float(part) * (1 + 1e-9)
    # The scores of the names that came out cost the rest.
    rest = (1 - SHARE) * epsilon
    mu = float(gaussian_mu(rest, Fraction(1, 1000) * (1 - SHARE)))
    loss = max(score_loss(first, second) for first, second in pairs)
    assert loss <= (mu if method == "gaussian" else float(rest)) * (1 + 1e-6)


@pytest.mark.parametrize(("fault", "epsilon"), [("threshold of one", 60), ("vocabulary of one row", 10)])
def test_faults_of_the_vocabulary(con: Any, fault: str, epsilon: int) -> None:
    more = {
        **VOCABULARY,
        "neighbours": "add_remove",
        "epsilon": epsilon,
        "privacy_unit": "person",
        "max_rows_per_unit": UNIT,
    }
    for planted in (False, True):
        with broken_filter(fault) if planted else nullcontext():
            calls = [seen(con, table, more) for table in ("t", "unit", "unit words")]
            delta = max(vocabulary_delta(calls[0], call, float(SHARE) * epsilon) for call in calls[1:])
        assert (delta > 1.5e-3) == planted, delta


def test_a_free_vocabulary_tells_who_is_there(con: Any) -> None:
    text = (
        "FROM dp_score_filter('\"words of its own\"', target := 'label', features := 'token', row_id := 'doc', "
        "vocabulary := 'private', delta := 1e-6, epsilon := 5, threshold := 0, false_positives := 1000, dataset := 'd')"
    )
    for planted in (False, True):
        with broken_filter("free vocabulary") if planted else nullcontext():
            names = {row[1] for row in con.execute(text).fetchall()}
        assert any(name.startswith("own") for name in names) == planted


def test_every_fault_is_planted_somewhere() -> None:
    assert {*FAULTS, "label chooses", "threshold of one", "vocabulary of one row", "free vocabulary"} == set(
        BROKEN_FILTERS
    )


def test_a_limit_of_rows_takes_one_for_another(con: Any) -> None:
    """Some added row enters the 200 that count and pushes another out: words that it does not have lose a row."""
    more = {**arguments("svt", "information_gain", "add_remove", False), "names": NAMES}
    pushed = 0
    before = seen(con, "t", more)
    for doc in range(1000, 1012):
        con.execute(f"CREATE OR REPLACE TABLE entered AS FROM documents UNION ALL {document(doc, 1)}")
        after = seen(con, "entered", more)
        pushed += after.statistic != before.statistic
        assert score_loss(before, after) <= 1
    assert pushed > 4


ARRAY = "CREATE TABLE t AS SELECT unnest([{labels}]) AS y, unnest([{rows}]) AS x"
GROUPS = " FROM t, range({count}) AS r(copy) GROUP BY copy"


def array_table(rows: list[tuple[int, list[int]]]) -> str:
    return ARRAY.format(
        labels=", ".join(str(label) for label, _ in rows), rows=", ".join(map(str, (bits for _, bits in rows)))
    )


CALLS = {
    "laplace": "dp_score_filter(x, y, present_above := 0, n_features := 3, epsilon := {epsilon}, method := 'laplace', threshold := 3, "
    "score := 'difference_count', max_features_per_row := 3, false_positives := 3, dataset := 'd')",
    "svt": "dp_score_filter(x, y, present_above := 0, n_features := 3, epsilon := {epsilon}, method := 'svt', cutoff := 2, threshold := 3, "
    "score := 'total_count', dataset := 'd')",
}
LAW_ROWS = [(1, [1, 1, 0])] * 4 + [(0, [0, 1, 1])] * 3
LAW_COUNTS = Counts(np.array([4, 4, 0]), np.array([0, 3, 3]), 4, 3)


def output(rows: Any) -> Any:
    return tuple(int(row["feature"][2:-1]) - 1 for row in rows)


@pytest.mark.parametrize("method", ["laplace", pytest.param("svt", marks=pytest.mark.slow)])
def test_draws_through_sql_follow_the_exact_law(method: str) -> None:
    epsilon = 3

    def law(at: Fraction) -> dict[Any, float]:
        more: dict[str, Any] = {
            "laplace": {
                "method": "laplace",
                "false_positives": 3,
                "max_features_per_row": 3,
                "score": "difference_count",
            },
            "svt": {"method": "svt", "cutoff": 2, "score": "total_count"},
        }[method]
        plan = ScoreFilterPlan.from_arguments(
            "t", {"target": "y", "features": ["a", "b", "c"], "epsilon": at, "threshold": 3, **more}
        )
        if method == "laplace":
            return filter_law(plan, LAW_COUNTS)
        merged: dict[Any, float] = {}
        level = plan.sparse_vector.level(Fraction(plan.applied_threshold(3)))
        for (above, _), chance in sparse_vector_run_law([4, 7, 3], plan.sparse_vector, level=level).items():
            merged[above] = merged.get(above, 0.0) + chance
        return merged

    right = law(Fraction(epsilon))
    with dpsql.connect() as con:
        con.execute(array_table(LAW_ROWS))

        def drawn(at: Any, runs: int) -> list[Any]:
            text = f"SELECT {CALLS[method].format(epsilon=float(at))}{GROUPS.format(count=runs)}"
            found = [output(rows) for (rows,) in con.execute(text).fetchall()]
            return [frozenset(names) for names in found] if method == "laplace" else found

        runs = 500
        for factor in (Fraction(7, 10), Fraction(13, 10)):
            # The law of the wrong noise has the wrong shift of the threshold too.
            needed = runs_needed(right, law(epsilon / factor), false_alarm=1e-6, miss=1e-3)
            runs = max(runs, min(needed, 4000))
            assert not fit(drawn(round(float(epsilon / factor), 6), min(needed, 4000)), right).accepted
        assert fit(drawn(epsilon, runs), right).accepted


AUDITS = {
    "laplace": "dp_score_filter(x, y, present_above := 0, n_features := 2, epsilon := 2, method := 'laplace', threshold := 1, "
    "score := 'difference_count', max_features_per_row := 2, false_positives := 2, dataset := 'd')",
    "svt": "dp_score_filter(x, y, present_above := 0, n_features := 2, epsilon := 2, method := 'svt', cutoff := 1, threshold := 2, "
    "score := 'difference_count', dataset := 'd')",
    "one_shot": "dp_score_filter(x, y, present_above := 0, n_features := 2, epsilon := 2, method := 'one_shot', k := 1, "
    "score := 'difference_count', max_features_per_row := 2, dataset := 'd')",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fault"),
    [("laplace", None), ("svt", None), ("one_shot", None), ("one_shot", "sensitivity as range")],
)
def test_audit(method: str, fault: str | None, opened: list[Any]) -> None:
    """One row more, and the first feature's score rises from one behind to one ahead of the second's."""
    base = [(1, [1, 0])] * 3 + [(0, [0, 1])] * 4
    tables = (array_table(base), array_table([*base, (1, [1, 1])]))

    with nullcontext() if fault is None else broken_filter(fault):
        report = audit_sql(
            connecting(opened), f"SELECT {AUDITS[method]}{GROUPS}", tables, epsilon=2, runs=1200, batch=400, power=0.1
        )
    assert (report.epsilon_lower <= 2) == (fault is None), str(report)
