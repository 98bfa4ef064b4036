"""Private linear regression from noisy sufficient statistics: AdaSSP [1]_, and boosted AdaSSP [2]_.

Both release a noisy Gram matrix G and its least eigenvalue, which gives the ridge ``lam``. AdaSSP also releases ``h =
X'y`` and solves ``(G + lam I) theta = h`` once. Boosted AdaSSP repeats rounds: it clips residuals to [-1, 1], releases
their products with the rows, and adds ``theta += (G + lam I)^-1 h_t``.

References
----------
.. [1] Y.-X. Wang, Revisiting differentially private linear regression, UAI 2018, Algorithm 2.
.. [2] S. Tang, S. Aydore, M. Kearns, S. Rho, A. Roth, Y. Wang, Y.-X. Wang, Z. S. Wu, Improved differentially private
   regression via gradient boosting, SaTML 2024, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from fractions import Fraction
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.parameters import show
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, fixed_coefficients, one_thread
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianRelease, gaussian_release
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.regression import cross_sensitivity, gram_sensitivity, least_eigenvalue_sensitivity

SPLITS = ("even", "thirds")
# Limit on the rows of a table: the error of a computed eigenvalue grows with the matrix.
MOST_ROWS = 1 << 32
# Shift of the released least eigenvalue and threshold of the ridge, in standard deviations, as in boosted AdaSSP [2]_.
_BOOSTED_QUANTILE = 1.96
# Yields coefficients, takes residual products, returns the fit.
Boosting: TypeAlias = Generator[NDArray[np.float64], Integers, "LinearFit"]
# Rounds after which no noise remains to add up: it shrinks geometrically.
_MOST_POWERS = 1000
# Variance of an unknown number.
_UNKNOWN = 1e60


@dataclass(frozen=True)
class LinearFit:
    """Coefficients of a linear model, in mapped units: columns and target scaled to [-1, 1].

    Attributes
    ----------
    coefficients : ndarray of float64, shape (p,)
        The intercept first.
    covariance : ndarray of float64, shape (p, p), or None
        Covariance of the coefficients from privacy noise, to first order, and from sampling if requested.
    """

    coefficients: NDArray[np.float64]
    covariance: NDArray[np.float64] | None = None

    @property
    def std_errors(self) -> NDArray[np.float64] | None:
        """Standard deviation of each coefficient from privacy noise, shape (p,)."""
        return None if self.covariance is None else np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def ada_ssp(
    products: Integers,
    *,
    radius: int,
    mu: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    failure: float = 0.05,
    denominator: int = FIXED_POINT_ONE,
    squares_mu: Fraction | None = None,
    source: BitSource = SYSTEM,
) -> LinearFit:
    """Fit a linear model by AdaSSP.

    Parameters
    ----------
    products : ndarray of int64 or of Python ints, shape (p + 1, p + 1)
        Exact sums of products of intercept, features and target, the target last; in units of ``S**2``.
        `dpsql.statistics.regression` describes the rows.
    radius : int
        R: bound on the norm of a row without its target, intercept included; >= 1, in units where S is 1.
    mu : Fraction
        Privacy loss of the whole release, > 0: `dpsql.contract.gaussian_profile.gaussian_mu`.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    failure : float
        Chance, in (0, 1), that the ridge is too small for the noise; public.
    denominator : int
        Code of the intercept.
    squares_mu : Fraction or None
        Privacy loss of the sum of squares of the target, which adds the sampling of the rows to the covariance; None
        for noise alone.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    fit : LinearFit

    Raises
    ------
    ParameterError
        Depends on public values only: P026, more than 2**24 numbers to release; P018, `failure` out of range.
    InternalError
        I023, when `mu` is so large that the noise is finer than the calibration covers.

    Notes
    -----
    - **Guarantee**: mu-GDP in the sense of `gaussian_mu`, hence (epsilon, delta)-DP and ``mu**2 / 2``-zCDP. G, its
      least eigenvalue and h are released with a third of ``mu**2`` each; the rest is post-processing. The sum of
      squares of the target is ``squares_mu``-GDP in addition.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: see `dpsql.statistics.regression`. A row raises the sum of squares of the target by at most
      ``S**2``, so a unit of m rows moves the sum by at most ``m S**2`` under either relation.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows clipped to `radius`, targets in [-S, S], fewer than 2**32 rows.
    - **Does not protect**: running time; p and the bounds, which are public.
    """
    if not 0.0 < failure < 1.0:
        raise ParameterError("P018", f"failure must be between 0 and 1; got {show(failure)}.")
    width = len(products) - 1
    _check_size(width, 1)
    share = mu**2 / 3
    arguments = neighbours, radius, max_rows_per_unit
    gram = release_gram(products[:width, :width], *arguments, squared_mu=share, source=source)
    least = release_least_eigenvalue(products[:width, :width], *arguments, squared_mu=share, source=source)
    cross = gaussian_release(
        products[:width, width], sensitivity=cross_sensitivity(*arguments), squared_mu=share, source=source
    )
    threshold = gram.sigma * math.sqrt(width * math.log(2 * width**2 / failure))
    floor = float(least.values[0]) - least.sigma * NormalDist().inv_cdf(1 - failure / 2)
    ridge = max(0.0, threshold - max(0.0, floor))
    inverse = _inverse(gram, width, ridge)
    coefficients = inverse @ cross.values
    # A ridge between its limits contains the noise of the least eigenvalue.
    ridge_sigma = least.sigma if floor > 0.0 and ridge > 0.0 else 0.0
    covariance = gram_noise_covariance(coefficients, gram.sigma)
    covariance += cross.sigma**2 * np.eye(width) + ridge_sigma**2 * np.outer(coefficients, coefficients)
    covariance = inverse @ covariance @ inverse
    if squares_mu is None:
        return LinearFit(coefficients, covariance)
    squares = release_target_squares(
        products[width:, width], neighbours, max_rows_per_unit, squared_mu=squares_mu**2, source=source
    )
    rows = max(1.0, float(gram.values[0]) / denominator**2)
    # Upper end of the residuals' sum of squares, with its noise to first order.
    moved = math.hypot(squares.sigma, 2.0 * math.sqrt(max(0.0, float(cross.values @ covariance @ cross.values))))
    residuals = (
        float(squares.values[0]) - float(coefficients @ cross.values) + NormalDist().inv_cdf(1 - failure) * moved
    )
    # Rows of a unit may be alike, so the sampling variance counts units.
    return LinearFit(coefficients, covariance + max_rows_per_unit * max(0.0, residuals) / rows * inverse)


def release_target_squares(
    squares: Integers,
    neighbours: str,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add noise to the sum of squares of the target, shape (1,), in units of ``S**2``.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: every row raises the sum by a number in [0, S**2].
    """
    sensitivity = relation_of(neighbours, max_rows_per_unit).rise(FIXED_POINT_ONE**2)
    return gaussian_release(squares, sensitivity=sensitivity, squared_mu=squared_mu, source=source)


def boosted_ada_ssp(
    rows: ClippedRows,
    gram: Integers,
    *,
    radius: int,
    mu: Fraction,
    neighbours: str,
    rounds: int = 100,
    split: str = "even",
    max_rows_per_unit: int = 1,
    source: BitSource = SYSTEM,
    progress: Callable[[float], None] | None = None,
) -> LinearFit:
    """Fit a linear model by boosted AdaSSP.

    Parameters
    ----------
    rows : ClippedRows
        Intercept and features, with their targets.
    gram : ndarray of int64 or of Python ints, shape (p, p)
        Exact Gram matrix of the rows, in units of ``S**2``.
    radius, mu, neighbours, max_rows_per_unit, source
        As for `ada_ssp`.
    rounds : int
        T >= 1, public: fixed in advance, never chosen by the data.
    split : {'even', 'thirds'}
        Shares of ``mu**2``: equal for each of the T + 2 releases, or a third each for the Gram matrix, its least
        eigenvalue and all rounds together.
    progress : callable, optional
        Called with the fraction done after every round; an exception from it ends the fit.

    Returns
    -------
    fit : LinearFit
        The covariance includes the noise of the rounds, and the noise of the Gram matrix if it slows the rounds down.
        It assumes that no residual is clipped.

    Raises
    ------
    ParameterError
        Depends on public values only: P018 (rounds, split); P026, more than 2**24 numbers to release.
    InternalError
        I023, when `mu` is so large that the noise is finer than the calibration covers.

    Notes
    -----
    - **Guarantee**: mu-GDP in the sense of `gaussian_mu`, hence (epsilon, delta)-DP and ``mu**2 / 2``-zCDP. Each round
      is a Gaussian release for any starting coefficients, which are functions of earlier releases.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: see `dpsql.statistics.regression`; residuals are clipped to [-1, 1] in every round.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows clipped to `radius`, fewer than 2**32 of them; `gram` belongs to `rows`.
    - **Does not protect**: running time; p, the rounds and the bounds, which are public.
    """
    run = boosting(
        gram,
        radius=radius,
        mu=mu,
        neighbours=neighbours,
        rounds=rounds,
        split=split,
        max_rows_per_unit=max_rows_per_unit,
        source=source,
    )
    coefficients = next(run)
    for number in range(rounds):
        answer = next_step(run, rows.residual_products(coefficients))
        if progress is not None:
            progress((number + 1) / rounds)
        if isinstance(answer, LinearFit):
            return answer
        coefficients = answer
    raise InternalError("I032", "boosting did not end after its last round. Report it.")


def next_step(run: Boosting, products: Integers) -> LinearFit | NDArray[np.float64]:
    """Give a fit the products of a round; return the next round's coefficients, or the fit after the last round."""
    try:
        return run.send(products)
    except StopIteration as end:
        fit: LinearFit = end.value
        return fit


def boosting(
    gram: Integers,
    *,
    radius: int,
    mu: Fraction,
    neighbours: str,
    rounds: int,
    split: str,
    max_rows_per_unit: int = 1,
    source: BitSource = SYSTEM,
) -> Boosting:
    """Yield the coefficients of every round, take their exact residual products, and return the fit.

    The owner of the rows computes the products of a round in one pass. The coefficients are functions of earlier
    releases, hence as public as these. Parameters and guarantee as for `boosted_ada_ssp`.
    """
    if split not in SPLITS:
        raise ParameterError("P018", f"split must be one of {', '.join(SPLITS)}; got {show(split)}.")
    if not isinstance(rounds, int) or not rounds >= 1:
        raise ParameterError("P018", f"rounds must be an integer >= 1; got {show(rounds)}.")
    width = len(gram)
    _check_size(width, rounds)
    share = mu**2 / (rounds + 2) if split == "even" else mu**2 / 3
    round_share = share if split == "even" else share / rounds
    arguments = neighbours, radius, max_rows_per_unit
    noisy = release_gram(gram, *arguments, squared_mu=share, source=source)
    least = release_least_eigenvalue(gram, *arguments, squared_mu=share, source=source)
    floor = float(least.values[0]) - _BOOSTED_QUANTILE * least.sigma
    ridge = max(0.0, _BOOSTED_QUANTILE * math.sqrt(width) * noisy.sigma - max(0.0, floor))
    inverse = _inverse(noisy, width, ridge)
    coefficients, sigma = np.zeros(width), 0.0
    for _ in range(rounds):
        products = yield coefficients
        step = gaussian_release(
            products, sensitivity=cross_sensitivity(*arguments), squared_mu=round_share, source=source
        )
        sigma = step.sigma
        # The next round takes its residuals from exactly these coefficients.
        integers, bits = fixed_coefficients(coefficients + inverse @ step.values)
        coefficients = integers * 2.0**-bits
    return LinearFit(coefficients, _rounds_covariance(noisy, inverse, rounds, sigma, coefficients))


def release_gram(
    gram: Integers,
    neighbours: str,
    radius: int,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add noise to the upper triangle of a Gram matrix: sigma on the diagonal, ``sigma / sqrt(2)`` off it.

    Parameters
    ----------
    gram : ndarray of int64 or of Python ints, shape (p, p)
        In units of ``S**2``.
    neighbours, radius, max_rows_per_unit
        As for `ada_ssp`.
    squared_mu : Fraction
        The share of ``mu**2`` spent here, > 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    release : GaussianRelease
        The upper triangle, row by row.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: `dpsql.statistics.regression.gram_sensitivity`, in the Frobenius norm, which counts off-diagonal
      entries twice.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows clipped to `radius`.
    - **Does not protect**: running time; p.
    """
    upper = np.triu_indices(len(gram))
    return gaussian_release(
        gram[upper],
        sensitivity=gram_sensitivity(neighbours, radius, max_rows_per_unit),
        squared_mu=squared_mu,
        twice=upper[0] != upper[1],
        source=source,
    )


def release_least_eigenvalue(
    gram: Integers,
    neighbours: str,
    radius: int,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add noise to the least eigenvalue of a Gram matrix; parameters as for `release_gram`.

    Returns
    -------
    release : GaussianRelease
        One value, in units of ``S**2``.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: `dpsql.statistics.regression.least_eigenvalue_sensitivity`, and twice `eigenvalue_error`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows clipped to `radius`, fewer than 2**32 of them.
    - **Does not protect**: running time; p.
    """
    sensitivity = least_eigenvalue_sensitivity(neighbours, radius, max_rows_per_unit)
    sensitivity += 2 * eigenvalue_error(len(gram), radius)
    return gaussian_release(
        np.array([least_eigenvalue(gram)], dtype=object), sensitivity=sensitivity, squared_mu=squared_mu, source=source
    )


def least_eigenvalue(gram: Integers) -> int:
    """Return the least eigenvalue of a Gram matrix, computed in doubles and rounded down to an integer."""
    with one_thread():
        return math.floor(float(np.linalg.eigvalsh(gram.astype(np.float64))[0]))


def eigenvalue_error(width: int, radius: int) -> int:
    """Return a bound on the error of `least_eigenvalue`, in its unit.

    LAPACK returns the eigenvalues of a matrix that differs from the given matrix by a small multiple of ``2**-53`` of
    its norm. Rounding entries to doubles differs as little. The bound allows ``8 p 2**-53`` of the trace of a table
    with `MOST_ROWS` rows, and one more for the integer.

    Parameters
    ----------
    width : int
        p.
    radius : int
        R.
    """
    return 1 + -(-8 * width * MOST_ROWS * radius**2 // (1 << 53))


def gram_noise_covariance(coefficients: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return the covariance of ``E theta``, E the symmetric noise of `release_gram`.

    It is ``sigma**2 / 2 (||theta||**2 I + theta theta')``.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (p,)
    sigma : float
        Standard deviation on the diagonal of E.
    """
    squared = float(coefficients @ coefficients)
    covariance: NDArray[np.float64] = np.outer(coefficients, coefficients) + squared * np.eye(len(coefficients))
    return sigma**2 / 2 * covariance


def _check_size(width: int, rounds: int) -> None:
    numbers = width * (width + 1) // 2 + 1 + rounds * width
    if not numbers <= MOST_COORDINATES:
        raise ParameterError(
            "P026", f"{width} columns in {rounds} rounds are more than private regression releases. Take fewer."
        )


def _rounds_covariance(
    release: GaussianRelease, inverse: NDArray[np.float64], rounds: int, sigma: float, coefficients: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the covariance of the coefficients about the noiseless fit; post-processing.

    A round takes theta to ``M theta + inverse (h + z)`` with ``M = I - inverse G``, if no residual is clipped. So the
    noise z of all rounds has the covariance ``sigma**2 sum of M**t inverse inverse' M'**t``, and ``M**T`` of the way
    from zero to the noiseless fit remains. G is not public: ``M = (I - inverse N) + inverse E`` with N the noisy G and
    E its noise. So ``M C M'`` is about ``(I - inverse N) C (I - inverse N)' + inverse F inverse'`` with F = ``E C E``
    on average, which is ``s**2 / 2 (C + trace(C) I)`` for noise of standard deviation s on the diagonal. If that noise
    is as large as the eigenvalues, it is most of the variance: without F, verdicts would be clear too often.
    """
    width = len(inverse)
    step = np.eye(width) - inverse @ _symmetric(release, width)

    def moved(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        spread = release.sigma**2 / 2 * (covariance + np.trace(covariance) * np.eye(width))
        image: NDArray[np.float64] = step @ covariance @ step.T + inverse @ spread @ inverse.T
        return image

    part, remainder = inverse @ inverse.T, np.outer(coefficients, coefficients)
    total = np.zeros_like(part)
    with one_thread():
        for _ in range(min(rounds, _MOST_POWERS)):
            total += part
            part, remainder = moved(part), moved(remainder)
            if max(np.trace(total) * sigma**2, np.trace(part), np.trace(remainder)) > _UNKNOWN:
                return _UNKNOWN * np.eye(width)
    answer: NDArray[np.float64] = sigma**2 * total + remainder
    return answer


def _symmetric(release: GaussianRelease, width: int) -> NDArray[np.float64]:
    """Return the symmetric matrix of an upper triangle."""
    matrix = np.zeros((width, width))
    upper = np.triu_indices(width)
    matrix[upper] = release.values
    matrix.T[upper] = release.values
    return matrix


def _inverse(release: GaussianRelease, width: int, ridge: float) -> NDArray[np.float64]:
    """Return the inverse of the noisy Gram matrix plus ridge, with eigenvalues of at least one sigma."""
    matrix = _symmetric(release, width)
    with one_thread():
        values, vectors = np.linalg.eigh(matrix)
        eigenvalues = np.maximum(values + ridge, max(release.sigma, 2.0**-40 * float(abs(values).max())))
        inverse: NDArray[np.float64] = (vectors / eigenvalues) @ vectors.T
    return inverse
