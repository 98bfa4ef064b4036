"""Errors that leave public Python functions: they hold no row.

An argument may hold rows instead of a name: a column of a frame, a list of values, a frame as text. The frames of a
traceback may hold rows too, and exceptions of Polars, NumPy or DuckDB quote values. `public` and `public_methods` wrap
each public function and method. An error that they raise

* has no ``__cause__``, no ``__context__`` and no dpsql traceback except the raising line, whose only local variable is
  the error;
* is a dpsql error, or a Python error about a file, a missing package or a call that fits no signature. I040 replaces
  any other error and names its type and the dpsql line that caused it;
* shows no element of a list, an array or a mapping (`show` shows only literals), unless the element is a public name:
  a column, a table or a word of dpsql. Messages show the place of an element, as in ``by[0]``.

SQL needs no such wrapper: the elements of its lists are literals of the statement.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date
from functools import wraps
from itertools import islice
from numbers import Number
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, TypeVar

from dpsql.contract.parameters import MOST_ITEMS, as_double, fold, is_literal, is_shown, list_items
from dpsql.errors import DpsqlError, InternalError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)

# Exceptions whose texts quote no argument value except a path, a package or a module.
_PLAIN = (OSError, ImportError, MemoryError, NotImplementedError)
_OF_DUCKDB = ("duckdb", "_duckdb")
# DuckDB exceptions about names, files, connections and syntax; others quote values.
_OF_NAMES = frozenset(
    f"{kind}Exception"
    for kind in (
        *("Binder", "Catalog", "Connection", "Dependency", "HTTP", "IO", "Interrupt", "NotImplemented", "OutOfMemory"),
        *("Parser", "Permission", "ResourceInUse", "Syntax", "Transaction"),
    )
)
_DEEPEST = 4
# Directories of dpsql modules: a checkout has udfs/ next to the package.
_HOME = Path(__file__).resolve().parents[1]
_HOMES = (f"{_HOME}/", f"{_HOME.parent / 'udfs'}/")
# Quoted text in a message.
_QUOTED = re.compile(r"""(?<!\w)'((?:[^']|'')*)'(?!\w)|"((?:[^"]|"")*)\"""")
_NUMBER = re.compile(r"(?<![\w.'\"])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|\.\w)")
# Arguments that are source text or places: messages quote parts of them.
_WRITTEN = frozenset(("condition", "database", "job", "ledger", "path", "sql", "statement", "url"))
# Arguments that hold rows: no message quotes a value in them.
_SOURCES = frozenset(("X", "frame", "rows", "sample_weight", "source", "y"))
_HIDDEN = "'...'"


def public(function: Callable[_Given, _Result], *, statements: bool = False) -> Callable[_Given, _Result]:
    """Wrap a public function so that its errors show no row.

    Parameters
    ----------
    function : callable
    statements : bool
        Whether the function runs its caller's statement: DuckDB's errors about it pass unchanged.
    """

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            keywords = {name: _read_once(value) for name, value in keywords.items()}
            return function(*args, **keywords)
        except BaseException as error:
            failure = _leaving(function, error, args, keywords, statements=statements)
        del args, keywords
        throw(failure)

    return call


def public_sql(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Wrap a public function that runs statements of its caller, see `public`."""
    return public(function, statements=True)


def public_methods(*, statements: Collection[str] = ()) -> Callable[[_Class], _Class]:
    """Return a class decorator that wraps public methods so that their errors show no row.

    Parameters
    ----------
    statements : collection of str
        Methods that run statements of their caller, see `public`.
    """

    def dress(owner: _Class) -> _Class:
        for name, attribute in list(vars(owner).items()):
            if name.startswith("_") and name not in ("__init__", "__call__"):
                continue
            if inspect.isfunction(attribute):
                setattr(owner, name, public(attribute, statements=name in statements))
            elif isinstance(attribute, classmethod | staticmethod):
                setattr(owner, name, type(attribute)(public(attribute.__func__, statements=name in statements)))
        return owner

    return dress


def throw(error: BaseException) -> NoReturn:
    """Raise an error; this frame, the innermost one in the traceback, holds nothing else."""
    raise error


def cut(error: BaseException) -> BaseException:
    """Return an error without its causes and frames."""
    error.__cause__ = error.__context__ = None
    error.__suppress_context__ = True
    return error.with_traceback(None)


def quotes_values(error: BaseException) -> bool:
    """Return whether an error is a DuckDB error about values, whose text may quote them."""
    return _is_from_duckdb(error) and type(error).__name__ not in _OF_NAMES


def _is_from_duckdb(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _OF_DUCKDB


def unshown(what: str, error: BaseException, hint: str) -> InternalError:
    """Return the error that replaces an error of another package; it names the type and the line of dpsql."""
    where = origin(error)
    failed = f"{what} failed with {type(error).__name__}{where and f' at {where}'}"
    return InternalError("I040", f"{failed}, whose text may quote rows and is not shown. {hint}")


def origin(error: BaseException) -> str:
    """Return the line of dpsql that caused an error, such as ``dpsql/frames.py:159``; ``''`` if no line did."""
    line, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path.startswith(_HOMES) and path != __file__:
            line = f"{Path(path).relative_to(_HOME.parent).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def stack(error: BaseException) -> str:
    """Return the lines of a traceback and the types in its chain, without the texts of other packages."""
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < 100:
        lines = _lines(link.__traceback__)
        text = str(link) if isinstance(link, DpsqlError) else ""
        parts.append("".join([*lines, f"{type(link).__name__}: {text}" if text else type(link).__name__, "\n"]))
        link = link.__cause__ or link.__context__
    return "\n".join(reversed(parts))


def _lines(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}\n"
        trace = trace.tb_next


def _leaving(
    function: Callable[..., Any], error: BaseException, args: tuple[Any, ...], keywords: Mapping[str, Any], **how: bool
) -> BaseException:
    """Return the error to raise for an error of a public function."""
    if isinstance(error, DpsqlError):
        if args and getattr(args[0], "_asker", None) is not None:  # a gateway: its queries are SQL
            return cut(error)
        message = without_elements(error.message, _by_name(function, args, keywords), lambda: _names(args, keywords))
        return cut(error if message == error.message else error.saying(message))
    if not isinstance(error, Exception) or isinstance(error, _PLAIN):
        return cut(error)
    if _is_from_duckdb(error) and (how["statements"] or not quotes_values(error)):
        return cut(error)
    trace = error.__traceback__
    if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
        return cut(error)  # of Python: the call fits no signature
    if isinstance(error, AttributeError) and error.obj is None and error.name is None:
        return cut(error)  # raised on purpose
    return unshown(function.__name__, error, f"Check the types of the arguments: help({function.__qualname__}).")


def _by_name(function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name."""
    names = list(inspect.signature(function).parameters)
    own = args[1:] if names[:1] in (["self"], ["cls"]) else args
    names = [name for name in names if name not in ("self", "cls")]
    arguments = {**dict(zip(names, own, strict=False)), **keywords}
    if isinstance(arguments.get("arguments"), Mapping):  # of a planned call
        inner = dict(arguments["arguments"])
        arguments |= {**inner, "arguments": list(inner)}
    return arguments


def _names(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Collection[str]:
    """Return the public names that a method's object knows: columns of the source, and tables."""
    lookup = getattr(args[0], "_public_names", None) if args else None
    try:
        return () if lookup is None else lookup(args[1] if len(args) > 1 else keywords.get("source"))
    except Exception:  # the names only improve the message
        return ()


def _read_once(value: object) -> object:
    """Return the items of an iterator as a list, so that they can be read again; any other value unchanged."""
    if hasattr(type(value), "__next__") and not hasattr(value, "__arrow_c_stream__"):
        return list(islice(value, MOST_ITEMS + 1))  # type: ignore[call-overload]
    return value


# The sentences of a hint that are made of the refused value.
_MADE_OF_VALUES = re.compile(
    r" (?:Write (?!FROM |SELECT ).*?\.|Name (?:the column alone|columns).*?\.|Compute it in a view: .*? of 'chosen'\.)"
    r"(?= |\Z)"
)


def without_elements(message: str, arguments: Mapping[str, Any], names: Callable[[], Collection[str]]) -> str:
    """Hide every text and number in a message that is an element of an argument, unless it is a public name.

    The search covers quoted texts everywhere, and numbers other than 0 and 1 before the hint. A sentence that says what
    to write in place of a value is made of this value, so it is left out where a value is hidden.

    Parameters
    ----------
    message : str
    arguments : mapping of str to object
        Arguments of the call.
    names : callable
        Returns public names; called only if the message quotes an element.
    """
    for value in arguments.values():
        if isinstance(value, str) and len(value) > 1 and not is_shown(value):  # a cell, or a frame as text
            message = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "...", message)
    first, end, hint = message.partition(". ")  # numbers in a hint are never the caller's
    quoted = {key for match in _QUOTED.finditer(message) for key in _keys(_spelled(match))}
    numbers = {float(match[0]) for match in _NUMBER.finditer(first)} - {0.0, 1.0}
    if not quoted and not numbers:
        return message
    typed = {key for value in arguments.values() if is_literal(value) for key in _keys(value)}
    origins: dict[str | float, str] = {}
    for name, value in arguments.items():
        if isinstance(value, str) and not is_shown(value) and name not in _WRITTEN:
            parts = (key for key in quoted if isinstance(key, str) and len(key) > 1 and key in fold(value))
            origins.update(dict.fromkeys(parts, f"a part of {name}"))
        for location, element in _elements(name, value) if name not in _SOURCES else ():
            for key in _keys(element):
                if (key in quoted or key in numbers) and key not in typed:
                    origins.setdefault(key, location)
    for name in map(fold, names()) if origins else ():
        origins.pop(name, None)
    if not origins:
        return message
    hint = _MADE_OF_VALUES.sub("", f" {hint}").removeprefix(" ")
    first = _NUMBER.sub(lambda match: _HIDDEN if float(match[0]) in origins else match[0], first)
    text = _QUOTED.sub(
        lambda match: match[0] if origins.keys().isdisjoint(_keys(_spelled(match))) else _HIDDEN, first + end + hint
    )
    which = " and ".join(list(dict.fromkeys(origins.values()))[:3])
    return f"{text} ({_HIDDEN} is {which}: elements are not shown, because they may be rows.)"


def _keys(value: Any) -> Iterator[str | float]:
    """Yield the comparison keys of a text or a number; a numeric text has both, and a date is text."""
    if isinstance(value, str | date):
        yield fold(str(value))
    number = as_double(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
    if number is not None:
        yield number


def _spelled(match: re.Match[str]) -> str:
    single, double = match[1], match[2]
    return single.replace("''", "'") if double is None else double.replace('""', '"')


def _elements(location: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the texts and numbers in a container argument, each with its place."""
    if isinstance(value, str | date | Number):
        if depth:
            yield location, value
        return
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for number, (name, content) in enumerate(islice(value.items(), MOST_ITEMS), start=1):
            yield from _elements(f"name {number} of {location}" if depth == 0 else location, name, _DEEPEST)
            yield from _elements(
                f"the value of name {number} of {location}" if depth == 0 else location, content, depth + 1
            )
        return
    try:
        items = list_items(value) or (value if isinstance(value, set | frozenset) else ())
    except Exception:  # a class of the caller
        return
    for number, item in enumerate(items):
        yield from _elements(f"{location}[{number}]" if depth == 0 else location, item, depth + 1)
