"""Broken comparisons: a sensitivity of one score, numbers without noise. For tests/privacy/test_comparison_sql.py."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from dpsql.contract.relation import Contribution
from dpsql.functions import compare
from dpsql.functions.compare import ComparePlan
from dpsql.mechanisms import aggregates, auc
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock, on_lattice
from dpsql.mechanisms.auc import PairedConcordanceNoise
from dpsql.statistics.aggregates import Block, Words
from dpsql.statistics.auc import concordance_sensitivity
from support.broken.planting import Patch, planted


def broken_comparison(name: str) -> AbstractContextManager[None]:
    """Plant a fault into dp_compare. Never private; for tests only.

    Parameters
    ----------
    name : str
        Key of `BROKEN_COMPARISON`.

    Notes
    -----
    - **What is wrong**: see each name. A row that one score ranks first and the other one last moves the difference of
      concordances by 2; the sizes of classes and the sums of squares are as private as the means.
    - **Caught by**: `tests/privacy/test_comparison_sql.py`, on two neighbouring tables.
    - **Counter-example**: eight negative rows, and one positive row more that is first by one score and last by the
      other: a loss of 1.6 epsilon where the sensitivity is of one score.
    """
    return planted(*BROKEN_COMPARISON[name])


def _squares_exact(block: Block, lattice: Lattice, exact: Words) -> NoisyBlock:
    """Return a block whose last coordinate has no noise."""
    rounded = on_lattice(exact, lattice.bits)
    low = rounded.low + 0 * rounded.high
    low[:-1] += lattice.draw(rounded.high[:-1].size).reshape(rounded.high[:-1].shape)
    return NoisyBlock(block, lattice, Words.of(rounded.high, low, rounded.bits))


def _counts_exact(values: list[int], scale: Any) -> list[float]:
    """Return numbers of which the sizes of classes, which are not negative, have no noise."""
    return _real(values, scale) if min(values) < 0 else list(map(float, values))


_real = auc._with_laplace

BROKEN_COMPARISON: dict[str, tuple[Patch, ...]] = {
    "sensitivity of one score": (
        (PairedConcordanceNoise, "moved", property(lambda part: concordance_sensitivity(part.relation))),
    ),
    "class sizes without noise": ((auc, "_with_laplace", _counts_exact),),
    "squares without noise": ((aggregates, "noisy_block", _squares_exact),),
    "one row of a unit": ((ComparePlan, "contribution", property(lambda plan: Contribution(plan.neighbours, keys=2))),),
    "disagreement for one row": ((compare, "disagreement_sensitivity", lambda relation: 1),),
}
