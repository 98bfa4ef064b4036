"""The reader of a function's page: what ``docs/functions/NAME.md`` says, part by part."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_REMARK = re.compile(r"<!--.*?-->")
_SQL = re.compile(r"^```sql\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_FACT = re.compile(r"^\*\*(.*?)\.\*\* (.*?)(?=\n\n|\n*\Z)", re.MULTILINE | re.DOTALL)
_TOPIC = re.compile(r"· topic: (.*?) ·")
_SYNONYMS = re.compile(r"^Also looked up as: (.*?)\.\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """What a reader is told about one function; each part is read off its page when it is first asked for.

    Attributes
    ----------
    markdown : str
        The text of the page.
    """

    markdown: str

    @cached_property
    def _sections(self) -> dict[str, str]:
        """The text under each heading; that under the title is under ``''``."""
        head, *rest = _REMARK.sub("", self.markdown).split("\n## ")
        return {"": head, **{title: body for title, _, body in (section.partition("\n") for section in rest)}}

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._sections[""].partition("\n")[0].removeprefix("# ")

    @cached_property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return _first_paragraph(self._sections[""].partition("\n")[2])

    @cached_property
    def calls(self) -> list[str]:
        """Each way to call it, with defaults, on one line."""
        written = _SQL.findall(self._sections[""])
        return [_on_one_line(call) for sql in written for call in sql.rstrip(";").split(";")]

    @cached_property
    def statements(self) -> list[str]:
        """What has to run before the example on the demonstration tables, and the example, as they are printed."""
        return _SQL.findall(self._sections["Example"])

    @property
    def example(self) -> str:
        """A statement that runs on the demonstration tables."""
        return self.statements[-1]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Meaning by column of the result, or of ``value`` where the function returns one value."""
        return {row[0]: row[1] for row in _rows(self._sections["Result"])}

    @cached_property
    def arguments(self) -> dict[str, tuple[str, str]]:
        """Default and meaning by argument; the default is ``''`` for none, ``'required'`` where one must be given."""
        return {name: (default, meaning) for name, default, meaning in _rows(self._sections.get("Arguments", ""))}

    @cached_property
    def guarantee(self) -> str:
        """What is proved about the result."""
        return _first_paragraph(self._sections["Guarantee"])

    @cached_property
    def facts(self) -> dict[str, str]:
        """By title: what neighbours are, the sensitivity, what is not protected, and what missing values do."""
        return {title: _on_one_line(fact) for title, fact in _FACT.findall(self._sections["Guarantee"])}

    @cached_property
    def topic(self) -> str:
        """What it is for."""
        return "".join(_TOPIC.findall(self.markdown))

    @cached_property
    def synonyms(self) -> list[str]:
        """What others call what it does, in lower case and in the singular.

        One word may lead to several functions, the likeliest of which has it first.
        """
        return [word for line in _SYNONYMS.findall(self.markdown) for word in _on_one_line(line).split(", ")]

    @property
    def comment(self) -> str:
        """What DuckDB's list of functions says: the summary, the guarantee, and an example."""
        return f"{self.summary}\nGuarantee: {self.guarantee}\nExample: {self.example}"


def wrapped_call(call: str, width: int) -> str:
    """Return a call on lines of at most `width` characters, broken between arguments."""
    kept = call.replace(" := ", "\0:=\0").replace("[false, true]", "[false,\0true]")
    lines = textwrap.fill(kept, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _rows(section: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a table but its head; code that is a whole cell loses its quotes."""
    for line in section.split("\n"):
        if line.startswith("| ") and not line.startswith(("| ---", "| argument |", "| column |")):
            cells = line[2:-2].split(" | ")
            yield [re.sub(r"\A`([^`]*)`\Z", r"\1", cell.strip()).replace("\\|", "|") for cell in cells]


def _first_paragraph(section: str) -> str:
    return _on_one_line(section.strip().partition("\n\n")[0])


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
