"""Runs the statement of a release: DuckDB's words about rows are not passed on, and what read rows is charged."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.session import FAILED, Session
from dpsql.engines.duckdb.turns import Turns
from dpsql.errors import InternalError, SourceError

# Errors that DuckDB raises while it binds names, or for a connection in use, before any row is read.
NAMING_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ParserException,
    *((duckdb.ResourceInUseException,) if hasattr(duckdb, "ResourceInUseException") else ()),  # from 2.0
)


def run_release(session: Session, turns: Turns, statement: str, plan: Plan) -> pa.Table:
    """Run a release; DuckDB's messages about rows are not passed on, and a call that read rows is charged.

    Raises
    ------
    SourceError
        The source does not exist, or cannot be read.
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
        if session.fail_open_calls(plan, before) or (
            not stopped and _charge_unless_refused(session, turns, statement, plan, error)
        ):
            raise InternalError("I001", f"{plan.function} {FAILED}") from None
        reason = str(error).splitlines()[0] if isinstance(error, NAMING_ERRORS) else "DuckDB cannot read it."
        check = "Check the source's name" + ("." if plan.condition is None else ", and the types in the condition.")
        raise SourceError("S001", f"source {show(plan.source)}: {reason} {check}") from None


def _charge_unless_refused(session: Session, turns: Turns, statement: str, plan: Plan, error: duckdb.Error) -> bool:
    """Charge a call without a result, if its statement binds: then it failed on a row, before its gate.

    DuckDB 2.0 may compute a view of a single row before it asks the gate. What fails on a row also aborts the
    caller's transaction, and then nothing binds; of the errors of binding only a file that cannot be read does.
    """
    try:
        turns.rows(f"EXPLAIN {statement}")
    except duckdb.TransactionException:
        if isinstance(error, duckdb.TransactionException | duckdb.IOException):
            return False
    except KeyboardInterrupt:  # before it was known
        session.charge_lost(plan)
        raise
    except duckdb.Error:
        return False
    session.charge_lost(plan)
    return True
