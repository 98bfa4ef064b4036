"""What the broker does for one request: everything is checked here again, as if whoever asks were hostile.

A request is a token, what is wanted, and JSON values. No SQL of a stranger comes this far: a query comes as the tree of
its text, of which the desk writes a text of its own.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from dpsql.context import Context
from dpsql.contract.grant_fields import ROLES
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.installation import session_of
from dpsql.errors import DpsqlError, GatewayError, InternalError
from dpsql.functions.registry import FUNCTIONS, QUERY
from dpsql.gateway.audit import Audit
from dpsql.gateway.frames import MOST_ENTRIES
from dpsql.gateway.functions import SYNTHETIC_ROWS
from dpsql.gateway.granted import Granted
from dpsql.gateway.least import LeastEpsilon
from dpsql.gateway.limits import Buckets, Lines, Questions, Rates
from dpsql.gateway.owned import OwnersDesk
from dpsql.gateway.receipts import own_releases, receipt_of, stored_receipt
from dpsql.gateway.requests import AskedCall, Request
from dpsql.gateway.synthetic_tables import synthetic_rows
from dpsql.gateway.values import query_of
from dpsql.gateway.watchdog import end_process, watched
from dpsql.ledger import clock
from dpsql.ledger.grants import PREFIX, Grants

# Statements of one database that may run side by side.
CONNECTIONS = 4
# Plain SQL has no argument to give it in.
_NO_EPSILON = (
    "epsilon is missing, which is what the answer may spend. Send it beside the statement, such as 0.5, or write "
    "SET epsilon = 0.5 where there is a session, or epsilon := 0.5 in a private call."
)
_SECONDS = 120.0

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
    least : LeastEpsilon, optional
        The least that a new statement spends.
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
        least: LeastEpsilon | None = None,
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
        self._least = LeastEpsilon() if least is None else least
        self._questions = Questions()
        self._contexts: SimpleQueue[Context] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._contexts.put(Context(context.connection.cursor()))
        self._wants: dict[str, Callable[[Request], Reply]] = {
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
            reply = work(Request(principal, grants, request))
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
            return grants.principal_of(token, clock.now())
        return grants.principal_of_subject(self._login(token), clock.now())

    def _told(self, error: DpsqlError, principal: str) -> dict[str, object]:
        """Return what is told of an error; what is left of a whole budget, only to those who may see totals."""
        told = _told(error)
        if told["code"] == "B001":
            grants = self._ledger.grants().of(principal, clock.now())
            if not all(grant.total for grant in grants):
                told["message"] = (
                    "the dataset's budget does not allow this. Ask with less, or repeat an earlier question."
                )
        return told

    # What may be wanted.

    def _call(self, asked: Request) -> Reply:
        """Answer the private calls of one statement: all of them are checked before one of them reads a row."""
        answers: list[Reply | AskedCall] = [self._looked_up(one) for one in asked.calls]
        if any(isinstance(one, AskedCall) for one in answers):
            answers = self._asked_anew(asked.principal, answers)
        given = [one for one in answers if not isinstance(one, AskedCall)]
        receipts = [receipt for reply, _ in given for receipt in reply["receipts"]]
        return {"receipts": receipts}, [table for _, tables in given for table in tables]

    def _looked_up(self, asked: Request) -> Reply | AskedCall:
        """Return the answer of a call that is free, or the call of a new question."""
        function, granted = asked.function, asked.granted(self._ledger)
        if function in ("dp_budget", "dp_estimate", SYNTHETIC_ROWS, "show_tables", "describe"):
            return {"receipts": []}, [self._told_table(function, asked, granted)]
        call = AskedCall(function, asked.source, granted, asked, self._ledger)
        with self._context() as context:
            plan, entry = self._ledger.of_one_state(lambda: call.found(context))
            if plan is None:  # a query that reads nobody's rows
                return {"receipts": []}, [call.run(context)]
            return call if entry is None else self._given(call, context, plan, entry)

    def _asked_anew(self, principal: str, answers: list[Reply | AskedCall]) -> list[Reply | AskedCall]:
        """Return the answers of a statement, once its new questions are asked.

        A statement costs the least epsilon, whatever happens to one of its calls. So the budgets, the caps and the
        rates allow all of its calls, before the first one reads a row, and nobody else charges its datasets meanwhile;
        the call with the largest epsilon is the first one; and after a call has failed, the others are answered still.
        """
        asked = {one.name: one for one in answers if isinstance(one, AskedCall)}
        self._least.refuse(list(asked.values()), self._ledger.policy)
        datasets = [dataset for one in asked.values() for dataset in one.plan.charged]
        found: dict[AskedCall, Reply] = {}
        failures: list[Exception] = []
        with ExitStack() as held:
            # A question is asked once for all who ask it now. Nobody who waits has a connection.
            for name in sorted(asked):
                held.enter_context(self._questions.alone(name))
            held.enter_context(self._lines.alone(principal, datasets))
            with self._context() as context:
                # Somebody may have asked meanwhile.
                new = [one for one in asked.values() if self._is_new(one, context)]
                self._least.refuse(new, self._ledger.policy)
                if len(new) > 1:
                    self._session.check_together([one.plan for one in new])
                for _ in new:
                    self._rates.take(principal, "releases")
            calls = [one for one in answers if isinstance(one, AskedCall)]
            for call in sorted(calls, key=lambda one: -one.plan.epsilon):
                try:
                    found[call] = self._released(call)
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0]
        return [found[one] if isinstance(one, AskedCall) else one for one in answers]

    def _is_new(self, call: AskedCall, context: Context) -> bool:
        """Whether no stored answer answers a call; a call that asks anew has its next name then."""
        if context.check(call.plan) is None:
            return True
        if call.asks_anew:
            call.plan_of(context)
        return call.asks_anew

    def _released(self, call: AskedCall) -> Reply:
        with self._context() as context:
            if not self._is_new(call, context):
                return self._given(call, context)
        # The next one in line begins when this answer leaves: no sooner, or it would tell how long this one took.
        with self._buckets.padded(), self._context() as context, self._watched(context, call.plan):
            return self._given(call, context)

    def _given(self, call: AskedCall, context: Context, plan: Plan | None = None, entry: int = 0) -> Reply:
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

    def _estimate(self, asked: Request) -> Reply:
        """Return the price of each private call of a statement, and what would refuse it."""
        calls = [
            AskedCall(one.function, one.source, one.granted(self._ledger), one, self._ledger) for one in asked.calls
        ]
        new, prices = {}, []
        with self._context() as context:
            for call in calls:
                plan = call.plan_of(context)
                prices.append(call.price(context, plan, lambda error: self._told(error, asked.principal)))
                if not prices[-1]["free"]:
                    new[call.name] = call
        try:
            self._least.refuse(list(new.values()), self._ledger.policy)
        except GatewayError as error:
            for price in prices:
                price["refusal"] = price.get("refusal") or (
                    None if price["free"] else self._told(error, asked.principal)
                )
        return {"estimate": prices if "calls" in asked.request else prices[0]}, []

    def _datasets(self, asked: Request) -> Reply:
        listed = asked.granted(self._ledger).listed()
        return {"datasets": [{**one, "least_epsilon": str(float(self._least.amount))} for one in listed]}, []

    def _describe(self, asked: Request) -> Reply:
        granted, name = asked.granted(self._ledger), asked.text("name")
        with self._context() as context:
            return {"describe": granted.described(name, context)}, []

    def _budget(self, asked: Request) -> Reply:
        return {"budget": asked.granted(self._ledger).budgets()}, []

    def _releases(self, asked: Request) -> Reply:
        own = own_releases(self._ledger, asked.granted(self._ledger))
        own = [one for one in own if one.sequence < asked.before]
        return {"releases": [stored_receipt(one, self._ledger) for one in own[-MOST_ENTRIES:]]}, []

    def _release(self, asked: Request) -> Reply:
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

    def _entries(self, asked: Request) -> Reply:
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

    def _told_table(self, function: str, asked: Request, granted: Granted) -> pa.Table:
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


def _told(error: DpsqlError) -> dict[str, object]:
    told: dict[str, object] = {"code": error.code.removeprefix("DPSQL-"), "message": error.message}
    if error.message.startswith("epsilon is missing"):
        told["message"] = _NO_EPSILON
    for name in ("position", "hint"):
        if getattr(error, name, None) is not None:
            told[name] = getattr(error, name)
    return told
