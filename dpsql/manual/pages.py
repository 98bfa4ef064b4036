"""The pages ``docs/functions``: one per function, and an index.

``python -m dpsql.manual`` writes them in a checkout, and ``--check`` fails where one differs. The output of an example
is that of a real run. Noise differs from run to run, so a page keeps its output until the example, what runs before it,
or the demonstration tables change: a comment in the page holds their digest.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dpsql.contract.arguments import Argument
from dpsql.functions.registry import EXACT, FUNCTIONS
from dpsql.manual.catalogue import (
    MANUAL,
    arguments_of,
    by_topic,
    signatures,
    summary_of,
    wrapped_call,
)
from dpsql.manual.demonstration import BUDGETS, STATEMENTS, TABLES
from dpsql.manual.entry import Example, ManualEntry

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "functions"
_CODE_WIDTH = 96
_DIGITS = 12
# A run: takes an example, and returns its output as a Markdown table.
Run = Callable[[Example], str]


def page(name: str, output: str) -> str:
    """Return the page of a function, with the output of its example."""
    entry = MANUAL[name]
    calls = "\n\n".join(wrapped_call(call, _CODE_WIDTH) + ";" for call in signatures(name))
    parts = [
        f"# {name}",
        summary_of(name),
        f"```sql\n{calls}\n```",
        *_cost(name),
        "## Example\n\nOn the [demonstration tables](index.md#demonstration-tables):",
        *(f"```sql\n{statement}\n```" for statement in entry.example.before),
        f"```sql\n{entry.example.sql}\n```",
        f"<!-- run {digest(entry.example)} -->\n{output}",
        *_other_languages(entry),
        "## Result\n\n" + _table(("column", "meaning"), [(_code(one), said) for one, said in entry.columns.items()]),
        *_arguments(name),
        f"## Guarantee\n\n{entry.guarantee}",
        f"**Neighbours.** {entry.neighbours}",
        f"**Sensitivity.** {entry.sensitivity}",
        f"**Not protected.** {entry.unprotected}",
        f"**Missing values.** {entry.missing}",
        "## Where it comes from\n\n" + "\n".join(f"* {paper}." for paper in _without_stops(entry.papers)),
        f"[All functions](index.md) · topic: {entry.topic} · [error codes](../errors.md)",
    ]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """Return the page that lists all functions by topic."""
    parts = [
        "# Functions",
        "Every SQL function, by topic. In a terminal, `.help` in `dpsql shell` shows the same pages; on any connection "
        "with dpsql "
        "`FROM dp_functions()` lists them. These pages are written by `python -m dpsql.manual`.",
    ]
    for topic, entries in by_topic():
        rows = [(f"[`{entry.name}`]({entry.name}.md)", summary_of(entry.name)) for entry in entries]
        parts += [f"## {topic}", _table(("function", "what it does"), rows)]
    parts += [
        "## Demonstration tables",
        "The examples run on four small tables of invented people, the same everywhere. One command makes them, "
        "`.examples` "
        'in the shell does, and so does `dpsql.example("hospital.duckdb")` in Python:',
        "```sh\ndpsql example hospital.duckdb\n```",
        _table(("table", "what it holds"), [(f"`{name}`", said) for name, said in TABLES.items()]),
        "The examples on the pages were run under these budgets, which have room for all of them:",
        "```sql\n" + "\n".join(BUDGETS) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def generated(run: Run | None, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield every page with the text that it should have.

    Parameters
    ----------
    run : callable or None
        Runs an example whose output is not stored; None leaves it out, so that the page is found to differ.
    folder : path
        Where the pages stand.
    """
    yield folder / "index.md", index()
    for name in MANUAL:
        path = folder / f"{name}.md"
        example = MANUAL[name].example
        output = stored_output(path, example)
        if output is None:
            output = "" if run is None else run(example)
        yield path, page(name, output)


def stored_output(path: Path, example: Example) -> str | None:
    """Return the output that a page has of an example; None if it is of another one."""
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"<!-- run {digest(example)} -->\n(.*?)\n\n", written, re.DOTALL)
    return found.group(1) if found else None


def digest(example: Example) -> str:
    """Return what identifies an example with all that runs before it."""
    text = "\0".join((*STATEMENTS, *BUDGETS, *example.before, example.sql))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def output_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the rows of a result as a Markdown table."""
    return _table([_code(name) for name in columns], [[_shown(value) for value in row] for row in rows])


def _cost(name: str) -> Iterator[str]:
    if name in FUNCTIONS:
        yield (
            "Every read of it is one release, charged to the budget of the table. With `release := 'a name'` the "
            "same call "
            "returns the stored result at no cost."
        )
    elif name in EXACT or MANUAL[name].guarantee.startswith("None. NOT PRIVATE"):
        yield "**Not private**: the result is exact."


def _arguments(name: str) -> Iterator[str]:
    rows = [(f"`{one.name}`", _escaped(_default(one)), _escaped(one.meaning)) for one in arguments_of(name).values()]
    if rows:
        yield "## Arguments\n\n" + _table(("argument", "default", "meaning"), rows)


def _default(argument: Argument) -> str:
    constant = argument.default is not None and not argument.shown
    return f"`{argument.shown_default}`" if constant else argument.shown_default


def _other_languages(entry: ManualEntry) -> Iterator[str]:
    if entry.example.python:
        yield f'In Python, with `ctx = dpsql.Context("hospital.duckdb")`:\n\n```python\n{entry.example.python}\n```'
    if entry.example.frame:
        yield f"On a Polars frame:\n\n```python\n{entry.example.frame}\n```"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(column: str) -> str:
    return column if " " in column or "(" in column else f"`{column}`"


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _without_stops(papers: Sequence[str]) -> list[str]:
    return [paper.rstrip(".") for paper in papers]
