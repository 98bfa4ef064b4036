"""What a call would cost and how noisy it would be, from public numbers alone."""

from __future__ import annotations

import math
from typing import Any

from dpsql.accountant import cost_of
from dpsql.parameters import positive_integer
from dpsql.selectors.sis import SisPlan
from dpsql.statistics.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.xty import target_sums_sensitivity, utility_range

_CONFIDENCE = 0.95

# Every argument of dp_estimate after the function, in the order of the SQL macro.
ESTIMATE_ARGUMENTS: dict[str, None] = dict.fromkeys(
    (
        "n_features",
        "k",
        "epsilon",
        "n_rows",
        "neighbours",
        "mechanism",
        "gamma",
        "center",
        "center_share",
        "max_rows_per_unit",
    )
)


def estimate(function: Any, **a: Any) -> Any:
    return estimate_sis(**a)


def estimate_sis(n_features: Any = None, n_rows: Any = None, **arguments: Any) -> list[dict[str, Any]]:
    """Return cost and noise of a dp_sis call.

    Parameters
    ----------
    n_features : int
        Number of features, >= 1.
    n_rows : int, optional
        A public guess of the number of rows, to put the noise in proportion.
    **arguments
        As of dp_sis: k, epsilon, neighbours, mechanism, gamma, center, center_share, max_rows_per_unit.

    Returns
    -------
    rows : list of dict
        ``quantity``, ``value``, ``meaning``. Scores are in units of the most that one row can add to one.
    """
    count = positive_integer("n_features", n_features, code="P010", hint="Give the number of features.")
    rows = (
        None
        if n_rows is None
        else positive_integer("n_rows", n_rows, code="P010", hint="Give a public number of rows.")
    )
    unit = {"privacy_unit": "unit"} if arguments.get("max_rows_per_unit") is not None else {}
    given = {
        "target": "target",
        "features": "features",
        "n_features": count,
        "lower": 0,
        "upper": 1,
        **unit,
        **arguments,
    }
    plan = SisPlan.from_arguments("source", given)
    cost = cost_of(plan.event)
    one = FIXED_POINT_ONE**2
    epsilon = float(plan.epsilon - plan.center_epsilon)
    spread = utility_range(plan.neighbours, plan.max_rows_per_unit) / one
    choices = math.comb(count, plan.k)
    if plan.mechanism == "canonical_lipschitz":
        scale = spread / epsilon
        gap = (
            scale
            / float(plan.gamma)
            * _log((choices - 1) / (1 - _CONFIDENCE) if choices < 10**300 else math.inf, choices)
        )
    else:
        scale = plan.k * spread / epsilon
        pairs = plan.k * (count - plan.k) / (1 - _CONFIDENCE) / (2 if plan.mechanism == "one_shot" else 1)
        gap = scale * math.log(pairs) if pairs > 1 else 0.0
    out = [
        ("epsilon", float(plan.epsilon), "privacy loss charged, basic composition"),
        ("rho", float(cost.rho or 0), "the same loss under zCDP"),
        ("score_sensitivity", spread / 2, "most that one privacy unit can move one score"),
        ("noise_scale", scale, "scale of the noise on a score"),
        (
            "score_gap",
            max(gap, 0.0),
            "gap between the k-th and the next score that gives the exact top k in 95 % of calls",
        ),
    ]
    if rows is not None:
        out.append(
            ("score_gap_share", max(gap, 0.0) / rows, "that gap as a share of the largest possible score, n_rows")
        )
    if plan.center == "target":
        laplace = (
            target_sums_sensitivity(plan.neighbours, plan.max_rows_per_unit)
            / FIXED_POINT_ONE
            / float(plan.center_epsilon)
        )
        out.append(("center_noise_scale", laplace, "scale of the noise on the two sums that give the target's mean"))
    return [{"quantity": name, "value": value, "meaning": meaning} for name, value, meaning in out]


def _log(ratio: float, choices: int) -> float:
    """Logarithm of the number of sets over the failure probability, beyond the range of doubles too."""
    if math.isfinite(ratio):
        return math.log(ratio) if ratio > 1 else 0.0
    return math.log(choices) - math.log(1 - _CONFIDENCE)
