"""What the broker does for one request: everything is checked here again, as if whoever asks were hostile.

A request is a token, what is wanted, and JSON values. No SQL of a stranger comes this far: a query comes as the tree of
its text, of which the desk writes a text of its own.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from dpsql.context import Context
from dpsql.contract.asker import USUAL_AGE, Asker
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.installation import session_of
from dpsql.engines.duckdb.query_statement import QueryStatement
from dpsql.errors import DpsqlError, GatewayError, InternalError
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of
from dpsql.gateway.audit import Audit
from dpsql.gateway.frames import MOST_ENTRIES
from dpsql.gateway.functions import SYNTHETIC_ROWS
from dpsql.gateway.granted import Granted
from dpsql.gateway.limits import Buckets, Lines, Questions, Rates
from dpsql.gateway.owned import OwnersDesk
from dpsql.gateway.receipts import own_releases, receipt_of, stored_receipt
from dpsql.gateway.synthetic_tables import synthetic_rows
from dpsql.gateway.values import query_of, standing_in, values_of
from dpsql.gateway.watchdog import end_process, watched
from dpsql.ledger.caps import NO_DATASET
from dpsql.ledger.grants import PREFIX, ROLES, Grants

# Statements of one database that may run side by side.
CONNECTIONS = 4
_SECONDS = 120.0
_STATED = ("engine", "release", "dataset")
_most_age_hours = 24 * 366

Reply = tuple[dict[str, Any], list[pa.Table]]


class Desk:
    """Answers requests over one database.

    Parameters
    ----------
    context : Context
        On the database, with its ledger.
    audit : Audit
        Where requests are logged.
    rates : Rates, optional
    seconds : float
        How long one release may take.
    buckets : Buckets, optional
        When answers leave.
    login : callable, optional
        Returns the subject of a token of an identity provider; None for no such token.
    end : callable
        Ends this process, when a release cannot be interrupted.
    """

    def __init__(
        self,
        context: Context,
        audit: Audit,
        rates: Rates | None = None,
        *,
        seconds: float = _SECONDS,
        buckets: Buckets | None = None,
        login: Callable[[object], str | None] | None = None,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._session = session_of(context.connection)
        self._ledger = context.ledger
        self._ledger.end_lost_reservations()  # of a broker before this one
        self._audit = audit
        self._rates = Rates() if rates is None else rates
        self._seconds, self._end = seconds, end
        self._lines = Lines()
        self._buckets = Buckets() if buckets is None else buckets
        self._login = login
        self._questions = Questions()
        self._contexts: SimpleQueue[Context] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._contexts.put(Context(context.connection.cursor()))
        self._wants: dict[str, Callable[[_Asked], Reply]] = {
            "call": self._call,
            "estimate": self._estimate,
            "datasets": self._datasets,
            "describe": self._describe,
            "budget": self._budget,
            "releases": self._releases,
            "release": self._release,
            "ledger": self._entries,
        }
        self._wants |= OwnersDesk(self._ledger, audit, self._unplaced).wants

    def answer(self, request: Mapping[str, object]) -> Reply:
        """Return the reply to a request; it never raises, and tells nothing of rows but releases."""
        began, principal, wanted = time.time(), "", request.get("want")
        entry: int | None = None
        code = ""
        try:
            if wanted == "health":
                return {"health": {"broker": "ok"}}, []
            grants = self._ledger.grants()
            principal = self._principal(grants, request.get("token"))
            self._rates.refuse(principal, "refusals")
            if wanted == "refused":  # a statement was, elsewhere: it counts, and is logged
                code = _code(request.get("code"))
                return {}, []
            if wanted == "known":  # whether the token holds, and whose it is
                return {"principal": principal}, []
            self._rates.take(principal, "requests")
            work = self._wants.get(wanted) if isinstance(wanted, str) else None
            if work is None:
                raise GatewayError("G098", "a message asks for nothing that the broker does.")
            reply = work(_Asked(principal, grants, request))
            entry = next((one.get("entry") for one in reply[0].get("receipts", ())), None)
            return reply
        except DpsqlError as error:
            code = error.code
            return {"error": self._told(error, principal)}, []
        except BaseException as error:
            number = secrets.token_hex(8)
            code = f"I000 {number}"
            self._audit.failure(number, error)
            failed = InternalError("I000", f"the call failed, and nothing more is said here. Tell the owner {number}.")
            return {"error": _told(failed)}, []
        finally:
            if wanted != "health" and (code or wanted != "known"):
                if code and principal:
                    self._rates.count(principal, "refusals")
                self._audit.request(began, principal, request, code, entry)

    def _principal(self, grants: Grants, token: object) -> str:
        """Return whose a token is, ours or that of the identity provider."""
        if self._login is None or str(token).startswith(PREFIX):
            return grants.principal_of(token, datetime.now(UTC))
        return grants.principal_of_subject(self._login(token), datetime.now(UTC))

    def _told(self, error: DpsqlError, principal: str) -> dict[str, object]:
        """Return what is told of an error; what is left of a whole budget, only to those who may see totals."""
        told = _told(error)
        if told["code"] == "B001":
            grants = self._ledger.grants().of(principal, datetime.now(UTC))
            if not all(grant.total for grant in grants):
                told["message"] = (
                    "the dataset's budget does not allow this. Ask with less, or repeat an earlier question."
                )
        return told

    # What may be wanted.

    def _call(self, asked: _Asked) -> Reply:
        function, source, granted = asked.function, asked.source, asked.granted(self._ledger)
        if function in ("dp_budget", "dp_estimate", SYNTHETIC_ROWS, "show_tables", "describe"):
            return {"receipts": []}, [self._told_table(function, asked, granted)]
        call = _Call(function, source, granted, asked, self._ledger)
        with self._context() as context:
            plan, entry = self._ledger.of_one_state(lambda: call.found(context))
            if plan is None:  # a query that reads nobody's rows
                return {"receipts": []}, [call.run(context)]
            if entry is not None:
                return self._given(call, context, plan, entry)
        # A new question: asked once for all who ask it now. Nobody who waits has a connection.
        with self._questions.alone(plan.release or ""), self._lines.alone(asked.principal, plan.charged):
            with self._context() as context:
                # Somebody may have asked it meanwhile; what is to be fresh is asked once more, unless it has a key.
                entry = context.check(plan)
                if entry is not None and (not asked.asker.fresh or asked.asker.key):
                    return self._given(call, context, plan, entry)
                if entry is not None:
                    plan = call.plan(context) or plan  # under its next name
                self._rates.take(asked.principal, "releases")
            # The next one in line begins when this answer leaves: no sooner, or it would tell how long this one took.
            with self._buckets.padded(), self._context() as context, self._watched(context, plan):
                return self._given(call, context)

    def _given(self, call: _Call, context: Context, plan: Plan | None = None, entry: int = 0) -> Reply:
        """Return what a call gives; an `entry` that answers a `plan` is read where nothing follows from a text."""
        is_whole = plan is not None and plan.function != QUERY and plan.placement is not None and plan.placement.seen
        release = context.release(entry) if is_whole else call.run(context)
        receipt = receipt_of(release, self._ledger)
        return {"receipts": [{**receipt, "cap_period": call.cap_period(receipt)}]}, [release.value]

    @contextmanager
    def _watched(self, context: Context, plan: Plan) -> Iterator[None]:
        """Charge what takes long, interrupt what takes too long, and end this process where that is of no use."""

        def interrupt() -> None:
            self._session.stop_named(plan.release)
            context.connection.interrupt()

        most = self._buckets.most(self._seconds)

        def end() -> None:
            self._session.charge_before_end(plan)
            self._end()

        with watched(most, charge=partial(self._session.reserve_named, plan), interrupt=interrupt, end=end):
            yield

    def _estimate(self, asked: _Asked) -> Reply:
        granted = asked.granted(self._ledger)
        call = _Call(asked.function, asked.source, granted, asked, self._ledger)
        with self._context() as context:
            return {"estimate": call.price(context, lambda error: self._told(error, asked.principal))}, []

    def _datasets(self, asked: _Asked) -> Reply:
        return {"datasets": asked.granted(self._ledger).listed()}, []

    def _describe(self, asked: _Asked) -> Reply:
        granted, name = asked.granted(self._ledger), asked.text("name")
        with self._context() as context:
            return {"describe": granted.described(name, context)}, []

    def _budget(self, asked: _Asked) -> Reply:
        return {"budget": asked.granted(self._ledger).budgets()}, []

    def _releases(self, asked: _Asked) -> Reply:
        own = own_releases(self._ledger, asked.granted(self._ledger))
        own = [one for one in own if one.sequence < asked.before]
        return {"releases": [stored_receipt(one, self._ledger) for one in own[-MOST_ENTRIES:]]}, []

    def _release(self, asked: _Asked) -> Reply:
        number = asked.request.get("number")
        granted = asked.granted(self._ledger)
        found = [one for one in own_releases(self._ledger, granted) if one.sequence == number and number is not True]
        if not found:
            raise GatewayError("G018", "you have no such release. List your releases.")
        with self._context() as context:
            release = context.release(found[0].sequence)
            return {"receipts": [{**stored_receipt(found[0], self._ledger), "result": found[0].result}]}, [
                release.value
            ]

    def _entries(self, asked: _Asked) -> Reply:
        """Return what an auditor sees: the last entries of the datasets, and who was granted what."""
        datasets = {grant.dataset for grant in asked.granted(self._ledger).grants if grant.role != ROLES[0]}
        entries = [
            asdict(one) for one in self._ledger.entries() if one.dataset in datasets and one.sequence < asked.before
        ]
        rows = [asdict(one) for one in self._ledger.granted_rows() if one.dataset in datasets]
        return {"ledger": entries[-MOST_ENTRIES:], "grants": rows}, []

    def _unplaced(self) -> list[dict[str, Any]]:
        with self._context() as context:
            found: list[dict[str, Any]] = context.dp_unplaced().to_pylist()
            return found

    def _told_table(self, function: str, asked: _Asked, granted: Granted) -> pa.Table:
        if function == "dp_budget":
            return granted.budget_table()
        if function == "show_tables":
            return pa.table({"name": pa.array(granted.names, pa.string())})
        with self._context() as context:
            if function == "describe":
                return granted.columns(asked.source or "", context)
            if function == SYNTHETIC_ROWS:
                return synthetic_rows(context, own_releases(self._ledger, granted), asked.values(self._ledger, granted))
            return _estimated(context, asked.values(self._ledger, granted), granted)

    @contextmanager
    def _context(self) -> Iterator[Context]:
        context = self._contexts.get()
        try:
            yield context
        finally:
            self._contexts.put(context)


def _estimated(context: Context, given: dict[str, Any], granted: Granted) -> pa.Table:
    function, tree = given.pop("function", "dp_sis"), given.pop("tree", None)
    if "sql" in given:
        raise GatewayError("G012", "the text of a query is not taken here.")
    if tree is not None:
        given["sql"] = query_of(tree, granted.parts)
    elif function not in FUNCTIONS or not FUNCTIONS[str(function)].spends:
        raise GatewayError("G007", f"{show(function)} is none of the private functions. Name one, such as 'dp_count'.")
    return context.dp_estimate(str(function), **given)


def _code(told: object) -> str:
    return told if isinstance(told, str) and re.fullmatch(r"DPSQL-[A-Z][0-9]{3}", told) else "?"


class _Asked:
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
    def function(self) -> str:
        """The function that is asked for."""
        return self.text("function")

    @property
    def source(self) -> str | None:
        """The name that is asked about."""
        return None if self.request.get("source") is None else self.text("source")

    def granted(self, ledger: Any) -> Granted:
        """Return what the principal was granted; of one dataset, where the settings name it."""
        grants = self._grants.of(self.principal, datetime.now(UTC))
        wanted = self.settings.get("dataset")
        if wanted is not None:
            grants = [grant for grant in grants if grant.dataset == wanted]
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


class _Call:
    """One call of a private function."""

    def __init__(self, function: str, source: str | None, granted: Granted, asked: _Asked, ledger: Any) -> None:
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
        taken = QUERY if is_query else function
        self._state("epsilon", asked.settings.get("epsilon"), next((g.default_epsilon for g in grants), None))
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

    def plan(self, context: Context) -> Plan | None:
        """Return the plan of the call; None if it reads nobody's rows."""
        context = context.asked_by(self._asker)
        if self._is_query:
            with standing_in(self._tree, self._source, context.sql):
                self._planned = context.planned_query(self._source, dict(self._arguments))
            return None if self._planned is None else self._planned.plan
        return context.planned(self._function, self._source, dict(self._arguments))

    def found(self, context: Context) -> tuple[Plan | None, int | None]:
        """Return the plan, and the entry that answers it already; errors as of `Context.check`."""
        plan = self.plan(context)
        return plan, None if plan is None else context.check(plan)

    def run(self, context: Context) -> Any:
        """Return the release."""
        context = context.asked_by(self._asker)
        if self._planned is not None:
            return context.run_planned(self._planned)
        if self._is_query:
            return context.query(self._source, **self._arguments)
        return getattr(context, self._function)(self._source, **self._arguments)

    def price(self, context: Context, told: Callable[[DpsqlError], dict[str, object]]) -> dict[str, Any]:
        """Return what the call would cost, and what is `told` of the error that would refuse it."""
        plan = self.plan(context)
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


def _told(error: DpsqlError) -> dict[str, object]:
    told: dict[str, object] = {"code": error.code.removeprefix("DPSQL-"), "message": error.message}
    for name in ("position", "hint"):
        if getattr(error, name, None) is not None:
            told[name] = getattr(error, name)
    return told
