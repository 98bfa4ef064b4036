"""Exact laws of the parts of ``dp_two_stage``, and of the whole on tables of a few rows.

The number of blocks, the votes of blocks and the draw are the product's own code or the law it is to have; which rows
share a block is averaged over all assignments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dpsql.functions.two_stage import TwoStageCall, TwoStagePlan
from dpsql.kernels.lasso_votes import lasso_votes
from dpsql.statistics import votes
from dpsql.testing.neighbours import Table
from support.laws.best_subset import struct_rows
from support.laws.selection import one_shot_law

Outcome = tuple[str, ...]

# Noise this many scales away has a chance below 1e-13.
_TAIL_SCALES = 32


class TwoStageLaw:
    """Exact laws of one ``dp_two_stage`` call over tables of floats.

    Parameters
    ----------
    features : sequence of str
        Names of the feature columns, in the order of a row's values; the target is a row's last value.
    **arguments
        What the call is given besides source, target and features: k, epsilon, blocks, penalty, mechanism, ...

    Notes
    -----
    - **Guarantee**: none; this computes what a release would do.
    - **Assumes**: the samplers draw from the stated laws (tested in ``tests/statistical``), and no vote of a block is
      a tie between features, which the product settles at random.
    """

    def __init__(self, features: Sequence[str], **arguments: Any) -> None:
        import pyarrow as pa

        self.plan = TwoStagePlan.from_arguments("t", {"target": "target", "features": list(features), **arguments})
        self._names = (*features, "target")
        self.call = TwoStageCall.resolve(self.plan, pa.struct([(name, pa.float64()) for name in self._names]), {})

    @cached_property
    def utility_range(self) -> int:
        """What the selection is calibrated to, in votes."""
        return votes.utility_range(self.plan.neighbours)

    def votes(self, table: Table) -> tuple[int, ...]:
        """Return the votes, 0 or 1, of one block that holds the whole table."""
        target, features = self.call.read(struct_rows(table, self._names))
        plan = self.plan
        found = lasso_votes(
            features.T,
            target,
            np.zeros(len(target), dtype=np.int64),
            blocks=1,
            k=plan.k,
            penalty=plan.penalty,
            standardize=plan.standardize,
            intercept=plan.intercept,
        )
        return tuple(found.tolist())

    def selection_law(self, utility: Sequence[int]) -> dict[Outcome, float]:
        """Return the law of the selected names, by rank, for given votes."""
        plan = self.plan
        epsilon = plan.epsilon - plan.count_epsilon
        law = one_shot_law(
            utility,
            mechanism=plan.mechanism,
            gamma=plan.gamma,
            utility_range=self.utility_range,
            epsilon=epsilon,
            k=plan.k,
        )
        names = self.call.features
        return {tuple(names[place] for place in chosen): chance for chosen, chance in law.items()}

    def blocks_law(self, rows: int) -> dict[int, float]:
        """Return the law of the number of blocks with ``rows_per_block``, for a table of so many rows."""
        plan = self.plan
        assert plan.rows_per_block is not None
        epsilon = plan.count_epsilon / plan.max_rows_per_unit
        share = math.exp(-epsilon)
        reach = math.ceil(_TAIL_SCALES / epsilon)
        law: dict[int, float] = {}
        for noise in range(-reach, reach + 1):
            blocks = votes.blocks_from_count(
                rows + noise, rows_per_block=plan.rows_per_block, epsilon=epsilon, failure=plan.count_failure
            )
            law[blocks] = law.get(blocks, 0.0) + (1 - share) / (1 + share) * share ** abs(noise)
        return law

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the law of the output with public ``blocks`` and no ids: an average over all assignments of rows."""
        blocks = self.plan.blocks
        assert blocks is not None
        of_block = {
            chosen: self.votes(tuple(itertools.compress(table, chosen)))
            for chosen in itertools.product((False, True), repeat=len(table))
        }
        laws: dict[tuple[int, ...], dict[Outcome, float]] = {}
        total: dict[Outcome, float] = {}
        for assignment in itertools.product(range(blocks), repeat=len(table)):
            parts = [of_block[tuple(block == one for one in assignment)] for block in range(blocks)]
            utility = tuple(map(sum, zip(*parts, strict=True)))
            if utility not in laws:
                laws[utility] = self.selection_law(utility)
            for outcome, chance in laws[utility].items():
                total[outcome] = total.get(outcome, 0.0) + chance / blocks ** len(table)
        return total
