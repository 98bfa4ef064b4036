"""Answer one request in the broker: check everything again, as if the client were hostile.

A request is a token, the kind of request, and JSON values. No foreign SQL reaches the desk: a query arrives as a
syntax tree, and the desk writes its own text from the tree. The principal who released a synthetic table reads its rows
for free, because they come from stored numbers.

A watchdog charges a long release before its end, and ends a release that takes too long. The duration of a release
depends on rows, and so does whether the watchdog ends it. So its whole cost is in the ledger, as a reservation, before
the watchdog has a visible effect:

==================  =======================================================================
after `CHARGED`     the release is reserved, if it was not when it began
after its limit     it is interrupted: it fails, and costs the reservation
`PATIENCE` later    the broker's process is killed. The next broker finds the reservation
                    and ends it; a repeated question is charged again
==================  =======================================================================

All new private calls of a statement together must spend a least epsilon. The response time depends on rows. A client
could repeat a question that costs almost nothing, and the response times would reveal the values behind the noise. The
least epsilon gives every observed time a price. It covers the whole statement: the parts of a query, and several
private calls, count together. Stored answers count nothing; otherwise a stored answer could carry a new question of any
epsilon.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import pyarrow as pa

from dpsql.context import Context
from dpsql.contract.grant_fields import ROLES, USUAL_AGE, Asker
from dpsql.contract.parameters import fold, show
from dpsql.contract.plan import Plan
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.installation import session_of
from dpsql.engines.duckdb.query_planner import QueryStatement
from dpsql.engines.duckdb.synthetic_table import read_count, read_seed
from dpsql.errors import DpsqlError, GatewayError, InternalError, ParameterError
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of
from dpsql.gateway.audit import Audit
from dpsql.gateway.frames import MOST_ENTRIES
from dpsql.gateway.functions import MOST_CALLS, SYNTHETIC_ROWS
from dpsql.gateway.granted import Granted
from dpsql.gateway.limits import Buckets, Lines, Questions, Rates
from dpsql.gateway.owned import OwnersDesk, own_releases, receipt_of, stored_receipt
from dpsql.gateway.values import query_of, standing_in, values_of
from dpsql.ledger import clock
from dpsql.ledger.budget import Budget
from dpsql.ledger.caps import NO_DATASET
from dpsql.ledger.grants import PREFIX, Grants
from dpsql.ledger.rows import StoredRelease

USUAL = Fraction(1, 100)
# A Gaussian's rho grows at least as fast as this power of epsilon, slightly below the square.
_POWER = 1.8


class NewCall(Protocol):
    """A private call without a stored answer; see `dpsql.gateway.desk.AskedCall`."""

    plan: Plan
    in_call: bool

    @property
    def epsilon_text(self) -> str:
        """The epsilon, as written."""


@dataclass(frozen=True)
class LeastEpsilon:
    """The minimum epsilon that a statement's new private calls spend together.

    Attributes
    ----------
    amount : Fraction
        0 for none.
    """

    amount: Fraction = USUAL

    def refuse(self, calls: Sequence[NewCall], budget_of: Callable[[str], Budget | None]) -> None:
        """Raise unless the new calls of a statement together spend the least epsilon.

        Parameters
        ----------
        calls : sequence of NewCall
            Each question once. An empty sequence spends nothing and passes.
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
        least, total = _text(self.amount), sum(call.plan.epsilon for call in calls)
        spends = f"epsilon {calls[0].epsilon_text} is"
        if len(calls) > 1:
            spends = f"the {len(calls)} new private calls of this statement spend epsilon {_text(total)}, which is"
        enough = _text(self.amount / len(calls))
        if total >= self.amount:  # a budget in rho charges the call less than pure noise
            spends += f" charged at a rho below epsilon²/2 of {least}, and so"
            enough = f"{max(float(call.plan.epsilon) for call in calls) * share ** (-1 / _POWER):.3g}"
        write = f"epsilon := {enough} in {'each' if len(calls) > 1 else 'the'} call"
        if not calls[0].in_call:
            write = f"SET epsilon = {enough}, or send epsilon {enough} beside the statement"
        return (
            f"{spends} below epsilon {least}, the least that this gateway takes for a new statement. Write {write}. "
            "Questions that were answered before stay free."
        )

    def _share(self, plan: Plan, budget_of: Callable[[str], Budget | None]) -> Fraction:
        """Return the call's fraction of the least epsilon: the minimum over its datasets."""
        return min(self._of_dataset(plan, budget_of(dataset)) for dataset in plan.charged)

    def _of_dataset(self, plan: Plan, budget: Budget | None) -> Fraction:
        rho = plan.event.cost.rho
        if budget is None or budget.rho is None or rho is None:
            return plan.epsilon / self.amount
        return rho / (self.amount**2 / 2)


def _text(amount: Fraction | int) -> str:
    return f"{float(amount):.12g}"


_STATED = ("engine", "release", "dataset")
_OF_CALL = ("function", "source", "arguments")
_most_age_hours = 24 * 366


class Request:
    """A request with a known principal."""

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
        """Return a string of the request."""
        text = self.request.get(name)
        if not isinstance(text, str):
            raise GatewayError("G012", f"{name} must be a text.")
        return text

    @property
    def before(self) -> float:
        """The entry number below which entries are listed."""
        entry = self.request.get("before")
        if entry is not None and (not isinstance(entry, int) or entry is True):
            raise GatewayError("G012", "before must be the number of an entry.")
        return math.inf if entry is None else entry

    @property
    def calls(self) -> list[Request]:
        """The private calls of one statement: this request's own call, or its listed calls."""
        listed = self.request.get("calls")
        if listed is None:
            return [self]
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CALLS:
            raise GatewayError("G012", f"calls must be a list of 1 to {MOST_CALLS} calls.")
        if not all(isinstance(call, Mapping) for call in listed):
            raise GatewayError("G012", "each call must have a function, a source and arguments.")
        rest = {name: value for name, value in self.request.items() if name not in ("calls", *_OF_CALL)}
        return [
            Request(self.principal, self._grants, {**rest, **{name: call.get(name) for name in _OF_CALL}})
            for call in listed
        ]

    @property
    def function(self) -> str:
        """The requested function."""
        return self.text("function")

    @property
    def source(self) -> str | None:
        """The requested source."""
        return None if self.request.get("source") is None else self.text("source")

    def granted(self, ledger: Any) -> Granted:
        """Return the principal's grants; only those on one dataset, if the settings name it."""
        grants = self._grants.of(self.principal, clock.now())
        dataset = self.settings.get("dataset")
        if dataset is not None:
            grants = [grant for grant in grants if grant.dataset == fold(dataset)]
        return Granted(self.principal, grants, ledger)

    def values(self, ledger: Any, granted: Granted) -> dict[str, Any]:
        """Return the arguments of the call."""

        def sequence_of(name: str) -> int:
            own = own_releases(ledger, granted)
            for release in own:
                if name in (str(release.sequence), release.name):
                    return release.sequence
            raise GatewayError("G018", "you have no such release. List your releases.")

        return values_of(self.request.get("arguments", {}), sequence_of)

    @property
    def epsilon_text(self) -> str | None:
        """The epsilon as written in the call, or next to the statement."""
        arguments = self.request.get("arguments")
        argument = arguments.get("epsilon") if isinstance(arguments, Mapping) else None
        return argument.get("number") if isinstance(argument, Mapping) else self.settings.get("epsilon")

    @property
    def asker(self) -> Asker:
        """The principal, and the maximum answer age."""
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
        age = float(hours)
    except ValueError:
        age = -1.0
    if not 0 <= age <= _most_age_hours:
        raise GatewayError("G012", "max_age must be a number of hours, such as 24.")
    return 3600 * age


class AskedCall:
    """One call of a private function.

    Attributes
    ----------
    plan : Plan
        The latest result of `plan_of`; unset before, and for a call that reads no private rows.
    in_call : bool
        Whether the call states epsilon, rather than a setting next to the statement.
    """

    plan: Plan

    def __init__(self, function: str, source: str | None, granted: Granted, request: Request, ledger: Any) -> None:
        is_query = function == QUERY
        if not is_query and (function not in FUNCTIONS or not FUNCTIONS[function].spends):
            raise GatewayError("G007", f"{show(function)} is none of the private functions. Ask dp_count('…').")
        arguments = request.values(ledger, granted)
        for name in _STATED:
            if name in arguments:
                raise GatewayError("G016", f"{name} is not stated in a call here.")
        for name in ("fresh", "max_age", "estimate", "sql"):
            if is_query and name in arguments:
                raise GatewayError("G016", f"{name} is not stated in a call here. Write SET.")
        self._function, self._is_query = function, is_query
        self._planned: QueryStatement | None = None
        if is_query:
            arguments.pop("free", None)
            names: list[str] = []

            def parts(name: str) -> tuple[str, ...]:
                names.append(name)
                return granted.parts(name)

            self._tree = arguments.pop("tree", None)
            self._source = query_of(self._tree, parts)
            if not names:  # the box computes queries without a table
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
        self._arguments, self._grants = arguments, grants
        self.in_call = arguments.get("epsilon") is not None
        self._epsilon_text = request.epsilon_text
        for name in ("epsilon", "delta"):
            setting = request.settings.get(name)
            if setting is not None and arguments.get(name) is None and name in _takes(QUERY if is_query else function):
                self._arguments |= values_of({name: {"number": setting}}, _none)
        share = bool(grants) and all(grant.share for grant in grants)
        self._asker = replace(
            request.asker, share=share, defaults=tuple(default for g in grants for default in g.defaults)
        )

    @property
    def epsilon_text(self) -> str:
        """The epsilon as written, or the default that the latest plan spends."""
        return show(self.plan.epsilon) if self._epsilon_text is None else self._epsilon_text

    def cap_period(self, receipt: Mapping[str, Any]) -> str | None:
        """Return the calendar period whose cap counts a release; None if the cap has no periods."""
        return next(
            (g.period_at(receipt["recorded_at"]) for g in self._grants if g.dataset == receipt["dataset"]), None
        )

    @property
    def name(self) -> str:
        """The name of its question; equal questions share it."""
        return self.plan.release or ""

    def plan_of(self, context: Context) -> Plan | None:
        """Return the plan of the call; None if it reads no private rows."""
        plan = self._plan_of(context)
        if plan is not None:
            self.plan = plan
        return plan

    def _plan_of(self, context: Context) -> Plan | None:
        context = context.asked_by(self._asker)
        if self._is_query:
            with standing_in(self._tree, self._source, context.sql):
                self._planned = context.planned_query(self._source, dict(self._arguments))
            return None if self._planned is None else self._planned.plan
        return context.planned(self._function, self._source, dict(self._arguments))

    def look_up(self, context: Context) -> tuple[Plan | None, int | None]:
        """Return the plan, and the entry that already answers it; errors as in `Context.check`."""
        plan = self.plan_of(context)
        return plan, None if plan is None else context.check(plan)

    @property
    def asks_anew(self) -> bool:
        """Whether the call refuses a stored answer."""
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
        self, context: Context, plan: Plan | None, describe: Callable[[DpsqlError], dict[str, object]]
    ) -> dict[str, Any]:
        """Return the cost of a plan's call, and the error that would refuse it, as `describe` formats it."""
        if plan is None:
            return {"function": self._function, "free": True, "epsilon": "0", "delta": "0"}
        cost, refusal = plan.event.cost, None
        try:
            free = context.check(plan) is not None
        except DpsqlError as error:
            free, refusal = False, describe(error)
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


# Seconds.
CHARGED, PATIENCE = 10.0, 10.0


@contextmanager
def watched(
    seconds: float,
    *,
    charge: Callable[[], None],
    interrupt: Callable[[], None],
    end: Callable[[], None],
    charged: float = CHARGED,
    patience: float = PATIENCE,
) -> Iterator[None]:
    """Watch the release in the ``with`` block.

    Parameters
    ----------
    seconds : float
        Time limit of the release.
    charge : callable
        Writes its reservation; if this fails, the release is interrupted.
    interrupt : callable
        Makes the release fail, which charges it; not called after its end.
    end : callable
        Ends the process; never called before the release is charged.
    charged, patience : float
        Seconds until the charge, and from the interrupt to the end of the process.
    """
    done, stopping = threading.Event(), threading.Lock()

    def watch() -> None:
        early = min(charged, seconds)
        if done.wait(early):
            return
        paid = _succeeds(charge)
        if paid and done.wait(seconds - early):
            return
        with stopping:  # never interrupt the connection's next statement
            if not done.is_set():
                interrupt()
        if not done.wait(patience) and paid and _succeeds(charge):  # the release may have begun late
            end()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with stopping:
            done.set()


def end_process() -> None:
    """Kill this process without handlers or cleanup: one of its threads does not answer."""
    os.kill(os.getpid(), signal.SIGKILL)


def _succeeds(charge: Callable[[], None]) -> bool:
    try:
        charge()
    except Exception:  # the budgets no longer allow it, or the ledger cannot be written
        return False
    return True


# Per answer.
_MOST_CELLS = 2_000_000


def synthetic_rows(context: Context, own: Sequence[StoredRelease], arguments: Mapping[str, Any]) -> pa.Table:
    """Return rows of a synthetic table.

    Parameters
    ----------
    context : Context
    own : sequence of StoredRelease
        The principal's releases.
    arguments : mapping
        The arguments of the call: the number of the release, and n and seed.

    Raises
    ------
    GatewayError
        G012, G018: there is another argument, or no such release.
    ParameterError
        P002, P013, P050: n or seed is invalid, or n is too large.
    """
    if others := sorted(set(arguments) - {"release", "n", "seed"}):
        raise GatewayError("G012", f"dp_synthetic_rows has no {others[0]}. Its arguments: release, n, seed.")
    key = arguments.get("release")
    number = str(key) if isinstance(key, (int, str)) and not isinstance(key, bool) else ""
    releases = [release for release in own if number == str(release.sequence) and release.function == "dp_synthetic"]
    if not releases:
        raise GatewayError("G018", "you have no such release of dp_synthetic. Its receipt has the number: its entry.")
    stored = releases[0]
    count, most = read_count(arguments.get("n")), _MOST_CELLS // len(stored.result["columns"])
    if (stored.result["rows"] if count is None else count) > most:
        raise ParameterError("P050", f"n must be at most {most} here. Ask again with another seed for more rows.")
    return context.dp_synthetic_rows(stored.sequence, n=count, seed=read_seed(arguments.get("seed")))


# Concurrent statements on one database.
CONNECTIONS = 4
# Plain SQL has no argument for epsilon.
_NO_EPSILON = (
    "epsilon is missing, which is what the answer may spend. Send it beside the statement, such as 0.5, or write "
    "SET epsilon = 0.5 where there is a session, or epsilon := 0.5 in a private call. Or ask the data's owner for a "
    "default, which questions without an epsilon spend (default_epsilon)."
)
_SECONDS = 120.0

Reply = tuple[dict[str, Any], list[pa.Table]]


class Desk:
    """Answers requests on one database.

    Parameters
    ----------
    context : Context
        On the database, with its ledger.
    audit : Audit
        The log of requests.
    rates : Rates, optional
    seconds : float
        Time limit of one release.
    buckets : Buckets, optional
        The times at which answers leave.
    login : callable, optional
        Returns the subject of an identity provider's token; None for an invalid token.
    least : LeastEpsilon, optional
        The minimum epsilon of a new statement.
    end : callable
        Ends this process, if a release cannot be interrupted.
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
        self._ledger.end_lost_reservations()  # of an earlier broker
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
        """Return the reply to a request; never raise, and reveal nothing of rows but releases."""
        began, principal, want = time.time(), "", request.get("want")
        entry: int | None = None
        code = ""
        try:
            if want == "health":
                return {"health": {"broker": "ok"}}, []
            grants = self._ledger.grants()
            principal = self._principal(grants, request.get("token"))
            self._rates.refuse(principal, "refusals")
            if want == "refused":  # the front refused a statement: count and log it
                code = _code(request.get("code"))
                return {}, []
            if want == "known":  # check the token, and return its principal
                return {"principal": principal}, []
            self._rates.take(principal, "requests")
            work = self._wants.get(want) if isinstance(want, str) else None
            if work is None:
                raise GatewayError("G098", "a message asks for nothing that the broker does.")
            reply = work(Request(principal, grants, request))
            entry = next((receipt.get("entry") for receipt in reply[0].get("receipts", ())), None)
            return reply
        except DpsqlError as error:
            code = error.code
            return {"error": self._refusal(error, principal)}, []
        except BaseException as error:
            number = secrets.token_hex(8)
            code = f"I000 {number}"
            self._audit.failure(number, error)
            failed = InternalError("I000", f"the call failed, and nothing more is said here. Tell the owner {number}.")
            return {"error": _error_fields(failed)}, []
        finally:
            if want != "health" and (code or want != "known"):
                if code and principal:
                    self._rates.count(principal, "refusals")
                self._audit.request(began, principal, request, code, entry)

    def _principal(self, grants: Grants, token: object) -> str:
        """Return the principal of our or the identity provider's token."""
        if self._login is None or str(token).startswith(PREFIX):
            return grants.principal_of(token, clock.now())
        return grants.principal_of_subject(self._login(token), clock.now())

    def _refusal(self, error: DpsqlError, principal: str) -> dict[str, object]:
        """Return the public fields of an error; show a budget's remainder only if the grants allow totals."""
        fields = _error_fields(error)
        if fields["code"] == "B001":
            grants = self._ledger.grants().of(principal, clock.now())
            if not all(grant.total for grant in grants):
                fields["message"] = (
                    "the dataset's budget does not allow this. Ask with less, or repeat an earlier question."
                )
        return fields

    # Kinds of requests.

    def _call(self, request: Request) -> Reply:
        """Answer the private calls of one statement; check all of them before the first reads a row."""
        answers: list[Reply | AskedCall] = [self._looked_up(call) for call in request.calls]
        if any(isinstance(answer, AskedCall) for answer in answers):
            answers = self._asked_anew(request.principal, answers)
        replies = [answer for answer in answers if not isinstance(answer, AskedCall)]
        receipts = [receipt for reply, _ in replies for receipt in reply["receipts"]]
        return {"receipts": receipts}, [table for _, tables in replies for table in tables]

    def _looked_up(self, request: Request) -> Reply | AskedCall:
        """Return the answer of a free call, or the call of a new question."""
        function, granted = request.function, request.granted(self._ledger)
        if function in ("dp_budget", "dp_estimate", SYNTHETIC_ROWS, "show_tables", "describe"):
            return {"receipts": []}, [self._told_table(function, request, granted)]
        call = AskedCall(function, request.source, granted, request, self._ledger)
        with self._context() as context:
            plan, entry = self._ledger.of_one_state(lambda: call.look_up(context))
            if plan is None:  # a query that reads nobody's rows
                return {"receipts": []}, [call.run(context)]
            return call if entry is None else self._reply(call, context, plan, entry)

    def _asked_anew(self, principal: str, answers: list[Reply | AskedCall]) -> list[Reply | AskedCall]:
        """Return the answers of a statement, after its new questions ran.

        A statement costs the least epsilon, even if a call fails. So the budgets, the caps and the rates allow all
        calls before the first call reads a row, and nobody else charges the datasets meanwhile. The call with the
        largest epsilon runs first. After a call fails, the others still run.
        """
        questions = {answer.name: answer for answer in answers if isinstance(answer, AskedCall)}
        self._least.refuse(list(questions.values()), self._ledger.policy)
        datasets = [dataset for question in questions.values() for dataset in question.plan.charged]
        replies: dict[AskedCall, Reply] = {}
        failures: list[Exception] = []
        with ExitStack() as stack:
            # Concurrent equal questions run once. Waiting requests hold no connection.
            for name in sorted(questions):
                stack.enter_context(self._questions.alone(name))
            stack.enter_context(self._lines.alone(principal, datasets))
            with self._context() as context:
                # Another request may have answered a question meanwhile.
                new = [question for question in questions.values() if self._is_new(question, context)]
                self._least.refuse(new, self._ledger.policy)
                if len(new) > 1:
                    self._session.check_together([question.plan for question in new])
                for _ in new:
                    self._rates.take(principal, "releases")
            calls = [answer for answer in answers if isinstance(answer, AskedCall)]
            for call in sorted(calls, key=lambda question: -question.plan.epsilon):
                try:
                    replies[call] = self._released(call)
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0]
        return [replies[answer] if isinstance(answer, AskedCall) else answer for answer in answers]

    def _is_new(self, call: AskedCall, context: Context) -> bool:
        """Return whether a call has no stored answer; a call that asks anew then gets its next name."""
        if context.check(call.plan) is None:
            return True
        if call.asks_anew:
            call.plan_of(context)
        return call.asks_anew

    def _released(self, call: AskedCall) -> Reply:
        with self._context() as context:
            if not self._is_new(call, context):
                return self._reply(call, context)
        # The next release in line begins when this answer leaves; an earlier start would reveal its duration.
        with self._buckets.padded(), self._context() as context, self._watched(context, call.plan):
            return self._reply(call, context)

    def _reply(self, call: AskedCall, context: Context, plan: Plan | None = None, entry: int = 0) -> Reply:
        """Return the reply of a call; read the `entry` of a `plan` if nothing depends on a query text."""
        is_whole = plan is not None and plan.function != QUERY and plan.placement is not None and plan.placement.seen
        release = context.release(entry) if is_whole else call.run(context)
        receipt = receipt_of(release, self._ledger)
        return {"receipts": [{**receipt, "cap_period": call.cap_period(receipt)}]}, [release.value]

    @contextmanager
    def _watched(self, context: Context, plan: Plan) -> Iterator[None]:
        """Charge a long release, interrupt one that takes too long, and end this process if the interrupt fails."""

        def interrupt() -> None:
            self._session.stop_named(plan.release)
            context.connection.interrupt()

        most = self._buckets.most(self._seconds)

        def end() -> None:
            self._session.charge_before_end(plan)
            self._end()

        with watched(most, charge=partial(self._session.reserve_named, plan), interrupt=interrupt, end=end):
            yield

    def _estimate(self, request: Request) -> Reply:
        """Return the price of each private call of a statement, and its refusal."""
        calls = [
            AskedCall(
                call_request.function,
                call_request.source,
                call_request.granted(self._ledger),
                call_request,
                self._ledger,
            )
            for call_request in request.calls
        ]
        new, prices = {}, []
        with self._context() as context:
            for call in calls:
                plan = call.plan_of(context)
                prices.append(call.price(context, plan, lambda error: self._refusal(error, request.principal)))
                if not prices[-1]["free"]:
                    new[call.name] = call
        try:
            self._least.refuse(list(new.values()), self._ledger.policy)
        except GatewayError as error:
            for price in prices:
                price["refusal"] = price.get("refusal") or (
                    None if price["free"] else self._refusal(error, request.principal)
                )
        return {"estimate": prices if "calls" in request.request else prices[0]}, []

    def _datasets(self, request: Request) -> Reply:
        listed = request.granted(self._ledger).listed()
        return {"datasets": [{**dataset, "least_epsilon": str(float(self._least.amount))} for dataset in listed]}, []

    def _describe(self, request: Request) -> Reply:
        granted, name = request.granted(self._ledger), request.text("name")
        with self._context() as context:
            return {"describe": granted.described(name, context)}, []

    def _budget(self, request: Request) -> Reply:
        return {"budget": request.granted(self._ledger).budgets()}, []

    def _releases(self, request: Request) -> Reply:
        own = own_releases(self._ledger, request.granted(self._ledger))
        own = [release for release in own if release.sequence < request.before]
        return {"releases": [stored_receipt(release, self._ledger) for release in own[-MOST_ENTRIES:]]}, []

    def _release(self, request: Request) -> Reply:
        number = request.request.get("number")
        granted = request.granted(self._ledger)
        releases = [
            own_release
            for own_release in own_releases(self._ledger, granted)
            if own_release.sequence == number and number is not True
        ]
        if not releases:
            raise GatewayError("G018", "you have no such release. List your releases.")
        with self._context() as context:
            release = context.release(releases[0].sequence)
            return {"receipts": [{**stored_receipt(releases[0], self._ledger), "result": releases[0].result}]}, [
                release.value
            ]

    def _entries(self, request: Request) -> Reply:
        """Return an auditor's view: the last entries of the datasets, and their grants."""
        datasets = {grant.dataset for grant in request.granted(self._ledger).grants if grant.role != ROLES[0]}
        entries = [
            asdict(entry)
            for entry in self._ledger.entries()
            if entry.dataset in datasets and entry.sequence < request.before
        ]
        rows = [asdict(granted_row) for granted_row in self._ledger.granted_rows() if granted_row.dataset in datasets]
        return {"ledger": entries[-MOST_ENTRIES:], "grants": rows}, []

    def _unplaced(self) -> list[dict[str, Any]]:
        with self._context() as context:
            rows: list[dict[str, Any]] = context.dp_unplaced().to_pylist()
            return rows

    def _told_table(self, function: str, request: Request, granted: Granted) -> pa.Table:
        if function == "dp_budget":
            return granted.budget_table()
        if function == "show_tables":
            return pa.table({"name": pa.array(granted.names, pa.string())})
        with self._context() as context:
            if function == "describe":
                return granted.columns(request.source or "", context)
            if function == SYNTHETIC_ROWS:
                return synthetic_rows(
                    context, own_releases(self._ledger, granted), request.values(self._ledger, granted)
                )
            return _estimated(context, request.values(self._ledger, granted), granted)

    @contextmanager
    def _context(self) -> Iterator[Context]:
        context = self._contexts.get()
        try:
            yield context
        finally:
            self._contexts.put(context)


def _estimated(context: Context, arguments: dict[str, Any], granted: Granted) -> pa.Table:
    function, tree = arguments.pop("function", "dp_sis"), arguments.pop("tree", None)
    if "sql" in arguments:
        raise GatewayError("G012", "the text of a query is not taken here.")
    if tree is not None:
        arguments["sql"] = query_of(tree, granted.parts)
    elif function not in FUNCTIONS or not FUNCTIONS[str(function)].spends:
        raise GatewayError("G007", f"{show(function)} is none of the private functions. Name one, such as 'dp_count'.")
    return context.dp_estimate(str(function), **arguments)


def _code(code: object) -> str:
    return code if isinstance(code, str) and re.fullmatch(r"DPSQL-[A-Z][0-9]{3}", code) else "?"


def _error_fields(error: DpsqlError) -> dict[str, object]:
    fields: dict[str, object] = {"code": error.code.removeprefix("DPSQL-"), "message": error.message}
    if error.message.startswith("epsilon is missing"):
        fields["message"] = _NO_EPSILON
    for name in ("position", "hint"):
        if getattr(error, name, None) is not None:
            fields[name] = getattr(error, name)
    return fields
