"""A release as HTML for notebooks: its receipt, its rows, and its picture where it has one and Matplotlib is there.

Colours are those of the page, so that it can be read on light and on dark ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from dpsql.contract.verdicts import BIASED, CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 20
# Columns whose interval is in `lower` and `upper`; a double has no more decimal digits than so many of use.
_NUMBERS = frozenset(("value", "auc", "difference"))
_MOST_DIGITS = 17
_CELL = "padding:.1em .6em;text-align:left;border-bottom:1px solid #9aa1ab66"
_DOTS = {CLEAR: "#2e9e5b", UNCLEAR: "#b8860b", BIASED: "#d14b4b", UNDETERMINED: "#d14b4b", NOT_MEASURED: "#7f8791"}


def row_texts(row: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a row as a reader sees them: numbers as precise as their intervals, or to six digits."""
    digits = interval_digits(row)
    return {name: cell_text(value, digits.get(name)) for name, value in row.items()}


def cell_text(value: object, digits: int | None = None) -> str:
    """Return a value as a reader sees it: numbers to so many decimal digits, or to six digits; nothing for NULL."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if digits is None:
        return f"{value:.6g}"
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def interval_digits(row: Mapping[str, object]) -> dict[str, int]:
    """Return how many decimal digits numbers with an interval, and its ends, have: two of half its width.

    Of a number without one, or with an end that is not known, nothing is returned.
    """
    decimals: dict[str, int] = {}
    for name, value in row.items():
        for ends in ((f"{name}_lower", f"{name}_upper"), *([("lower", "upper")] if name in _NUMBERS else [])):
            lower, upper = map(row.get, ends)
            if isinstance(value, float | int) and isinstance(lower, float | int) and isinstance(upper, float | int):
                half = (upper - lower) / 2
                if 0 < half < math.inf:
                    digits = 1 - math.floor(math.log10(half))
                    decimals |= dict.fromkeys((name, *ends), min(_MOST_DIGITS, max(0, digits)))
    return decimals


def release_html(receipt: Mapping[str, str], verdict: str | None, table: pa.Table, picture: str) -> str:
    """Return a release as a piece of HTML; it costs nothing.

    Parameters
    ----------
    receipt : mapping of str to str
        What a reader is told of the release, by the name of the line.
    verdict : str or None
        Of the whole call.
    table : pyarrow.Table
        The result's rows, of which the first `MOST_ROWS` are shown.
    picture : str
        An SVG element, or ``''``.
    """
    lines = [(name, escape(text)) for name, text in receipt.items()]
    if verdict is not None:
        lines.append(("verdict", _judged(verdict)))
    head = _table([f'<th style="{_CELL}">{name}</th><td style="{_CELL}">{text}</td>' for name, text in lines])
    return (
        '<div class="dpsql-release" style="display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start">'
        + "".join(f"<div>{part}</div>" for part in (head, _rows(table), picture) if part)
        + "</div>"
    )


def _judged(verdict: object) -> str:
    """Return a verdict with a dot of its colour."""
    word = escape(cell_text(verdict))
    return f'<span style="color:{_DOTS[word]}">&#9679;</span> {word}' if word in _DOTS else word


def _rows(table: pa.Table) -> str:
    names, rows = table.column_names, table.slice(0, MOST_ROWS).to_pylist()
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names)
    body = [
        "".join(
            f'<td style="{_CELL}">{_judged(row[name]) if name == "verdict" else escape(texts[name])}</td>'
            for name in names
        )
        for row, texts in zip(rows, map(row_texts, rows), strict=True)
    ]
    more = table.num_rows - len(rows)
    return _table([head, *body]) + (f"<div>and {more} more rows</div>" if more else "")


def _table(rows: Sequence[str]) -> str:
    return '<table style="border-collapse:collapse">' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
