"""Audit SQL queries: any query whose result is a release, on two neighbouring tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any

from dpsql.dataclass import dataclass
from dpsql.testing.auditor import AuditReport, audit
from dpsql.testing.views import View


@dataclass(frozen=True)
class SqlRelease:
    """A query as a sampler: each call returns outputs of independent executions.

    Attributes
    ----------
    connection : object
        A DuckDB connection, or an object whose ``connection`` attribute is a DuckDB connection.
    sql : str
        One SELECT; every execution of it is one release. An output is the tuple of its rows, or
        ``('error', type, message)`` if it fails: failure is an output too. If the SQL contains ``{count}``, it is many
        releases, one per row of its result, and `batch` replaces ``{count}``:
        ``SELECT dp_sis(x, y, ...) FROM t, range({count}) AS r(copy) GROUP BY copy``.
    batch : int
        Releases per statement, >= 1; a query without ``{count}`` is repeated under UNION ALL. Use 1 if DuckDB might
        merge the copies (functions without ``side_effects``).
    """

    connection: Any
    sql: str
    batch: int = 1

    def __call__(self, count: int) -> list[Hashable]:
        """Return `count` outputs."""
        connection = getattr(self.connection, "connection", self.connection)
        outputs: list[Hashable] = []
        while len(outputs) < count:
            outputs += self._execute(connection, min(self.batch, count - len(outputs)))
        return outputs

    def _execute(self, connection: Any, copies: int) -> list[Hashable]:
        import duckdb

        grouped = "{count}" in self.sql
        text = self.sql.replace("{count}", str(copies))
        if copies > 1 and not grouped:
            text = " UNION ALL ".join(f"SELECT {copy} AS __dpsql_copy, * FROM ({self.sql})" for copy in range(copies))
        try:
            rows = connection.execute(text).fetchall()
        except duckdb.Error as error:
            return [("error", type(error).__name__, str(error))] * copies
        if grouped:
            return [_hashable(row[0] if len(row) == 1 else row) for row in rows]
        if copies == 1:
            return [tuple(_hashable(row) for row in rows)]
        split: list[list[Hashable]] = [[] for _ in range(copies)]
        for copy, *row in rows:
            split[copy].append(_hashable(row))
        return [tuple(rows_of_one) for rows_of_one in split]


def audit_sql(
    connect: Callable[[], Any],
    sql: str,
    tables: tuple[Any, Any],
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    table_name: str = "t",
    runs: int = 2000,
    confidence: float = 0.9999,
    power: float = 0.5,
    batch: int = 1,
    views: Sequence[tuple[str, View]] | None = None,
) -> AuditReport:
    """Bound the epsilon of a SQL query from below on two neighbouring tables.

    Parameters
    ----------
    connect : callable
        Returns a new connection (or `dpsql.Context`) with the functions installed, its own ledger and no budget limit
        for the dataset, such as ``dpsql.connect``. The audit calls it twice.
    sql : str
        One SELECT over the table `table_name`; every execution is one release, or one per row if the SQL contains
        ``{count}`` (`SqlRelease`).
    tables : tuple
        Two neighbouring tables: each a SQL script that creates `table_name`, or an object that DuckDB can register
        (Arrow table, Polars or pandas frame).
    epsilon, delta : float
        The claim: the cost of one execution of the query.
    table_name : str
        The table's name in the query.
    runs, confidence, power, views
        As in `dpsql.testing.audit`. A few milliseconds per release are usual.
    batch : int
        As in `SqlRelease`.

    Returns
    -------
    report : AuditReport

    Raises
    ------
    RuntimeError
        If every execution fails on both tables: then nothing was audited.
    """
    releases = []
    for table in tables:
        connection = connect()
        load(connection, table, table_name)
        releases.append(SqlRelease(connection, sql, batch))
    probes = [release(1)[0] for release in releases]
    if all(isinstance(probe, tuple) and probe[:1] == ("error",) for probe in probes):
        raise RuntimeError(f"the query fails on both tables: {probes[0]}")
    return audit(
        lambda side, count: releases[side](count),
        (0, 1),
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        confidence=confidence,
        power=power,
        views=views,
    )


@dataclass(frozen=True)
class DrawReport:
    """Whether repeated executions draw new noise.

    Attributes
    ----------
    prepared, repeated : int
        Distinct outputs among executions of one prepared statement, and of the statement sent anew.
    runs : int
        Executions of either kind.
    commonest : float
        Share in (0, 1] of the commonest output of the statement sent anew.
    """

    prepared: int
    repeated: int
    runs: int
    commonest: float

    @property
    def fresh(self) -> bool:
        """Whether neither way of execution always gives the same output."""
        return self.prepared > 1 and self.repeated > 1

    @property
    def false_alarm(self) -> float:
        """Approximate chance that fresh draws all agree: ``commonest**runs`` (1 if nothing varied)."""
        return float(self.commonest**self.runs)


def check_fresh_draws(connection: Any, sql: str, *, runs: int = 40) -> DrawReport:
    """Execute one release many times, prepared and anew, and count distinct outputs.

    Parameters
    ----------
    connection : object
        A DuckDB connection or `dpsql.Context`.
    sql : str
        One SELECT that is a release, with enough noise for different outputs.
    runs : int
        Executions of either kind, >= 2.

    Returns
    -------
    report : DrawReport
        Not ``fresh`` if PREPARE froze the noise (a function without ``side_effects``).
    """
    raw = getattr(connection, "connection", connection)
    raw.execute(f"PREPARE __dpsql_release AS {sql}")
    try:
        prepared = Counter(SqlRelease(raw, "EXECUTE __dpsql_release")(runs))
    finally:
        raw.execute("DEALLOCATE __dpsql_release")
    repeated = Counter(SqlRelease(raw, sql)(runs))
    return DrawReport(len(prepared), len(repeated), runs, max(repeated.values()) / runs)


def load(connection: Any, table: Any, name: str = "t") -> None:
    """Create table `name` from a SQL script, or from an object that DuckDB can register."""
    raw = getattr(connection, "connection", connection)
    if isinstance(table, str):
        raw.execute(table)
        return
    quoted = '"' + name.replace('"', '""') + '"'
    raw.register("__dpsql__loaded", table)
    raw.execute(f"CREATE OR REPLACE TABLE {quoted} AS FROM __dpsql__loaded")
    raw.unregister("__dpsql__loaded")


def _hashable(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return value if isinstance(value, Hashable) else repr(value)
