"""Print and write rows that were already fetched, with DuckDB's own writers."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli.runner import Result
from dpsql.contract.verdicts import CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

VERDICT, _BAR = "verdict", "│"
_COLOURS = {CLEAR: "green", UNCLEAR: "yellow", UNDETERMINED: "red", NOT_MEASURED: "bright_black"}
FORMATS = ("table", "csv", "json", "parquet", "arrow")
_rows_on_a_terminal = 40
_no_limit = 10**6
_copy_options = {"csv": "FORMAT csv, HEADER true", "json": "FORMAT json, ARRAY true", "parquet": "FORMAT parquet"}


def show(result: Result, form: str = "table") -> None:
    """Print one result on standard output.

    Parameters
    ----------
    result : Result
    form : str
        One of `FORMATS`. A table is cut to the size of a terminal, and whole anywhere else.
    """
    if form != "table":
        _copy_to_stdout(result.table, form)
    elif result.is_plan:
        for drawing in result.table.column(1).to_pylist():
            click.echo(drawing)
    else:
        _show_table(result.table)


def write(result: Result, form: str, path: Path) -> None:
    """Write one result to a file, replacing what stands there."""
    if form == "table":
        with path.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            show(result)
    else:
        _copy(result.table, form, path)


def _show_table(table: pa.Table) -> None:
    with _scratch(table) as connection:
        rows = connection.table("result")
        if sys.stdout.isatty():
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                rows.show(max_width=shutil.get_terminal_size().columns, max_rows=_rows_on_a_terminal)
            click.echo(coloured(shown.getvalue()), nl=False)
        else:
            rows.show(max_width=_no_limit, max_col_width=_no_limit, max_rows=max(1, table.num_rows))
    sys.stdout.flush()


def coloured(drawing: str) -> str:
    """Return a drawn table with the words of its column `verdict` in colours; without them where NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return drawing
    lines, place, width = drawing.split("\n"), 0, 0
    for number, line in enumerate(lines):
        cells = line.split(_BAR)
        words = [cell.strip() for cell in cells]
        if not place and VERDICT in words:
            place, width = words.index(VERDICT), len(cells)
        elif place and len(cells) == width and words[place] in _COLOURS:
            cells[place] = click.style(cells[place], fg=_COLOURS[words[place]])
            lines[number] = _BAR.join(cells)
    return "\n".join(lines)


def _copy_to_stdout(table: pa.Table, form: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dpsql-") as folder:
        path = Path(folder) / "result"
        _copy(table, form, path)
        with path.open("rb") as file:
            sys.stdout.flush()
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _copy(table: pa.Table, form: str, path: Path) -> None:
    if form == "arrow":
        import pyarrow as pa

        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return
    target = str(path).replace("'", "''")
    with _scratch(table) as connection:
        connection.execute(f"COPY (FROM result) TO '{target}' ({_copy_options[form]})")


@contextlib.contextmanager
def _scratch(table: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a separate connection, in which nothing can be charged, with `table` as ``result``."""
    import duckdb

    connection = duckdb.connect()
    try:
        connection.register("result", table)
        yield connection
    finally:
        connection.close()
