"""All error codes, with cause and next step, from ``codes.toml``. ``docs/errors.md`` is generated from them."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from dpsql.dataclass import dataclass


@dataclass(frozen=True)
class Code:
    """One error code.

    Attributes
    ----------
    code : str
        A letter and three digits, as in ``[DPSQL-P001]``.
    when : str
        The cause, in one sentence.
    what_to_do : str
        The next step, in one sentence.
    """

    code: str
    when: str
    what_to_do: str

    def __str__(self) -> str:
        return f"DPSQL-{self.code}: {self.when}\n{self.what_to_do}"


_records = tomllib.loads((files("dpsql.contract") / "codes.toml").read_text(encoding="utf-8"))

# Meaning of the first letter of a code.
KINDS: dict[str, str] = {letter: entries.pop("kind") for letter, entries in _records.items()}

CODES = {code: Code(code, **texts) for entries in _records.values() for code, texts in entries.items()}


def page() -> str:
    """Return the page of all codes, as Markdown."""
    lines = [
        "# Error codes",
        "",
        "Every error that dpsql raises on purpose starts with a code, such as `[DPSQL-P001]`. The text after it holds",
        "public values only. `dpsql explain P001` prints the entry of a code. This page is written by",
        "`python -m dpsql.generate`.",
    ]
    for letter, kind in KINDS.items():
        lines += ["", f"## {letter}", "", kind, "", "| code | when | what to do |", "|---|---|---|"]
        lines += [f"| {c.code} | {c.when} | {c.what_to_do} |" for c in CODES.values() if c.code.startswith(letter)]
    return "\n".join(lines) + "\n"
