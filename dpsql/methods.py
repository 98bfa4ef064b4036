"""Provide the SQL functions as methods of a context and of Polars frames, made from their argument lists.

``methods.pyi``, which ``python -m dpsql.generate`` writes, shows these methods to type checkers and editors. A method
passes its arguments to its class, which does the work. The module also derives signatures and docstrings of Python
functions from an argument list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.contract.arguments import REQUIRED, Argument, Signature
from dpsql.contract.boundary import public, public_methods
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.registry import DECLARATIONS, FUNCTIONS, QUERY, Function, function_of
from dpsql.released.shapes import KEYS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from dpsql.released.release import Release

_Function = TypeVar("_Function", bound=Callable[..., object])
# Documentation of the parameters before the arguments.
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
        signature = inspect.signature(function)
        leading = [
            parameter for parameter in signature.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        keywords = list(map(_parameter, arguments.values()))
        function.__signature__ = signature.replace(parameters=[*leading, *keywords])  # type: ignore[attr-defined]
        function.__doc__ = "\n".join(
            [inspect.getdoc(function) or "", "", *_parameters(leading, arguments), *_returns(columns)]
        )
        return function

    return dress


def _parameter(argument: Argument) -> Parameter:
    """Return an argument as a parameter of a Python function, whose value None omits it."""
    if argument.required:
        return Parameter(argument.name, Parameter.KEYWORD_ONLY, annotation=argument.annotation)
    kind = f"{argument.annotation} | None"
    return Parameter(argument.name, Parameter.KEYWORD_ONLY, default=argument.default, annotation=kind)


def _parameters(leading: list[Parameter], arguments: Signature) -> Iterator[str]:
    """Yield the lines of the docstring's Parameters section."""
    yield from ("Parameters", "----------")
    for parameter in leading:
        if parameter.name in _LEADING:
            kind, meaning = _LEADING[parameter.name]
            yield from (f"{parameter.name} : {kind}", f"    {meaning}")
    for argument in arguments.values():
        yield from (f"{argument.name} : {_kind(argument)}", f"    {argument.doc}")


def _kind(argument: Argument) -> str:
    """Return the allowed words of an argument, and its default."""
    parts = [f"{{{', '.join(map(repr, argument.choices))}}}"] if argument.choices else []
    default = argument.default_text or (None if argument.default is None else repr(argument.default))
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


# Arguments that a Polars frame sets itself: its namespace names the dataset, and its engine is Polars.
OF_FRAME = ("dataset", "engine")
# Arguments of `dp_protect` that apply only to catalog tables.
OF_TABLES = ("source", "engine", "tables", "merge")
_OF_RELEASE = "With `release` alone, the result is read off a named release at no cost, and comes as a table."


@public_methods()
class ContextMethods:
    """The methods of `dpsql.Context` for the SQL functions of the same names, with the same arguments."""

    @takes(DECLARATIONS["dp_protect"])
    def dp_protect(self, dataset: str, **budget: object) -> str:
        """Set the budget of a table; return the new state, in words.

        On an engine, the table is in the engine's catalog, under its full name. Other rows there use the budget that
        each call names.
        """
        return self._declare("dp_protect", dataset, budget)

    @takes(DECLARATIONS["dp_public"])
    def dp_public(self, table: str, **arguments: object) -> str:
        """Declare that a table is public: it holds nothing about any privacy unit, so views may join it.

        On an engine, the table is in the engine's catalog, and the declaration holds for this session.
        """
        return self._declare("dp_public", table, arguments)

    @takes(DECLARATIONS["dp_derive"])
    def dp_derive(self, table: str, base: str, **arguments: object) -> str:
        """Declare that a table was made from a protected one; return the new state, in words.

        On an engine, the table is in the engine's catalog, and the declaration holds for this session. The base is
        another table of the engine, or any budget.
        """
        return self._declare("dp_derive", table, arguments, base)

    @takes(DECLARATIONS["dp_unplaced"])
    def dp_unplaced(self, **arguments: object) -> pa.Table:
        """Return every undeclared table, with the statements that would declare it.

        On an engine it lists the tables of the engine's catalog.
        """
        return self._unplaced(arguments)

    @takes(function_of(QUERY).plan.arguments)
    def query(self, sql: str, **arguments: object) -> Any:
        """Answer a query of plain SQL privately, as `dp_query` does in SQL.

        It returns a `Release`; a query that reads no private rows costs nothing, and returns an Arrow table.
        """
        return self._query(sql, arguments)

    dp_query = query

    @takes(ESTIMATE)
    def dp_estimate(self, function: str = "dp_sis", **arguments: object) -> pa.Table:
        """Return the cost and the noise of a call; reads no table."""
        return self._estimate(function, arguments)


@public_methods()
class FrameMethods:
    """The methods of the namespace `dp` of Polars frames for SQL functions: `count` is `dp_count`."""

    @takes(Signature(*(argument for argument in DECLARATIONS["dp_protect"].values() if argument.name not in OF_TABLES)))
    def protect(self, **budget: object) -> str:
        """Set the budget of the frame's dataset, which `of` names; return the new state, in words."""
        return self._protect(budget)

    @takes(function_of(QUERY).plan.arguments)
    def query(self, sql: str, **arguments: object) -> pl.DataFrame:
        """Answer a query of plain SQL privately, in which ``self`` is the frame; see `dp_query` of SQL.

        The rows come as a Polars frame. DuckDB reads the named columns of the frame once. A query without `release`
        runs anew each time, because other frames may have other rows.
        """
        return self._query(sql, arguments)


def _of_context(name: str, function: Function) -> Callable[..., object]:
    """Return the method of a context for a function."""

    def method(self, source: object, **arguments: object) -> Release:
        return self._release_of(name, source, arguments)

    def or_of_release(self, source: object = None, **arguments: object) -> Release | pa.Table:
        if source is None and "release" in arguments and arguments.keys() <= {"release", "dataset"}:
            return self._curve(name, arguments["release"], arguments.get("dataset"), by_name=True)
        return self._release_of(name, source, arguments)

    variant, more = method, ""
    if function.of_release:
        variant, more = or_of_release, f"\n\n{_OF_RELEASE}"
    variant.__doc__ = function.doc + more
    return _dressed(variant, name, ContextMethods, function, function.plan.arguments)


def _of_frame(name: str, function: Function) -> Callable[..., object]:
    """Return the method of a frame's namespace for a function."""

    def method(self, **arguments: object) -> pl.DataFrame:
        return self._run(name, arguments)

    method.__doc__ = f"{function.doc}\n\nThe rows of the release, as a Polars frame; see `{name}` of SQL."
    options = (argument for argument in function.plan.arguments.values() if argument.name not in OF_FRAME)
    signature = Signature(
        *(
            replace(argument, kind=f"{argument.kind} | pl.DataFrame") if argument.name == "features" else argument
            for argument in options
        )
    )
    return _dressed(method, name.removeprefix("dp_"), FrameMethods, function, signature)


def _dressed(
    method: Callable[..., object], name: str, owner: type, function: Function, arguments: Signature
) -> Callable[..., object]:
    """Return a method with its name, its arguments and their documentation."""
    method.__name__, method.__qualname__ = name, f"{owner.__name__}.{name}"
    return public(takes(arguments, [column for column in function.shape.columns if column != KEYS])(method))


for _name, _function in FUNCTIONS.items():
    if _function.spends:
        setattr(ContextMethods, _name, _of_context(_name, _function))
        setattr(FrameMethods, _name.removeprefix("dp_"), _of_frame(_name, _function))

# Descriptive alias.
ContextMethods.select_then_fit = ContextMethods.dp_pipeline
