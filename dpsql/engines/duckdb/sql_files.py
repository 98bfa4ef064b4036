"""The SQL files of the macros, as they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files


def sql_texts() -> Iterator[str]:
    """Yield the text of every file of macros."""
    root = files("dpsql.sql")
    for folder in ("dp", "exact"):
        for entry in sorted(root.joinpath(folder).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".sql"):
                yield entry.read_text(encoding="utf-8")
