"""One selection of the k best of a list, by one of three mechanisms.

The canonical Lipschitz mechanism chooses among all k-subsets, in time that depends on d and hardly on their number. It
returns the k-subset y that maximises ``-c LOSS(y) + E_y``, with one Exp(1) variable per subset. There may be
``10**430`` subsets; they fall into ``1 + k (d - k)`` classes of equal loss, and the mechanism does not even visit these
(``10**8`` for d = 10**6, k = 100) one by one. Three exact steps replace the race.

1. *A clock.* Report-noisy-max with exponential noise is permute-and-flip [2]_: visit the subsets in random
   order, accept y with probability ``p_y = exp(c (LOSS_min - LOSS(y)))``. Let every subset be visited at the
   times of its own Poisson process of rate 1, each visit marked with probability p_y; only the first visit
   counts. Marked visits of y come at rate p_y and others at rate ``1 - p_y``, independently. So run through
   the marked visits only, which come at total rate ``sum_y p_y``, subset y with probability proportional to
   p_y: the first marked visit of y, at time T, is its first visit with probability
   ``exp(-(1 - p_y) T)``; if it is, return y, and if not, y is out for good. The best subset has p = 1.
2. *Envelopes.* Blocks of classes have a common upper bound on ``p_y``; candidates come from
   blocks with integer weights, rounded up, and are thinned to the true rate p_y. Thinning a Poisson
   process is exact for any upper bound, so loose double-precision bounds cost time, never exactness.
3. *Lazy decisions.* Each thinning compares a standard exponential variable with a number in closed
   form (class sizes as exact integers, scores as exact rationals) in arithmetic of growing precision.

The mechanism draws no noise per class and cuts off no tail. It expects some three candidates per call.

`select` is one-shot selection, the primitive behind every mechanism that chooses from a list.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Integers
from dpsql.contract.events import CanonicalLipschitz, Event, ExponentialNoise, GumbelNoise
from dpsql.contract.measurement import Part, sampled
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.ranking import Ranking, log_binomial, log_factorial
from dpsql.noise.discrete import Bounds, LazyExponential, exp_bounds, fraction_bounds, log_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader
from dpsql.noise.race import WEIGHT_BITS, Noise, integer_scores, scaled, top_k, weights_above


def select(
    utility: ArrayLike,
    *,
    utility_range: int,
    epsilon: Fraction,
    k: int,
    noise: Noise = "exponential",
    source: BitSource = SYSTEM,
) -> NDArray[np.intp]:
    """Select k of d candidates with large utility, in order, in one shot.

    Every candidate scores ``epsilon / (k * utility_range) * utility_j + Z_j``; the k largest win.

    Parameters
    ----------
    utility : array_like of int, shape (d,)
        Exact scores: int64, or Python ints of any size. d is public.
    utility_range : int
        >= 1, in the unit of the scores: bound, over neighbouring tables D and D', on
        ``max_j(u_j(D') - u_j(D)) - min_j(u_j(D') - u_j(D))``. For scores that each move by at most Delta
        in either direction this is ``2 Delta``; for scores that all move in the same direction, Delta.
    epsilon : Fraction
        Privacy loss of the whole release, > 0.
    k : int
        In [1, d], public.
    noise : {'exponential', 'gumbel'}
        Law of ``Z_j``. 'exponential': for k = 1 the permute-and-flip mechanism, never worse in expected
        utility than the exponential mechanism. 'gumbel': k rounds of the exponential mechanism without
        replacement (peeling); costs less under zCDP.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    winners : ndarray of intp, shape (k,)
        Distinct positions, largest noisy score first. The order is part of the release and is private.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (epsilon, k, noise, utility, range).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for the ordered output. With Gumbel noise also
      ``epsilon**2 / (8 k)``-zCDP: k rounds that are each ``epsilon / k``-bounded-range. With exponential
      noise ``epsilon**2 / 2``-zCDP, which holds for any pure guarantee.
    - **Neighbouring relation**: the relation behind `utility_range`.
    - **Sensitivity**: range (not a norm), see `utility_range`.
    - **Randomness**: exact race on real numbers, operating-system entropy, no seed.
    - **Assumes**: exact integer scores; floating-point scores would break `utility_range`.
    - **Does not protect**: running time (see `dpsql.noise.race.top_k`); d and k.

    Proof. The winners do not change when all scores shift, so let all scores rise from D to D' by ``r_j`` in [0,
    range], in units where the coefficient is ``c = epsilon / (k range)``. Fix an ordered output ``(y_1, ..., y_k)``. It
    occurs when ``Z_{y_1} + c u_{y_1} > ... > Z_{y_k} + c u_{y_k}`` and every other score is below the last. On D'
    substitute ``z_{y_i} -> z_{y_i} + c (R - r_{y_i})`` with R the range: then every winner's score is at least as far
    above every loser's as on D, and the order of the winners is as on D. The density of each Exp(1) variable falls by a
    factor of at most ``exp(c (R - r))`` under this shift, so the probability falls by at most ``exp(c k R) =
    exp(epsilon)``. In the other direction (from D' back to D) substitute ``z_{y_i} + c r_{y_i}``. With Gumbel noise the
    k rounds are exponential mechanisms, each ``c range``-DP [3]_.

    References
    ----------
    .. [1] R. McKenna, D. Sheldon, Permute-and-Flip: A new mechanism for differentially private selection,
       NeurIPS 2020.
    .. [2] Z. Ding, D. Kifer, et al., The permute-and-flip mechanism is identical to report-noisy-max with
       exponential noise, 2021.
    .. [3] D. Durfee, R. Rogers, Practical differentially private top-k selection with pay-what-you-get
       composition, NeurIPS 2019.
    """
    check_selection(utility_range, epsilon)
    if not k >= 1:
        raise ParameterError("P018", f"k must be >= 1; got {k}. Give the number of candidates to select.")
    return top_k(utility, epsilon / (k * utility_range), k, noise=noise, source=source)


def check_selection(utility_range: int, epsilon: Fraction) -> None:
    """Refuse a range or a privacy loss without a possible guarantee (P018)."""
    if not isinstance(epsilon, Fraction) or not epsilon > 0:
        raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {epsilon}. Give the privacy loss to spend.")
    if not isinstance(utility_range, int) or not utility_range >= 1:
        raise ParameterError("P018", f"utility_range must be an integer >= 1; got {utility_range}.")


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
        """Event for the ledger."""
        kind = {"gumbel": GumbelNoise, "exponential": ExponentialNoise}[self.noise]
        return kind(self.epsilon, self.rounds, rounds=self.rounds)

    def draws(self, share: str) -> int:
        """Return the number of draws: one per round."""
        return 0 if share else self.rounds

    @property
    def round_epsilon(self) -> Fraction:
        """The loss of one round."""
        return self.epsilon / self.rounds

    @sampled
    def draw(self, utility: Integers, *, utility_range: int) -> int:
        """Return the winner of one round; parameters as in `select`."""
        noise: Noise = "gumbel" if self.noise == "gumbel" else "exponential"
        [winner] = select(utility, utility_range=utility_range, epsilon=self.round_epsilon, k=1, noise=noise)
        return int(winner)


# Added to bounds on logarithms: many times their rounding error, which grows like 2**-50 of d log d.
_MARGIN = 2.0**-20
_MARGIN_PER_DIGIT = 2.0**-46
_RELATIVE_MARGIN = 2.0**-40
_CELLS_AT_ONCE = 1 << 22
# Share by which a row's total exceeds the weights of its blocks, plus twice the margin of the logarithms.
_ROOM = 2.0**-30


def canonical_lipschitz(
    utility: ArrayLike, *, utility_range: int, epsilon: Fraction, k: int, gamma: Fraction, source: BitSource = SYSTEM
) -> NDArray[np.intp]:
    """Select a k-subset whose members score above the rest.

    With scores sorted in descending order, M the largest score outside the subset and m the smallest inside, ``LOSS =
    (1 - gamma) max(M, m) - gamma m``. The result maximises ``-epsilon / utility_range * LOSS + Exp(1)``.

    Parameters
    ----------
    utility : array_like of int, shape (d,)
        Exact scores: int64, or Python ints of any size. d is public.
    utility_range : int
        >= 1, in the unit of the scores: bound, over neighbouring tables D and D', on
        ``max_j(u_j(D') - u_j(D)) - min_j(u_j(D') - u_j(D))``; ``2 Delta`` for scores that each move by at
        most Delta in either direction.
    epsilon : Fraction
        Privacy loss, > 0.
    k : int
        In [1, d], public. Meant for k up to some hundreds; for k = d there is one subset and nothing is drawn.
    gamma : Fraction
        In (0, 1). Small values favour subsets that hold the best features, large ones subsets without bad ones.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    subset : ndarray of intp, shape (k,)
        Positions in ascending order; the order carries no information.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P002 (k), P018 (epsilon, gamma, utility, range).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for the subset.
    - **Neighbouring relation**: the relation behind `utility_range`.
    - **Sensitivity**: range (not a norm). The loss moves with a common shift of all scores, so let the scores
      rise by amounts in [0, range]; then m and max(M, m) rise by amounts in [0, range] and the loss moves
      within an interval of that length. Report-noisy-max with exponential noise and coefficient
      ``epsilon / range`` is epsilon-DP (`select`).
    - **Randomness**: exact, operating-system entropy, no seed.
    - **Assumes**: exact integer scores.
    - **Does not protect**: running time, which depends on the scores (their spread, the number of rejected candidates).

    The classes belong to the corrected mechanism: with j_1, j_2, ... in descending order of the scores, class (h, t)
    holds ``{j_1..j_h}``, any k-h-1 of ``{j_(h+2)..j_(t-1)}`` and ``j_t``: ``C(t-h-2, k-h-1)`` subsets. As printed in
    [1]_ (``C(t-h-1, k-h-1)``) classes overlap and the mechanism is not epsilon-DP.

    References
    ----------
    .. [1] DP-SIS, Algorithm 2 and appendix A, with the correction above.
    .. [2] Z. Ding, D. Kifer, et al., The permute-and-flip mechanism is identical to report-noisy-max with
       exponential noise, 2021.
    """
    check_selection(utility_range, epsilon)
    scores = integer_scores(utility)
    if not 1 <= k <= len(scores):
        raise ParameterError("P002", f"k must be in [1, {len(scores)}], the number of candidates; got {k}. Lower k.")
    if not isinstance(gamma, Fraction) or not 0 < gamma < 1:
        raise ParameterError("P018", f"gamma must be a Fraction strictly between 0 and 1; got {gamma}.")
    if k == len(scores):
        return np.arange(k)
    race = SubsetRace(Ranking(scores, k), epsilon / utility_range, gamma)
    return race.draw(WordReader(source))


@dataclass(frozen=True)
class _Candidate:
    """A class, its origin, and its members' exponent ``-log p >= 0``."""

    included: int
    last: int
    exponent: Fraction
    envelope: tuple[int, int]


class SubsetRace:
    """The race of all k-subsets; each call of `draw` returns an independent outcome.

    Parameters
    ----------
    ranking : Ranking
        The scores, k of them sorted.
    coefficient : Fraction
        Of the loss, > 0.
    gamma : Fraction
        In (0, 1).
    """

    def __init__(self, ranking: Ranking, coefficient: Fraction, gamma: Fraction) -> None:
        self._ranking = ranking
        # -log p = below * (x_k - x_t) + above * (x_(h+1) - x_k) for a subset of class (h, t).
        self._below = coefficient * gamma
        self._above = coefficient * (1 - gamma)
        k = ranking.k
        reach = log_binomial(ranking.size - 2, k - 1) + 64.0
        self._firsts, self._lasts, least = ranking.blocks(self._below, reach)
        self._block_bound = -least * (1.0 - _RELATIVE_MARGIN) - log_factorial(self._lasts - 1)
        above = scaled(ranking.head_gaps, self._above)
        self._row_bound = -above * (1.0 - _RELATIVE_MARGIN) - log_factorial(k - 1 - np.arange(k))
        self._log_sizes = np.log(self._lasts - self._firsts + 1.0)
        self._margin = _MARGIN + _MARGIN_PER_DIGIT * ranking.size * math.log(ranking.size)
        self._rows_at_once = max(1, _CELLS_AT_ONCE // len(self._lasts))

        largest = max((float(bounds.max()) for _, bounds in self._bounds()), default=0.0)
        self._scale = max(0.0, largest)
        # The class of the best subset alone, then a row for every h.
        self._best_weight = int(weights_above(np.array([-self._scale]))[0])
        totals = [self._best_weight]
        for _, bounds in self._bounds():
            totals += map(self._with_room, self._weights(bounds).sum(axis=1).tolist())
        self._cumulative = list(accumulate(totals))

    def _bounds(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the first h, and rows (h) of the log of (members of a block times the bound on their p)."""
        for first in range(0, self._ranking.k, self._rows_at_once):
            yield first, self._row_bounds(first, min(self._ranking.k, first + self._rows_at_once))

    def _row_bounds(self, first: int, end: int) -> NDArray[np.float64]:
        h = np.arange(first, end)[:, None]
        # C(t-h-2, k-h-1) is largest at the block's last t = k + last, p at its first.
        sizes = log_factorial(self._ranking.k + self._lasts - h - 2)
        bounds: NDArray[np.float64] = sizes + (self._block_bound + self._log_sizes) + self._row_bound[first:end, None]
        return bounds + self._margin

    def _weights(self, bounds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return integers that are certainly at least ``exp(bounds - scale)`` in units of ``2**-40``."""
        return weights_above(bounds - self._scale)

    def _with_room(self, total: int) -> int:
        """Return at least the total weight of a row, for any rounding of the doubles behind it."""
        return total + math.ceil(total * (_ROOM + 2.0 * self._margin)) + len(self._lasts)

    def draw(self, reader: WordReader) -> NDArray[np.intp]:
        """Return one outcome: k positions, ascending."""
        clock: list[LazyExponential] = []
        out: set[tuple[int, ...]] = set()
        while True:
            clock.append(LazyExponential(reader))
            candidate = self._propose(reader)
            if candidate is None or not self._thinned(candidate, reader):
                continue
            body = self._ranking.subset(candidate.included, candidate.last, reader)
            subset = tuple(sorted(body))
            if subset in out:
                continue
            if self._is_first_visit(candidate.exponent, clock, reader):
                return np.array(subset, dtype=np.intp)
            out.add(subset)

    def _propose(self, reader: WordReader) -> _Candidate | None:
        """Return a candidate, or None if the pick falls into the room of a row's total.

        The code computes the weights of a row's blocks again. They may differ from the doubles behind the total in the
        last bit: thinning is exact for any weights in use.
        """
        pick = reader.below(self._cumulative[-1])
        row = bisect_right(self._cumulative, pick)
        k = self._ranking.k
        if row == 0:
            return _Candidate(k - 1, 0, Fraction(0), (self._best_weight, 1))
        h = row - 1
        weights = self._weights(self._row_bounds(h, h + 1))[0]
        upto = np.cumsum(weights)
        block = int(np.searchsorted(upto, pick - self._cumulative[row - 1], side="right"))
        if int(upto[-1]) > self._cumulative[row] - self._cumulative[row - 1]:
            raise InternalError("I018", "a bound of the canonical Lipschitz mechanism does not hold. Report this.")
        if block == len(weights):
            return None
        first, last = int(self._firsts[block]), int(self._lasts[block])
        position = first + reader.below(last - first + 1)
        exponent = self._below * self._ranking.gap(position) + self._above * int(self._ranking.head_gaps[h])
        return _Candidate(h, position, exponent, (int(weights[block]), last - first + 1))

    def _thinned(self, candidate: _Candidate, reader: WordReader) -> bool:
        """Accept with probability (members of the class times p) / (envelope of the class)."""
        h, k = candidate.included, self._ranking.k
        members = math.comb(k + candidate.last - h - 2, k - h - 1) if candidate.last else 1
        weight, classes = candidate.envelope
        rest = candidate.exponent + Fraction(self._scale)

        def excess(digits: int) -> Bounds:
            above = log_bounds(weight, digits)
            below = log_bounds(members * classes << WEIGHT_BITS, digits)
            low, high = fraction_bounds(rest, digits)
            if above[1] - below[0] + high < 0:
                raise InternalError("I018", "a bound of the canonical Lipschitz mechanism does not hold. Report this.")
            return above[0] - below[1] + low, above[1] - below[0] + high

        return LazyExponential(reader).exceeds(excess)

    def _is_first_visit(self, exponent: Fraction, clock: list[LazyExponential], reader: WordReader) -> bool:
        """Decide with probability ``exp(-(1 - p) T)``, T the sum of `clock` over the total rate of candidates."""
        if exponent == 0:
            return True
        total = self._cumulative[-1]
        first = LazyExponential(reader)
        while True:
            digits = first.digits
            spent = [variable.bounds(digits) for variable in clock]
            p_low, p_high = exp_bounds(-exponent, digits)
            rate_low, rate_high = exp_bounds(-Fraction(self._scale), digits)
            unit = 10 ** (2 * digits) * total
            low, high = first.bounds(digits)
            at_least = sum(item[0] for item in spent) * (10**digits - p_high) * rate_low << WEIGHT_BITS
            if high is not None and high * unit <= at_least:
                return False
            at_most = 0
            for _, spent_high in spent:
                at_most = -1 if spent_high is None or at_most < 0 else at_most + spent_high
            if at_most >= 0 and low * unit >= at_most * (10**digits - p_low) * rate_high << WEIGHT_BITS:
                return True
            for variable in (first, *clock):
                variable.extend()


@dataclass(frozen=True)
class OneShotSelection(Part):
    """The k best of a list.

    Attributes
    ----------
    mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}
    epsilon : Fraction
    k : int
        All, if there are fewer.
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    """

    mechanism: str
    epsilon: Fraction
    k: int
    gamma: Fraction

    @property
    def event(self) -> Event:
        """Event for the ledger."""
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
            As for `select`, in the unit of the utility.

        Returns
        -------
        positions : list of int
            By rank; ascending for the canonical Lipschitz mechanism, which draws a set.

        Notes
        -----
        - **Guarantee**: pure `epsilon`-DP under the relation behind `utility_range`.
        """
        if self.mechanism == "canonical_lipschitz":
            run = partial(canonical_lipschitz, gamma=self.gamma)
        else:
            run = partial(select, noise="exponential" if self.mechanism == "one_shot" else "gumbel")
        chosen = run(utility, utility_range=utility_range, epsilon=self.epsilon, k=min(self.k, len(utility)))
        return [int(position) for position in chosen]
