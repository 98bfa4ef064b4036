"""What dp_synthetic draws, seen at its samplers: on two tables, with one and the same released numbers.

The first run notes what is released. A second one, on another table, is made to release the same, so that its loss in
zCDP is a number: of Gaussian noise the squared distance of the exact statistics over twice the variance, of a round of
the exponential mechanism an eighth of the squared spread of its exponents. All else that a call does must then be
equal, because nothing but what is released may decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.mechanisms import gaussian, prefix_bounds, private_tree
from dpsql.mechanisms.one_shot import select
from support.broken.planting import planted


@dataclass
class Step:
    """One draw: the exact statistic, what it costs for a distance, and what it released."""

    kind: str
    exact: np.ndarray
    unit: float  # variance of the noise, or what one unit of a quality counts in the exponent
    released: Any
    epsilon: float = 0.0  # of a round


@dataclass
class Seen:
    """All draws of a call in order, and what came of them."""

    steps: list[Step] = field(default_factory=list)
    result: Any = None

    def losses(self, other: Seen) -> list[tuple[str, float]]:
        """Return kind and rho of each step; infinite where the steps are not the same."""
        if len(self.steps) != len(other.steps):
            return [("steps", np.inf)]
        return [(one.kind, _loss(one, two)) for one, two in zip(self.steps, other.steps, strict=True)]


def _loss(one: Step, two: Step) -> float:
    if one.kind != two.kind or one.unit != two.unit or len(one.exact) != len(two.exact):
        return np.inf
    moved = (two.exact - one.exact).astype(np.float64)
    if one.kind == "gaussian":
        return float(np.square(moved).sum() / (2.0 * one.unit))
    if one.kind != "gumbel":  # no bounded range: all of its epsilon counts
        return one.epsilon**2 / 2.0
    return (float(moved.max() - moved.min()) * one.unit) ** 2 / 8.0


def observe(run: Callable[[], Any], first: Seen | None = None) -> Seen:
    """Run a call and note its draws; with those of a first call, release what that one did."""
    seen = Seen()

    def following() -> Step | None:
        known = len(seen.steps)
        return None if first is None or known >= len(first.steps) else first.steps[known]

    real_release, real_select = gaussian.gaussian_release, select

    def release(values: Any, *, sensitivity: int, squared_mu: Fraction, **more: Any) -> Any:
        before = following()
        found = real_release(values, sensitivity=sensitivity, squared_mu=squared_mu, **more)
        if before is not None and before.kind == "gaussian" and len(before.exact) == len(values):
            found = before.released
        seen.steps.append(Step("gaussian", np.array(values, dtype=object), float(sensitivity**2 / squared_mu), found))
        return found

    def selected(utility: Any, *, utility_range: int, epsilon: Fraction, k: int, noise: str) -> Any:
        before = following()
        found = real_select(utility, utility_range=utility_range, epsilon=epsilon, k=k, noise=noise)  # type: ignore[arg-type]
        if before is not None and before.kind == noise and len(before.exact) == len(utility):
            found = before.released
        seen.steps.append(
            Step(noise, np.array(utility, dtype=object), float(epsilon / utility_range), found, float(epsilon))
        )
        return found

    with planted(
        (gaussian, "gaussian_release", release),
        (prefix_bounds, "gaussian_release", release),
        (private_tree, "select", selected),
    ):
        seen.result = run()
    return seen
