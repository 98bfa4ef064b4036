"""What is asked of the broker: a request of a known principal, and the one private call that it may hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dpsql.context import Context
from dpsql.contract.asker import USUAL_AGE, Asker
from dpsql.contract.parameters import fold, show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.query_statement import QueryStatement
from dpsql.errors import DpsqlError, GatewayError
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of
from dpsql.gateway.functions import MOST_CALLS
from dpsql.gateway.granted import Granted
from dpsql.gateway.receipts import own_releases
from dpsql.gateway.values import query_of, standing_in, values_of
from dpsql.ledger import clock
from dpsql.ledger.caps import NO_DATASET
from dpsql.ledger.grants import Grants

_STATED = ("engine", "release", "dataset")
_OF_CALL = ("function", "source", "arguments")
_most_age_hours = 24 * 366


class Request:
    """A request, whose principal is known."""

    def __init__(self, principal: str, grants: Grants, request: Mapping[str, object]) -> None:
        self.principal = principal
        self.request = request
        self._grants = grants
        settings = request.get("settings", {})
        if not isinstance(settings, Mapping) or not all(
            isinstance(name, str) and isinstance(value, str) and len(value) <= 1000 for name, value in settings.items()
        ):
            raise GatewayError("G012", "settings are texts.")
        self.settings: Mapping[str, str] = settings

    def text(self, name: str) -> str:
        """Return a text of the request."""
        found = self.request.get(name)
        if not isinstance(found, str):
            raise GatewayError("G012", f"{name} must be a text.")
        return found

    @property
    def before(self) -> float:
        """The entry before which those are that are asked for."""
        found = self.request.get("before")
        if found is not None and (not isinstance(found, int) or found is True):
            raise GatewayError("G012", "before must be the number of an entry.")
        return math.inf if found is None else found

    @property
    def calls(self) -> list[Request]:
        """The private calls of one statement: this request's own, or those that it lists."""
        listed = self.request.get("calls")
        if listed is None:
            return [self]
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CALLS:
            raise GatewayError("G012", f"calls must be a list of 1 to {MOST_CALLS} calls.")
        if not all(isinstance(one, Mapping) for one in listed):
            raise GatewayError("G012", "each call must have a function, a source and arguments.")
        whole = {name: value for name, value in self.request.items() if name not in ("calls", *_OF_CALL)}
        return [
            Request(self.principal, self._grants, {**whole, **{name: one.get(name) for name in _OF_CALL}})
            for one in listed
        ]

    @property
    def function(self) -> str:
        """The function that is asked for."""
        return self.text("function")

    @property
    def source(self) -> str | None:
        """The name that is asked about."""
        return None if self.request.get("source") is None else self.text("source")

    def granted(self, ledger: Any) -> Granted:
        """Return what the principal was granted; of one dataset, where the settings name it."""
        grants = self._grants.of(self.principal, clock.now())
        wanted = self.settings.get("dataset")
        if wanted is not None:
            grants = [grant for grant in grants if grant.dataset == fold(wanted)]
        return Granted(self.principal, grants, ledger)

    def values(self, ledger: Any, granted: Granted) -> dict[str, Any]:
        """Return the arguments of the call."""

        def named(name: str) -> int:
            own = own_releases(ledger, granted)
            for one in own:
                if name in (str(one.sequence), one.name):
                    return one.sequence
            raise GatewayError("G018", "you have no such release. List your releases.")

        return values_of(self.request.get("arguments", {}), named)

    @property
    def epsilon_text(self) -> str | None:
        """The epsilon as it was written in the call, or beside the statement."""
        arguments = self.request.get("arguments")
        stated = arguments.get("epsilon") if isinstance(arguments, Mapping) else None
        return stated.get("number") if isinstance(stated, Mapping) else self.settings.get("epsilon")

    @property
    def asker(self) -> Asker:
        """Who asks, and how old an answer may be."""
        fresh = self.settings.get("fresh", "false").lower()
        if fresh not in ("true", "false"):
            raise GatewayError("G012", "fresh must be true or false.")
        return Asker(
            self.principal,
            fresh=fresh == "true",
            key=self.settings.get("idempotency_key", ""),
            max_age=_seconds(self.settings.get("max_age")),
        )


def _seconds(hours: str | None) -> float:
    if hours is None:
        return USUAL_AGE
    try:
        found = float(hours)
    except ValueError:
        found = -1.0
    if not 0 <= found <= _most_age_hours:
        raise GatewayError("G012", "max_age must be a number of hours, such as 24.")
    return 3600 * found


class AskedCall:
    """One call of a private function.

    Attributes
    ----------
    plan : Plan
        What `plan_of` returned at last; there is none before, and of a call that reads nobody's rows.
    epsilon_text : str
        The epsilon, as it was written.
    in_call : bool
        Whether it was written in the call, and not beside the statement.
    """

    plan: Plan

    def __init__(self, function: str, source: str | None, granted: Granted, asked: Request, ledger: Any) -> None:
        is_query = function == QUERY
        if not is_query and (function not in FUNCTIONS or not FUNCTIONS[function].spends):
            raise GatewayError("G007", f"{show(function)} is none of the private functions. Ask dp_count('…').")
        given = asked.values(ledger, granted)
        for name in _STATED:
            if name in given:
                raise GatewayError("G016", f"{name} is not stated in a call here.")
        for name in ("fresh", "max_age", "estimate", "sql"):
            if is_query and name in given:
                raise GatewayError("G016", f"{name} is not stated in a call here. Write SET.")
        self._function, self._is_query = function, is_query
        self._planned: QueryStatement | None = None
        if is_query:
            given.pop("free", None)
            names: list[str] = []

            def parts(name: str) -> tuple[str, ...]:
                names.append(name)
                return granted.parts(name)

            self._tree = given.pop("tree", None)
            self._source = query_of(self._tree, parts)
            if not names:  # the box computes what reads no table
                raise GatewayError("G015", NO_DATASET)
        else:
            if source is None:
                raise GatewayError("G014", "the source must be one name. List the datasets that you may ask about.")
            self._source = granted.source(source)
            names = [source]
        grants = [granted.dataset_of(name) for name in names]
        for grant in grants:
            if not grant.asks or (grant.functions is not None and function not in grant.functions):
                raise GatewayError(
                    "G009", f"{function} is not granted to you. List the datasets that you may ask about."
                )
        self._arguments, self._grants = given, grants
        self.in_call = given.get("epsilon") is not None
        taken = QUERY if is_query else function
        written = asked.epsilon_text
        self._state("epsilon", asked.settings.get("epsilon"), next((g.default_epsilon for g in grants), None))
        self.epsilon_text = show(self._arguments.get("epsilon")) if written is None else written
        if "delta" in _takes(taken):
            self._state("delta", asked.settings.get("delta"), None)
        share = bool(grants) and all(grant.share for grant in grants)
        self._asker = replace(asked.asker, share=share)

    def _state(self, name: str, setting: str | None, usual: object) -> None:
        """Give the call what it leaves out."""
        if self._arguments.get(name) is None:
            if setting is not None:
                self._arguments |= values_of({name: {"number": setting}}, _none)
            elif usual is not None:
                self._arguments[name] = usual

    def cap_period(self, receipt: Mapping[str, Any]) -> str | None:
        """Return the period of the calendar whose cap a release counts in; None where the cap is not by periods."""
        return next(
            (g.period_at(receipt["recorded_at"]) for g in self._grants if g.dataset == receipt["dataset"]), None
        )

    @property
    def name(self) -> str:
        """The name of its question, which equal questions have."""
        return self.plan.release or ""

    def plan_of(self, context: Context) -> Plan | None:
        """Return the plan of the call; None if it reads nobody's rows."""
        found = self._plan_of(context)
        if found is not None:
            self.plan = found
        return found

    def _plan_of(self, context: Context) -> Plan | None:
        context = context.asked_by(self._asker)
        if self._is_query:
            with standing_in(self._tree, self._source, context.sql):
                self._planned = context.planned_query(self._source, dict(self._arguments))
            return None if self._planned is None else self._planned.plan
        return context.planned(self._function, self._source, dict(self._arguments))

    def found(self, context: Context) -> tuple[Plan | None, int | None]:
        """Return the plan, and the entry that answers it already; errors as of `Context.check`."""
        plan = self.plan_of(context)
        return plan, None if plan is None else context.check(plan)

    @property
    def asks_anew(self) -> bool:
        """Whether a stored answer is no answer to this call."""
        return self._asker.fresh and not self._asker.key

    def run(self, context: Context) -> Any:
        """Return the release."""
        context = context.asked_by(self._asker)
        if self._planned is not None:
            return context.run_planned(self._planned)
        if self._is_query:
            return context.query(self._source, **self._arguments)
        return getattr(context, self._function)(self._source, **self._arguments)

    def price(
        self, context: Context, plan: Plan | None, told: Callable[[DpsqlError], dict[str, object]]
    ) -> dict[str, Any]:
        """Return what the call of a plan would cost, and what is `told` of the error that would refuse it."""
        if plan is None:
            return {"function": self._function, "free": True, "epsilon": "0", "delta": "0"}
        cost, refusal = plan.event.cost, None
        try:
            free = context.check(plan) is not None
        except DpsqlError as error:
            free, refusal = False, told(error)
        return {
            "function": self._function,
            "datasets": list(plan.charged),
            "free": free,
            "epsilon": None if cost.epsilon is None else str(float(cost.epsilon)),
            "delta": str(float(cost.delta)),
            "refusal": refusal,
        }


def _none(name: str) -> int:
    raise GatewayError("G012", f"{name} is no setting.")


def _takes(function: str) -> Mapping[str, object]:
    return function_of(function).plan.arguments
