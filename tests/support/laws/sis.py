"""The exact output law of ``dp_sis`` on a given table, along the path that the product takes.

Rows are quantised, summed and centred by the product's own code, and the sensitivity comes from its
own table; only the last step, drawing, is replaced by the exact law of the draw.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.contract.fold import Batch
from dpsql.functions.sis import SisCall, SisPlan
from dpsql.kernels import fixed_point
from dpsql.statistics import xty
from dpsql.testing.neighbours import Table
from support.laws.selection import one_shot_law

Outcome = tuple[str, ...]

# Noise this many scales away has a chance below 1e-13.
_TAIL_SCALES = 32


def products(call: SisCall, rows: pa.StructArray, center: int = 0) -> list[int]:
    """Return the products of all features with the centred target."""
    collector = xty.CrossProducts(call.maps, center)
    call.collect(collector, rows, Batch())
    return [int(total) for total in collector.total()]


class SisLaw:
    """Exact laws of one ``dp_sis`` call over tables of floats.

    Parameters
    ----------
    features : sequence of str
        Names of the feature columns, in the order of a row's values; the target is a row's last value.
    **arguments
        What the call is given besides source, target and features: k, epsilon, lower, upper,
        target_lower, target_upper, mechanism, neighbours, ...

    Notes
    -----
    - **Guarantee**: none; this computes what a release would do.
    - **Assumes**: the sampler draws from the stated law (tested in ``tests/statistical``), and one row
      per privacy unit, or rows that were capped before.
    """

    def __init__(self, features: Sequence[str], **arguments: Any) -> None:
        import pyarrow as pa

        given = {"target": "target", "features": list(features), **arguments}
        self.plan = SisPlan.from_arguments("t", given)
        self._type = pa.struct([(name, pa.float64()) for name in (*features, "target")])
        self.call = SisCall.resolve(self.plan, self._type, {})

    @cached_property
    def utility_range(self) -> int:
        """What the selection is calibrated to, in units of ``S**2``."""
        return xty.utility_range(self.plan.neighbours, self.plan.max_rows_per_unit)

    def statistic(self, table: Table, center: int = 0) -> tuple[int, ...]:
        """Return ``|s_j|`` for every feature, in units of ``S**2``."""
        return tuple(abs(int(total)) for total in products(self.call, self._rows(table), center))

    def target_sums(self, table: Table) -> tuple[int, int]:
        """Return the sums ``(P, Q)`` from which the target's mean is released, in units of S."""
        high, low = xty.target_sums(self.call.coded_target(self._rows(table))).tolist()
        return high, low

    def selection_law(self, utility: Sequence[int]) -> dict[Outcome, float]:
        """Return the law of the selected names, by rank, for given scores."""
        plan = self.plan
        epsilon = plan.epsilon - plan.center_epsilon
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

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the exact law of the output with ``center := 'public'``."""
        return self.selection_law(self.statistic(table))

    def key(self, table: Table) -> Hashable:
        """Return what determines `law`: for the `key` of `check_exhaustively`."""
        return self.statistic(table)

    def _rows(self, table: Table) -> Any:
        import pyarrow as pa

        columns = [pa.array([row[place] for row in table], pa.float64()) for place in range(self._type.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=list(self._type))


class CentredSisLaw(SisLaw):
    """Exact laws with ``center := 'target'``: the private mean of the target, then the selection.

    Parameters
    ----------
    features, **arguments
        As in `SisLaw`.
    max_rows : int
        Largest number of rows of any table that will be asked for.

    Notes
    -----
    The joint law of the two noisy sums and the selection bounds the law of the selection alone. It
    lives on a finite set: beyond the exact sums of all tables the ratio of two noise laws is
    constant, so those outcomes are merged by the mean they lead to. Use it with a coarse fixed point
    (a small `FIXED_POINT_ONE`): the number of outcomes grows with its square.
    """

    def __init__(self, features: Sequence[str], *, max_rows: int, **arguments: Any) -> None:
        super().__init__(features, center="target", **arguments)
        self.max_rows = max_rows
        one = fixed_point.FIXED_POINT_ONE
        sensitivity = xty.target_sums_sensitivity(self.plan.neighbours, self.plan.max_rows_per_unit)
        self.scale = Fraction(sensitivity) / self.plan.center_epsilon
        top = 2 * one * max_rows
        reach = int(_TAIL_SCALES * self.scale) + 1
        self._support = np.arange(-reach, top + reach + 1)
        means = np.array([[xty.mean_from_sums(int(a), int(b)) for b in self._support] for a in self._support])
        clamped = np.clip(self._support, 0, top)
        labels = np.stack(np.broadcast_arrays(clamped[:, None], clamped[None, :], means), axis=-1).reshape(-1, 3)
        self._groups, inverse = np.unique(labels, axis=0, return_inverse=True)
        self._group_of = inverse.reshape(-1)

    def joint_law(self, table: Table) -> dict[tuple[int, int, int, Outcome], float]:
        """Return the law of (noisy P, noisy Q, mean, selection); P and Q clamped to the exact sums' range."""
        noise = [np.exp(-np.abs(self._support - total) / float(self.scale)) for total in self.target_sums(table)]
        joint = np.outer(noise[0] / noise[0].sum(), noise[1] / noise[1].sum()).reshape(-1)
        weights = np.bincount(self._group_of, weights=joint, minlength=len(self._groups))
        laws: dict[int, dict[Outcome, float]] = {}
        found = {}
        for (high, low, mean), weight in zip(self._groups.tolist(), weights.tolist(), strict=True):
            if mean not in laws:
                laws[mean] = self.selection_law(self.centred_statistic(table, mean))
            for outcome, chance in laws[mean].items():
                found[high, low, mean, outcome] = weight * chance
        return found

    def centred_statistic(self, table: Table, mean: int) -> tuple[int, ...]:
        """Return ``|s_j|`` with the target centred by `mean` and clipped again."""
        return self.statistic(table, mean)

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the law of the selection alone: the joint law summed over the private mean."""
        law: dict[Outcome, float] = {}
        for (*_, outcome), chance in self.joint_law(table).items():
            law[outcome] = law.get(outcome, 0.0) + chance
        return law

    def key(self, table: Table) -> Hashable:
        """Return what determines the joint law."""
        one = fixed_point.FIXED_POINT_ONE
        return self.target_sums(table), tuple(self.centred_statistic(table, mean) for mean in range(-one, one + 1))
