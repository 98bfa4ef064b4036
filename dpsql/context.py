"""Offer the SQL functions as Python methods, with the same names and arguments."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from dpsql.contract.boundary import public_methods
from dpsql.contract.grant_fields import Asker
from dpsql.contract.json import Json
from dpsql.contract.names import FRAME_PREFIX, NAMELESS, in_python, refuse_unknown
from dpsql.contract.parameters import show, text
from dpsql.contract.plan import Plan, engine_of
from dpsql.engines import driver
from dpsql.engines.attached import Attached, engines_of
from dpsql.engines.duckdb.explanation import explain
from dpsql.engines.duckdb.installation import connect, install, session_of
from dpsql.engines.duckdb.planner import condition_queries, release_sql
from dpsql.engines.duckdb.prediction import predictions_sql
from dpsql.engines.duckdb.query_frames import FrameRows, no_plain_sql, query_frame
from dpsql.engines.duckdb.query_planner import QueryStatement
from dpsql.engines.duckdb.releases import quantiles_asked, rows_asked, stored_rows, stored_sql, view_sql
from dpsql.engines.duckdb.session import (
    NAMING_ERRORS,
    Turns,
    expected_query,
    planned_query,
    run_query,
    run_release,
    unwrapped,
)
from dpsql.errors import DpsqlError, ParameterError, SourceError
from dpsql.functions.estimate import ESTIMATE, estimate
from dpsql.functions.noise_statement import noise_statement
from dpsql.functions.registry import DECLARATIONS, FUNCTIONS, QUERY, function_of
from dpsql.ledger.ledger import Entry, Ledger
from dpsql.ledger.location import LedgerPlace
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import StoredRelease, replay_of
from dpsql.manual.slips import mended, no_method, with_column
from dpsql.methods import ContextMethods
from dpsql.parsing import in_dp_query
from dpsql.released.model import LinearModel
from dpsql.released.release import Release
from dpsql.released.shapes import key_types
from dpsql.rendering import call
from dpsql.rendering import text as literal
from dpsql.udfs.release import releases


@public_methods(statements=("__init__", "sql", "explain"))
class Context(ContextMethods):
    """A DuckDB connection with dpsql installed, and its ledger.

    The methods take the arguments of the SQL functions of the same names, and return a `Release`. Threads may share a
    context: calls that DuckDB runs take turns on the connection, so all of them see its temporary tables and its
    transaction, and each uses all of DuckDB's threads. Calls on an engine run in parallel. For parallel DuckDB calls,
    give each thread ``Context(ctx.connection.cursor())``, which has the same ledger.

    Parameters
    ----------
    database : path or connection
        Database file, ``':memory:'``, or an open DuckDB connection, which the caller closes.
    ledger : path or URL, optional
        As for `dpsql.connect`.
    strict : bool
        As for `dpsql.connect`.
    engine : Attached, optional
        The engine of the sources of every call; by default DuckDB. `dpsql.polars.context` and similar functions set it.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
    ledger : Ledger
    """

    def __init__(
        self,
        database: str | PathLike[str] | duckdb.DuckDBPyConnection = ":memory:",
        *,
        ledger: str | PathLike[str] | None = None,
        strict: bool = False,
        engine: Attached | None = None,
    ) -> None:
        self._owned = not isinstance(database, duckdb.DuckDBPyConnection)
        ledger = LedgerPlace.of(ledger) or ledger
        if isinstance(database, duckdb.DuckDBPyConnection):
            self.connection = database
            self._session = install(database, ledger=ledger, strict=strict)
        else:
            self.connection = connect(database, ledger=ledger, strict=strict)
            self._session = session_of(self.connection)
        self.ledger: Ledger = self._session.ledger
        self._turns = Turns(self.connection)
        self._asker: Asker | None = None
        self._engine = engine
        if engine is not None:
            engines_of(self._session).attach(engine)

    def asked_by(self, asker: Asker | None) -> Context:
        """Return this context for one asker: equal questions in a scope share one answer, and dpsql checks grants."""
        other = copy(self)
        other._asker, other._owned = asker, False
        return other

    def dp_precision_recall(self, release: str | int | Release, dataset: str | None = None) -> pa.Table:
        """Return ``threshold``, ``precision``, ``recall`` of a released ROC curve; costs nothing."""
        return self._curve("dp_precision_recall", release, dataset)

    def dp_calibration(self, release: str | int | Release, dataset: str | None = None) -> pa.Table:
        """Return ``lower``, ``upper``, ``mean_score``, ``positive_rate``, ``rows`` of a released ROC curve, free."""
        return self._curve("dp_calibration", release, dataset)

    def dp_histogram_quantile(
        self, release: str | int | Release, quantiles: object = 0.5, dataset: str | None = None
    ) -> pa.Table:
        """Return ``keys``, ``quantile``, ``value``, ``lower``, ``upper``, ``verdict`` of a released histogram, free."""
        return self._curve("dp_histogram_quantile", release, dataset, quantiles_asked(quantiles))

    def dp_synthetic_rows(
        self, release: str | int | Release, n: int | None = None, seed: object = None, dataset: str | None = None
    ) -> pa.Table:
        """Return n rows of a released synthetic table, the same for the same public seed; costs nothing."""
        return self._curve("dp_synthetic_rows", release, dataset, *rows_asked(n, seed))

    def _curve(self, view: str, release: object, dataset: object, *more: str, by_name: bool = False) -> pa.Table:
        with self._errors_in_python():
            return self.sql(view_sql(view, getattr(release, "ledger_id", release), dataset, *more, by_name=by_name))

    def model(self, key: str | int | Release, dataset: str | None = None) -> LinearModel:
        """Return a released model, found by its release, the release's name, or its number in the ledger."""
        with self._errors_in_python():
            return self._session.model(key.ledger_id if isinstance(key, Release) else key, dataset)

    def release(self, key: str | int, dataset: str | None = None) -> Release:
        """Return a release of the ledger, by its name or its number; costs nothing.

        Parameters
        ----------
        key : str or int
        dataset : str, optional
            The charged budget, if two datasets have a release of that name.

        Raises
        ------
        ParameterError
            P030, P055: there is no such release, or more than one.
        """
        entries = self.ledger.releases((*FUNCTIONS, QUERY), dataset, key)
        if not entries:
            raise ParameterError("P030", f"nothing was released as {show(key)}. `dpsql ledger` lists what was.")
        if len(entries) > 1:
            raise ParameterError("P055", f"more than one dataset has a release {show(key)}. Give dataset as well.")
        stored = entries[0]
        return self._release_from(
            stored.sequence,
            lambda: stored,
            value=self._stored_rows(stored),
            function=stored.function,
            dataset=stored.dataset,
            guarantee=stored.guarantee,
            engine=engine_of(stored.lineage),
            replayed=True,
            replay=replay_of(stored.sequence, stored.recorded_at),
        )

    def _release_from(self, sequence: int, stored: Callable[[], StoredRelease], **fields: Any) -> Release:
        """Return a release; read its ledger data only when needed."""

        def statement() -> dict[str, Json]:
            entry = stored()
            return noise_statement(entry.function, entry.arguments, entry.result)

        return Release(
            event=self.ledger.event(sequence),
            ledger_id=sequence,
            stored=lambda: stored().result,
            said=statement,
            bound=lambda: in_force(stored().arguments),
            **fields,
        )

    if not TYPE_CHECKING:  # type checkers must see that there is no such method

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                return object.__getattribute__(self, name)
            raise AttributeError(
                no_method("ctx", name, {method for method in dir(Context) if method.startswith("dp_")})
            )

    def dp_models(self) -> pa.Table:
        """Return one row per model in the ledger."""
        return self.sql("SELECT * FROM dp_models()")

    def dp_predict(self, model: str | int | Release, source: object, *, dataset: str | None = None) -> Any:
        """Return the rows of a source with a column ``prediction``, as an Arrow table; costs nothing.

        On an engine the result is a lazy frame; the engine computes the predictions. For a classifier, ``prediction``
        is the likelier class, and ``probability`` the probability of its second class. A model of long rows gives one
        row per row id.

        Parameters
        ----------
        model
            As for `model`.
        source : str or frame
            A table, view or registered name with a column per feature, or a frame.
        dataset : str, optional
            As for `model`.
        """
        predictor = self.model(model, dataset)
        if self._engine is not None:
            return self._engine.predictions(predictor, source)
        with self._turns.alone(), self._as_table(source) as name:
            try:
                return self.sql(predictions_sql(predictor, name))
            except NAMING_ERRORS as error:
                reason = f"{str(error).splitlines()[0]} Check the source's columns."
                raise SourceError("S002", f"source {show(source)}: {reason}") from None

    def planned(self, function: str, source: object, arguments: Mapping[str, object]) -> Plan:
        """Return the checked plan of a call, such as ``'dp_count'``; read, draw and charge nothing.

        Raises
        ------
        DpsqlError
            The error of the call itself.
        """
        with self._errors_in_python(source), self._planned(function, source, dict(arguments)) as plan:
            return plan

    def planned_query(self, sql: str, arguments: Mapping[str, object]) -> QueryStatement | None:
        """Return a checked query of plain SQL, for `run_planned`; None if it reads no private rows."""
        with self._errors_in_python(), self._turns.alone():
            refuse_unknown(arguments, function_of(QUERY).plan.arguments, QUERY)
            return planned_query(self._session, self._plain_turns(), sql, arguments, self._asker)[0]

    def run_planned(self, planned: QueryStatement) -> Any:
        """Return the release of a planned query."""
        return self._query(planned, {})

    def check(self, plan: Plan) -> int | None:
        """Return the entry of a stored answer, which is free; else raise if grants or budgets refuse the call."""
        stored = self._session.past.replay(plan)
        if stored is None:
            self._session.check(plan)
        return None if stored is None else stored.sequence

    @contextmanager
    def _errors_in_python(self, source: object = None) -> Iterator[None]:
        """Make errors give the next step in Python (for a gateway in SQL), and name the intended column."""
        try:
            yield
        except DpsqlError as error:
            failure = with_column(error, lambda: self.columns_of(source))
            raise (failure if self._asker is not None else failure.saying(in_python(failure.message))) from None

    def columns_of(self, source: object) -> list[str]:
        """Return a source's column names, as messages show them; empty if the source is unreadable."""
        if isinstance(source, str):
            return self._turns.columns(source)
        names = getattr(source, "columns", None)
        return list(names) if isinstance(names, list) else []

    def _public_names(self, source: object = None) -> list[str]:
        """Return the names that messages show: columns of a source, and tables."""
        return [*self.columns_of(source), *self._turns.tables()]

    @contextmanager
    def _planned(self, function: str, source: object, arguments: dict[str, object]) -> Iterator[Plan]:
        """Yield the plan of a call; a frame has a name during the ``with`` block."""
        refuse_unknown(arguments, FUNCTIONS[function].plan.arguments, function)
        features = arguments.get("features")
        if isinstance(features, Release):
            arguments["features"] = {"release": features.ledger_id}
        if self._engine is not None:
            arguments.setdefault("engine", self._engine.name)
        with (
            self._turns.alone() if arguments.get("engine") is None else nullcontext(),
            self._as_table(source) as name,
        ):
            seen = self._plans(name, arguments) if arguments.get("engine") is None else None
            if not isinstance(source, str) and arguments.get("dataset") is None and not self._session.sources.governed:
                arguments["dataset"] = NAMELESS
            asker = self._asker
            if asker is not None:
                arguments["release"] = asker.scope  # a name, so that the plan records the meaning of its source
            granted = () if asker is None else asker.defaults
            plan = self._session.planner.plan(function, name, arguments, seen=seen, granted=granted)
            yield plan if asker is None else self._session.past.asked_by(plan, asker)

    def _release_of(self, function: str, source: object, arguments: dict[str, object]) -> Release:
        """Run one release, like the SQL function of that name."""
        with self._errors_in_python(source), self._planned(function, source, arguments) as plan:
            self._session.check(plan)
            stored = self._session.past.replay(plan)
            release = self._released(plan, function, stored)
        sequence = release["sequence"].as_py()
        guarantee, _, again = release["guarantee"].as_py().partition("\n")
        return self._release_from(
            sequence,
            lambda: self._stored(function, sequence),
            value=self._value(function, sequence, release["entries"].values),
            function=function,
            dataset=plan.dataset,
            guarantee=guarantee,
            engine=engine_of(plan.lineage if stored is None else stored.lineage),
            replayed=stored is not None,
            replay=again,
        )

    def _query(self, sql: object, arguments: dict[str, object], rows: FrameRows | None = None) -> Release | pa.Table:
        """Run a query of plain SQL like `dp_query` in SQL, also over the rows of a frame."""
        with self._errors_in_python():
            refuse_unknown(arguments, function_of(QUERY).plan.arguments, QUERY)
            question = self._session, self._plain_turns(), sql, arguments
            answer = run_query(*question, asker=self._asker) if rows is None else query_frame(*question, rows)
        if answer.plan is None or answer.entry is None:
            return answer.value
        entry = answer.entry
        return self._release_from(
            entry.sequence,
            lambda: self._stored(QUERY, entry.sequence),
            value=answer.value,
            function=QUERY,
            dataset=answer.plan.dataset,
            guarantee=entry.guarantee,
            engine=None,
            replayed=answer.replayed,
            replay=replay_of(entry.sequence, entry.recorded_at) if answer.replayed else "",
            as_of=entry.recorded_at,
        )

    def _released(self, plan: Plan, function: str, stored: Entry | None) -> pa.StructScalar:
        """Return the release of a plan, in the form of SQL."""
        if plan.engine is not None:
            entry = driver.release(self._session, engines_of(self._session).named(plan.engine), plan)
            return releases(FUNCTIONS[function].shape, [entry])[0]
        types = () if stored is None else key_types(stored.result)
        statement = release_sql(plan, function) if stored is None else stored_sql(plan, types)
        return run_release(self._session, self._turns, statement, plan).column("release")[0]

    def _value(self, function: str, sequence: int, entries: pa.StructArray) -> pa.Table:
        """Return the rows of a release; keys of groups are columns with their own types."""
        shape = FUNCTIONS[function].shape
        if shape.has_keys:
            return self._stored_rows(self._stored(function, sequence))
        return pa.Table.from_struct_array(entries).cast(pa.schema(list(shape.arrow)))

    def _stored_rows(self, release: StoredRelease) -> pa.Table:
        with self._turns.alone(), self.connection.cursor() as cursor:
            return stored_rows(cursor, release)

    def _stored(self, function: str, sequence: int) -> StoredRelease:
        """Return a release's data in the ledger."""
        return self.ledger.releases([function], key=sequence)[0]

    def _unplaced(self, arguments: dict[str, object]) -> pa.Table:
        """Return the undeclared tables, like `dp_unplaced` in SQL."""
        with self._errors_in_python():
            refuse_unknown(arguments, DECLARATIONS["dp_unplaced"], "dp_unplaced")
        engine = self._with_engine(arguments).get("engine")
        argument = "" if engine is None else f"engine := {literal(text('engine', engine, hint='Give its name.'))}"
        return self.sql(f"FROM dp_unplaced({argument})")

    def _with_engine(self, arguments: dict[str, object]) -> dict[str, object]:
        """Return arguments, with the engine of the sources of every call."""
        return arguments if self._engine is None else {"engine": self._engine.name, **arguments}

    def _declare(self, function: str, table: str, arguments: dict[str, object], *more: object) -> str:
        """Call a declaring SQL function, with values as parameters; ``source=False`` says that there is no table."""
        arguments = arguments if arguments.get("source") is False else self._with_engine(arguments)
        with self._errors_in_python():
            refuse_unknown(arguments, DECLARATIONS[function], function)
            for name in (table, *more):
                if not isinstance(name, str | None):
                    hint = "What a frame holds is said in each call: dataset='...'."
                    raise ParameterError("P013", f"{function} takes names of tables; got {show(name)}. {hint}")
            names = ", ".join(f"{name} := ?" for name in arguments)
            marks = ", ".join("?" for _ in more)
            listed = ", ".join(part for part in ("?", marks, names) if part)
            values = [table, *more, *arguments.values()]
            with unwrapped():
                rows = self._turns.rows(f"SELECT {function}({listed})", *values)
            return str(rows[0][0])

    def dp_budget(self, *, details: bool = False) -> pa.Table:
        """Return one row per dataset: what is spent, what remains; with `details`, how the accountant adds up."""
        return self.sql(f"SELECT * FROM dp_budget(details := {bool(details)})")

    def dp_policy(self, dataset: str | None = None) -> pa.Table:
        """Return what the data's owners stated, one row for each argument and column, of one dataset or of all.

        Parameters
        ----------
        dataset : str, optional
            A table's budget, or a public or derived table.
        """
        where = "" if dataset is None else f" WHERE dataset = {call('lower', literal(dataset))}"
        return self.sql(f"SELECT * FROM dp_policy(){where}")

    policy = dp_policy

    def dp_ledger(self) -> pa.Table:
        """Return one row per entry of the ledger."""
        return self.sql("SELECT * FROM dp_ledger()")

    def _estimate(self, function: str, arguments: dict[str, object]) -> pa.Table:
        """Return the cost and the noise of a call, like `dp_estimate` in SQL."""
        with self._errors_in_python():
            refuse_unknown(arguments, ESTIMATE, "dp_estimate")
            if function == QUERY:
                return pa.Table.from_pylist(expected_query(self._session, self._plain_turns(), arguments))
            return pa.Table.from_pylist(estimate(function, **arguments))

    def explain(self, statement: str) -> str:
        """Return the plan and the cost of a statement, as SQL with comments; read, draw and charge nothing."""
        with self._mending(statement), self._turns.alone():
            return explain(self._session, self.connection, statement)

    def sql(self, statement: str) -> pa.Table:
        """Run one statement, once, and return its rows; errors name the next step, also for errors of DuckDB."""
        with self._mending(statement):
            return self._turns.table(in_dp_query(statement))

    @contextmanager
    def _mending(self, statement: str) -> Iterator[None]:
        """Make errors of a statement name the next step."""
        try:
            yield
        except (duckdb.Error, DpsqlError) as error:
            raise mended(error, statement, self.columns_of) from None

    def close(self) -> None:
        """Close the connection if this context opened it."""
        if self._owned:
            self.connection.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plans(self, source: str, arguments: Mapping[str, object]) -> list[tuple[str, str]]:
        """Return the plans that SQL passes in addition to the arguments of a call, like `dpsql_lineage` there."""
        return [
            *self._turns.plans(self._queries(source, arguments.get("release"))),
            *self._turns.plans(condition_queries(source, arguments.get("condition")), optimize=True),
        ]

    def _queries(self, source: str, release: object) -> list[str]:
        """Return the queries whose plans show the tables of a source, if any budget exists."""
        sources = self._session.sources
        if not source or not (release is not None or sources.governed):
            return []
        settings = "SELECT system.main.current_setting('search_path'), system.main.current_database()"
        search_path, database = self._turns.rows(settings)[0]
        return sources.spellings(source, search_path, database) or []

    @contextmanager
    def _as_table(self, source: object) -> Iterator[str]:
        """Register a frame for the duration of a call."""
        if isinstance(source, str):
            yield source
            return
        name = f"{FRAME_PREFIX}{secrets.token_hex(6)}"
        if self._engine is not None:
            with self._engine.holding(name, source):
                yield name
            return
        try:
            self.connection.register(name, source)
        except (duckdb.Error, TypeError):
            raise SourceError("S009", f"source {show(type(source).__name__)} is neither a name nor a frame.") from None
        try:
            yield name
        finally:
            self.connection.unregister(name)

    def _plain_turns(self) -> Turns:
        """Return a runner for plain SQL, or raise if an engine has the rows."""
        if self._engine is not None:
            raise no_plain_sql()
        return self._turns

    def _query_rows(
        self, frame: object, sql: object, arguments: dict[str, object], of: Callable[[pa.Schema], FrameRows]
    ) -> Release | pa.Table:
        """Answer a query of an engine's frame, named ``self`` in SQL; `of` returns its rows, by its columns."""
        if self._engine is None:
            raise ParameterError("P074", "no engine holds the frame. Use a context of dpsql.polars.")
        with self._as_table(frame) as name:
            rows = of(self._engine.schema(frame))
            self._engine.place(self._session.sources, name, rows.dataset, None)  # refused if a row may be in many
        with self.connection.cursor() as cursor:
            return Context(cursor)._query(sql, arguments, rows)
