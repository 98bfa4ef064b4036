"""Parse the statements of a job, and fill in their parameters, before any statement runs.

``$name`` is a placeholder for a value that the user gives at run time. dpsql writes the value as one literal where
DuckDB's own tokenizer and parser see a parameter: never in a string, a comment or a quoted name. So the value means the
same as when typed, in every statement; prepared statements do not support CREATE VIEW and CREATE MACRO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import duckdb

from dpsql.cli.dot_commands import Piece, check_syntax, split_all
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.rendering import literal_of

SEVERAL = "SEVERAL"
_VARIABLE = re.compile(r"SET\s+VARIABLE\s+\w+\s*=", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:true|false|null|date|timestamp)\b(?!\s*\()", re.IGNORECASE)
_FILE = re.compile(r"ATTACH\s+(?:DATABASE\s+)?(?:IF\s+NOT\s+EXISTS\s+)?'((?:[^']|'')*)'", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_hint = "Give -p name=value, with a number, true, false, a JSON list, or text such as a date."


@dataclass(frozen=True)
class JobStatement:
    """One statement of a job.

    Attributes
    ----------
    number : int
        The position, from 1.
    line : int
        The first line in the file, from 1.
    text : str
        The SQL, with values in place of parameters.
    kind : str
        DuckDB's statement type, such as ``'SELECT'``; `SEVERAL` if DuckDB runs several statements.
    """

    number: int
    line: int
    text: str
    kind: str

    def begins(self, *words: str) -> bool:
        """Whether the first word is one of these words."""
        return self.text[: len(max(words, key=len))].upper().startswith(words)

    @property
    def analyzes(self) -> bool:
        """Whether the statement is an EXPLAIN that runs a statement."""
        return self.kind == "EXPLAIN" and re.match(r"EXPLAIN\s*(\(|ANALYZE\b)", self.text, re.IGNORECASE) is not None

    @property
    def sets_variable_to_constant(self) -> bool:
        """Whether the statement is a SET VARIABLE whose value calls no function; a function might read rows."""
        match = _VARIABLE.match(self.text)
        if match is None:
            return False
        value = self.text[match.end() :]
        data = value.encode()
        return all(
            kind not in (duckdb.token_type.identifier, duckdb.token_type.keyword)
            or _CONSTANT.match(data[start:].decode())
            for start, kind in duckdb.tokenize(value)
        )

    @property
    def attaches_new_file(self) -> bool:
        """Whether the statement is an ATTACH that would make a file, or does not name the file."""
        if not self.begins("ATTACH"):
            return False
        match = _FILE.match(self.text)
        return match is None or not Path(match.group(1).replace("''", "'")).exists()


class JobError(Exception):
    """A job cannot finish.

    Parameters
    ----------
    error : BaseException
        The reason.
    statement : JobStatement or None
        The failed statement; None for the job as a whole.
    ran : bool
        Whether an earlier statement ran.
    """

    def __init__(self, error: BaseException, statement: JobStatement | None = None, *, ran: bool = True) -> None:
        self.error = error
        self.statement = statement
        self.ran = ran
        super().__init__(error)


def read_statements(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: Mapping[str, object]
) -> list[JobStatement]:
    """Parse a job; run nothing.

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
    kinds = [
        [extract_statement.type.name for extract_statement in connection.extract_statements(piece.text)]
        for piece in pieces
    ]
    return [
        JobStatement(number, piece.line, piece.text, kind[0] if len(kind) == 1 else SEVERAL)
        for number, (piece, kind) in enumerate(zip(pieces, kinds, strict=True), 1)
    ]


def read_parameters(pairs: Iterable[str]) -> dict[str, object]:
    """Read the values of a command line.

    Parameters
    ----------
    pairs : iterable of str
        Each ``'name=value'``. dpsql reads a JSON value as JSON: ``0.5``, ``true``, ``["a", "b"]``, or ``"5"`` for the
        string 5. Any other value is a string: ``2026-11-23``, ``north``.

    Raises
    ------
    ParameterError
        P090: a pair has another form, or a name occurs twice.
    """
    parameters: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ParameterError("P090", f"parameter {show(pair)} is not name=value. {_hint}")
        if name.lower() in parameters:
            raise ParameterError("P090", f"parameter {name} is given twice. Give it once.")
        parameters[name.lower()] = _value_of(value)
    return parameters


def _value_of(text: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def literal(name: str, value: object) -> str:
    """Return a value as one SQL literal.

    Parameters
    ----------
    name : str
        The parameter's name.
    value : object
        A number, boolean, string, date, None, or a list, tuple or mapping of these.

    Raises
    ------
    ParameterError
        P090: the value has another type.
    """
    text = literal_of(value)
    if text is None:
        raise ParameterError("P090", f"parameter {show(name)} cannot be a value of SQL; got {show(value)}. {_hint}")
    return text if text.startswith("'") else f"({text})"


def filled(
    connection: duckdb.DuckDBPyConnection, statements: Iterable[Piece], parameters: Mapping[str, object]
) -> list[Piece]:
    """Return statements with values in place of their parameters.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Parses the statements, and runs none.
    statements : iterable of Piece
    parameters : mapping
        Values by name. Names ignore case, as in DuckDB.

    Raises
    ------
    ParameterError
        P090: a parameter has no value, or no statement uses a value; no statement ran.
    """
    values = {name.lower(): literal(name, value) for name, value in parameters.items()}
    pieces, used = [], set[str]()
    for statement in statements:
        names = _parameter_names(connection, statement.text)
        missing = sorted(names - values.keys())
        if missing:
            raise ParameterError("P090", f"line {statement.line}: parameter ${missing[0]} has no value. {_hint}")
        used |= names
        pieces.append(replace(statement, text=_with_values(connection, statement.text, values)) if names else statement)
    unused = sorted(values.keys() - used)
    if unused:
        raise ParameterError("P090", f"parameter {show(unused[0])} is given, and no statement has it. Write it with $.")
    return pieces


def _parameter_names(connection: duckdb.DuckDBPyConnection, text: str) -> set[str]:
    """Return the parameters of a statement; the parameters of PREPARE belong to its EXECUTE."""
    return {
        name.lower()
        for extract_statement in connection.extract_statements(text)
        for name in extract_statement.named_parameters
    }


def _with_values(connection: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, str]) -> str:
    data, parts, begin = text.encode(), list[bytes](), 0
    for start, end in _parameter_positions(text):
        parts += [data[begin:start], values[data[start + 1 : end].decode().lower()].encode()]
        begin = end
    done = b"".join([*parts, data[begin:]]).decode()
    kinds = [
        [extract_statement.type for extract_statement in connection.extract_statements(sql)] for sql in (text, done)
    ]
    if kinds[0] != kinds[1] or _parameter_names(connection, done):
        raise ParameterError("P090", "a parameter is not written as $name. Write a letter, then letters and digits.")
    return done


def _parameter_positions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each ``$name``, in bytes: a ``$`` token, and a word right after it."""
    data = text.encode()
    starts = [offset for offset, _ in duckdb.tokenize(text)]
    for sign, word in pairwise(starts):
        name = _NAME.match(data[word:].decode()) if data[sign:word] == b"$" else None
        if name is not None:
            yield sign, word + len(name.group())
