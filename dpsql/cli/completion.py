"""Complete SQL at the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from dpsql.cli.dot_commands import DotCommand, split
from dpsql.cli.prompted import KnownNames
from dpsql.dataclass import dataclass
from dpsql.manual.catalogue import signature_of
from dpsql.rendering import identifier

_table_words = ("from", "join", "into", "table", "describe", "summarize", "update")
_word = re.compile(r"\w*\Z")
_plain_name = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?\Z")
_token = re.compile(
    r"""(?P<skip>\s+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))|(?P<text>'(?:[^']|'')*')|(?P<open>'(?:[^']|'')*\Z)
    |(?P<name>"(?:[^"]|"")*(?:"|\Z)|\w+)|(?P<sign>:=|=>|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass
class OpenCall:
    """An open parenthesis to the left of the cursor.

    Attributes
    ----------
    function : str
        The name before the parenthesis, in lower case; ``''`` if there is none.
    source : str or None
        The first argument, if it is a string: the table's name.
    argument : str or None
        The named argument whose value the user is typing.
    names : set of str
        Named arguments that the call already has.
    at_start : bool
        True when an argument begins here.
    position : int
        Number of commas to the left of the cursor.
    is_table : bool
        True after FROM and the like.
    """

    function: str
    is_table: bool = False
    source: str | None = None
    argument: str | None = None
    names: set[str] = field(default_factory=set)
    at_start: bool = True
    position: int = 0


@dataclass
class Place:
    """The cursor's position in a statement: the open calls, an open string, and the preceding words."""

    calls: list[OpenCall]
    open_text: str | None
    previous: str
    before_previous: str = ""

    @classmethod
    def find(cls, statement: str) -> Place:
        """Read the statement to the left of the current word."""
        place = cls([], None, "")
        for match in _token.finditer(statement):
            kind, text = str(match.lastgroup), match.group()
            if kind == "open":
                place.open_text = text[1:]
            elif kind != "skip":
                place._step(kind, text)
        return place

    def _step(self, kind: str, text: str) -> None:
        call = self.calls[-1] if self.calls else None
        if text in ("(", "[", "{"):
            name = self.previous if text == "(" and re.fullmatch(r"\w+", self.previous) else ""
            self.calls.append(OpenCall(name.lower(), self.before_previous.lower() in _table_words))
        elif text in (")", "]", "}"):
            if self.calls:
                self.calls.pop()
        elif call is not None and text == ",":
            call.argument, call.at_start, call.position = None, True, call.position + 1
        elif call is not None and text in (":=", "=>"):
            call.argument, call.at_start = self.previous.lower(), False
            call.names.add(call.argument)
        elif call is not None:
            if kind == "text" and call.position == 0:
                call.source = text[1:-1].replace("''", "'")
            call.at_start = False
        self.before_previous, self.previous = self.previous, text


class SqlCompleter(Completer):
    """Complete functions, their named arguments, keywords, tables, columns, and dot commands.

    Parameters
    ----------
    names : KnownNames
    dot_commands : mapping of str to DotCommand
        Commands by name, with the dot.
    """

    def __init__(self, names: KnownNames, dot_commands: Mapping[str, DotCommand]) -> None:
        self._names = names
        self._dot_commands = dot_commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the completions at the cursor, the likeliest first."""
        before = document.text_before_cursor
        if before.lstrip().startswith("."):
            yield from self._dot(before.lstrip(), complete_event)
            return
        statement = split(before)[1]
        seen: set[str] = set()
        for completion in self._sql(statement):
            if completion.text not in seen:
                seen.add(completion.text)
                yield completion

    def _dot(self, line: str, event: CompleteEvent) -> Iterator[Completion]:
        command, space, argument = line.partition(" ")
        if not space:
            yield from _matching(sorted(self._dot_commands), command)
        elif command == ".read":
            yield from self._paths.get_completions(Document(argument), event)
        elif command == ".help":
            yield from _matching(sorted({function.name for function in self._names.functions}), argument)
        elif command == ".schema":
            yield from _matching(self._names.columns, argument)
        elif command in self._dot_commands:
            yield from _matching(self._dot_commands[command].choices, argument)

    def _sql(self, statement: str) -> Iterator[Completion]:
        match = _word.search(statement)
        word = match.group() if match else ""
        cursor = Place.find(statement)
        if cursor.open_text is not None:
            yield from self._in_text(cursor)
            return
        place = Place.find(statement[: len(statement) - len(word)])
        call = place.calls[-1] if place.calls else None
        # Inside the list of `features := [`, complete for the call around the list.
        if call is not None and call.at_start and self._is_ours(call):
            arguments = self._names.arguments_of(call.function, table=call.is_table)[call.position - len(call.names) :]
            yield from _matching([n for n in arguments if n not in call.names], word, suffix=" := ", meta="argument")
            if not word:
                return
        names_table = place.previous.lower() in _table_words
        if not word and not names_table:
            return
        yield from self._functions(word, table=names_table)
        yield from _matching(self._names.columns, word, quoted=True, meta="table")
        if names_table:
            return
        columns = {name for columns in self._names.columns.values() for name, _ in columns}
        yield from _matching(sorted(columns), word, quoted=True, meta="column")
        keywords = self._names.keywords
        yield from _matching([name.lower() for name in keywords] if word[:1].islower() else keywords, word)

    def _is_ours(self, call: OpenCall) -> bool:
        return call.function.startswith(("dp_", "exact_"))

    def _functions(self, word: str, *, table: bool) -> Iterator[Completion]:
        functions = [function for function in self._names.functions if function.is_table or not table]
        for name in dict.fromkeys(function.name for function in functions):
            takes = next(function.arguments for function in functions if function.name == name)
            yield from _matching([name], word, suffix="(" if takes else "()", meta="function")

    def _in_text(self, place: Place) -> Iterator[Completion]:
        """Complete inside an open quote: the source's name, a column, or a choice of an argument."""
        typed = place.open_text or ""
        ours = [call for call in place.calls if self._is_ours(call)]
        if not ours:
            return
        call = ours[-1]
        argument = signature_of(call.function.rpartition(".")[2]).get(call.argument or "")
        if argument is not None and argument.choices:
            yield from _matching(argument.choices, typed, suffix="'")
        elif argument is not None and argument.names_column:
            yield from _matching(self._names.columns_of(call.source or ""), typed, suffix="'", meta="column")
        elif call.argument is None and call.position == 0:
            yield from _matching(self._names.columns, typed, suffix="'", meta="table")


def _matching(
    names: Iterable[str], word: str, *, suffix: str = "", quoted: bool = False, meta: str = ""
) -> Iterator[Completion]:
    """Yield the names that begin with `word`, in any case."""
    for name in names:
        if name.lower().startswith(word.lower()):
            text = identifier(name) if quoted and not _plain_name.match(name) else name
            yield Completion(text + suffix, start_position=-len(word), display=name, display_meta=meta)
