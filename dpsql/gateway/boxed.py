"""Run one box: read an untrusted statement, get the answers of its calls, and run its SQL over them.

A box is a process for one statement. It has an empty DuckDB in memory, and locks itself before it reads the text
(`sandbox`). The SQL over the answers is written anew, and the box also checks DuckDB's plan of it: the plan may scan
the tables of the answers, and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa
import pyarrow.ipc

from dpsql.contract.parameters import show
from dpsql.engines.duckdb.lineage import bound
from dpsql.gateway import frames, sandbox
from dpsql.gateway.problems import GatewayError
from dpsql.gateway.statement import Statement, read
from dpsql.parsing import with_call

_BATCH = 10_000
# Integers of more than 127 bits: Arrow would wrap them or not read them.
_NOWHERE_ELSE = ("UHUGEINT", "BIGNUM", "VARINT")
_OPERATORS = frozenset(
    (
        *("PROJECTION", "FILTER", "AGGREGATE_AND_GROUP_BY", "WINDOW", "LIMIT", "ORDER_BY", "TOP_N", "DISTINCT"),
        *("COMPARISON_JOIN", "ANY_JOIN", "CROSS_PRODUCT", "DELIM_JOIN", "DEPENDENT_JOIN", "JOIN", "DELIM_GET"),
        *("UNION", "EXCEPT", "INTERSECT", "MATERIALIZED_CTE", "CTE_REF", "GET", "EXPRESSION_GET", "DUMMY_SCAN"),
        *("EMPTY_RESULT", "CHUNK_GET"),
    )
)


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection to an empty database in memory; it starts no thread."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": "256MB",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "max_expression_depth": 250,
    }
    if int(duckdb.__version__.split(".")[0]) >= 2:
        config["async_threads"] = 0
    return duckdb.connect(config=config)


def warm(connection: duckdb.DuckDBPyConnection) -> None:
    """Read a fixed statement, to load all that reading needs before boxes fork."""
    read("SELECT 1", lambda text: _tree(connection, text))


def run(channel: socket.socket, connection: duckdb.DuckDBPyConnection, parent: int, *, locked: bool = True) -> None:
    """Answer one statement over a channel, in its own process.

    Parameters
    ----------
    channel : socket.socket
        The only open file.
    connection : duckdb.DuckDBPyConnection
        From `connect`, in this process or in its parent.
    parent : int
        The parent process; this process ends with it.
    locked : bool
        Whether the operating system locks the process; False if it cannot.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sandbox.end_with_parent(signal.SIGKILL, parent)
    _close_others(channel.fileno())
    sandbox.limit()
    if locked:
        sandbox.lock()
    _converse(channel, connection)


def _close_others(descriptor: int) -> None:
    """Close all files but one; discard output to the terminal."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 65_536)


def _converse(channel: socket.socket, connection: duckdb.DuckDBPyConnection) -> None:
    try:
        header, _ = frames.receive(channel, most_blobs=0)
        statement = read(str(header.get("text")), lambda text: _tree(connection, text))
        frames.send(
            channel,
            {
                "calls": [call.to_json() for call in statement.calls],
                "settings": dict(statement.settings),
                "whole": statement.is_whole,
            },
        )
        _, blobs = frames.receive(channel, most_blobs=len(statement.calls))
        frames.send(channel, {}, [stream_of(_released(connection, statement, blobs))])
    except EOFError:
        return
    except GatewayError as error:
        frames.send(channel, {"error": error.to_json()})


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    [(tree,)] = connection.execute("SELECT system.main.json_serialize_sql(?)", [with_call(text)]).fetchall()
    return str(tree)


def _released(connection: duckdb.DuckDBPyConnection, statement: Statement, blobs: list[bytes]) -> pa.Table:
    if len(blobs) != len(statement.calls):
        raise GatewayError("G098", "a message has another number of tables than there are calls. Ask again.")
    for number, blob in enumerate(blobs):
        add_table(connection, f"released_{number}", blob)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return _guarded(lambda: _run(connection, statement.post, len(blobs)))


def add_table(connection: duckdb.DuckDBPyConnection, name: str, blob: bytes) -> None:
    """Make a table from Arrow bytes."""
    options = pa.ipc.IpcReadOptions(use_threads=False)
    # A capsule: for a reader, DuckDB makes an Arrow scanner, which starts threads.
    stream = pa.ipc.open_stream(blob, options=options).__arrow_c_stream__()
    connection.register("given", stream)
    connection.execute(f'CREATE TABLE memory.main."{name}" AS SELECT * FROM given')
    connection.unregister("given")


def _run(connection: duckdb.DuckDBPyConnection, sql: str, count: int) -> pa.Table:
    [(plan,)] = connection.execute("SELECT system.main.json_serialize_plan(?)", [sql]).fetchall()
    check_plan(str(plan), count)
    relation = connection.sql(sql)
    for name, kind in zip(relation.columns, map(str, relation.types), strict=True):
        if any(other in kind for other in _NOWHERE_ELSE):
            raise GatewayError("G091", f"column {show(name)} is a {kind}, which Arrow has not. Cast it to DOUBLE.")
    reader = relation.to_arrow_reader(_BATCH)
    batches, rows, size = [], 0, 0
    for batch in reader:
        batch.validate(full=True)
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        frames.check_result(rows, size)
    return pa.Table.from_batches(batches, reader.schema)


def _guarded(work: Callable[[], pa.Table]) -> pa.Table:
    """Run SQL over released tables; DuckDB's messages can show only released data."""
    try:
        return work()
    except (duckdb.OutOfMemoryException, MemoryError):
        raise GatewayError(
            "G093", "what is asked of the answers needs too much memory. Ask for less at once."
        ) from None
    except duckdb.Error as error:
        raise _failed(str(error)) from None
    except pa.ArrowException:
        raise _failed("its result is none that Arrow has, such as a number of 39 digits") from None


def _failed(message: str) -> GatewayError:
    if "expression depth" in message:
        return GatewayError("G003", "the statement has too many parts within each other. Ask a shorter one.")
    reason = message.partition("\n\nLINE ")[0].strip().rstrip(".")  # the rest quotes SQL that nobody wrote
    return GatewayError("G091", f"what is asked of the answers fails: {reason}. Mend it.")


def check_plan(text: str, count: int) -> None:
    """Raise if a plan scans anything but ``released_0`` to the last such table.

    Parameters
    ----------
    text : str
        Result of ``json_serialize_plan``.
    count : int
        Number of tables.

    Raises
    ------
    GatewayError
        G090: the plan scans something else, or is unknown. G091: the statement does not bind.
    """
    try:
        plan = json.loads(text.replace('"value":NAN', '"value":NaN'))
    except ValueError:  # for example a number of 40 digits
        raise GatewayError("G090", "the plan of the statement is not read. Ask otherwise.") from None
    if plan.get("error"):
        raise _failed(str(plan.get("error_message") or "it does not bind"))
    tables = {("memory", "main", f"released_{number}") for number in range(count)}
    operators = 0
    for record in _objects(plan.get("plans")):
        kind = str(record.get("type", ""))
        if not kind.startswith("LOGICAL_"):
            continue
        operators += 1
        name = kind.removeprefix("LOGICAL_")
        if name not in _OPERATORS or (name == "GET" and _scanned(record) not in tables):
            raise GatewayError(
                "G090", f"the plan of the statement has {show(name)}, which is not taken. Ask otherwise."
            )
    if not operators:
        raise GatewayError("G090", "the plan of the statement is not read. Ask otherwise.")


def _scanned(record: bound.Node) -> tuple[str, str, str] | None:
    try:
        return bound.table_of(record)
    except bound.UnreadableError:
        return None


def _objects(value: object) -> Iterator[dict[str, object]]:
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def stream_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(use_threads=False)) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
