"""How much each feature of a row counts: all of a row that has few, and an equal share of a row that has too many.

A row with k different features counts ``one`` for each if k is at most `most`, and ``floor(most * one / k)`` otherwise.
Nothing is chosen: the shares follow from k alone, so every engine and every attempt counts the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def feature_shares(held: NDArray[np.int64], most: int, one: int) -> NDArray[np.int64]:
    """Return what each feature of a row counts.

    Parameters
    ----------
    held : ndarray of int64
        Numbers of different features of the rows.
    most : int
        What all features of a row count together at most, in rows, >= 1.
    one : int
        What one row is, in the unit of the counts; ``most * one`` below ``2**62``.

    Notes
    -----
    **Sensitivity**: all features of a row together count at most ``most * one``, and each at most `one`, because the
    share is rounded down.
    """
    return np.where(held > most, most * one // np.maximum(held, 1), one)


def add_shares(
    counts: NDArray[np.int64],
    sides: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    one: int,
) -> None:
    """Count the features of rows that list them.

    Parameters
    ----------
    counts : ndarray of int64
        For every different feature of a row, the place ``side + position`` is raised by the row's share.
    sides : ndarray of int64, shape (rows,)
        Of each row, >= 0, or -1 for a row that raises nothing.
    lengths, positions
        As for `distinct_features`.
    most, one : int
        As for `feature_shares`.
    """
    rows, features = distinct_features(lengths, positions)
    shares = feature_shares(np.bincount(rows, minlength=len(lengths)), most, one)
    counted = sides[rows] >= 0
    rows = rows[counted]
    np.add.at(counts, sides[rows] + features[counted], shares[rows])


def distinct_features(
    lengths: NDArray[np.int64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and position of every different feature of each row, ascending.

    Parameters
    ----------
    lengths : ndarray of int64, shape (rows,)
        Number of features of each row, repeats included.
    positions : ndarray of int64, shape (sum of lengths,)
        Positions of these features, >= 0; a row may repeat one.
    """
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = int(positions.max(initial=0)) + 1
    cells = np.sort(rows * width + positions)
    cells = cells[np.diff(cells, prepend=-1) > 0]  # np.unique hashes, which takes longer
    return cells // width, cells % width
