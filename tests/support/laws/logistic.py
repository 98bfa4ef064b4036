"""The exact law of objective perturbation, from its definition, and what a SQL call that uses it costs.

A table is signed rows ``v = y x`` with counts, which may be any numbers >= 0: a hundred million short rows cost no more
than one. Nothing here knows how the noise was calibrated: `spent` goes by what samplers and solver were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.mechanisms import objective_perturbation as module
from dpsql.mechanisms import objective_perturbation as perturbation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Perturbation:
    """What is minimised beside the losses.

    Attributes
    ----------
    law : {'exponential', 'gaussian'}
        Of the linear term.
    scale : float
        Its unit: the density is proportional to ``exp(-||b|| / scale)``, or normal.
    regularization : float
        >= 0.
    """

    law: str
    scale: float
    regularization: float

    def log_density(self, linear: Array) -> Array:
        """Return the logarithm of the density of the linear term, shape (k,) for points of shape (k, p)."""
        width = linear.shape[1]
        norm = np.sqrt((linear**2).sum(axis=1)) / self.scale
        if self.law == "gaussian":
            return np.asarray(-(norm**2) / 2 - width * math.log(self.scale * math.sqrt(2 * math.pi)))
        # Area of the sphere times Gamma(p).
        area = math.log(2) + width / 2 * math.log(math.pi) - math.lgamma(width / 2)
        return np.asarray(-norm - area - math.lgamma(width) - width * math.log(self.scale))


@dataclass(frozen=True)
class Table:
    """Signed rows with counts.

    Attributes
    ----------
    rows : ndarray, shape (m, p)
    counts : ndarray, shape (m,)
    """

    rows: Array
    counts: Array

    @classmethod
    def of(cls, rows: ArrayLike, counts: ArrayLike | None = None, width: int = 1) -> Table:
        """Make a table; without counts every row counts once."""
        matrix = np.asarray(rows, dtype=np.float64).reshape(-1, width)
        return cls(matrix, np.ones(len(matrix)) if counts is None else np.asarray(counts, dtype=np.float64))

    def plus(self, rows: ArrayLike, count: float = 1.0) -> Table:
        """Return the table with more rows."""
        more = np.asarray(rows, dtype=np.float64).reshape(-1, self.rows.shape[1])
        return Table(np.vstack((self.rows, more)), np.concatenate((self.counts, np.full(len(more), count))))


def log_density(points: Array, table: Table, noise: Perturbation) -> Array:
    """Return the logarithm of the density of the minimiser.

    Parameters
    ----------
    points : ndarray, shape (k, p)
        Coefficients.
    table : Table
    noise : Perturbation

    Returns
    -------
    log_density : ndarray, shape (k,)
        That of the linear term ``b(w) = sum q_i v_i - lambda w`` whose minimiser w is, times the determinant of the
        second derivatives there.
    """
    width = points.shape[1]
    linear = -noise.regularization * points
    second = np.broadcast_to(noise.regularization * np.eye(width), (len(points), width, width)).copy()
    for row, count in zip(table.rows, table.counts, strict=True):
        margin = points @ row
        q = 1.0 / (1.0 + np.exp(np.clip(margin, -700, 700)))
        other = 1.0 / (1.0 + np.exp(np.clip(-margin, -700, 700)))
        linear += (count * q)[:, None] * row
        second += (count * q * other)[:, None, None] * np.outer(row, row)
    return np.asarray(noise.log_density(linear) + np.linalg.slogdet(second)[1])


def loss_at(points: Array, first: Table, second: Table, noise: Perturbation) -> Array:
    """Return the logarithm of the ratio of the two densities at points of shape (k, p)."""
    return log_density(points, first, noise) - log_density(points, second, noise)


def hockey_stick(points: Array, cell: float, first: Table, second: Table, noise: Perturbation, epsilon: float) -> float:
    """Return the least delta at epsilon for two tables, by a sum over a regular grid.

    Parameters
    ----------
    points : ndarray, shape (k, p)
        Grid on which both densities have all but nothing of their mass.
    cell : float
        Volume of a cell.
    first, second : Table
    noise : Perturbation
    epsilon : float

    Returns
    -------
    delta : float
        ``integral of max(0, density_1 - exp(epsilon) density_2)``.
    """
    densities = [np.exp(log_density(points, table, noise)) for table in (first, second)]
    for density in densities:
        if not abs(density.sum() * cell - 1.0) < 1e-6:
            raise ValueError(f"the grid holds {density.sum() * cell} of a density")
    return float(np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0.0).sum() * cell)


def shifted(amount: float, short: float = 1e-6) -> Table:
    """Return a table of one column that moves b by `amount` and has next to no curvature: very many very short rows."""
    return Table.of([math.copysign(short, amount)], [2.0 * abs(amount) / short])


def replaced_pair(odds: float, angle: float = 1e-4, pull: float = 60.0) -> tuple[Table, Table, Array]:
    """Return two tables of two columns that differ in one row, and a point where they differ the most.

    Parameters
    ----------
    odds : float
        ``w . v`` of the second row at the point.
    angle : float
        By how much the two rows are not opposite.
    pull : float
        ``-w . v`` of the first row: far from the decision, so that its curvature is next to nothing.

    Returns
    -------
    first, second : Table
    point : ndarray, shape (1, 2)

    Notes
    -----
    The rows are all but opposite, so that b moves by nearly ``q_1 + q_2``; yet far out along the second column both
    ``w . v`` can be anything. Very many further rows turn b into the first column, and have no curvature either.
    """
    one, other = (np.array([sign * math.cos(angle), math.sin(angle)]) for sign in (1.0, -1.0))
    point = np.linalg.solve(np.array([one, other]), np.array([-pull, odds]))
    common = Table.of([[1.0, 0.0]], [1e3 * abs(point[1])], width=2)
    return common.plus(one), common.plus(other), point[None, :]


def published_calibration(epsilon: float, rows: int, ridge: float) -> tuple[float, float]:
    """Return the published calibration for replaced rows, as the scale of the noise and the ridge of the sum.

    Parameters
    ----------
    epsilon : float
        > 0.
    rows : int
        Public number of rows.
    ridge : float
        Ridge of the mean over the rows.

    References
    ----------
    .. [1] Chaudhuri, Monteleoni, Sarwate, JMLR 2011, Algorithm 2, with 1/4 the largest second derivative.
    """
    rest = epsilon - 2 * math.log1p(0.25 / (rows * ridge))
    if rest > 0:
        return 2 / rest, rows * ridge
    return 4 / epsilon, 0.25 / math.expm1(epsilon / 4)


@dataclass
class Seen:
    """What one call drew and solved, seen at its samplers and its solver.

    Attributes
    ----------
    law : str
        Of the linear term.
    scale : Fraction
        That its sampler was asked for.
    linear : ndarray, shape (p,)
        The term that the solver was given.
    regularization, tolerance : float
        What the solver was given.
    output_scale : Fraction or None
        Of the discrete Laplace noise; None when none was drawn.
    rows : ndarray of float64, shape (n, p)
        Signed integer rows.
    grid : float
        Spacing of the released coefficients.
    """

    law: str = ""
    scale: Fraction = Fraction(0)
    linear: Any = None
    regularization: float = 0.0
    tolerance: float = 0.0
    output_scale: Fraction | None = None
    rows: Any = None
    grid: float = 0.0


@contextmanager
def observed() -> Iterator[list[Seen]]:
    """Record every objective perturbation while the context lasts; only one at a time."""
    seen: list[Seen] = []
    draws = {"exponential": "exponential_norm", "gaussian": "gaussian_vector"}
    names = [*draws.values(), "minimise", "discrete_laplace", "objective_perturbation"]
    before = {name: getattr(module, name) for name in names}

    def drawing(law: str) -> Callable[..., Any]:
        def draw(scale: Fraction, size: int, **options: Any) -> Any:
            seen[-1].law, seen[-1].scale = law, scale
            return before[draws[law]](scale, size, **options)

        return draw

    def minimise(rows: Any, *, regularization: float, linear: Any, tolerance: float, **options: Any) -> Any:
        one = seen[-1]
        one.regularization, one.linear, one.tolerance = regularization, linear, tolerance
        one.rows = np.vstack([np.zeros((0, rows.width)), *(_dense(block) for block in rows._blocks)])
        return before["minimise"](rows, regularization=regularization, linear=linear, tolerance=tolerance, **options)

    def discrete_laplace(scale: Fraction, size: int, **options: Any) -> Any:
        seen[-1].output_scale = scale
        return before["discrete_laplace"](scale, size, **options)

    def objective_perturbation(rows: Any, noise: Any, **options: Any) -> Any:
        seen.append(Seen(grid=float(noise.grid(rows.width))))
        return before["objective_perturbation"](rows, noise, **options)

    replaced: list[tuple[Any, str, Any]] = [
        *((module, name, drawing(law)) for law, name in draws.items()),
        (module, "minimise", minimise),
        (module, "discrete_laplace", discrete_laplace),
        (perturbation, "objective_perturbation", objective_perturbation),
    ]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield seen
    finally:
        for owner, name, _ in replaced:
            setattr(owner, name, before[name])


def spent(seen: Seen, *, epsilon: float, neighbours: str, max_rows_per_unit: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that a call costs, from what was seen and the arguments alone.

    Parameters
    ----------
    seen : Seen
    epsilon : float
        The claim: normal noise has a delta at what the output noise leaves of it.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int

    Returns
    -------
    epsilon, delta : float
        inf where a coordinate has no noise, or a row is too long.
    """
    width = len(seen.linear)
    squares = [sum(int(value) ** 2 for value in row) for row in seen.rows]
    if seen.output_scale is None or np.any(seen.linear == 0.0) or max(squares, default=0) > 1 << 40:
        return math.inf, 1.0
    error = float(seen.scale) * (width + 64) * 2.0**-34
    distance = (seen.tolerance + error) / seen.regularization
    output = (2 * math.sqrt(width) * distance / seen.grid + width) / float(seen.output_scale)
    rate = 1 / float(seen.scale)
    steps = max_rows_per_unit
    if seen.law == "exponential":
        more = rate if neighbours == "replace" else 0.0
        return output + steps * (_loss(rate, seen.regularization) + more), 0.0
    steps *= 2 if neighbours == "replace" else 1
    each = (epsilon - output) / steps
    low, high = 0.0, each
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _loss(middle, seen.regularization) <= each else (low, middle)
    return epsilon, _profile(rate, low) * math.expm1(steps * each) / math.expm1(each)


def _dense(block: Any) -> Array:
    return np.asarray(block.toarray() if hasattr(block, "toarray") else block, dtype=np.float64)


def _loss(rate: float, ridge: float) -> float:
    q = np.linspace(0.0, 1.0, 20_001)
    return float(np.max(rate * q + np.log1p(q * (1 - q) / ridge)))


def _profile(mu: float, epsilon: float) -> float:
    def tail(x: float) -> float:
        return 0.5 * math.erfc(x / math.sqrt(2))

    return tail(epsilon / mu - mu / 2) - math.exp(epsilon) * tail(epsilon / mu + mu / 2)
