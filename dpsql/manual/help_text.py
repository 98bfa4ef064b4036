"""Help as plain text of a given width: the list of functions, one function, or what a word leads to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from dpsql.contract.arguments import Argument
from dpsql.manual.catalogue import (
    MANUAL,
    arguments_of,
    by_topic,
    nearest,
    search,
    signatures,
    summary_of,
    wrapped_call,
)
from dpsql.manual.entry import ManualEntry

WIDTH = 80
_GAP = "  "


def help_lines(word: str | None = None, *, width: int = WIDTH) -> list[str] | None:
    """Return help as lines that fit the width; None where a word leads nowhere.

    Parameters
    ----------
    word : str, optional
        A function's name, or part of a name, a topic, a summary or an argument; all functions if it is left out.
    width : int
    """
    if word is None:
        return list(_listed([(topic, [one.name for one in entries]) for topic, entries in by_topic()], width))
    name = word.lower()
    if name in MANUAL:
        return list(_function(MANUAL[name], width))
    found = set(search(name))
    if not found:
        return None
    topics = [(topic, [one.name for one in entries if one.name in found]) for topic, entries in by_topic()]
    return list(_listed([(topic, names) for topic, names in topics if names], width))


def suggestion(word: str) -> str:
    """Return what to say of a word that leads nowhere."""
    close = nearest(word)
    return f"Did you mean {' or '.join(close)}?" if close else "Type .help for the list."


def columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield pairs of texts as two columns, of which the second one wraps."""
    first = max(len(one) for one, _ in rows)
    for one, other in rows:
        lines = _wrapped(other, width - first - len(_GAP)) or [""]
        yield f"{one.ljust(first)}{_GAP}{lines[0]}".rstrip()
        yield from (" " * (first + len(_GAP)) + line for line in lines[1:])


def _listed(topics: Sequence[tuple[str, list[str]]], width: int) -> Iterator[str]:
    longest = max(len(name) for _, names in topics for name in names)
    for number, (topic, names) in enumerate(topics):
        if number:
            yield ""
        yield topic
        yield from columns([(_GAP + name.ljust(longest), summary_of(name)) for name in names], width)


def _function(entry: ManualEntry, width: int) -> Iterator[str]:
    yield from _wrapped(f"{entry.name}: {summary_of(entry.name)}", width)
    for call in signatures(entry.name):
        yield ""
        yield from wrapped_call(call + ";", width).split("\n")
    yield from ("", "Example, on the tables that .examples makes")
    for statement in (*entry.example.before, entry.example.sql):
        yield from statement.split("\n")
    for title, text in (
        ("Guarantee", entry.guarantee),
        ("Neighbours", entry.neighbours),
        ("Sensitivity", entry.sensitivity),
        ("Not protected", entry.unprotected),
        ("Missing values", entry.missing),
    ):
        yield ""
        yield from _wrapped(f"{title}. {text}", width)
    arguments = arguments_of(entry.name)
    if arguments:
        yield from ("", "Arguments")
        yield from columns([(_GAP + one.name, _meaning(one)) for one in arguments.values()], width)
    yield from ("", "Result")
    yield from columns([(_GAP + name, meaning) for name, meaning in entry.columns.items()], width)


def _meaning(argument: Argument) -> str:
    default = argument.shown_default
    if not default:
        return argument.meaning
    return f"{argument.meaning} {'Required' if argument.required else f'Default: {default}'}."


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
