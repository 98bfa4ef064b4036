"""``dp_sis`` with ``score := 'rank'``: its exact law on small domains and through SQL, and audits on neighbours.

A right release is rejected with probability at most 1e-6 per test. Noise scaled by 0.7 or 1.3 (which is what another
epsilon does) is rejected by the same test, except with probability 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.testing import SqlRelease, audit_sql, check_exhaustively, fit, runs_needed, to_arrow
from dpsql.testing.neighbours import Table
from dpsql.testing.sql import load
from support.audits import connecting
from support.cases import cases
from support.laws.kendall import KendallLaw
from support.laws.rank import Outcome, RankLaw
from support.sql_text import named

FALSE_ALARM, MISS = 1e-6, 1e-5
CONFIDENCE = 1 - 1e-6
Case = dict[str, Any]
MECHANISMS = ("one_shot", "gumbel", "canonical_lipschitz")

FEATURES = tuple("abcde")
# One feature follows the target, others less so, with ties and missing values, and a constant. The target has a third
# value, 3, beside the levels 0 and 1.
ROWS: Table = (
    (0.0, 1.0, 0.0, None, 5.0),
    (1.0, 0.0, 0.0, 2.0, 5.0),
    (2.0, 3.0, 1.0, None, 5.0),
    (3.0, None, 0.0, 1.0, 5.0),
    (4.0, 5.0, 1.0, 2.0, 5.0),
    (5.0, 7.0, 0.0, 3.0, 5.0),
    (6.0, 4.0, 1.0, None, 5.0),
    (7.0, 6.0, 1.0, 0.0, 5.0),
)
NUMERIC: Table = tuple((*row, float(i)) for i, row in enumerate(ROWS))
LABELLED: Table = tuple(
    (*row, label) for row, label in zip(ROWS, (0.0, 0.0, 3.0, 0.0, 1.0, 1.0, None, 1.0), strict=True)
)
LEVELS: Case = {"target_levels": [0, 1]}
CASES: dict[str, tuple[str, Case]] = {
    "one_shot": ("numeric", {"k": 2, "epsilon": 8}),
    "gumbel, two levels": ("labelled", {"k": 2, "epsilon": 12, "mechanism": "gumbel", **LEVELS}),
    "canonical, replace": (
        "numeric",
        {"k": 2, "epsilon": 12, "mechanism": "canonical_lipschitz", "neighbours": "replace"},
    ),
    "canonical, two levels": ("labelled", {"k": 3, "epsilon": 8, "mechanism": "canonical_lipschitz", **LEVELS}),
}
TABLES = {"numeric": NUMERIC, "labelled": LABELLED}


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    for name, table in TABLES.items():
        load(opened, to_arrow(table, (*FEATURES, "y")), name)
    yield opened
    opened.close()


def scaled(case: Case, factor: float) -> Case:
    return {**case, "epsilon": case["epsilon"] / factor}


def exact_law(name: str, factor: float = 1.0) -> dict[Outcome, float]:
    """Return the law when noise is `factor` times as wide as it should be."""
    table, case = CASES[name]
    return RankLaw(FEATURES, **scaled(case, factor)).law(TABLES[table])


def table_form(connection: Any, name: str, runs: int) -> list[Outcome]:
    table, case = CASES[name]
    sql = f"SELECT rank, feature FROM dp_sis('{table}', target := 'y', score := 'rank', verdict_share := 0, {named(case)})"
    return [tuple(feature for _, feature in sorted(rows)) for rows in SqlRelease(connection, sql, batch=10)(runs)]


def aggregate_form(connection: Any, name: str, runs: int, factor: float = 1.0) -> list[Outcome]:
    """Every group of a GROUP BY is a release of its own; all groups hold the same rows."""
    table, case = CASES[name]
    given = f"names := {list(FEATURES)}, score := 'rank', verdict_share := 0, {named(scaled(case, factor))}"
    sql = (
        f"SELECT list_transform(dp_sis([{', '.join(FEATURES)}], y, {given}), lambda entry: entry.feature) "
        f"FROM {table}, range({{count}}) AS r(copy) GROUP BY copy"
    )
    return SqlRelease(connection, sql, batch=500)(runs)


# --- the law through SQL


@pytest.mark.parametrize("name", CASES)
def test_output_law_of_the_table_form(connection: Any, name: str) -> None:
    """A small sample: enough to see noise that is absent or of another order."""
    result = fit(table_form(connection, name, 80), exact_law(name), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.parametrize("name", CASES)
def test_output_law_of_the_aggregate_form_in_short(connection: Any, name: str) -> None:
    result = fit(aggregate_form(connection, name, 150), exact_law(name), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_output_law_of_the_aggregate_form(connection: Any, name: str) -> None:
    law = exact_law(name)
    runs = max(runs_needed(law, exact_law(name, factor), false_alarm=FALSE_ALARM, miss=MISS) for factor in (0.7, 1.3))
    right = fit(aggregate_form(connection, name, runs), law, false_alarm=FALSE_ALARM)
    assert right.accepted, f"chi-square {right.statistic:.1f} on {right.degrees} degrees in {runs} runs"
    for factor in (0.7, 1.3):
        outputs = aggregate_form(connection, name, runs, factor)
        assert not fit(outputs, law, false_alarm=FALSE_ALARM).accepted, factor


# --- what the law is


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_one_feature_by_gumbel_noise_is_the_first_round_of_dp_kendall(neighbours: str) -> None:
    given: Case = {"k": 1, "epsilon": 3, "mechanism": "gumbel", "neighbours": neighbours}
    assert RankLaw(FEATURES, **given).law(NUMERIC) == pytest.approx(KendallLaw(FEATURES, **given).law(NUMERIC))


@pytest.mark.parametrize(
    ("table", "more", "spread"),
    [
        (NUMERIC, {}, 2.5),
        (NUMERIC, {"neighbours": "replace"}, 4),
        (LABELLED, LEVELS, 2),
        (LABELLED, {**LEVELS, "neighbours": "replace"}, 4),
    ],
)
def test_gumbel_noise_is_a_softmax_of_the_scores(table: Table, more: Case, spread: float) -> None:
    """``P(j) = softmax(|S_j| / (n - 1) epsilon / range)``, with S counted pair by pair."""
    levels = "target_levels" in more

    def sign(one: Any, other: Any) -> int:
        return 0 if None in (one, other) else (one > other) - (one < other)

    targets = [None if levels and row[-1] == 3 else row[-1] for row in table]
    taus = [
        abs(
            sum(
                sign(table[i][j], table[other][j]) * sign(targets[i], targets[other])
                for i in range(len(table))
                for other in range(i)
            )
        )
        / (len(table) - 1)
        for j in range(len(FEATURES))
    ]
    weights = np.exp(np.array(taus) * 6 / spread)
    law = RankLaw(FEATURES, k=1, epsilon=6, mechanism="gumbel", **more).law(table)
    assert [law[feature,] for feature in FEATURES] == pytest.approx((weights / weights.sum()).tolist(), rel=1e-11)
    assert taus[-1] == 0  # the constant


@pytest.mark.parametrize(("table", "more"), [(NUMERIC, {}), (LABELLED, LEVELS)])
def test_monotone_transforms_leave_the_law_unchanged(table: Table, more: Case) -> None:
    """Increasing ones, and decreasing ones too, because scores are absolute."""
    changes = (math.exp, lambda v: -(v**3), lambda v: 1e300 * v, lambda v: math.atan(v) - 7, lambda v: v)
    changed = tuple(
        (*(None if v is None else change(v) for v, change in zip(row, changes, strict=False)), row[-1]) for row in table
    )
    for mechanism in MECHANISMS:
        law = RankLaw(FEATURES, k=2, epsilon=6, mechanism=mechanism, **more)
        assert law.law(changed) == law.law(table)


def test_a_constant_column_and_tables_without_pairs_score_nothing() -> None:
    law = RankLaw(FEATURES, k=1, epsilon=1)
    assert law.statistic(NUMERIC)[0][-1] == 0
    for rows in (0, 1):
        assert law.statistic(NUMERIC[:rows]) == ((0,) * 5, 5)


# --- privacy: exhaustively, and by audit


@cases("neighbours", ["add_remove", "replace"])
@cases("mechanism", MECHANISMS)
@cases("levels", [{}, {"target_levels": [0, 2]}], ids=["numeric", "two levels"])
def test_exhaustively(levels: Case, mechanism: str, neighbours: Any) -> None:
    domain: list[Any] = [(0.0, 0.0, 0.0), (1.0, 0.0, 2.0), (0.0, 1.0, 2.0), (None, -1.0, 1.0), (1.0, None, 0.0)]
    epsilon = Fraction(2)
    law = RankLaw("ab", k=1, epsilon=epsilon, mechanism=mechanism, neighbours=neighbours, **levels)
    report = check_exhaustively(law.law, domain, 4, neighbours, key=law.statistic)
    assert report.within(epsilon), str(report)


# One row more denies the one row of its level, which feature a had followed, and starts b.
TWO_LEVELS: tuple[Table, Table] = (
    ((1.0, 0.0, 1.0), *((0.0, 0.0, 0.0),) * 8),
    ((1.0, 0.0, 1.0), *((0.0, 0.0, 0.0),) * 8, (-1.0, 1.0, 1.0)),
)
FOLLOWING: tuple[Table, Table] = (
    tuple((float(i), 0.0, float(i)) for i in range(5)),
    (*((float(i), 0.0, float(i)) for i in range(5)), (-99.0, 1.0, 99.0)),
)
AUDITED = [(TWO_LEVELS, LEVELS), (FOLLOWING, {})]


def audited(case: Case, epsilon: float) -> str:
    return (
        f"SELECT dp_sis([a, b], y, names := ['a', 'b'], k := 1, epsilon := {epsilon}, score := 'rank', verdict_share := 0, {named(case)})"
        "[1].feature FROM t, range({count}) AS r(copy) GROUP BY copy"
    ).replace(", )", ")")


@pytest.mark.parametrize(("pair", "case"), AUDITED, ids=["two levels", "numeric"])
def test_loss_on_the_audited_pair_is_large(pair: tuple[Table, Table], case: Case) -> None:
    law = RankLaw("ab", k=1, epsilon=2, **case)
    first, second = map(law.law, pair)
    assert 1.4 < max(abs(math.log(first[output] / second[output])) for output in first) <= 2 * (1 + 1e-9)


@cases(("pair", "case"), AUDITED, ids=["two levels", "numeric"])
@cases(
    ("given", "runs"),
    [
        pytest.param(2, 400, marks=pytest.mark.long, id="right"),
        pytest.param(8, 800, marks=pytest.mark.long, id="a quarter of the noise"),
        pytest.param(2, 2000, marks=pytest.mark.slow, id="right, at length"),
        pytest.param(4, 2000, marks=pytest.mark.slow, id="half the noise"),
    ],
)
def test_audit(opened: list[Any], pair: tuple[Table, Table], case: Case, given: int, runs: int) -> None:
    """The release is given `given`; the audit is told 2."""
    arrow = to_arrow(pair[0], ("a", "b", "y")), to_arrow(pair[1], ("a", "b", "y"))
    report = audit_sql(
        connecting(opened),
        audited(case, given),
        arrow,
        epsilon=2.0,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=500,
    )
    assert (report.verdict == "violates") == (given > 2), str(report)
