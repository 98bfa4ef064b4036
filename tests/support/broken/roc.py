"""Broken private ROC curves: shares of epsilon that are not there, rows that count twice, noise that users undo.

Functions that end on law return an exact output law; the right ones are in `support.laws.roc`. Their numbers are those
of tests/privacy/test_broken_roc.py. `BROKEN_ROC` are faults planted into the product's own calls, for
tests/privacy/test_roc_sql.py.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.functions import roc as summary
from dpsql.mechanisms import auc, prefix_sums, smooth
from dpsql.mechanisms.smooth import step_epsilon
from dpsql.noise.entropy import SYSTEM
from dpsql.statistics.counts import l1_sensitivity, squared_l2_sensitivity
from support.broken.planting import Patch, planted
from support.broken.quantile import by_rank
from support.laws.quantile import Cells, Rows, Split
from support.laws.roc import (
    Labelled,
    best_beta,
    calibrated,
    concordance,
    discrete_laplace_law,
    least_scale,
    lower_median,
    medians_law,
    shifted_cauchy,
    smooth_median_bound,
)


def rank_split_medians_law(rows: Rows, cells: int, *, count: int, epsilon: Fraction) -> dict[Cells, float]:
    """Return the joint law of medians of the first and the last half of the sorted rows, like SQL's NTILE.

    Parameters
    ----------
    rows, cells, count, epsilon
        As for `support.laws.roc.smooth_medians_law`; the claim is for add_remove.

    Notes
    -----
    - **What is wrong**: an added row shifts the middle and moves a row of somebody else from one half to the other, so
      that both halves change.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, three medians, eleven cells, at most 4 rows: loss 2.75 epsilon.
    """
    return _medians(rows, cells, count, epsilon, by_rank)


def closed_medians_law(rows: Rows, cells: int, *, count: int, epsilon: Fraction) -> dict[Cells, float]:
    """Return the joint law of medians of the rows up to a released cell and from it on: its ties are on both sides.

    Parameters
    ----------
    rows, cells, count, epsilon
        As for `support.laws.roc.smooth_medians_law`; the claim is for add_remove.

    Notes
    -----
    - **What is wrong**: a row of the released cell moves both sub-ranges.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 2, three medians, six cells, at most 5 rows: loss 1.32 epsilon.
    """
    return _medians(rows, cells, count, epsilon, _both_sides)


def scaled_for_units_law(rows: Rows, cells: int, *, epsilon: Fraction, max_rows_per_unit: int) -> dict[int, float]:
    """Return the law of one median whose noise is that of a single row times the rows of a unit.

    Parameters
    ----------
    rows, cells, epsilon, max_rows_per_unit
        As for `support.laws.roc.smooth_medians_law`; the claim is for a unit under add_remove.

    Notes
    -----
    - **What is wrong**: c rows move the smooth sensitivity by ``exp(c beta)``, and no constant makes up for that.
    - **Caught by**: `check_exhaustively`, with units as rows.
    - **Counter-example**: epsilon = 1, units of at most 3 rows, eleven cells, at most 2 units: loss 1.60 epsilon.
    """
    beta = best_beta(float(epsilon))
    return _median(rows, cells, beta, max_rows_per_unit * least_scale(float(epsilon), beta))


def total_epsilon_constant(epsilon: float, levels: int) -> tuple[float, float]:
    """Return beta and the constant of the noise of one level in Stoddard et al., Algorithm 4, as printed.

    Parameters
    ----------
    epsilon : float
        Of all levels together; the claim for one is ``epsilon / levels`` under add_remove.
    levels : int

    Notes
    -----
    - **What is wrong**: the noise is ``8 S / epsilon``, where S is for ``beta = epsilon / levels``. It would have to be
      divided by the level's share; 8 is so much more than Cauchy noise needs that only many levels show it.
    - **Caught by**: `support.laws.roc.worst_median_loss`.
    - **Counter-example**: epsilon = 1/5, ten levels, 41 cells, no row and one row: a level loses 1.586 of its shares.
    """
    return epsilon / levels, 8 / epsilon


def third_power_constant(epsilon: float) -> tuple[float, float]:
    """Return beta and the constant of Cauchy noise as in Stoddard et al.: 8 over epsilon, with beta all of epsilon.

    Parameters
    ----------
    epsilon : float
        The claim of one step.

    Notes
    -----
    - **What is wrong**: 8 is for noise with a lighter tail and beta = epsilon leaves nothing for the centre.
    - **Caught by**: `support.laws.roc.worst_step_loss`.
    - **Counter-example**: epsilon = 1: loss 1.0024.
    """
    return epsilon, 8 / epsilon


def shared_epsilon_law(rows: Labelled, *, epsilon: Fraction, reach: int) -> dict[tuple[int, int], float]:
    """Return the law of the counts of both levels, one cell each, with all of epsilon for either.

    Parameters
    ----------
    rows : sequence of (bool, int)
        Label and cell, which is 0.
    epsilon : Fraction
        The claim, for replace.
    reach : int
        How far the noise goes.

    Notes
    -----
    - **What is wrong**: under add_remove a row is in one of the two. A row that is replaced by one of the other level
      moves both.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: any; loss 2 epsilon.
    """
    return _counts_law(rows, 1 / float(epsilon), reach)


def two_counts_law(rows: Labelled, *, epsilon: Fraction, neighbours: str, reach: int) -> dict[tuple[int, int], float]:
    """Return the law of the counts of both levels, one cell each, as the product draws them."""
    return _counts_law(rows, (2 if neighbours == "replace" else 1) / float(epsilon), reach)


def present_cells_law(
    rows: Labelled, cells: int, *, epsilon: Fraction, reach: int
) -> dict[tuple[tuple[bool, int, int], ...], float]:
    """Return the law of noisy counts of the cells that ``GROUP BY`` returns: those that hold a row.

    Parameters
    ----------
    rows : sequence of (bool, int)
        Label and cell.
    cells : int
    epsilon : Fraction
        The claim, for add_remove.
    reach : int
        How far the noise goes.

    Notes
    -----
    - **What is wrong**: an empty cell gets no noise and is not in the output, so that the list of cells is private.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: any; the loss is infinite.
    """
    counts = Counter(rows)
    present = [key for key in itertools.product((False, True), range(cells)) if counts[key]]
    laws = [discrete_laplace_law(counts[key], 1 / float(epsilon), reach=reach) for key in present]
    found = {}
    for values in itertools.product(*laws):
        keyed = tuple((*key, value) for key, value in zip(present, values, strict=True))
        found[keyed] = math.prod(law[value] for law, value in zip(laws, values, strict=True))
    return found


def middle_label_concordance(rows: Sequence[tuple[bool | None, int]]) -> tuple[Fraction, int, int]:
    """Return a concordance that counts rows of neither class as midway between the classes, and both counts.

    Parameters
    ----------
    rows : sequence of (bool or None, int)
        Label and cell.

    Notes
    -----
    - **What is wrong**: with three levels a row has pairs with all others, and moves the concordance by up to 3/2 of
      what the noise is for.
    - **Caught by**: the loss of all pairs of tables.
    - **Counter-example**: shares of 3/5 and 2/5 under add_remove, at most 3 rows: loss 1.3 epsilon.
    """
    codes = [{None: 0, False: -1, True: 1}[label] for label, _ in rows]
    signs = [_sign(codes[i] - codes[j]) * _sign(rows[i][1] - rows[j][1]) for j in range(len(rows)) for i in range(j)]
    scaled = Fraction(sum(signs), len(rows) - 1) if len(rows) > 1 else Fraction(0)
    return scaled, codes.count(1), codes.count(-1)


def noisy_divisor_law(rows: Labelled, *, epsilon: Fraction, reach: int) -> dict[tuple[int, int, int], float]:
    """Return the law of a concordance that is divided by the noisy number of rows less one, and of both counts.

    Parameters
    ----------
    rows : sequence of (bool, int)
        Label and cell.
    epsilon : Fraction
        The claim, for add_remove.
    reach : int
        How far the numbers go.

    Notes
    -----
    - **What is wrong**: one row moves the balance by as many pairs as the other class has rows. Only the true number of
      rows is never smaller; given a small noisy one, the concordance moves by more than 1.
    - **Caught by**: `check_exhaustively`.
    - **Counter-example**: epsilon = 1, at most 4 rows: loss 2.2 epsilon.
    """
    labels = [label for label, _ in rows]
    balance = int(concordance(rows) * (len(rows) - 1)) if rows else 0
    by_count = 1 / (0.4 * float(epsilon))
    laws = [discrete_laplace_law(labels.count(level), by_count, reach=reach) for level in (True, False)]
    found: dict[tuple[int, int, int], float] = {}
    for (x, p), (y, q) in itertools.product(laws[0].items(), laws[1].items()):
        scaled = balance // max(1, x + y - 1)
        for value, chance in discrete_laplace_law(scaled, 1 / (0.6 * float(epsilon)), reach=reach).items():
            found[value, x, y] = p * q * chance
    return found


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _counts_law(rows: Labelled, scale: float, reach: int) -> dict[tuple[int, int], float]:
    counts = Counter(label for label, _ in rows)
    laws = [discrete_laplace_law(counts[level], scale, reach=reach) for level in (False, True)]
    return {(one, other): p * q for one, p in laws[0].items() for other, q in laws[1].items()}


def _medians(rows: Rows, cells: int, count: int, epsilon: Fraction, split: Split) -> dict[Cells, float]:
    share = float(epsilon) / math.ceil(math.log2(count + 1))
    return medians_law(rows, cells, count, lambda level: best_beta(share), calibrated(lambda level: share), split)


def _median(rows: Rows, cells: int, beta: float, constant: float) -> dict[int, float]:
    known = [row for row in rows if row is not None]
    bound = smooth_median_bound(known, 0, cells - 1, beta)
    return shifted_cauchy(lower_median(known, 0), constant * bound, 0, cells - 1)


def _both_sides(rows: Sequence[int], cell: int) -> tuple[Sequence[int], Sequence[int]]:
    return [row for row in rows if row <= cell], [row for row in rows if row >= cell]


def broken_roc(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_ROC` for as long as the context lasts. Never private; for tests only.

    Notes
    -----
    ``tests/privacy/test_roc_sql.py`` catches each through SQL, on two neighbouring tables (`roc_loss`); the right
    function passes the same test.
    """
    return planted(*BROKEN_ROC[name])


def _of_a_row(real: Any) -> Any:
    """Return a sensitivity that forgets how many rows a unit has."""
    return lambda neighbours, *, max_rows_per_unit=1: real(neighbours)


def _added(real: Any) -> Any:
    """Return a sensitivity that takes replaced rows for added ones."""
    return lambda neighbours, *, max_rows_per_unit=1: real("add_remove", max_rows_per_unit=max_rows_per_unit)


def _occupied_only(plan: Any, counts: Any) -> Any:
    """Return the fixed thresholds after which there is a row: the others would have been dropped by GROUP BY."""
    starts = np.arange(1, plan.n_thresholds + 1) * plan.grid // (plan.n_thresholds + 1)
    rows = np.add.reduceat(counts, np.append(0, starts))[1:]
    return starts[rows > 0]


def _closed(counts: Any, low: int, high: int, first: int, epsilon: Fraction, source: Any) -> int:
    """Return the median of a sub-range that keeps the rows of the cell where it begins."""
    return _real_median(counts, low, high, low, epsilon, source)


def _halves_by_rank(counts: Any, **given: Any) -> list[int]:
    """Return three medians: of all rows, and of the first and the last half of the sorted rows."""
    rows = np.repeat(np.arange(len(counts)), counts)
    halves = (rows, rows[: len(rows) // 2], rows[len(rows) // 2 :])
    return [
        _real_median(np.bincount(half, minlength=len(counts)), 0, len(counts) - 1, 0, given["epsilon"] / 2, SYSTEM)
        for half in halves
    ]


def _whole_epsilon(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, replaces: bool) -> Fraction:
    return step_epsilon(2 * epsilon, neighbours, max_rows_per_unit, replaces=replaces)


def _row_epsilon(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, replaces: bool) -> Fraction:
    return step_epsilon(epsilon, neighbours, 1, replaces=replaces)


def _added_epsilon(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, replaces: bool) -> Fraction:
    return step_epsilon(epsilon, "add_remove", max_rows_per_unit, replaces=replaces)


def _added_area(smaller: int, neighbours: str, beta: Fraction) -> Any:
    return _real_area_bound(smaller, "add_remove", beta)


_real_median = smooth._smooth_median
_real_area_bound = smooth.area_bound
_real_cauchy_scale = smooth.cauchy_scale

BROKEN_ROC: dict[str, tuple[Patch, ...]] = {
    "half of epsilon forgotten under replace": (
        (prefix_sums, "l1_sensitivity", _added(l1_sensitivity)),
        (prefix_sums, "squared_l2_sensitivity", _added(squared_l2_sensitivity)),
    ),
    "noise for one row": (
        (prefix_sums, "l1_sensitivity", _of_a_row(l1_sensitivity)),
        (prefix_sums, "squared_l2_sensitivity", _of_a_row(squared_l2_sensitivity)),
    ),
    "thresholds not paid for": ((summary.RocPlan, "count_epsilon", property(lambda plan: plan.epsilon)),),
    "empty cells dropped": ((summary, "chosen_cells", _occupied_only),),
    "levels of the tree forgotten": (
        (prefix_sums, "laplace_scale", lambda strategy, epsilon, *_: Fraction(1) / epsilon),
    ),
    "ties on both sides": ((smooth, "_smooth_median", _closed),),
    "halves by rank": ((smooth, "smooth_medians", _halves_by_rank),),
    "total epsilon at every level": ((smooth, "step_epsilon", _whole_epsilon),),
    "noise multiplied for units": (
        (smooth, "step_epsilon", _row_epsilon),
        (smooth, "cauchy_scale", lambda epsilon, beta: 3 * _real_cauchy_scale(epsilon, beta)),
    ),
    "counts of the table": ((auc, "class_sensitivity", lambda relation: Fraction(1, 10**6)),),
    "concordance for one row": (
        (auc, "concordance_sensitivity", lambda relation: relation.changes),
        (auc, "class_sensitivity", lambda relation: relation.changes),
    ),
    "both counts at all of their share": ((auc, "_LAPLACE", (auc._LAPLACE[0], (Fraction(1), Fraction(1)))),),
    "concordance of replaced rows as of added ones": (
        (auc, "concordance_sensitivity", lambda relation: relation.rows),
    ),
    "area for one row": ((smooth, "step_epsilon", _row_epsilon),),
    "steps of added rows under replace": ((smooth, "step_epsilon", _added_epsilon),),
    "constant of added rows under replace": ((smooth, "area_bound", _added_area),),
}
