"""A release as HTML for notebooks: its receipt, its rows, and its picture where it has one and Matplotlib is there.

Colours are those of the page, so that it can be read on light and on dark ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from dpsql.contract.verdicts import BIASED, CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 20
_CELL = "padding:.1em .6em;text-align:left;border-bottom:1px solid #9aa1ab66"
_DOTS = {CLEAR: "#2e9e5b", UNCLEAR: "#b8860b", BIASED: "#d14b4b", UNDETERMINED: "#d14b4b", NOT_MEASURED: "#7f8791"}


def cell_text(value: object) -> str:
    """Return a value as a reader sees it: numbers to six digits, nothing for NULL."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


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
            f'<td style="{_CELL}">{_judged(row[name]) if name == "verdict" else escape(cell_text(row[name]))}</td>'
            for name in names
        )
        for row in rows
    ]
    more = table.num_rows - len(rows)
    return _table([head, *body]) + (f"<div>and {more} more rows</div>" if more else "")


def _table(rows: Sequence[str]) -> str:
    return '<table style="border-collapse:collapse">' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
