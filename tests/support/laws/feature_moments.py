"""What a call of dp_covariance or dp_correlation releases, and what that costs on two tables.

`observe` runs a call, and records the exact moments, the spread of the noise that the sampler was asked for, and the
answer. A second call may be given the answer of the first: then nothing else may differ between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.mechanisms import gaussian, laplace
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_release
from dpsql.noise.discrete import discrete_gaussian, discrete_laplace
from support.broken.planting import planted


@dataclass(frozen=True)
class MomentsSeen:
    """An observed call.

    Attributes
    ----------
    rows : list
        What the call returned.
    kind : {'gaussian', 'laplace'}
    moments : list of int
        In the unit of the sampler.
    spread : Fraction
        Variance or scale of the noise in each moment, in that unit; 0 for no noise.
    answer : object
        What the call went on with.
    """

    rows: list[Any]
    kind: str
    moments: list[int]
    spread: Fraction
    answer: Any

    def loss(self, other: MomentsSeen) -> float:
        """Return mu of Gaussian noise, or epsilon of Laplace noise, on the tables of two calls."""
        moved = [abs(b - a) for a, b in zip(self.moments, other.moments, strict=True)]
        assert (self.kind, self.spread, len(self.moments)) == (other.kind, other.spread, len(other.moments))
        if not self.spread:
            return math.inf if any(moved) else 0.0
        if self.kind == "laplace":
            return float(sum(moved) / self.spread)
        return math.sqrt(sum(by * by for by in moved) / self.spread)


def observe_moments(run: Callable[[], list[Any]], first: MomentsSeen | None = None) -> MomentsSeen:
    """Run a call that releases its moments once; give it the answer of an earlier call if there is one."""
    drawn: list[tuple[str, Fraction]] = []
    seen: list[tuple[list[int], Any]] = []

    def spied(kind: str, sampler: Callable[..., Any]) -> Callable[..., Any]:
        def sample(spread: Fraction, size: int, **options: Any) -> Any:
            drawn.append((kind, spread))
            return sampler(spread, size, **options)

        return sample

    def released(values: Any, **options: Any) -> GaussianRelease:
        answer = gaussian_release(values, **options)
        seen.append(([int(value) for value in values], answer))
        return answer if first is None else first.answer

    def summed(part: Any, sums: Any, l1_sensitivity: Any) -> list[int]:
        answer = draw(part, sums, l1_sensitivity)
        seen.append((list(sums), answer))
        return answer if first is None else first.answer

    draw = laplace.LaplaceNoise.draw
    with planted(
        (gaussian, "discrete_gaussian", spied("gaussian", discrete_gaussian)),
        (laplace, "discrete_laplace", spied("laplace", discrete_laplace)),
        (gaussian, "gaussian_release", released),
        (laplace.LaplaceNoise, "draw", summed),
    ):
        rows = run()
    [(kind, spread)], [(moments, answer)] = drawn, seen
    return MomentsSeen(rows, kind, moments, spread, answer)


def row_of_moments(z: np.ndarray) -> np.ndarray:
    """Return f(z) of `dpsql.statistics.feature_moments`, for z of shape (p,) in [-1, 1]."""
    first, second = np.triu_indices(len(z), 1)
    return np.concatenate([[1.0], z, z**2 - 0.5, z[first] * z[second]])
