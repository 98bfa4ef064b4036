"""Private answers beside DuckDB's own, at so large an epsilon that they differ in rounding alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from support.sql_text import literal

# A loss at which noise is far below any rounding; a budget of 1e11 holds many of these.
EXACT = "epsilon := 1e8"
Answer = list[tuple[Any, ...]]


def private(sql: str, more: str = "") -> str:
    """Return the call that asks a query privately, nearly without noise."""
    return f"FROM dp_query({literal(sql)}, {EXACT}{', ' * bool(more)}{more})"


def described(con: Any, sql: str) -> list[tuple[str, str]]:
    """Return names and types of what a statement answers."""
    return [row[:2] for row in con.execute(f"DESCRIBE {sql}").fetchall()]


def near(ours: Any, theirs: Any, slack: float) -> bool:
    """Say whether two values are equal but for rounding."""
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(near(*pair, slack) for pair in zip(ours, theirs, strict=True))
    if _is_number(ours) and _is_number(theirs):
        one, other = float(ours), float(theirs)
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=slack)
    return bool(ours == theirs)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def differences(ours: Answer, theirs: Answer, *, slack: float = 1e-3) -> list[str]:
    """Return what DuckDB's answer has and ours lacks, and what ours has beyond public groups without rows.

    Such a group has a key that is not in DuckDB's answer, or numbers about 0.
    """
    left = list(ours)
    wrong: list[str] = []
    for row in theirs:
        found = next((at for at, one in enumerate(left) if near(one, row, slack)), None)
        if found is None:
            wrong.append(f"not answered: {row}")
        else:
            left.pop(found)
    keys = {_key(row) for row in theirs}
    return wrong + [f"too much: {row}" for row in left if _key(row) in keys and not is_empty(row, max(slack, 0.5))]


def _key(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(one for one in row if isinstance(one, (str, date, bool)) or one is None)


def is_empty(row: Sequence[Any], slack: float) -> bool:
    """Say whether a row may be that of a public group without rows: a number about 0, or one that is not known."""
    return None in row or any(_is_number(one) and abs(float(one)) <= slack for one in row)
