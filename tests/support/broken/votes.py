"""Broken votes: blocks of consecutive rows, all of which move when one row is added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def batches_of_floor(rows: int, blocks: int) -> NDArray[np.int64]:
    """Cut a (shuffled) table of n rows into m batches of ``floor(n / m)`` rows, as dp_lasso_features does.

    Parameters
    ----------
    rows : int
        n.
    blocks : int
        m.

    Returns
    -------
    block : ndarray of int64, shape (n,)
        The batch of each row; rows left over are in none: -1.

    Notes
    -----
    - **What is wrong**: the borders of all batches move when n crosses a multiple of m, so one row touches m
      blocks, not one. A shuffle does not help: given the order of the other rows, all batches change.
    - **Caught by**: any check of the sensitivity of the votes against `dpsql.statistics.votes`.
    - **Counter-example**: m = 20, k = 1, two features: with 99 rows all 20 batches (of 4) vote for one feature, with
      one row more all 20 (of 5) for the other: the votes move by 20, not 1, and their range is 40, not 2.

    References
    ----------
    .. [1] google-research/private_kendall and dp_regression, ``dp_lasso_features``: batches of ``int(n / m)``.
    """
    size = rows // blocks
    block = np.arange(rows) // max(size, 1)
    return np.where(block < blocks, block, -1) if size else np.full(rows, -1)
