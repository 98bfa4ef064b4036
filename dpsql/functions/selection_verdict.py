"""The verdict of a selection: what follows from public numbers, and what a share of epsilon shows.

*Free.* Where the caller states a public number of rows (or of blocks) below `rows_needed` of
a certainty, no data make any feature sure to be selected: every row is `unclear`. Else it is
`not measured`. The number of rows that were read is never used.

*Paid.* After the selection a share of epsilon releases the scores ``|tau_j|`` of the k features and the number n of
rows (`dpsql.mechanisms.ranking`). If the target is independent of x_j, so that all orders of its values are equally
likely, then ``P(|tau_j| >= x) <= 2 exp(-x**2 / w)`` with

===========================  ======================  ==================================================
target                       w                       proof
===========================  ======================  ==================================================
any                          ``n**2 / (n - 1)``      Hoeffding (1963), U-statistics of order 2
two levels, all else NULL    ``(n + 1)**2 / (2 n)``  Serfling (1974), sampling without replacement
===========================  ======================  ==================================================

Both w grow with n from n = 2 on. A row is `clear` if ``score - z > sqrt(w(n_up) ln(4 p / beta))``, where noise exceeds
z with a chance of at most ``beta / (2 (k + 1))``, upwards as downwards, and n_up is the noisy n plus z. So the chance
that any of all p features that are independent of the target is `clear` is at most beta: beta / 2 for the p scores, and
beta / 2 for the noise. That p and not k stands there pays for the selection. This is a claim about chance in the rows,
not about noise alone. It needs that whether x_j is missing is independent of the target, too.

**Certainty.** What a selection of k of p features can be sure of: a public function of epsilon, k, p and the range of
the scores.

Let b be the scale of the noise. Scores are at least 0 and at most the largest one, which grows with the number of rows.

*Sure in every data set.* A feature that fewer than k others approach by less than a gap g is selected but for a chance
of beta. To miss it, one of the p - k others that are not among the best must overtake it:

==============================  ==========================  ==============================
noise                           chance of one other         gap g, at least 0
==============================  ==========================  ==============================
exponential                     ``exp(-g / b) / 2``         ``b ln((p - k) / (2 beta))``
Gumbel                          ``1 / (1 + exp(g / b))``    ``b ln((p - k) / beta)``
==============================  ==========================  ==============================

`rows_sure` is the least number of rows whose largest score is g: below it no lead is so large.

*Possible at all.* Nothing is better for a feature than the largest score x, with all others at 0. Then the chance H to
miss it, with ``c = exp(-x / b)`` and N = p - 1, is

* exponential noise: the integral over u in [0, 1] of ``P(Bin(N, c u) >= k)``, as E = -ln(u) is the feature's noise.
  With the incomplete beta function I that is ``I_c(k, N - k + 1) - k / (c (N + 1)) I_c(k + 1, N - k + 1)``;
* Gumbel noise, by which features are drawn one after another: the product over i < k of ``(N - i) / (N - i + 1 / c)``.

`rows_needed` is the least number of rows with H <= beta. With fewer, no data make any feature sure to be selected.
Between `rows_needed` and `rows_sure` it depends on the data. It is no statement about features that were selected.

*Rounds* (`dpsql.functions.kendall`). A round is a selection of one feature, with g at beta / k. A feature that is
missed must be missed in every round. In later rounds what is chosen may lower the scores of all others by the largest
score of two features, so their gap is that much more at best; and H is at least the product over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.arguments import Argument
from dpsql.contract.json import Json
from dpsql.contract.parameters import open_unit_interval, positive_integer
from dpsql.contract.plan import MOST_ROWS, Quantity
from dpsql.contract.selection import SelectionPlan
from dpsql.contract.verdicts import UNCLEAR
from dpsql.mechanisms.ranking import NoisyScores, RankScoreNoise

# Chance to miss a feature that is called sure.
_CHANCE_TO_MISS = 0.05
# Numbers of rows are sought up to this one, which no table has.
_MOST_ROWS = 10**15
# Beyond it exp(-lead) is no double any more, and no number of features matters.
_LARGEST_LEAD = 700.0

Missed = Callable[[float], float]
Score = Callable[[int], float]


@dataclass(frozen=True)
class Certainty:
    """From how many rows, or votes, a feature can be sure to be selected; None where that is beyond any table.

    Attributes
    ----------
    gap : float
        The lead that is enough, in the unit of the scores.
    needed, sure : int or None
        Below `needed` no data make any feature sure; from `sure` on there are data that do.
    """

    gap: float
    needed: int | None
    sure: int | None


def one_shot_certainty(
    *, noise: str, scale: float, k: int, count: int, largest: Score, failure: float = _CHANCE_TO_MISS
) -> Certainty:
    """Return what a selection of k of `count` features at once can be sure of.

    Parameters
    ----------
    noise : {'exponential', 'gumbel'}
    scale : float
        Of the noise on a score.
    k, count : int
    largest : callable
        The largest score by the number of rows; it does not fall.
    failure : float
        In (0, 1).
    """
    gap = sure_gap(noise, scale, k, count, failure)
    return Certainty(
        gap=gap,
        needed=_least(lambda rows: missed(noise, largest(rows) / scale, k, count) <= failure),
        sure=_least(lambda rows: largest(rows) >= gap),
    )


def rounds_certainty(
    *, noise: str, scales: tuple[float, float], k: int, count: int, largest: Score, others: Score
) -> Certainty:
    """Return what k rounds of one feature each can be sure of, as `one_shot_certainty` does.

    Parameters
    ----------
    scales : pair of float
        Of the noise in the first round and in later ones.
    others : callable
        The largest score of two features by the number of rows.
    """
    first, later = scales
    left = np.arange(count - 1, count - k, -1)

    def missed_in_all(rows: int) -> float:
        x = largest(rows)
        chance = float(_missed_first(noise, x / first, np.array([count]))[0])
        return chance * float(np.prod(_missed_first(noise, (x + others(rows)) / later, left)))

    gap = sure_gap(noise, first, 1, count, _CHANCE_TO_MISS / k)
    return Certainty(
        gap=gap,
        needed=_least(lambda rows: missed_in_all(rows) <= _CHANCE_TO_MISS),
        sure=_least(lambda rows: largest(rows) >= gap),
    )


def sure_gap(noise: str, scale: float, k: int, count: int, failure: float = _CHANCE_TO_MISS) -> float:
    """Return the gap g; 0 where every feature is selected, or almost."""
    ties = 2 if noise == "exponential" else 1
    rivals = (count - k) / (ties * failure)
    return scale * math.log(rivals) if rivals > 1 else 0.0


def missed(noise: str, lead: float, k: int, count: int) -> float:
    """Return H: the chance to miss a feature that all others trail by the same lead, in scales of the noise.

    Parameters
    ----------
    noise : {'exponential', 'gumbel'}
    lead : float
        >= 0.
    k, count : int
    """
    if k >= count or lead > _LARGEST_LEAD:
        return 0.0
    share, rest = math.exp(-lead), count - 1
    if noise == "gumbel":
        return math.exp(-float(np.log1p(1 / (share * (rest - np.arange(k)))).sum()))
    from scipy.special import betainc

    whole = betainc(k, rest - k + 1, share)
    return float(max(0.0, whole - k / (share * count) * betainc(k + 1, rest - k + 1, share)))


def _missed_first(noise: str, lead: float, counts: NDArray[np.int64]) -> Doubles:
    """Return `missed` of one feature out of each of some numbers of features."""
    if lead > _LARGEST_LEAD:
        return np.zeros(len(counts))
    share, rest = math.exp(-lead), (counts - 1).astype(np.float64)
    if noise == "gumbel":
        return np.asarray(share * rest / (share * rest + 1))
    # The integral over u of 1 - (1 - c u)**N.
    none = -np.expm1(counts * (math.log1p(-share) if share < 1 else -math.inf)) / (share * counts)
    return np.asarray(np.maximum(0.0, 1 - none))


def largest_rank_score(rows: int, *, two_levels: bool) -> float:
    """Return the largest scaled tau of some rows: n / 2, and for a target of two levels that of even classes."""
    if rows < 2:
        return 0.0
    return (rows * rows // 4) / (rows - 1) if two_levels else rows / 2


def _least(enough: Callable[[int], bool]) -> int | None:
    """Return the least number from 1 on for which something holds that goes on to hold; None beyond any table."""
    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST_ROWS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def certainty_quantities(found: Certainty, given: int | None, unit: str = "rows") -> list[Quantity]:
    """Return the lines of `dp_estimate` about a certainty, with what follows for a public number of rows, in words."""
    needed, sure = (math.inf if number is None else float(number) for number in (found.needed, found.sure))
    least = f"{unit} from which some data make a feature sure (95 %) to be selected"
    if given is not None:
        least += f"; {in_words(found, given, unit)}"
    return [
        ("sure_gap", found.gap, "lead over all but k - 1 others with which a feature is selected in 95 % of calls"),
        (f"{unit}_needed", needed, least),
        (f"{unit}_sure", sure, f"{unit} from which a feature can lead by sure_gap, whatever the others are"),
    ]


def in_words(found: Certainty, given: int, unit: str = "rows") -> str:
    """Return what a public number of rows means."""
    if found.needed is None:
        return "no data could make this selection certain"
    if given < found.needed:
        enough = f"about {_rounded(found.needed)} {unit} could"
        return f"with {given:,} {unit} no data could make this selection certain; {enough}"
    if found.sure is None or given < found.sure:
        return f"with {given:,} {unit} it depends on the data whether any feature is certain"
    return f"with {given:,} {unit} a feature that leads by sure_gap is certain"


def _rounded(number: int) -> str:
    """Return a number rounded up to two digits."""
    step = 10 ** max(0, len(str(number)) - 2)
    return f"{-(-number // step) * step:,}"


FAILURE = Fraction(1, 20)


def _verdict_share(given: object) -> Fraction | None:
    """Return the share; None for 0."""
    if not isinstance(given, bool) and given == 0:
        return None
    return open_unit_interval("verdict_share", given, hint="0.1 is usual; 0 releases no scores.")


# Arguments of selectors that say how sure a selection is.
VERDICT = (
    Argument(
        "verdict_share",
        "Share of epsilon, from 0 to below 1, that releases the scores of the selected features, for their verdicts. "
        "Only for rank scores of all rows.",
        0,
        check=_verdict_share,
        exact=True,
    ),
    Argument(
        "n_rows",
        "A public number of rows, up to 1e12: below what a selection needs, its verdict is 'unclear'. It changes no "
        "noise.",
        check=lambda given: positive_integer("n_rows", given, hint="Give a public number of rows.", most=MOST_ROWS),
        kind="Integer",
    ),
)


class ScoredPlan(SelectionPlan):
    """The plan of a selector with the arguments `VERDICT`."""

    verdict_share: Fraction | None
    n_rows: int | None

    @cached_property
    def score_part(self) -> RankScoreNoise | None:
        """The part that draws the scores of the selected features; None if they are not released."""
        if self.verdict_share is None:
            return None
        epsilon = self.epsilon * self.verdict_share
        return RankScoreNoise("scores", epsilon, self.neighbours, self.max_rows_per_unit, self.k)

    @property
    def score_scales(self) -> tuple[Fraction, ...]:
        """The scale of the noise on released scores, if there are any."""
        return () if self.score_part is None else (self.score_part.scale(two_levels=False),)


def score_quantities(part: RankScoreNoise | None, *, two_levels: bool) -> list[Quantity]:
    """Return the line of `dp_estimate` about released scores; none without them."""
    if part is None:
        return []
    deviation = part.deviation(two_levels=two_levels)
    return [("score_std_error", deviation, "standard deviation of the noise on a released score, and on the rows")]


def selection_record(
    names: Sequence[str], compared: int, certainty: Certainty | None = None, given: int | None = None
) -> dict[str, Json]:
    """Return what the ledger keeps of a selection.

    Parameters
    ----------
    names : sequence of str
        By rank.
    compared : int
        Number of features that there were.
    certainty : Certainty, optional
    given : int, optional
        A public number of rows or blocks.
    """
    record: dict[str, Json] = {"names": list(names), "compared": compared}
    if certainty is not None and given is not None and (certainty.needed is None or given < certainty.needed):
        record["verdict"] = UNCLEAR
    return record


def scored_record(
    record: dict[str, Json], part: RankScoreNoise, drawn: NoisyScores, compared: int, *, two_levels: bool
) -> dict[str, Json]:
    """Return a record with the scores, and with what they must exceed to be clear."""
    each = FAILURE / (2 * (part.k + 1))
    reach = part.reach(each, two_levels=two_levels)
    rows = max(2.0, drawn.rows + reach)
    width = (rows + 1) ** 2 / (2 * rows) if two_levels else rows**2 / (rows - 1)
    return {
        **record,
        "scores": list(drawn.scores),
        "std_error": part.deviation(two_levels=two_levels),
        "rows": drawn.rows,
        "reach": reach,
        "level": math.sqrt(width * math.log(4 * compared / FAILURE)),
    }
