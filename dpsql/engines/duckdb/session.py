"""The shared state of all connections of one DuckDB instance: the ledger, the running calls, and their releases.

Functions registered in DuckDB belong to the whole instance, so their state does too. A call lives from its gate, which
checks types and budget, to its release; in between, a ticket connects its parts.

**Releases.** While the statement of a release runs, DuckDB's messages about rows are hidden, and every call that read
rows is charged. Statements of threads that share a DuckDB connection take turns, and each runs exactly once. A query of
plain SQL from Python is planned on a connection as its macro plans it, and runs once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import duckdb
import numpy as np
import pyarrow as pa

from dpsql.contract.arguments import EPSILON
from dpsql.contract.call import Call
from dpsql.contract.events import composed
from dpsql.contract.fold import Collector
from dpsql.contract.grant_fields import Asker
from dpsql.contract.measurement import NOTHING, Draw, Permit
from dpsql.contract.names import source_sql
from dpsql.contract.parameters import plain_value, show
from dpsql.contract.plan import Plan
from dpsql.contract.query.privacy_options import CLAUSE
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage.aggregates import Around
from dpsql.engines.duckdb.lineage.placing import refuse_lost_keys
from dpsql.engines.duckdb.lineage.sources import Sources
from dpsql.engines.duckdb.lineage.texts import Catalogued
from dpsql.engines.duckdb.planner import EngineRegistry, Planned, Planner
from dpsql.engines.duckdb.query_planner import QueryPlanner, QueryStatement, query_lines, text_of
from dpsql.engines.duckdb.releases import PastReleases
from dpsql.engines.duckdb.running import (
    Calls,
    Collecting,
    Result,
    RunningCall,
    Statistic,
    may_be_long,
    protection,
    row_text,
)
from dpsql.errors import BudgetError, DpsqlError, InternalError, ParameterError, SourceError, original
from dpsql.functions.estimate import of_query, query_to_estimate
from dpsql.functions.query import QueryCall, QueryPlan
from dpsql.functions.registry import MODELS, function_of
from dpsql.ledger.ledger import Charge, Ledger
from dpsql.ledger.location import LedgerPlace, is_url
from dpsql.ledger.rows import Entry
from dpsql.parsing import with_call
from dpsql.progress import Progress, interruptible
from dpsql.released.model import LinearModel

# A session drops calls that died between gate and release (DuckDB aborted the query), oldest first. It also drops
# releases that their statement may still request.
_MOST_CALLS = 4096
# Seconds without a new batch until a call with stored rows counts as dead, checked when the next call begins.
_DEAD_AFTER = 3600.0
FAILED = (
    "failed after it read the table. A charge stands, and nothing was released. "
    "Report it with the versions that `dpsql doctor` shows."
)
FAILED_ON_ENGINE = (
    "failed after it asked the engine for rows. A charge stands, and nothing was released. Check that all files of the "
    "source are there, unchanged since it was opened, and of the same types; and report it if it stays."
)
FAILED_ON_FILES = (
    "failed after it asked for rows of files or frames. A charge stands, and nothing was released. Let the owner check "
    "that all files of the source are there, undamaged, and have the same columns and types."
)


def failure_of(plan: Plan) -> str:
    """Return what to say of a call that failed after it may have read rows; it follows from the source alone."""
    placement = plan.placement
    if placement is not None and placement.engine:
        return FAILED_ON_ENGINE
    reads_files = placement is not None and placement.governed and (bool(placement.files) or not placement.seen)
    return FAILED_ON_FILES if reads_files else FAILED


class Session(Calls):
    """The shared state of one DuckDB instance.

    Parameters
    ----------
    ledger : Ledger
        Where charges go.
    sources : Sources
        Knows the budgets of the instance's tables.
    engines : EngineRegistry
        Knows the engines that calls name.
    strict : bool
        Refuse datasets that were never protected.
    location : str, optional
        The ledger's location as the caller gave it.
    """

    def __init__(
        self,
        ledger: Ledger,
        sources: Sources,
        engines: EngineRegistry,
        *,
        strict: bool,
        location: str | PathLike[str] | None = None,
    ) -> None:
        self.ledger = ledger
        self.sources = sources
        self.engines = engines
        self.past = PastReleases(ledger)
        self.planner = Planner(ledger, sources, engines, self.past)
        self.queries = QueryPlanner(ledger, sources, self.past)
        self._location = LedgerPlace.of(location)
        self.strict = strict
        self._calls: OrderedDict[int, RunningCall] = OrderedDict()
        self._released: OrderedDict[int, Entry] = OrderedDict()
        self._opened = 0
        self._lock = threading.Lock()
        self._functions: dict[str, Callable[..., object]] = {}
        # The calls that each thread planned for an explanation, by thread.
        self._planned: dict[int, list[Planned]] = {}

    def function(self, name: str, bind: Callable[[Session], Callable[..., object]]) -> Callable[..., object]:
        """Return a SQL function bound to this session."""
        function = self._functions.get(name)
        return self._functions.setdefault(name, silent(bind(self))) if function is None else function

    def uses(self, location: str | PathLike[str]) -> bool:
        """Whether a location names the ledger of this session."""
        mine, other = self._location, LedgerPlace.of(location)
        if mine is None or other is None or is_url(mine) or is_url(other):
            return mine == other
        return Path(location).resolve() == Path(mine).resolve()

    def gate(self, plan: Plan, texts: Catalogued, *, runs: bool = True) -> Plan:
        """Check a call again when it runs; return its plan with the digest of the texts behind its source.

        Functions that it calls count only if it `runs` and does not read a stored release.
        """
        self.sources.refuse_stale(plan.placement)
        catalog = self.sources.catalog()  # refuses a database of another ledger, even without protected tables here
        placement = plan.placement
        if runs and placement is not None and placement.governed:
            self.sources.read_functions(placement, texts, catalog)
        if placement is not None and not placement.is_plain:
            views = self.sources.read_texts(placement, texts, catalog)
            if not placement.direct:
                plan = replace(plan, placement=replace(placement, views=views))
        if placement is not None:
            self.sources.refuse_other_tables(placement.free, texts.numbers)
        return plan

    def gate_query(self, plan: QueryPlan, texts: Catalogued, *, runs: bool = True) -> None:
        """Check a query again when it runs: declarations since the plan, and the texts behind its views."""
        self.sources.refuse_stale(plan.placement)
        catalog = self.sources.catalog()
        placement = plan.placement
        if placement is None:
            return
        refuse_lost_keys(placement, texts)
        if runs and placement.governed:
            self.sources.read_functions(placement, texts, catalog)
        if not placement.is_plain:
            items = {part.plan.placement.joined for part in plan.parts if part.plan.placement is not None}
            self.sources.read_query_texts(placement, sorted(items), texts, catalog)
        self.sources.refuse_other_tables(placement.free, texts.numbers)

    def stored_query(self, plan: QueryPlan, texts: Catalogued) -> Entry:
        """Return the stored answers of a query, and record the replay in the ledger."""
        self.gate_query(plan, texts, runs=False)
        entry = self.past.replay(plan)
        if entry is None:
            raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
        self._note_replay(plan, entry)
        return entry

    def _note_replay(self, plan: Plan, entry: Entry) -> None:
        """Record the replay of a stored release; the gateway records its own replays in its log."""
        if plan.principal is None:
            self.ledger.note_replay(plan.dataset, plan.function, plan.release or "", entry)

    def admit(self, plan: Plan, around: Around, texts: Catalogued) -> Plan:
        """Check a call of the aggregate form when it runs; return its plan with the origin of its rows."""
        placement = self.sources.place_aggregate(around, texts, plan.dataset, is_named=plan.release is not None)
        plan = replace(plan, dataset=placement.charged[0], placement=placement)
        self.check(plan)
        return plan

    def model(self, key: object, dataset: str | None = None) -> LinearModel:
        """Return a released model; for parameters and errors see `PastReleases.model`."""
        return self.past.model(key, dataset)

    @contextmanager
    def planning(self) -> Iterator[list[Planned]]:
        """Collect the calls that this thread plans in the `with` block; no budget refuses them there."""
        here = threading.get_ident()
        outer, planned = self._planned.get(here), list[Planned]()
        self._planned[here] = planned
        try:
            yield planned
        finally:
            if outer is None:
                del self._planned[here]
            else:
                self._planned[here] = outer

    def note(
        self, function: str, plan: Plan, *, aggregate: bool, lines: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """Record a planned call for an explanation, or raise if the budgets do not allow it.

        `lines` returns its explanation in addition to the cost, line by line, and the SQL.
        """
        planned = self._planned.get(threading.get_ident())
        # The name's meaning is unknown until the statement runs.
        is_named = aggregate and plan.release is not None
        if planned is None:
            if not is_named:
                self.check(plan)
            return
        replays = not aggregate and self.past.replay(plan) is not None
        refusal = ""
        try:
            self.check(plan)
        except BudgetError as error:
            refusal = str(error)
        planned.append(Planned(function, plan, aggregate, replays, refusal, () if lines is None else lines()))

    def check(self, plan: Plan) -> None:
        """Raise if the budgets do not allow the call now; charge nothing."""
        if plan.release is not None and (self.past.replay(plan) is not None or self._is_reserved(plan)):
            return
        self.ledger.check(self._charge(plan))

    def check_together(self, plans: Sequence[Plan]) -> None:
        """Raise if the budgets do not allow several calls together; charge nothing.

        The check treats different periods of one dataset as the same period.
        """
        for plan in plans:
            peers = [peer for peer in plans if set(peer.charged) & set(plan.charged)]
            charge = replace(self._charge(plan), name=None)
            self.ledger.check(replace(charge, event=composed([peer.event for peer in peers]), lineage=None))
            usual = [peer.event for peer in peers if EPSILON.name in peer.defaults]
            if EPSILON.name in plan.defaults:  # a day bounds what those calls spend that state no epsilon
                self.ledger.check(replace(charge, event=composed(usual)))

    def _is_reserved(self, plan: Plan) -> bool:
        """Whether a driver that died or still runs has charged a call of several passes on an engine."""
        return plan.engine is not None and plan.readings > 1 and self.ledger.is_reserved(self._charge(plan))

    def stored(self, plan: Plan, texts: Catalogued | None = None) -> Entry:
        """Return the stored result of a named release, and record the replay in the ledger.

        `texts` is None for an engine's source, which has no texts in DuckDB's catalog.
        """
        plan = self.gate(plan, Catalogued() if texts is None else texts, runs=False)
        entry = self.past.replay(plan)
        if entry is None:
            raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
        views = (entry.lineage or {}).get("views", "")
        if plan.placement is not None and not plan.placement.seen and views and views != plan.placement.views:
            raise ParameterError(
                "P014",
                f"release {show(plan.release)} holds the result of another text of the views that it reads: "
                "`dpsql show` tells which. Give this call another name.",
            )
        self._note_replay(plan, entry)
        return entry

    def open_call(self, call: Call, function: str) -> int:
        """Start a call; return its ticket."""
        ticket = secrets.randbits(62)  # a number, because every row carries it
        with self._lock:
            self._forget_the_dead()
            self._opened += 1
            collector = call.start()
            collecting = None if collector is None else Collecting(collector)
            measurement = call.plan.measurement if function_of(function).spends else NOTHING
            running = RunningCall(call, function, self._opened, collecting, permit=Permit(measurement))
            self._calls[ticket] = running
            if len(self._calls) > _MOST_CALLS:
                self._calls.popitem(last=False)
        if call.plan.principal is not None and may_be_long(call.plan):
            self.reserve(running)
        return ticket

    def open_query(self, call: QueryCall) -> tuple[int, tuple[int, ...]]:
        """Start a query and all its parts; return its ticket and theirs.

        The query pays for its parts' samples and failures: the query and its parts share a permit.
        """
        ticket = self.open_call(call, call.plan.function)
        query = self.running(ticket)
        with self._lock:
            for part in call.calls:
                collector = part.start()
                collecting = None if collector is None else Collecting(collector)
                running = RunningCall(part, query.function, query.number, collecting, permit=query.permit, query=query)
                number = secrets.randbits(62)
                self._calls[number] = running
                query.parts = (*query.parts, number)
        return ticket, query.parts

    def _forget_the_dead(self) -> None:
        """Free the rows of calls whose statement DuckDB aborted silently."""
        latest = time.monotonic() - _DEAD_AFTER
        for ticket, call in list(self._calls.items()):
            if call.collecting is not None and call.touched < latest and call.is_idle:
                del self._calls[ticket]

    def running(self, ticket: int, *, private: bool | None = None) -> RunningCall:
        """Return the call of a ticket; for parameters see `Calls.running`."""
        with self._lock:
            call = self._calls.get(ticket)
        if call is None or (private is not None and private != call.spends):
            raise InternalError("I002", "the call is no longer running. Run the statement again.")
        return call

    def close_call(self, ticket: int) -> None:
        """Forget a call after its release or failure."""
        with self._lock:
            call = self._calls.pop(ticket, None)
            for part in () if call is None else call.parts:
                self._calls.pop(part, None)

    def release_once(self, ticket: int, work: Callable[[RunningCall], Entry]) -> Entry:
        """Return a call's release; `work` makes it the first time.

        DuckDB may evaluate a release again within one statement (2.0 does under a correlated subquery): the release is
        the same, without another draw or charge.
        """
        with self._lock:
            entry = self._released.get(ticket)
        if entry is not None:
            return entry
        running = self.running(ticket, private=True)
        with running.lock:
            if running.entry is not None:
                return running.entry
            try:
                entry = running.entry = work(running)
            finally:
                self.close_call(ticket)
            with self._lock:
                self._released[ticket] = entry
                if len(self._released) > _MOST_CALLS:
                    self._released.popitem(last=False)
            return entry

    def finish(self, ticket: int, running: RunningCall, statistic: Statistic) -> Entry:
        """Release a call with a complete statistic: the long work, then charge and draw in one transaction."""
        call = running.call

        def prepare(_: RunningCall) -> Callable[[], object]:
            with Progress(running.function, running.stopped) as progress:
                draw: Callable[[], object] | Draw = call.prepare(statistic, progress)
                if isinstance(draw, Draw):
                    running.permit.reduce(draw.measurement)
                return draw.run if isinstance(draw, Draw) else draw

        return self.release(running, self.guarded(ticket, prepare))

    def turn(self, ticket: int, number: int, complete: Callable[[RunningCall], Collector]) -> None:
        """End a pass over the rows, once: draw for the next pass.

        Parameters
        ----------
        ticket : int
        number : int
            The number of the ending pass, from 1.
        complete : callable
            Returns the pass's collector, once it has every row.
        """

        def work(running: RunningCall) -> None:
            with running.turning:
                if running.passed >= number:  # DuckDB may evaluate a function more than once
                    return
                if running.passed + 1 != number:
                    raise TypeError("a pass was left out")
                with Progress(running.function, running.stopped) as progress:
                    ended = complete(running)
                    running.call = running.call.after(ended)
                    collector = running.call.turn(ended, progress)
                running.collecting, running.batches, running.passed = Collecting(collector), 0, number
                running.touched = time.monotonic()

        self.guarded(ticket, work)

    @property
    def opened(self) -> int:
        """Number of calls beyond their gate."""
        return self._opened

    def fail_open_calls(self, plan: Plan, since: int) -> bool:
        """Charge, without a result, a plan's calls whose statement DuckDB aborted; return whether there was one."""
        with self._lock:
            dead = [
                (ticket, call) for ticket, call in self._calls.items() if call.number > since and call.call.plan == plan
            ]
        for ticket, running_call in dead:
            self._charge_failure(running_call)
            self.close_call(ticket)
        return bool(dead)

    def guarded(self, ticket: int, work: Callable[[RunningCall], Result], *, private: bool | None = None) -> Result:
        """Run a part of a call that reads rows; if it fails, commit the charge without a result.

        So the part may sample at the call's cost: the next pass, or the long work, may need it.

        Raises
        ------
        InternalError
            Replaces any exception, its text and its context: the gate has refused all failures that depend on public
            values, so a failure here may depend on rows.
        """
        running = self.running(ticket, private=private)
        try:
            with running.permit.drawing():
                return work(running)
        except BaseException as failure:
            self._charge_failure(running)
            if not isinstance(failure, Exception):
                raise
        raise InternalError("I001", f"{running.function} {failure_of(running.call.plan)}")

    def release(self, running: RunningCall, draw: Callable[[], object]) -> Entry:
        """Charge a call and draw in one durable transaction."""
        call = running.call
        with running.charging:
            charge = self._charge(call.plan, running.permit)
            entry = self.ledger.charge(charge, draw, remark=call.remark, reservation=running.reservation)
        if running.function in MODELS:
            self.past.forget_models()
        return entry

    def _running_as(self, name: str | None) -> list[RunningCall]:
        with self._lock:
            calls = list(self._calls.values())
        return [call for call in calls if name is not None and call.call.plan.release == name]

    def reserve_named(self, plan: Plan) -> None:
        """Charge all uncharged running calls with a plan's name in full: their process may end."""
        for running in self._running_as(plan.release):
            with running.charging:
                if running.reservation is None and not running.charged and running.entry is None:
                    self.reserve(running)

    def charge_before_end(self, plan: Plan) -> None:
        """Charge a plan's calls before the process ends, both before and after their gate."""
        if self._running_as(plan.release):
            self.reserve_named(plan)
        else:
            self.charge_lost(plan)

    def stop_named(self, name: str | None) -> None:
        """Let calls with a name fail at the next step of their long work."""
        for running in self._running_as(name):
            running.stopped.set()

    def reserve(self, running: RunningCall) -> Entry | None:
        """Charge a call in full before its first draw, because its process may end, or its draws leave the process.

        Returns
        -------
        entry : Entry or None
            The result of the same named release, if another driver has it by now; this charges nothing.

        Raises
        ------
        BudgetError
            The budgets do not allow the call.
        """
        entry = self.ledger.reserve(self._charge(running.call.plan, running.permit))
        if entry.replayed:
            return entry
        running.reservation = entry.sequence
        return None

    def _charge(self, plan: Plan, permit: Permit | None = None) -> Charge:
        """Return the charge of a call: its permit's measurement, or the whole plan."""
        return Charge(
            dataset=plan.dataset,
            event=plan.event if permit is None else permit,
            function=plan.function,
            arguments=plan.public_arguments,
            name=plan.release,
            strict=self.strict,
            row=row_text(plan),
            lineage=plan.lineage,
            also=plan.charged[1:],
            traced=plan.traced,
            older=None if plan.release is None else self.past.older(plan),
            during=plan.during,
            principal=plan.principal,
            **protection(plan),
        )

    def _charge_failure(self, running: RunningCall) -> None:
        running = running.query or running
        with running.charging:  # several threads read rows of one call; charge the call once
            first, running.charged = not running.charged, True
            if first and running.spends:
                self.charge_lost(running.call.plan, running.reservation)

    def charge_lost(self, plan: Plan, reservation: int | None = None) -> None:
        """Charge a call that may have read rows, without a result."""
        self.ledger.charge_failure(self._charge(plan), reservation=reservation)


def silent(function: Callable[..., object]) -> Callable[..., object]:
    """Return a SQL function without NumPy's warnings, which could reveal facts about rows on stderr."""

    @wraps(function)
    def call(*arguments: object) -> object:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return call


# One lock per connection: DuckDB gives one thread's result to another thread's fetch.
_locks: WeakKeyDictionary[duckdb.DuckDBPyConnection, threading.RLock] = WeakKeyDictionary()
_locking = threading.Lock()


class Turns:
    """Runs the statements of all threads that share a connection, one after another."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        with _locking:
            self._lock = _locks.setdefault(connection, threading.RLock())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other thread use the connection; raise Ctrl-C as KeyboardInterrupt, not as DuckDB's error."""
        with interruptible(), self._lock:
            yield

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement other than a release, and return its rows."""
        with self.alone():
            return self.connection.execute(statement, values).fetchall()

    def columns(self, source: str) -> list[str]:
        """Return a source's column names; none if DuckDB cannot read the source."""
        try:
            return [row[0] for row in self.rows(f"DESCRIBE FROM {source_sql(source)}")]
        except (duckdb.Error, DpsqlError):
            return []

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [name for [name] in self.rows("SELECT table_name FROM system.main.duckdb_tables()")]

    def plans(self, queries: Iterable[str], *, optimize: bool = False) -> list[tuple[str, str]]:
        """Return queries with DuckDB's plans of them; run none."""
        listed = list(queries)
        parameters = "?, optimize := true" if optimize else "?"
        return list(zip(listed, self._of_each(f"json_serialize_plan({parameters})", listed), strict=True))

    def trees(self, queries: Sequence[str]) -> list[str]:
        """Return DuckDB's parse trees of queries."""
        return self._of_each("json_serialize_sql(?)", queries)

    def _of_each(self, function: str, queries: Sequence[str]) -> list[str]:
        """Return a system function's result for each query, with one statement for all."""
        if not queries:
            return []
        [row] = self.rows(f"SELECT {', '.join([f'system.main.{function}::VARCHAR'] * len(queries))}", *queries)
        return list(row)

    def table(self, statement: str) -> pa.Table:
        """Run a statement and return its rows as an Arrow table; raise dpsql's own errors unwrapped."""
        with unwrapped(), self.alone():
            # A relation runs its query at every fetch, and this is the only one.
            relation = self.connection.sql(statement)
            return pa.table({}) if relation is None else relation.to_arrow_table()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise dpsql's own errors without DuckDB's wrapper."""
    try:
        yield
    except duckdb.Error as error:
        ours = original(error)
        if ours is None:
            raise
        raise ours from None


# DuckDB errors from binding names, or for a busy connection, before it reads any row.
NAMING_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ParserException,
    *((duckdb.ResourceInUseException,) if hasattr(duckdb, "ResourceInUseException") else ()),  # from 2.0
)


class AfterReleaseError(Exception):
    """A statement failed after its release was stored and charged, in the part after the answers."""


def run_release(
    session: Session, turns: Turns, statement: str, plan: Plan, released: Callable[[], bool] = lambda: False
) -> pa.Table:
    """Run a release; hide DuckDB's messages about rows, and charge a call that read rows.

    `released` says whether the release is stored, if its statement goes on after that.

    Raises
    ------
    AfterReleaseError
        The release is stored; no further charge is due.
    SourceError
        The source does not exist, or DuckDB cannot read it.
    InternalError
        DuckDB failed after the call had passed its gate, for example while it evaluated the source's view.
    """
    before = session.opened
    try:
        return turns.table(statement)
    except KeyboardInterrupt:
        session.fail_open_calls(plan, before)
        raise
    except duckdb.Error as error:
        stopped = isinstance(error, duckdb.InterruptException)
        failed = session.fail_open_calls(plan, before)
        if not failed and not stopped and released():
            raise AfterReleaseError from None
        if failed or (not stopped and _charge_unless_refused(session, turns, statement, plan, error)):
            raise InternalError("I001", f"{plan.function} {failure_of(plan)}") from None
        reason = str(error).splitlines()[0] if isinstance(error, NAMING_ERRORS) else "DuckDB cannot read it."
        check = "Check the source's name" + ("." if plan.condition is None else ", and the types in the condition.")
        raise SourceError("S001", f"source {show(plan.source)}: {reason} {check}") from None


def _charge_unless_refused(session: Session, turns: Turns, statement: str, plan: Plan, error: duckdb.Error) -> bool:
    """Charge a call without a result, if its statement binds: then it failed on a row, before its gate.

    DuckDB 2.0 may compute a view of a single row before it asks the gate. An error on a row also aborts the caller's
    transaction, so nothing binds afterwards; of the binding errors only an unreadable file aborts it.
    """
    try:
        turns.rows(f"EXPLAIN {statement}")
    except duckdb.TransactionException:
        if isinstance(error, duckdb.TransactionException | duckdb.IOException):
            return False
    except KeyboardInterrupt:  # outcome unknown
        session.charge_lost(plan)
        raise
    except duckdb.Error:
        return False
    session.charge_lost(plan)
    return True


_SETTINGS = (
    "SELECT system.main.current_setting('search_path'), system.main.current_database(), "
    "system.main.current_setting('TimeZone'), system.main.json_serialize_sql(?)::VARCHAR"
)


@dataclass(frozen=True)
class Answered:
    """The answer of a query.

    Attributes
    ----------
    value : pyarrow.Table
    plan : QueryPlan or None
        None if the query reads no protected rows and so costs nothing.
    entry : Entry or None
        Its ledger entry.
    replayed : bool
        Whether the answer was already stored, so that it cost nothing.
    """

    value: pa.Table
    plan: QueryPlan | None = None
    entry: Entry | None = None
    replayed: bool = False


def planned_query(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object], asker: Asker | None = None
) -> tuple[QueryStatement | None, str]:
    """Return a query's statement, or only its text if it reads no protected rows; read and charge nothing."""
    return session.queries.plan(*_bound(session, turns, sql, arguments), asker)


def expected_query(
    session: Session, turns: Turns, arguments: Mapping[str, object]
) -> list[dict[str, str | float | None]]:
    """Return the cost of a query and the noise of its columns, by the arguments of ``dp_estimate``."""
    with turns.alone():
        return of_query(session.queries.expected(*_bound(session, turns, *query_to_estimate(arguments))))


def _bound(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object]
) -> tuple[object, str, Mapping[str, object], list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return a query, its tree, its arguments, and DuckDB's plans of its tables and of its written texts."""
    sql = text_of(sql)
    arguments = {name: plain_value(value) for name, value in arguments.items()}
    [(search_path, database, zone, tree)] = turns.rows(_SETTINGS, with_call(sql) if CLAUSE.search(sql) else sql)
    seen = turns.plans(session.queries.tables(sql, tree, search_path, database, zone))
    texts = session.queries.cores(sql, tree, arguments, seen)
    pairs = zip(turns.plans(texts), turns.trees(texts), strict=True)
    return sql, tree, arguments, seen, [(text, plan, syntax) for (text, plan), syntax in pairs]


def run_query(
    session: Session,
    turns: Turns,
    sql: object,
    arguments: Mapping[str, object],
    before: Callable[[QueryStatement], None] | None = None,
    asker: Asker | None = None,
) -> Answered:
    """Return the answer of a query: run and charged, or read from the ledger.

    `sql` is the query's text, or the result of `planned_query`. `before` runs once the budget allows the query and
    before rows are read; it does not run for a stored answer.
    """
    with turns.alone():
        statement, free = (
            (sql, "") if isinstance(sql, QueryStatement) else planned_query(session, turns, sql, arguments, asker)
        )
        if statement is None:
            return Answered(_computed(turns, free, has_details=False))
        session.note(statement.plan.function, statement.plan, aggregate=False, lines=lambda: query_lines(statement))
        stored = session.past.replay(statement.plan)
        if stored is None and before is not None:
            before(statement)
        if stored is None:
            value = _released(session, turns, statement)
        else:
            value = _computed(turns, statement.stored_sql())
    entry = stored or session.past.replay(statement.plan)
    if entry is None:
        raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
    return Answered(value, statement.plan, entry, stored is not None)


def _released(session: Session, turns: Turns, statement: QueryStatement) -> pa.Table:
    """Return the final result of a query after running and charging it."""
    try:
        return run_release(
            session, turns, statement.sql(), statement.plan, lambda: session.past.replay(statement.plan) is not None
        )
    except AfterReleaseError:
        # Run again over the stored answers: DuckDB's messages then reveal only these answers.
        return _computed(turns, statement.stored_sql())


def _computed(turns: Turns, statement: str, *, has_details: bool = True) -> pa.Table:
    """Return the result of a statement that reads no protected rows.

    Raises
    ------
    ParameterError
        P108: it fails; with DuckDB's text if it `has_details`.
    """
    try:
        return turns.table(statement)
    except DpsqlError:
        raise
    except (duckdb.InterruptException, KeyboardInterrupt):
        raise
    except duckdb.Error as error:
        reason = f": {str(error).strip().splitlines()[0].rstrip('.!')}" if has_details else ""
    note = " The answers are stored, so that it is free." if has_details else ""
    raise ParameterError(
        "P108", f"what the query computes of its answers fails{reason}. Mend that, and ask again.{note}"
    )
