"""Generate rows from a released tree: the same bytes from the same seed, on every platform.

All arithmetic is on stored integers. Words come from a public seed (`dpsql.noise.seeded`); no order depends on equal
keys. When n rows are divided by weights, each cell gets its share rounded down. The remaining rows go to cells in turn
by their remainders, from a random start: so every cell has its share of the rows on average. Rows are post-processing
of the release for any seed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from dpsql.arrays import Longs
from dpsql.kernels.value_grid import ValueGrid
from dpsql.noise.seeded import SeededWords

# Weights of one division are below this in sum, and so are products with numbers of rows below 2**62.
_WEIGHT_BITS = 32
OTHER = "other"


class StoredColumn(TypedDict):
    """A column of a synthetic table.

    Attributes
    ----------
    name, type : str
        As in the source; the type in SQL spelling.
    keys : list of str, or None
        Values of a listed column.
    other : bool
        Whether there is a cell for all other values.
    starts, upper, discrete
        Of `ValueGrid`; None for a listed column.
    digits : int
        Numbers are multiples of ``10**-digits``.
    places : list of int
        The united cell of each cell: of NULL, then of values, then of others, or of atoms.
    shares : list of int
        Weight of each cell in its union, in any unit.
    atoms : list of float
        Single values, each with its own cell after the cells of the grid; releases of earlier versions have none.
    mixture : list of (int, int, int)
        How values in a cell are drawn, see `ValueGrid.grained`; empty for evenly, as in earlier versions.
    """

    name: str
    type: str
    keys: list[str] | None
    other: bool
    starts: list[float] | None
    upper: float
    discrete: bool
    digits: int
    places: list[int]
    shares: list[int]
    atoms: NotRequired[list[float]]
    mixture: NotRequired[list[list[int]]]


class StoredTree(TypedDict):
    """A released tree.

    Attributes
    ----------
    columns : list of StoredColumn
    rows : int
        Released number of rows.
    seed : str
        128 public bits as hexadecimal digits, drawn once.
    sizes : list of int
        Number of each column's united cells.
    order : list of list of int
        A column, and the columns that it depends on, which are drawn before it.
    weights : list of list of int
        Weights of the united cells of each of these columns, for each cell of its parent columns, row by row.
    """

    columns: list[StoredColumn]
    rows: int
    seed: str
    sizes: list[int]
    order: list[list[int]]
    weights: list[list[int]]


def _divided(count: int, weights: Longs, words: SeededWords) -> Longs:
    """Return the number of rows of each cell; the weights are integers >= 0."""
    total = int(weights.sum())
    if not total:
        weights = np.ones_like(weights)
        total = len(weights)
    shift = max(0, total.bit_length() - _WEIGHT_BITS)
    if shift:
        weights = weights >> shift
        total = int(weights.sum())
    products = count * weights
    counts, rest = products // total, np.cumsum(products % total)
    start = int(words.take(1)[0]) % total
    # A cell gets a row when the remainders up to it pass start, start + total, start + 2 total, …
    met = (rest + (total - 1 - start)) // total
    return counts + np.diff(met, prepend=0)


def _spread(groups: Longs, weights: Longs, words: SeededWords) -> Longs:
    """Return a cell for each row, by the weights of the row's group, shape (groups, cells)."""
    allocation = np.zeros(len(groups), dtype=np.int64)
    order = words.order(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    counts = np.bincount(groups, minlength=len(weights))
    start = 0
    for group, count in enumerate(counts.tolist()):
        if count:
            cells = np.repeat(np.arange(weights.shape[1]), _divided(count, weights[group], words))
            allocation[order[start : start + count]] = cells
        start += count
    return allocation


def united_cells(stored: StoredTree, count: int, seed: str) -> list[Longs]:
    """Return the united cell of each column in `count` rows."""
    words, sizes = SeededWords(seed), stored["sizes"]
    cells: dict[int, Longs] = {}
    for (column, *parents), weights in zip(stored["order"], stored["weights"], strict=True):
        groups = np.zeros(count, dtype=np.int64)
        for parent in parents:
            groups = groups * sizes[parent] + cells[parent]
        table = np.array(weights, dtype=np.int64).reshape(-1, sizes[column])
        cells[column] = _spread(groups, table, words)
    return [cells[column] for column in range(len(sizes))]


def _fine_cells(column: StoredColumn, united: Longs, words: SeededWords) -> Longs:
    """Return the cell of each row from its united cell."""
    unions, shares = (np.array(column[name], dtype=np.int64) for name in ("places", "shares"))
    weights = np.zeros((int(unions.max(initial=0)) + 1, len(unions)), dtype=np.int64)
    weights[unions, np.arange(len(unions))] = shares
    for group in np.flatnonzero(~weights.any(axis=1)):
        weights[group, unions == group] = 1
    return _spread(united, weights, words)


def _texts(column: StoredColumn, cells: Longs, words: SeededWords) -> pa.Array:
    """Return a column's values as strings for a cast in SQL; cell 0 is NULL."""
    absent = cells == 0
    if column["keys"] is not None:
        last = [OTHER if column["type"] == "VARCHAR" else None] if column["other"] else []
        return pa.array([None, *column["keys"], *last], type=pa.string()).take(pa.array(cells))
    grid = ValueGrid(tuple(column["starts"] or ()), column["upper"], column["discrete"])
    random = words.take(len(cells))
    if not grid.count:
        return pa.nulls(len(cells), pa.string())
    mixture, atoms = column.get("mixture"), np.array(column.get("atoms", []), dtype=np.float64)
    within = np.clip(cells - 1, 0, grid.count - 1)
    values = grid.grained(within, random, words.take(len(cells)), mixture) if mixture else grid.values(within, random)
    is_atom = cells > grid.count
    values[is_atom] = atoms[cells[is_atom] - grid.count - 1]
    numbers = values.tolist()
    text = _WRITTEN.get(column["type"], _number)
    digits = column["digits"]
    return pa.array(
        [None if gone else text(number, digits) for number, gone in zip(numbers, absent.tolist(), strict=True)],
        type=pa.string(),
    )


def _number(number: float, digits: int) -> str:
    if not digits:
        return repr(number)
    sign, figures = "-" if number < 0 else "", f"{abs(int(number)):0{digits + 1}d}"
    return f"{sign}{figures[:-digits]}.{figures[-digits:]}"


def _integer(number: float, digits: int) -> str:
    return str(int(number))


def _single(number: float, digits: int) -> str:
    return repr(float(np.float32(number)))


def _date(number: float, digits: int) -> str:
    return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=int(number)))


def _timestamp(number: float, digits: int) -> str:
    return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(number)))


_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_WRITTEN: Mapping[str, Callable[[float, int], str]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "FLOAT": _single,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}


def synthetic_columns(stored: StoredTree, count: int | None, seed: str | None) -> list[pa.Array]:
    """Return the columns of a table, as strings for a cast in SQL.

    Parameters
    ----------
    stored : StoredTree
    count : int or None
        Number of rows, from 0; None for the released number.
    seed : str or None
        Public; None for the release's seed.

    Returns
    -------
    columns : list of StringArray
        In the order of the source's columns; rows are in random order.
    """
    rows = stored["rows"] if count is None else count
    text = stored["seed"] if seed is None else seed
    united = united_cells(stored, rows, text)
    words = SeededWords(f"{text} values")
    return [
        _texts(column, _fine_cells(column, cells, words), words)
        for column, cells in zip(stored["columns"], united, strict=True)
    ]
