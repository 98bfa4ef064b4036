"""Where rows go: standard output or a file, in a format that is chosen and tried before a statement is run."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli.messages import clean_message, is_from_duckdb, refuse_closed_output, silence
from dpsql.cli.output import show, write
from dpsql.cli.replacing import is_replaced, replacing, try_to_replace
from dpsql.cli.runner import Result

if TYPE_CHECKING:
    from dpsql.ledger.receipt import Receipt

ENDINGS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".arrow": "arrow"}
_BINARY = ("parquet", "arrow")


class DeliveryError(OSError):
    """A result could not be written; it says which entries of the ledger keep it."""


class Destination:
    """Where the rows of a command go.

    Parameters
    ----------
    path : Path, optional
        A file, which is replaced in one step; standard output by default.
    form : str, optional
        The format; by default that of the file's ending, or a table.

    Raises
    ------
    click.UsageError
        The file's ending is none of `ENDINGS` and no format is given, or the format is not for a terminal.
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
            Of the calls that the rows come from.

        Raises
        ------
        DeliveryError
            The disk is full, nobody reads the pipe, or the like; what was released is in the ledger.
        BrokenPipeError
            Nobody reads the pipe, and nothing was released.
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
            kept = _kept(receipts)
            if isinstance(error, BrokenPipeError) and not kept:
                raise
            where = "standard output" if self.path is None else str(self.path)
            what = (error.strerror if isinstance(error, OSError) else None) or clean_message(error)
            raise DeliveryError(f"{where}: {what.splitlines()[0]}{kept}") from error

    def _write(self, result: Result, path: Path) -> None:
        if is_replaced(path):
            with replacing(path) as part:
                write(result, self.form, part)
            return
        with tempfile.TemporaryDirectory(prefix="dpsql-") as folder:  # a device or a pipe
            whole = Path(folder) / "result"
            write(result, self.form, whole)
            with whole.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)


def _kept(receipts: Sequence[Receipt]) -> str:
    entries = [str(receipt.entry) for receipt in receipts if receipt.has_result]
    if not entries:
        return ""
    shows = ", ".join(f"dpsql show {entry}" for entry in entries)
    if len(entries) == 1:
        return f". The result is entry {entries[0]} of the ledger; read it again with {shows}."
    return f". The results are entries {', '.join(entries)} of the ledger; read them again with {shows}."
