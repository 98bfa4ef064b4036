"""The parts of measurements that choose from what there is: features, subsets, cells, names; see `parts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import (
    Approximate,
    CanonicalLipschitz,
    Event,
    ExponentialNoise,
    GumbelNoise,
    SparseVectorTechnique,
    SubsetExponential,
)
from dpsql.contract.measurement import Part, sampled
from dpsql.mechanisms.canonical_lipschitz import canonical_lipschitz
from dpsql.mechanisms.key_limits import limits_by_row
from dpsql.mechanisms.partition_selection import PartitionSelection, partition_selection, select_partitions
from dpsql.mechanisms.quantile import halving_levels, quantile_event, quantiles, tied_quantiles
from dpsql.mechanisms.select import select
from dpsql.mechanisms.sparse_vector import SparseVector, SparseVectorRun, sparse_vector
from dpsql.noise.race import Noise


@dataclass(frozen=True)
class OneShotSelection(Part):
    """The k best of a list.

    Attributes
    ----------
    mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}
    epsilon : Fraction
    k : int
        All, where there are fewer.
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    """

    mechanism: str
    epsilon: Fraction
    k: int
    gamma: Fraction

    @property
    def event(self) -> Event:
        """What the ledger records."""
        if self.mechanism == "one_shot":
            return ExponentialNoise(self.epsilon, self.k)
        if self.mechanism == "gumbel":
            return GumbelNoise(self.epsilon, self.k, rounds=self.k)
        return CanonicalLipschitz(self.epsilon, self.k, str(self.gamma))

    @sampled
    def draw(self, utility: Integers, *, utility_range: int) -> list[int]:
        """Select positions.

        Parameters
        ----------
        utility : ndarray of integers, shape (d,)
        utility_range : int
            As for `dpsql.mechanisms.select`, in the unit of the utility.

        Returns
        -------
        positions : list of int
            By rank; ascending for the canonical Lipschitz mechanism, which draws a set.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP under the relation that `utility_range` was derived for.
        """
        if self.mechanism == "canonical_lipschitz":
            run = partial(canonical_lipschitz, gamma=self.gamma)
        else:
            run = partial(select, noise="exponential" if self.mechanism == "one_shot" else "gumbel")
        chosen = run(utility, utility_range=utility_range, epsilon=self.epsilon, k=min(self.k, len(utility)))
        return [int(position) for position in chosen]


@dataclass(frozen=True)
class SelectionRounds(Part):
    """Rounds of report-noisy-max, each at the same share of epsilon.

    Attributes
    ----------
    noise : {'gumbel', 'exponential'}
    epsilon : Fraction
        Of all rounds together.
    rounds : int
    """

    noise: str
    epsilon: Fraction
    rounds: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        kind = {"gumbel": GumbelNoise, "exponential": ExponentialNoise}[self.noise]
        return kind(self.epsilon, self.rounds, rounds=self.rounds)

    def draws(self, share: str) -> int:
        """Return how often it may be sampled: once a round."""
        return 0 if share else self.rounds

    @property
    def round_epsilon(self) -> Fraction:
        """The loss of one round."""
        return self.epsilon / self.rounds

    @sampled
    def draw(self, utility: Integers, *, utility_range: int) -> int:
        """Return the winner of one round; parameters as of `dpsql.mechanisms.select`."""
        noise: Noise = "gumbel" if self.noise == "gumbel" else "exponential"
        [winner] = select(utility, utility_range=utility_range, epsilon=self.round_epsilon, k=1, noise=noise)
        return int(winner)


@dataclass(frozen=True)
class SubsetSelection(Part):
    """One of all k-subsets.

    Attributes
    ----------
    epsilon : Fraction
    k : int
    method : {'exact', 'top_r'}
    """

    epsilon: Fraction
    k: int
    method: str

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return SubsetExponential(self.epsilon, self.k, self.method)

    @sampled
    def draw(self, /, *given: object, **named: object) -> tuple[int, ...]:
        """Select a subset; parameters as of the method in `dpsql.mechanisms.subset_exponential`, less epsilon."""
        from dpsql.mechanisms import subset_exponential as mechanism

        exact, best = mechanism.subset_exponential, mechanism.top_r_exponential
        run: Callable[..., tuple[int, ...]] = exact if self.method == "exact" else best
        return run(*given, epsilon=self.epsilon, **named)


@dataclass(frozen=True)
class QuantileSelection(Part):
    """Quantiles of counts by cell, by recursive halving.

    Attributes
    ----------
    epsilon : Fraction
    at : tuple of Fraction
        Ascending, each in (0, 1).
    neighbours : str
    max_rows_per_unit : int
    """

    epsilon: Fraction
    at: tuple[Fraction, ...]
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """What the ledger records: an exponential mechanism per level."""
        return quantile_event(self.epsilon, halving_levels(len(self.at)), self.neighbours)

    @sampled
    def draw(self, counts: Longs) -> list[int]:
        """Return the cell of each; see `dpsql.mechanisms.quantile.quantiles`."""
        return quantiles(
            counts,
            quantiles=self.at,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    @sampled
    def draw_tied(self, counts: Longs) -> list[int]:
        """Return the cell of each where many rows may share one; see `dpsql.mechanisms.quantile.tied_quantiles`."""
        return tied_quantiles(
            counts,
            at=self.at,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )


@dataclass(frozen=True)
class GroupQuantileSelection(QuantileSelection):
    """Quantiles of disjoint groups of rows, as one release; see `dpsql.mechanisms.quantile.quantiles`.

    `max_rows_per_unit` are the rows of one privacy unit in all groups together.
    """

    @sampled
    def draw_groups(self, counts: Longs) -> list[list[int]]:
        """Return the cells of each group, from counts of shape (groups, cells)."""
        return [
            tied_quantiles(
                group,
                at=self.at,
                epsilon=self.epsilon,
                neighbours=self.neighbours,
                max_rows_per_unit=self.max_rows_per_unit,
                alone=False,
            )
            for group in counts
        ]


@dataclass(frozen=True)
class PrivateNames(Part):
    """The names that enough rows have; see `dpsql.mechanisms.partition_selection`.

    Attributes
    ----------
    epsilon, delta : Fraction
    neighbours : str
    max_keys_per_row, max_rows_per_unit : int
    """

    epsilon: Fraction
    delta: Fraction
    neighbours: str
    max_keys_per_row: int
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return Approximate(self.epsilon, self.delta)

    @cached_property
    def selection(self) -> PartitionSelection:
        """Noise and threshold: whichever law has the lower threshold."""
        limits = limits_by_row(self.max_keys_per_row, self.max_rows_per_unit)
        return partition_selection(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours, limits=limits)

    @sampled
    def draw(self, names: Sequence[str], counts: Longs) -> list[str]:
        """Return the names that are released."""
        return select_partitions(names, counts, self.selection)


@dataclass(frozen=True)
class ScoresAbove(Part):
    """Scores above a threshold by the sparse vector technique; see `dpsql.mechanisms.sparse_vector`."""

    run: SparseVector

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return SparseVectorTechnique(self.run.epsilon, self.run.cutoff)

    @sampled
    def draw(self, scores: Longs, *, threshold: Fraction, finer: int = 1) -> SparseVectorRun:
        """Return which scores are above a threshold in the unit of the run, of which one is `finer` of the scores."""
        run = replace(self.run, sensitivity=self.run.sensitivity * finer)
        return sparse_vector(scores, run, level=run.level(threshold * finer))
