"""Broken noise: half the scale, textbook floating-point Laplace, sums in doubles."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from dpsql.noise.discrete import discrete_laplace
from dpsql.noise.entropy import SYSTEM


def half_scale_laplace(value: int, *, l1_sensitivity: int, epsilon: Fraction) -> int:
    """Discrete Laplace noise of half the scale it needs.

    Notes
    -----
    - **What is wrong**: the scale is ``l1_sensitivity / (2 epsilon)``, a slip between one- and
      two-sided range.
    - **Caught by**: `audit`, `fit`.
    - **Counter-example**: a count of 0 against 1 has loss ``2 epsilon``.
    """
    return value + int(discrete_laplace(Fraction(l1_sensitivity) / (2 * Fraction(epsilon)), 1)[0])


def naive_laplace(value: float, *, l1_sensitivity: float, epsilon: float) -> float:
    """Textbook Laplace noise: the inverse distribution function of a uniform double, added in doubles.

    Notes
    -----
    - **What is wrong**: not every double is reachable, and which ones are depends on `value`. Around
      0 the noise alone has bits below ``2**-54``; the sum ``1 + noise`` has none there.
    - **Caught by**: `audit`, by the grain of the output (its lowest bit).
    - **Counter-example**: at epsilon = 1, outputs that are no multiple of ``2**-53``
      have probability 0.25 when the value is 0 and 0 when it is 1: infinite loss.
    """
    uniform = random.Random(int(SYSTEM.words(1)[0])).random() - 0.5
    noise = -math.copysign(math.log1p(-2.0 * abs(uniform)), uniform) * l1_sensitivity / epsilon
    return value + noise


def float_sum(values: Sequence[float]) -> float:
    """Sum in doubles, from left to right.

    Notes
    -----
    - **What is wrong**: the sum depends on the order of rows, and one row in [-1, 1] can move it by
      more than 1 through rounding.
    - **Caught by**: `check_sensitivity` with ``ordered=True``.
    - **Counter-example**: one row of 1 after two rows of ``0.75 * 2**-52`` moves the sum by ``1 + 2**-53``.
    """
    total = 0.0
    for value in values:
        total += value
    return total
