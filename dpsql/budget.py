"""A data owner's budget and policy for one dataset, and the refusal of a call that does not fit them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql import parameters
from dpsql.accountant import UNITS_PER_ONE, Cost, units_down, units_text, units_up
from dpsql.errors import BudgetError, ParameterError

BOUND_NAMES = ("lower", "upper", "target_lower", "target_upper")
_amount_hint = "Give epsilon := 3.0 (and delta := 1e-6), or rho := 0.5."


@dataclass(frozen=True)
class Budget:
    """What may be spent on one dataset, and what its owner stated about every call.

    Build it with `Budget.of`, which reads floats as their shortest decimal.

    Attributes
    ----------
    epsilon, delta : Fraction or None
        Limits of basic composition; epsilon > 0, delta in [0, 1), 0 when left out. With `rho`, delta only
        sets the point at which `dp_budget` reports an epsilon.
    rho : Fraction or None
        Limit of zCDP composition, > 0. Either epsilon or rho is given.
    neighbours : {'add_remove', 'replace'} or None
        The relation that every call must use; None leaves it to the call.
    privacy_unit : str or None
        The id column that every call must protect; None leaves it to the call.
    max_rows_per_unit : int or None
        Default for calls; no limit, because any cap that SQL enforces keeps the guarantee.
    bounds : dict or None
        Defaults for `lower`, `upper`, `target_lower`, `target_upper`: a number, or a list per feature.
    """

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    neighbours: str | None = None
    privacy_unit: str | None = None
    max_rows_per_unit: int | None = None
    bounds: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        *,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        neighbours: Any = None,
        privacy_unit: Any = None,
        max_rows_per_unit: Any = None,
        **bounds: Any,
    ) -> Budget:
        """Check what a data owner gave; every argument is public.

        Raises
        ------
        ParameterError
            With the legal form of the argument that does not fit.
        """
        if (epsilon is None) == (rho is None):
            raise ParameterError("P015", f"a budget must have either epsilon or rho. {_amount_hint}")
        if neighbours is not None:
            neighbours = parameters.choice("neighbours", neighbours, ("add_remove", "replace"), code="P007")
        if privacy_unit is not None:
            parameters.text("privacy_unit", privacy_unit, code="P009", hint="Give the name of the id's column.")
        if max_rows_per_unit is not None:
            hint = "Give the rows that one privacy unit may contribute."
            max_rows_per_unit = parameters.positive_integer(
                "max_rows_per_unit", max_rows_per_unit, code="P009", hint=hint
            )
        return cls(
            epsilon=_limit("epsilon", epsilon),
            delta=_delta_limit(delta, with_epsilon=epsilon is not None),
            rho=_limit("rho", rho),
            neighbours=neighbours,
            privacy_unit=privacy_unit,
            max_rows_per_unit=max_rows_per_unit,
            bounds=_stated_bounds(bounds),
        )

    @property
    def stated(self) -> dict[str, Any]:
        """What the owner stated, by the argument names of a call; nothing that was left out."""
        stated: dict[str, Any] = dict(self.bounds or {})
        for name in ("neighbours", "privacy_unit", "max_rows_per_unit"):
            if getattr(self, name) is not None:
                stated[name] = getattr(self, name)
        return stated

    @property
    def text(self) -> str:
        """The limit in words: ``'epsilon 3, delta 1e-06'`` or ``'rho 0.5'``."""
        name, limit = ("epsilon", self.epsilon) if self.epsilon is not None else ("rho", self.rho)
        words = f"{name} {units_text(units_down(limit or Fraction(0)))}"
        if self.delta and self.rho is None:
            words += f", delta {units_text(units_down(self.delta))}"
        return words

    def to_json(self) -> str:
        """Return the budget as canonical JSON, with amounts as exact decimal text."""
        record: dict[str, Any] = {}
        for name in ("epsilon", "delta", "rho"):
            amount = getattr(self, name)
            record[name] = None if amount is None else units_text(units_down(amount))
        for name in ("neighbours", "privacy_unit", "max_rows_per_unit", "bounds"):
            record[name] = getattr(self, name)
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Budget:
        """Read back what `to_json` wrote."""
        record = json.loads(text)
        for name in ("epsilon", "delta", "rho"):
            record[name] = None if record[name] is None else Fraction(record[name])
        return cls(**record)


@dataclass(frozen=True)
class Spent:
    """Running totals of one dataset, in units of 1e-18; None once a release has no finite loss of that kind."""

    epsilon: int | None = 0
    delta: int = 0
    rho: int | None = 0
    releases: int = 0

    def plus(self, cost: Cost) -> Spent:
        """Return the totals after one more release; every charge is rounded up."""
        epsilon = None if self.epsilon is None or cost.epsilon is None else self.epsilon + units_up(cost.epsilon)
        rho = None if self.rho is None or cost.rho is None else self.rho + units_up(cost.rho)
        return Spent(epsilon, self.delta + units_up(cost.delta), rho, self.releases + 1)


def refuse_overspend(dataset: str, budget: Budget | None, spent: Spent, cost: Cost, *, strict: bool) -> None:
    """Raise a BudgetError unless `cost` fits what remains of the dataset's budget."""
    if budget is None:
        if strict:
            raise BudgetError(
                "B002",
                f"dataset '{dataset}' has no budget, and this connection is strict. "
                f"Let the data's owner run SELECT dp_protect('{dataset}', epsilon := ...).",
            )
        return
    if budget.rho is not None:
        _refuse(dataset, "rho", cost.rho, units_down(budget.rho), spent.rho, cost)
    else:
        _refuse(dataset, "epsilon", cost.epsilon, units_down(budget.epsilon or Fraction(0)), spent.epsilon, cost)
        _refuse(dataset, "delta", cost.delta, units_down(budget.delta or Fraction(0)), spent.delta, cost)


def _refuse(dataset: str, name: str, needed: Fraction | None, limit: int, spent: int | None, cost: Cost) -> None:
    if needed is None or spent is None:
        what = "this release has" if needed is None else "an earlier release had"
        raise BudgetError(
            "B004",
            f"dataset '{dataset}' has a budget in {name}, but {what} no finite {name}. "
            "Use another mechanism or give the call a delta, or let the owner change the budget's kind with "
            "dp_protect(..., replace := true).",
        )
    remaining = max(0, limit - spent)
    if units_up(needed) <= remaining:
        return
    remains = units_text(remaining) if remaining else "nothing"
    lower = _affordable_epsilon(name, remaining, needed, cost)
    advice = f"Lower {lower}, or raise" if lower else "Raise"
    raise BudgetError(
        "B001",
        f"dataset '{dataset}' needs {name} {units_text(units_up(needed))}, {remains} remains of {units_text(limit)}. "
        f"{advice} the budget with dp_protect(..., replace := true).",
    )


def _affordable_epsilon(name: str, remaining: int, needed: Fraction, cost: Cost) -> str | None:
    """Return what would fit, such as ``'epsilon to 0.2'``; None when nothing does."""
    if remaining == 0:
        return None
    if name != "rho":
        return f"{name} to {units_text(remaining)}"
    if cost.epsilon is None or cost.delta:
        return f"rho to {units_text(remaining)}"
    # rho grows with the square of epsilon; four digits, rounded down, read better than eighteen.
    square = cost.epsilon**2 * Fraction(remaining, UNITS_PER_ONE) / needed
    epsilon = math.isqrt(square.numerator * 10**8 // square.denominator)
    return f"epsilon to {units_text(epsilon * 10**14)}" if epsilon else None


def refuse_contradiction(dataset: str, budget: Budget | None, *, neighbours: str, privacy_unit: str | None) -> None:
    """Raise a BudgetError when a call protects something else than what the owner stated."""
    if budget is None:
        return
    if budget.neighbours is not None and neighbours != budget.neighbours:
        raise _contradiction(dataset, "neighbours", budget.neighbours, neighbours)
    if budget.privacy_unit is not None and parameters.fold(privacy_unit or "") != parameters.fold(budget.privacy_unit):
        raise _contradiction(dataset, "privacy_unit", budget.privacy_unit, privacy_unit)


def _contradiction(dataset: str, name: str, stated: str, given: str | None) -> BudgetError:
    return BudgetError(
        "B003",
        f"{name} of dataset '{dataset}' was stated by its owner as {stated!r}; got {parameters.show(given)}. "
        f"Leave {name} out, or let the owner restate it with dp_protect(..., replace := true).",
    )


def _limit(name: str, value: Any) -> Fraction | None:
    if value is None:
        return None
    number = parameters.positive_number(name, value, code="P015", hint=_amount_hint)
    return _in_units(name, number)


def _delta_limit(value: Any, *, with_epsilon: bool) -> Fraction | None:
    if value is None or (with_epsilon and value == 0 and not isinstance(value, (bool, str))):
        return Fraction(0) if with_epsilon else None
    number = parameters.open_unit_interval("delta", value, code="P015", hint=_amount_hint)
    return _in_units("delta", number)


def _in_units(name: str, number: Fraction) -> Fraction:
    units = units_down(number)
    if units == 0:
        raise ParameterError("P015", f"{name} must be at least 1e-18, the unit of the ledger. {_amount_hint}")
    return Fraction(units, UNITS_PER_ONE)


def _stated_bounds(given: Mapping[str, Any]) -> dict[str, Any] | None:
    unknown = [name for name in given if name not in BOUND_NAMES]
    if unknown:
        raise ParameterError("P015", f"dp_protect has no argument {unknown[0]!r}.")
    bounds = {name: value for name, value in given.items() if value is not None}
    hint = "Give both sides from domain knowledge, or neither."
    for low, high in (BOUND_NAMES[:2], BOUND_NAMES[2:]):
        if low in bounds or high in bounds:
            pair = parameters.bounds(bounds.get(low), bounds.get(high), names=(low, high), code="P003", hint=hint)
            for name, side in zip((low, high), pair, strict=True):
                bounds[name] = list(side) if isinstance(side, tuple) else side
    return bounds or None
