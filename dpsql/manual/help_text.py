"""Help as plain text of a given width: the list of functions, one function, or what a word leads to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from dpsql.manual.catalogue import MANUAL, by_topic, nearest, search
from dpsql.manual.page import Page, wrapped_call

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
    if word is not None and word.lower() in MANUAL:
        return list(_function(MANUAL[word.lower()], width))
    names = set(MANUAL if word is None else search(word))
    return list(_listed(names, width)) if names else None


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


def _listed(names: set[str], width: int) -> Iterator[str]:
    longest = max(map(len, names))
    topics = {topic: [name for name in listed if name in names] for topic, listed in by_topic().items()}
    gap: tuple[str, ...] = ()
    for topic, listed in topics.items():
        if listed:
            yield from (*gap, topic)
            yield from columns([(_GAP + name.ljust(longest), MANUAL[name].summary) for name in listed], width)
            gap = ("",)


def _function(page: Page, width: int) -> Iterator[str]:
    yield from _wrapped(f"{page.name}: {page.summary}", width)
    for call in page.calls:
        yield from ("", *wrapped_call(call + ";", width).split("\n"))
    yield from ("", "Example, on the tables that .examples makes")
    for statement in page.statements:
        yield from statement.split("\n")
    for title, text in {"Guarantee": page.guarantee, **page.facts}.items():
        yield from ("", *_wrapped(f"{title}. {text}", width))
    if page.arguments:
        yield from ("", "Arguments")
        arguments = page.arguments.items()
        yield from columns([(_GAP + name, _meaning(*argument)) for name, argument in arguments], width)
    yield from ("", "Result")
    yield from columns([(_GAP + name, meaning) for name, meaning in page.columns.items()], width)


def _meaning(default: str, meaning: str) -> str:
    if not default:
        return meaning
    return f"{meaning} {'Required' if default == 'required' else f'Default: {default}'}."


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
