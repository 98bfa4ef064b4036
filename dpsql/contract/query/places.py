"""Where in the text of a query stands what is refused: the line, the column, and the words there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dpsql.contract.parameters import show
from dpsql.contract.query.nodes import Expr
from dpsql.errors import DpsqlError

_MOST_WORDS = 40
_STANDS = re.compile(r" It stands at line \d+, column \d+: .*\Z", re.DOTALL)


@contextmanager
def about(expr: Expr | None) -> Iterator[None]:
    """Note on a refusal that it is of an expression; the innermost one that has a place counts."""
    try:
        yield
    except DpsqlError as error:
        if error.place is None and expr is not None:
            error.place = expr.begins
        raise


@contextmanager
def pointing(sql: str) -> Iterator[None]:
    """Tell with a refusal where in the text stands what it is of, as far as that was noted."""
    try:
        yield
    except DpsqlError as error:
        told = "" if error.place is None else _told(sql.encode(), error.place)
        if told:
            error.saying(f"{error.message} {told}")
        raise


def unpointed(error: DpsqlError) -> None:
    """Take off what `pointing` told: the text is none that anybody wrote."""
    error.saying(_STANDS.sub("", error.message))


def _told(sql: bytes, place: int) -> str:
    """Return line, column and words at an offset; nothing where the text has none."""
    before, words = (part.decode(errors="ignore") for part in (sql[:place], sql[place:]))
    words = words.split("\n", 1)[0].strip()
    if not words:
        return ""
    if len(words) > _MOST_WORDS:
        words = f"{words[: _MOST_WORDS - 3]}..."
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"It stands at line {before.count(chr(10)) + 1}, column {column}: {show(words)}."
