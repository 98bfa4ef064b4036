"""The statements of a job: parsed, with values for their parameters, before anything is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.cli.placeholders import filled
from dpsql.cli.splitting import check_syntax, split_all

if TYPE_CHECKING:
    import duckdb

SEVERAL = "SEVERAL"
_VARIABLE = re.compile(r"SET\s+VARIABLE\s+\w+\s*=", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:true|false|null|date|timestamp)\b(?!\s*\()", re.IGNORECASE)
_FILE = re.compile(r"ATTACH\s+(?:DATABASE\s+)?(?:IF\s+NOT\s+EXISTS\s+)?'((?:[^']|'')*)'", re.IGNORECASE)


@dataclass(frozen=True)
class JobStatement:
    """One statement of a job.

    Attributes
    ----------
    number : int
        Its position, from 1.
    line : int
        Where it begins in its file, from 1.
    text : str
        With values in place of parameters.
    kind : str
        What DuckDB calls it, such as ``'SELECT'``; `SEVERAL` where DuckDB runs it as more than one.
    """

    number: int
    line: int
    text: str
    kind: str

    def begins(self, *words: str) -> bool:
        """Whether its first word is one of these."""
        return self.text[: len(max(words, key=len))].upper().startswith(words)

    @property
    def analyzes(self) -> bool:
        """Whether it is an EXPLAIN that runs its statement."""
        return self.kind == "EXPLAIN" and re.match(r"EXPLAIN\s*(\(|ANALYZE\b)", self.text, re.IGNORECASE) is not None

    @property
    def sets_variable_to_constant(self) -> bool:
        """Whether it is a SET VARIABLE whose value calls no function, which might read rows."""
        import duckdb

        found = _VARIABLE.match(self.text)
        if found is None:
            return False
        value = self.text[found.end() :]
        data = value.encode()
        return all(
            kind not in (duckdb.token_type.identifier, duckdb.token_type.keyword)
            or _CONSTANT.match(data[start:].decode())
            for start, kind in duckdb.tokenize(value)
        )

    @property
    def attaches_new_file(self) -> bool:
        """Whether it is an ATTACH that would make a file, or does not say which it attaches."""
        if not self.begins("ATTACH"):
            return False
        found = _FILE.match(self.text)
        return found is None or not Path(found.group(1).replace("''", "'")).exists()


class JobError(Exception):
    """A job cannot be run to its end.

    Parameters
    ----------
    error : BaseException
        Why.
    statement : JobStatement or None
        Which statement it concerns; None for the job as a whole.
    ran : bool
        Whether something was run before.
    """

    def __init__(self, error: BaseException, statement: JobStatement | None = None, *, ran: bool = True) -> None:
        self.error = error
        self.statement = statement
        self.ran = ran
        super().__init__(error)


def read_statements(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: Mapping[str, object]
) -> list[JobStatement]:
    """Parse a job; nothing is run.

    Raises
    ------
    JobError
        A statement does not parse, or a parameter is missing or not used.
    """
    pieces = split_all(text)
    for number, piece in enumerate(pieces, 1):
        try:
            check_syntax(connection, piece)
        except Exception as error:
            raise JobError(error, JobStatement(number, piece.line, piece.text, ""), ran=False) from error
    try:
        pieces = filled(connection, pieces, parameters)
    except Exception as error:
        raise JobError(error, ran=False) from error
    kinds = [[one.type.name for one in connection.extract_statements(piece.text)] for piece in pieces]
    return [
        JobStatement(number, piece.line, piece.text, kind[0] if len(kind) == 1 else SEVERAL)
        for number, (piece, kind) in enumerate(zip(pieces, kinds, strict=True), 1)
    ]
