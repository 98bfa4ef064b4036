"""Broken logistic regression: wrong constants, a coordinate that is left out, rows too long, an error that shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.functions.regression import logistic as model
from dpsql.kernels.descent import minimise
from dpsql.kernels.logistic import SignedRows
from dpsql.mechanisms import objective_perturbation as mechanism
from dpsql.mechanisms.objective_perturbation import ObjectiveNoise
from dpsql.noise.ball import ball_error, exponential_norm
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.logistic_rows import Scaling
from support.broken.planting import Patch, planted
from support.laws.logistic import Array, Perturbation, Table


def constants_for_added_rows(epsilon: float) -> Perturbation:
    """Return the published constants of Kifer, Smith and Thakurta for pure privacy.

    Parameters
    ----------
    epsilon : float
        > 0.

    Returns
    -------
    noise : Perturbation
        A scale of ``2 / epsilon`` and a ridge of ``1 / (2 epsilon)``.

    Notes
    -----
    - **What is wrong**: private for an added row (0.70 epsilon at 1), not for a replaced one.
    - **Caught by**: the exact densities of two tables with two columns.
    - **Counter-example**: 1.201 at epsilon = 1, 1.271 times epsilon at 0.1.

    References
    ----------
    .. [1] D. Kifer, A. Smith, A. Thakurta, COLT 2012, Algorithm 1.
    """
    return Perturbation("exponential", 2 / epsilon, 0.5 / epsilon)


def whole_epsilon_to_noise(epsilon: float, regularization: float) -> Perturbation:
    """Return noise that leaves nothing for the determinants.

    Parameters
    ----------
    epsilon, regularization : float
        > 0.

    Notes
    -----
    - **What is wrong**: a scale of ``1 / epsilon`` for any ridge; it must be larger where the ridge is below it.
    - **Caught by**: the exact densities of two tables with one column.
    - **Counter-example**: epsilon = 1 and a ridge of 0.3: 1.28.
    """
    return Perturbation("exponential", 1 / epsilon, regularization)


def one_row_for_a_unit(epsilon: float) -> Perturbation:
    """Return the noise of one row, for units of several.

    Parameters
    ----------
    epsilon : float
        > 0.

    Notes
    -----
    - **What is wrong**: a unit of c rows moves b by c times as much.
    - **Caught by**: the exact densities of two tables that differ in c rows.
    - **Counter-example**: 4 rows at epsilon = 1: 4.
    """
    return Perturbation("exponential", 1 / epsilon, 2 / epsilon)


def without_intercept_noise(
    rows: SignedRows, *, scale: Fraction, regularization: float, source: BitSource = SYSTEM
) -> Array:
    """Return coefficients whose intercept, the first column, is not perturbed.

    Parameters
    ----------
    rows : SignedRows
    scale : Fraction
        Of the noise on the other coordinates.
    regularization : float
    source : BitSource

    Returns
    -------
    coefficients : ndarray, shape (p,)

    Notes
    -----
    - **What is wrong**: the gradient of the objective without noise is 0 in that coordinate, on the right table only.
    - **Caught by**: that gradient: 0 on one table, and a number of the size of the missing row on its neighbour.
    - **Counter-example**: any two neighbours; the loss is infinite.
    """
    linear = np.concatenate(([0.0], exponential_norm(scale, rows.width - 1, source=source)))
    return minimise(rows, regularization=regularization, linear=linear, tolerance=1e-9).at


def unregularised(scale: float) -> Perturbation:
    """Return noise on an intercept that the ridge leaves out.

    Parameters
    ----------
    scale : float
        > 0.

    Notes
    -----
    - **What is wrong**: without the ridge there is no least curvature: one row may double the determinant.
    - **Caught by**: the exact densities of two tables with one column.
    - **Counter-example**: the labels (1, -1), and 1 once more: ``rate + ln(3/2)`` far out.
    """
    return Perturbation("exponential", scale, 0.0)


def rounded_rows(features: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Return rows that are scaled to a radius and then rounded to nearest.

    Parameters
    ----------
    features : ndarray, shape (rows, d)
        Integers.
    radius : int
        Largest norm of a row.

    Notes
    -----
    - **What is wrong**: rounding after the clip may make every coordinate larger.
    - **Caught by**: the sum of squares, in integers.
    """
    norm = np.sqrt((features**2).sum(axis=1, keepdims=True))
    return np.asarray(np.rint(features * np.minimum(1.0, radius / np.maximum(norm, 1.0))), dtype=np.float64)


def one_step_log_density(points: Array, table: Table, noise: Perturbation) -> Array:
    """Return the law of a solver that stops after one Newton step, in one column, released as it is.

    Parameters
    ----------
    points : ndarray, shape (k, 1)
    table : Table
    noise : Perturbation

    Returns
    -------
    log_density : ndarray, shape (k,)

    Notes
    -----
    - **What is wrong**: the proof is for the minimiser. An iterate is another function of the rows, and no noise hides
      how far it is from the minimiser.
    - **Caught by**: its exact law: ``w = (sum v / 2 - b) / (lambda + sum v^2 / 4)``, so that one row moves b by an
      amount that grows with w.
    - **Counter-example**: far out the loss has no bound.
    """
    curvature = noise.regularization + float(table.counts @ table.rows[:, 0] ** 2) / 4
    linear = float(table.counts @ table.rows[:, 0]) / 2 - curvature * points
    return noise.log_density(linear) + math.log(curvature)


def _calibrated(**changed: Any) -> Callable[..., Any]:
    """Return the calibration with other arguments than it is given."""
    real = mechanism.calibrate

    def calibrate(epsilon: Fraction, delta: Fraction | None, **given: Any) -> Any:
        return real(epsilon, delta, **{**given, **changed})

    return calibrate


def _constants_for_added_rows(epsilon: Fraction, delta: Fraction | None, **given: Any) -> ObjectiveNoise:
    left, output = epsilon * (1 - mechanism.OUTPUT_SHARE), epsilon * mechanism.OUTPUT_SHARE
    return ObjectiveNoise(epsilon, Fraction(0), "exponential", 2 / left, 1 / (2 * left), output)


def _free_determinants(epsilon: Fraction, delta: Fraction | None, **given: Any) -> ObjectiveNoise:
    right = mechanism.calibrate(epsilon, None, **given)
    return replace(right, scale=1 / (epsilon - right.output_epsilon))


def _free_output(epsilon: Fraction, delta: Fraction | None, **given: Any) -> ObjectiveNoise:
    right = mechanism.calibrate(epsilon, delta, **given)
    return replace(right, scale=right.scale * (1 - mechanism.OUTPUT_SHARE))


def _whole_delta(epsilon: Fraction, delta: Fraction | None, **given: Any) -> ObjectiveNoise:
    right = mechanism.calibrate(epsilon, delta, **given)
    steps = given["max_rows_per_unit"] * {"add_remove": 1, "replace": 2}[given["neighbours"]]
    return replace(right, scale=1 / gaussian_mu((epsilon - right.output_epsilon) / steps, delta or Fraction(1, 10)))


def _quiet_intercept(scale: Fraction, size: int, **options: Any) -> Array:
    drawn = exponential_norm(scale, size, **options)
    drawn[0] = 0.0
    return drawn


def _no_distance(self: ObjectiveNoise, width: int) -> Fraction:
    return ball_error(self.scale, width) / self.regularization


def _integer_rows(whole: Callable[[Array, int], Array]) -> Callable[..., Any]:
    """Return `Scaling.rows` with another way to whole numbers of a norm."""

    def rows(self: Scaling, features: Array) -> Array:
        scaled = np.nan_to_num(self.mapped.quantised(features)) * self.shrink
        return np.column_stack((np.full(len(scaled), float(self.intercept)), whole(scaled, self.radius)))

    return rows


# Owner, name and replacement of each fault.
BROKEN_LOGISTIC: dict[str, Patch] = {
    "constants for added rows": (model, "calibrate", _constants_for_added_rows),
    "replaced rows as added ones": (model, "calibrate", _calibrated(neighbours="add_remove")),
    "units as rows": (model, "calibrate", _calibrated(max_rows_per_unit=1)),
    "determinants for free": (model, "calibrate", _free_determinants),
    "output noise for free": (model, "calibrate", _free_output),
    "the whole delta for every row": (model, "calibrate", _whole_delta),
    "an intercept without noise": (mechanism, "exponential_norm", _quiet_intercept),
    "the error of the solver is not hidden": (ObjectiveNoise, "_distance", _no_distance),
    "rows of any length": (Scaling, "rows", _integer_rows(lambda features, _: np.trunc(features))),
    "rows rounded after the clip": (Scaling, "rows", _integer_rows(rounded_rows)),
}


def broken_logistic(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_LOGISTIC` behind the SQL function for as long as the context lasts. Never private."""
    return planted(BROKEN_LOGISTIC[name])
