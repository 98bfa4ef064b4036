"""Keep the accounts of periods: the spending of each block, and one person's possible loss over all blocks.

A call that charges b blocks with ``(epsilon, delta)`` each changes at most b units (person, period) when one person's
rows go. **Group privacy**: by induction over the b tables in between, ``P <= exp(epsilon) P' + delta`` becomes::

    P <= exp(b epsilon) P' + delta (1 + exp(epsilon) + … + exp((b - 1) epsilon))
       = exp(b epsilon) P' + delta (exp(b epsilon) - 1) / (exp(epsilon) - 1)

so the call costs the person this loss (`of_person`), and ``b**2 rho`` under zCDP. The next call has this loss whatever
earlier calls showed, so losses add up: after P periods with epsilon each, at most P epsilon. The dataset's own rows,
whose block is NULL, store this sum. `epsilon_total` and `delta_total` refuse a call that would exceed them. When the
owner withdraws the periods, the sum is the dataset's spending.

**Restated periods** (`restated`). No account may forget a loss:

* The owner adds periods, or changes their column: earlier spending moved all rows of a person, so every block begins
  with it. This includes later periods, because rows may be dated ahead. If the owner says that no rows are dated ahead,
  only the blocks that have begun start with it.
* The owner adds tables to a dataset of several tables: nothing changes, because earlier charges covered their rows,
  too. If undated rows get a date or dated rows lose it, or a path's end gets another parent, the rule for a changed
  column applies.
* The owner chooses other periods of the same columns: the block of undated rows continues. The rows of a new block are
  in the old blocks that share a day with it. So its loss is at most the loss of removing these old blocks one by one,
  with losses ``(E_1, D_1), …, (E_k, D_k)`` of all calls so far: ``E_1 + … + E_k`` and
  ``D_1 + exp(E_1) D_2 + exp(E_1 + E_2) D_3 + …``. A part of one old block inherits its account unchanged. The rows of
  blocks without their own account go with the first other block that began like them: that block also has each of
  their losses.

**Merged datasets** (`merged`). A dataset replaces others, and removing its unit (u, t) removes all rows that u has in
t, in all their tables. Each account is converted to the new periods as above: rows that keep their dates use the
block's own account; rows that change dates, or had none, use a person's loss on the dataset. The accounts of one block
are then added up, epsilons and deltas alike. A call that read one dataset has for (u, t) the loss that it was charged
there: it read no rows of the other datasets. A call that read several datasets charged each of them for all rows of u
in the result of its joins, or for the rows of (u, t), and exactly these rows change when rows go from all tables at
once. So units do not go one after another, as on the path above, and no delta grows.

The sum of the deltas alone is not enough for merged blocks. Counter-example: a coin falls on heads with chance p,
``exp(e) p + d`` or ``exp(2 e) p + (1 + exp(e)) d`` if none, one or both of two units are present. It is (e, d)-DP for
each unit, and not (2 e, 2 d)-DP for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpsql.contract.events import UNITS_PER_ONE, Cost, units_text, units_up
from dpsql.contract.periods import (
    UNDATED,
    Dated,
    During,
    block_of,
    first_day,
    last_day,
    number_of,
    period_named,
    spans,
)
from dpsql.dataclass import dataclass
from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger.budget import Budget, Spent, refuse_beyond

# Block name for the initial spending of blocks that no call has charged.
FRESH = "*"
# Above this epsilon, a delta above 0 says nothing about several units.
_LARGE_EPSILON = 1000


def delta_over(losses: Iterable[tuple[int, int]]) -> int:
    """Return the delta of units that go one by one, in units of 1e-18, rounded up; at most 1.

    Parameters
    ----------
    losses : iterable of (int, int)
        Epsilon and delta of each unit, in units of 1e-18, in the order of removal.
    """
    with localcontext(Context(prec=60, rounding=ROUND_CEILING)):
        total, growth, before = Decimal(0), Decimal(1), 0
        for epsilon, delta in losses:
            if delta and before > _LARGE_EPSILON * UNITS_PER_ONE:
                return UNITS_PER_ONE
            total += delta * growth
            if total > UNITS_PER_ONE:
                return UNITS_PER_ONE
            before += epsilon
            if before <= _LARGE_EPSILON * UNITS_PER_ONE:
                growth *= _growth(epsilon)
        return int(total.to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=256, typed=True)
def _growth(epsilon: int) -> Decimal:
    """Return the exponential of units of 1e-18, rounded up."""
    with localcontext(Context(prec=60)):
        # A precision of 60 digits leaves an error far below this margin.
        return (Decimal(epsilon) / UNITS_PER_ONE).exp() * (1 + Decimal(10) ** -50)


def of_person(cost: Cost, blocks: int) -> Cost:
    """Return the cost to one person of a call that charges this many blocks with a cost (see the module)."""
    epsilon = None if cost.epsilon is None else units_up(cost.epsilon)
    delta = units_up(cost.delta)
    if delta and epsilon is None:
        delta = delta if blocks == 1 else UNITS_PER_ONE
    elif epsilon is not None:
        delta = delta_over([(epsilon, delta)] * blocks)
    return Cost(
        None if epsilon is None else Fraction(blocks * epsilon, UNITS_PER_ONE),
        Fraction(delta, UNITS_PER_ONE),
        None if cost.rho is None else Fraction(blocks * blocks * units_up(cost.rho), UNITS_PER_ONE),
    )


@dataclass(frozen=True)
class Blocks:
    """The spending of the blocks of one dataset.

    Attributes
    ----------
    spent : mapping of str to Spent
        Spending of the blocks with an account, by name; under `FRESH`, the initial spending of the others.
    begun : date or None
        Only other blocks that have begun by this day start with `FRESH`, the rest with nothing; None for all.
    """

    spent: Mapping[str, Spent] = field(default_factory=dict)
    begun: date | None = None

    def begins(self, name: str) -> bool:
        """Whether a block that no call has charged starts with the spending under `FRESH`."""
        period = period_named(name)
        return (
            self.begun is None
            or name == UNDATED
            or (period is not None and (first_day(period, name) or date.max) <= self.begun)
        )

    def of(self, budget: Budget | None, name: str) -> Spent:
        """Return the spending of a block under a budget."""
        spent = self.spent.get(name)
        if spent is None and self.begins(name):
            spent = self.spent[FRESH]
        if spent is None:
            spent = Spent() if budget is None else Spent().under(budget, _order(self.spent[FRESH]), of_block=True)
        return spent

    def charged(self, budget: Budget | None, names: Iterable[str], cost: Cost) -> Blocks:
        """Return the spending after a charge to some blocks."""
        return Blocks({**self.spent, **{name: self.of(budget, name).plus(cost) for name in names}}, self.begun)

    def live(self, budget: Budget) -> list[str]:
        """Return the names of blocks with accounts that are periods of the budget, in time order.

        The block of undated rows is last.
        """
        period = budget.period or ""
        names = [name for name in self.spent if name != FRESH and period_named(name) == period]
        undated = [name for name in self.spent if name == UNDATED and budget.has_undated]
        return sorted(names, key=lambda name: number_of(period, name)) + undated

    @property
    def facts(self) -> str:
        """The arguments in the row of `FRESH`."""
        return "{}" if self.begun is None else json.dumps({"begun": self.begun.isoformat()}, separators=(",", ":"))


def _order(spent: Spent) -> Fraction | None:
    return None if spent.composition is None else spent.composition.order


def begun_of(arguments: str) -> date | None:
    """Return the day that `Blocks.facts` names."""
    day = json.loads(arguments).get("begun")
    return None if day is None else date.fromisoformat(day)


def restated(
    before: Budget | None, after: Budget, total: Spent, blocks: Blocks, begun: date | None = None
) -> Blocks | None:
    """Return the accounts under a new budget, before their accountants begin; None if all accounts continue unchanged.

    Parameters
    ----------
    before, after : Budget
        The old and the new declaration.
    total : Spent
        One person's loss so far.
    blocks : Blocks
        Every account that the dataset ever had.
    begun : date, optional
        For new periods: the latest date of rows now; None if rows may be dated ahead.
    """
    if after.dated is None:
        return None
    standing = None if before is None else before.dated
    stale = [name for name in blocks.spent if name == UNDATED or (name != FRESH and period_named(name) == after.period)]
    if standing is None or before is None or not standing.goes_on(after.dated):
        # Accounts of earlier periods are part of the person's loss, and every block starts again with that loss.
        start = Blocks({FRESH: total}, begun)
        return Blocks({FRESH: total, **{name: _begin(start, name) for name in sorted(stale)}}, begun)
    if standing.period == after.period:
        if before.accountant == after.accountant and (after.accountant == "basic" or before.limits == after.limits):
            return None
        return Blocks({name: blocks.spent[name] for name in (FRESH, *blocks.live(after))}, blocks.begun)
    return _by_other_periods(before, after, blocks)


@dataclass(frozen=True)
class Ended:
    """A dataset that another dataset replaces.

    Attributes
    ----------
    budget : Budget or None
        The dataset's last budget.
    total : Spent
        One person's loss on the dataset.
    blocks : Blocks
        Every account that the dataset ever had.
    keeps_dates : bool
        Whether its rows keep their dates in the new dataset; the owner names the date columns.
    """

    budget: Budget | None
    total: Spent
    blocks: Blocks
    keeps_dates: bool

    def under(self, after: Budget, begun: date | None) -> Blocks:
        """Return the dataset's accounts by the periods of a new budget."""
        if self.budget is None or self.budget.period is None or not self.keeps_dates:
            return Blocks({FRESH: self.total}, begun)
        if self.budget.period != after.period:
            return _by_other_periods(self.budget, after, self.blocks)
        names = (FRESH, *(name for name in self.blocks.spent if name in (UNDATED, *self.blocks.live(self.budget))))
        return Blocks({name: self.blocks.spent[name] for name in names}, self.blocks.begun)


def merged(own: Ended, ended: Sequence[Ended], after: Budget, begun: date | None = None) -> Blocks | None:
    """Return the accounts of a dataset that replaces others, before their accountants begin.

    Parameters
    ----------
    own : Ended
        The replacing dataset before the merge, without the losses of the others.
    ended : sequence of Ended
    after : Budget
        The new declaration; without periods the function returns None.
    begun : date, optional
        As for `restated`, for spending without periods.
    """
    if after.dated is None:
        return None
    parts = [predecessor.under(after, begun) for predecessor in ended]
    summed = [{name: Spent().with_all_of(*total.losses) for name, total in part.spent.items()} for part in parts]
    accounts = [Blocks(spent, part.begun) for spent, part in zip(summed, parts, strict=True)]
    if own.budget is not None or own.total.releases:
        accounts.insert(0, own.under(after, begun))
    # A block that has begun for one dataset has begun for all; without earlier spending it does not matter.
    days = [account.begun for account in accounts if account.spent[FRESH].losses != (0, 0, 0)]
    day = None if None in days else max((start for start in days if start is not None), default=None)
    accounts = [Blocks(account.spent, day) for account in accounts]
    names = sorted({name for account in accounts for name in account.spent} - {FRESH})
    spent = {name: _together([account.of(None, name) for account in accounts]) for name in names}
    return Blocks({FRESH: _together([account.spent[FRESH] for account in accounts]), **spent}, day)


def _together(parts: Sequence[Spent]) -> Spent:
    """Return the sum of several accounts."""
    total = Spent()
    for part in parts:
        total = replace(total.with_all_of(*part.losses), releases=total.releases + part.releases)
    return total


def _by_other_periods(before: Budget, after: Budget, blocks: Blocks) -> Blocks:
    """Return the accounts under other periods, for rows that keep their dates."""
    stale = [name for name in blocks.spent if name == UNDATED or (name != FRESH and period_named(name) == after.period)]
    merged: dict[str, list[str]] = {}
    for name in blocks.live(before):
        for new in () if name == UNDATED else _names_over(before.period or "", name, after.period or ""):
            merged.setdefault(new, []).append(name)
    out = {name: blocks.spent[name] if name == UNDATED else _begin(blocks, name) for name in stale}
    out |= {new: _merged(blocks, new, names) for new, names in merged.items()}
    return Blocks({FRESH: blocks.spent[FRESH], **dict(sorted(out.items()))}, blocks.begun)


def _begin(blocks: Blocks, name: str) -> Spent:
    return blocks.spent[FRESH] if blocks.begins(name) else Spent()


def _names_over(period: str, name: str, other: str) -> Sequence[str]:
    """Return the names of periods of another kind that share a day with a period."""
    first = first_day(period, name)
    if first is None:
        return ()
    ends = [block_of(other, day) for day in (first, last_day(period, name))]
    return During.read([f"{ends[0]}/{ends[1]}"], Dated(other, "")).blocks  # type: ignore[union-attr]


def charged_names(budget: Budget | None, during: During) -> list[str]:
    """Return the blocks that a call charges, each as often as the call charges it.

    A failed call is charged even if its owner restated the periods meanwhile: it charges the periods that overlap its
    own.
    """
    if budget is None or budget.period is None:
        return []
    if during.is_undated:
        return [UNDATED]
    if budget.period == during.dated.period:
        return list(during.blocks)
    return [new for name in during.blocks for new in _names_over(during.dated.period, name, budget.period)]


def _merged(blocks: Blocks, new: str, names: Sequence[str]) -> Spent:
    """Return the initial spending of a new block with rows from blocks with accounts, and from other blocks."""
    parts = [blocks.spent[name] for name in names]
    if blocks.begins(new) and not any(map(blocks.begins, names)):
        parts.append(blocks.spent[FRESH])
    if len(parts) == 1:
        return parts[0]
    losses = [(spent.charged("epsilon"), spent.charged("delta") or 0) for spent in parts]
    finite = sorted((epsilon, delta) for epsilon, delta in losses if epsilon is not None)
    rhos = [spent.rho for spent in parts if spent.rho is not None]
    is_finite, is_zcdp = len(finite) == len(parts), len(rhos) == len(parts)
    return Spent(
        sum(epsilon for epsilon, _ in finite) if is_finite else None,
        delta_over(finite) if is_finite else UNITS_PER_ONE,
        len(parts) * sum(rhos) if is_zcdp else None,  # this is an upper bound on the square of a sum of square roots
        sum(spent.releases for spent in parts),
    )


def refuse_blocks(
    dataset: str, budget: Budget | None, blocks: Blocks, total: Spent, during: During, cost: Cost
) -> None:
    """Raise a BudgetError unless a cost fits the remaining budget of each charged block, and of the person's total.

    Raises
    ------
    ParameterError
        P110: the blocks are not periods of the current budget.
    BudgetError
        B001, B004.
    """
    dated = None if budget is None else budget.dated
    if budget is None or dated is None or not during.dated.is_as(dated):
        raise ParameterError(
            "P110",
            f"the periods of dataset '{dataset}' were restated. Give during := periods that its owner states now.",
        )
    lacking: dict[str, Spent] = {}
    fits: dict[Spent, bool] = {}
    for name in during.blocks:
        spent = blocks.of(budget, name)
        if spent not in fits:
            fits[spent] = _fits(budget, spent, cost)
        if not fits[spent]:
            lacking[name] = spent
    if lacking:
        period = dated.period
        listed, rest = (
            spans(period, [name for name in during.blocks if (name in lacking) == lacks]) for lacks in (True, False)
        )
        offer = f" The other blocks have it: during := {rest}." if rest else ""
        which = f"block {listed[0]}" if len(lacking) == 1 else f"each of the blocks {', '.join(listed)}"
        worst = max(lacking.values(), key=lambda spent: spent.charged("epsilon") or 0)
        refuse_beyond(f"{which} of dataset '{dataset}'", budget, worst, cost, end=offer)
    person = total.plus(of_person(cost, len(during.blocks)))
    for limited, limit in budget.total_limits.items():
        name = limited.removesuffix("_total")
        spent_before, spent_after = total.charged(name), person.charged(name)
        if spent_after is None or spent_after > limit:
            remainder = units_text(max(0, limit - (spent_before or 0)))
            raise BudgetError(
                "B001",
                f"over all blocks of dataset '{dataset}' a person may lose {name} {units_text(limit)}, of which "
                f"{remainder} remains, and {len(during.blocks)} blocks may cost one person "
                f"{'no finite amount' if spent_after is None else units_text(spent_after - (spent_before or 0))}. "
                f"Name fewer blocks, or less {name}; only the data's owner can change {limited}.",
            )


def _fits(budget: Budget, spent: Spent, cost: Cost) -> bool:
    after = spent.plus(cost)
    charged = [(after.charged(name), limit) for name, limit in budget.limits.items()]
    return all(total is not None and total <= limit for total, limit in charged)
