"""The law of what ``dp_kendall`` returns, against the exact law, by chi-square; and what it selects without noise.

A right release is rejected with probability at most 1e-6 per test. Noise scaled by 0.7 or 1.3 (which is what another
epsilon does) is rejected by the same test, on samples of full length, except with probability 1e-5.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest

import dpsql
import dpsql.mechanisms.one_shot
from dpsql.testing import Fit, SqlRelease, fit, runs_needed, to_arrow
from dpsql.testing.neighbours import Table, random_value
from dpsql.testing.sql import load
from support.cases import cases
from support.laws.kendall import KendallLaw
from support.sql_text import named

FALSE_ALARM = 1e-6
MISS = 1e-5
SHORT = 150
# Rare outputs tell little about the width of the noise: in long samples they share a cell.
CELL = 40
Outcome = tuple[str, ...]
Case = dict[str, Any]

FEATURES = tuple("abcdefgh")
# One feature that is the target, others that follow it and each other, with ties and missing values, and a constant.
TABLE: Table = (
    (0.0, 1.0, 0.0, 4.0, 5.0, 6.0, 3.0, 1.0, 0.0),
    (1.0, 0.0, 0.0, None, 5.0, 1.0, 6.0, 0.0, 1.0),
    (2.0, 3.0, 1.0, 3.0, 5.0, 4.0, 0.0, 0.0, 2.0),
    (3.0, None, 0.0, None, 5.0, 3.0, 5.0, 1.0, 3.0),
    (4.0, 5.0, 1.0, None, 5.0, 0.0, 4.0, 0.0, 4.0),
    (5.0, 7.0, 0.0, 3.0, 5.0, 7.0, 1.0, 0.0, 5.0),
    (6.0, 4.0, 1.0, None, 5.0, 2.0, 7.0, 1.0, 6.0),
    (7.0, 6.0, 1.0, 4.0, 5.0, 5.0, 2.0, 1.0, 7.0),
)
CASES: dict[str, Case] = {
    "one round": {"k": 1, "epsilon": 2},
    "default": {"k": 2, "epsilon": 5},
    "three rounds": {"k": 3, "epsilon": 8},
    "exponential": {"k": 2, "epsilon": 4, "mechanism": "exponential"},
    "scaled": {"k": 2, "epsilon": 6, "split": "scaled"},
    "exponential scaled": {"k": 2, "epsilon": 5, "mechanism": "exponential", "split": "scaled"},
    "replace": {"k": 2, "epsilon": 8, "neighbours": "replace"},
}
# Blocks and privacy units are for the table form alone.
TABLE_CASES: dict[str, Case] = {
    "one block": {"k": 2, "epsilon": 6, "blocks": 1, "row_id": "id"},
    "one block replace": {"k": 1, "epsilon": 6, "blocks": 1, "row_id": "id", "neighbours": "replace"},
    "unit": {"k": 2, "epsilon": 18, "split": "scaled", "privacy_unit": "id", "max_rows_per_unit": 3},
}
ALL_CASES = {**CASES, **TABLE_CASES}


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    load(opened, to_arrow(TABLE, (*FEATURES, "y")), "plain")
    opened.execute("CREATE TABLE t AS SELECT row_number() OVER (ORDER BY y) AS id, * FROM plain")
    yield opened
    opened.close()


@functools.cache
def exact_law(name: str, factor: float = 1.0) -> dict[Outcome, float]:
    """Return the law when noise is `factor` times as wide as it should be."""
    return KendallLaw(FEATURES, **scaled(name, factor)).law(in_one_block(TABLE))


def in_one_block(table: Table) -> Table:
    return tuple((*row, 0) for row in table)


@functools.cache
def runs_for(name: str) -> int:
    return max(
        runs_needed(exact_law(name), exact_law(name, factor), false_alarm=FALSE_ALARM, miss=MISS, minimum_expected=CELL)
        for factor in (0.7, 1.3)
    )


def scaled(name: str, factor: float = 1.0) -> Case:
    return {**ALL_CASES[name], "epsilon": ALL_CASES[name]["epsilon"] / factor}


def table_form(connection: Any, case: Case, runs: int, source: str = "t") -> list[Outcome]:
    sql = f"SELECT rank, feature FROM dp_kendall('{source}', target := 'y', features := {list(FEATURES)}, verdict_share := 0, {named(case)})"
    return [tuple(feature for _, feature in sorted(rows)) for rows in SqlRelease(connection, sql, batch=10)(runs)]


def aggregate_form(connection: Any, case: Case, runs: int) -> list[Outcome]:
    """Every group of a GROUP BY is a release of its own; all groups hold the same rows."""
    release = f"dp_kendall([{', '.join(FEATURES)}], y, names := {list(FEATURES)}, verdict_share := 0, {named(case)})"
    sql = (
        f"SELECT list_transform({release}, lambda entry: entry.feature) "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )
    return SqlRelease(connection, sql, batch=500)(runs)


def compare(outputs: Sequence[Outcome], law: dict[Outcome, float]) -> Fit:
    return fit(outputs, law, false_alarm=FALSE_ALARM, minimum_expected=CELL if len(outputs) > SHORT else 10)


def check(outputs: Sequence[Outcome], law: dict[Outcome, float]) -> None:
    result = compare(outputs, law)
    assert result.degrees > 0
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees in {len(outputs)} runs"


@cases("name", CASES)
def test_output_law_of_the_aggregate_form_in_short(connection: Any, name: str) -> None:
    """Sees noise that is absent, or a law of another kind; 0.7 and 1.3 need more samples."""
    check(aggregate_form(connection, CASES[name], SHORT), exact_law(name))


@pytest.mark.parametrize("name", ["default", *TABLE_CASES])
def test_output_law_of_the_table_form_in_short(connection: Any, name: str) -> None:
    check(table_form(connection, ALL_CASES[name], 80), exact_law(name))


def test_output_law_of_the_aggregate_form(connection: Any) -> None:
    check(aggregate_form(connection, CASES["scaled"], runs_for("scaled")), exact_law("scaled"))


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_output_law_of_scaled_noise_is_rejected(connection: Any, factor: float) -> None:
    outputs = aggregate_form(connection, scaled("scaled", factor), runs_for("scaled"))
    assert not compare(outputs, exact_law("scaled")).accepted


@pytest.mark.slow
@cases(
    ("form", "name"),
    [
        *((aggregate_form, name) for name in CASES),
        *((table_form, name) for name in ("default", "exponential scaled", *TABLE_CASES)),
    ],
)
def test_output_law_at_length(connection: Any, form: Any, name: str) -> None:
    law, runs = exact_law(name), runs_for(name)
    check(form(connection, ALL_CASES[name], runs), law)
    for factor in (0.7, 1.3):
        assert not compare(form(connection, scaled(name, factor), runs), law).accepted, factor


# --- the exact law itself, from definitions


def sign(a: Any, b: Any) -> int:
    return 0 if a is None or b is None else (a > b) - (a < b)


def slow_score(table: Table, i: int, j: int) -> int:
    """Concordant less discordant pairs, pair by pair; None and NaN tie with everything."""
    return sum(sign(p[i], q[i]) * sign(p[j], q[j]) for p, q in itertools.combinations(table, 2))


def slow_tau(table: Table, i: int, j: int) -> Fraction:
    return abs(Fraction(slow_score(table, i, j), max(1, len(table) - 1)))


def test_counts_are_the_definition() -> None:
    generator = random.Random(2)
    law, blocked = KendallLaw("abc", k=1, epsilon=1), KendallLaw("abc", k=1, epsilon=1, blocks=3, row_id="id")
    for rows in (0, 1, 2, 3, 7, 20):
        for _ in range(6):
            table = tuple(
                (*(generator.choice([random_value(generator, -1, 1), None, -0.0, 0.0, 1.0]) for _ in range(4)), block)
                for block in (generator.randrange(3) for _ in range(rows))
            )
            [(size, counts)] = law.statistic(table)
            assert size == rows
            assert counts == expected_counts(table)
            parts = [[row for row in table if row[-1] == block] for block in range(3)]
            sums: dict[int, list[Any]] = {}
            for part in filter(None, parts):
                sums.setdefault(len(part), []).append(expected_counts(tuple(part)))
            assert blocked.statistic(table) == tuple(
                (size, tuple(tuple(map(sum, zip(*rows, strict=True))) for rows in zip(*sums[size], strict=True)))
                for size in sorted(sums)
            )


def expected_counts(table: Table) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(slow_score(table, i, j) if i != j else 0 for j in range(3)) for i in range(4))


def test_first_round_is_a_softmax() -> None:
    """``P(j) = softmax(|tau_j| epsilon / (5/2 k))`` in the first of k rounds; 4, 3 and 6 where they are the range."""
    target = len(FEATURES)
    for more, spread in (({}, 2.5), ({"neighbours": "replace"}, 4), ({"blocks": 1, "row_id": "id"}, 3)):
        for k in (1, 2):
            weights = [math.exp(slow_tau(TABLE, j, target) * 6 / (spread * k)) for j in range(target)]
            law = KendallLaw(FEATURES, k=k, epsilon=6, **more).law(in_one_block(TABLE))
            for j, feature in enumerate(FEATURES):
                chance = math.fsum(p for outcome, p in law.items() if outcome[0] == feature)
                assert chance == pytest.approx(weights[j] / math.fsum(weights), rel=1e-12)


@pytest.mark.parametrize(("split", "shares"), [("even", (2, 2, 2)), ("scaled", (1.2, 2.4, 2.4))])
def test_later_rounds_are_softmaxes(split: str, shares: tuple[float, ...]) -> None:
    """``|tau_jy|`` less the mean of ``|tau_js|`` over the features s selected before, at twice the range."""
    target = len(FEATURES)
    law = KendallLaw(FEATURES, k=3, epsilon=6, split=split).law(TABLE)
    assert len(law) == 8 * 7 * 6
    for order in itertools.permutations(range(target), 3):
        chance = 1.0
        for number, winner in enumerate(order):
            chosen = order[:number]
            coefficient = shares[number] / (5 if chosen else 2.5)
            weights = {
                j: math.exp(
                    coefficient
                    * (slow_tau(TABLE, j, target) - sum(slow_tau(TABLE, j, s) for s in chosen) / max(1, number))
                )
                for j in range(target)
                if j not in chosen
            }
            chance *= weights[winner] / math.fsum(weights.values())
        assert law[tuple(FEATURES[j] for j in order)] == pytest.approx(chance, rel=1e-11)


def test_order_of_rows_is_irrelevant() -> None:
    generator = random.Random(4)
    for more in ({}, {"blocks": 2, "row_id": "id"}):
        law = KendallLaw(FEATURES, k=2, epsilon=6, **more)
        table = [(*row, number % 2) for number, row in enumerate(TABLE)]
        expected = law.law(tuple(table))
        for _ in range(5):
            generator.shuffle(table)
            assert law.law(tuple(table)) == expected


# --- blocks by the keyed hash of an id


def mixture(case: Case, blocks: int, table: Table) -> dict[Outcome, float]:
    """Return the law when every row falls into a block at random."""
    law = KendallLaw(FEATURES, blocks=blocks, row_id="id", **case)
    total: dict[Outcome, float] = {}
    for places in itertools.product(range(blocks), repeat=len(table)):
        for outcome, chance in law.law(tuple((*row, b) for row, b in zip(table, places, strict=True))).items():
            total[outcome] = total.get(outcome, 0.0) + chance / blocks ** len(table)
    return total


def fresh_blocks(connection: Any, runs: int) -> list[Outcome]:
    """Rows get new ids, and so other blocks, in every execution."""
    connection.execute("CREATE OR REPLACE VIEW fresh AS SELECT * REPLACE (uuid() AS id) FROM t WHERE y < 5")
    return table_form(connection, {"k": 1, "epsilon": 8, "blocks": 2, "row_id": "id"}, runs, "fresh")


def test_output_law_of_two_blocks_in_short(connection: Any) -> None:
    check(fresh_blocks(connection, 80), mixture({"k": 1, "epsilon": 8}, 2, TABLE[:5]))


@pytest.mark.slow
def test_output_law_of_two_blocks(connection: Any) -> None:
    outputs = fresh_blocks(connection, 1000)
    check(outputs, mixture({"k": 1, "epsilon": 8}, 2, TABLE[:5]))
    assert not compare(outputs, mixture({"k": 1, "epsilon": 8}, 1, TABLE[:5])).accepted


# --- what is selected when there is hardly any noise


def selected(connection: Any, columns: dict[str, str], rows: int = 60, **case: Any) -> list[str]:
    """Return what a call selects from columns that are given as expressions of the row's number i."""
    connection.execute(
        "CREATE OR REPLACE TABLE made AS SELECT i AS id, "
        + ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
        + f" FROM range({rows}) AS r(i)"
    )
    features = [name for name in columns if name != "y"]
    found = connection.execute(
        f"SELECT feature FROM dp_kendall('made', target := 'y', features := {features}, verdict_share := 0, "
        f"{named({'epsilon': 10**7, **case})}) ORDER BY rank"
    ).fetchall()
    return [feature for (feature,) in found]


MIXED = {"y": "i + 17 * (i * 37 % 60)", "part": "i * 37 % 60"}


@cases("more", [{}, {"mechanism": "exponential", "split": "scaled"}, {"blocks": 1, "row_id": "id"}])
@cases("column", ["i * 37 % 60", "-(i * 37 % 60) // 20", "(i * 37 % 60 > 30)::INTEGER"])
def test_two_copies_are_not_both_selected(connection: Any, column: str, more: Case) -> None:
    """A copy of a selected feature scores at most 0: what it tells of the target, it tells of the feature."""
    columns = {"y": MIXED["y"], "copy": column, "original": column, "other": "i"}
    chosen = selected(connection, columns, k=2, **more)
    assert len({"copy", "original"} & set(chosen)) == 1
    assert "other" in chosen


def test_a_copy_scores_at_most_zero() -> None:
    generator = random.Random(6)
    for _ in range(50):
        table = tuple((generator.randrange(3), generator.choice([None, 0, 1, 2, 3])) for _ in range(9))
        doubled = tuple((x, x, y) for x, y in table)
        assert slow_tau(doubled, 1, 2) <= slow_tau(doubled, 0, 1)


@pytest.mark.parametrize("value", ["5", "NULL::DOUBLE", "'nan'::DOUBLE", "'-inf'::DOUBLE"])
def test_a_constant_column_scores_nothing(connection: Any, value: str) -> None:
    columns = {"constant": value, "weak": "i % 2", "y": "i"}
    for more in ({}, {"blocks": 1, "row_id": "id"}):
        assert selected(connection, columns, k=1, **more) == ["weak"]
    law = KendallLaw("ab", k=1, epsilon=1).law(((5.0, 5.0, 0.0), (5.0, 5.0, 1.0)))
    assert law == pytest.approx({("a",): 0.5, ("b",): 0.5})


def test_order_of_rows_does_not_change_a_selection(connection: Any) -> None:
    """At this epsilon the best feature wins for certain, so any change would be one of the scores."""
    for i in ("i", "59 - i", "(i * 7 % 60)"):
        columns = {"y": f"({i}) // 7", "a": f"({i}) * 11 % 60", "b": f"({i}) * 13 % 60", "c": f"-({i}) // 9"}
        assert selected(connection, columns, k=3) == ["c", "a", "b"], i


@pytest.mark.parametrize("split", ["even", "scaled"])
def test_ranges_of_rounds_units_and_relations(connection: Any, monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    """What every draw is given: epsilon's share, and the range, which grows with the rows of a unit."""
    given: list[tuple[Fraction, Fraction]] = []
    draw = dpsql.mechanisms.one_shot.select

    def spied(utility: Any, **options: Any) -> Any:
        # Scores are in units of 1 / (2 (n - 1) (features selected before)), 1 for the first round.
        given.append((Fraction(options["utility_range"], 2 * 7), options["epsilon"]))
        return draw(utility, **options)

    monkeypatch.setattr(dpsql.mechanisms.one_shot, "select", spied)
    first = {"even": Fraction(1), "scaled": Fraction(2, 3)}[split]
    for more, spread in (
        ({}, Fraction(5, 2)),
        ({"neighbours": "replace"}, 4),
        ({"blocks": 1, "row_id": "id"}, 3),
        ({"blocks": 1, "row_id": "id", "neighbours": "replace"}, 6),
    ):
        for rows in (1, 3):
            given.clear()
            unit = {"privacy_unit": "id", "max_rows_per_unit": rows}
            table_form(connection, {"k": 2, "epsilon": 2, "split": split, **more, **unit}, 1)
            assert given == [(rows * spread, first), (2 * rows * spread, 2 - first)]
