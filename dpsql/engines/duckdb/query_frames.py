"""Run a query of plain SQL over one frame. Planning uses the frame's columns, and the run uses its rows.

The frame is the temporary table ``self`` of a connection for this query only. The table is empty while DuckDB plans the
query, so a refusal reads no row. Once the budget allows the query, dpsql inserts the columns that the query's cores
read. A failure of the insert may depend on a row, so dpsql then charges the query without an answer. The caller claims
the owner of the frame's rows, as for every frame, and the guarantee says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files

import duckdb
import pyarrow as pa

from dpsql.contract.parameters import fold, show
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.declarations import DERIVE, Declaration, Declarations
from dpsql.engines.duckdb.lineage.stability import is_shown
from dpsql.engines.duckdb.query_planner import QueryStatement
from dpsql.engines.duckdb.session import FAILED, Answered, Session, Turns, run_query
from dpsql.errors import BudgetError, InternalError, ParameterError, SourceError
from dpsql.rendering import identifier

# The frame's name in a query, as in Polars' own `sql`.
SELF = "self"
_PATH = ("temp", "main", SELF)
_FILLING = "dpsql_frame_rows"


@dataclass(frozen=True)
class FrameRows:
    """The rows of a frame, before anything reads them.

    Attributes
    ----------
    dataset : str
        The budget that the caller claims for the rows.
    schema : pyarrow.Schema
        The columns' names and types.
    read : callable
        Returns some columns as an Arrow table.
    """

    dataset: str
    schema: pa.Schema
    read: Callable[[list[str]], pa.Table]


def query_frame(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object], rows: FrameRows
) -> Answered:
    """Return the answer of a query over a frame.

    Parameters
    ----------
    session : Session
    turns : Turns
        On a connection that closes after the query.
    sql : str
        Reads the frame as ``self``.
    arguments : mapping
        As for ``dp_query``.
    rows : FrameRows

    Raises
    ------
    BudgetError
        B006: the dataset has no budget.
    SourceError
        S002: the frame has no column of the privacy unit. S003: a column has a type that DuckDB does not read.
    InternalError
        I001: reading the rows failed; the charge remains.
    DpsqlError
        As for a query of tables.
    """
    claim = _claim(session, rows)
    _create(turns, rows.schema)
    with session.queries.claiming(claim):
        return run_query(session, turns, sql, arguments, before=lambda query: _fill(session, turns, query, rows))


def no_plain_sql() -> ParameterError:
    """Return the refusal of a query on an engine, which keeps its rows."""
    return ParameterError(
        "P073",
        "dp_query runs in DuckDB, and no plain SQL on an engine. Of a Polars frame ask "
        "frame.dp.of('visits').dp.query('SELECT ... FROM self ...', epsilon=...); of another engine copy the rows to a "
        "table of DuckDB, or use a function of the engine, such as ctx.dp_count(...).",
    )


def _claim(session: Session, rows: FrameRows) -> Declaration:
    """Return the caller's claim about the rows, as a declaration for one query."""
    declarations, dataset = session.sources.declarations(), session.sources.budget_of(rows.dataset)
    if dataset is None:
        raise BudgetError(
            "B006",
            f"there is no budget {show(rows.dataset)}, and a query is answered of protected rows alone. State it: "
            f"frame.dp.of({show(rows.dataset)}).dp.protect(epsilon=...).",
        )
    return Declaration(
        DERIVE,
        SELF,
        session.sources.catalog().table(_PATH),
        base=dataset,
        unit=_unit(dataset, declarations, rows.schema.names),
        columns=tuple(rows.schema.names),
        date=None if declarations.is_of_several(dataset) else declarations.date(dataset),
    )


def _unit(dataset: str, declarations: Declarations, names: Sequence[str]) -> str | None:
    """Return a frame's column of the privacy unit; None if the privacy unit is one row."""
    units = declarations.units(dataset)
    unit = next((name for name in names if fold(name) in units), None)
    if units and unit is None:
        listed = " or ".join(show(name) for name in sorted(units))
        raise SourceError(
            "S002", f"there is no column {listed} in the frame, whose rows belong to {show(dataset)}. Keep it there."
        )
    return unit


def _create(turns: Turns, schema: pa.Schema) -> None:
    """Create the frame's table, without rows."""
    try:
        with _registered(turns, schema.empty_table()):
            turns.rows(f"CREATE TEMP TABLE {identifier(SELF)} AS FROM {identifier(_FILLING)}")
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise SourceError("S003", f"DuckDB does not read the frame's columns: {reason} Drop or cast them.") from None


def _fill(session: Session, turns: Turns, query: QueryStatement, rows: FrameRows) -> None:
    """Insert the rows, with the columns that a query reads; charge the query if that fails."""
    names = _read_columns(turns, query, rows.schema.names) or [rows.schema.names[0]]
    listed = ", ".join(map(identifier, names))
    try:
        table = rows.read(names)
        with _registered(turns, table):
            turns.rows(f"INSERT INTO temp.main.{identifier(SELF)} ({listed}) SELECT {listed} FROM {_FILLING}")
    except BaseException as failure:
        session.charge_lost(query.plan)
        if not isinstance(failure, Exception):
            raise
    else:
        return
    raise InternalError("I001", f"{query.plan.function} {FAILED}")


def _read_columns(turns: Turns, query: QueryStatement, every: Sequence[str]) -> list[str]:
    """Return the frame's columns that the cores of a query read, from DuckDB's plans; beside files `every` column."""
    names: dict[str, None] = {}
    for _, plan in turns.plans(core.source for core in query.split.cores):
        node = paths.read_plan(plan)
        if node is None or not is_shown(node):
            return list(every)
        for scan in bound.scans(node):
            if bound.table_of(scan) == _PATH:
                names.update(dict.fromkeys(name for name in bound.scanned_columns(scan) if name is not None))
    return list(names)


@contextmanager
def _registered(turns: Turns, table: pa.Table) -> Iterator[None]:
    """Register an Arrow table under a name for the `with` block."""
    turns.connection.register(_FILLING, table)
    try:
        yield
    finally:
        turns.connection.unregister(_FILLING)


def in_test(ids: pa.Array, key: str, test: float) -> pa.ChunkedArray:
    """Return for each id whether its unit is in `dp_split`'s test part, a share of the units; null for null."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(files("dpsql.sql").joinpath("dp/dp_split.sql").read_text(encoding="utf-8"))
        connection.register("ids", pa.table({"id": ids}))
        sides = connection.sql("SELECT dp_split(id, ?, test := ?) AS side FROM ids", params=[key, test])
        return sides.to_arrow_table()["side"]
