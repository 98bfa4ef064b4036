"""The reader of a function's page: what ``docs/functions/NAME.md`` says, part by part."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

_REMARK = re.compile(r"<!--.*?-->")
_SECTION = re.compile(r"^## (.*)\n", re.MULTILINE)
_SQL = re.compile(r"^```sql\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (?!---)(.*) \|$", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n{2,}")
_FACT = re.compile(r"^\*\*(.*?)\.\*\* (.*?)\n\n", re.MULTILINE | re.DOTALL)
_TOPIC = re.compile(r"· topic: (.*?) ·")
_SYNONYMS = re.compile(r"^Also looked up as: (.*?)\.\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """What a reader is told about one function.

    Attributes
    ----------
    name : str
    summary : str
        What it does, in one sentence.
    calls : tuple of str
        Each way to call it, with defaults, on one line.
    before : tuple of str
        Statements that have to run before the example.
    example : str
        A statement that runs on the demonstration tables, as printed.
    columns : dict
        Meaning by column of the result, or of ``value`` where the function returns one value.
    arguments : dict
        Default and meaning by argument; the default is ``''`` for none, and ``'required'`` where one must be given.
    guarantee : str
        What is proved about the result.
    facts : dict
        By title: what neighbouring tables are, the sensitivity, what is not protected, and what missing values do.
    topic : str
    synonyms : tuple of str
        What others call what it does, in lower case and in the singular. One word may lead to several functions, the
        likeliest of which has it first.
    """

    name: str
    summary: str
    calls: tuple[str, ...]
    before: tuple[str, ...]
    example: str
    columns: dict[str, str]
    arguments: dict[str, tuple[str, str]]
    guarantee: str
    facts: dict[str, str]
    topic: str
    synonyms: tuple[str, ...]

    @classmethod
    def read(cls, markdown: str) -> Page:
        """Return what a page says."""
        head, *rest = _SECTION.split(_REMARK.sub("", markdown))
        sections = dict(zip(rest[::2], rest[1::2], strict=True))
        title, summary, *_ = _PARAGRAPH.split(head)
        *before, example = _SQL.findall(sections["Example"])
        guarantee = sections["Guarantee"]
        synonyms = [words for line in _SYNONYMS.findall(markdown) for words in _on_one_line(line).split(", ")]
        return cls(
            name=title.removeprefix("# "),
            summary=_on_one_line(summary),
            calls=tuple(_on_one_line(call) for sql in _SQL.findall(head) for call in sql.rstrip(";").split(";")),
            before=tuple(before),
            example=example,
            columns={row[0]: row[1] for row in _table(sections["Result"])},
            arguments={name: (default, meaning) for name, default, meaning in _table(sections.get("Arguments", ""))},
            guarantee=_on_one_line(_PARAGRAPH.split(guarantee.strip())[0]),
            facts={title: _on_one_line(fact) for title, fact in _FACT.findall(guarantee)},
            topic="".join(_TOPIC.findall(markdown)),
            synonyms=tuple(synonyms),
        )

    @property
    def comment(self) -> str:
        """What DuckDB's list of functions says: the summary, the guarantee, and an example."""
        return f"{self.summary}\nGuarantee: {self.guarantee}\nExample: {self.example}"


def _table(markdown: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of a table without its head; code that is a whole cell loses its quotes."""
    for row in _ROW.findall(markdown)[1:]:
        yield tuple(re.sub(r"\A`([^`]*)`\Z", r"\1", cell.strip()).replace("\\|", "|") for cell in row.split(" | "))


def wrapped_call(call: str, width: int) -> str:
    """Return a call on lines of at most `width` characters, broken between arguments."""
    kept = call.replace(" := ", "\0:=\0").replace("[false, true]", "[false,\0true]")
    lines = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
