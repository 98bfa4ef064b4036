"""Which rows the numbers of a release speak of, in words: from public arguments alone, so it costs nothing.

An interval and a verdict speak of the noise on the rows that count. What a cap, bounds, keys or a condition leave out
is not in them, so the words stand beside the numbers: in the column `speaks_of`, in receipts, notebooks and pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

ALL_ROWS = "all rows"
# The longest list of bounds that is spelled out.
_MOST_BOUNDS = 2


def speaks_of(arguments: Mapping[str, Any]) -> str:
    """Return which rows count, and what their values are clipped to.

    Parameters
    ----------
    arguments : mapping
        The public arguments of a call, as the ledger records them (`dpsql.contract.plan.Plan.public_arguments`).
    """
    rows = ", ".join(_rows(arguments))
    values = _values(arguments)
    return (f"rows that count: {rows}" if rows else ALL_ROWS) + (f"; values clipped to {values}" if values else "")


def _rows(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a row must be to count."""
    if (arguments.get("layout") or {}).get("privacy_unit") is not None:
        yield f"at most {_limits(arguments)}"
        yield "none without a unit"
    if arguments.get("by") and not arguments.get("other"):
        keys = arguments.get("keys")
        yield "released keys" if keys is None else "listed keys" if any(keys) else "keys of the type"
    if arguments.get("null_bin") is False:
        yield "with a value"
    if arguments.get("condition") is not None:
        yield "where the condition holds"
    if arguments.get("target_levels") is not None:
        yield "of the two levels"


def _limits(arguments: Mapping[str, Any]) -> str:
    """Return what one privacy unit may contribute; limits that follow from the number of rows are left out."""
    rows, groups, each = (arguments.get(name) for name in ("max_rows_per_unit", "groups", "rows_per_group"))
    found = f"{rows} a unit"
    if groups is not None and rows is not None and groups < min(rows, _groups(arguments)):
        found += f" in {groups} {'group' if groups == 1 else 'groups'}"
    if each is not None and rows is not None and each < rows:
        found += f", {each} in each group"
    return found


def _groups(arguments: Mapping[str, Any]) -> float:
    """Return the number of groups; infinity where it is private, or a type lists the keys."""
    keys, listed = arguments.get("keys"), arguments.get("key_rows")
    if keys is None or None in keys:
        return math.inf
    found = math.prod(map(len, keys)) if listed is None else len(listed)
    bins = len(arguments["bins"]) + 1 + bool(arguments.get("null_bin")) if arguments.get("bins") else 1
    return (found + bool(arguments.get("other"))) * bins


def _values(arguments: Mapping[str, Any]) -> str:
    """Return what values are clipped to; empty where nothing is clipped, or nothing is known of it."""
    if arguments.get("bounds_share") is not None and arguments.get("lower") is None:
        return "drawn bounds"
    ends = arguments.get("lower"), arguments.get("upper")
    if None in ends:
        return ""
    if any(isinstance(end, (list, tuple, Mapping)) and len(end) > 1 for end in ends):
        return "their bounds"
    low, high = (_only(end) for end in ends)
    return f"[{low}, {high}]"


def _only(end: Any) -> str:
    """Return the one number of a bound as text."""
    if isinstance(end, Mapping):
        [end] = end.values()
    elif isinstance(end, (list, tuple)):
        [end] = end
        return _only(end[1]) if isinstance(end, (list, tuple)) else f"{end:.12g}"
    return f"{float(end):.12g}"
