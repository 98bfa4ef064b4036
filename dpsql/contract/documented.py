"""Signatures and docstrings of Python functions, derived from a list of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter
from typing import TypeVar

from dpsql.contract.arguments import REQUIRED, Argument, Signature

_Function = TypeVar("_Function", bound=Callable[..., object])
# Documentation of the parameters that come before the arguments.
_LEADING = {
    "source": (
        "str or frame",
        "Table, view or registered name; or a Polars, pandas or Arrow frame, for which give `dataset`.",
    ),
    "dataset": ("str", "A table or view, or the name of rows that are in no catalog."),
    "table": ("str", "A table or view."),
    "base": ("str", "The protected table that it was made from."),
    "function": ("str", "A function that spends, such as ``'dp_sis'``."),
}


def takes(arguments: Signature, columns: Iterable[str] = ()) -> Callable[[_Function], _Function]:
    """Return a decorator for a function that takes some arguments as ``**arguments``.

    `inspect.signature`, ``help`` and completion in notebooks then show each argument with its default and meaning.

    Parameters
    ----------
    arguments : Signature
    columns : iterable of str
        Columns of the release, if the function returns one.
    """

    def dress(function: _Function) -> _Function:
        written = inspect.signature(function)
        leading = [one for one in written.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        named = list(map(_parameter, arguments.values()))
        function.__signature__ = written.replace(parameters=[*leading, *named])  # type: ignore[attr-defined]
        function.__doc__ = "\n".join(
            [inspect.getdoc(function) or "", "", *_parameters(leading, arguments), *_returns(columns)]
        )
        return function

    return dress


def _parameter(argument: Argument) -> Parameter:
    """Return an argument as a parameter of a Python function, where None leaves it out."""
    if argument.required:
        return Parameter(argument.name, Parameter.KEYWORD_ONLY, annotation=argument.annotation)
    kind = f"{argument.annotation} | None"
    return Parameter(argument.name, Parameter.KEYWORD_ONLY, default=argument.default, annotation=kind)


def _parameters(leading: list[Parameter], arguments: Signature) -> Iterator[str]:
    """Yield the lines of the docstring's Parameters section."""
    yield from ("Parameters", "----------")
    for one in leading:
        if one.name in _LEADING:
            kind, meaning = _LEADING[one.name]
            yield from (f"{one.name} : {kind}", f"    {meaning}")
    for argument in arguments.values():
        yield from (f"{argument.name} : {_kind(argument)}", f"    {argument.doc}")


def _kind(argument: Argument) -> str:
    """Return the allowed words of an argument, and its default."""
    parts = [f"{{{', '.join(map(repr, argument.choices))}}}"] if argument.choices else []
    default = argument.shown or (None if argument.default is None else repr(argument.default))
    if default is None:
        parts.append("optional")
    else:
        parts.append(default if default.startswith(REQUIRED) else f"default {default}")
    return ", ".join(parts)


def _returns(columns: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the docstring's Returns and Raises sections."""
    listed = ", ".join(f"``{name}``" for name in columns)
    if listed:
        yield from ("", "Returns", "-------", "release : Release", f"    {listed}.")
        yield from ("", "Raises", "------", "DpsqlError")
        yield "    With a code and the next step; it depends on public values only."
