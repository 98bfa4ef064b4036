"""Votes of blocks: the statistic of two-stage selection.

The rows are assigned to m blocks, each row (or each privacy unit) independently of all others. Every block casts
one vote for each of at most k features, by a rule that sees the rows of that block only; ``v_j`` is the number
of votes for feature j, in ``[0, m]``.

Sensitivity, where a privacy unit's rows touch at most ``b`` blocks (b = 1 when blocks are drawn for the unit or
a unit is one row; b = rows per unit when each row draws its own):

==============  ============  ============  ============  ===============================================
relation        |v_j| moves   L1            range         why
==============  ============  ============  ============  ===============================================
add_remove      b             2 k b         2 b           one block exchanges one set of at most k
                                                          features for another
replace         2 b           4 k b         4 b           the id is part of the row, so one block loses a
                                                          row and another gains one
==============  ============  ============  ============  ===============================================

Proof sketch. Fix the assignment of every id that occurs in either table and the random numbers that break ties,
block by block; all of these are drawn without looking at the rows' values. Then the vote of a block that no row
entered or left is the same in both tables. A block that one did contributes to each ``v_j`` 0 or 1 before and
after: it moves by -1, 0 or 1, and at most 2 k of the features move. Sum over the blocks touched; average over the
draws, with respect to which a guarantee for every fixed value is a guarantee.

Votes are not monotone: an added row may raise one feature and lower another, so the range is twice the
sensitivity. Under replace both blocks can do so with the same features: votes (5, 5, 0) become (3, 7, 0).

None of this holds for blocks of consecutive rows of a shuffled table, ``m`` blocks of ``floor(n / m)``: one row
more shifts the borders of all blocks (`tests/support/broken/votes.py`). Nor may m depend on the private n, other
than through a released count: `blocks_from_count`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, KeptRows
from dpsql.contract.relation import relation_of
from dpsql.errors import ParameterError
from dpsql.noise.entropy import SYSTEM
from dpsql.noise.exact import exp_bounds, log_bounds

_DIGITS = 40


def component_sensitivity(neighbours: str, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return how far one ``v_j`` can move between neighbouring tables.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows of one privacy unit at most, >= 1.
    unit_blocks : bool
        The block was drawn for the privacy unit, so all of its rows are in one block. False: for each row.
    """
    # Where blocks are drawn for the unit, all of its rows touch the one block that a single row does.
    return relation_of(neighbours, 1 if unit_blocks else max_rows_per_unit).norm(1)


def utility_range(neighbours: str, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return the largest spread of the changes of all ``v_j``; the arguments are those of `component_sensitivity`."""
    return 2 * component_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit, unit_blocks=unit_blocks)


def total_sensitivity(neighbours: str, k: int, *, max_rows_per_unit: int = 1, unit_blocks: bool = True) -> int:
    """Return the L1 sensitivity of the votes, k per block; see `component_sensitivity`."""
    return 2 * k * component_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit, unit_blocks=unit_blocks)


def blocks_from_count(noisy_count: int, *, rows_per_block: int, epsilon: Fraction, failure: Fraction) -> int:
    """Return the number of blocks that a released row count allows; post-processing.

    Parameters
    ----------
    noisy_count : int
        The number of rows n plus discrete Laplace noise of scale ``1 / epsilon``.
    rows_per_block : int
        Rows that an average block is to have, >= 1; public.
    epsilon : Fraction
        One over the scale of the noise, > 0: the privacy loss of the count, over the rows of a privacy unit.
    failure : Fraction
        In (0, 1): chance at most that blocks are smaller on average than asked, because noise made the count
        too large. No guarantee depends on it.

    Returns
    -------
    blocks : int
        ``max(1, floor((noisy_count - shift) / rows_per_block))``, see `count_shift`.
    """
    if not rows_per_block >= 1:
        raise ParameterError("P018", f"rows_per_block must be >= 1; got {rows_per_block}.")
    return max(1, (noisy_count - count_shift(epsilon, failure)) // rows_per_block)


def count_shift(epsilon: Fraction, failure: Fraction) -> int:
    """Return the least s >= 0 with ``P(Z > s) <= failure``, Z discrete Laplace of scale ``1 / epsilon``.

    ``P(Z >= t) = a**t / (1 + a)`` for t >= 1, ``a = exp(-epsilon)``. Every rounding enlarges s, which is more
    than the least only when ``failure`` agrees with one of these probabilities to 30 digits.
    """
    if not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be > 0; got {epsilon}.")
    if not 0 < failure < 1:
        raise ParameterError("P018", f"failure must be strictly between 0 and 1; got {failure}.")
    unit = 10**_DIGITS
    # -log(failure * (1 + a)), from above.
    exponent = (
        log_bounds(failure.denominator, _DIGITS)[1]
        - log_bounds(failure.numerator, _DIGITS)[0]
        + log_bounds(unit, _DIGITS)[1]
        - log_bounds(unit + exp_bounds(-epsilon, _DIGITS)[0], _DIGITS)[0]
    )
    least = -(-exponent * epsilon.denominator // (unit * epsilon.numerator)) - 1
    return max(0, int(least))


class KeyedRows(KeptRows):
    """All rows, with what decides the block of each."""

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._width = width
        self._batches: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint64]]] = []

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep a batch of rows; one without an id draws a key of its own."""
        keys = SYSTEM.words(len(target)) if batch.keys is None else batch.keys
        self._batches.append((target, np.ascontiguousarray(features.T), keys))
        self.rows += len(target)

    def zero(self) -> KeyedRows:
        """Return no rows."""
        return KeyedRows(self._width)

    def merge(self, other: KeyedRows) -> None:
        """Put the rows of another one behind these."""
        self._batches += other._batches
        self.rows += other.rows

    def table(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint64]]:
        """Return features of shape (n, p), row by row, target and keys of shape (n,); the collector is empty then."""
        features, target = np.empty((self.rows, self._width)), np.empty(self.rows)
        keys = np.empty(self.rows, dtype=np.uint64)
        stop = self.rows
        while self._batches:
            part = self._batches.pop()
            start = stop - len(part[0])
            target[start:stop], features[start:stop], keys[start:stop] = part
            stop = start
        return features, target, keys
