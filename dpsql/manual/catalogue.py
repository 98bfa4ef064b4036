"""All records by name: what a function is called with, and which functions a word leads to."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator

from dpsql.contract.arguments import Argument, Signature
from dpsql.functions.declarations import DECLARATIONS
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import EXACT, FUNCTIONS, function_of
from dpsql.manual import (
    budgets,
    counts,
    distributions,
    evaluations,
    exact_statistics,
    looking_up,
    models,
    predictions,
    selections,
)
from dpsql.manual.entry import TOPICS, ManualEntry

_records = (
    counts,
    distributions,
    selections,
    models,
    evaluations,
    predictions,
    budgets,
    exact_statistics,
    looking_up,
)
MANUAL: dict[str, ManualEntry] = {entry.name: entry for module in _records for entry in module.ENTRIES}
# The columns of the aggregate form, in their order.
_COLUMNS = ("x", "y", "p")
# What stands for an argument that a call must have.
_NEEDED = "…"
_LISTED = 8


def summary_of(name: str) -> str:
    """Return what a function does, in one sentence."""
    return FUNCTIONS[name].doc if name in FUNCTIONS else MANUAL[name].summary


def comment_of(name: str) -> str:
    """Return what DuckDB's list of functions says: the summary, the guarantee, and an example."""
    entry = MANUAL[name]
    return f"{summary_of(name)}\nGuarantee: {entry.guarantee}\nExample: {entry.example.sql}"


def signature_of(name: str) -> Signature:
    """Return the named arguments of a SQL function; none for one that has no list of them."""
    if name in FUNCTIONS:
        return FUNCTIONS[name].plan.arguments
    if name in EXACT:
        return Signature(*(one for one in function_of(name).plan.arguments.values() if one.statistic))
    return {**DECLARATIONS, "dp_estimate": ESTIMATE}.get(name, Signature())


def arguments_of(name: str) -> Signature:
    """Return every argument that the manual explains: those before the list of arguments, and the list."""
    entry = MANUAL[name]
    first = [Argument(argument, meaning) for argument, meaning in entry.arguments.items()]
    if name in FUNCTIONS:
        first = [Argument("source", "A table, view, file or registered frame.", shown="required")]
    return Signature(*first, *signature_of(name).values())


def signatures(name: str) -> tuple[str, ...]:
    """Return each way to call a function, with its defaults."""
    found = []
    signature = signature_of(name)
    if name in FUNCTIONS or name in EXACT:
        found.append(f"FROM {name}(" + _joined("source", *map(_with_default, signature.values())) + ")")
    elif signature:
        first = [argument for argument in MANUAL[name].arguments if argument not in signature]
        start = "FROM" if name in ("dp_estimate", "dp_unplaced") else "SELECT"
        found.append(f"{start} {name}(" + _joined(*first, *map(_with_default, signature.values())) + ")")
    columns = {argument.column for argument in signature.values() if argument.column}
    if name in FUNCTIONS and columns:
        rest = [one for one in signature.values() if not one.column and not one.table_only]
        first = [column for column in _COLUMNS if column in columns]
        found.append(f"SELECT {name}(" + _joined(*first, *map(_with_default, rest)) + ")")
    return (*found, *MANUAL[name].signature)


def _joined(*parts: str) -> str:
    return ", ".join(parts)


def _with_default(argument: Argument) -> str:
    """Return an argument as a call gives it: with its default, or an ellipsis where it must be given."""
    if argument.required:
        return f"{argument.name} := {_NEEDED}"
    constant = argument.default is not None and not argument.shown
    return f"{argument.name} := {argument.shown_default if constant else 'NULL'}"


def wrapped_call(call: str, width: int) -> str:
    """Return a call on lines of at most `width` characters, broken between arguments."""
    kept = call.replace(" := ", "\0:=\0").replace("[false, true]", "[false,\0true]")
    lines = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def by_topic() -> Iterator[tuple[str, list[ManualEntry]]]:
    """Yield each topic with its records, in their order."""
    for topic in TOPICS:
        yield topic, [entry for entry in MANUAL.values() if entry.topic == topic]


def search(word: str) -> list[str]:
    """Return the names of functions whose name, topic, summary or arguments hold a word: those of the name first."""
    wanted = word.lower()
    places = (
        lambda name: name,
        lambda name: MANUAL[name].topic,
        summary_of,
        lambda name: " ".join(f"{one.name} {one.meaning}" for one in arguments_of(name).values()),
    )
    found: dict[str, None] = {}
    for place in places:
        found |= dict.fromkeys(name for name in MANUAL if wanted in place(name).lower())
    return list(found)


def nearest(word: str) -> list[str]:
    """Return the names that are spelled most like a word."""
    wanted = word.lower()
    plain = {name.partition("_")[2] or name: name for name in MANUAL}
    close = difflib.get_close_matches(wanted.removeprefix("dp_"), plain, n=_LISTED, cutoff=0.6)
    return [plain[name] for name in close]
