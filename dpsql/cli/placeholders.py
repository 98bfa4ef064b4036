"""The parameters of a job: ``$name`` in its statements stands for a value that is given when the job is run.

A value is written into the statement as one literal, where DuckDB's own tokenizer and parser see a parameter: never in
a text, a comment or a quoted name. So it means what the same value means when it is typed, in every statement; prepared
statements would leave out CREATE VIEW and CREATE MACRO.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.cli.splitting import Piece
from dpsql.contract.parameters import show
from dpsql.errors import ParameterError
from dpsql.rendering import text as quoted

if TYPE_CHECKING:
    import duckdb

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_hint = "Give -p name=value, with a number, true, false, a JSON list, or text such as a date."


def read_parameters(pairs: Iterable[str]) -> dict[str, object]:
    """Read the values of a command line.

    Parameters
    ----------
    pairs : iterable of str
        Each ``'name=value'``. A value that is JSON is what JSON says: ``0.5``, ``true``, ``["a", "b"]``, or ``"5"`` for
        the text 5. Anything else is text: ``2026-11-23``, ``north``.

    Raises
    ------
    ParameterError
        P090: it is not such a pair, or a name stands twice.
    """
    found: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ParameterError("P090", f"parameter {show(pair)} is not name=value. {_hint}")
        if name.lower() in found:
            raise ParameterError("P090", f"parameter {name} is given twice. Give it once.")
        found[name.lower()] = _value_of(value)
    return found


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
        Of the parameter.
    value : object
        A number, boolean, text, date, None, or a list, tuple or mapping of these.

    Raises
    ------
    ParameterError
        P090: it is none of these.
    """
    shown = _expression(name, value)
    return shown if shown.startswith("'") else f"({shown})"


def _expression(name: str, value: object) -> str:
    if isinstance(value, str) and "\0" not in value:
        return quoted(value)
    if isinstance(value, date):  # and datetime
        return quoted(value.isoformat())
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)) and math.isfinite(value):
        return repr(value) if isinstance(value, float) else str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_expression(name, item) for item in value)}]"
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return "{" + ", ".join(f"{quoted(key)}: {_expression(name, item)}" for key, item in value.items()) + "}"
    raise ParameterError("P090", f"parameter {name} cannot be a value of SQL; got {show(value)}. {_hint}")


def filled(
    connection: duckdb.DuckDBPyConnection, statements: Iterable[Piece], parameters: Mapping[str, object]
) -> list[Piece]:
    """Return statements with values in place of their parameters.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Parses the statements; nothing is run.
    statements : iterable of Piece
    parameters : mapping
        Values by name. Case does not count, as in DuckDB.

    Raises
    ------
    ParameterError
        P090: a parameter has no value, or a value is not used; no statement was run.
    """
    values = {name.lower(): literal(name, value) for name, value in parameters.items()}
    found, used = [], set[str]()
    for statement in statements:
        wanted = _wanted(connection, statement.text)
        missing = sorted(wanted - values.keys())
        if missing:
            raise ParameterError("P090", f"line {statement.line}: parameter ${missing[0]} has no value. {_hint}")
        used |= wanted
        found.append(replace(statement, text=_with_values(connection, statement.text, values)) if wanted else statement)
    unused = sorted(values.keys() - used)
    if unused:
        raise ParameterError("P090", f"parameter {unused[0]} is given, and no statement has ${unused[0]}.")
    return found


def _wanted(connection: duckdb.DuckDBPyConnection, text: str) -> set[str]:
    """Return the parameters of a statement; those of PREPARE are for its EXECUTE."""
    return {name.lower() for one in connection.extract_statements(text) for name in one.named_parameters}


def _with_values(connection: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, str]) -> str:
    data, parts, begin = text.encode(), list[bytes](), 0
    for start, end in _places(text):
        parts += [data[begin:start], values[data[start + 1 : end].decode().lower()].encode()]
        begin = end
    done = b"".join([*parts, data[begin:]]).decode()
    kinds = [[one.type for one in connection.extract_statements(each)] for each in (text, done)]
    if kinds[0] != kinds[1] or _wanted(connection, done):
        raise ParameterError("P090", "a parameter is not written as $name. Write a letter, then letters and digits.")
    return done


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Yield where ``$name`` begins and ends, in bytes: a sign of its own, and a word right behind it."""
    import duckdb

    data = text.encode()
    starts = [offset for offset, _ in duckdb.tokenize(text)]
    for sign, word in pairwise(starts):
        name = _NAME.match(data[word:].decode()) if data[sign:word] == b"$" else None
        if name is not None:
            yield sign, word + len(name.group())
