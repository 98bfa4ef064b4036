"""A hub, a tree and noisy counts: a private choice of the column pairs that a synthetic table preserves.

Every column has cells, and a row is in one cell of each. The release has these steps, each from public numbers and the
numbers of earlier steps:

0. **Ends and crowds.** Bounds of columns without public bounds (`dpsql.mechanisms.prefix_bounds`). For each of c
   columns with cells of several numbers within public bounds, the counts of 16 parts of every octave, with Gaussian
   noise: they decide where its cells are narrow.
1. **Columns.** The counts of all cells of all d columns, with Gaussian noise. For the w columns with cells of several
   numbers also the counts of the grains of their values, with their own Gaussian noise
   (`dpsql.statistics.coded_columns`).
2. **Values.** The counts of listed values in the cells of these columns, with Gaussian noise. Step 1 determines the
   listed values.
3. **Hub.** One column on which all others depend: the column to predict, if the caller names it. Else one round of the
   exponential mechanism chooses a hub, or no hub. The quality of a hub is the sum of the qualities of its d - 1 pairs;
   the choice of no hub has the quality 0. The quality of a pair is ``sum(abs(M - E)) - penalty``: M are the exact
   counts of the pair's cells, E the expected counts without the pair, here for two independent columns, from the noisy
   counts of step 1, and the penalty is the expected error from noise: a pair must show more than noise.
4. **Star.** The counts of all pairs with the hub, with Gaussian noise.
5. **Tree.** Up to d - 2 rounds of the exponential mechanism among the other columns. A round chooses a pair of columns
   that are not yet connected, or a stop with quality 0. E follows from the star: two columns are independent given the
   hub. Without a hub the result is one tree of all columns, in up to d - 1 rounds.
6. **Edges.** The counts of the pairs on the tree, with Gaussian noise and all the remaining rho of 2 to 5.
7. **Report.** For every pair of columns the distance ``sum(abs(M - F))`` of its exact counts from the counts of the
   model fitted to all of the above, with Gaussian noise. Cells are fine here: the cells of step 1 as far as their
   number allows, not the united cells of 4 to 6. For each of v columns with cells of several numbers, or with private
   bounds, one more distance from the model: of the counts of its slots, and of all rows without a slot.

*Sensitivity.* A row adds 1 to one cell of each table. Let a privacy unit have at most m rows.

========  =============================  ==========================================================================
step      add/remove                     replace
========  =============================  ==========================================================================
crowds    L2 squared ``m**2 c``          ``2 m**2 c``: a row has one magnitude of each column, or none
columns   ``m**2 d``                     ``2 m**2 d``: both units move by vectors of norm ``m sqrt(d)`` at most, with
                                         an inner product of at least 0
grains    ``m**2 w``                     ``2 m**2 w``: a row has one grain of each column, or none
values    ``m**2 w``                     ``2 m**2 w``: a row has one listed value of each column, or none
hub       moves by ``(d - 1) m``         ``2 (d - 1) m``: of each of d - 1 pairs the quality moves as below
tree      a quality moves by ``m``       ``2 m``; E and the penalty are released or public, so only M moves
star      ``m**2 (d - 1)``               ``2 m**2 (d - 1)``
edges     ``m**2 E`` for E tables        ``2 m**2 E``
report    ``m**2 (P + v)`` for P pairs   ``(2 m)**2 (P + v)``: a distance is no count, and both moves may add up
========  =============================  ==========================================================================

If qualities move by at most Delta, in either direction, a round at epsilon chooses with chances proportional to
``exp(epsilon q / (2 Delta))``: epsilon-bounded range, hence ``epsilon**2 / 8``-zCDP. Gaussian noise is ``L2**2 / (2
sigma**2)``-zCDP. Steps are adaptive, so their rho add up.

**Private keys.** The values of a text column may be private. Then the mechanism counts each value of more than m rows,
which is its own cell if its noisy count reaches a threshold; all else is `other`. Take two neighbouring tables, and
call a value of one table *lone* if it is counted there and not in the other table. In the other table it has at most m
rows, and the unit in which the tables differ has at most m, so a lone value has at most 2 m rows, at least one of them
the unit's. Let a be the chance that any lone value of a table is released. Both tables' runs without a released lone
value have the law of the mechanism above, for the same set of values. Noise is independent, so a table's output is the
output of such a run but for a chance of a. So for any event ``P <= exp(epsilon) Q' + delta + a`` under add/remove,
where the smaller table has no lone values, and ``P <= exp(epsilon) (Q + a) + delta + a`` under replace. There are at
most m lone values for each column. A threshold of ``2 m + z sigma`` releases one lone value with a chance of at most
``Phi(-z)``.

References
----------
.. [1] N. Friedman, D. Geiger, M. Goldszmidt, Bayesian network classifiers, Machine Learning 1997 (a hub and a tree).
.. [2] R. McKenna, G. Miklau, D. Sheldon, Winning the NIST contest: a scalable and general approach to differentially
   private synthetic data, Journal of Privacy and Confidentiality 2021 (the tree).
.. [3] R. McKenna, B. Mullins, D. Sheldon, G. Miklau, AIM: an adaptive and iterative mechanism for differentially
   private synthetic data, VLDB 2022 (the penalty).
.. [4] M. Cesar, R. Rogers, Bounding, concentrating, and truncating, ALT 2021 (bounded range).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

import numpy as np

from dpsql.arrays import Doubles, Longs
from dpsql.contract.events import Approximate, Event, PrivateTree, zcdp_rho
from dpsql.contract.gaussian_profile import normal_tail
from dpsql.contract.measurement import Part, one_of, take
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.kernels.cells import TypedCells
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_counts
from dpsql.mechanisms.one_shot import select
from dpsql.mechanisms.prefix_bounds import ColumnBounds, prefix_bounds
from dpsql.statistics.counts import squared_l2_sensitivity

# The shares of rho.
BOUNDS, CROWDS, CELLS, GRAINS, VALUES = "bounds", "crowds", "cells", "grains", "values"
TREE, EDGES, REPORT = "tree", "edges", "report"
# Qualities and distances are integers in units of 2**-20 rows.
ONE = 1 << 20
# Average error of a noisy table after the fit to its margins, as a share of its noise in each cell.
_KEPT = 0.5
# Most cells of a private hub; of an edge's columns with the hub; of all edges together.
_HUB_CELLS = 34
_EDGE_CELLS, _ALL_CELLS = 40_000, 1 << 21

Pair = tuple[int, int]


def floor_root(square: Fraction) -> Fraction:
    """Return the square root, rounded down, to some 12 digits."""
    shift = max(0, 80 - square.numerator.bit_length() + square.denominator.bit_length())
    shift += shift % 2
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << shift // 2)


@dataclass(frozen=True)
class TreeNoise(Part):
    """All draws of one tree release.

    Attributes
    ----------
    rho : Fraction
        Of all steps together.
    epsilon, delta : Fraction
        Targets of rho's calibration.
    key_delta : Fraction or None
        Chance to release a value that only one privacy unit has; None without private values.
    shares : tuple of (str, Fraction)
        The rho of each step, by its name; they add up to `rho`.
    """

    rho: Fraction
    epsilon: Fraction
    delta: Fraction
    key_delta: Fraction | None
    shares: tuple[tuple[str, Fraction], ...]

    @classmethod
    def of(
        cls, name: str, epsilon: Fraction, delta: Fraction, weights: Mapping[str, Fraction], *, draws_keys: bool
    ) -> TreeNoise:
        """Return the part with a share of rho for each step by its weight; weights add up to 1."""
        own_delta = delta / 2 if draws_keys else delta
        rho = zcdp_rho(epsilon, own_delta)
        shares = tuple((step, rho * weight) for step, weight in weights.items() if weight)
        return cls(name, rho, epsilon, own_delta, delta - own_delta or None, shares)

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        if self.key_delta is None:
            return PrivateTree(self.rho, self.epsilon, self.delta)
        return Approximate(self.epsilon, self.delta + self.key_delta, method="private_tree")

    def draws(self, share: str) -> int:
        """Return the allowed number of draws of a step: one."""
        return one_of([name for name, _ in self.shares], share)

    def rho_of(self, share: str) -> Fraction:
        """Return the rho of one step; 0 if it is not in the release."""
        return dict(self.shares).get(share, Fraction(0))

    def spend(self, share: str) -> Fraction:
        """Use up the one draw of a step, and return the rho that it may spend."""
        take(self, share)
        return self.rho_of(share)

    def draw_bounds(
        self, counts: Sequence[Longs], cells: Sequence[TypedCells], *, neighbours: str, rows: int
    ) -> list[ColumnBounds]:
        """Return private bounds of some columns; see `prefix_bounds`; the squared mu add up."""
        rho = self.spend(BOUNDS)
        if not counts:
            return []
        shares = [2 * rho / len(counts)] * len(counts)
        return prefix_bounds(counts, cells, squared_mus=shares, neighbours=neighbours, max_rows_per_unit=rows)

    def draw_columns(self, counts: Longs, tables: int, *, neighbours: str, rows: int) -> GaussianRelease:
        """Return the counts of the cells of all columns; see `noisy_tables`."""
        return noisy_tables(counts, tables, self.spend(CELLS), neighbours=neighbours, rows=rows)

    def draw_parts(self, share: str, counts: Sequence[Longs], *, neighbours: str, rows: int) -> GaussianRelease:
        """Return counts of some columns: their crowds, grains, or listed values; see `noisy_tables`."""
        rho = self.spend(share)
        return noisy_tables(np.concatenate(counts), len(counts), rho, neighbours=neighbours, rows=rows)

    def draw_distances(self, distances: Sequence[int], *, neighbours: str, rows: int) -> GaussianRelease:
        """Return the distances of some pairs and columns, in units of ``2**-20`` rows, with Gaussian noise, in rows."""
        squared_mu = 2 * self.spend(REPORT)
        squared = distance_sensitivity(len(distances), neighbours, rows)
        exact = np.array(distances, dtype=object)
        return gaussian_counts(exact, squared_sensitivity=squared, squared_mu=squared_mu, denominator=ONE)


def table_sensitivity(tables: int, neighbours: str, rows: int) -> int:
    """Return the squared L2 sensitivity of the counts of some tables; a row is in one cell of each table."""
    return squared_l2_sensitivity(neighbours, histograms=tables, max_rows_per_unit=rows)


def quality_sensitivity(neighbours: str, rows: int) -> int:
    """Return the largest move of a quality, or a distance, in rows."""
    return rows * relation_of(neighbours).changes


def distance_sensitivity(pairs: int, neighbours: str, rows: int) -> int:
    """Return the squared L2 sensitivity of the distances of some pairs or columns, in rows squared."""
    return pairs * quality_sensitivity(neighbours, rows) ** 2


def noisy_tables(counts: Longs, tables: int, rho: Fraction, *, neighbours: str, rows: int) -> GaussianRelease:
    """Return the counts of some tables, one after the other, with Gaussian noise; see the module's text."""
    squared = table_sensitivity(tables, neighbours, rows)
    return gaussian_counts(counts, squared_sensitivity=squared, squared_mu=2 * rho)


@lru_cache(maxsize=64, typed=True)
def key_reach(epsilon: Fraction, key_delta: Fraction, columns: int, neighbours: str, rows: int) -> float:
    """Return z: a value is released from a noisy count of 2 m + z deviations on, at least."""
    changes = relation_of(neighbours).changes
    # exp(epsilon) is rounded up; beyond 700 no delta remains.
    both = 1 if changes == 1 else 1 + math.ceil(math.exp(min(float(epsilon), 700.0)) * (1 + 1e-9))
    chance = key_delta / (both * columns * rows)
    low, high = 0, 1 << 14
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if normal_tail(Fraction(middle, 256)) <= chance else (middle, high)
    # The law is discrete: its tails differ from continuous ones by less than a step of z.
    return (high + 1) / 256


@dataclass(frozen=True)
class NoisyTree:
    """A hub and a tree.

    Attributes
    ----------
    hub : int or None
        The column in a pair with every other column.
    edges : list of (int, int)
        Pairs of columns, the smaller number first: pairs with the hub, then pairs of the tree in the order of their
        choice.
    tables : list of ndarray of float64
        The noisy counts of each pair, in rows.
    sigmas : list of float
        Standard deviation of the noise in a cell of each table.
    """

    hub: int | None
    edges: list[Pair]
    tables: list[Doubles]
    sigmas: list[float]


@dataclass(frozen=True)
class _Draws:
    """Shared state of the rounds and the tables of one release."""

    table: Callable[[Pair], Longs]
    epsilon: Fraction
    deviation: float
    neighbours: str
    rows: int

    def choose(self, qualities: Sequence[int], moves: int) -> int | None:
        """Run one round over some qualities, each of which moves like so many pairs together; None means stop."""
        utility = np.array([*qualities, 0], dtype=object)
        spread = 2 * moves * quality_sensitivity(self.neighbours, self.rows) * ONE
        [chosen] = select(utility, utility_range=spread, epsilon=self.epsilon, k=1, noise="gumbel")
        return None if chosen == len(qualities) else int(chosen)

    def quality(self, pair: Pair, expected: Doubles) -> int:
        """Return the quality of a pair."""
        return _quality(self.table(pair), expected, self.deviation)

    def measured(self, edges: Sequence[Pair], rho: Fraction) -> tuple[list[Doubles], list[float]]:
        """Return the noisy counts of some pairs, and the standard deviation of the noise in each."""
        if not edges:
            return [], []
        exact = [self.table(pair) for pair in edges]
        flat = np.concatenate([table.ravel() for table in exact])
        noisy = noisy_tables(flat, len(edges), rho, neighbours=self.neighbours, rows=self.rows)
        parts = np.split(noisy.values, np.cumsum([table.size for table in exact])[:-1])
        tables = [part.reshape(of.shape) for part, of in zip(parts, exact, strict=True)]
        return tables, [noisy.sigma] * len(edges)


def most_tables(width: int) -> int:
    """Return the largest number of measured pairs of so many columns: with a hub, and a tree of the others."""
    return max(1, 2 * width - 3)


def most_rounds(width: int, *, has_hub: bool) -> int:
    """Return the largest number of rounds: with a named hub, the rounds of the tree of the other columns."""
    if width < 2:
        return 0
    return width - 2 if has_hub else width


def draw_tree(
    part: TreeNoise,
    table: Callable[[Pair], Longs],
    margins: Sequence[Doubles],
    total: float,
    implied: Callable[[NoisyTree], Mapping[Pair, Doubles]],
    *,
    hub: int | None,
    neighbours: str,
    rows: int,
    spared: Fraction = Fraction(0),
) -> NoisyTree:
    """Draw a hub, a tree, and the tables of their pairs.

    Parameters
    ----------
    part : TreeNoise
    table : callable
        Returns the exact counts of a pair, int64, shape (cells of i, cells of j).
    margins : sequence of ndarray of float64
        Released counts of the cells of each column, in rows; >= 0.
    total : float
        Released number of rows, > 0.
    implied : callable
        Returns the star's counts for all pairs, in rows; from the star, the margins and public numbers alone.
    hub : int or None
        A public choice of the hub; None to draw it.
    neighbours : {'add_remove', 'replace'}
    rows : int
        m: most rows of a privacy unit.
    spared : Fraction
        Rho of earlier steps without a draw, for the tables.

    Returns
    -------
    tree : NoisyTree

    Notes
    -----
    - **Guarantee**: zCDP at the rho of the two steps together, for any number of rounds.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `rows` rows.
    - **Sensitivity**: of a quality, and for a hub of d - 1 pairs; of the tables, L2.
    - **Randomness**: exact race and exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: margins and total are released or public.
    - **Does not protect**: running time, which depends on the number of chosen pairs.
    """
    width, sizes = len(margins), [len(margin) for margin in margins]
    rho, edge_rho = part.spend(TREE), part.spend(EDGES) + spared
    rounds, most = most_rounds(width, has_hub=hub is not None), most_tables(width)
    if not rounds:
        edge_rho += rho
    deviation = math.sqrt(table_sensitivity(most, neighbours, rows) / (2 * edge_rho))
    draws = _Draws(table, floor_root(8 * rho / max(1, rounds)), deviation, neighbours, rows)
    spent, remainder = 0, edge_rho
    pairs = list(combinations(range(width), 2))
    expected: Mapping[Pair, Doubles] = {(i, j): np.outer(margins[i], margins[j]) / total for i, j in pairs}
    if hub is None and rounds:
        hub, spent = _drawn_hub(draws, sizes, expected), 1
    star = [pair for pair in pairs if hub in pair]
    share = edge_rho * Fraction(len(star), most)
    tables, sigmas = draws.measured(star, share)
    remainder -= share
    if star:
        expected = implied(NoisyTree(hub, star, tables, sigmas))
    joined = 1 if hub is None else sizes[hub]
    limit = min(_EDGE_CELLS, _ALL_CELLS // width)
    others = {
        (i, j): draws.quality((i, j), expected[i, j])
        for i, j in pairs
        if (i, j) not in star and joined * sizes[i] * sizes[j] <= limit
    }
    edges, more = _drawn_edges(draws, width, others)
    remainder += rho * Fraction(rounds - spent - more, max(1, rounds)) if rounds else 0
    edge_tables, further = draws.measured(edges, remainder)
    return NoisyTree(hub, star + edges, tables + edge_tables, sigmas + further)


def _drawn_hub(draws: _Draws, sizes: Sequence[int], expected: Mapping[Pair, Doubles]) -> int | None:
    """Return a hub of few cells, or None for no hub, from one round."""
    pair_qualities = {pair: draws.quality(pair, of) for pair, of in expected.items()}
    able = [column for column, size in enumerate(sizes) if size <= _HUB_CELLS]
    qualities = [sum(quality for pair, quality in pair_qualities.items() if column in pair) for column in able]
    chosen = draws.choose(qualities, len(sizes) - 1)
    return None if chosen is None else able[chosen]


def _drawn_edges(draws: _Draws, width: int, qualities: Mapping[Pair, int]) -> tuple[list[Pair], int]:
    """Return the pairs of a tree, or of several trees, and the number of rounds."""
    component, edges, spent = list(range(width)), list[Pair](), 0
    while joining := [(i, j) for i, j in qualities if component[i] != component[j]]:
        chosen = draws.choose([qualities[pair] for pair in joining], 1)
        spent += 1
        if chosen is None:
            break
        i, j = joining[chosen]
        edges.append((i, j))
        component = [component[i] if label == component[j] else label for label in component]
    return edges, spent


def _quality(exact: Longs, expected: Doubles, deviation: float) -> int:
    """Return the quality of a pair in units of ``2**-20`` rows: everything but `exact` is public."""
    penalty = _KEPT * math.sqrt(2.0 / math.pi) * deviation * exact.size
    return distance(exact, np.rint(expected * ONE).astype(np.int64)) - math.floor(penalty * ONE)


def distance(exact: Longs, expected: Longs) -> int:
    """Return the sum of the absolute differences of exact counts from public numbers in units of ``2**-20`` rows."""
    return int(np.abs(exact * ONE - expected).sum())
