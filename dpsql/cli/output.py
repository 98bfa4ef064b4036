"""Write rows to standard output or to a file.

dpsql chooses and checks the format before it runs a statement. It fetches all rows first, and DuckDB's own writers
write them. A file is replaced in one step: a reader sees the old file or the new file, never a part. The module also
prints budgets and entries straight from the ledger.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import click
import duckdb
import pyarrow as pa
from rich import box
from rich.table import Table

from dpsql.cli.messages import clean_message, is_from_duckdb, refuse_closed_output, silence
from dpsql.contract.covers import BIASED, CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.contract.periods import period_named, spans
from dpsql.dataclass import dataclass
from dpsql.errors import LedgerError
from dpsql.ledger.charge import Receipt
from dpsql.ledger.file import beside
from dpsql.ledger.granting import GrantedRow
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import is_url
from dpsql.ledger.policy import PolicyRow
from dpsql.ledger.rows import BudgetRow, LedgerRow


def ledger_place(database: str | None, ledger: str | None) -> str:
    """Return the ledger's location: as given, or next to the database file."""
    if ledger is None and database is None:
        raise click.UsageError("give --db DATABASE or --ledger FILE.")
    return str(beside(str(database))) if ledger is None else ledger


def ledger_location(database: str | None, ledger: str | None) -> str:
    """Return the ledger's location: as given, or next to the database file.

    Raises
    ------
    LedgerError
        The file does not exist: reading must not create a ledger.
    """
    location = ledger_place(database, ledger)
    if not is_url(location) and not Path(location).is_file():
        raise LedgerError(
            "L016",
            f"there is no ledger at {location!r}. "
            "It is made with the first connection to the database; give --ledger when it stands elsewhere.",
        )
    return location


def open_ledger(database: str | None, ledger: str | None) -> Ledger:
    """Open an existing ledger to read it; the database itself stays closed."""
    return Ledger.open(ledger_location(database, ledger), read_only=True)


def empty_view(*titles: str) -> Table:
    """Return a table for printing without rows; long cells fold."""
    view = Table(box=box.SQUARE)
    for title in titles:
        view.add_column(title, overflow="fold")
    return view


def budget_view(rows: Sequence[BudgetRow]) -> Table:
    """Return budgets as a table for printing: granted, spent and remaining amounts, in the budget's own measure.

    Consecutive blocks with equal spending share one line.
    """
    has_blocks = any(row.block is not None for row in rows)
    view = empty_view(
        "dataset", *(["block"] if has_blocks else []), "budget", "releases", "spent", "remaining", "protects"
    )
    for same, (row, *_) in _alike(rows):
        block = [same] if has_blocks else []
        cells = (row.dataset, *block, row.budget, str(row.releases), row.spent_text, row.remaining_text, _protects(row))
        view.add_row(*cells)
    return view


def _alike(rows: Sequence[BudgetRow]) -> Iterator[tuple[str, list[BudgetRow]]]:
    """Yield groups of rows that differ only in their block, with the label of the block range."""
    for _, group in groupby(rows, key=lambda row: replace(row, block=period_named(row.block or "") or row.block)):
        alike = list(group)
        period = period_named(alike[0].block or "")
        if period is None:
            yield from ((row.block or "", [row]) for row in alike)
            continue
        for span in spans(period, [row.block or "" for row in alike]):
            yield span, alike


def ledger_view(rows: Sequence[LedgerRow]) -> Table:
    """Return ledger entries as a table for printing that fits 80 columns; the hash is cut to 8 digits."""
    view = Table("#", box=box.SQUARE)
    view.add_column("recorded (UTC)", no_wrap=True)
    for title in ("call", "guarantee", "status"):
        view.add_column(title, overflow="fold")
    view.add_column("hash", no_wrap=True)
    for row in rows:
        call = f"{row.function} {row.dataset}" + (f" release {row.release}" if row.release else "")
        call += f" block {row.block}" if row.block is not None else ""
        call += f" by {row.principal}" if row.principal is not None else ""
        recorded = row.recorded_at[:16].replace("T", " ")
        view.add_row(str(row.sequence), recorded, call, row.guarantee, row.status, row.hash[:8])
    return view


def example_text(tables: Sequence[str]) -> str:
    """Return the message about the new example tables."""
    return (
        f"Invented data: {', '.join(tables)}. None of them has a budget yet; as their owner, begin with\n"
        f"SELECT dp_protect('{tables[0]}', epsilon := 3.0, delta := 1e-6);"
    )


def policy_view(rows: Sequence[PolicyRow]) -> Table:
    """Return owners' declarations as a table for printing: the arguments of each declaration, with their columns."""
    view = empty_view("dataset", "declaration", "argument", "column", "value", "stated (UTC)")
    for row in rows:
        moment = "" if row.recorded_at is None else f"{row.recorded_at[:16].replace('T', ' ')}, entry {row.entry}"
        value = "a call may choose" if row.value is None else row.value
        view.add_row(row.dataset, row.declaration, row.argument, row.column_name or "", value, moment)
    return view


def _protects(row: BudgetRow) -> str:
    if row.privacy_unit is None:
        return "one row" if row.neighbours is None else f"one row, {row.neighbours}"
    return f"all rows of one {row.privacy_unit}"


Record = TypeVar("Record", BudgetRow, LedgerRow, PolicyRow, GrantedRow)
VERDICT, _BAR = "verdict", "│"
_COLOURS = {CLEAR: "green", UNCLEAR: "yellow", BIASED: "red", UNDETERMINED: "red", NOT_MEASURED: "bright_black"}
_rows_on_a_terminal = 40
_no_limit = 10**6
_copy_options = {"csv": "FORMAT csv, HEADER true", "json": "FORMAT json, ARRAY true", "parquet": "FORMAT parquet"}
ENDINGS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".arrow": "arrow"}
_BINARY = ("parquet", "arrow")


@dataclass(frozen=True)
class Result:
    """The result of one statement.

    Attributes
    ----------
    table : pyarrow.Table
        All rows, already fetched: printing or writing them runs no query.
    is_plan : bool
        True for EXPLAIN, whose second column is a drawing.
    seconds : float
        Wall time of the statement.
    """

    table: pa.Table
    is_plan: bool
    seconds: float


def show(result: Result, form: str = "table") -> None:
    """Print one result on standard output.

    Parameters
    ----------
    result : Result
    form : str
        A table is cut to the size of a terminal; elsewhere it is whole.
    """
    if form != "table":
        _copy_to_stdout(result.table, form)
    elif result.is_plan:
        for drawing in result.table.column(1).to_pylist():
            click.echo(drawing)
    else:
        _show_table(result.table)


def write(result: Result, form: str, path: Path) -> None:
    """Write one result to a file, and replace the file's content."""
    if form == "table":
        with path.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            show(result)
    else:
        _copy(result.table, form, path)


def _show_table(table: pa.Table) -> None:
    with _scratch(table) as connection:
        rows = connection.table("result")
        if sys.stdout.isatty():
            drawing = io.StringIO()
            with contextlib.redirect_stdout(drawing):
                rows.show(max_width=shutil.get_terminal_size().columns, max_rows=_rows_on_a_terminal)
            click.echo(coloured(drawing.getvalue()), nl=False)
        else:
            rows.show(max_width=_no_limit, max_col_width=_no_limit, max_rows=max(1, table.num_rows))
    sys.stdout.flush()


def coloured(drawing: str) -> str:
    """Return a drawn table with coloured words in its `verdict` column; without colours if NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return drawing
    lines, column, width = drawing.split("\n"), 0, 0
    for number, line in enumerate(lines):
        cells = line.split(_BAR)
        words = [cell.strip() for cell in cells]
        if not column and VERDICT in words:
            column, width = words.index(VERDICT), len(cells)
        elif column and len(cells) == width and words[column] in _COLOURS:
            cells[column] = click.style(cells[column], fg=_COLOURS[words[column]])
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
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return
    target = str(path).replace("'", "''")
    with _scratch(table) as connection:
        connection.execute(f"COPY (FROM result) TO '{target}' ({_copy_options[form]})")


@contextlib.contextmanager
def _scratch(table: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a separate connection, which cannot charge, with `table` as ``result``."""
    connection = duckdb.connect()
    try:
        connection.register("result", table)
        yield connection
    finally:
        connection.close()


class DeliveryError(OSError):
    """A result could not be written; the message names its ledger entries."""


class Destination:
    """The destination of a command's rows.

    Parameters
    ----------
    path : Path, optional
        A file, replaced in one step; standard output by default.
    form : str, optional
        The format; by default from the file's ending, or a table.

    Raises
    ------
    click.UsageError
        The file's ending is not in `ENDINGS` and no format is given, or the format is not for a terminal.
    """

    def __init__(self, path: Path | None, form: str | None) -> None:
        if form is None and path is not None:
            form = ENDINGS.get(path.suffix.lower())
            if form is None:
                raise click.UsageError(
                    f"{path}: the ending tells the format, and can be {', '.join(ENDINGS)}. "
                    "Give the file one of them, or --format."
                )
        self.form = form or "table"
        if path is None:
            refuse_closed_output()
        if path is None and self.form in _BINARY and sys.stdout.isatty():
            raise click.UsageError(f"{self.form} is not for a terminal. Give -o FILE, or redirect the output.")
        self.path = None if path is None else path.resolve()
        if self.path is not None:
            try_to_replace(self.path)

    def deliver(self, result: Result, receipts: Sequence[Receipt] = ()) -> None:
        """Write rows.

        Parameters
        ----------
        result : Result
        receipts : sequence of Receipt
            Receipts of the calls that returned the rows.

        Raises
        ------
        DeliveryError
            Writing failed (full disk, closed pipe or the like); the release is in the ledger.
        BrokenPipeError
            The reader closed the pipe, and nothing was released.
        """
        try:
            if self.path is None:
                show(result, self.form)
                sys.stdout.flush()
            else:
                self._write(result, self.path)
        except Exception as error:
            if not isinstance(error, OSError) and not is_from_duckdb(error):
                raise
            if self.path is None:
                silence(sys.stdout)
            advice = _read_again(receipts)
            if isinstance(error, BrokenPipeError) and not advice:
                raise
            where = "standard output" if self.path is None else str(self.path)
            what = (error.strerror if isinstance(error, OSError) else None) or clean_message(error)
            raise DeliveryError(f"{where}: {what.splitlines()[0]}{advice}") from error

    def _write(self, result: Result, path: Path) -> None:
        if is_replaced(path):
            with replacing(path) as part:
                write(result, self.form, part)
            return
        with tempfile.TemporaryDirectory(prefix="dpsql-") as folder:  # a device or a pipe
            file = Path(folder) / "result"
            write(result, self.form, file)
            with file.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)


def _read_again(receipts: Sequence[Receipt]) -> str:
    entries = [str(receipt.entry) for receipt in receipts if receipt.has_result]
    if not entries:
        return ""
    shows = ", ".join(f"dpsql show {entry}" for entry in entries)
    if len(entries) == 1:
        return f". The result is entry {entries[0]} of the ledger; read it again with {shows}."
    return f". The results are entries {', '.join(entries)} of the ledger; read them again with {shows}."


def try_to_replace(path: Path) -> None:
    """Raise OSError now if `path` cannot be written later; leave `path` unchanged."""
    if path.exists():
        with path.open("ab"):
            pass
    if is_replaced(path):
        part = _part_of(path)
        try:
            with part.open("xb"):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        part.unlink()


def is_replaced(path: Path) -> bool:
    """Return whether a file can replace `path`: `path` is no device, pipe or folder."""
    return path.is_file() or not path.exists()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file that replaces `path` at the end of the ``with`` block, unless the block fails."""
    part = _part_of(path)
    try:
        yield part
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def as_arrow(kind: type[Record], rows: Sequence[Record]) -> pa.Table:
    """Return rows of the dataclass `kind` as an Arrow table with all columns, even without rows."""
    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    # Annotations are strings here: 'float | None'.
    schema = pa.schema([(field.name, types[str(field.type).split(" ")[0]]) for field in fields(kind)])
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
