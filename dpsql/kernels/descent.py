"""Take Newton steps to a certainly small gradient, over rows or over sums from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.errors import InternalError
from dpsql.kernels.logistic import MOST_ROWS, FineGradient, Gradient, GradientSums, SignedRows, coefficient_multiples

# Doubles cannot improve a gradient of at most this many times its error.
_SPENT = 4.0
_MOST_STEPS = 1000
_MOST_HALVINGS = 60

# It yields coefficients, receives their sums, and returns the last gradient.
Descent: TypeAlias = "Generator[list[int], GradientSums, FineGradient]"


def descent(width: int, *, regularization: float, linear: Doubles, tolerance: float) -> Descent:
    """Yield coefficients, receive the rows' sums there, and return a gradient that is certainly small.

    So the owner of the rows computes the sums, in one pass. Parameters and result as for `minimise`; every gradient is
    fine, and the first coefficients are zeros.

    Raises
    ------
    InternalError
        I022, when the gradient stays large.
    """
    sums = yield [0] * width
    current = sums.gradient(regularization, linear)
    while current.at_most > tolerance:
        step, share = sums.newton(current, regularization), 1.0
        while True:
            moved = [a + b for a, b in zip(current.multiples, coefficient_multiples(share * step), strict=True)]
            sums = yield moved
            trial = sums.gradient(regularization, linear)
            if _falls(trial, current, share):
                break
            share /= 2.0
            if share < 2.0**-_MOST_HALVINGS:
                raise InternalError("I022", "the fit did not converge. Raise regularization.")
        current = trial
    return current


def _falls(trial: Gradient, current: Gradient, share: float) -> bool:
    """Return whether a share of a Newton step makes the gradient smaller by enough."""
    # The second comparison: a tiny share's factor rounds to 1.
    return trial.norm <= (1.0 - share / 4.0) * current.norm < current.norm


def minimise(
    rows: SignedRows,
    *,
    regularization: float,
    linear: NDArray[np.float64],
    tolerance: float,
    tick: Callable[[], object] | None = None,
) -> Gradient:
    """Return coefficients where the norm of the gradient is certainly at most `tolerance`.

    Parameters
    ----------
    rows : SignedRows
    regularization : float
        > 0.
    linear : ndarray of float64, shape (p,)
    tolerance : float
        > 0. Doubles suffice for ``2**-20``, whatever the number of rows; below, a fine gradient may be needed; below
        ``2**-50``, it may not suffice for the largest number of rows.
    tick : callable, optional
        Called before every step; may raise. No argument: the progress of the search depends on the rows.

    Returns
    -------
    gradient : Gradient
        ``gradient.at`` is within ``tolerance / regularization`` of the minimiser in the L2 norm; the multiples of a
        `FineGradient` are, too, and `at` is the multiples to 53 bits.

    Raises
    ------
    InternalError
        I021, when there are more than ``2**27`` rows; I022, when the gradient stays large, which strong convexity rules
        out.

    Notes
    -----
    Newton steps are halved until the norm of the gradient falls. Along a Newton direction, even one solved only to a
    share of its right-hand side, the norm of the gradient falls at first at the rate of its value: such a step always
    exists, and the norm is stationary only at the minimiser.
    """
    if rows.rows > MOST_ROWS:
        raise InternalError("I021", f"a fit takes at most {MOST_ROWS} rows. Fit a sample of them.")
    current = rows.gradient(np.zeros(rows.width), regularization, linear)
    for _ in range(_MOST_STEPS):
        if current.at_most <= tolerance:
            return current
        if tick is not None:
            tick()
        following = None
        if isinstance(current, FineGradient) or current.norm > _SPENT * current.error:
            following = _descend(rows, current, regularization, linear)
        if following is None:
            if isinstance(current, FineGradient):
                break
            following = rows.fine_gradient(coefficient_multiples(current.at), regularization, linear)
        current = following
    raise InternalError("I022", "the fit did not converge. Raise regularization.")


def _descend(
    rows: SignedRows, current: Gradient, regularization: float, linear: NDArray[np.float64]
) -> Gradient | None:
    """Return the smaller gradient after one step; None if there is no such step."""
    step = rows.newton(current, regularization)
    share = 1.0
    for _ in range(_MOST_HALVINGS):
        if isinstance(current, FineGradient):
            moved = [a + b for a, b in zip(current.multiples, coefficient_multiples(share * step), strict=True)]
            trial: Gradient = rows.fine_gradient(moved, regularization, linear)
        else:
            trial = rows.gradient(current.at + share * step, regularization, linear)
        if _falls(trial, current, share):
            return trial
        share /= 2.0
    return None
