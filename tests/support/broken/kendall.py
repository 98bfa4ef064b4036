"""Broken selections by Kendall correlation: tau-b for tau-a, scores that are no number, a sensitivity for a range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dpsql.noise.race import top_k
from dpsql.testing.neighbours import Table
from support.laws.selection import select_law

_RANGE = Fraction(5, 2)
_UNIT = 1 << 20


def tau_b_scores(table: Table) -> list[float]:
    """Return ``n/2 |tau_b|`` of every feature with the target, as in the DPKendall paper's code without its jitter.

    Parameters
    ----------
    table : tuple of tuple
        Rows of finite floats, the target last.

    Returns
    -------
    scores : list of float
        NaN where a column is constant.

    Notes
    -----
    - **What is wrong**: tau-b divides by the number of pairs that do not tie, which is small for binary columns and
      0 for constant ones: one row moves the score by the order of n.
    - **Caught by**: `tau_b_law` on neighbours, and through SQL by `audit_sql` on dp_broken_tau_b.
    - **Counter-example**: n rows, of which only the first has x = y = 1; one row (1, 0) more lowers the score by 1.3,
      14.5 and 146 for n = 10, 100 and 1000. The claim is 3/2.

    References
    ----------
    .. [1] google-research/private_kendall, ``kendall``: scipy.stats.kendalltau, whose default is tau-b.
    """
    columns = np.array(table, dtype=np.float64).T
    signs = np.sign(columns[:, :, None] - columns[:, None, :]).reshape(len(columns), -1)
    untied = np.count_nonzero(signs, axis=1)
    with np.errstate(invalid="ignore"):
        tau = signs[:-1] @ signs[-1] / np.sqrt(untied[:-1] * untied[-1])
    return [float(score) for score in len(table) / 2 * np.abs(tau)]


def tau_b_law(table: Table, *, epsilon: float) -> dict[int, float]:
    """Return the law of one round on `tau_b_scores` with Gumbel noise for the range 5/2: feature -> probability.

    Notes
    -----
    - **What is wrong**: see `tau_b_scores`; and where a score is NaN so is the noisy one, which comes first in the
      order by which NumPy finds the largest: the first constant column is selected with probability 1.
    - **Counter-example**: epsilon = 1; the rows of `tau_b_scores` with a feature that is 1 in the first and in the
      last row beside x: loss 0.39, 5.2 and 58 for n = 10, 100 and 1000. Two rows, a constant feature and one that is
      not: infinite loss once a third row gives the constant one another value.
    """
    scores = tau_b_scores(table)
    if any(map(math.isnan, scores)):
        return {int(np.argmax(scores)): 1.0}
    weights = np.exp((np.array(scores) - max(scores)) * epsilon / float(_RANGE))
    return dict(enumerate((weights / weights.sum()).tolist()))


def sensitivity_as_range_law(
    scores: Sequence[Fraction], *, epsilon: Fraction, noise: Literal["exponential", "gumbel"] = "exponential"
) -> dict[tuple[int, ...], float]:
    """Return the law of one round with noise for the range 3/2: how far one ``|tau|`` moves, not two apart.

    Parameters
    ----------
    scores : sequence of Fraction
        Exact ``|tau_j|``.
    epsilon : Fraction
        Claimed privacy loss, > 0.
    noise : {'exponential', 'gumbel'}
        As for `dpsql.mechanisms.one_shot.select`.

    Returns
    -------
    law : dict
        ``(position,)`` -> probability.

    Notes
    -----
    - **What is wrong**: one row can lower one ``|tau|`` by 3/2 and raise another by 1; what counts is the sum, 5/2.
    - **Caught by**: `check_exhaustively`, the log ratio of exact laws.
    - **Counter-example**: epsilon = 1; five rows (i, 0, i) and one row (-99, 1, 99) more: the scores go from (5/2, 0)
      to (1, 1), and the loss is 5/3.
    """
    common = math.lcm(*(score.denominator for score in scores))
    return select_law(
        [int(2 * common * score) for score in scores], utility_range=3 * common, epsilon=epsilon, k=1, noise=noise
    )


def install_broken_kendall(connection: Any) -> Counter[str]:
    """Register dp_broken_tau_b on one connection. Never private; for audits only.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection or dpsql.Context
        ``dp_broken_tau_b(rows DOUBLE[][], epsilon DOUBLE) -> BIGINT`` takes rows with the target last, such as
        ``list([a, b, y])``, and returns the position of a feature, from 0, by `tau_b_law`.

    Returns
    -------
    draws : Counter
        How often it drew.
    """
    draws: Counter[str] = Counter()

    def draw(rows: list[list[float]], epsilon: float) -> int:
        draws["dp_broken_tau_b"] += 1
        scores = tau_b_scores(tuple(tuple(row) for row in rows))
        if any(map(math.isnan, scores)):
            return int(np.argmax(scores))
        utility = [round(score * _UNIT) for score in scores]
        return int(top_k(utility, Fraction(repr(epsilon)) / (_RANGE * _UNIT), 1, noise="gumbel")[0])

    raw = getattr(connection, "connection", connection)
    flags = {"side_effects": True, "null_handling": "special"}
    raw.create_function("dp_broken_tau_b", draw, ["DOUBLE[][]", "DOUBLE"], "BIGINT", **flags)
    return draws
