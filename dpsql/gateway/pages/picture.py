"""Draw released rows as SVG: one line per row, with its interval if it has one, or a course over time.

Pictures show only data of the table, so they cost nothing; the table next to a picture says the same to readers who
do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from dpsql.contract.covers import COVERING
from dpsql.dataclass import dataclass
from dpsql.gateway.encoding import column_values
from dpsql.gateway.pages.elements import Element, h

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS, _MOST_PANELS = 40, 4
_WIDTH, _NUMBER, _LINE, _COURSE = 560, 76, 26, 220
# Most letters of a label, and a letter's width.
_LETTERS, _LETTER = 24, 8.5
# Bars on one side of 0 below this share of the other side are no wider than their line.
_SLIVER = 0.04
# Larger numbers are not drawn: their differences overflow.
_MOST = 1e290
_TOLD = {"target", "aggregate", "std_error", "verdict", *COVERING, "value", "lower", "upper"}
# A number, and the ends of its interval.
_INTERVALS = (("value", "lower", "upper"), ("count", "count_lower", "count_upper"))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Panel:
    title: str
    labels: list[str]
    values: list[float]
    ends: list[tuple[float, float] | None]


def pictures(table: pa.Table) -> list[Element]:
    """Return the pictures of a table; none if it has no numbers to compare."""
    rows = []
    if len(set(table.column_names)) == table.num_columns:
        columns = map(column_values, table.slice(0, _MOST_ROWS).columns)
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    panels = [panel for panel in _panels(table, rows) if len(panel.values) > 1 or any(panel.ends)]
    rest = table.num_rows - _MOST_ROWS
    note = f", the first {_MOST_ROWS} rows" if rest > 0 else ""
    return [_figure(panel, note) for panel in panels[:_MOST_PANELS]]


def number_text(value: float, digits: int | None = None) -> str:
    """Return a number as text, with `digits` decimals or six digits, and without trailing zeros."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value and not 1e-4 <= abs(value) < 1e12 and digits is None:
        return f"{value:.6g}"
    digits = max(0, 6 - len(str(int(abs(value))))) if digits is None else digits
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−") if text != "-0" else "0"


def _panels(table: pa.Table, rows: Sequence[Row]) -> Iterator[_Panel]:
    names = table.column_names
    for value, lower, upper in _INTERVALS:
        if {value, lower, upper} <= set(names):
            of: dict[tuple[str, ...], list[Row]] = {}
            for row in rows:
                of.setdefault(
                    tuple(str(row[column]) for column in ("aggregate", "target") if row.get(column)), []
                ).append(row)
            keys = [name for name in names[: names.index(value)] if name not in _TOLD]
            for title, group in of.items():
                yield _panel(" of ".join(title) or value, group, keys, value, (lower, upper))
            return
    if rows:
        keys = [name for name in names if not _is_number(rows, name)]
        for name in names:
            if keys and _is_number(rows, name):
                yield _panel(name, rows, keys, name, None)


def _is_number(rows: Sequence[Row], name: str) -> bool:
    cells = [row[name] for row in rows if row[name] is not None]
    return bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def _panel(title: str, rows: Sequence[Row], keys: Sequence[str], value: str, ends: tuple[str, str] | None) -> _Panel:
    points = [row for row in rows if _is_drawn(row[value])]
    intervals: list[tuple[float, float] | None] = []
    for row in points:
        pair = None if ends is None else (row[ends[0]], row[ends[1]])
        good = pair is not None and all(map(_is_drawn, pair))
        intervals.append(pair if good else None)
    return _Panel(title, [_label(row, keys) for row in points], [float(row[value]) for row in points], intervals)


def _is_drawn(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST


def _label(row: Row, keys: Sequence[str]) -> str:
    if {"count", "lower", "upper"} <= row.keys():  # a bin
        ends = [row["lower"], row["upper"]]
        between = "no value" if None in ends else " to ".join(map(number_text, ends))
        return ", ".join([*(_word(row[key]) for key in keys), between])
    return ", ".join(_word(row[key]) for key in keys) or "all rows"


def _word(value: object) -> str:
    if isinstance(value, float):
        return number_text(value)
    return "NULL" if value is None else str(value)


def _figure(panel: _Panel, note: str) -> Element:
    dates = len(panel.labels) > 3 and all(map(_is_date, panel.labels)) and panel.labels == sorted(panel.labels)
    image = _course(panel) if dates else _lines(panel)
    return h("figure", {}, image, h("figcaption", {}, panel.title, note))


def _is_date(label: str) -> bool:
    try:
        date.fromisoformat(label[:10])
    except ValueError:
        return False
    return True


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from at most `low` to at least `high`."""
    span = high - low if high - low > 1 / _MOST else 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (factor * step) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def _reach(panel: _Panel) -> list[float]:
    every = [*panel.values, *(end for pair in panel.ends if pair for end in pair)]
    low, high = min(0.0, *every), max(0.0, *every)
    low, high = 0.0 if -low < _SLIVER * high else low, 0.0 if high < -_SLIVER * low else high
    return _ticks(low, high)


def _svg(panel: _Panel, height: float, *parts: object) -> Element:
    title = f"{panel.title}: {len(panel.values)} numbers, which the table beside it shows."
    box = {"viewBox": f"0 0 {_WIDTH} {height:.0f}", "role": "img", "aria-label": title, "class": "picture"}
    return h("svg", box, h("title", {}, title), *parts)


def _lines(panel: _Panel) -> Element:
    """Draw one line for each row, the first on top."""
    ticks = _reach(panel)
    left = 14 + _LETTER * min(_LETTERS, max(map(len, panel.labels)))
    right = float(_WIDTH - _NUMBER)
    height = _LINE * len(panel.values) + 30

    def x(value: float) -> float:
        inside = min(max(value, ticks[0]), ticks[-1])
        return left + (right - left) * (inside - ticks[0]) / ((ticks[-1] - ticks[0]) or 1.0)

    parts: list[Element] = []
    for tick in ticks:
        position = f"{x(tick):.1f}"
        kind = "axis" if abs(tick) < 1e-12 * max(1.0, ticks[-1]) else "grid"
        parts.append(h("line", {"class": kind, "x1": position, "x2": position, "y1": 4, "y2": height - 22}))
        parts.append(h("text", {"class": "tick", "x": position, "y": height - 6}, number_text(tick)))
    for line, (label, value, ends) in enumerate(zip(panel.labels, panel.values, panel.ends, strict=True)):
        y = 6 + _LINE * line + _LINE / 2
        start, end = sorted((x(0.0), x(value)))
        bar = {"class": "bar", "x": f"{start:.1f}", "width": f"{max(end - start, 0.5):.1f}", "y": f"{y - 8:.1f}"}
        parts.append(h("rect", {**bar, "height": 16, "rx": 2}))
        if ends is not None:
            low, high = (f"{x(bound):.1f}" for bound in ends)
            parts.append(h("line", {"class": "range", "x1": low, "x2": high, "y1": f"{y:.1f}", "y2": f"{y:.1f}"}))
            for edge in (low, high):
                cap = {"class": "range", "x1": edge, "x2": edge, "y1": f"{y - 4:.1f}", "y2": f"{y + 4:.1f}"}
                parts.append(h("line", cap))
        caption = label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"
        parts.append(h("text", {"class": "label", "x": f"{left - 10:.1f}", "y": f"{y + 4:.1f}"}, caption))
        parts.append(h("text", {"class": "number", "x": _WIDTH - 4, "y": f"{y + 4:.1f}"}, number_text(value)))
    return _svg(panel, height, parts)


def _course(panel: _Panel) -> Element:
    """Draw a course over days, with its band."""
    ticks = _reach(panel)
    left, right, top, bottom = 64.0, _WIDTH - 16.0, 10.0, _COURSE - 28.0
    days = [date.fromisoformat(label[:10]).toordinal() for label in panel.labels]

    def x(day: int) -> float:
        return left + (right - left) * (day - days[0]) / ((days[-1] - days[0]) or 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - ticks[0]) / ((ticks[-1] - ticks[0]) or 1.0)

    parts: list[Element] = []
    for tick in ticks:
        height = f"{y(tick):.1f}"
        kind = "axis" if abs(tick) < 1e-12 * max(1.0, ticks[-1]) else "grid"
        parts.append(h("line", {"class": kind, "x1": left, "x2": right, "y1": height, "y2": height}))
        parts.append(h("text", {"class": "number", "x": left - 8, "y": f"{y(tick) + 4:.1f}"}, number_text(tick)))
    bands = [(day, pair) for day, pair in zip(days, panel.ends, strict=True) if pair]
    if bands:
        outline = [(x(day), y(pair[1])) for day, pair in bands] + [(x(day), y(pair[0])) for day, pair in bands[::-1]]
        parts.append(h("polygon", {"class": "band", "points": _points(outline)}))
    course = [(x(day), y(value)) for day, value in zip(days, panel.values, strict=True)]
    parts.append(h("polyline", {"class": "course", "points": _points(course)}))
    for index, kind in ((0, "tick first"), (-1, "tick last")):
        at = {"class": kind, "x": f"{x(days[index]):.1f}", "y": _COURSE - 8}
        parts.append(h("text", at, panel.labels[index][:10]))
    return _svg(panel, _COURSE, parts)


def _points(outline: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{across:.1f},{down:.1f}" for across, down in outline)
