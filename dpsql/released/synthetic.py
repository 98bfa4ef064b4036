"""Store released trees, and report the errors of their pairs of columns, at no privacy cost.

The error of a pair is the share of rows that must move to other cells to make the counts of its cells right, half of
the sum of all differences: the total variation. Cells are the columns' cells, which are finer than the united cells of
the measured model. Each column of numbers has a second error inside its cells: the share of rows whose values must
change to make the counts of its atoms and buckets right (`dpsql.statistics.coded_columns`). Releases of earlier
versions have the error of united cells, and no error of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from dpsql.arrays import Doubles
from dpsql.contract.covers import CLEAR, NOT_MEASURED, UNCLEAR
from dpsql.contract.json import Json
from dpsql.mechanisms.private_tree import NoisyTree
from dpsql.released.tree_fit import FittedTree, ReleasedColumns

# Weights are counts in units of 2**-16 rows.
_UNIT = 1 << 16
# Of the errors' intervals.
CONFIDENCE = 0.95
# A pair is clear if at most this share of rows is off, with that confidence.
CLOSE = 0.1
MEASURED, IMPLIED = "measured", "implied"


def _weights(counts: Doubles) -> list[int]:
    weights: list[int] = np.rint(np.maximum(counts, 0.0) * _UNIT).astype(np.int64).ravel().tolist()
    return weights


def synthetic_record(
    released: ReleasedColumns,
    tree: NoisyTree,
    fit: FittedTree,
    errors: Doubles | None,
    sigma: float | None,
    seed: str,
    separations: Sequence[bool],
) -> dict[str, Json]:
    """Return the JSON values for the ledger: a `StoredTree`, and the report.

    Parameters
    ----------
    released : ReleasedColumns
    tree : NoisyTree
    fit : FittedTree
    errors : ndarray of float64, or None
        Noisy distance of every pair in rows, pairs in order, and of every column with slots; None if there is no
        report.
    sigma : float or None
        Standard deviation of its noise.
    seed : str
        Public.
    separations : sequence of bool
        Whether the report sees each cell of a column apart.
    """
    pairs = len(released.columns) * (len(released.columns) - 1) // 2
    return {
        "columns": [_stored(released, number) for number in range(len(released.columns))],
        "rows": max(1, round(released.total)),
        "rows_std_error": released.total_sigma,
        "seed": seed,
        "sizes": [len(margin) for margin in fit.margins],
        "hub": tree.hub,
        "edges": [list(pair) for pair in tree.edges],
        "order": [[column, *parents] for column, parents in fit.steps],
        "weights": [_weights(fit.weights(column, parents)) for column, parents in fit.steps],
        "cell_std_error": released.sigma,
        "pair_std_errors": tree.sigmas,
        "errors": None if errors is None else errors[:pairs].tolist(),
        "value_errors": None
        if errors is None
        else [[slot, error] for slot, error in zip(released.slots, errors[pairs:].tolist(), strict=True)],
        "whole": list(separations),
        "error_std_error": sigma,
    }


def _stored(released: ReleasedColumns, number: int) -> dict[str, Json]:
    """Return a `StoredColumn`."""
    column, atoms = released.columns[number], released.atoms.get(number)
    grid, shares, positions = column.grid, released.shares[number].copy(), released.unions[number]
    values: list[float] = []
    if atoms is not None:
        slots = released.slots[number]
        for cell, rest in atoms.rests.items():
            shares[cell] = rest
        owners = 1 + slots.owners[atoms.slots]
        values = slots.multiples[atoms.slots].tolist()
        shares, positions = np.append(shares, atoms.counts), np.append(positions, positions[owners])
    mixture = released.mixture(number) if column.steps else ()
    return {
        "name": column.name,
        "type": column.type,
        "keys": None if column.keys is None else list(column.keys),
        "other": column.other,
        "starts": None if grid is None else list(grid.starts),
        "upper": 0.0 if grid is None else grid.upper,
        "discrete": grid is not None and grid.discrete,
        "digits": column.digits,
        "places": positions.tolist(),
        "shares": _weights(shares),
        "atoms": values,
        "mixture": [[multiplier, divisor, max(1, round(weight))] for multiplier, divisor, weight in mixture],
    }


def report_rows(result: Any) -> Sequence[dict[str, Any]]:
    """Return one row for each pair of columns: whether it was measured, and its error with an interval."""
    names = [column["name"] for column in result["columns"]]
    edges = {tuple(edge) for edge in result["edges"]}
    doubtful = {column for column, is_whole in enumerate(result.get("whole", [])) if not is_whole}
    doubtful |= {
        column for column, error in result.get("value_errors") or () if not _interval(result, error)[3] <= CLOSE
    }
    rows = []
    for number, (i, j) in enumerate(combinations(range(len(names)), 2)):
        row: dict[str, Any] = {
            "column_1": names[i],
            "column_2": names[j],
            "fit": MEASURED if (i, j) in edges else IMPLIED,
            "error": None,
            "std_error": None,
            "lower": None,
            "upper": None,
            "verdict": NOT_MEASURED,
        }
        if result["errors"] is not None:
            numbers = _interval(result, result["errors"][number])
            row |= dict(zip(("error", "std_error", "lower", "upper"), numbers, strict=True))
            row["verdict"] = CLEAR if numbers[3] <= CLOSE and not {i, j} & doubtful else UNCLEAR
        rows.append(row)
    return rows


def _interval(result: Any, distance: float) -> tuple[float, float, float, float]:
    """Return the error of a noisy distance in rows, the standard deviation of its noise, and its interval."""
    rows, away = 2.0 * result["rows"], NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    error = distance / rows
    # Shares are of a noisy number of rows: its noise moves a distance by half of itself at least.
    of_rows = (1.0 + 2.0 * max(0.0, error)) * result.get("rows_std_error", 0.0)
    deviation = math.hypot(result["error_std_error"], of_rows) / rows
    low, high = (min(1.0, max(0.0, error + side * away * deviation)) for side in (-1, 1))
    return min(1.0, max(0.0, error)), deviation, low, high
