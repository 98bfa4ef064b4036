"""The verdict of a selection: what follows from public numbers, and what a share of epsilon shows.

*Free.* Where the caller states a public number of rows (or of blocks) below `rows_needed` of
`dpsql.functions.selection_certainty`, no data make any feature sure to be selected: every row is `unclear`. Else it is
`not measured`. The number of rows that were read is never used.

*Paid.* After the selection a share of epsilon releases the scores ``|tau_j|`` of the k features and the number n of
rows (`dpsql.mechanisms.rank_scores`). If the target is independent of x_j, so that all orders of its values are equally
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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from dpsql.contract.arguments import Argument
from dpsql.contract.json import Json
from dpsql.contract.parameters import open_unit_interval, positive_integer
from dpsql.contract.plan import MOST_ROWS, Quantity
from dpsql.contract.selection import SelectionPlan
from dpsql.contract.verdicts import UNCLEAR
from dpsql.functions.selection_certainty import Certainty
from dpsql.mechanisms.rank_scores import NoisyScores, RankScoreNoise

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
