"""Newton steps to a gradient that is certainly small, over rows at hand or over sums from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.errors import InternalError
from dpsql.kernels.logistic import MOST_ROWS, FineGradient, Gradient, GradientSums, SignedRows, coefficient_multiples

# A gradient in doubles of at most so many times its error is as good as doubles can make it.
_SPENT = 4.0
_MOST_STEPS = 1000
_MOST_HALVINGS = 60

# What yields coefficients, takes the sums there, and returns the gradient at its end.
Descent: TypeAlias = "Generator[list[int], GradientSums, FineGradient]"


def descent(width: int, *, regularization: float, linear: Doubles, tolerance: float) -> Descent:
    """Yield coefficients, take the sums of the rows there, and return a gradient that is certainly small.

    So whoever has the rows computes the sums, in one pass over them. Parameters and result as of `minimise`; every
    gradient is fine, and the first coefficients are zeros.

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
    """Whether a share of a Newton step leads to a gradient that is smaller by enough."""
    # Also less by itself: for a tiny share the factor rounds to 1.
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
        > 0. Doubles suffice for ``2**-20``, whatever the number of rows; below, a fine gradient may be needed, and for
        less than ``2**-50`` that may not do for all rows allowed.
    tick : callable, optional
        Called before every step; may raise. Told nothing: how far the search is depends on the rows.

    Returns
    -------
    gradient : Gradient
        ``gradient.at`` is within ``tolerance / regularization`` of the minimiser in the L2 norm; where it is a
        `FineGradient`, so are its multiples, and `at` is those to 53 bits.

    Raises
    ------
    InternalError
        I021, when there are more than ``2**27`` rows; I022, when the gradient stays large, which strong convexity rules
        out.

    Notes
    -----
    Newton steps, halved until the norm of the gradient falls. Along a Newton direction, also one solved for to a share
    of its right-hand side, the norm of the gradient falls at first at the rate of its value: there is always such a
    step, and no other point where the norm is stationary than the minimiser.
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
    """Return the gradient a step further, where it is smaller; None where there is no such step."""
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
