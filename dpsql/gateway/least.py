"""The least epsilon of a new question: what all private calls of one statement spend together.

How long an answer takes follows from rows. So a question that costs almost nothing could be asked again and again, and
its response times would tell what its noise hides. The least epsilon gives every observed time a price. It is of the
whole statement: the parts of a query, and several private calls, count together. Answers that are stored count nothing,
or a stored answer would carry a new question of any epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpsql.contract.plan import Plan
from dpsql.errors import GatewayError
from dpsql.ledger.budget import Budget

USUAL = Fraction(1, 100)
# A Gaussian's rho grows with epsilon at least as fast as this power of it, which is a little less than the square.
_POWER = 1.8


class NewCall(Protocol):
    """A private call that no stored answer answers; see `dpsql.gateway.requests.AskedCall`."""

    plan: Plan
    epsilon_text: str
    in_call: bool


@dataclass(frozen=True)
class LeastEpsilon:
    """The least epsilon that the new private calls of a statement spend together.

    Attributes
    ----------
    amount : Fraction
        0 for none.
    """

    amount: Fraction = USUAL

    def refuse(self, calls: Sequence[NewCall], budget_of: Callable[[str], Budget | None]) -> None:
        """Raise unless the new calls of a statement spend the least epsilon together.

        Parameters
        ----------
        calls : sequence of NewCall
            Each question once. Without any, nothing is spent, and nothing refused.
        budget_of : callable
            Returns the budget of a dataset.

        Raises
        ------
        GatewayError
            G026.
        """
        if not calls or not self.amount:
            return
        share = sum(self._share(call.plan, budget_of) for call in calls)
        if share < 1:
            raise GatewayError("G026", self._refusal(calls, float(share)))

    def _refusal(self, calls: Sequence[NewCall], share: float) -> str:
        least, asked = _text(self.amount), sum(one.plan.epsilon for one in calls)
        spends = f"epsilon {calls[0].epsilon_text} is"
        if len(calls) > 1:
            spends = f"the {len(calls)} new private calls of this statement spend epsilon {_text(asked)}, which is"
        enough = _text(self.amount / len(calls))
        if asked >= self.amount:  # a budget in rho charges less for it than for pure noise
            spends += f" charged at a rho below epsilon²/2 of {least}, and so"
            enough = f"{max(float(one.plan.epsilon) for one in calls) * share ** (-1 / _POWER):.3g}"
        write = f"epsilon := {enough} in {'each' if len(calls) > 1 else 'the'} call"
        if not calls[0].in_call:
            write = f"SET epsilon = {enough}, or send epsilon {enough} beside the statement"
        return (
            f"{spends} below epsilon {least}, the least that this gateway takes for a new statement. Write {write}. "
            "Questions that were answered before stay free."
        )

    def _share(self, plan: Plan, budget_of: Callable[[str], Budget | None]) -> Fraction:
        """Return which part of the least a call spends: of the dataset of which it spends the smallest part."""
        return min(self._of_dataset(plan, budget_of(dataset)) for dataset in plan.charged)

    def _of_dataset(self, plan: Plan, budget: Budget | None) -> Fraction:
        rho = plan.event.cost.rho
        if budget is None or budget.rho is None or rho is None:
            return plan.epsilon / self.amount
        return rho / (self.amount**2 / 2)


def _text(amount: Fraction | int) -> str:
    return f"{float(amount):.12g}"
