"""Rows of released trees: the same bytes everywhere, and the shares that the tree says."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.kernels.value_grid import ValueGrid, grains, steps_of
from dpsql.mechanisms.private_tree import NoisyTree
from dpsql.noise.seeded import SeededWords
from dpsql.released.synthetic_rows import synthetic_columns, united_cells
from dpsql.released.tree_fit import (
    ColumnGrains,
    FittedTree,
    ReleasedColumns,
    fitted,
    grain_mixture,
    on_simplex,
    smoothed,
    united_runs,
    united_values,
)
from dpsql.statistics.coded_columns import CodedColumn

STORED: Any = {
    "columns": [
        {"name": "age", "type": "INTEGER", "keys": None, "other": False, "starts": [0.0, 10.0, 60.0], "upper": 99.0,
         "discrete": True, "digits": 0, "places": [0, 0, 1, 1], "shares": [0, 5, 3, 1]},
        {"name": "ward", "type": "VARCHAR", "keys": ["A", "B"], "other": True, "starts": None, "upper": 0.0,
         "discrete": False, "digits": 0, "places": [2, 0, 1, 2], "shares": [1, 8, 9, 1]},
        {"name": "cost", "type": "DECIMAL(8,2)", "keys": None, "other": False, "starts": [-5.0, 0.0, 7.0], "upper": 700.0,
         "discrete": True, "digits": 2, "places": [0, 1, 1, 1], "shares": [1, 1, 1, 1]},
        {"name": "x", "type": "DOUBLE", "keys": None, "other": False, "starts": [-1.0, 0.0, 5e-324], "upper": 3.0,
         "discrete": False, "digits": 0, "places": [0, 0, 0, 0], "shares": [0, 1, 2, 1]},
        {"name": "day", "type": "DATE", "keys": None, "other": False, "starts": [20000.0], "upper": 20099.0,
         "discrete": True, "digits": 0, "places": [0, 0], "shares": [0, 1]},
        {"name": "at", "type": "TIMESTAMP", "keys": None, "other": False, "starts": [1.7e15], "upper": 1.7e15 + 9e9,
         "discrete": True, "digits": 0, "places": [0, 0], "shares": [0, 1]},
        {"name": "gone", "type": "DOUBLE", "keys": None, "other": False, "starts": None, "upper": 0.0,
         "discrete": False, "digits": 0, "places": [0], "shares": [1]},
    ],
    "rows": 1000,
    "seed": "0123",
    "sizes": [2, 3, 2, 1, 1, 1, 1],
    "order": [[0], [1, 0], [2, 1], [3], [4, 3, 0], [5], [6]],
    "weights": [[300, 700], [100, 100, 100, 100, 200, 400], [20, 180, 150, 150, 80, 420], [1], [3, 7], [1], [1]],
}  # fmt: skip


def test_the_bytes_are_the_same_everywhere() -> None:
    written = json.dumps([column.to_pylist() for column in synthetic_columns(STORED, 500, "seed")])
    assert hashlib.sha256(written.encode()).hexdigest() == GOLDEN
    assert synthetic_columns(STORED, 500, "seed") == synthetic_columns(STORED, 500, "seed")
    assert synthetic_columns(STORED, 500, "seed") != synthetic_columns(STORED, 500, "other seed")
    assert len(synthetic_columns(STORED, None, None)[0]) == 1000
    assert [len(column) for column in synthetic_columns(STORED, 0, None)] == [0] * 7


GOLDEN = "5982831f7b9b7b6d243845544be4cc5d0cc1f39ea1d297567d25c8667b74534d"


def test_atoms_and_grains_have_the_same_bytes_everywhere() -> None:
    """A release of an earlier version has neither: its bytes are those above."""
    cost = {**STORED["columns"][2], "places": [0, 1, 1, 1, 1, 0], "shares": [1, 1, 1, 1, 5, 2], "atoms": [399.0, -3.0],
            "mixture": [[1, 1, 1], [1, 5, 3], [1, 100, 2]]}  # fmt: skip
    real = {**STORED["columns"][3], "mixture": [[0, 0, 1], [20, 1, 2], [1, 1, 1]], "atoms": [0.1],
            "places": [0] * 5, "shares": [0, 1, 1, 1, 2]}  # fmt: skip
    stored: Any = {**STORED, "columns": [*STORED["columns"][:2], cost, real, *STORED["columns"][4:]]}
    columns = [column.to_pylist() for column in synthetic_columns(stored, 800, "seed")]
    assert hashlib.sha256(json.dumps(columns).encode()).hexdigest() == GRAINED
    assert 0.1 < np.mean([text == "3.99" for text in columns[2]]) < 0.5
    numbers = [float(text) for text in columns[3] if text is not None]
    assert np.mean([text == "0.1" for text in columns[3]]) == pytest.approx(0.4, abs=0.01)
    assert 0.6 < np.mean([round(number * 20) / 20 == number for number in numbers]) < 0.95


GRAINED = "d612da9b1d22a5b97be1cf89a2b73427d84222158f2187310f69a3ef999b9242"


def test_grains() -> None:
    """The grain is the coarsest step of a value; a multiple is the double next to it."""
    steps = steps_of("DOUBLE")
    values = np.array([1.5, 0.25, 0.3, 2.35, 7.0, 50.0, 123.456, np.pi, 5191.0, 5228.1, 1e-7, 0.1 + 0.2, -40.0, np.inf])
    wanted = [0.5, 0.05, 0.1, 0.05, 1, 50, 0.001, None, 1, 0.1, None, 0.1, 10]
    found = [None if not place else steps[place - 1][1] / steps[place - 1][0] for place in grains(values, "DOUBLE")]
    assert found[:-1] == wanted
    assert (
        grains(np.array([0.1, 1 / 3], dtype=np.float32).astype(float), "FLOAT").tolist()[0] == steps.index((10, 1)) + 1
    )
    seconds = np.array([86400e6, 90061e6, 5.0])
    assert [steps_of("TIMESTAMP")[place - 1][1] for place in grains(seconds, "TIMESTAMP")] == [86400 * 10**6, 10**6, 1]
    for kind in ("DOUBLE", "BIGINT", "TIMESTAMP"):
        sizes = [Fraction(divisor, multiplier) for multiplier, divisor in steps_of(kind)]
        assert all((after / before).denominator == 1 for before, after in itertools.pairwise(sizes))


def test_multiples_are_in_the_cells_of_their_values() -> None:
    for grid in (
        ValueGrid.of_doubles(0.0, 300.0),
        ValueGrid.of_doubles(-7.3, 96.7),
        ValueGrid.of_integers(Fraction(-3), Fraction(9000)),
    ):
        for step in steps_of("BIGINT" if grid.discrete else "DOUBLE")[3:]:
            numbers = np.arange(math.floor(-9 * step[0] / step[1]), math.ceil(9001 * step[0] / step[1]) + 1)
            if len(numbers) > 10**6:
                continue
            values = numbers * step[1] / step[0]
            inside = (values >= grid.starts[0]) & (values <= grid.upper)
            cells = grid.cells(values[inside])
            first, counts = grid.multiples(step)
            assert np.bincount(cells, minlength=grid.count).tolist() == counts.tolist()
            some = np.flatnonzero(counts)
            assert (first[some] == [numbers[inside][cells == cell][0] for cell in some]).all()


def test_a_mixture_tells_even_multiples_from_coarser_ones() -> None:
    """Of even multiples of .1 a tenth are whole: these alone need no step of their own."""
    column = CodedColumn("x", "DOUBLE", None, False, ValueGrid.of_doubles(0.0, 100.0), 0)
    generator = np.random.default_rng(3)
    tenths, wholes = generator.integers(0, 1000, 40_000) / 10, generator.integers(0, 100, 10_000).astype(float)
    for values, wanted in ((tenths, {(10, 1): 1.0}), (np.append(tenths, wholes), {(10, 1): 0.8, (1, 1): 0.2})):
        counts = np.bincount(grains(values, "DOUBLE"), minlength=1 + len(column.steps)).astype(float)
        found = grain_mixture(column, counts, 150.0)
        total = sum(weight for *_, weight in found)
        assert {(up, down): weight / total for up, down, weight in found} == pytest.approx(wanted, abs=0.02)
    assert grain_mixture(column, np.zeros(1 + len(column.steps)), 1.0) == ((0, 0, 1.0),)


def test_tails_decay() -> None:
    """In noise that hides each cell the mean of an exponential tail is that of the rows, from the run before it."""
    edges = np.linspace(0, 100, 101)
    counts = 10_000 * -np.diff(np.exp(-edges / 8))
    middles = (edges[1:] + edges[:-1]) / 2
    tail, before = counts[20:], (float(counts[8:20].sum()), 12.0)
    mean = float(tail @ middles[20:] / tail.sum())
    generator, decayed, even = np.random.default_rng(1), list[float](), list[float]()
    for _ in range(200):
        noisy = tail + generator.normal(0, 60, len(tail))
        for found, means in (
            (smoothed(noisy, np.ones(80), 60.0, before), decayed),
            (smoothed(noisy, np.ones(80), 60.0), even),
        ):
            if found.sum() > 0:
                means.append(float(found @ middles[20:] / found.sum()))
    assert np.mean(decayed) == pytest.approx(mean, rel=0.1)
    assert np.mean(even) > 1.3 * mean
    # A peak among cells that noise explains stands alone.
    noisy = np.zeros(80)
    noisy[70] = 5.0
    assert smoothed(noisy, np.ones(80), 1.0).argmax() == 70
    assert smoothed(noisy, np.ones(80), 1.0).sum() == pytest.approx(5.0)


def test_cells_without_a_multiple_hold_nothing() -> None:
    """All values that are seen are whole, so noise in a cell between whole numbers is noise."""
    column = CodedColumn("x", "DOUBLE", None, False, ValueGrid.of_doubles(0.0, 20.0), 0)
    counts = np.full(column.count, 50.0)
    seen = np.zeros(1 + len(column.steps))
    seen[1 + column.steps.index((1, 1))] = 4000.0
    released = ReleasedColumns.of([column], [counts], 30.0, 4000.0, 9, {0: ColumnGrains(seen, 20.0)})
    assert column.grid is not None
    _, many = column.grid.multiples((1, 1))
    empty = (many == 0) & ~column.grid.single
    assert empty.sum() > 90
    assert not released.shares[0][1:][empty].any()
    [found] = released.slots.values()
    assert released.with_atoms({0: np.zeros(found.listed)}, 1.0).atoms[0].slots.size == 0


def test_counts_are_those_of_the_tree() -> None:
    """Rows divide as the tables say, but for what rounding leaves; a chain of columns is independent given its middle."""
    cells = united_cells(STORED, 100_000, "s")
    found = np.zeros((2, 3))
    np.add.at(found, (cells[0], cells[1]), 1)
    assert np.abs(found / 100 - np.array(STORED["weights"][1]).reshape(2, 3)).max() < 0.1
    third = np.zeros((3, 2))
    np.add.at(third, (cells[1], cells[2]), 1)
    share = third[:, 1] / third.sum(axis=1)
    assert share == pytest.approx([0.9, 0.5, 0.84], abs=1e-3)
    for before in range(2):
        for middle in range(3):
            here = (cells[0] == before) & (cells[1] == middle)
            assert cells[2][here].mean() == pytest.approx(share[middle], abs=5.2 * 0.5 / np.sqrt(here.sum()))


def test_few_rows_have_rare_cells_now_and_then() -> None:
    """A cell of a thousandth of the rows is met in every tenth table of a hundred rows, not never."""
    stored: Any = {
        **STORED,
        "columns": STORED["columns"][:1],
        "sizes": [2],
        "order": [[0]],
        "weights": [[1, 999]],
    }
    met = sum(int((united_cells(stored, 100, str(seed))[0] == 0).sum()) for seed in range(1000))
    assert 100 - 5.2 * 9.5 < met < 100 + 5.2 * 9.5


def test_grids() -> None:
    few = ValueGrid.of_integers(Fraction(-1, 2), Fraction(7, 2))
    assert few.starts == (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0)
    wide = ValueGrid.of_integers(Fraction(0), Fraction(10**6))
    assert wide.starts[:2] == (0.0, 1.0)
    assert wide.starts[-1] == 1e6
    assert wide.count < 300
    for grid in (
        few,
        wide,
        ValueGrid.of_doubles(-2.5, 1e4),
        ValueGrid.of_doubles(3.0, 4.0),
        ValueGrid.of_doubles(0.0, 1e-300),
        ValueGrid.of_doubles(0.0, 4e4).refined([(18432.0, 19456.0, 100)]),
        ValueGrid.of_doubles(-9.0, 9.0).refined([(-5.0, -4.75, 3), (9.0, 9.0, 1)]),
        wide.refined([(18432.0, 18440.0, 100), (0.0, 0.0, 1)]),
    ):
        assert list(grid.starts) == sorted(set(grid.starts))
        inside = grid.values(np.arange(grid.count), SeededWords("w").take(grid.count))
        assert (grid.cells(inside) == np.arange(grid.count)).all()
        assert (inside <= grid.upper).all()
        assert grid.cells(np.array([np.nan, -np.inf, np.inf])).tolist() == [-1, 0, grid.count - 1]


def test_a_crowd_has_narrower_cells_and_the_rest_wider_ones() -> None:
    whole = ValueGrid.of_doubles(0.0, 4e4)
    assert whole.refined([]) == whole
    found = whole.refined([(18432.0, 19456.0, 64)])
    assert found.upper == whole.upper
    inside = [start for start in found.starts if 18432.0 <= start <= 19456.0]
    assert set(np.linspace(18432.0, 19456.0, 65)) <= set(inside)
    outside = [start for start in found.starts if start not in inside]
    assert outside == [0.0, math.nextafter(0.0, 1.0), *(2.0**power for power in range(2, 16)), 4e4]


def test_a_column_whose_noise_hides_all_rows_has_rows_in_any_bounds() -> None:
    """Cells without a count above 0 are filled by their widths, whatever these are."""
    column = CodedColumn("x", "DOUBLE", None, False, ValueGrid.of_doubles(0.0, 2.0**64), 0, is_drawn=True)
    counts = np.full(column.count, -9.0)
    released = ReleasedColumns.of([column], [counts], 5.0, 7.0, 32, {})
    assert np.isfinite(released.shares[0]).all()
    assert 0.0 < released.shares[0].sum() <= 2.0


def test_union_of_cells() -> None:
    counts = np.array([5.0, 4.0, 300.0, 2.0, 1.0, 90.0, 60.0, 1.0])
    assert united_runs(counts, 1.0, 924.0).tolist() == [0, 0, 1, 2, 2, 3, 4, 4]
    assert united_runs(np.zeros(4), 1.0, 1.0).tolist() == [0, 0, 0, 0]
    assert united_values(np.array([9.0, 1.0, 30.0, 2.0]), 1.0, 9).tolist() == [0, 2, 1, 2]
    assert united_values(np.array([9.0, 11.0, 30.0, 12.0]), 1.0, 3).tolist() == [2, 2, 0, 1]


def test_fit() -> None:
    assert on_simplex(np.array([3.0, -1.0, 2.0]), 4.0) == pytest.approx([2.5, 0.0, 1.5])
    assert smoothed(np.array([10.0, 9.0, 11.0, 100.0]), np.ones(4), 2.0) == pytest.approx([9.5, 9.5, 11.0, 100.0])
    column = CodedColumn("a", "VARCHAR", ("x", "y"), False, None, 0)
    noisy = [np.array([0.0, 60.0, 40.0]), np.array([0.0, 50.0, 50.0])]
    released = ReleasedColumns.of([column] * 2, noisy, 1.0, 100.0, 9)
    table = np.array([[45.0, 15.0], [5.0, 35.0]])
    fit = fitted(released.sums, released.variances, NoisyTree(None, [(0, 1)], [table], [0.1]), 100.0)
    assert fit.implied()[0, 1] == pytest.approx(table, abs=0.5)
    assert fit.tables[0, 1].sum(axis=1) == pytest.approx(fit.margins[0], abs=1e-6)
    assert fit.steps == [(0, ()), (1, (0,))]
    apart = fitted(released.sums, released.variances, NoisyTree(None, [], [], []), 100.0)
    assert apart.implied()[0, 1].sum() == pytest.approx(100.0)


def test_what_a_tree_implies_is_what_its_steps_draw() -> None:
    """Counts of all pairs follow from the steps, in every way in which columns may hang together."""
    generator, sizes = np.random.default_rng(5), [2, 3, 2, 4, 2, 3]
    trees: list[tuple[int | None, list[tuple[int, int]]]] = [
        (1, [(0, 2), (2, 3), (4, 5)]),
        (5, []),
        (None, [(0, 3), (2, 3), (4, 5)]),
        (None, []),
    ]
    for hub, edges in trees:
        whole = generator.gamma(0.5, 1, sizes)
        whole *= 1000 / whole.sum()

        def counts(*kept: int, whole: np.ndarray = whole) -> np.ndarray:
            found: np.ndarray = whole.sum(axis=tuple(place for place in range(6) if place not in kept))
            return found

        star = [] if hub is None else [(min(hub, one), max(hub, one)) for one in range(6) if one != hub]
        fit = FittedTree(hub, [counts(one) for one in range(6)], {pair: counts(*pair) for pair in star + edges})
        joint = np.ones([1] * 6)
        for column, parents in fit.steps:
            table = fit.weights(column, parents)
            share = (table / table.sum(axis=1, keepdims=True)).reshape([sizes[one] for one in (*parents, column)])
            order = np.argsort([*parents, column], kind="stable")
            shape = [size if place in (*parents, column) else 1 for place, size in enumerate(sizes)]
            joint = joint * share.transpose(order).reshape(shape)
        for pair, found in fit.implied().items():
            drawn = 1000 * joint.sum(axis=tuple(place for place in range(6) if place not in pair))
            assert found == pytest.approx(drawn, abs=0.5)
            if pair in fit.tables:
                assert found == pytest.approx(counts(*pair), abs=0.5)
