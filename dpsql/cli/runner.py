"""Hold one connection with dpsql installed, and execute each statement exactly once."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import duckdb
import pyarrow as pa
from rich.table import Table

from dpsql.cli.messages import say
from dpsql.cli.options import EngineOption
from dpsql.cli.output import Result, budget_view, ledger_view, policy_view
from dpsql.cli.stopping import noting_stops
from dpsql.context import Context
from dpsql.contract.parameters import near_names, show
from dpsql.errors import LedgerError
from dpsql.ledger.charge import Receipt
from dpsql.ledger.rows import replay_of
from dpsql.manual.demonstration import fill
from dpsql.manual.slips import mended
from dpsql.named_engine import attach_engine
from dpsql.progress import interrupt

T = TypeVar("T")


class RunnerOptions(TypedDict):
    """Options that the commands which open a database pass to `Runner`."""

    ledger: str | None
    engines: Sequence[EngineOption]
    read_only: bool
    strict: bool


class Runner:
    """A DuckDB connection with dpsql installed, and its ledger.

    Parameters
    ----------
    database : str
        Path of a DuckDB file, or ``':memory:'``.
    ledger : str, optional
        Path or URL; next to the database by default.
    engines : sequence of EngineOption
        Engines to attach.
    read_only : bool
        Open the database without write access; the ledger is still written.
    strict : bool
        Refuse releases from datasets without a budget.
    create : bool
        Make a missing database.

    Raises
    ------
    LedgerError
        L055: the database does not exist.

    Attributes
    ----------
    receipts : list of Receipt
        Receipts of the calls of the last statement, even if it failed.
    stopped : BaseException or None
        The exception of a Ctrl-C or SIGTERM during the last statement.
    """

    def __init__(
        self,
        database: str = ":memory:",
        *,
        ledger: str | None = None,
        engines: Sequence[EngineOption] = (),
        read_only: bool = False,
        strict: bool = False,
        create: bool = True,
    ) -> None:
        if not create:
            _refuse_missing(database)
        connection = duckdb.connect(database, read_only=read_only)
        try:
            self.context = Context(connection, ledger=ledger, strict=strict)
            # A misspelt table must not resolve to a Python variable of this program.
            connection.execute("SET python_enable_replacements = false")
            for option in engines:
                attach_engine(self.context, option.name, option.engine())
        except BaseException:
            connection.close()
            raise
        self.connection = connection
        self.ledger = self.context.ledger
        self.database = database
        self.stopped: BaseException | None = None
        self.receipts: list[Receipt] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the ledger."""
        try:
            self.connection.close()
        finally:
            self.ledger.close()

    @property
    def place(self) -> str:
        """The places of the database and of the ledger."""
        return f"database {self.database}, ledger {self.ledger.location}"

    def budgets(self) -> Table:
        """Return each dataset's limit, spent and remaining budget."""
        return budget_view(self.ledger.budgets())

    def policies(self, *dataset: str) -> Table:
        """Return the owners' declarations."""
        return policy_view(self.ledger.policies(*dataset))

    def entries(self, *dataset: str) -> Table:
        """Return the entries of the ledger."""
        return ledger_view(self.ledger.entries(*dataset))

    def explain(self, statement: str) -> str:
        """Return the plan and the cost of a statement."""
        return self.context.explain(statement)

    def fill(self) -> list[str]:
        """Make the example tables."""
        return fill(self.context)

    def execute(self, statement: str) -> Result | None:
        """Run one statement, once, and fetch its rows.

        Parameters
        ----------
        statement : str
            One SQL statement.

        Returns
        -------
        result : Result or None
            None for a statement without rows, such as CREATE.

        Raises
        ------
        KeyboardInterrupt, Terminated
            Ctrl-C or SIGTERM stopped the statement. The runner can go on.
        DpsqlError, duckdb.Error
            The statement failed; the message names the next step if dpsql knows it (`dpsql.manual.slips`).

        Notes
        -----
        A late signal does not discard the result, which may be a charged release; `raise_if_stopped` raises for the
        signal.
        """
        self.receipts = []
        with self.ledger.watch(self.receipts.append):
            return self.interruptibly(lambda: self._run(statement), self.connection)

    def say_receipts(self, *, private: bool = False) -> None:
        """Print the calls of the last statement that the ledger answered, and the cost of a `private` statement."""
        for receipt in self.receipts:
            if receipt.replayed:
                say(replay_text(receipt))
            elif private:
                say(f"{receipt.function}: {receipt.guarantee}")

    def raise_if_stopped(self) -> None:
        """Raise if Ctrl-C or SIGTERM came during the last statement, too late to stop it."""
        if self.stopped is not None:
            raise self.stopped

    def _run(self, statement: str) -> Result | None:
        started = time.perf_counter()
        try:
            self.connection.execute(statement)
        except Exception as error:
            failure = mended(error, statement, self.context.columns_of)
            raise (
                self._with_no_database(failure) if isinstance(failure, duckdb.CatalogException) else failure
            ) from None
        names = [column[0] for column in self.connection.description or ()]
        with warnings.catch_warnings():
            # DuckDB 2.0 says that this copies the rows. A relation would not, but each read would run it again.
            warnings.simplefilter("ignore")
            table: pa.Table = self.connection.to_arrow_table()
        seconds = time.perf_counter() - started
        parsed = self.connection.extract_statements(statement)
        kind = parsed[0].type.name
        says_done = names == ["Success"] and table.num_rows == 0
        says_how_many = names == ["Count"] and len(parsed[0].expected_result_type) > 1
        if kind != "SELECT" and (says_done or says_how_many):
            return None
        return Result(table, kind == "EXPLAIN" and table.num_columns == 2, seconds)

    def interruptibly(self, work: Callable[[], T], connection: duckdb.DuckDBPyConnection) -> T:
        """Run `work` on another thread, so that a signal can interrupt DuckDB on a connection."""
        outcome: list[T] = []
        failure: list[BaseException] = []
        finished = threading.Event()

        def target() -> None:
            try:
                outcome.append(work())
            except BaseException as error:
                failure.append(error)
            finally:
                finished.set()

        with noting_stops() as stop:
            threading.Thread(target=target, daemon=True).start()
            while not finished.wait(0.05):
                if stop.requested is not None:
                    # Repeat: DuckDB loses an interrupt that comes before it begins to execute.
                    connection.interrupt()
                    interrupt()
        self.stopped = stop.requested
        if failure:
            if self.stopped is not None:
                raise self.stopped from failure[0]
            raise failure[0]
        return outcome[0]

    def _with_no_database(self, error: Exception) -> Exception:
        """Return an error about a table with the option that was forgotten, if no database is open."""
        with self.connection.cursor() as cursor:
            if self.database != ":memory:" or cursor.execute("SELECT 1 FROM duckdb_tables()").fetchone():
                return error
        step = "No database file is open: add --db FILE, or start the shell as dpsql shell FILE."
        return type(error)(f"{str(error).rstrip()}\n\n{step}")


def replay_text(receipt: Receipt) -> str:
    """Return the message for a replayed release."""
    name = receipt.function if receipt.release is None else f"{receipt.function} {receipt.release!r}"
    return f"{name}: {replay_of(receipt.entry, receipt.recorded_at)}; nothing was charged."


def protects(statements: str) -> bool:
    """Whether statements may create a database: they give a table its budget."""
    return "dp_protect" in statements.lower()


def _refuse_missing(database: str) -> None:
    """Raise if a database is missing: a misspelt name would otherwise get a new database with an empty ledger."""
    path = Path(database)
    if database == ":memory:" or "://" in database or path.exists():
        return
    names = [file.name for file in path.parent.glob("*.*db")] if path.parent.is_dir() else []
    near = near_names(path.name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise LedgerError(
        "L055",
        f"there is no database {show(database)}.{hint} "
        "A new one begins with an empty ledger: give --create to make it.",
    )
