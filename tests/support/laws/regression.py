"""What one SQL call releases, seen at its samplers: an accountant that trusts only the arguments, and replays.

`observe` runs a call and records every private release that it makes: the exact statistic, the noise that the sampler
was asked for, and the answer. From these,

- `worst_case` composes what the call costs, with sensitivities derived here from its arguments alone;
- `pair_loss` composes what it costs on two given tables, when the second call was given the answers of the first.

With the same answers everything else must agree, too: the number of releases, the noise, and the rows of the result.
Whatever depends on the table without being a release shows as a difference between them.

Functions of the product are replaced while a call is observed, wherever they are imported, so only one call at a time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dpsql.functions import regression_metrics as metrics
from dpsql.kernels.cells import FINE_CELLS
from dpsql.mechanisms import additive, gaussian, interval_scan, prefix_bounds, quantile, rank_counts, tukey
from dpsql.noise import discrete, race
from dpsql.statistics import votes, xty

_UNIT = 1 << 20
# What one standard deviation of a feature is in standardised rows.
_DEVIATION = _UNIT // 3
# Floats below compare at this relative distance.
_CLOSE = 1e-9


@dataclass(frozen=True)
class Release:
    """One private release within a call.

    Attributes
    ----------
    kind : {'gaussian', 'laplace', 'choice', 'scan', 'models', 'stray'}
        The mechanism; 'stray' is noise that nothing observed took in.
    role : str
        What is released, such as ``'gram'`` or ``'cells'``.
    statistic : tuple
        Exact integers in the sampler's unit; for 'models' the bytes of every model.
    spread : tuple of Fraction
        Of each number, the variance ('gaussian') or the scale ('laplace', 'scan'), 0 for no noise. For 'choice' the coefficient
        of the scores and the number of winners, for 'models' epsilon and delta per replaced model.
    answer : object
        What the call goes on with.
    shift : int
        The sampler's unit is ``2**shift`` units of the statistic, which was rounded to it.
    unit : int
        Of 'cells': what the coefficients were multiplied by; of counts and sums of an additive model, these.
    most : int
        Of 'residuals': the released bound of each. Of 'step bins': what stands for 1.
    """

    kind: str
    role: str
    statistic: tuple[Any, ...]
    spread: tuple[Fraction, ...]
    answer: Any = None
    shift: int = 0
    unit: int = 1
    most: int = 0


@dataclass(frozen=True)
class Observation:
    """A call that was observed.

    Attributes
    ----------
    result : object
        What the call returned.
    releases : list of Release
        In order.
    """

    result: Any
    releases: list[Release]


@dataclass(frozen=True)
class Stated:
    """What the arguments of a call say about its releases.

    Attributes
    ----------
    neighbours : {'add_remove', 'replace'}
    rows : int
        Rows of the table that is observed, none of them missing anything, after the cap per unit.
    max_rows_per_unit : int
    features : int
        d, that are fitted.
    row_norm : float or None
    standardize : bool
        Whether rows are standardised, where there is no row_norm.
    quantiles : tuple of Fraction
        Of the target.
    error_bound : float
        In half widths of the bounds.
    selector : {'kendall', 'two_stage', 'sis'}
        Of a pipeline.
    """

    neighbours: str
    rows: int
    max_rows_per_unit: int = 1
    features: int = 1
    row_norm: float | None = None
    standardize: bool = True
    quantiles: tuple[Fraction, ...] = ()
    error_bound: float = 2.0
    selector: str = "kendall"


@dataclass
class Loss:
    """Privacy losses of a call by the role of their releases.

    Attributes
    ----------
    squared_mu : dict
        Of Gaussian releases: square of how far the statistic moves, in standard deviations. inf without noise.
    epsilon : dict
        Of pure releases.
    models : (float, float)
        epsilon and delta of the propose-test-release.
    """

    squared_mu: dict[str, float] = field(default_factory=dict)
    epsilon: dict[str, float] = field(default_factory=dict)
    models: tuple[float, float] = (0.0, 0.0)

    def add(self, losses: dict[str, float], role: str, amount: float) -> None:
        """Add to the loss of a role."""
        losses[role] = losses.get(role, 0.0) + amount

    def within(self, epsilon: float, delta: float) -> bool:
        """Whether all releases together are (epsilon, delta)-DP."""
        rest = epsilon * (1 + _CLOSE) - math.fsum(self.epsilon.values()) - self.models[0]
        left = delta * (1 + _CLOSE) - self.models[1]
        squared = math.fsum(self.squared_mu.values())
        if not rest >= 0 or not left >= 0:
            return False
        return squared == 0 or (math.isfinite(squared) and gaussian_profile(math.sqrt(squared), rest) <= left)

    def exceeds(self, other: Loss) -> list[str]:
        """Return the roles that lose more here than in `other`."""
        found = [
            role
            for mine, theirs in ((self.squared_mu, other.squared_mu), (self.epsilon, other.epsilon))
            for role, amount in mine.items()
            if not amount <= theirs.get(role, 0.0) * (1 + _CLOSE)
        ]
        pairs = zip(self.models, other.models, strict=True)
        return found + ["models"] * any(mine > theirs * (1 + _CLOSE) for mine, theirs in pairs)


def gaussian_profile(mu: float, epsilon: float) -> float:
    """Return the least delta of a mu-GDP release at epsilon >= 0, in doubles."""
    from scipy.special import log_ndtr

    above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return math.exp(log_ndtr(above)) * -math.expm1(epsilon + float(log_ndtr(below)) - float(log_ndtr(above)))


def observe(run: Callable[[], Any], answers: Sequence[Release] | None = None) -> Observation:
    """Run a call and record its releases.

    Parameters
    ----------
    run : callable
        Executes one SQL call and returns its rows.
    answers : sequence of Release, optional
        Releases of an earlier observation: the call is given their answers, in order, in place of its own.

    Raises
    ------
    AssertionError
        A release is not its statistic plus the sampler's noise.
    """
    spy = _Spy(answers)
    with _replaced(spy.hooks()):
        result = run()
    spy.settle("end")
    return Observation(result, spy.releases)


def worst_case(seen: Observation, stated: Stated) -> Loss:
    """Return what a call costs on the worst pair of neighbours, by the noise that was drawn and the arguments alone.

    Parameters
    ----------
    seen : Observation
        Of a table of ``stated.rows`` rows without missing values.
    stated : Stated

    Notes
    -----
    The sensitivities are those of the tables in `dpsql.statistics`, written down anew:

    - rows have norm ``R = S sqrt(1 + min(d, row_norm**2))``, or with S / 3 for S and d where they are standardised,
      rounded down; a
      unit moves the Gram matrix by m R², sqrt(2) times that under replace, its least eigenvalue by m R², and the cross
      products by m R S, twice that under replace; the target's sum of squares by m S²;
    - moments: each feature moves ``(z, z**2 - 1/2)`` by sqrt(5/4), by 2 under replace, where the rows stay as many;
    - cells: m rows in a cell of each column, whose products have the norm of the first column; sqrt(2) times that under
      replace;
    - an additive model: m rows in a cell of each feature, and in one of the sizes; in a round, residuals of one feature,
      which rows of two units may have with opposite signs;
    - an interval: ranks of the start move by 1/2 either way, by 1 under replace; a row beyond it costs 2 / s in a scan, and
      one that comes for one that leaves 3 / s; rows inside and outside, and rows between cuts
      around quantiles: m, twice that under replace;
    - ranks: see `_quantile_loss`; sums of the metrics: see `_sum_moves`;
    - one model is replaced, two under replace.
    """
    loss = Loss()
    m, both = stated.max_rows_per_unit, 2 if stated.neighbours == "replace" else 1
    longest = stated.features if stated.row_norm is None else min(stated.features, stated.row_norm**2)
    one_unit = _DEVIATION if stated.standardize and stated.row_norm is None else _UNIT
    radius = one_unit * math.sqrt(1 + longest)
    if stated.standardize and stated.row_norm is None:
        radius = math.floor(radius)  # these rows are clipped, to a norm that is a whole number
    width = stated.features + 1
    pairs = 4 * stated.features if both == 2 else 1 + 5 * stated.features / 4
    moves = {
        "moments": (2 * _UNIT**2 * m * math.sqrt(pairs), math.sqrt(1 + 2 * stated.features)),
        "gram": (m * radius**2 * math.sqrt(both), width),
        "least eigenvalue": (m * radius**2, 1.0),
        "cross products": (m * radius * _UNIT * both, math.sqrt(width)),
        "target squares": (m * _UNIT**2, 1.0),
    }
    loss.epsilon |= _quantile_loss([one for one in seen.releases if one.role == "rank"], stated)
    sums = iter(_sum_moves(stated))
    selected = 0
    scans = [float(one.spread[0]) for one in seen.releases if one.kind == "scan"]
    if scans:
        loss.add(loss.epsilon, "scan", _share((1 + both) * m, min(scans)))
    for one in seen.releases:
        if one.kind == "gaussian" and one.role in moves:
            exact, rounding = moves[one.role]
            moved = exact / 2.0**one.shift + (rounding if one.shift else 0.0)
            least = min(_weighted(one, width)) if one.role == "gram" else min(map(float, one.spread))
            loss.add(loss.squared_mu, one.role, _share(moved**2, least))
        elif one.role == "cells":
            of_type = len(one.statistic)  # the cells of the column's type
            exact = m * math.sqrt(both * sum(value**2 for value in _coefficients()[:of_type])) * one.unit
            moved = exact / 2.0**one.shift + (math.sqrt(of_type) if one.shift else 0.0)
            loss.add(loss.squared_mu, one.role, _share(moved**2, min(map(float, one.spread))))
        elif one.role in ("step bins", "sizes", "residuals"):
            # Rows in a cell of each feature, or in one of all; residuals of one feature, of either sign.
            of_row = {"step bins": stated.features * one.most**2, "sizes": 1, "residuals": one.most**2}[one.role]
            changes = both**2 if one.role == "residuals" else both
            exact = m * math.sqrt(changes * of_row) * one.unit
            moved = exact / 2.0**one.shift + (math.sqrt(len(one.statistic)) if one.shift else 0.0)
            loss.add(loss.squared_mu, one.role, _share(moved**2, min(map(float, one.spread))))
        elif one.role == "count":
            loss.add(loss.epsilon, one.role, _share(m, float(one.spread[0])))
        elif one.role in ("rows", "bins"):
            loss.add(loss.epsilon, one.role, _share(m * both, float(one.spread[0])))
        elif one.role == "start":  # scores are in halves of a row
            loss.add(loss.epsilon, one.role, float(one.spread[0] * one.spread[1]) * 2 * both * m)
        elif one.role == "centre":
            # S + t and S - t add up to 2 S for every row.
            loss.add(loss.epsilon, one.role, _share(2 * _UNIT * m * both, float(one.spread[0])))
        elif one.role == "sum":
            moved = next(sums) / 2**one.shift + (1 if one.shift else 0)
            loss.add(loss.epsilon, one.role, _share(moved, float(one.spread[0])))
        elif one.role == "selection":
            coefficient, winners = one.spread
            loss.add(loss.epsilon, one.role, float(coefficient * winners) * _score_range(stated, selected))
            selected += 1
        elif one.kind == "models":
            loss.models = _replaced_models(one, both)
        elif one.role not in ("rank", "scan"):
            loss.add(loss.epsilon, one.role, math.inf)
    return loss


def pair_loss(first: Observation, second: Observation) -> Loss:
    """Return what a call costs on two tables, the second observed with the answers of the first.

    Raises
    ------
    AssertionError
        Something differs that no release accounts for: the releases, the noise, or the result.
    """
    _require(len(first.releases) == len(second.releases), "the number of releases depends on the table")
    loss = Loss()
    scans = [0.0, 0.0]
    for one, other in zip(first.releases, second.releases, strict=True):
        _require((one.kind, one.role, one.shift) == (other.kind, other.role, other.shift), "releases differ in kind")
        _require(len(one.statistic) == len(other.statistic), f"the length of the {one.role} depends on the table")
        if one.kind == "choice":  # scores may be counted in a unit that follows the rows: what counts is their weight
            moved = [
                other.spread[0] * b - one.spread[0] * a for a, b in zip(one.statistic, other.statistic, strict=True)
            ]
            _require(one.spread[1] == other.spread[1], "the number of winners depends on the table")
            loss.add(loss.epsilon, one.role, float(one.spread[1] * (max(moved) - min(moved))))
            continue
        _require(one.spread == other.spread, f"the noise of the {one.role} depends on the table")
        if one.kind == "models":
            changed = sum(a != b for a, b in zip(one.statistic, other.statistic, strict=True))
            loss.models = _replaced_models(one, changed)
            continue
        if one.kind == "scan":  # less is left beyond a cell: 2 / s; more: 1 / s; and the other way round
            moved = [int(b) - int(a) for a, b in zip(one.statistic, other.statistic, strict=True)]
            most, least = max(0, *moved, 0), max(0, -min(0, *moved, 0))
            scans[0] += _share(most + 2 * least, float(one.spread[0]))
            scans[1] += _share(2 * most + least, float(one.spread[0]))
            loss.epsilon["scan"] = max(scans)
            continue
        both = zip(one.statistic, other.statistic, one.spread, strict=True)
        pairs = [(int(b) - int(a), spread) for a, b, spread in both if a != b]
        if one.kind == "gaussian":
            loss.add(loss.squared_mu, one.role, math.fsum(_share(float(by * by), float(v)) for by, v in pairs))
        else:
            loss.add(loss.epsilon, one.role, math.fsum(_share(float(abs(by)), float(b)) for by, b in pairs))
    _require(first.result == second.result, "the result depends on the table beyond what was released")
    return loss


@lru_cache(maxsize=1)
def _coefficients() -> Any:
    """Return the first column of the products of cells, in multiples of 2**-20: that of ``1 / sqrt(1 - z)``."""
    found, exact = [], Fraction(1)
    for k in range(FINE_CELLS):
        found.append(math.floor(exact * _UNIT))
        exact = Fraction(math.floor(exact * Fraction(2 * k + 1, 2 * k + 2) * 2**80), 2**80)
    return np.array(found, dtype=object)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


def _share(moved: float, spread: float) -> float:
    if moved == 0:
        return 0.0
    return moved / spread if spread else math.inf


def _weighted(gram: Release, width: int) -> list[float]:
    """Return the variances of a released triangle as if every entry counted once in the Frobenius norm."""
    upper = np.triu_indices(width)
    _require(len(gram.spread) == len(upper[0]), "the triangle has another size")
    triangle = zip(upper[0].tolist(), upper[1].tolist(), gram.spread, strict=True)
    return [float(variance) * (1 if i == j else 2) for i, j, variance in triangle]


def _replaced_models(one: Release, changed: int) -> tuple[float, float]:
    epsilon, delta = map(float, one.spread)
    return changed * epsilon, math.fsum(delta * math.exp(i * epsilon) for i in range(changed))


def _score_range(stated: Stated, selected: int) -> float:
    """Return the range of the scores of a selection, when so many features were selected before."""
    both = 2 if stated.neighbours == "replace" else 1
    if stated.selector == "sis":  # every |s_j| moves by a product of two numbers in [-S, S], either way
        return 2.0 * both * stated.max_rows_per_unit * _UNIT**2
    if stated.selector == "two_stage":  # a block turns from one set of features to another
        return 2.0 * both
    # Kendall: in units of 1 / (2 (n - 1) (features selected before)), and twice the range after the first.
    units = 2 * (stated.rows - 1) * (2 * selected if selected else 1)
    return (4.0 if both == 2 else 2.5) * stated.max_rows_per_unit * units


def _sum_moves(stated: Stated) -> list[float]:
    """Return how far a unit moves the five sums of the metrics."""
    both = 2 if stated.neighbours == "replace" else 1
    bound = min(2.0, stated.error_bound) * _UNIT
    # Squares and sizes are not negative: one row taken away and one brought move them by no more than one row, and less
    # the middle of what a row adds they move by half of that when one row comes.
    moves = (1.0, both * float(_UNIT), *(both / 2 * most for most in (float(_UNIT) ** 2, bound**2, bound)))
    return [stated.max_rows_per_unit * move for move in moves]


def _quantile_loss(choices: list[Release], stated: Stated) -> dict[str, float]:
    """Return the loss of the levels of recursive halving.

    A row moves ``left - q n`` by at most ``max(q, 1 - q)``, so the scores of a sub-range by twice that. Under replace
    the whole table keeps its n, and left moves by 1; below that, a row may leave one sub-range and enter another.
    """
    if not choices:
        return {}
    # For several quantiles a row counts in each part of its cell: 16, or as many as 2**21 candidates allow.
    whole_grid = len(choices[0].statistic)
    several = (16, *(parts for parts in range(15, 0, -1) if (1 << 21) // (whole_grid // parts) == parts))
    parts = 1 if len(stated.quantiles) == 1 else next(one for one in several if whole_grid % one == 0)
    levels: dict[int, list[float]] = {}
    rest = iter(choices)
    # Sub-ranges in the order in which they are divided: the whole, then what is above the cut, then what is below.
    pending = [(0, len(choices[0].statistic) - 1, 0, len(stated.quantiles), Fraction(0), Fraction(1), 0)]
    while pending:
        low, high, first, stop, start, end, level = pending.pop()
        if first == stop:
            continue
        middle = (first + stop) // 2
        at = stated.quantiles[middle]
        local = (at - start) / (end - start)
        cut = low
        if high > low:
            one = next(rest)
            _require(len(one.statistic) == high - low + 1, "sub-ranges overlap")
            coefficient = float(one.spread[0] * one.spread[1]) * local.denominator * stated.max_rows_per_unit * parts
            larger = float(max(local, 1 - local))
            whole = stated.neighbours == "replace" and level == 0
            levels.setdefault(level, []).append(coefficient * (2 if whole else 2 * larger))
            cut += int(one.answer[0])
        pending.append((low, cut, first, middle, start, at, level + 1))
        pending.append((cut, high, middle + 1, stop, at, end, level + 1))
    _require(next(rest, None) is None, "more sub-ranges than quantiles")
    # A row is in one sub-range of a level; under replace it leaves one and enters another.
    touched = 2 if stated.neighbours == "replace" else 1
    return {"rank": math.fsum(max(costs) * (touched if level else 1) for level, costs in levels.items())}


class _Spy:
    """Stands in for samplers and for what takes their noise in."""

    def __init__(self, answers: Sequence[Release] | None) -> None:
        self.releases: list[Release] = []
        self._answers = None if answers is None else iter(answers)
        self._drawn: list[tuple[str, Fraction, Any]] = []
        self._scope = "selection"
        self._counts: list[Any] = []
        self._raw: Any = None
        self._most = 0
        self._matrices = self._width = 0

    def hooks(self) -> list[tuple[Any, Any]]:
        """Return pairs of a function and what is to replace it."""
        return [
            (discrete.discrete_gaussian, self._sampler("gaussian", discrete.discrete_gaussian)),
            (discrete.discrete_laplace, self._sampler("laplace", discrete.discrete_laplace)),
            (discrete.geometric, self._sampler("scan", discrete.geometric)),
            (race.top_k, self._choice(race.top_k)),
            (interval_scan.start_cell, self._scoped("start", interval_scan.start_cell)),
            (interval_scan.stop, self._scan(interval_scan.stop)),
            (interval_scan.noisy_counts, self._rows(interval_scan.noisy_counts)),
            (quantile.quantiles, self._scoped("rank", quantile.quantiles)),
            (rank_counts.noisy_bins, self._bins(rank_counts.noisy_bins)),
            (gaussian.gaussian_release, self._matrix(gaussian.gaussian_release)),
            (prefix_bounds.prefix_bounds, self._columns(prefix_bounds.prefix_bounds)),
            (prefix_bounds.released_standard, self._scoped("moments", prefix_bounds.released_standard)),
            (additive.release_bins, self._counted("step bins", additive.release_bins)),
            (additive.release_bound, self._counted("sizes", additive.release_bound)),
            (additive.release_residuals, self._counted("residuals", additive.release_residuals)),
            (votes.blocks_from_count, self._count(votes.blocks_from_count)),
            (xty.mean_from_sums, self._centre(xty.mean_from_sums)),
            (metrics._noisy, self._sum(metrics._noisy)),
            (tukey.tukey, self._models(tukey.tukey)),
        ]

    def settle(self, where: str) -> None:
        """Record noise that nothing took in."""
        for kind, spread, noise in self._drawn:
            self.releases.append(Release("stray", f"{kind} noise before {where}", (), (spread,) * len(noise)))
        self._drawn = []

    def _record(self, release: Release) -> Any:
        """Record a release; return what the call is to go on with."""
        if self._answers is not None:
            forced = next(self._answers, None)
            if forced is None:
                raise AssertionError("the number of releases depends on the table")
            release = replace(release, answer=forced.answer)
        self.releases.append(release)
        return release.answer

    def _take(self, count: int) -> list[tuple[str, Fraction, Any]]:
        """Return the last draws, and count what came before as stray; without noise nothing, and spread 0."""
        taken = self._drawn[-count:] if count else []
        self._drawn = self._drawn[: len(self._drawn) - len(taken)]
        self.settle("another release")
        return taken

    def _sampler(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def draw(spread: Fraction, size: int, **options: Any) -> Any:
            noise = real(spread, size, **options)
            self._drawn.append((kind, spread, noise))
            return noise

        return draw

    def _scoped(self, role: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            before = self._scope
            self._scope = role if before == "selection" else before
            try:
                return real(*arguments, **options)
            finally:
                self._scope = before

        return run

    def _counted(self, role: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(counts: Any, *arguments: Any, **options: Any) -> Any:
            self._raw = np.asarray(counts).ravel()
            self._most = arguments[2] if role == "residuals" else options.get("denominator", 1)
            return self._scoped(role, real)(counts, *arguments, **options)

        return run

    def _choice(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def choose(utility: Any, coefficient: Fraction, k: int, **options: Any) -> Any:
            winners = real(utility, coefficient, k, **options)
            scores = tuple(int(score) for score in np.asarray(utility, dtype=object))
            return self._record(Release("choice", self._scope, scores, (coefficient, Fraction(k)), np.asarray(winners)))

        return choose

    def _matrix(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def release(values: Any, *, twice: Any = None, **options: Any) -> Any:
            self.settle("a matrix")
            answer = real(values, twice=twice, **options)
            drawn, self._drawn = self._drawn, []
            size = len(values)
            halved = np.zeros(size, dtype=bool) if twice is None else np.asarray(twice)
            noise, spread = np.zeros(size), [Fraction(0)] * size
            parts = [chosen for chosen in (~halved, halved) if chosen.any()]
            _require(all(kind == "gaussian" for kind, _, _ in drawn), "a matrix has noise of another kind")
            for chosen, (_, variance, part) in zip(parts, drawn, strict=False):
                noise[chosen] = part
                for at in np.flatnonzero(chosen):
                    spread[at] = variance
            shift = round(math.log2(answer.sigma / math.sqrt(spread[0]))) if spread[0] else 0
            rounded = [round(float(value) * 2.0**-shift - by) for value, by in zip(answer.values, noise, strict=True)]
            for found, exact in zip(rounded, values, strict=True):
                _require(abs((found << shift) - int(exact)) <= (1 << shift) // 2, "more than statistic and noise")
            role, unit = self._scope, 1
            if role == "cells":
                products = np.convolve(self._counts.pop(0).astype(object), _coefficients())[:size]
                units = {int(found) // int(exact) for found, exact in zip(values, products, strict=True) if exact}
                [unit] = units or {1}
                _require((products * unit == values).all(), "more than the products of the counts")
            elif role in ("step bins", "sizes", "residuals"):
                units = {int(found) // int(exact) for found, exact in zip(values, self._raw, strict=True) if exact}
                [unit] = units or {1}
                _require((self._raw.astype(object) * unit == values).all(), "more than the counts")
            elif role != "moments":
                role = ("gram", "least eigenvalue")[self._matrices] if self._matrices < 2 else "cross products"
                if self._matrices == 2:
                    self._width = size
                # Where no feature is left, cross products are one number, too.
                role = "target squares" if self._matrices > 2 and size == 1 < self._width else role
                self._matrices += 1
            most = self._most if role in ("residuals", "step bins") else 0
            return self._record(Release("gaussian", role, tuple(rounded), tuple(spread), answer, shift, unit, most))

        return release

    def _columns(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def bounds(counts: Any, cells: Any, **options: Any) -> Any:
            self._counts = list(counts)
            return self._scoped("cells", real)(counts, cells, **options)

        return bounds

    def _scan(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def stop(counts: Any, *given: Any) -> Any:
            self.settle("a scan")
            answer = real(counts, *given)
            drawn, self._drawn = self._drawn, []
            _require(all(kind == "scan" for kind, _, _ in drawn), "a scan has noise of another kind")
            beyond = tuple(int(counts[cell + 1 :].sum()) for cell in range(len(counts)))
            spread = tuple(scale for _, scale, _ in drawn[:1]) or (Fraction(0),)
            _require(len({scale for _, scale, _ in drawn}) <= 1, "a scan has noise of two scales")
            return self._record(Release("scan", "scan", beyond, spread, answer))

        return stop

    def _rows(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(rows: list[int], *given: Any) -> Any:
            answer = real(rows, *given)
            [(_, scale, noise)] = self._take(1) or [("", Fraction(0), [0] * len(rows))]
            statistic = tuple(int(found) - int(by) for found, by in zip(answer, noise, strict=True))
            return self._record(Release("laplace", "rows", statistic, (scale,) * len(statistic), answer))

        return counted

    def _bins(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(bins: list[Any], *given: Any) -> Any:
            answers = real(bins, *given)
            drawn = self._take(len(bins)) or [("", Fraction(0), np.zeros_like(one)) for one in bins]
            found = []
            for answer, (_, scale, noise) in zip(answers, drawn, strict=True):
                statistic = tuple((answer - noise).tolist())
                found.append(self._record(Release("laplace", "bins", statistic, (scale,) * len(statistic), answer)))
            return found

        return counted

    def _count(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def blocks(noisy: int, **options: Any) -> Any:
            [(_, scale, noise)] = self._take(1) or [("", Fraction(0), [0])]
            answer = real(noisy, **options)
            return self._record(Release("laplace", "count", (noisy - int(noise[0]),), (scale,), answer))

        return blocks

    def _centre(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def mean(high: int, low: int) -> Any:
            [(_, scale, noise)] = self._take(1) or [("", Fraction(0), [0, 0])]
            statistic = high - int(noise[0]), low - int(noise[1])
            return self._record(Release("laplace", "centre", statistic, (scale, scale), real(high, low)))

        return mean

    def _sum(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def noisy(part: Any, total: int) -> Any:
            self.settle("a sum")
            answer = real(part, total)
            [(_, spread, noise)] = self._take(1) or [("", Fraction(0), [0])]
            by = int(noise[0])
            shifts = [shift for shift in range(60) if answer == ((total >> shift) + by) << shift]
            _require(bool(shifts), "more than statistic and noise")
            statistic = (total >> shifts[0],)
            return self._record(Release("laplace", "sum", statistic, (spread,), answer, shifts[0]))

        return noisy

    def _models(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def draw(models: Any, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> Any:
            self.settle("the models")
            exact = tuple(row.tobytes() for row in np.asarray(models, dtype=np.float64) + 0.0)
            answer = real(models, epsilon_test=epsilon_test, epsilon_draw=epsilon_draw, delta=delta)
            drawn, self._drawn = self._drawn, []
            # One draw for the test, none where there are too few models for any.
            _require(len(drawn) <= 1, "more noise than the test needs")
            test = 1 / drawn[0][1] if drawn else epsilon_test
            return self._record(Release("models", "models", exact, (test + epsilon_draw, delta), answer))

        return draw


@contextmanager
def _replaced(hooks: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Replace functions in every module of the package that has imported them."""
    found = [
        (module, name, real, stand_in)
        for module in [module for key, module in sys.modules.items() if key.split(".")[0] == "dpsql"]
        for name, value in list(vars(module).items())
        for real, stand_in in hooks
        if value is real
    ]
    for module, name, _, stand_in in found:
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module, name, real, _ in found:
            setattr(module, name, real)
