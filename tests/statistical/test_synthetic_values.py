"""Values of synthetic tables, and what their report says of them: on tables with atoms, and against the true distance."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch
from dpsql.contract.measurement import Permit
from dpsql.functions import synthetic
from dpsql.functions.synthetic import SyntheticCall, SyntheticPlan, TreePass
from dpsql.progress import Progress
from dpsql.released.synthetic import report_rows
from dpsql.released.synthetic_rows import synthetic_columns
from support.cases import cases

Record = dict[str, Any]


def released(columns: dict[str, np.ndarray], epsilon: float, **more: Any) -> tuple[Record, TreePass]:
    """Run a call on arrays, and return what the ledger would keep, and the last pass."""
    arrays = {name: pa.array(values) for name, values in columns.items()}
    given = {"columns": list(columns), "epsilon": epsilon, "delta": 1e-5, "private_keys": True, **more}
    plan = SyntheticPlan.from_arguments("t", given)
    call = SyntheticCall.resolve(plan, pa.struct([(name, of.type) for name, of in arrays.items()]), {})
    rows = pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))
    progress = Progress(None)
    with Permit(plan.measurement).drawing():
        collector = call.start()
        call.collect(collector, rows, Batch(np.arange(len(rows)), None, None))
        while not isinstance(collector, TreePass):
            collector = call.turn(collector, progress)
            call.collect(collector, rows, Batch(np.arange(len(rows)), None, None))
        record: Any = call.prepare(collector, progress)()
    return record, collector


def drawn(record: Record, place: int, count: int) -> np.ndarray:
    """Return the numbers of a column of synthetic rows."""
    texts = synthetic_columns(record, count, "s")[place].to_pylist()  # type: ignore[arg-type]
    return np.array([np.nan if text is None else float(text) for text in texts])


ROWS = 4000
_RANDOM = np.random.default_rng(5)


def mostly(value: float, share: float, others: np.ndarray) -> np.ndarray:
    return np.where(_RANDOM.random(ROWS) < share, value, others)


# The values of a column, and public bounds.
ATOMS: dict[str, tuple[np.ndarray, tuple[float, float]]] = {
    "one integer": (np.full(ROWS, 999), (0, 1000)),
    "one decimal": (np.full(ROWS, 5191.1), (0, 6000)),
    "an edge": (np.full(ROWS, 512.0), (0, 1024)),
    "the upper end": (np.full(ROWS, 1000), (0, 1000)),
    "the lower end": (np.full(ROWS, -5.5), (-5.5, 3)),
    "zeros": (np.zeros(ROWS), (0, 100)),
    "few tolls": (mostly(0.0, 0.93, np.full(ROWS, 5.76)), (0, 100)),
    "999 for never": (mostly(999, 0.96, _RANDOM.integers(0, 28, ROWS)).astype(int), (0, 999)),
    "-1 for unknown": (mostly(-1.0, 0.3, np.round(_RANDOM.lognormal(8, 1, ROWS), 2)), (-1, 1e6)),
    "a million among shares": (mostly(1e6, 0.3, _RANDOM.random(ROWS)), (0, 1e6)),
    "-9999 among normal values": (mostly(-9999.0, 0.3, _RANDOM.normal(size=ROWS)), (-9999, 10)),
}
# Nothing that a call lists is one of these, so that the report must not be clear.
HIDDEN: dict[str, tuple[np.ndarray, tuple[float, float]]] = {
    "below the resolution": (np.full(ROWS, 0.12345678901234), (0, 1)),
    "a tiny one": (np.full(ROWS, 3e-9), (0, 1)),
    "two next to each other": (np.where(_RANDOM.random(ROWS) < 0.5, np.pi, np.pi + 1e-12), (0, 10)),
    "steps below the resolution": (np.round(_RANDOM.random(ROWS) * 10) * 1e-9 + 0.5, (0, 1)),
    "a part of a cell": (1e6 * 0.5 + _RANDOM.random(ROWS), (0, 1e6)),
    "twenty odd values": (_RANDOM.choice(_RANDOM.random(20), ROWS), (0, 1)),
    "a large odd integer": (np.full(ROWS, 9999999), (0, 10**9)),
}


def asked(values: np.ndarray, bounds: tuple[float, float] | None, epsilon: float) -> tuple[np.ndarray, list[str]]:
    """Return synthetic values of a column, and the verdicts on its pairs."""
    columns = {"v": values, "g": np.resize(["x", "y"], ROWS), "f": np.resize(np.arange(4), ROWS)}
    more = {} if bounds is None else {"lower": {"v": bounds[0], "f": 0}, "upper": {"v": bounds[1], "f": 3}}
    record, _ = released(columns, epsilon, **more)
    verdicts = [row["verdict"] for row in report_rows(record) if row["column_1"] == "v"]
    return drawn(record, 0, ROWS), verdicts


@cases("bounds", ["public", "private"], quick=1)
@cases("name", ATOMS, quick=4)
def test_atoms_keep_their_shares(name: str, bounds: str) -> None:
    """Each value of a twentieth of the rows has its share of the synthetic ones, up to noise of less than a hundredth."""
    values, public = ATOMS[name]
    twin, _ = asked(values, public if bounds == "public" else None, 3.0)
    found, counts = np.unique(values, return_counts=True)
    for value, count in zip(found[counts >= ROWS / 20], counts[counts >= ROWS / 20], strict=True):
        assert np.mean(twin == value) == pytest.approx(count / ROWS, abs=0.06)


@cases("bounds", ["public", "private"], quick=1)
@cases("name", HIDDEN, quick=3)
def test_values_that_are_lost_are_not_clear(name: str, bounds: str) -> None:
    """The report sees by their buckets that values repeat; all of their rows are off."""
    values, public = HIDDEN[name]
    for epsilon in (0.3, 3.0):
        twin, verdicts = asked(values, public if bounds == "public" else None, epsilon)
        assert np.isin(twin, values).mean() < 0.2
        assert set(verdicts) == {"unclear"}


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_a_column_with_values_is_not_null(epsilon: float) -> None:
    """Undetermined bounds leave 0, and no key leaves 'other': and the report is not clear where values are lost."""
    columns = {"v": np.full(300, 1.25), "g": np.array([f"k{number}" for number in range(300)])}
    for _ in range(3):
        record, _ = released(columns, epsilon)
        number, text = (synthetic_columns(record, 300, "s")[place].to_pylist() for place in (0, 1))  # type: ignore[arg-type]
        assert sum(value is None for value in number) < 300
        assert sum(value is None for value in text) < 300
        if not any(value is not None and float(value) == 1.25 for value in number):
            assert {row["verdict"] for row in report_rows(record)} == {"unclear"}


def test_slots_of_the_model_are_those_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the report is held against is what rows are drawn from: atoms, buckets of the others, and of any value."""
    generator = np.random.default_rng(8)
    normal = generator.normal(3, 1, ROWS)
    columns = {
        "a": np.where(generator.random(ROWS) < 0.4, 999, generator.integers(0, 3000, ROWS)),
        "b": np.where(generator.random(ROWS) < 0.5, np.round(normal, 1), normal),
        "c": np.round(generator.lognormal(2, 1, ROWS), 2),
    }
    seen: list[tuple[Any, Any]] = []
    slot_tables = synthetic.slot_tables

    def noted(released: Any, tables: Any, fit: Any) -> Any:
        seen.append((released, fit))
        return slot_tables(released, tables, fit)

    monkeypatch.setattr(synthetic, "slot_tables", noted)
    record, _ = released(columns, 30.0)
    count, [(found, fit)] = 200_000, seen
    for place in range(3):
        parts, model = found.slot_model(place, fit.margins[place])
        slots = found.slots[place].of(drawn(record, place, count))[1]
        rows = np.bincount(parts[slots], minlength=len(model))
        assert len(found.atoms[place].slots) > 0
        # Of 8 buckets in each of some 130 cells sampling makes .03 at most, in the mean.
        assert np.abs(rows / count - model / found.total).sum() / 2 < 0.045


@pytest.mark.parametrize("runs", [12, pytest.param(200, marks=pytest.mark.long)])
def test_the_interval_holds_the_distance_in_fine_cells(runs: int) -> None:
    """The model comes of what is stored, so of what rows are drawn from; the distance is that of the columns' own cells.

    Of 3 pairs in each table at most so many intervals fail that more would be chance below 1e-6.
    """
    generator, failed, counted = np.random.default_rng(runs), 0, 0
    for run in range(runs):
        rows = int(10 ** generator.uniform(2.3, 4))
        columns = {
            "a": generator.integers(0, 90, rows),
            "b": np.where(generator.random(rows) < 0.4, 999.0, np.round(generator.lognormal(2, 1, rows), 2)),
            "c": generator.choice(["x", "y", "z"], rows, p=[0.6, 0.3, 0.1]),
        }
        columns["b"] = np.where(generator.random(rows) < 0.3, columns["a"] / 2.0, columns["b"])
        public: dict[str, Any] = {
            "lower": {"a": 0, "b": 0},
            "upper": {"a": 100, "b": 1000},
            "keys": {"c": ["x", "y", "z"]},
        }
        record, last = released(columns, float(generator.choice([0.3, 1, 3])), **(public if run % 2 else {}))
        for row, true in zip(report_rows(record), true_distances(record, last, columns), strict=True):
            counted += 1
            failed += not row["lower"] - 1e-9 <= min(1.0, true) <= row["upper"] + 1e-9
    assert failed <= counted * 0.05 + 5.2 * np.sqrt(counted * 0.05 * 0.95)


def true_distances(record: Record, last: TreePass, columns: dict[str, np.ndarray]) -> list[float]:
    """Return the total variation of the shares of each pair in the cells of its columns, by enumeration of all united cells."""
    sizes, width = record["sizes"], len(columns)
    joint = np.ones([1] * width)
    for (column, *parents), weights in zip(record["order"], record["weights"], strict=True):
        table = np.array(weights, dtype=float).reshape(-1, sizes[column])
        share = (table / np.maximum(table.sum(axis=1, keepdims=True), 1.0)).reshape(
            [sizes[one] for one in (*parents, column)]
        )
        shape = [size if place in (*parents, column) else 1 for place, size in enumerate(sizes)]
        joint = joint * share.transpose(np.argsort([*parents, column], kind="stable")).reshape(shape)
    inside, exact = [], []
    for column, stored, values in zip(last.released.columns, record["columns"], columns.values(), strict=True):
        places, shares = np.array(stored["places"]), np.array(stored["shares"], dtype=float)
        owners = np.arange(len(places))
        if stored["atoms"] and column.grid is not None:
            owners[column.count :] = 1 + column.grid.cells(np.array(stored["atoms"]))
        held = np.zeros((places.max() + 1, column.count))
        np.add.at(held, (places, owners), shares)
        none = held.sum(axis=1) == 0
        np.add.at(held, (places[: column.count], np.arange(column.count)), none[places[: column.count]])
        inside.append(held / held.sum(axis=1, keepdims=True))
        exact.append(column.cells(pa.array(values)))
    found = []
    for i, j in itertools.combinations(range(width), 2):
        counts = joint.sum(axis=tuple(place for place in range(width) if place not in (i, j)))
        model = inside[i].T @ counts @ inside[j] * record["rows"]
        np.add.at(real := np.zeros_like(model), (exact[i], exact[j]), 1)
        found.append(float(np.abs(real / real.sum() - model / model.sum()).sum() / 2))
    return found
