"""A release as HTML for notebooks: its receipt, its rows, and its picture where it has one and Matplotlib is there.

Colours are those of the page, so that it can be read on light and on dark ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from dpsql.contract.parameters import show
from dpsql.contract.verdicts import CLEAR, NOT_MEASURED, UNCLEAR, UNDETERMINED
from dpsql.errors import ParameterError

if TYPE_CHECKING:
    from dpsql.released.release import Release

MOST_ROWS = 20
_CELL = "padding:.1em .6em;text-align:left;border-bottom:1px solid #9aa1ab66"
_DOTS = {CLEAR: "#2e9e5b", UNCLEAR: "#b8860b", UNDETERMINED: "#d14b4b", NOT_MEASURED: "#7f8791"}


def cell_text(value: object) -> str:
    """Return a value as a reader sees it: numbers to six digits, nothing for NULL."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def release_html(release: Release) -> str:
    """Return a release as a piece of HTML; it costs nothing."""
    parts = [_receipt(release), _rows(release), _picture(release)]
    return (
        '<div class="dpsql-release" style="display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start">'
        + "".join(f"<div>{part}</div>" for part in parts if part)
        + "</div>"
    )


def _receipt(release: Release) -> str:
    charge = f"nothing: {release.replay}" if release.replayed else "once, with this release"
    lines = [
        ("release", f"{release.ledger_id} of {release.function} on {release.dataset}"),
        ("guarantee", release.guarantee),
        ("charged", charge),
        ("engine", release.engine or "DuckDB"),
        ("policy", "; ".join(f"{name} {show(value)}" for name, value in release.policy.items())),
    ]
    cells = [(name, escape(text)) for name, text in lines]
    if release.verdict is not None:
        cells.append(("verdict", _judged(release.verdict)))
    return _table([f'<th style="{_CELL}">{name}</th><td style="{_CELL}">{text}</td>' for name, text in cells])


def _judged(verdict: object) -> str:
    """Return a verdict with a dot of its colour."""
    word = escape(cell_text(verdict))
    return f'<span style="color:{_DOTS[word]}">&#9679;</span> {word}' if word in _DOTS else word


def _rows(release: Release) -> str:
    names, rows = release.value.column_names, release.value.slice(0, MOST_ROWS).to_pylist()
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names)
    body = [
        "".join(
            f'<td style="{_CELL}">{_judged(row[name]) if name == "verdict" else escape(cell_text(row[name]))}</td>'
            for name in names
        )
        for row in rows
    ]
    more = release.value.num_rows - len(rows)
    return _table([head, *body]) + (f"<div>and {more} more rows</div>" if more else "")


def _table(rows: Sequence[str]) -> str:
    return '<table style="border-collapse:collapse">' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _picture(release: Release) -> str:
    """Return the picture; empty where there is none, or no Matplotlib."""
    from dpsql.released.plots import svg

    try:
        return svg(release.plot(), f"{release.dataset} {release.ledger_id}")
    except ParameterError:
        return ""
