"""All records by name: what a function is called with, and which functions a word leads to."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterator

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
from dpsql.manual.synonyms import SYNONYMS, named_by

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
_LISTED = 3


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
    if argument.null_is_wrong:
        return f"{argument.name} := false"
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
    """Return the names of functions that a word leads to: by their names, synonyms, topics and summaries.

    Those that have an argument of that name are among them. What arguments mean is searched where nothing is found.
    """
    wanted = word.lower()
    places: tuple[Callable[[str], str], ...] = (
        lambda name: name,
        lambda name: MANUAL[name].topic,
        summary_of,
    )
    found = dict.fromkeys(named_by(wanted))
    for place in places:
        found |= dict.fromkeys(name for name in MANUAL if wanted in place(name).lower())
    found |= dict.fromkeys(name for name in MANUAL if wanted in arguments_of(name))
    if not found:
        found = dict.fromkeys(name for name in MANUAL if wanted in _meanings(name))
    return list(found)


def _meanings(name: str) -> str:
    """Return the names, synonyms and meanings by which a function is found last."""
    arguments = " ".join(f"{one.name} {one.meaning}" for one in arguments_of(name).values())
    return f"{arguments} {' '.join(SYNONYMS.get(name, ()))}".lower()


def nearest(word: str) -> list[str]:
    """Return the functions that a word may mean: the one of that name, those it is a synonym of, those spelled alike.

    A word that is spelled like no name may be spelled like a synonym.
    """
    wanted = word.lower().removeprefix("dp_")
    plain = {name.partition("_")[2] or name: name for name in MANUAL}
    meant = dict.fromkeys([*([plain[wanted]] if wanted in plain else []), *named_by(wanted)])
    if not meant:
        close = difflib.get_close_matches(wanted, plain, n=_LISTED, cutoff=0.6)
        meant = dict.fromkeys(plain[name] for name in close)
    if not meant:
        words = sorted({synonym for synonyms in SYNONYMS.values() for synonym in synonyms})
        close = difflib.get_close_matches(wanted, words, n=1, cutoff=0.7)
        meant = dict.fromkeys(name for synonym in close for name in named_by(synonym))
    return list(meant)[:_LISTED]
