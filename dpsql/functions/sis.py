"""dp_sis: sure independence screening under differential privacy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.arguments import BOUNDS, COLUMNS, EPSILON, PROTECTION, K, Signature, share, word
from dpsql.contract.call import Batch, BoundedCall, Collector
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import Side
from dpsql.contract.plan import XTY, Quantity, SelectionPlan, feature_bounds
from dpsql.functions.one_shot import MECHANISMS, one_shot, one_shot_event, one_shot_noise
from dpsql.kernels.xty import column_cross_products, cross_products, vectors_to_matrix
from dpsql.noise.discrete import discrete_laplace
from dpsql.progress import Progress
from dpsql.statistics.fixed_point import FIXED_POINT_ONE, quantise
from dpsql.statistics.xty import mean_from_sums, target_sums_sensitivity, utility_range

CENTERS = ("public", "target")


@dataclass(frozen=True, kw_only=True)
class SisPlan(SelectionPlan):
    """The checked public arguments of one ``dp_sis`` call.

    Attributes
    ----------
    lower, upper : float, tuple of float or dict of float
        Public bounds of the features, by their order or their names.
    mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}
        The selection mechanism.
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    center : {'public', 'target'}
        Centre of the target.
    center_share : Fraction
        Share of epsilon that a private mean of the target costs, in (0, 1).
    """

    lower: Side
    upper: Side
    mechanism: str
    gamma: Fraction
    center: str
    center_share: Fraction

    function: ClassVar[str] = "dp_sis"
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        K,
        EPSILON,
        *BOUNDS,
        word("mechanism", "How the features are drawn; see the README on mechanisms.", MECHANISMS, "one_shot"),
        share("gamma", "Weight of the canonical Lipschitz loss, between 0 and 1.", 0.5, hint="1/2 is usual."),
        word("center", "Centre the target by the middle of its bounds, or by its private mean.", CENTERS, "public"),
        share(
            "center_share",
            "Share of epsilon that a private mean of the target costs, between 0 and 1.",
            0.1,
            hint="0.1 is the usual value.",
        ),
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "epsilon"

    @property
    def statistic(self) -> str:
        """Which statement computes the statistic."""
        return XTY

    @classmethod
    def _own(cls, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        return {
            **super()._own(given, layout),
            **feature_bounds(given),
            **cls._read(given, "mechanism", "gamma", "center", "center_share"),
        }

    @cached_property
    def center_epsilon(self) -> Fraction:
        """The part of epsilon that the private mean of the target costs; 0 when the centre is public."""
        return self.epsilon * self.center_share if self.center == "target" else Fraction(0)

    @cached_property
    def event(self) -> dict[str, Any]:
        """What the ledger records: the mechanisms and their parameters."""
        selection = one_shot_event(self.mechanism, self.epsilon - self.center_epsilon, self.k, self.gamma)
        if self.center == "public":
            return selection
        mean = {"mechanism": "discrete_laplace", "epsilon": str(self.center_epsilon)}
        return {"mechanism": "composed", "events": [mean, selection]}

    @property
    def center_scale(self) -> Fraction:
        """Scale of the noise on the two sums that give a private centre."""
        return Fraction(target_sums_sensitivity(self.neighbours, self.max_rows_per_unit)) / self.center_epsilon

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of the noise that a private centre gets."""
        return (self.center_scale,) if self.center == "target" else ()

    @property
    def passes(self) -> int:
        """How often the rows are read: a private centre is drawn first."""
        return 2 if self.center == "target" else 1

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be; scores are in units of the most that one row can add to one."""
        out = one_shot_noise(
            mechanism=self.mechanism,
            gamma=self.gamma,
            spread=utility_range(self.neighbours, self.max_rows_per_unit) / FIXED_POINT_ONE**2,
            epsilon=self.epsilon - self.center_epsilon,
            k=self.k,
            count=n_features,
        )
        if n_rows is not None:
            out.append(("score_gap_share", out[-1][1] / n_rows, "that gap as a share of the largest score, n_rows"))
        if self.center == "target":
            out.append(
                (
                    "center_noise_scale",
                    float(self.center_scale / FIXED_POINT_ONE),
                    "scale of the noise on the two sums that give the target's mean",
                )
            )
        return out


class SisCall(BoundedCall):
    """A dp_sis call joined to its source's types."""

    def quantised_target(self, rows: pa.StructArray, center: int = 0) -> NDArray[np.float64]:
        """Return the coded target minus `center`, clipped again to ``[-S, S]``."""
        return centre(self.coded_target(rows), center)

    def target_sums(self, rows: pa.StructArray) -> NDArray[np.int64]:
        """Return ``[sum(S + t), sum(S - t)]`` over a batch of rows, exactly."""
        target = self.coded_target(rows)
        return np.array([(FIXED_POINT_ONE + target).sum(), (FIXED_POINT_ONE - target).sum()]).astype(np.int64)

    def partial(self, rows: pa.StructArray, center: int = 0) -> NDArray[np.int64]:
        """Return the cross products of a batch of rows, exactly; shape (d,), in units of ``S**2``."""
        target = self.quantised_target(rows, center)
        positions: Sequence[int] = self.positions[1:]
        if self.plan.layout.kind == "array":
            column = rows.field(positions[0])
            if not pa.types.is_struct(column.type):
                width = len(self.features)
                products = np.zeros(width, dtype=np.int64)
                for part in self.parts(rows):
                    products += cross_products(target[part], vectors_to_matrix(column[part], width), *self.maps)
                return products
            rows, positions = column, range(column.type.num_fields)
        return column_cross_products(target, rows, positions, *self.maps)

    @cached_property
    def absent(self) -> NDArray[np.int64]:
        """What a feature counts as where long rows have no cell of it: its value 0, quantised; shape (d,)."""
        return quantise(np.zeros(len(self.features)), *self.maps).astype(np.int64)

    def cell_products(
        self, features: NDArray[np.int64], values: NDArray[np.float64], target: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return what cells of long rows add to the products of absent ones, in units of ``S**2``, shape (cells,)."""
        middles, scales = self.maps
        quantised = quantise(values, middles[features], scales[features]).astype(np.int64)
        return (quantised - self.absent[features]) * target

    def prepare(self, statistic: NDArray[Any], progress: Progress) -> Callable[[], list[str]]:
        """Return the draw of the selection from ``s_j`` in units of ``S**2``."""
        utility = np.abs(statistic)
        return lambda: draw_selection(self.plan, utility, self.features)


class CollectedSisCall(SisCall):
    """A dp_sis call whose rows come to collectors: as a part of a longer call, which reads them by itself."""

    def start(self) -> Collector:
        """Return empty sums of the target, or of the products where the centre is public."""
        return _TargetSums() if self.plan.center == "target" else _CrossProducts(self, 0)

    def turn(self, collector: Any, progress: Progress) -> Collector:
        """Draw the private centre of the target."""
        return _CrossProducts(self, draw_center(self.plan, *collector.sums))

    def prepare(self, statistic: Any, progress: Progress) -> Callable[[], list[str]]:
        """Return the draw of the selection."""
        return super().prepare(statistic.total(), progress)


class _TargetSums(Collector):
    """The sums of S + t and S - t."""

    def __init__(self) -> None:
        self.sums = [0, 0]
        self._lock = threading.Lock()

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        total, rows = int(target.sum()), len(target) * FIXED_POINT_ONE
        with self._lock:
            self.sums = [self.sums[0] + rows + total, self.sums[1] + rows - total]


class _CrossProducts(Collector):
    """The products of features and centred target."""

    def __init__(self, call: SisCall, center: int) -> None:
        self._call = call
        self._center = center
        self._sums: list[int] = [0] * len(call.features)
        self._lock = threading.Lock()

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows."""
        products = cross_products(
            centre(target, self._center), np.ascontiguousarray(features.T), *self._call.maps
        ).tolist()
        with self._lock:
            self._sums = [total + part for total, part in zip(self._sums, products, strict=True)]

    def total(self) -> NDArray[Any]:
        """Return the sums, in units of ``S**2``."""
        return np.array(self._sums, dtype=object)


def centre(target: NDArray[np.float64], center: int) -> NDArray[np.float64]:
    """Return the coded target minus a centre, clipped again to ``[-S, S]``."""
    return np.clip(target - center, -FIXED_POINT_ONE, FIXED_POINT_ONE) if center else target


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
    chosen = one_shot(
        utility,
        mechanism=plan.mechanism,
        gamma=plan.gamma,
        utility_range=utility_range(plan.neighbours, plan.max_rows_per_unit),
        epsilon=plan.epsilon - plan.center_epsilon,
        k=plan.k,
    )
    return [features[position] for position in chosen]


def draw_center(plan: SisPlan, high: int, low: int) -> int:
    """Draw the private mean of the target in ``[-S, S]`` from the sums of ``S + t`` and ``S - t``.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.center_epsilon``.
    - **Sensitivity**: L1, `dpsql.statistics.xty.target_sums_sensitivity`.
    """
    noise = discrete_laplace(plan.center_scale, 2)
    return mean_from_sums(int(high) + int(noise[0]), int(low) + int(noise[1]))
