"""All error codes: when each is raised, and what to do. ``docs/errors.md`` is generated from this list.

One code stands for one cause. A code never changes its meaning, and the number of a removed code is never reused.
"""

from __future__ import annotations

from dpsql.contract.codes import argument_codes, other_codes
from dpsql.contract.codes.code import Code

# Meaning of the first letter of a code.
KINDS = {
    "P": "An argument is missing, of the wrong type, or out of range. Nothing was charged.",
    "S": "The source, one of its columns, or the type of a column does not fit. Nothing was charged.",
    "B": "The budget does not allow the call. Nothing was charged.",
    "L": "The ledger cannot be opened, read or written. Nothing was released.",
    "I": "The call failed inside dpsql. If it failed after it read the table, its charge stands.",
}

CODES: dict[str, Code] = {entry.code: entry for entry in (*argument_codes.ENTRIES, *other_codes.ENTRIES)}


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
