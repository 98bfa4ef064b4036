"""Define a data owner's budget and policy for one dataset, compute what is spent of it, and refuse calls beyond it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from dpsql.contract import parameters
from dpsql.contract.events import UNITS_PER_ONE, Composed, Cost, Event, units_down, units_text, units_up
from dpsql.contract.layout import public_bounds
from dpsql.contract.names import NAMELESS
from dpsql.contract.periods import NO_PERIOD, Dated
from dpsql.dataclass import dataclass
from dpsql.errors import BudgetError, ParameterError
from dpsql.ledger.chain import Draft, Row
from dpsql.ledger.composition import ACCOUNTANTS, Composition, begin

BOUND_NAMES = ("lower", "upper", "target_lower", "target_upper")
STATED_NAMES = (*BOUND_NAMES, "target_levels", "keys")
# Claims of a caller about rows that no plan of DuckDB shows: they belong to the dataset if each comes from one row of a
# file or a frame; never; or always. The first is the default.
CLAIMS = ("rows", "none", "all")
# Whether the labels of ENUM columns are public. The first is the default: rows may have determined the labels.
ENUM_LABELS = ("private", "public")
# Answers to min and max in plain SQL. The first is the default: they are refused.
EXTREMES = ("refused", "quantiles")
NO_UNIT = "row"  # value that withdraws a privacy unit
# An owner's arguments about periods.
PERIOD_NAMES = ("period", "period_of", "period_zone", "epsilon_total", "delta_total")
# An owner's amounts for questions that state none; `NO_DEFAULT` withdraws one.
DEFAULT_NAMES = ("default_epsilon", "default_delta", "default_daily_epsilon")
NO_DEFAULT = "none"
# How many defaults a principal may spend a day, if the owner does not say.
DEFAULTS_A_DAY = 10
_amount_hint = "Give epsilon := 3.0 (and delta := 1e-6), or rho := 0.5."
LEAST_RDP_DELTA = 1000  # units of 1e-18


@dataclass(frozen=True)
class Budget:
    """The budget of one dataset, and its owner's declarations for every call.

    Build it with `Budget.of`, which reads floats as their shortest decimal.

    Attributes
    ----------
    epsilon, delta : Fraction or None
        Limits of basic composition; epsilon > 0, delta in [0, 1), 0 if omitted. With `rho`, delta only sets the point
        at which `dp_budget` reports an epsilon.
    rho : Fraction or None
        Limit of zCDP composition, > 0. Either epsilon or rho is given.
    neighbours : {'add_remove', 'replace'} or None
        The relation that every call must use; None leaves it to the call.
    privacy_unit : str or None
        The id column that every call must protect; None leaves it to the call.
    max_rows_per_unit : int or None
        A default for calls, not a limit: the guarantee is valid for any row limit that SQL enforces.
    bounds : dict or None
        Defaults for `lower`, `upper`, `target_lower`, `target_upper` (a number, a list, or one number by name of the
        column) and for `target_levels`; and `keys`, the public levels of columns by name.
    accountant : {'basic', 'rdp'}
        How releases add up against epsilon and delta (see `dpsql.ledger.composition`).
    claims : {'rows', 'none', 'all'}
        The sources that a caller may claim for this dataset (see `CLAIMS`).
    enum_labels : {'private', 'public'}
        Whether the labels of ENUM columns at the time of the declaration are public.
    extremes : {'refused', 'quantiles'}
        Whether private quantiles answer `min` and `max` in plain SQL.
    period, period_of, period_zone : str or None
        The dating of rows, so that each period has its own budget (see `dpsql.contract.periods`). For several tables,
        `period_of` is a dict by name, as for `Dated.tables`.
    epsilon_total, delta_total : Fraction or None
        Limits of one person's loss over all releases on all periods (see `dpsql.ledger.blocks`).
    default_epsilon, default_delta : Fraction or None
        What a question spends that states no epsilon, and may spend of delta if it needs one and states none.
    default_daily_epsilon : Fraction or None
        What the questions of one principal that state no epsilon may spend together on a day in UTC; by default
        `DEFAULTS_A_DAY` times `default_epsilon`.
    """

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    neighbours: str | None = None
    privacy_unit: str | None = None
    max_rows_per_unit: int | None = None
    bounds: dict[str, object] | None = None
    accountant: str = "basic"
    claims: str = CLAIMS[0]
    enum_labels: str = ENUM_LABELS[0]
    extremes: str = EXTREMES[0]
    period: str | None = None
    period_of: str | dict[str, str | None] | None = None
    period_zone: str | None = None
    epsilon_total: Fraction | None = None
    delta_total: Fraction | None = None
    default_epsilon: Fraction | None = None
    default_delta: Fraction | None = None
    default_daily_epsilon: Fraction | None = None

    @classmethod
    def of(
        cls,
        *,
        epsilon: object = None,
        delta: object = None,
        rho: object = None,
        neighbours: object = None,
        privacy_unit: object = None,
        max_rows_per_unit: object = None,
        accountant: object = None,
        claims: object = None,
        enum_labels: object = None,
        extremes: object = None,
        period: object = None,
        period_of: object = None,
        period_zone: object = None,
        epsilon_total: object = None,
        delta_total: object = None,
        default_epsilon: object = None,
        default_delta: object = None,
        default_daily_epsilon: object = None,
        **bounds: object,
    ) -> Budget:
        """Check a data owner's arguments, all public, and return the budget.

        Raises
        ------
        ParameterError
            The message names the legal form of the wrong argument.
        """
        if (epsilon is None) == (rho is None):
            raise ParameterError("P015", f"a budget must have either epsilon or rho. {_amount_hint}")
        if neighbours is not None:
            neighbours = parameters.choice("neighbours", neighbours, ("add_remove", "replace"))
        if privacy_unit is not None:
            privacy_unit = parameters.text("privacy_unit", privacy_unit, hint="Give the name of the id's column.")
        if privacy_unit == NO_UNIT:
            privacy_unit = None
        if max_rows_per_unit is not None:
            hint = "Give the rows that one privacy unit may contribute."
            max_rows_per_unit = parameters.positive_integer("max_rows_per_unit", max_rows_per_unit, hint=hint)
        if (privacy_unit is None) != (max_rows_per_unit is None):
            raise ParameterError(
                "P009",
                "privacy_unit and max_rows_per_unit go together. Give the id's column and the rows that one id may "
                "contribute, such as max_rows_per_unit := 10.",
            )
        delta_limit = _delta_limit(delta, with_epsilon=epsilon is not None)
        dated = Dated.stated(period, period_of, period_zone)
        totals = _totals(epsilon_total, delta_total, dated=dated is not None)
        if dated is not None:
            _refuse_undatable(neighbours, privacy_unit, with_epsilon=epsilon is not None)
            neighbours = "add_remove"
        defaults = _defaults(default_epsilon, default_delta, default_daily_epsilon)
        return cls(
            epsilon=_limit("epsilon", epsilon),
            delta=delta_limit,
            rho=_limit("rho", rho),
            neighbours=neighbours,
            privacy_unit=privacy_unit,
            max_rows_per_unit=max_rows_per_unit,
            bounds=_stated_bounds(bounds),
            accountant=_accountant(accountant, delta_limit, with_epsilon=epsilon is not None),
            claims=CLAIMS[0] if claims is None else parameters.choice("claims", claims, CLAIMS),
            enum_labels=(
                ENUM_LABELS[0] if enum_labels is None else parameters.choice("enum_labels", enum_labels, ENUM_LABELS)
            ),
            extremes=EXTREMES[0] if extremes is None else parameters.choice("extremes", extremes, EXTREMES),
            period=None if dated is None else dated.period,
            period_of=None if dated is None else dict(dated.tables) or dated.column,
            period_zone=None if dated is None else dated.zone,
            epsilon_total=totals[0],
            delta_total=totals[1],
            **defaults,
        ).with_possible_defaults()

    def with_possible_defaults(self) -> Budget:
        """Return this budget; raise if its own limits refuse every question that its defaults pay for.

        Raises
        ------
        ParameterError
            P024: a default is more than the limit.
        """
        limits = self.limits | {"daily": units_down(self.daily_epsilon or Fraction(0))}
        for name, limit in (("epsilon", "epsilon"), ("delta", "delta"), ("epsilon", "daily")):
            amount: Fraction | None = getattr(self, f"default_{name}")
            if amount is not None and limit in limits and units_down(amount) > limits[limit]:
                what = "default_daily_epsilon" if limit == "daily" else f"the budget's {name}"
                raise ParameterError(
                    "P024",
                    f"default_{name} must be at most {what} of {units_text(limits[limit])}; got "
                    f"{units_text(units_down(amount))}. Lower it, or leave it out.",
                )
        return self

    @property
    def daily_epsilon(self) -> Fraction | None:
        """What one principal's questions without a stated epsilon may spend on a day; None without a limit."""
        if self.default_daily_epsilon is not None or self.default_epsilon is None:
            return self.default_daily_epsilon
        return DEFAULTS_A_DAY * self.default_epsilon

    def restated(self, changes: Mapping[str, object]) -> Budget:
        """Return this budget with the owner's changes; omitted arguments keep their values.

        A budget in epsilon becomes a budget in rho, or vice versa, if the owner gives the other.
        ``privacy_unit = 'row'`` withdraws the privacy unit, ``period = 'none'`` the periods, and
        ``default_epsilon = 'none'`` that default.
        """
        amounts = {name: getattr(self, name) for name in ("epsilon", "delta", "rho")}
        if changes.get("rho") is not None:
            amounts["epsilon"] = None
        elif changes.get("epsilon") is not None:
            amounts["rho"] = None
        terms = {name: value for name, value in amounts.items() if value is not None} | self.terms
        if terms.get("delta") == 0:
            del terms["delta"]
        if changes.get("rho") is None:  # a rho budget has only one accountant
            terms["accountant"] = self.accountant
        terms |= {"claims": self.claims, "enum_labels": self.enum_labels, "extremes": self.extremes}
        terms |= {name: getattr(self, name) for name in DEFAULT_NAMES}
        if changes.get("period") != NO_PERIOD:
            terms |= {name: getattr(self, name) for name in PERIOD_NAMES if getattr(self, name) is not None}
        if changes.get("privacy_unit") == NO_UNIT:
            terms.pop("max_rows_per_unit", None)
        for pair in (("target_levels",), ("target_lower", "target_upper")):
            other = ("target_lower", "target_upper") if pair == ("target_levels",) else ("target_levels",)
            if any(changes.get(name) is not None for name in pair):
                terms = {name: value for name, value in terms.items() if name not in other}
        return Budget.of(**terms | {name: value for name, value in changes.items() if value is not None})

    @property
    def policy_text(self) -> str:
        """The whole policy in words, shown to the declaring owner."""
        parts = [self.text]
        if self.privacy_unit is not None:
            parts.append(f"privacy unit {self.privacy_unit}, at most {self.max_rows_per_unit} rows each")
        else:
            parts.append("protects one row")
        if self.neighbours is not None:
            parts.append(f"neighbours {self.neighbours}")
        if self.claims != CLAIMS[0]:
            parts.append(f"claims {self.claims}")
        if self.enum_labels != ENUM_LABELS[0]:
            parts.append(f"labels of ENUM columns {self.enum_labels}")
        if self.extremes != EXTREMES[0]:
            parts.append(f"min and max are {self.extremes}")
        if self.period is not None:
            parts.append(f"for each {self.period} of {self.dated.text if self.dated else ''}")
            parts += [f"{name} {units_text(units)}" for name, units in self.total_limits.items()]
        parts += [f"{name} {units_text(units)}" for name, units in self.default_amounts.items()]
        parts += [f"{name} {parameters.stored_text(value)}" for name, value in (self.bounds or {}).items()]
        return "; ".join(parts)

    @property
    def terms(self) -> dict[str, object]:
        """The owner's declarations, by the argument names of a call, without omitted arguments."""
        terms: dict[str, object] = dict(self.bounds or {})
        for name in ("neighbours", "privacy_unit", "max_rows_per_unit"):
            if getattr(self, name) is not None:
                terms[name] = getattr(self, name)
        return terms

    @property
    def limits(self) -> dict[str, int]:
        """The limits in units of 1e-18: rho, or epsilon and delta."""
        names = ("epsilon", "delta") if self.rho is None else ("rho",)
        return {name: units_down(getattr(self, name) or Fraction(0)) for name in names}

    @property
    def dated(self) -> Dated | None:
        """The dating of rows; None without periods."""
        if self.period is None or self.period_of is None:
            return None
        if isinstance(self.period_of, dict):
            return Dated(self.period, "", self.period_zone, tables=tuple(sorted(self.period_of.items())))
        return Dated(self.period, self.period_of, self.period_zone)

    @property
    def has_undated(self) -> bool:
        """Whether some tables have undated rows."""
        return isinstance(self.period_of, dict) and None in self.period_of.values()

    @property
    def total_limits(self) -> dict[str, int]:
        """The limits of one person's loss over all periods, in units of 1e-18, without missing limits."""
        limits = {"epsilon_total": self.epsilon_total, "delta_total": self.delta_total}
        return {name: units_down(limit) for name, limit in limits.items() if limit is not None}

    @property
    def default_amounts(self) -> dict[str, int]:
        """The amounts for questions that state none, in units of 1e-18; empty if the owner declared none."""
        amounts = {name: getattr(self, name) for name in DEFAULT_NAMES} | {DEFAULT_NAMES[-1]: self.daily_epsilon}
        return {name: units_down(amount) for name, amount in amounts.items() if amount is not None}

    @property
    def text(self) -> str:
        """The limit in words: ``'epsilon 3, delta 1e-06'`` or ``'rho 0.5'``."""
        name, limit = ("epsilon", self.epsilon) if self.epsilon is not None else ("rho", self.rho)
        words = f"{name} {units_text(units_down(limit or Fraction(0)))}"
        if self.delta and self.rho is None:
            words += f", delta {units_text(units_down(self.delta))}"
        if self.accountant != "basic":
            words += f", accountant {self.accountant}"
        return words

    def to_json(self) -> str:
        """Return the budget as canonical JSON, with amounts as exact decimal text."""
        record: dict[str, object] = {}
        for name in ("epsilon", "delta", "rho"):
            amount = getattr(self, name)
            record[name] = None if amount is None else units_text(units_down(amount))
        for name in ("neighbours", "privacy_unit", "max_rows_per_unit", "bounds"):
            record[name] = getattr(self, name)
        if self.accountant != "basic":  # keeps the text as before accountants existed
            record["accountant"] = self.accountant
        if self.claims != CLAIMS[0]:
            record["claims"] = self.claims
        if self.enum_labels != ENUM_LABELS[0]:
            record["enum_labels"] = self.enum_labels
        if self.extremes != EXTREMES[0]:
            record["extremes"] = self.extremes
        for name in (*PERIOD_NAMES, *DEFAULT_NAMES):
            term: str | dict[str, str | None] | Fraction | None = getattr(self, name)
            if term is not None:
                record[name] = units_text(units_down(term)) if isinstance(term, Fraction) else term
        return json.dumps(record, sort_keys=True, separators=(",", ":"), default=dict)

    @classmethod
    def from_json(cls, text: str) -> Budget:
        """Return a budget from the JSON of `to_json`."""
        record = json.loads(text)
        for name in ("epsilon", "delta", "rho"):
            record[name] = None if record[name] is None else Fraction(record[name])
        amounts = ("epsilon_total", "delta_total", *DEFAULT_NAMES)
        return cls(**record | {name: Fraction(record[name]) for name in amounts if name in record})


# The budget of a replaced dataset: the smallest budget.
ENDED = Budget(epsilon=Fraction(1, UNITS_PER_ONE), delta=Fraction(0))


def default_amount(name: str, value: object, argument: str = "") -> Fraction | None:
    """Return an owner's default of ``'epsilon'`` or ``'delta'``; None without one, or if it is withdrawn.

    Raises
    ------
    ParameterError
        P001, P024, P027: no question can spend that amount.
    """
    if value is None or value == NO_DEFAULT:
        return None
    argument = argument or f"default_{name}"
    check = parameters.epsilon if name == "epsilon" else parameters.delta
    return _in_units(argument, check(value, argument))


def _defaults(epsilon: object, delta: object, daily: object) -> dict[str, Fraction | None]:
    return {
        "default_epsilon": default_amount("epsilon", epsilon),
        "default_delta": default_amount("delta", delta),
        "default_daily_epsilon": default_amount("epsilon", daily, "default_daily_epsilon"),
    }


def _limit(name: str, value: object) -> Fraction | None:
    if value is None:
        return None
    number = parameters.positive_number(name, value, hint=_amount_hint)
    return _in_units(name, number)


def _delta_limit(value: object, *, with_epsilon: bool) -> Fraction | None:
    if value is None or (with_epsilon and value == 0 and not isinstance(value, (bool, str))):
        return Fraction(0) if with_epsilon else None
    number = parameters.open_unit_interval("delta", value, hint=_amount_hint)
    return _in_units("delta", number)


def _accountant(value: object, delta: Fraction | None, *, with_epsilon: bool) -> str:
    accountant = parameters.choice("accountant", "basic" if value is None else value, ACCOUNTANTS)
    if accountant == "basic":
        return accountant
    if not with_epsilon:
        raise ParameterError("P045", "accountant has no effect beside rho, which adds up in one way. Leave it out.")
    if delta is None or units_down(delta) < LEAST_RDP_DELTA:
        raise ParameterError("P046", "accountant := 'rdp' needs a delta of at least 1e-15. Give delta := 1e-6.")
    return accountant


def _in_units(name: str, number: Fraction) -> Fraction:
    units = units_down(number)
    if units == 0:
        raise ParameterError("P024", f"{name} must be at least 1e-18, the unit of the ledger. {_amount_hint}")
    return Fraction(units, UNITS_PER_ONE)


def _stated_bounds(arguments: Mapping[str, object]) -> dict[str, object] | None:
    unknown = [name for name in arguments if name not in STATED_NAMES]
    if unknown:
        raise ParameterError("P016", f"dp_protect has no argument {parameters.show(unknown[0])}.")
    bounds = {name: value for name, value in arguments.items() if value is not None}
    hint = "Give both sides from domain knowledge, or neither."
    for low, high in (BOUND_NAMES[:2], BOUND_NAMES[2:]):
        if low in bounds or high in bounds:
            pair = public_bounds(bounds.get(low), bounds.get(high), names=(low, high), hint=hint)
            for name, side in zip((low, high), pair, strict=True):
                bounds[name] = _exact(list(side) if isinstance(side, tuple) else side, bounds[name])
    if "target_levels" in bounds:
        bounds["target_levels"] = list(parameters.levels(bounds["target_levels"]))
        if "target_lower" in bounds:
            raise ParameterError("P045", "target_levels and target bounds exclude each other. Give one of them.")
    if "keys" in bounds:
        bounds["keys"] = parameters.keys(bounds["keys"])
    return bounds or None


def _exact(side: object, argument: object) -> object:
    """Return checked bounds with whole numbers as they were given: a double rounds those beyond 2**53."""
    if isinstance(side, Mapping) and isinstance(argument, Mapping):
        return {name: _exact(number, argument[name]) for name, number in side.items()}
    if isinstance(side, list):
        return [_exact(*pair) for pair in zip(side, parameters.list_items(argument) or (), strict=True)]
    is_whole = isinstance(argument, int) and not isinstance(argument, bool)
    return argument if is_whole and side != argument else side


def _totals(epsilon: object, delta: object, *, dated: bool) -> tuple[Fraction | None, Fraction | None]:
    """Return the limits of one person's loss over all periods."""
    if not dated and (epsilon is not None or delta is not None):
        raise ParameterError("P112", "epsilon_total and delta_total go with a period. Give period := 'month', too.")
    if delta is None:
        return _limit("epsilon_total", epsilon), None
    return _limit("epsilon_total", epsilon), _delta_limit(delta, with_epsilon=True)


def _refuse_undatable(neighbours: str | None, privacy_unit: str | None, *, with_epsilon: bool) -> None:
    """Raise if periods would not protect the declared privacy unit.

    A replaced row may leave one block and enter another. So a call would cost the sum of the two most expensive blocks
    that it touches, and calls that touch one block each still compose over both: the blocks' accounts would not be
    separate.
    """
    if privacy_unit is None:
        raise ParameterError(
            "P112", "a period needs a privacy unit. Give privacy_unit := the id's column, and max_rows_per_unit."
        )
    if neighbours == "replace":
        raise ParameterError(
            "P112",
            "periods protect a unit that comes or goes: a replaced one may change periods. Leave neighbours out.",
        )
    if not with_epsilon:
        raise ParameterError(
            "P112", "a budget with periods is stated in epsilon and delta. Give epsilon in place of rho."
        )


_repeat = "repeat an earlier release by its name, which costs nothing. Only the data's owner can change the budget."


@dataclass(frozen=True)
class Spent:
    """Running totals of one dataset, in units of 1e-18; None after a release without a finite loss of that kind.

    Attributes
    ----------
    epsilon, delta, rho : int or None
        Sums over all releases.
    releases : int
    composition : Composition or None
        The state of the accountant; None if composition was always basic, because the sums are that state.
    """

    epsilon: int | None = 0
    delta: int = 0
    rho: int | None = 0
    releases: int = 0
    composition: Composition | None = None

    def plus(self, cost: Cost) -> Spent:
        """Return the totals after one more release; every charge rounds up."""
        epsilon = None if self.epsilon is None or cost.epsilon is None else self.epsilon + units_up(cost.epsilon)
        rho = None if self.rho is None or cost.rho is None else self.rho + units_up(cost.rho)
        composition = None if self.composition is None else self.composition.plus(cost)
        return Spent(epsilon, self.delta + units_up(cost.delta), rho, self.releases + 1, composition)

    def with_all_of(self, epsilon: int | None, delta: int, rho: int | None) -> Spent:
        """Return the totals of a new dataset after another dataset's spending, added as one more release."""
        return Spent(
            None if self.epsilon is None or epsilon is None else self.epsilon + epsilon,
            self.delta + delta,
            None if self.rho is None or rho is None else self.rho + rho,
            self.releases + 1,
        )

    def under(self, budget: Budget, order: Fraction | None = None, *, of_block: bool = False) -> Spent:
        """Return the totals under a declared budget: nothing is forgotten, and its accountant begins.

        With periods each block has the declared accountant; a dataset's own totals are one person's loss over all
        blocks, which adds up.
        """
        composition = begin(
            budget.accountant if budget.dated is None or of_block else "basic",
            epsilon=units_down(budget.epsilon or Fraction(0)),
            delta=units_down(budget.delta or Fraction(0)),
            spent=(self.epsilon, self.delta),
            standing=self.composition,
            order=order,
        )
        return replace(self, composition=composition)

    def charged(self, name: str) -> int | None:
        """Return the amount that counts against a limit of ``'epsilon'``, ``'delta'`` or ``'rho'``."""
        totals: Spent | Composition = self if name == "rho" or self.composition is None else self.composition
        charged: int | None = getattr(totals, name)
        return charged

    @property
    def losses(self) -> tuple[int | None, int, int | None]:
        """Epsilon, delta and rho as limits count them."""
        return self.charged("epsilon"), self.charged("delta") or 0, self.rho


def amounts_of(row: Row) -> Cost:
    """Return the charges of a row."""
    epsilon, delta, rho = (
        None if amount is None else Fraction(int(amount), UNITS_PER_ONE)
        for amount in (row["epsilon"], row["delta"], row["rho"])
    )
    return Cost(epsilon, delta or Fraction(0), rho)


def with_row(spent: Spent, row: Draft, composition: Composition | None) -> Spent:
    """Return the totals after a row's charge, with the accountant's state after it."""
    return Spent(
        _added(spent.epsilon, row["epsilon"]),
        spent.delta + int(row["delta"]),
        _added(spent.rho, row["rho"]),
        spent.releases + 1,
        composition,
    )


def with_accepted(spent: Spent, row: Draft) -> Spent:
    """Return the totals after a row that charges spending of lost entries, which the owner accepted.

    The row also states its addition to the accountant's sums (see `dpsql.ledger.spending`).
    """
    composition = spent.composition
    if composition is not None:
        composition = composition.with_added(json.loads(row["arguments"])["added"])
    return with_row(spent, row, composition)


def _added(total: int | None, amount: str | None) -> int | None:
    return None if total is None or amount is None else total + int(amount)


def refuse_overspend(dataset: str, budget: Budget | None, spent: Spent, cost: Cost, *, strict: bool) -> None:
    """Raise a BudgetError unless `cost` fits the dataset's remaining budget."""
    if budget is None:
        if strict and dataset == NAMELESS:
            raise BudgetError(
                "B002",
                "the rows belong to no dataset, and this connection is strict. Name one, dataset := 'NAME', after "
                "the data's owner has run SELECT dp_protect('NAME', source := false, epsilon := ...).",
            )
        if strict:
            raise BudgetError(
                "B002",
                f"dataset '{dataset}' has no budget, and this connection is strict. "
                f"Let the data's owner run SELECT dp_protect('{dataset}', epsilon := ...).",
            )
        return
    refuse_beyond(f"dataset '{dataset}'", budget, spent, cost)


def refuse_beyond(what: str, budget: Budget, spent: Spent, cost: Cost, *, end: str = "") -> None:
    """Raise a BudgetError unless `cost` fits the remainder; `what` names the account, and `end` ends the message."""
    after = spent.plus(cost)
    for name, limit in budget.limits.items():
        _refuse(what, name, limit, spent, after, budget, cost, end)


def _refuse(what: str, name: str, limit: int, spent: Spent, after: Spent, budget: Budget, cost: Cost, end: str) -> None:
    before, total = spent.charged(name), after.charged(name)
    if total is None:
        which = "an earlier release had" if before is None else "this release has"
        raise BudgetError(
            "B004",
            f"{what} has a budget in {name}, but {which} no finite {name}. "
            "Use another mechanism, or give the call a delta. Only the data's owner can change the budget's kind.",
        )
    if total <= limit:
        return
    remaining = max(0, limit - (before or 0))
    needed, remains, under = total - (before or 0), remaining, ""
    if budget.accountant != "basic" and name == "epsilon":  # show computed numbers with six digits, not eighteen
        needed, remains = _rounded(needed, up=True), _rounded(remaining)
        under = f" under accountant {budget.accountant}"
    lower = _affordable(name, remaining, budget, spent, after, cost)
    raise BudgetError(
        "B001",
        f"{what} needs {name} {units_text(needed)}{under}, "
        f"{units_text(remains) if remains else 'nothing'} remains of {units_text(limit)}. "
        f"{f'Lower {lower}, or {_repeat}' if lower else _repeat[0].upper() + _repeat[1:]}{end}",
    )


def _affordable(name: str, remaining: int, budget: Budget, spent: Spent, after: Spent, cost: Cost) -> str | None:
    """Return the amount that fits, such as ``'epsilon to 0.2'``; None if nothing fits."""
    if remaining == 0:
        return None
    if name == "delta":
        rest = remaining
        if spent.composition is not None and after.composition is not None and not spent.composition.releases:
            rest -= after.composition.tail  # the first release of a phase pays for the conversion
        return f"delta to {units_text(rest)}" if rest > 0 else None
    if name == "epsilon" and budget.accountant == "basic":
        return f"epsilon to {units_text(remaining)}"
    if cost.epsilon is None:
        return f"rho to {units_text(remaining)}" if name == "rho" else None
    share = _affordable_share(name, budget.limits[name], spent, cost)
    epsilon = _rounded(int(units_down(cost.epsilon) * share), digits=4)
    return f"epsilon to {units_text(epsilon)}" if epsilon else None


def _rounded(units: int, *, digits: int = 6, up: bool = False) -> int:
    unit: int = UNITS_PER_ONE // 10**digits
    return -(-units // unit) * unit if up else units // unit * unit


def _affordable_share(name: str, limit: int, spent: Spent, cost: Cost) -> Fraction:
    """Return roughly the largest share of a call's epsilon that fits, from below."""
    low, high = Fraction(0), Fraction(1)
    event = Composed(tuple(part.event for part in cost.mechanisms if isinstance(part.event, Event)))
    for _ in range(24):
        middle = (low + high) / 2
        try:
            total = spent.plus(event.scaled(middle).cost).charged(name)
        except ParameterError:  # the call does not allow so little epsilon
            total = None
        low, high = (middle, high) if total is not None and total <= limit else (low, middle)
    return low


def refuse_contradiction(
    dataset: str, budget: Budget | None, *, neighbours: str, privacy_unit: str | None, traced: bool = False
) -> None:
    """Raise a BudgetError if a call does not protect the declared privacy unit.

    A privacy unit `traced` through the source's plan is the declared unit, whatever its column's name.
    """
    if budget is None:
        return
    if budget.neighbours is not None and neighbours != budget.neighbours:
        raise _contradiction(dataset, "neighbours", budget.neighbours, neighbours)
    if (
        budget.privacy_unit is not None
        and not traced
        and parameters.fold(privacy_unit or "") != parameters.fold(budget.privacy_unit)
    ):
        raise _contradiction(dataset, "privacy_unit", budget.privacy_unit, privacy_unit)


def _contradiction(dataset: str, name: str, policy: str, argument: str | None) -> BudgetError:
    return BudgetError(
        "B003",
        f"{name} of dataset '{dataset}' was stated by its owner as {parameters.stored_text(policy)}; got "
        f"{parameters.show(argument)}. "
        f"Leave {name} out. Only the data's owner can restate it.",
    )
