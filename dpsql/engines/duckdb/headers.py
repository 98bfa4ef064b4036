"""What the SQL files say of each macro, for help and for DuckDB's own list of functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from dpsql.functions.registry import FUNCTIONS


def headers() -> dict[str, str]:
    """Return by a macro's name the comment above its definition."""
    found: dict[str, str] = {}
    for text in sql_texts():
        for match in re.finditer(r"((?:^--.*\n)+)CREATE OR REPLACE (?:TEMP )?MACRO (\w+)", text, re.MULTILINE):
            lines = [line[2:].removeprefix(" ") for line in match.group(1).splitlines()]
            found.setdefault(match.group(2), "\n".join(lines))
    return found


def summaries() -> dict[str, str]:
    """Return by a macro's name what it does, in one line."""
    return {name: FUNCTIONS[name].doc if name in FUNCTIONS else _summary(text) for name, text in headers().items()}


def _summary(text: str) -> str:
    """Return what follows the signature on its line, or else the line after it."""
    signature, _, rest = text.partition("\n")
    beside = re.search(r"→ [^:.]*(?:: |\. )(.+)", signature)
    return beside.group(1) if beside else rest.split("\n")[0]


def sql_texts() -> Iterator[str]:
    """Yield the text of every file of macros."""
    root = files("dpsql.sql")
    # dp/ first: where a name also has an exact form, the table function is what people ask for.
    for folder in ("dp", "exact"):
        for entry in sorted(root.joinpath(folder).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".sql"):
                yield entry.read_text(encoding="utf-8")
