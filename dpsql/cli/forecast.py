"""Forecast the cost of a job from the public arguments of its calls; read no row, draw and charge nothing.

The forecast plans each statement like `dpsql explain`, on its own connection. It runs statements that only define
something, such as CREATE VIEW, in a transaction that it rolls back, so that later statements find the definition; it
makes a table without its rows. It skips all other statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TypeVar

import duckdb

from dpsql.cli.job_statement import SEVERAL, JobError, JobStatement
from dpsql.cli.messages import is_expected
from dpsql.cli.runner import Runner
from dpsql.context import Context
from dpsql.contract.events import UNITS_PER_ONE, loss_text, units_text
from dpsql.contract.parameters import show
from dpsql.contract.periods import spans
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.explanation import planned_calls
from dpsql.engines.duckdb.installation import install
from dpsql.engines.duckdb.planner import Planned
from dpsql.errors import BudgetError, ParameterError, original
from dpsql.ledger.blocks import Blocks, of_person
from dpsql.ledger.budget import Spent, refuse_contradiction
from dpsql.ledger.charge import refuse_charge
from dpsql.ledger.rows import BudgetRow, State, total_row
from dpsql.manual.slips import mended

T = TypeVar("T")
# DuckDB plans these statements in full without running them.
_PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "COPY", "CREATE")
# These statements make or change names and read no row; a rollback undoes them, or they belong to the connection.
_DEFINES = re.compile(
    r"(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:TEMP|TEMPORARY)\s+)?(?:VIEW|MACRO|FUNCTION|SCHEMA|SEQUENCE|TABLE)"
    r"|DROP|USE|ATTACH|LOAD)\b",
    re.IGNORECASE,
)
_MAKES_TABLE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:TEMP|TEMPORARY)\s+)?TABLE\b", re.IGNORECASE)
_MAY_QUERY = re.compile(r"\bAS\b", re.IGNORECASE)
# These statements change rows, but no name that a later statement may need; the job's own transactions change neither.
_HARMLESS = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "TRANSACTION", "EXPLAIN")
_GROUPS = re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE)
_RECURS = re.compile(r"\bRECURSIVE\b", re.IGNORECASE)
_DECLARES = re.compile(r"\bdp_(?:protect|derive|public)\b", re.IGNORECASE)
_REPLACES = re.compile(r"\breplace\b", re.IGNORECASE)
_NOT_YET_RELEASED = "DPSQL-P030"


@dataclass(frozen=True)
class ExpectedCall:
    """The expected cost of one private call of a job.

    Attributes
    ----------
    function : str
    source : str or None
    datasets : tuple of str
        The budgets that the call would charge.
    release : str or None
        The release's name.
    loss : str
        The cost to each budget, in words: an upper bound, because some calls may end early.
    epsilon, delta, rho : float or None
        The same cost in numbers; 0 for a replay.
    replay : str
        The release that the call would return again at no cost; ``''`` for a new release.
    blocks : tuple of str
        The periods that the call charges this cost each, as spans; empty if the dataset has no periods.
    """

    function: str
    source: str | None
    datasets: tuple[str, ...]
    release: str | None
    loss: str
    epsilon: float | None
    delta: float | None
    rho: float | None
    replay: str = ""
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExpectedStatement:
    """The expected cost of one statement; `unknown` says why only a run shows the cost."""

    statement: int
    line: int
    calls: tuple[ExpectedCall, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class ExpectedBudget:
    """The budget of one dataset after a job, in words, if the job costs no more than the known costs.

    With periods it is the loss that one person may have over all periods.
    """

    dataset: str
    remaining: str
    job: str
    after: str


@dataclass(frozen=True)
class Forecast:
    """The expected cost of a job.

    Attributes
    ----------
    statements : tuple of ExpectedStatement
    budgets : tuple of ExpectedBudget
    refusal : JobError or None
        Why the job cannot finish: dpsql would refuse a statement, whatever earlier statements do.
    """

    statements: tuple[ExpectedStatement, ...]
    budgets: tuple[ExpectedBudget, ...]
    refusal: JobError | None

    @property
    def is_whole(self) -> bool:
        """Whether the cost of every statement is known."""
        return not any(statement.unknown for statement in self.statements)


def forecast(runner: Runner, statements: Sequence[JobStatement]) -> Forecast:
    """Return the cost of statements if they ran now in order; read, draw and charge nothing."""

    def rehearse() -> Forecast:
        install(cursor)
        cursor.execute("SET python_enable_replacements = false")
        return _Rehearsal(runner.context, cursor).run(statements)

    with runner.connection.cursor() as cursor:
        expected = runner.interruptibly(rehearse, cursor)
    runner.raise_if_stopped()
    return expected


@dataclass
class _Account:
    """The budget of one dataset during a job."""

    state: State
    spent: Spent  # with periods, the loss of one person over all blocks
    job: Spent = field(default_factory=Spent)
    blocks: Blocks = field(default_factory=Blocks)


class _Rehearsal:
    """Plan the statements of a job in order."""

    def __init__(self, context: Context, connection: duckdb.DuckDBPyConnection) -> None:
        self._session = context._session
        self._connection = connection
        self._defined: list[str] = []
        self._left_out: JobStatement | None = None  # the last skipped statement that later statements might need
        self._replaces = False  # a declared budget may be replaced before the next statement
        self._releases: dict[tuple[str, str], tuple[str, JobStatement]] = {}
        self._accounts: dict[str, _Account] = {}
        self._refusal: JobError | None = None

    def run(self, statements: Sequence[JobStatement]) -> Forecast:
        self._connection.execute("BEGIN")
        try:
            expected = tuple(self._expected(statement) for statement in statements)
        finally:
            self._connection.execute("ROLLBACK")
        budgets = tuple(_expected_budget(name, account) for name, account in self._accounts.items())
        return Forecast(expected, budgets, self._refusal)

    def _expected(self, statement: JobStatement) -> ExpectedStatement:
        calls, unknown = [], ""
        try:
            planned = self._planned(statement)
            if planned is None:
                unknown = "what it charges is known only when it runs"
            for call in planned or ():
                uncertain = self._uncertain(statement, call)
                if uncertain:
                    unknown = uncertain
                else:
                    calls.append(self._call(statement, call))
            self._define(statement)
        except Exception as error:
            if not is_expected(error):
                raise
            unknown = self._unknown(statement, error)
        return ExpectedStatement(statement.number, statement.line, tuple(calls), unknown)

    def _planned(self, statement: JobStatement) -> list[Planned] | None:
        """Return the private calls of a statement; None if planning does not show them."""
        if statement.kind in ("EXECUTE", "CALL", "MULTI", SEVERAL) or statement.analyzes:
            return None
        if statement.kind not in _PLANNED or statement.begins("PRAGMA"):
            return []
        planned = self._attempt(lambda: planned_calls(self._session, self._connection, statement.text))
        defines_only = statement.kind == "CREATE" and not _MAKES_TABLE.match(statement.text)
        return [] if defines_only else planned

    def _define(self, statement: JobStatement) -> None:
        """Make the definition of a statement, without rows; or note that it is skipped."""
        text = self._definition(statement)
        if text is not None:
            with self._session.planning():  # a view may contain a private call
                self._attempt(lambda: self._connection.execute(text))
            self._defined.append(text)
        elif statement.kind not in _HARMLESS or _DECLARES.search(statement.text):
            self._left_out = statement
        if _DECLARES.search(statement.text):
            self._replaces = self._replaces or _REPLACES.search(statement.text) is not None

    def _definition(self, statement: JobStatement) -> str | None:
        """Return a statement that makes the same names and reads no row; None if there is no such statement."""
        if statement.sets_variable_to_constant:
            return statement.text
        if statement.kind in ("MULTI", SEVERAL) or statement.attaches_new_file or not _DEFINES.match(statement.text):
            return None
        if not _MAKES_TABLE.match(statement.text):
            return statement.text
        empty = f"{statement.text}\nWITH NO DATA"
        try:
            self._connection.extract_statements(empty)
        except duckdb.Error:
            return None if _MAY_QUERY.search(statement.text) else statement.text
        return empty

    def _attempt(self, work: Callable[[], T]) -> T:
        """Run a step that may fail, and restore the transaction if it fails."""
        try:
            return work()
        except BaseException:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")
            with self._session.planning():
                for text in self._defined:
                    self._connection.execute(text)
            raise

    def _unknown(self, statement: JobStatement, error: Exception) -> str:
        """Return why an unplannable statement may still run, or note that it cannot."""
        ours = original(error)
        before = self._left_out
        self._left_out = statement
        if ours is not None and ours.code == _NOT_YET_RELEASED and self._releases:
            return "it builds on a release that is not made yet"
        if type(error).__name__ == "TransactionException":
            return "it cannot be tried in one transaction with what is before it"
        if before is not None:
            return f"it may depend on statement {before.number}, line {before.line}, which a dry run leaves out"
        self._refuse(statement, error)
        return "it would fail"

    def _refuse(self, statement: JobStatement, error: Exception) -> None:
        self._refusal = self._refusal or JobError(mended(error, statement.text), statement, ran=False)

    def _call(self, statement: JobStatement, call: Planned) -> ExpectedCall:
        """Return the cost of a call, and charge it to the accounts of this job."""
        plan, cost = call.plan, call.plan.event.cost
        replay = self._replay(statement, call)
        single = Spent() if replay else Spent().plus(cost)
        if not replay:
            for dataset in plan.charged:
                self._charge(statement, call, dataset)
        return ExpectedCall(
            function=call.function,
            source=(plan.source if plan.placement is None else plan.placement.written) or None,
            datasets=plan.charged,
            release=plan.release,
            loss="nothing" if replay else loss_text(cost),
            epsilon=_amount(single.epsilon),
            delta=_amount(single.delta),
            rho=_amount(single.rho),
            replay=replay,
            blocks=() if plan.during is None else tuple(spans(plan.during.dated.period, plan.during.blocks)),
        )

    def _uncertain(self, statement: JobStatement, call: Planned) -> str:
        """Return why the number of charges of a call is unknown; ``''`` for one charge, or a replay."""
        if _RECURS.search(statement.text) or (call.aggregate and _GROUPS.search(statement.text)):
            return "it may be charged several times"
        if not call.aggregate or call.plan.release is None:
            return ""
        stored = self._session.ledger.releases([call.function], call.plan.dataset, call.plan.release)
        return f"it replays entry {stored[0].sequence} if it reads the same rows" if stored else ""

    def _replay(self, statement: JobStatement, call: Planned) -> str:
        """Return the release that answers a call: from the ledger, or from this job."""
        plan = call.plan
        if plan.release is None:
            return ""
        entry = None if call.aggregate else self._session.past.replay(plan)
        if entry is not None:
            return f"entry {entry.sequence} of {entry.recorded_at}"
        mine = self._session.ledger.fingerprint(plan.dataset, plan.function, plan.public_arguments)
        fingerprint, first = self._releases.setdefault((plan.dataset, plan.release), (mine, statement))
        if first is statement:
            return ""
        where = f"statement {first.number}, line {first.line}"
        if fingerprint != mine:
            self._refuse(
                statement,
                ParameterError(
                    "P014",
                    f"release {show(plan.release)} is that of {where}, a call with other arguments. "
                    "Give this call another name.",
                ),
            )
        return where

    def _charge(self, statement: JobStatement, call: Planned, dataset: str) -> None:
        plan = call.plan
        account = self._accounts.get(dataset)
        if account is None:
            (state,) = self._session.ledger.states([dataset]).values()
            blocks = self._session.ledger.blocks(dataset) or Blocks()
            account = self._accounts[dataset] = _Account(state, state.spent, blocks=blocks)
        budget, cost, unit = account.state.budget, plan.event.cost, plan.layout.privacy_unit
        try:
            refuse_contradiction(dataset, budget, neighbours=plan.neighbours, privacy_unit=unit, traced=plan.traced)
            state = replace(account.state, spent=account.spent)
            refuse_charge(dataset, state, account.blocks, plan.during, cost, strict=self._session.strict)
        except (BudgetError, ParameterError) as error:
            # An earlier declaration may give a dataset its first budget; only `replace` changes an existing budget.
            if not (self._replaces or (budget is None and self._left_out is not None)):
                self._refuse(statement, error)
        if plan.during is not None and account.state.is_dated:
            account.blocks = account.blocks.charged(budget, plan.during.blocks, cost)
        person = cost if plan.during is None else of_person(cost, len(plan.during.blocks))
        account.spent, account.job = account.spent.plus(person), account.job.plus(person)


def _expected_budget(dataset: str, account: _Account) -> ExpectedBudget:
    before, after = (
        total_row(dataset, replace(account.state, spent=spent)) for spent in (account.state.spent, account.spent)
    )
    return ExpectedBudget(dataset, before.remaining_text, _total_text(account.job, before), after.remaining_text)


def _total_text(job: Spent, row: BudgetRow) -> str:
    """Return the total cost of a job in the measure of the budget."""
    if row.rho_remaining is not None:
        return f"rho {_loss_text(job.rho)}"
    delta = f", delta {_loss_text(job.delta)}" if job.delta else ""
    return f"epsilon {_loss_text(job.epsilon)}{delta}"


def _loss_text(units: int | None) -> str:
    return "without a finite bound" if units is None else units_text(units)


def _amount(units: int | None) -> float | None:
    return None if units is None else units / UNITS_PER_ONE
