"""Read the manual: the pages by name, and the functions for a word.

Help is plain text of a given width: the list of functions, one function, or the functions for a word. `Page` reads the
parts of ``docs/functions/NAME.md``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

from dpsql.contract.arguments import Signature
from dpsql.contract.parameters import near_names
from dpsql.dataclass import dataclass
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import DECLARATIONS, EXACT, FUNCTIONS, QUERY, function_of

_REMARK = re.compile(r"<!--.*?-->")
_SQL = re.compile(r"^```sql\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_FACT = re.compile(r"^\*\*(.*?)\.\*\* (.*?)(?=\n\n|\n*\Z)", re.MULTILINE | re.DOTALL)
_TOPIC_NAME = re.compile(r"· topic: (.*?) ·")
_SYNONYMS = re.compile(r"^Also looked up as: (.*?)\.\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A function's page; each part is parsed on first use.

    Attributes
    ----------
    markdown : str
        The text of the page.
    """

    markdown: str

    @cached_property
    def _sections(self) -> dict[str, str]:
        """The text under each heading; ``''`` has the text under the title."""
        head, *rest = _REMARK.sub("", self.markdown).split("\n## ")
        return {"": head, **{title: body for title, _, body in (section.partition("\n") for section in rest)}}

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._sections[""].partition("\n")[0].removeprefix("# ")

    @cached_property
    def summary(self) -> str:
        """The function in one sentence."""
        return _first_paragraph(self._sections[""].partition("\n")[2])

    @cached_property
    def calls(self) -> list[str]:
        """Each form of the call, with defaults, on one line."""
        statements = _SQL.findall(self._sections[""])
        return [_on_one_line(call) for sql in statements for call in sql.rstrip(";").split(";")]

    @cached_property
    def statements(self) -> list[str]:
        """The statements before the example on the demonstration tables, and the example, as printed."""
        return _SQL.findall(self._sections["Example"])

    @property
    def example(self) -> str:
        """A statement that runs on the demonstration tables."""
        return self.statements[-1]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Meaning by result column, or of ``value`` if the function returns one value."""
        return {row[0]: row[1] for row in _rows(self._sections["Result"])}

    @cached_property
    def arguments(self) -> dict[str, tuple[str, str]]:
        """Default and meaning by argument; the default is ``''`` for none, ``'required'`` if required."""
        return {name: (default, meaning) for name, default, meaning in _rows(self._sections.get("Arguments", ""))}

    @cached_property
    def guarantee(self) -> str:
        """The proven guarantee of the result."""
        return _first_paragraph(self._sections["Guarantee"])

    @cached_property
    def facts(self) -> dict[str, str]:
        """Facts by title: neighbours, sensitivity, unprotected facts, and missing values."""
        return {title: _on_one_line(fact) for title, fact in _FACT.findall(self._sections["Guarantee"])}

    @cached_property
    def topic(self) -> str:
        """The topic."""
        return "".join(_TOPIC_NAME.findall(self.markdown))

    @cached_property
    def synonyms(self) -> list[str]:
        """Other names of the method, in lower case and in the singular.

        One word may lead to several functions; the likeliest function lists the word first.
        """
        return [word for line in _SYNONYMS.findall(self.markdown) for word in _on_one_line(line).split(", ")]

    @property
    def comment(self) -> str:
        """The comment in DuckDB's list of functions: the summary, the guarantee, and an example."""
        return f"{self.summary}\nGuarantee: {self.guarantee}\nExample: {self.example}"


def wrapped_call(call: str, width: int) -> str:
    """Return a call on lines of at most `width` characters, broken between arguments."""
    text = call.replace(" := ", "\0:=\0").replace("[false, true]", "[false,\0true]")
    lines = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _rows(section: str) -> Iterator[list[str]]:
    """Yield the cells of each table row but the head; a cell that is all code loses its backquotes."""
    for line in section.split("\n"):
        if line.startswith("| ") and not line.startswith(("| ---", "| argument |", "| column |")):
            cells = line[2:-2].split(" | ")
            yield [re.sub(r"\A`([^`]*)`\Z", r"\1", cell.strip()).replace("\\|", "|") for cell in cells]


def _first_paragraph(section: str) -> str:
    return _on_one_line(section.strip().partition("\n\n")[0])


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


_LISTED = 3
_TOPIC = re.compile(r"^## ([^\n]*)\n\n<!-- functions -->\n(.*?)<!-- end -->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"^\| \[`(\w+)`\]", re.MULTILINE)


class Manual(Mapping[str, Page]):
    """The pages by function, in the order of the index; each is read on first use."""

    def __init__(self) -> None:
        self._read: dict[str, Page] = {}

    def __getitem__(self, name: str) -> Page:
        if name not in self._read:
            if name not in _names():
                raise KeyError(name)
            self._read[name] = Page(_text(name))
        return self._read[name]

    def forget(self) -> None:
        """Read pages and index again after a change."""
        self._read.clear()
        by_topic.cache_clear()
        _names.cache_clear()

    def __contains__(self, name: object) -> bool:
        return name in _names()

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


MANUAL = Manual()


@cache
def by_topic() -> dict[str, list[str]]:
    """Return the functions of each topic, in the order of the index."""
    return topics_of(_text("index"))


@cache
def _names() -> dict[str, None]:
    listed = (name for names in by_topic().values() for name in names)
    return dict.fromkeys([*listed, *FUNCTIONS, QUERY])  # a new function is not in the index yet


def topics_of(index: str) -> dict[str, list[str]]:
    """Return the functions in the text of an index, by topic."""
    return {topic: _LINK.findall(listed) for topic, listed in _TOPIC.findall(index)}


def _text(name: str) -> str:
    return _files()[f"{name}.md"].read_text(encoding="utf-8")


@cache
def _files() -> dict[str, Traversable]:
    """Return the pages by name; a lookup of each in a folder with two possible places takes longer."""
    return {path.name: path for path in files("dpsql.docs.functions").iterdir()}


def signature_of(name: str) -> Signature:
    """Return the named arguments of a SQL function; none without a list of them."""
    if name in FUNCTIONS:
        return FUNCTIONS[name].plan.arguments
    if name == QUERY:
        return function_of(name).plan.arguments
    if name in EXACT:
        return Signature(*(argument for argument in function_of(name).plan.arguments.values() if argument.statistic))
    return {**DECLARATIONS, "dp_estimate": ESTIMATE}.get(name, Signature())


def named_by(word: str) -> list[str]:
    """Return the functions with a word as a synonym; those that list it earlier come first.

    Among equal ranks, functions that read rows come before functions that read a release.
    """
    forms = {form.replace("_", " ") for form in (word, word.removesuffix("s"))}
    ranks = {
        name: (page.synonyms.index(synonym), name not in FUNCTIONS)
        for name, page in MANUAL.items()
        for synonym in page.synonyms
        if synonym in forms
    }
    return sorted(ranks, key=ranks.__getitem__)


def search(word: str) -> list[str]:
    """Return the names of functions for a word: by their names, synonyms, topics, summaries and argument names.

    If nothing matches, the search also reads the meanings of arguments.
    """
    term = word.lower()
    parts: tuple[Callable[[Page], str], ...] = (
        lambda page: page.name,
        lambda page: page.topic,
        lambda page: page.summary,
    )
    names = dict.fromkeys(named_by(term))
    for part in parts:
        names |= dict.fromkeys(name for name, page in MANUAL.items() if term in part(page).lower())
    names |= dict.fromkeys(name for name, page in MANUAL.items() if term in page.arguments)
    return list(names) or [name for name, page in MANUAL.items() if term in _last_words(page)]


def _last_words(page: Page) -> str:
    """Return the arguments, meanings and synonyms of a function, searched last."""
    arguments = " ".join(f"{name} {meaning}" for name, (_, meaning) in page.arguments.items())
    return f"{arguments} {' '.join(page.synonyms)}".lower()


def nearest(word: str) -> list[str]:
    """Return the functions that a word may mean: by that name, by that synonym, or by a similar name.

    If no name is similar, a similar synonym counts.
    """
    term = word.lower().removeprefix("dp_")
    plain = {name.partition("_")[2] or name: name for name in MANUAL}
    meant = dict.fromkeys([*([plain[term]] if term in plain else []), *named_by(term)])
    if not meant:
        meant = dict.fromkeys(plain[name] for name in near_names(term, plain, _LISTED))
    if not meant:
        words = sorted({synonym for page in MANUAL.values() for synonym in page.synonyms})
        meant = dict.fromkeys(name for synonym in near_names(term, words, 1) for name in named_by(synonym))
    return list(meant)[:_LISTED]


WIDTH = 80
_GAP = "  "


def help_lines(word: str | None = None, *, width: int = WIDTH) -> list[str] | None:
    """Return help as lines that fit the width; None without a match.

    Parameters
    ----------
    word : str, optional
        A function's name, or part of a name, a topic, a summary or an argument; by default all functions.
    width : int
    """
    if word is not None and word.lower() in MANUAL:
        return list(_function(MANUAL[word.lower()], width))
    names = set(MANUAL if word is None else search(word))
    return list(_listed(names, width)) if names else None


def suggestion(word: str) -> str:
    """Return the advice for a word without a match."""
    close = nearest(word)
    return f"Did you mean {' or '.join(close)}?" if close else "Type .help for the list."


def columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield pairs of strings as two columns; the second column wraps."""
    first = max(len(label) for label, _ in rows)
    for label, other in rows:
        lines = _wrapped(other, width - first - len(_GAP)) or [""]
        yield f"{label.ljust(first)}{_GAP}{lines[0]}".rstrip()
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
