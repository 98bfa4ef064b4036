"""Cut a text into statements where DuckDB's own tokenizer sees a semicolon."""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb

from dpsql.manual.slips import mended

_blank = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """One statement of a text.

    Attributes
    ----------
    text : str
        The statement, without the semicolon and what stands before its first word.
    line : int
        Where it begins in the text, from 1.
    """

    text: str
    line: int


def is_blank(text: str) -> bool:
    """Tell whether `text` holds only white space and comments."""
    return _blank.fullmatch(text) is not None


def split(text: str) -> tuple[list[Piece], str]:
    """Cut `text` into the statements that a semicolon ends, and the rest.

    Parameters
    ----------
    text : str
        SQL, also while it is still being typed.

    Returns
    -------
    statements : list of Piece
        The complete ones, in order; empty ones are dropped.
    rest : str
        What follows the last semicolon; ``''`` when only white space and comments do.
    """
    data = text.encode()
    # Offsets are in bytes. The tokenizer stops at a quote or comment that is still open, so that a
    # semicolon inside it does not count; `extract_statements` would refuse such a text as a whole.
    tokens = duckdb.tokenize(text)
    cuts = [offset for offset, _ in tokens if data[offset : offset + 1] == b";"]
    statements = []
    begin = 0
    for cut in cuts:
        statement = _statement(data, begin, cut)
        if statement is not None:
            statements.append(statement)
        begin = cut + 1
    rest = data[begin:].decode()
    return statements, "" if is_blank(rest) else rest


def split_all(text: str) -> list[Piece]:
    """Cut `text` into statements; the last one need not end in a semicolon."""
    statements, rest = split(text)
    if rest:
        data = text.encode()
        last = _statement(data, len(data) - len(rest.encode()), len(data))
        statements += [last] if last else []
    return statements


def check_syntax(connection: duckdb.DuckDBPyConnection, statement: Piece) -> None:
    """Raise DuckDB's parser error, with the next step, when `statement` does not parse; nothing is run or bound."""
    try:
        connection.extract_statements(statement.text)
    except Exception as error:
        raise mended(error, statement.text) from None


def _statement(data: bytes, begin: int, end: int) -> Piece | None:
    piece = data[begin:end].decode()
    lead = _blank.match(piece)
    skipped = lead.group() if lead else ""
    body = piece[len(skipped) :].strip()
    if not body:
        return None
    return Piece(body, data[:begin].count(b"\n") + skipped.count("\n") + 1)
