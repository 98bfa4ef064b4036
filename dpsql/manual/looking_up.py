"""The functions that look up functions."""

from __future__ import annotations

from dpsql.manual.entry import LOOKING_UP, NO_ROWS, Example, ManualEntry

_NOTHING = "None needed: it reads no table and charges nothing."


def _entry(
    name: str, summary: str, signature: str, columns: dict[str, str], sql: str, arguments: dict[str, str]
) -> ManualEntry:
    return ManualEntry(
        name=name,
        topic=LOOKING_UP,
        summary=summary,
        signature=(signature,),
        arguments=arguments,
        guarantee=_NOTHING,
        neighbours=NO_ROWS,
        sensitivity="None: no rows are read.",
        unprotected="Nothing is at stake: its answer is the same everywhere.",
        missing="It reads no values of a table.",
        columns=columns,
        example=Example(sql),
        papers=("None.",),
    )


ENTRIES = (
    _entry(
        "dp_functions",
        "List every function with its topic, signature, guarantee and an example.",
        "FROM dp_functions()",
        {
            "name": "the function",
            "topic": "what it is for",
            "summary": "what it does, in one sentence",
            "signature": "how it is called, with defaults",
            "guarantee": "what is proved about its result",
            "example": "statements that run on the demonstration tables",
        },
        "SELECT name, summary FROM dp_functions() WHERE topic = 'Select features';",
        {},
    ),
    _entry(
        "dp_help",
        "Explain a function, or list those that a word leads to: by name, synonym, topic, summary or argument.",
        "FROM dp_help(word := NULL)",
        {"help": "one line of the explanation"},
        "FROM dp_help('precision');",
        {"word": "A function's name, or any word; without it all functions are listed."},
    ),
)
