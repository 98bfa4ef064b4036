"""From exact statistic to private selection: which mechanism runs, with which range and which share of epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.canonical_lipschitz import canonical_lipschitz
from dpsql.mechanisms.select import select
from dpsql.noise.discrete import discrete_laplace
from dpsql.plan import SisPlan
from dpsql.statistics.xty import mean_from_sums, target_sums_sensitivity, utility_range

RANKED = pa.struct([("rank", pa.int64()), ("feature", pa.string())])
_noise = {"one_shot": "exponential", "gumbel": "gumbel"}


def draw_selection(plan: SisPlan, utility: np.ndarray[Any, Any], features: Sequence[str]) -> list[str]:
    """Draw the selected features' names, in the order of their rank.

    Parameters
    ----------
    plan : SisPlan
    utility : ndarray of integers, shape (d,)
        ``|s_j|`` in units of ``S**2``.
    features : sequence of str, length d
        Public names.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon`` less the share that a private centre costs.
    - **Sensitivity**: `dpsql.statistics.xty.utility_range`.
    """
    epsilon = plan.epsilon - plan.center_epsilon
    spread = utility_range(plan.neighbours, plan.max_rows_per_unit)
    if plan.mechanism == "canonical_lipschitz":
        chosen = canonical_lipschitz(utility, utility_range=spread, epsilon=epsilon, k=plan.k, gamma=plan.gamma)
    else:
        chosen = select(utility, utility_range=spread, epsilon=epsilon, k=plan.k, noise=_noise[plan.mechanism])  # type: ignore[arg-type]
    return [features[position] for position in chosen]


def draw_center(plan: SisPlan, high: int, low: int) -> int:
    """Draw the private mean of the target in ``[-S, S]`` from the sums of ``S + t`` and ``S - t``.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.center_epsilon``.
    - **Sensitivity**: L1, `dpsql.statistics.xty.target_sums_sensitivity`.
    """
    scale = Fraction(target_sums_sensitivity(plan.neighbours, plan.max_rows_per_unit)) / plan.center_epsilon
    noise = discrete_laplace(scale, 2)
    return mean_from_sums(int(high) + int(noise[0]), int(low) + int(noise[1]))


def ranked(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the selection as tidy rows."""
    return [{"rank": position, "feature": name} for position, name in enumerate(names, start=1)]
