"""Words for the rows that the numbers of a release cover, and its verdicts: from public arguments, so without cost.

An interval and a verdict describe the noise on the rows that count. They exclude rows and values that a row limit,
bounds, keys or a condition leave out, so the words are next to the numbers: in the column `covers`, in receipts,
notebooks and pictures.

Verdicts describe the noise of a release, in one vocabulary for all functions. A verdict follows from the released
numbers and from public values alone, so it costs no privacy. It never covers sampling: whether other rows would give
the same answer is another question. The verdict is the first of these words that holds; docs/verdicts.md has the whole
table.

==============  =======================================================================================
verdict         meaning
==============  =======================================================================================
undetermined    noise leaves nothing: value and interval are NULL
biased          row limits per privacy unit left out more than half of the interval: it covers only the rest
clear           the claim, which can fail, holds with the given confidence, for any noise
unclear         noise of this size explains the result
not measured    the error is unknown, or a claim would cost a share of the budget that the call did not pay
==============  =======================================================================================

If a call asks for sampling, its intervals cover the population of the rows, and verdicts follow from these intervals.
Comparisons have their own words:

==============  =======================================================================================
differs         the interval of the difference excludes 0
no evidence     the interval includes 0: noise and sampling explain a difference of this size
undetermined    the interval says nothing, or a group may be empty
==============  =======================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CLEAR = "clear"
UNCLEAR = "unclear"
BIASED = "biased"
UNDETERMINED = "undetermined"
NOT_MEASURED = "not measured"
# Verdicts of a comparison, whose interval also counts sampling: is there a real difference?
DIFFERS = "differs"
NO_EVIDENCE = "no evidence"
# Knowledge about a number of a query in addition to its interval, from best to worst: its claim is not to be 0; the
# interval is at most half of its public range; the interval is wider; limits left out too much; a divisor may be 0.
# An expression has the worst value of its numbers.
COUNTED, NARROWED, DOUBTED, LEFT_OUT, UNDIVIDED = range(5)
VERDICTS = (CLEAR, UNCLEAR, BIASED, UNDETERMINED, NOT_MEASURED, DIFFERS, NO_EVIDENCE)


ALL_ROWS = "all rows"
# Columns and entries of receipts that hold the words; the second name is the old name, for one more version.
COVERS = "covers"
COVERING = (COVERS, "speaks_of")
# Parts of a query that choose row limits or bounds for other parts, with their arguments here.
_PREPARES = "prepares"
_PREPARING: Mapping[str, Mapping[str, Any]] = {
    "dp_query.bounds": {_PREPARES: True, "bounds_share": "all"},
    "dp_query.rows": {_PREPARES: True},
}


def covers(arguments: Mapping[str, Any]) -> str:
    """Return the rows that count, the clipping of their values, and whether a row limit's loss is not measured.

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
    """Return the words that a record stores under either name."""
    return next((record[name] for name in COVERING if isinstance(record.get(name), str)), None)


def _has_unit(arguments: Mapping[str, Any]) -> bool:
    return (arguments.get("layout") or {}).get("privacy_unit") is not None


def _of_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of one part of a query; a part that chooses bounds or limits measures nothing itself."""
    return {**part["arguments"], **_PREPARING.get(part["function"], {})}


def _is_not_measured(arguments: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a row limit may leave rows out without a measure of how many; for a query, in any part.

    A part whose query text gives one row per person is recorded with a limit of 1, which leaves no row out.
    """
    if not _has_unit(arguments):
        return False
    if "parts" not in arguments:
        return arguments.get("left_out_share") in (None, "0")
    limited = [part for part in parts if part.get("max_rows_per_unit") != 1 and _PREPARES not in part]
    return arguments.get("left_out_share") == "0" or any(part.get("left_out_share") in (None, "0") for part in limited)


def _rows(arguments: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield conditions for a row to count."""
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
    """Return the contribution limits of one privacy unit, without limits that follow from the row limit."""
    rows, groups, group_rows = (arguments.get(name) for name in ("max_rows_per_unit", "groups", "rows_per_group"))
    limits = f"{rows} a unit"
    if groups is not None and rows is not None and groups < min(rows, _groups(arguments)):
        limits += f" in {groups} {'group' if groups == 1 else 'groups'}"
    if group_rows is not None and rows is not None and group_rows < rows:
        limits += f", {group_rows} in each group"
    return limits


def _groups(arguments: Mapping[str, Any]) -> float:
    """Return the number of groups; infinity if the number is private or a type lists the keys."""
    keys, listed = arguments.get("keys"), arguments.get("key_rows")
    if keys is None or None in keys:
        return math.inf
    count = math.prod(map(len, keys)) if listed is None else len(listed)
    bins = len(arguments["bins"]) + 1 + bool(arguments.get("null_bin")) if arguments.get("bins") else 1
    return (count + bool(arguments.get("other"))) * bins


def _values(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the interval that clips values; empty without clipping or for unknown bounds."""
    clipped = list(dict.fromkeys(filter(None, map(_clipped, parts))))
    return clipped[0] if len(clipped) == 1 else "their bounds" if clipped else ""


def _clipped(arguments: Mapping[str, Any]) -> str:
    if arguments.get("bounds_share") is not None and arguments.get("lower") is None:
        return "drawn bounds"
    ends = arguments.get("lower"), arguments.get("upper")
    if "lowest" in arguments:  # one per number of a query, None without bounds
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
