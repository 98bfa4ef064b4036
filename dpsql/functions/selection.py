"""Selection of features: arguments and plan fields of all selectors, one-shot selection, and verdicts.

**Verdicts.** They follow from public numbers, or from evidence that a share of epsilon pays for.

*Free.* If the caller declares a public number of rows (or of blocks) below `rows_needed` of a certainty, no data make
any feature sure to be selected: every row is `unclear`. Otherwise it is `not measured`. The verdict never uses the
actual number of rows.

*Paid, for the set.* A share of epsilon, a tenth by default for rank scores, releases by how much the k features
together lead over the best k of shuffled targets: the lead D of `dpsql.statistics.lead`. The set is `clear` if the
noisy D is above a bound that its noise exceeds with a chance of at most ``beta - 1/100``, and every row says so. If the
target is independent of all features together, D is above 0 with a chance of at most 1/100, so the set is `clear` with
a chance of at most beta. It is no claim about a single feature. Nothing is drawn, and the selection has all of epsilon,
if

* a unit has several rows: they cannot be shuffled one by one, and the verdict is `not measured`;
* the caller declares a public number of rows at which no data make the set clear: it is `unclear`;
* the caller declares more than `_MOST_SHUFFLED` rows and no levels: that takes too long, and it is `not measured`.

*Paid, for each feature.* With ``verdict := 'each'`` the share releases the scores ``|tau_j|`` of the k features and the
number n of rows, after the selection (`dpsql.mechanisms.ranking`). If the target is independent of x_j, so that all
orders of its values are equally likely, then ``P(|tau_j| >= x) <= 2 exp(-x**2 / w)`` with

===========================  ======================  ==================================================
target                       w                       proof
===========================  ======================  ==================================================
any                          ``n**2 / (n - 1)``      Hoeffding (1963), U-statistics of order 2
two levels, all else NULL    ``(n + 1)**2 / (2 n)``  Serfling (1974), sampling without replacement
===========================  ======================  ==================================================

Both w grow with n from n = 2 on. A row is `clear` if ``score - z > sqrt(w(n_up) ln(4 p / beta))``; noise exceeds z with
a chance of at most ``beta / (2 (k + 1))`` in each direction, and n_up is the noisy n plus z. So the chance that any of
all p features that are independent of the target is `clear` is at most beta: beta / 2 for the p scores, and beta / 2
for the noise. The bound has p instead of k, which pays for the selection. This is a claim about chance in the rows, not
about noise alone. It also needs missing values of x_j to be independent of the target.

**Certainty.** How sure a selection of k of p features can be: a public function of epsilon, k, p and the range of the
scores.

Let b be the scale of the noise. Scores are at least 0 and at most the largest score, which grows with the number of
rows.

*Sure in every data set.* A feature that fewer than k others approach by less than a gap g is selected except for a
chance of beta. The selection misses it only if one of the p - k others that are not among the best overtakes it:

==============================  ==========================  ==============================
noise                           chance of one other         gap g, at least 0
==============================  ==========================  ==============================
exponential                     ``exp(-g / b) / 2``         ``b ln((p - k) / (2 beta))``
Gumbel                          ``1 / (1 + exp(g / b))``    ``b ln((p - k) / beta)``
==============================  ==========================  ==============================

`rows_sure` is the least number of rows whose largest score is g: below it no lead is so large.

*Possible at all.* The best case of a feature is the largest score x, with all others at 0. Then the chance H to miss
it, with ``c = exp(-x / b)`` and N = p - 1, is

* exponential noise: the integral over u in [0, 1] of ``P(Bin(N, c u) >= k)``, as E = -ln(u) is the feature's noise.
With the incomplete beta function I it is ``I_c(k, N - k + 1) - k / (c (N + 1)) I_c(k + 1, N - k + 1)``;
* Gumbel noise, which draws features one after another: the product over i < k of ``(N - i) / (N - i + 1 / c)``.

`rows_needed` is the least number of rows with H <= beta. With fewer, no data make any feature sure to be selected.
Between `rows_needed` and `rows_sure` it depends on the data. It is no statement about selected features.

*Rounds* (`dpsql.functions.kendall`). A round is a selection of one feature, with g at beta / k. A missed feature must
be missed in every round. In later rounds the chosen features may lower the scores of all others by the largest score of
two features, so their gap grows by at most this score; and H is at least the product over the rounds.

An argument for all selectors is in `selector_arguments`, its field in `SelectorPlan`, and its name in `_shared`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.arguments import COLUMNS, PROTECTION, Argument, K, Signature, optional_share, share, word
from dpsql.contract.covers import CLEAR, UNCLEAR
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import narrow, positive_integer
from dpsql.contract.plan import MOST_ROWS, Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.mechanisms.ranking import LeadNoise, NoisyScores, RankScoreNoise
from dpsql.statistics.lead import CHANCE


def selector_arguments(*own: Argument) -> Signature:
    """Return the arguments of a selector, including its own."""
    return Signature(*COLUMNS, *own, *PROTECTION)


@dataclass(frozen=True, kw_only=True)
class SelectorPlan(Plan):
    """The plan of a function that selects features."""

    k: int | None  # None if a threshold decides

    @classmethod
    def _shared(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the checked fields that every selector has."""
        return cls._read(arguments, "k")

    def check_features(self, count: int) -> None:
        """Raise if k exceeds the number of features."""
        if self.k is not None:
            _refuse_large_k(self.k, count)


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(SelectorPlan):
    """The plan of a function that selects k features."""

    k: int

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        read_k(arguments, layout)
        return cls._shared(arguments)


def read_k(arguments: Mapping[str, object], layout: Layout) -> int:
    """Return the number of features to select; raise if it exceeds a declared number of features."""
    k = narrow(int, K.read(arguments))
    count = stated_features(layout)
    if count:
        _refuse_large_k(k, count)
    return k


def stated_features(layout: Layout) -> int:
    """Return the number of features that the arguments declare, else 0."""
    return len(layout.features) if isinstance(layout.features, tuple) else layout.n_features or len(layout.names or ())


def _refuse_large_k(k: int, count: int) -> None:
    if k > count:
        raise ParameterError("P002", f"k must be at most the number of features, {count}; got {k}. Lower k.")


# Chance to miss a feature that is called sure.
_CHANCE_TO_MISS = 0.05
# Largest number of rows in the search, which no table has.
_MOST_ROWS = 10**15
# Beyond it exp(-lead) underflows to 0, and no number of features matters.
_LARGEST_LEAD = 700.0

Missed = Callable[[float], float]
Score = Callable[[int], float]


@dataclass(frozen=True)
class Certainty:
    """The rows, or votes, from which a feature can be sure to be selected; None beyond any table.

    Attributes
    ----------
    gap : float
        The lead that is enough, in the unit of the scores.
    needed, sure : int or None
        Below `needed` no data make any feature sure; from `sure` on some data do.
    """

    gap: float
    needed: int | None
    sure: int | None


def one_shot_certainty(
    *, noise: str, scale: float, k: int, count: int, largest: Score, failure: float = _CHANCE_TO_MISS
) -> Certainty:
    """Return the certainty of a selection of k of `count` features at once.

    Parameters
    ----------
    noise : {'exponential', 'gumbel'}
    scale : float
        Scale of the noise on a score.
    k, count : int
    largest : callable
        The largest score by the number of rows; nondecreasing.
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
    """Return the certainty of k rounds of one feature each, as `one_shot_certainty` does.

    Parameters
    ----------
    scales : pair of float
        Scale of the noise in the first round and in later rounds.
    others : callable
        The largest score of two features by the number of rows.
    """
    first, later = scales
    counts = np.arange(count - 1, count - k, -1)

    def missed_in_all(rows: int) -> float:
        x = largest(rows)
        chance = float(_missed_first(noise, x / first, np.array([count]))[0])
        return chance * float(np.prod(_missed_first(noise, (x + others(rows)) / later, counts)))

    gap = sure_gap(noise, first, 1, count, _CHANCE_TO_MISS / k)
    return Certainty(
        gap=gap,
        needed=_least(lambda rows: missed_in_all(rows) <= _CHANCE_TO_MISS),
        sure=_least(lambda rows: largest(rows) >= gap),
    )


def sure_gap(noise: str, scale: float, k: int, count: int, failure: float = _CHANCE_TO_MISS) -> float:
    """Return the gap g; 0 if all features are selected, or almost all."""
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

    chance = betainc(k, rest - k + 1, share)
    return float(max(0.0, chance - k / (share * count) * betainc(k + 1, rest - k + 1, share)))


def _missed_first(noise: str, lead: float, counts: NDArray[np.int64]) -> Doubles:
    """Return `missed` of one feature out of each of several numbers of features."""
    if lead > _LARGEST_LEAD:
        return np.zeros(len(counts))
    share, rest = math.exp(-lead), (counts - 1).astype(np.float64)
    if noise == "gumbel":
        return np.asarray(share * rest / (share * rest + 1))
    # The integral over u of 1 - (1 - c u)**N.
    none = -np.expm1(counts * (math.log1p(-share) if share < 1 else -math.inf)) / (share * counts)
    return np.asarray(np.maximum(0.0, 1 - none))


def largest_rank_score(rows: int, *, two_levels: bool) -> float:
    """Return the largest scaled tau of `rows` rows: n / 2; for a target of two levels, the value for even classes."""
    if rows < 2:
        return 0.0
    return (rows * rows // 4) / (rows - 1) if two_levels else rows / 2


def _least(enough: Callable[[int], bool]) -> int | None:
    """Return the least number from 1 on at which a monotone condition holds; None beyond any table."""
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


def certainty_quantities(certainty: Certainty, count: int | None, unit: str = "rows") -> list[Quantity]:
    """Return the lines of `dp_estimate` about a certainty, with the meaning of a public number of rows."""
    needed, sure = (math.inf if number is None else float(number) for number in (certainty.needed, certainty.sure))
    least = f"{unit} from which some data make a feature sure (95 %) to be selected"
    if count is not None:
        least += f"; {in_words(certainty, count, unit)}"
    return [
        ("sure_gap", certainty.gap, "lead over all but k - 1 others with which a feature is selected in 95 % of calls"),
        (f"{unit}_needed", needed, least),
        (f"{unit}_sure", sure, f"{unit} from which a feature can lead by sure_gap, whatever the others are"),
    ]


def in_words(certainty: Certainty, count: int, unit: str = "rows") -> str:
    """Return the meaning of a public number of rows."""
    if certainty.needed is None:
        return "no data could make this selection certain"
    if count < certainty.needed:
        enough = f"about {_rounded(certainty.needed)} {unit} could"
        return f"with {count:,} {unit} no data could make this selection certain; {enough}"
    if certainty.sure is None or count < certainty.sure:
        return f"with {count:,} {unit} it depends on the data whether any feature is certain"
    return f"with {count:,} {unit} a feature that leads by sure_gap is certain"


def _rounded(number: int) -> str:
    """Return a number rounded up to two digits."""
    step = 10 ** max(0, len(str(number)) - 2)
    return f"{-(-number // step) * step:,}"


FAILURE = Fraction(1, 20)
# The share pays for the lead of the set, or for the score of each feature.
VERDICTS = ("set", "each")
_USUAL_SHARE = Fraction(1, 10)
# Largest public number of rows: pairs of more rows are not counted again for every permutation.
_MOST_SHUFFLED = 1_000_000


# Arguments of selectors about the certainty of a selection.
VERDICT = (
    optional_share(
        "verdict_share",
        "Share of epsilon, from 0 to below 1, that pays for the verdict. Only for rank scores of all rows.",
        None,
        hint="0.1 is usual; 0 pays for no verdict.",
        default_text="0.1, for rank scores of all rows",
        earlier=(0,),
    ),
    word(
        "verdict",
        "What verdict_share pays for: by how much the set leads over shuffled targets, or the score of each feature.",
        VERDICTS,
        "set",
    ),
    Argument(
        "n_rows",
        "A public number of rows, up to 1e12: below what a selection needs, its verdict is 'unclear', and where none "
        "could be clear the selection has all of epsilon.",
        check=lambda number: positive_integer("n_rows", number, hint="Give a public number of rows.", most=MOST_ROWS),
        kind="Integer",
    ),
)
_ARGUMENTS = Signature(*VERDICT)


def paid_verdict(arguments: Mapping[str, object], *, has_scores: bool, otherwise: str) -> dict[str, object]:
    """Return the checked arguments `VERDICT` as fields of a plan.

    Parameters
    ----------
    arguments : mapping
    has_scores : bool
        Whether there are rank scores of all rows; without them, no verdict can be paid for.
    otherwise : str
        What a share belongs to, for the message.
    """
    share, kind = _ARGUMENTS["verdict_share"].read(arguments), _ARGUMENTS["verdict"].read(arguments)
    if share is not None and not has_scores:
        raise ParameterError("P045", f"verdict_share belongs to {otherwise}. Leave it out.")
    if has_scores and arguments["verdict_share"] is None:
        share = _USUAL_SHARE
    if share is None and kind == "each":
        raise ParameterError("P045", f"verdict := 'each' belongs to a verdict_share of {otherwise}. Leave it out.")
    is_set = share is not None and kind == "set"
    return {
        "verdict_share": share,
        "verdict": "set" if is_set else None,
        "n_rows": _ARGUMENTS["n_rows"].read(arguments),
    }


class ScoredPlan(SelectionPlan):
    """The plan of a selector with the arguments `VERDICT`."""

    verdict_share: Fraction | None  # None for no paid verdict
    verdict: str | None  # None for the scores of each feature, so that older records do not change
    n_rows: int | None

    @property
    @abstractmethod
    def has_two_levels(self) -> bool:
        """Return whether the arguments give the target two levels, and all other values are missing."""

    @abstractmethod
    def certainty(self, n_features: int) -> Certainty | None:
        """Return from how many rows a feature can be sure to be selected; None if unknown."""

    @cached_property
    def paid_part(self) -> RankScoreNoise | LeadNoise | None:
        """Return the part that the share pays for, if anything is drawn."""
        return self.score_part or self.lead_part

    @property
    def paid_share(self) -> Fraction:
        """Return the share of epsilon for the verdict."""
        return Fraction(0) if self.paid_part is None else narrow(Fraction, self.verdict_share)

    @cached_property
    def score_part(self) -> RankScoreNoise | None:
        """Return the part that draws the scores of the selected features; None if they are not released."""
        if self.verdict_share is None or self.verdict is not None:
            return None
        epsilon = self.epsilon * self.verdict_share
        return RankScoreNoise("scores", epsilon, self.neighbours, self.max_rows_per_unit, self.k)

    @cached_property
    def lead_part(self) -> LeadNoise | None:
        """Return the part that draws the lead of the set; None if it is not drawn."""
        is_long = self.n_rows is not None and self.n_rows > _MOST_SHUFFLED and not self.has_two_levels
        return None if is_long or self.is_too_short else self._lead

    @cached_property
    def _lead(self) -> LeadNoise | None:
        """Return the part that draws the lead, for any number of rows; None without a verdict of the set."""
        if self.verdict_share is None or self.verdict is None or self.max_rows_per_unit > 1:
            return None
        return LeadNoise("lead", self.epsilon * self.verdict_share, self.neighbours, self.max_rows_per_unit)

    @cached_property
    def lead_rows_needed(self) -> float | None:
        """Return the rows from which some data make the set clear; None without its verdict, infinity beyond any table.

        The type may give a target two levels if no argument does. Then the number is too small, but the set is never
        clear below it: two levels need more rows.
        """
        if self._lead is None:
            return None
        reach, two_levels = lead_reach(self._lead, two_levels=self.has_two_levels), self.has_two_levels
        row_count = _least(lambda rows: largest_rank_score(rows, two_levels=two_levels) > reach)
        return math.inf if row_count is None else row_count

    @property
    def is_too_short(self) -> bool:
        """Return whether the public number of rows is below the need of the verdict of the set."""
        return self.n_rows is not None and self.lead_rows_needed is not None and self.n_rows < self.lead_rows_needed

    @property
    def score_scales(self) -> tuple[Fraction, ...]:
        """Return the scale of the noise on released scores, or on the lead, if there are any."""
        return () if self.paid_part is None else (self.paid_part.scale(two_levels=False),)

    def selection_record(self, names: Sequence[str], compared: int) -> dict[str, Json]:
        """Return the ledger's record of a selection: `selection_record`, with the fields of the verdict."""
        certainty = None if self.n_rows is None else self.certainty(compared)
        record = selection_record(names, compared, certainty, self.n_rows)
        return {**record, "verdict": UNCLEAR} if self.is_too_short else record

    def paid_quantities(self, rows: int | None) -> list[Quantity]:
        """Return the lines of `dp_estimate` about the paid verdict, with the meaning of a public number of rows."""
        out = score_quantities(self.score_part, two_levels=self.has_two_levels)
        if self._lead is None or self.lead_rows_needed is None:
            return out
        deviation = self._lead.deviation(two_levels=self.has_two_levels)
        least = "rows from which some data make the set clear; for a smaller n_rows nothing is spent on it"
        if rows is not None and rows < self.lead_rows_needed:
            least += f"; with {rows:,} rows no data could"
        return [
            *out,
            ("lead_std_error", deviation, "standard deviation of the noise on the lead over shuffled targets"),
            ("verdict_rows_needed", float(self.lead_rows_needed), least),
        ]

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments of earlier versions, which had no verdict of the set."""
        yield from super().earlier_arguments()
        if self.verdict is not None:
            record = {name: value for name, value in self.public_arguments.items() if name != "verdict"}
            if self.verdict_share == _USUAL_SHARE:
                yield {name: value for name, value in record.items() if name != "verdict_share"}
            yield record


def lead_reach(part: LeadNoise, *, two_levels: bool) -> float:
    """Return a bound that a noisy lead of 0 exceeds with a chance of `FAILURE` less the chance of a lead above 0."""
    return part.reach(FAILURE - CHANCE, two_levels=two_levels)


def lead_record(record: dict[str, Json], part: LeadNoise, lead: float, *, two_levels: bool) -> dict[str, Json]:
    """Return a record with the lead of the set, and its verdict."""
    reach = lead_reach(part, two_levels=two_levels)
    return {
        **record,
        "lead": lead,
        "lead_std_error": part.deviation(two_levels=two_levels),
        "reach": reach,
        "verdict": CLEAR if lead > reach else UNCLEAR,
    }


def score_quantities(part: RankScoreNoise | None, *, two_levels: bool) -> list[Quantity]:
    """Return the line of `dp_estimate` about released scores; none without them."""
    if part is None:
        return []
    deviation = part.deviation(two_levels=two_levels)
    return [("score_std_error", deviation, "standard deviation of the noise on a released score, and on the rows")]


def selection_record(
    names: Sequence[str], compared: int, certainty: Certainty | None = None, count: int | None = None
) -> dict[str, Json]:
    """Return the ledger's record of a selection.

    Parameters
    ----------
    names : sequence of str
        By rank.
    compared : int
        Number of features in the comparison.
    certainty : Certainty, optional
    count : int, optional
        A public number of rows or blocks.
    """
    record: dict[str, Json] = {"names": list(names), "compared": compared}
    if certainty is not None and count is not None and (certainty.needed is None or count < certainty.needed):
        record["verdict"] = UNCLEAR
    return record


def scored_record(
    record: dict[str, Json], part: RankScoreNoise, numbers: NoisyScores, compared: int, *, two_levels: bool
) -> dict[str, Json]:
    """Return a record with the scores, and with the bound that clear scores exceed."""
    failure = FAILURE / (2 * (part.k + 1))
    reach = part.reach(failure, two_levels=two_levels)
    rows = max(2.0, numbers.rows + reach)
    width = (rows + 1) ** 2 / (2 * rows) if two_levels else rows**2 / (rows - 1)
    return {
        **record,
        "scores": list(numbers.scores),
        "std_error": part.deviation(two_levels=two_levels),
        "rows": numbers.rows,
        "reach": reach,
        "level": math.sqrt(width * math.log(4 * compared / FAILURE)),
    }


MECHANISMS = ("one_shot", "gumbel", "canonical_lipschitz")
ONE_SHOT = (
    word("mechanism", "How the features are drawn; docs/selection.md says which to take when.", MECHANISMS, "one_shot"),
    share("gamma", "Weight of the canonical Lipschitz loss, between 0 and 1.", 0.5, hint="1/2 is usual."),
)
CONFIDENCE = 0.95
# Up to this many features, counting subsets exactly takes no noticeable time.
_FEW = 100


def one_shot_noise(
    *, mechanism: str, gamma: Fraction, spread: float, epsilon: Fraction, k: int, count: int
) -> list[Quantity]:
    """Return the noise of a one-shot selection from `count` candidates whose scores have the range `spread`."""
    if mechanism == "canonical_lipschitz":
        scale = spread / float(epsilon)
        gap = scale / float(gamma) * log_of_other_subsets(count, k, 1 - CONFIDENCE)
    else:
        scale = k * spread / float(epsilon)
        rivals = k * (count - k)
        gap = scale * log_of_ratio(rivals, (1 - CONFIDENCE) * (2 if mechanism == "one_shot" else 1))
    return [
        ("score_sensitivity", spread / 2, "most that one privacy unit can move one score"),
        ("noise_scale", scale, "scale of the noise on a score"),
        ("score_gap", gap, "gap between the k-th and the next score that gives the exact top k in 95 % of calls"),
    ]


class OneShotPlan(SelectionPlan):
    """The plan of a function that draws all k features at once, with the arguments `ONE_SHOT`."""

    mechanism: str
    gamma: Fraction

    @property
    @abstractmethod
    def selection_epsilon(self) -> Fraction:
        """Epsilon spent on the selection."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Range of the scores in the unit of `noise`."""

    @property
    def selection_part(self) -> OneShotSelection:
        """The part that draws the features."""
        return OneShotSelection("selection", self.mechanism, self.selection_epsilon, self.k, self.gamma)

    def selection_noise(self, count: int) -> list[Quantity]:
        """Return the expected noise of the selection from `count` features."""
        epsilon, k = self.selection_epsilon, self.k
        return one_shot_noise(
            mechanism=self.mechanism, gamma=self.gamma, spread=self.spread, epsilon=epsilon, k=k, count=count
        )

    def largest_score(self, rows: int) -> float:
        """Return the largest score of some rows, or votes of blocks, in the unit of `noise`."""
        return float(rows)

    def certainty(self, n_features: int) -> Certainty | None:
        """Return the rows or blocks from which a feature can be sure to be selected; None if unknown."""
        if self.mechanism == "canonical_lipschitz":
            return None
        noise = "exponential" if self.mechanism == "one_shot" else "gumbel"
        scale = self.k * self.spread / float(self.selection_epsilon)
        return one_shot_certainty(noise=noise, scale=scale, k=self.k, count=n_features, largest=self.largest_score)


def log_of_other_subsets(count: int, k: int, share: float) -> float:
    """Return ``log_of_ratio`` of the number of k-subsets less one; that number may have a million digits."""
    if min(k, count - k) <= _FEW:
        return log_of_ratio(math.comb(count, k) - 1, share)
    return math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - math.log(share)


def few_subsets(count: int, k: int, most: int) -> bool:
    """Return whether there are at most `most` k-subsets; their number may have a million digits."""
    subsets, small = 1, min(k, count - k)
    for step in range(small):
        subsets = subsets * (count - step) // (step + 1)
        if subsets > most:
            return False
    return True


def log_of_ratio(number: int, share: float) -> float:
    """Return ``log(number / share)``, at least 0, for an integer of any size."""
    return max(0.0, math.log(number) - math.log(share)) if number > 0 else 0.0
