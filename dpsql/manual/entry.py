"""The record of one SQL function: what it promises, and an example that runs on the demonstration tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsql.rendering import text

_WIDTH, _PYTHON_WIDTH = 78, 120

COUNTS = "Count and average"
DISTRIBUTIONS = "Distribution of a column"
SELECTIONS = "Select features"
MODELS = "Fit a model"
EVALUATIONS = "Evaluate"
PREDICTIONS = "Predict and read releases again"
BUDGETS = "Budgets and lineage"
EXACT_STATISTICS = "Exact statistics (not private)"
LOOKING_UP = "Look up functions"
TOPICS = (
    COUNTS,
    DISTRIBUTIONS,
    SELECTIONS,
    MODELS,
    EVALUATIONS,
    PREDICTIONS,
    BUDGETS,
    EXACT_STATISTICS,
    LOOKING_UP,
)

# What the two relations mean for calls in which a person may have several rows.
UNITS = (
    "Under 'add_remove', one row is in one of the two tables only; so the number of rows is private. Under "
    "'replace', one "
    'row is replaced by another. With `privacy_unit`, read "all rows of one person" for "one row": at most '
    "`max_rows_per_unit` of them count, and rows without an id are dropped."
)
# What no call hides.
ALWAYS_SHOWN = (
    "The arguments of the call, and that it was made: names of tables and columns, bounds, levels and counts that you "
    "state are public. Running time depends on the rows."
)
FREE = "Costs nothing: it computes from what was already released, so it reveals nothing more."
NO_ROWS = "It reads no row of any table, so neighbouring tables give the same answer."


@dataclass(frozen=True)
class Example:
    """A statement that runs on the demonstration tables.

    Attributes
    ----------
    sql : str
        As printed, with its semicolon.
    python : str
        The same call in Python; empty where Python has no method for it.
    frame : str
        The same call on a Polars frame; empty where it takes none.
    before : tuple of str
        Statements that have to run first.
    """

    sql: str
    python: str = ""
    frame: str = ""
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class ManualEntry:
    """What a reader is told about one function.

    Attributes
    ----------
    name : str
    topic : str
        One of `TOPICS`.
    guarantee : str
        What is proved about the result.
    neighbours : str
        What the two neighbouring relations mean for this call.
    sensitivity : str
        What one privacy unit moves, with its constant, and the noise that follows.
    unprotected : str
        What the guarantee does not cover.
    missing : str
        What happens to NULL, NaN and values out of bounds.
    columns : dict
        Meaning by column of the result, or of ``value`` where the function returns one value.
    example : Example
    papers : tuple of str
        Where the method comes from, and what is corrected here.
    summary : str
        One sentence; empty for functions whose registry entry has it.
    signature : tuple of str
        Its calls, for functions without a list of arguments.
    arguments : dict
        Meaning by argument, for those that are in no list of arguments.
    """

    name: str
    topic: str
    guarantee: str
    neighbours: str
    sensitivity: str
    unprotected: str
    missing: str
    columns: Mapping[str, str]
    example: Example
    papers: tuple[str, ...]
    summary: str = ""
    signature: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)


def called(function: str, source: str, *before: str, **arguments: object) -> Example:
    """Return the example of a call that reads a table: as SQL, in Python, and on a Polars frame."""
    given = [f"{name} := {_sql(value)}" for name, value in arguments.items()]
    stated = [f"{name}={_python(value)}" for name, value in arguments.items()]
    short = function.removeprefix("dp_")
    return Example(
        _filled(f"FROM {function}(", [text(source), *given], ");"),
        _python_call(f"ctx.{function}", [f'"{source}"', *stated]),
        _python_call(f"{source}.dp.{short}", stated),
        before,
    )


def _sql(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_sql(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_sql, value)) + "]"
    return f"{value}"


def _python(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{name}": {_python(one)}' for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _python_call(method: str, parts: list[str]) -> str:
    """Return a call of a method, laid out as formatters do."""
    line = ", ".join(parts)
    if len(line) + len(method) + len("()") <= _PYTHON_WIDTH:
        return f"{method}({line})"
    if len(line) + 4 <= _PYTHON_WIDTH:
        return f"{method}(\n    {line}\n)"
    return "\n".join([f"{method}(", *(f"    {part}," for part in parts), ")"])


def _filled(head: str, parts: list[str], tail: str) -> str:
    """Return a call whose lines are at most `_WIDTH` characters, broken between arguments."""
    lines, line = [], head + parts[0]
    for part in parts[1:]:
        if len(line) + len(part) + 3 > _WIDTH:
            lines.append(line + ",")
            line = "  " + part
        else:
            line += f", {part}"
    return "\n".join([*lines, line + tail])
