"""Which rows the numbers of a release cover, in words: from public arguments alone, so it costs nothing.

An interval and a verdict are of the noise on the rows that count. What a cap, bounds, keys or a condition leave out
is not in them, so the words stand beside the numbers: in the column `covers`, in receipts, notebooks and pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ALL_ROWS = "all rows"
# The columns and entries of receipts with the words; the second is their earlier name, for one more version.
COVERS = "covers"
COVERING = (COVERS, "speaks_of")
# Parts of a query that draw limits of people, or bounds, for other parts, and what is known of them here.
_PREPARES = "prepares"
_PREPARING: Mapping[str, Mapping[str, Any]] = {
    "dp_query.bounds": {_PREPARES: True, "bounds_share": "all"},
    "dp_query.rows": {_PREPARES: True},
}


def covers(arguments: Mapping[str, Any]) -> str:
    """Return which rows count, what their values are clipped to, and whether it is known how much a row limit left out.

    Parameters
    ----------
    arguments : mapping
        The public arguments of a call, as the ledger records them (`dpsql.contract.plan.Plan.public_arguments`).
    """
    parts = [_of_part(part) for part in arguments.get("parts") or ()] or [arguments]
    rows = ", ".join(_rows(arguments, parts))
    values = _values(parts)
    words = f"rows that count: {rows}" if rows else ALL_ROWS
    words += f"; values clipped to {values}" if values else ""
    return words + ("; row limit: not measured" if _is_not_measured(arguments, parts) else "")


def covered(record: Mapping[str, Any]) -> str | None:
    """Return the words from what keeps them under either name."""
    return next((record[name] for name in COVERING if isinstance(record.get(name), str)), None)


def _has_unit(arguments: Mapping[str, Any]) -> bool:
    return (arguments.get("layout") or {}).get("privacy_unit") is not None


def _of_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of one part of a query; what draws bounds or limits for others measures nothing itself."""
    return {**part["arguments"], **_PREPARING.get(part["function"], {})}


def _is_not_measured(arguments: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a row limit may leave rows out, and nothing tells how much; of a query, in one of its parts.

    A part that has one row of each person by the query's text is recorded with a limit of 1: nothing falls away there.
    """
    if not _has_unit(arguments):
        return False
    if "parts" not in arguments:
        return arguments.get("left_out_share") in (None, "0")
    limited = [part for part in parts if part.get("max_rows_per_unit") != 1 and _PREPARES not in part]
    return arguments.get("left_out_share") == "0" or any(part.get("left_out_share") in (None, "0") for part in limited)


def _rows(arguments: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a row must be to count."""
    if _has_unit(arguments):
        yield f"at most {_limits(arguments)}"
        yield "none without a unit"
    for part in parts:
        if part.get("by") and not part.get("other"):
            keys = part.get("keys")
            yield "released keys" if keys is None else "listed keys" if any(keys) else "keys of the type"
            break
    if arguments.get("null_bin") is False:
        yield "with a value"
    if arguments.get("condition") is not None:
        yield "where the condition holds"
    if arguments.get("target_levels") is not None:
        yield "of the two levels"


def _limits(arguments: Mapping[str, Any]) -> str:
    """Return what one privacy unit may contribute; limits that follow from the number of rows are left out."""
    rows, groups, each = (arguments.get(name) for name in ("max_rows_per_unit", "groups", "rows_per_group"))
    limits = f"{rows} a unit"
    if groups is not None and rows is not None and groups < min(rows, _groups(arguments)):
        limits += f" in {groups} {'group' if groups == 1 else 'groups'}"
    if each is not None and rows is not None and each < rows:
        limits += f", {each} in each group"
    return limits


def _groups(arguments: Mapping[str, Any]) -> float:
    """Return the number of groups; infinity where it is private, or a type lists the keys."""
    keys, listed = arguments.get("keys"), arguments.get("key_rows")
    if keys is None or None in keys:
        return math.inf
    count = math.prod(map(len, keys)) if listed is None else len(listed)
    bins = len(arguments["bins"]) + 1 + bool(arguments.get("null_bin")) if arguments.get("bins") else 1
    return (count + bool(arguments.get("other"))) * bins


def _values(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return what values are clipped to; empty where nothing is clipped, or nothing is known of it."""
    clipped = list(dict.fromkeys(filter(None, map(_clipped, parts))))
    return clipped[0] if len(clipped) == 1 else "their bounds" if clipped else ""


def _clipped(arguments: Mapping[str, Any]) -> str:
    if arguments.get("bounds_share") is not None and arguments.get("lower") is None:
        return "drawn bounds"
    ends = arguments.get("lower"), arguments.get("upper")
    if "lowest" in arguments:  # of each number of a query, None where it has no bounds
        pairs = [pair for pair in zip(arguments["lowest"], arguments["highest"], strict=True) if None not in pair]
        lows, highs = zip(*dict.fromkeys(pairs), strict=True) if pairs else (None, None)
        ends = lows, highs
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
