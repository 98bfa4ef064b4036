"""Fill in the generated parts of the function pages (``python -m dpsql.manual``); ``--check`` lists differing pages.

The pages in ``docs/functions`` are written by hand, except the parts between ``<!-- kind -->`` and ``<!-- end -->``:

==========================  ====================================================================================
``call``                    the call, with defaults; for private functions the summary before, the cost after
``output …``                the rows of the example; its digest
``python``                  the example in Python and on a Polars frame
``arguments …``             defaults and meanings; the rows of the arguments named here are written by hand
``functions``, ``budgets``  for the index: the functions of a topic, and the budgets of the examples
others                      a text of ``passages.toml``, which several pages share
==========================  ====================================================================================

Noise differs from run to run, so a page keeps its example's output until the example, the statements before it, or the
demonstration tables change.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dpsql
from dpsql.contract.arguments import Argument
from dpsql.functions.query import SQL
from dpsql.functions.registry import EXACT, FUNCTIONS, QUERY, function_of
from dpsql.manual.catalogue import Page, signature_of, topics_of, wrapped_call
from dpsql.manual.demonstration import BUDGETS, STATEMENTS

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = _ROOT / "docs" / "functions"
_SITE = _ROOT / "zensical.toml"
_BLOCK = re.compile(r"<!-- (\w+)(?: ([\w ]+))? -->(.*?)<!-- end -->", re.DOTALL)
_LISTED = re.compile(r'(?<="functions/index.md" },\n).*?(?=^  \] },$)', re.DOTALL | re.MULTILINE)
_CODE_WIDTH, _PYTHON_WIDTH = 96, 120
_DIGITS = 12
_COST = (
    "Every read of it is one release, charged to the budget of the table. With `release := 'a name'` the same call "
    "returns the stored result at no cost."
)
_SOURCE = Argument("source", "A table, view, file or registered frame.", default_text="required")
# The columns of the aggregate form, in their order.
_COLUMNS = ("x", "y", "p")
# A run takes a page, and returns the output of its example as a Markdown table.
Run = Callable[[Page], str]


@contextmanager
def runs() -> Iterator[Run]:
    """Run examples on a database of the demonstration tables, each statement once."""
    with dpsql.Context() as context:
        done: set[str] = set()

        def run(page: Page) -> str:
            for statement in (*STATEMENTS, *BUDGETS, *page.statements[:-1]):
                if statement not in done:
                    context.connection.execute(statement)
                    done.add(statement)
            result = context.connection.execute(page.example)
            head = [_code(column[0]) for column in result.description]
            return _table(head, [list(map(_cell, row)) for row in result.fetchall()])

        yield run


def generated(run: Run | None) -> Iterator[tuple[Path, str]]:
    """Yield every page, the index and the site's navigation, each with its expected text.

    Parameters
    ----------
    run : callable or None
        Runs an example without stored output; None omits the output, so that the page differs.
    """
    passages = tomllib.loads(Path(__file__).with_name("passages.toml").read_text(encoding="utf-8"))
    pages: dict[str, Page] = {}
    for path in sorted(FOLDER.glob("*.md")):
        if path.stem != "index":
            text = _filled(path.read_text(encoding="utf-8"), passages, run)
            pages[path.stem] = Page(text)
            yield path, text
    path = FOLDER / "index.md"
    index = _index(path.read_text(encoding="utf-8"), pages)
    yield path, index
    yield _SITE, _LISTED.sub(lambda _: _navigation(topics_of(index)), _SITE.read_text(encoding="utf-8"))


def _filled(text: str, passages: dict[str, str], run: Run | None) -> str:
    """Return the text of a page with its blocks filled in."""
    page = Page(text)

    def block(match: re.Match[str]) -> str:
        kind, words, body = match.groups("")
        if kind in passages:
            return f"<!-- {kind} -->{passages[kind]}<!-- end -->"
        if kind == "output":
            is_stored = words == _digest(page)
            words = _digest(page)
            body = body.strip() if is_stored else "" if run is None else run(page)
        else:
            body = {"call": _call, "python": _python, "arguments": _arguments}[kind](page, words.split())
        return f"<!-- {f'{kind} {words}'.strip()} -->\n\n{body}\n\n<!-- end -->"

    return _BLOCK.sub(block, text)


def _index(text: str, pages: dict[str, Page]) -> str:
    """Return the index: each topic keeps the order of its functions, with new functions at the end."""
    order = dict.fromkeys((*(name for names in topics_of(text).values() for name in names), *pages))

    def topic(match: re.Match[str]) -> str:
        listed = [pages[name] for name in order if name in pages and pages[name].topic == match["topic"]]
        rows = [(f"[`{page.name}`]({page.name}.md)", page.summary) for page in listed]
        head = f"## {match['topic']}\n\n<!-- functions -->\n\n"
        return f"{head}{_table(('function', 'what it does'), rows)}\n\n<!-- end -->"

    text = re.sub(r"## (?P<topic>[^\n]*)\n\n<!-- functions -->.*?<!-- end -->", topic, text, flags=re.DOTALL)
    budgets = "<!-- budgets -->\n\n```sql\n" + "\n".join(BUDGETS) + "\n```\n\n<!-- end -->"
    return re.sub(r"<!-- budgets -->.*?<!-- end -->", lambda _: budgets, text, flags=re.DOTALL)


def _navigation(topics: dict[str, list[str]]) -> str:
    """Return the lines of the site's navigation that list the functions."""
    lines = []
    for topic, names in topics.items():
        listed = [f'      {{ "{name}" = "functions/{name}.md" }},' for name in names]
        lines += [f'    {{ "{topic}" = [', *listed, "    ] },"]
    return "\n".join(lines) + "\n"


def _digest(page: Page) -> str:
    """Return the digest of an example with all statements before it."""
    text = "\0".join((*STATEMENTS, *BUDGETS, *page.statements))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _call(page: Page, _: list[str]) -> str:
    """Return each way to call a function, with its arguments."""
    name, signature = page.name, signature_of(page.name).values()
    if name in FUNCTIONS or name in EXACT:
        calls = [f"FROM {name}({_joined(['source'], signature)})"]
    elif name == QUERY:
        calls = [f"FROM {name}({_joined(['sql'], signature)})"]
    else:
        first = [argument for argument in page.arguments if argument not in signature_of(name)]
        start = "FROM" if name in ("dp_estimate", "dp_unplaced") else "SELECT"
        calls = [f"{start} {name}({_joined(first, signature)})"]
    columns = {argument.column for argument in signature if argument.column}
    if name in FUNCTIONS and columns:
        rest = [argument for argument in signature if not argument.column and not argument.table_only]
        calls.append(f"SELECT {name}({_joined([column for column in _COLUMNS if column in columns], rest)})")
    sql = "```sql\n" + "\n\n".join(wrapped_call(call, _CODE_WIDTH) + ";" for call in calls) + "\n```"
    costs = name in FUNCTIONS or name == QUERY
    return f"{function_of(name).doc}\n\n{sql}\n\n{_COST}" if costs else sql


def _joined(first: Sequence[str], rest: Iterable[Argument]) -> str:
    return ", ".join([*first, *(f"{argument.name} := {_value(argument)}" for argument in rest)])


def _value(argument: Argument) -> str:
    """Return the value of an argument in a call: its default, or an ellipsis for a required argument."""
    if argument.required:
        return "…"
    if argument.null_is_wrong:
        return "false"
    return argument.shown_default if _is_constant(argument) else "NULL"


def _is_constant(argument: Argument) -> bool:
    return argument.default is not None and not argument.default_text


def _arguments(page: Page, by_hand: list[str]) -> str:
    rows = [(f"`{name}`", page.arguments[name][0], page.arguments[name][1]) for name in by_hand]
    first = [_SOURCE] if page.name in FUNCTIONS else [SQL] if page.name == QUERY else []
    for argument in (*first, *signature_of(page.name).values()):
        default = f"`{argument.shown_default}`" if _is_constant(argument) else argument.shown_default
        rows.append((f"`{argument.name}`", default, argument.meaning))
    return _table(("argument", "default", "meaning"), [tuple(map(_escaped, row)) for row in rows])


def _python(page: Page, _: list[str]) -> str:
    """Return the example in Python and on a Polars frame, from SQL ``FROM name('source', argument := value, …);``."""
    if page.name == QUERY:
        return _python_of_query(page)
    function, source, rest = re.fullmatch(r"FROM (\w+)\('(\w+)', (.*)\);", " ".join(page.example.split())).groups()  # type: ignore[union-attr]
    parts = _in_python(rest)
    call = _laid_out(f"ctx.{function}", [f'"{source}"', *parts])
    frame = _laid_out(f"{source}.dp.{function.removeprefix('dp_')}", parts)
    return (
        f'In Python, with `ctx = dpsql.Context("hospital.duckdb")`:\n\n```python\n{call}\n```\n\n'
        f"On a Polars frame:\n\n```python\n{frame}\n```"
    )


def _in_python(arguments: str) -> list[str]:
    """Return arguments of SQL in Python spelling."""
    quoted = re.sub(r"'([^']*)'", r'"\1"', re.sub(r"(?<=[{ ])(\w+): ", r"'\1': ", arguments))
    spelling = re.sub(r"\b(true|false)\b", lambda word: word[0].title(), quoted).replace(" := ", "=")
    return re.split(r", (?=\w+=)", spelling)


def _python_of_query(page: Page) -> str:
    """Return the example of a query in Python, from SQL ``FROM dp_query('SELECT …', argument := value, …);``."""
    match = re.fullmatch(r"FROM (\w+)\('((?:[^']|'')*)', (.*)\);", " ".join(page.example.split()))
    function, sql, rest = match.groups()  # type: ignore[union-attr]
    lines = textwrap.wrap(sql.replace("''", "'"), _PYTHON_WIDTH - 12)
    text = [*(f'    "{line} "' for line in lines[:-1]), f'    "{lines[-1]}",']
    more = [f"    {part}," for part in _in_python(rest)]
    call = "\n".join([f"ctx.{function.removeprefix('dp_')}(", *text, *more, ")"])
    return f'In Python, with `ctx = dpsql.Context("hospital.duckdb")`:\n\n```python\n{call}\n```'


def _laid_out(method: str, parts: list[str]) -> str:
    """Return a method call in a formatter's layout."""
    line = ", ".join(parts)
    if len(line) + len(method) + len("()") <= _PYTHON_WIDTH:
        return f"{method}({line})"
    if len(line) + 4 <= _PYTHON_WIDTH:
        return f"{method}(\n    {line}\n)"
    return "\n".join([f"{method}(", *(f"    {part}," for part in parts), ")"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))


def _code(column: str) -> str:
    return column if " " in column or "(" in column else f"`{column}`"


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main(words: list[str]) -> int:
    """Write the pages, or with ``--check`` list the differing pages; return the exit status."""
    if words == ["--check"]:
        stale = [path for path, content in generated(None) if path.read_text(encoding="utf-8") != content]
        for path in stale:
            print(f"{path}: not what the code says. Run python -m dpsql.generate.")
        return 1 if stale else 0
    with runs() as run:
        for path, content in generated(run):
            path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
