"""How far one privacy unit moves counts of features by label, and the scores made of them: every table of a domain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.errors import ParameterError
from dpsql.noise.discrete import LARGEST_SCALE
from dpsql.statistics.feature_counts import (
    INFORMATION_UNIT,
    LARGEST_ROWS,
    RELEASED,
    RELEASED_FOR,
    SCORES,
    exact_scores,
    fixed_denominator,
    information_sensitivity,
    is_monotone,
    released_norms,
    score_range,
    score_sensitivity,
)
from dpsql.statistics.presence import FeatureCounts, NameCounts
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases

COUNTED = [score for score in SCORES if score != "information_gain"]
ONE = 1 << 20
# Number of features, most of them in a row.
WIDTHS = [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]


def kinds(d: int, r: int) -> np.ndarray:
    """Return every row there is as what it adds to (n11, n10, n1, n0); the first has no label."""
    rows = [np.zeros(2 * d + 2, np.int64)]
    for ones in itertools.product((0, 1), repeat=d):
        if sum(ones) <= r:
            rows.append(np.array([*ones, *[0] * d, 1, 0]))
            rows.append(np.array([*[0] * d, *ones, 0, 1]))
    return np.array(rows)


def units(rows: np.ndarray, most: int) -> np.ndarray:
    """Return every unit of 1 to `most` rows."""
    return np.unique(
        [
            rows[list(chosen)].sum(axis=0)
            for size in range(1, most + 1)
            for chosen in itertools.combinations_with_replacement(range(len(rows)), size)
        ],
        axis=0,
    )


def tables(rows: np.ndarray, most: int) -> np.ndarray:
    """Return the counts of every table of at most `most` rows; shape (tables, 2 d + 2)."""
    found = {tuple([0] * rows.shape[1])}
    for _ in range(most):
        found |= {tuple(np.add(table, row).tolist()) for table in found for row in rows}
    return np.array(sorted(found))


def neighbours(rows: np.ndarray, most: int, unit: int, relation: Relation) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield neighbouring counts, all base tables of at most `most` rows at a time."""
    base, members = tables(rows, most), units(rows, unit)
    if relation == "add_remove":
        yield from ((base, base + member) for member in members)
    else:
        yield from ((base + a, base + b) for a, b in itertools.combinations(members, 2))


def released(kind: str, counts: np.ndarray, d: int) -> np.ndarray:
    positives, negatives, labels = counts[..., :d], counts[..., d : 2 * d], counts[..., 2 * d :]
    parts = {
        "totals": [positives + negatives],
        "differences": [positives - negatives],
        "differences_and_labels": [positives - negatives, labels[..., :1] - labels[..., 1:]],
        "counts": [positives, negatives],
        "counts_and_labels": [positives, negatives, labels],
    }[kind]
    return np.concatenate(parts, axis=-1)


def scores_of(score: str, counts: np.ndarray, d: int) -> np.ndarray:
    """The scores by their definition, of many tables at once."""
    n11, n10 = counts[..., :d], counts[..., d : 2 * d]
    n01, n00 = counts[..., 2 * d, None] - n11, counts[..., 2 * d + 1, None] - n10
    return {
        "total_count": n11 + n10,
        "difference_count": abs(n11 - n10),
        "purity": np.maximum(abs(n11 - n10), abs(n01 - n00)),
    }[score]


@cases("relation", RELATIONS, quick=1)
@cases(
    ("d", "r", "unit"),
    [
        *((d, r, unit) for d, r in WIDTHS for unit in (1, 2)),
        (4, 1, 1),
        (4, 2, 1),
        (4, 1, 2),
        pytest.param(4, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_released_numbers_move_as_stated(d: int, r: int, unit: int, relation: Relation) -> None:
    """Counts are sums over rows, so the rest of the table does not matter: the empty one stands for all."""
    for kind in RELEASED:
        moves = [
            (released(kind, second, d) - released(kind, first, d))[0]
            for first, second in neighbours(kinds(d, r), 0, unit, relation)
        ]
        norms = released_norms(kind, relation, max_features_per_row=r, n_features=d, max_rows_per_unit=unit)
        assert max(abs(move).sum() for move in moves) == norms.l1
        assert max((move**2).sum() for move in moves) == norms.squared_l2
        unknown = released_norms(kind, relation, max_features_per_row=r, max_rows_per_unit=unit)
        assert unknown.l1 >= norms.l1
        assert unknown.squared_l2 >= norms.squared_l2


def crowded(d: int, r: int, one: int = ONE) -> np.ndarray:
    """Return every row there is, of any number of features, as what the fold adds up for it; sizes in the same unit."""
    found = [np.zeros(2 * d + 2, np.int64)]
    for ones in itertools.product((0.0, 1.0), repeat=d):
        for label in (1.0, -1.0):
            counts = FeatureCounts(d, r, denominator=one)
            counts.add(np.array([label]), np.array([ones]).T, Batch())
            found.append(counts.counts * np.array([1] * 2 * d + [one] * 2))
    return np.array(found)


CROWDED = [(2, 1), (3, 1), (3, 2), (4, 1), (4, 3), (7, 3)]


@cases("one", [ONE, 1 << 3, 1])
@cases(("d", "r"), CROWDED)
def test_all_features_of_a_row_count_as_many_rows_as_they_may(d: int, r: int, one: int) -> None:
    features = crowded(d, r, one)[:, : 2 * d]
    assert features.min() >= 0
    assert features.max() <= one
    assert features.sum(axis=1).max() <= r * one
    assert (features**2).sum(axis=1).max() <= r * one**2


@cases("relation", RELATIONS)
@cases(("d", "r"), CROWDED)
def test_crowded_rows_move_released_numbers_as_stated(d: int, r: int, relation: Relation) -> None:
    rows = crowded(d, r)
    pairs = itertools.combinations(rows, 2) if relation == "replace" else ((rows[0], row) for row in rows)
    both = np.array([*pairs])
    for kind in RELEASED:
        moves = released(kind, both[:, 1], d) - released(kind, both[:, 0], d)
        norms = released_norms(kind, relation, max_features_per_row=r, n_features=d)
        assert abs(moves).sum(axis=1).max() == norms.l1 * ONE
        assert (moves**2).sum(axis=1).max() == norms.squared_l2 * ONE**2


@cases("relation", RELATIONS)
@cases("score", COUNTED)
@cases(("d", "r"), [(2, 1), (3, 1), (3, 2)])
def test_crowded_rows_move_scores_within_the_range(d: int, r: int, score: str, relation: Relation) -> None:
    largest = spread = 0
    falling = False
    for first, second in neighbours(crowded(d, r), 3 if d == 2 else 2, 1, relation):
        moves = scores_of(score, second, d) - scores_of(score, first, d)
        largest = max(largest, abs(moves).max())
        spread = max(spread, (moves.max(axis=1) - moves.min(axis=1)).max())
        falling = falling or bool((moves < 0).any())
    assert largest == score_sensitivity(score, relation) * ONE
    assert spread == score_range(score, relation, max_features_per_row=r, n_features=d) * ONE
    assert falling or is_monotone(score, relation)


@cases("relation", RELATIONS, quick=1)
@cases("n", [1, 2, 3, 7, 40])
def test_crowded_rows_move_information_as_stated(n: int, relation: Relation) -> None:
    """Random tables of n rows, each of which has any share of the feature; many near the corners, where it moves most."""
    rng = np.random.default_rng(n)
    bound, largest = information_sensitivity(n), 0
    for _ in range(2000):
        shares = rng.choice([0.0, 1.0, *rng.random(2) ** rng.integers(1, 9), *(1 - rng.random(2) ** 5)], n + 1)
        cells = np.rint(shares * ONE).astype(np.int64)
        labels = rng.random(n + 1) < rng.choice([0.5, 1 / n, 1 - 1 / n])
        tables = [slice(0, n), slice(0, n - 1)] if relation == "add_remove" else [slice(0, n), slice(1, n + 1)]
        found = [
            exact_scores(
                "information_gain",
                cells[rows][labels[rows]].sum(keepdims=True),
                cells[rows][~labels[rows]].sum(keepdims=True),
                int(labels[rows].sum()),
                int((~labels[rows]).sum()),
                ONE,
            )
            for rows in tables
        ]
        largest = max(largest, abs(int(found[1][0] - found[0][0])))
    assert largest <= bound
    assert n == 1 or largest > bound / 5


@pytest.mark.parametrize("score", SCORES)
def test_exact_scores_of_whole_rows_are_the_same_in_any_unit(score: str) -> None:
    whole = np.array([0, 3, 40]), np.array([7, 0, 21])
    fine = exact_scores(score, whole[0] * ONE, whole[1] * ONE, 90, 55, ONE)
    assert (fine == exact_scores(score, *whole, 90, 55) * (1 if score == "information_gain" else ONE)).all()


def test_the_unit_follows_from_public_numbers() -> None:
    zero = Fraction(0)
    assert [fixed_denominator(3, d, zero) for d in (1, 3, 4, 10**6, None)] == [1, 1, ONE, ONE, ONE]
    for scale in (Fraction(1 << 30), Fraction((1 << 30) + 1), Fraction(1 << 45), Fraction(1 << 60)):
        one = fixed_denominator(3, 4, scale)
        assert one == 1 or scale * one <= LARGEST_SCALE
        assert one == ONE or scale * one * 2 > LARGEST_SCALE


def test_the_table_of_the_review() -> None:
    """L1 and squared L2 for rows of two features out of many; a row with a changed label moves differences by 2."""
    stated = {
        ("totals", "add_remove"): (2, 2),
        ("totals", "replace"): (4, 4),
        ("differences", "add_remove"): (2, 2),
        ("differences", "replace"): (4, 8),
        ("differences_and_labels", "add_remove"): (3, 3),
        ("differences_and_labels", "replace"): (6, 12),
        ("counts", "add_remove"): (2, 2),
        ("counts", "replace"): (4, 4),
        ("counts_and_labels", "add_remove"): (3, 3),
        ("counts_and_labels", "replace"): (6, 6),
    }
    for (kind, relation), (l1, squared) in stated.items():
        norms = released_norms(kind, relation, max_features_per_row=2, n_features=10)
        assert (norms.l1, norms.squared_l2) == (l1, squared)
        norms = released_norms(kind, relation, max_features_per_row=2, n_features=10, max_rows_per_unit=3)
        assert (norms.l1, norms.squared_l2) == (3 * l1, 9 * squared)


@cases("relation", RELATIONS)
@cases("score", COUNTED)
@cases(("d", "r"), WIDTHS)
def test_scores_move_within_the_range(d: int, r: int, score: str, relation: Relation) -> None:
    """All tables of at most three rows besides the one that moves."""
    largest = spread = 0
    rising = falling = False
    for first, second in neighbours(kinds(d, r), 3 if d == 2 else 2, 1, relation):
        moves = scores_of(score, second, d) - scores_of(score, first, d)
        largest = max(largest, abs(moves).max())
        spread = max(spread, (moves.max(axis=1) - moves.min(axis=1)).max())
        rising, falling = rising or bool((moves > 0).any()), falling or bool((moves < 0).any())
    assert largest == score_sensitivity(score, relation)
    assert spread == score_range(score, relation, max_features_per_row=r, n_features=d)
    # One order of each pair was looked at: the table with the row more comes second.
    assert (not falling) == is_monotone(score, relation)
    assert rising


@cases("relation", RELATIONS, quick=4)
@cases("score", COUNTED)
def test_scores_move_within_the_range_for_units_of_two_rows(score: str, relation: Relation) -> None:
    largest = spread = 0
    for first, second in neighbours(kinds(2, 2), 4, 2, relation):
        moves = scores_of(score, second, 2) - scores_of(score, first, 2)
        largest = max(largest, abs(moves).max())
        spread = max(spread, (moves.max(axis=1) - moves.min(axis=1)).max())
    assert largest == score_sensitivity(score, relation, max_rows_per_unit=2)
    assert spread == score_range(score, relation, max_features_per_row=2, max_rows_per_unit=2)


@pytest.mark.parametrize("score", COUNTED)
def test_exact_scores_are_the_definition(score: str) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (7, 12))
    for row in counts:
        row[-2:] += 50
        found = exact_scores(score, row[:5], row[5:10], int(row[10]), int(row[11]))
        assert found.tolist() == scores_of(score, row, 5).tolist()
        assert found.dtype == np.int64


def mutual(n11: int, n10: int, n01: int, n00: int) -> float:
    """n times the mutual information, in nats, from its definition."""
    n = n11 + n10 + n01 + n00
    cells = {(1, 1): n11, (1, 0): n10, (0, 1): n01, (0, 0): n00}
    feature, label = {1: n11 + n10, 0: n01 + n00}, {1: n11 + n01, 0: n10 + n00}
    return math.fsum(k * math.log(k * n / (feature[f] * label[l])) for (f, l), k in cells.items() if k)


def information(cells: tuple[int, ...]) -> int:
    n11, n10, n01, n00 = cells
    return int(exact_scores("information_gain", np.array([n11]), np.array([n10]), n11 + n01, n10 + n00)[0])


def moved(cells: tuple[int, ...], relation: Relation) -> Iterator[tuple[int, ...]]:
    for place in range(4):
        more = (*cells[:place], cells[place] + 1, *cells[place + 1 :])
        if relation == "add_remove":
            yield more
            continue
        yield from ((*more[:j], more[j] - 1, *more[j + 1 :]) for j in range(4) if more[j])


def of_size(n: int) -> Iterator[tuple[int, ...]]:
    for cuts in itertools.combinations(range(n + 3), 3):
        yield cuts[0], cuts[1] - cuts[0] - 1, cuts[2] - cuts[1] - 1, n + 2 - cuts[2]


@cases("relation", RELATIONS, quick=2)
@cases("n", [2, 3, 5, 8, 11, pytest.param(15, marks=pytest.mark.slow)])
def test_information_moves_as_stated(n: int, relation: Relation) -> None:
    """Every 2 x 2 table of n rows against every neighbour of at most n rows: the bound is reached and never passed."""
    exact = n * math.log(n) - (n - 1) * math.log(n - 1)
    largest = units_moved = 0.0
    for cells in of_size(n - 1 if relation == "add_remove" else n):
        for other in moved(cells, relation):
            largest = max(largest, abs(mutual(*cells) - mutual(*other)))
            units_moved = max(units_moved, abs(information(cells) - information(other)))
    assert largest == pytest.approx(exact, abs=1e-12)
    bound = information_sensitivity(n)
    assert units_moved <= bound
    assert bound - 20 <= exact * INFORMATION_UNIT <= bound
    assert abs(units_moved - exact * INFORMATION_UNIT) < 10


def test_information_sensitivity_of_many_rows() -> None:
    previous = 0
    for n in (1, 2, 1000, 10**6, 10**9, LARGEST_ROWS):
        bound = information_sensitivity(n)
        assert previous < bound
        assert (1 + math.log(n)) * INFORMATION_UNIT * 1.01 + 20 > bound
        previous = bound
    for score, relation in itertools.product(SCORES, RELATIONS):
        options: dict[str, Any] = {"largest_rows": 1000}
        one = score_sensitivity(score, relation, **options)
        assert score_sensitivity(score, relation, max_rows_per_unit=7, **options) == 7 * one
        assert score_range(score, relation, max_features_per_row=3, **options) in (one, 2 * one)
    assert score_range("information_gain", "replace", max_features_per_row=1, **options) == 2 * one


def test_information_of_large_tables_is_within_its_error() -> None:
    """Against 60 decimal digits: each score is off by at most half of what the sensitivity allows for."""
    from decimal import Decimal, localcontext

    def term(k: int) -> Decimal:
        return Decimal(k) * Decimal(k).ln() if k else Decimal(0)

    generator = np.random.default_rng(1)
    for n in (100, 10**6, LARGEST_ROWS):
        slack = Fraction(9, 2) + Fraction(9 * n, 1 << 19)
        with localcontext() as context:
            context.prec = 60
            for shares in generator.dirichlet((0.3,) * 4, 200):
                n11, n10, n01 = (int(share * (n - 3)) for share in shares[:3])
                n00 = n - n11 - n10 - n01
                exact = sum(map(term, (n, n11, n10, n01, n00)))
                exact -= sum(map(term, (n11 + n10, n01 + n00, n11 + n01, n10 + n00)))
                assert abs(Fraction(exact) * INFORMATION_UNIT - information((n11, n10, n01, n00))) <= slack


def test_bad_arguments_are_refused() -> None:
    good: dict[str, Any] = {"max_features_per_row": 2}
    for bad in (0, -1, 1.5, None):
        with pytest.raises(ParameterError, match="P018"):
            released_norms("totals", "replace", max_features_per_row=bad)
        with pytest.raises(ParameterError, match="P018"):
            score_sensitivity("purity", "replace", max_rows_per_unit=bad)
    with pytest.raises(ParameterError, match="P018"):
        released_norms("totals", "replace", n_features=0, **good)
    with pytest.raises(ParameterError, match="P018"):
        released_norms("labels", "replace", **good)
    with pytest.raises(ParameterError, match="P018"):
        released_norms("totals", "bounded", **good)
    for call in (score_sensitivity, lambda *given: score_range(*given, **good)):
        with pytest.raises(ParameterError, match="P018"):
            call("chi_square", "replace")
        with pytest.raises(ParameterError, match="P018"):
            call("information_gain", "replace")
    for bad in (0, LARGEST_ROWS + 1, None):
        with pytest.raises(ParameterError, match="n_max"):
            information_sensitivity(bad)
    with pytest.raises(ParameterError, match="P018"):
        exact_scores("chi_square", np.zeros(1), np.zeros(1), 0, 0)
    assert set(RELEASED_FOR) == set(SCORES)
    assert set(RELEASED_FOR.values()) < set(RELEASED)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_row_brings_in_no_more_names_than_count(most: int) -> None:
    """Of a row with more names some are chosen by its identity; names that decide what is shown count once in a row."""
    names = [f"name {number}".encode() for number in range(9)]
    for size in range(10):
        for identity in range(20):
            counts = NameCounts(most)
            counts.learn(names, b"key")
            listed = np.arange(size, dtype=np.int64)
            # A name that is repeated, and one more row, whose names are others.
            positions = np.concatenate((listed, listed[:1], [8]))
            lengths = np.array([len(positions) - 1, 1])
            keys = np.array([identity, 999], dtype=np.uint64)
            counts.add_sparse(np.array([1.0, -1.0]), lengths, positions, Batch(keys, secret=b"key"))
            found = counts.counts - np.eye(9, dtype=np.int64)[8]
            assert found.sum() == min(size, most)
            assert set(found.tolist()) <= {0, 1}
