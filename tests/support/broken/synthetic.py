"""Planted faults of dp_synthetic. NOT private: every one is caught by what two neighbouring tables cost.

Numbers are of `tests/privacy/test_synthetic_sql.py`: losses over what a step may spend.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dpsql.contract.relation import relation_of
from dpsql.functions import synthetic
from dpsql.kernels.cells import TypedCells
from dpsql.mechanisms import private_tree
from dpsql.released.tree_fit import ReleasedColumns
from dpsql.statistics.counts import squared_l2_sensitivity
from support.broken.planting import Fault, planted

_quality, _root = private_tree._quality, private_tree.floor_root
_choose, _measured = private_tree._Draws.choose, private_tree._Draws.measured


def _one_table(tables: int, neighbours: str, rows: int) -> int:
    return squared_l2_sensitivity(neighbours, max_rows_per_unit=rows)


def _one_way(neighbours: str, rows: int) -> int:
    return rows


def _one_pair(pairs: int, neighbours: str, rows: int) -> int:
    return private_tree.quality_sensitivity(neighbours, rows) ** 2


def _one_row(neighbours: str, rows: int) -> int:
    return relation_of(neighbours).changes


def _of_exact_margins(exact: Any, expected: Any, deviation: float) -> int:
    """The quality's reference is made of exact counts, so that it moves by 3 with a row, and not by 1."""
    own = np.outer(exact.sum(axis=1), exact.sum(axis=0)) / max(1, int(exact.sum()))
    return _quality(exact, own, deviation)


def _one_of_a_hub(draws: Any, qualities: Any, moves: int) -> Any:
    """The sum over the pairs of a hub, as if a row moved one of them alone."""
    return _choose(draws, qualities, 1)


def _star_for_nothing(draws: Any, edges: Any, rho: Any) -> Any:
    """The star has its share, and the tree all of it once more."""
    return _measured(draws, edges, 2 * rho)


def _twice_the_root(square: Any) -> Any:
    """Rounds that are charged an eighth of epsilon squared, as if half of it was spent."""
    return 2 * _root(square)


def _with_exact_total(plan: Any, statistic: Any) -> Any:
    found = _columns(plan, statistic)
    return ReleasedColumns(found.columns, found.noisy, found.sigma, float(statistic.rows), found.unions)


def _bounds_of_the_data(call: Any, fine: Any) -> Any:
    found = list(call.coded)
    for place, counts in fine.items():
        cells = TypedCells.of(call.kinds[place])
        seen = np.flatnonzero(cells.counts(counts))
        bounds = max(-1e6, float(cells.low[seen[0]])), min(1e6, float(cells.high[seen[-1]]))
        found[place] = replace(found[place], grid=synthetic._grid(call.kinds[place], bounds))
    return found


def _values_for_nothing(part: Any, share: str, counts: Any, **unit: Any) -> Any:
    """The counts of values have their share, and that of the edges once more."""
    rho = part.spend(share) + (part.rho_of(private_tree.EDGES) if share == private_tree.VALUES else 0)
    return private_tree.noisy_tables(np.concatenate(counts), len(counts), rho, **unit)


def _parts_of_one_row(part: Any, share: str, counts: Any, *, neighbours: str, rows: int) -> Any:
    return _parts(part, share, counts, neighbours=neighbours, rows=1)


def _exact_atoms(plan: Any, released: Any, tables: Any) -> Any:
    """Values stand out by their exact counts, and hold these."""
    found, spared = _values(plan, released, tables)
    exact = {place: tables.values(place)[: released.slots[place].listed].astype(float) for place in found.atoms}
    return released.with_atoms(exact, 0.5), spared


_columns, _values, _parts = synthetic.draw_columns, synthetic.draw_values, private_tree.TreeNoise.draw_parts

BROKEN_SYNTHETIC = {
    "noise for one table": Fault(
        "a row is in one cell of each column, not in one alone", ((private_tree, "table_sensitivity", _one_table),)
    ),
    "distances of one pair": Fault(
        "a row moves the distance of every pair", ((private_tree, "distance_sensitivity", _one_pair),)
    ),
    "one-way qualities": Fault(
        "a replaced row leaves one cell and comes to another", ((private_tree, "quality_sensitivity", _one_way),)
    ),
    "qualities of one row": Fault("a person has several rows", ((private_tree, "quality_sensitivity", _one_row),)),
    "exact margins": Fault(
        "the reference of a quality is not released", ((private_tree, "_quality", _of_exact_margins),)
    ),
    "hub of one pair": Fault("a row moves all pairs of a hub", ((private_tree._Draws, "choose", _one_of_a_hub),)),
    "star for nothing": Fault(
        "the star and the tree share one part of rho", ((private_tree._Draws, "measured", _star_for_nothing),)
    ),
    "twice the epsilon": Fault("a round costs four times as much", ((private_tree, "floor_root", _twice_the_root),)),
    "exact total": Fault("the number of rows is counted", ((synthetic, "draw_columns", _with_exact_total),)),
    "values for nothing": Fault(
        "values and edges share one part of rho", ((private_tree.TreeNoise, "draw_parts", _values_for_nothing),)
    ),
    "grains of one row": Fault(
        "a person has several rows", ((private_tree.TreeNoise, "draw_parts", _parts_of_one_row),)
    ),
    "exact atoms": Fault("which values stand out is counted", ((synthetic, "draw_values", _exact_atoms),)),
    "bounds of the data": Fault(
        "bounds are the ends of what is there", ((synthetic, "draw_grids", _bounds_of_the_data),)
    ),
}


@contextmanager
def broken_synthetic(name: str) -> Iterator[None]:
    """Plant a fault for as long as the context lasts."""
    with planted(*BROKEN_SYNTHETIC[name].patches), np.errstate(all="ignore"):
        yield
