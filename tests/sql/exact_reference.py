"""The exact statistic of dp_sis, written slowly in plain Python: what every layout and engine must return."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

ONE = 1 << 20
Value = float | int | bool | None


def quantised(value: Value, lower: float, upper: float) -> int:
    """One value in ``[-2**20, 2**20]``; NULL and NaN are neutral, everything else clips."""
    if value is None or math.isnan(float(value)):
        return 0
    middle = (lower + upper) / 2.0
    scaled = (float(value) - middle) * (2.0 * ONE / (upper - lower))
    return math.floor(min(max(scaled, -ONE), ONE) + 0.5)


def coded(value: Any, levels: Sequence[Any]) -> int:
    """A target with two public levels."""
    return -ONE if value == levels[0] else ONE if value == levels[1] else 0


def cross_products(rows: Iterable[tuple[Sequence[Value], int]], width: int, bounds: Any) -> list[int]:
    """``sum_i q_ij t_i`` over rows of (features, quantised target); `bounds` is a pair, or one per feature."""
    pairs = [bounds] * width if isinstance(bounds[0], (int, float)) else list(bounds)
    sums = [0] * width
    for features, target in rows:
        for j in range(width):
            value = features[j] if j < len(features) else None
            sums[j] += quantised(value, *pairs[j]) * target
    return sums


def of_documents(
    cells: Iterable[Mapping[str, Any]],
    names: Sequence[str],
    bounds: tuple[float, float],
    target: Any,
    *,
    has_value: bool,
) -> list[int]:
    """The long layout: cells of (unit, doc, token, value, y) with `target` mapping a y to an integer.

    A document is a (unit, doc); of its targets the largest counts, and of a token's values too.
    """
    targets: dict[Any, int] = {}
    values: dict[Any, dict[str, Any]] = {}
    for cell in cells:
        if cell["doc"] is None:
            continue
        key = (cell.get("unit"), cell["doc"])
        targets[key] = max(targets.get(key, -ONE), target(cell["y"]))
        present = values.setdefault(key, {})
        if cell["token"] in names:
            value = cell["value"] if has_value else 1.0
            present[cell["token"]] = _largest(present.get(cell["token"]), value)
    rows = []
    for key, coded_target in targets.items():
        present = values[key]
        rows.append(([present.get(name, 0.0) if name in present else 0.0 for name in names], coded_target))
    return cross_products(rows, len(names), bounds)


def _largest(first: Any, second: Any) -> Any:
    """The larger value as DuckDB orders them: NULL is skipped, NaN is the largest."""
    known = [value for value in (first, second) if value is not None]
    if not known:
        return None
    return max(known, key=lambda value: (math.isnan(value), 0.0 if math.isnan(value) else value))


def load(connection: Any, name: str, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> None:
    """Create a table from columns of (SQL type, values), by way of text literals: DuckDB alone reads them."""
    declared = ", ".join(f'"{column}" {kind}' for column, (kind, _) in columns.items())
    connection.execute(f'CREATE OR REPLACE TABLE "{name}" ({declared})')
    rows = zip(*(values for _, values in columns.values()), strict=True)
    lines = ["(" + ", ".join(literal(value) for value in row) + ")" for row in rows]
    if lines:
        connection.execute(f'INSERT INTO "{name}" VALUES {", ".join(lines)}')


def load_arrow(connection: Any, name: str, table: pa.Table) -> None:
    """Create a table from an Arrow table."""
    connection.register("__dpsql__loaded", table)
    connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS FROM __dpsql__loaded')
    connection.unregister("__dpsql__loaded")


def literal(value: Any) -> str:
    """One SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    return str(value)


def exact(connection: Any, source: str, **arguments: Any) -> list[int]:
    """The sums of exact_xty('source', …), in the order of the features."""
    return [row[1] for row in exact_rows(connection, source, **arguments)]


def exact_rows(connection: Any, source: str, **arguments: Any) -> list[tuple[str, int]]:
    """The rows of exact_xty('source', …)."""
    return connection.execute(f"SELECT * FROM exact_xty({call(source, arguments)})").fetchall()  # type: ignore[no-any-return]


def call(source: str, arguments: Mapping[str, Any]) -> str:
    """The text between the brackets of a call."""
    return ", ".join([literal(source), *(f"{name} := {literal(value)}" for name, value in arguments.items())])
