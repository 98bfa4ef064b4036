"""A condition: the text of one expression that chooses rows, read as DuckDB parses it.

DuckDB parses the text as the WHERE of a query, in a database without tables, and `dpsql.contract.query.tree` reads the
tree. So a condition and the WHERE of a query are one language. The text itself never runs: the SQL that runs is written
anew from the tree, with every function named in full and every name quoted.

Behind the gateway another process parses the text, and `written` makes the text of a condition from its tree alone.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import lru_cache

from dpsql.contract import parameters
from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.expressions import UntypedSql, bucketed, simplified
from dpsql.contract.query.nodes import Expr, Select, TableRef
from dpsql.contract.query.tree import read_tree
from dpsql.contract.query.writer import Writer
from dpsql.errors import ParameterError

MOST_CHARACTERS = 40_000
# The query whose WHERE is the condition.
QUERY = "SELECT 1 FROM dpsql_row WHERE\n"
_HINT = "Use columns of the row, literals, comparisons, AND, OR, NOT and the functions that docs/calls.md lists."
# Refusals of a query's text, and how their messages end.
_OF_QUERIES = frozenset(("DPSQL-P100", "DPSQL-P101", "DPSQL-P103"))
# DuckDB gives these names a value where a table has no such column, quoted or not.
_SESSION = frozenset(
    (
        *("current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp"),
        *("current_user", "localtime", "localtimestamp", "session_user", "user"),
    )
)


def checked(condition: object) -> str:
    """Return a condition without the blanks around it, in which now() and today() are the time of the call, in UTC.

    Raises
    ------
    ParameterError
        P013: it is not a string. P070, P082: it is not one expression over the columns of a row.
    """
    text = parameters.text("condition", condition, hint="Give it as text, such as 'age >= 18'.").strip()
    return text if _is_timeless(text) else _timed(text)


@lru_cache(maxsize=256)
def _is_timeless(condition: str) -> bool:
    """Return whether a condition has no clock; raise as `checked` does."""
    tree = _parsed(condition)
    timed = _simplified(tree, datetime.datetime.min)
    _allowed(timed)
    return timed == _simplified(tree, None)


def _timed(condition: str) -> str:
    return Writer().sql(_simplified(_parsed(condition), datetime.datetime.now(datetime.UTC)))


@lru_cache(maxsize=256)  # a call asks several times
def columns_of(condition: str) -> tuple[str, ...]:
    """Return the columns that a condition names, in the order in which they first occur.

    Raises
    ------
    ParameterError
        P070, P082.
    """
    return tuple(dict.fromkeys(item.name for item in _items(expression(condition))))


def expression(condition: str) -> Expr:
    """Return the expression of a condition. Its columns are items of the relation ``''``, spelled as they first occur.

    Raises
    ------
    ParameterError
        P070, P082.
    """
    return _allowed(_parsed(condition))


def _allowed(tree: Expr) -> Expr:
    """Return the expression of a tree after every part of it was found in an allow list."""
    resolved = _resolved(_simplified(tree, None))
    spellings = {fold(item.name): item.name for item in reversed(_items(resolved))}
    if not spellings:
        raise ParameterError("P070", f"condition names no column of the row. {_HINT}")
    spelled = _spelled(resolved, spellings)
    try:
        untimed = bucketed(spelled, lambda part: Type("DATE"))  # its types are not known yet
        UntypedSql({("", name): name for name in spellings.values()}, []).sql(untimed)
    except ParameterError as error:
        raise _about_condition(error) from None
    return spelled


def written(tree: str) -> str:
    """Return the text of a condition, written anew from its tree.

    Parameters
    ----------
    tree : str
        The tree of `QUERY` followed by a condition, as ``json_serialize_sql`` returns it.

    Raises
    ------
    ParameterError
        P070, P082.
    """
    where = _where(tree)
    _allowed(where)
    return Writer().sql(where)


def _parsed(condition: str) -> Expr:
    from dpsql.parsing import PARSER

    if len(condition) > MOST_CHARACTERS:
        raise ParameterError(
            "P070", f"condition must have at most {MOST_CHARACTERS} characters; got {len(condition)}. Use a view."
        )
    return _where(PARSER.tree(QUERY + condition))


def _where(tree: str) -> Expr:
    """Return the WHERE of a tree that is otherwise `QUERY`."""
    try:
        query = read_tree(tree)
    except ParameterError as error:
        raise _about_condition(error) from None
    where = query.where if isinstance(query, Select) else None
    literal = Expr("constant", "number", value="1")
    if where is None or query != Select(items=(literal,), source=TableRef(("", "", "dpsql_row")), where=where):
        raise ParameterError("P070", f"condition is more than one expression. Leave out clauses like ORDER BY. {_HINT}")
    return where


def _simplified(expr: Expr, now: datetime.datetime | None) -> Expr:
    try:
        return simplified(expr, now)
    except ParameterError as error:
        raise _about_condition(error) from None


def _about_condition(error: ParameterError) -> ParameterError:
    """Return the refusal of a query as the refusal of a condition."""
    message = error.message.replace("sql", "condition", 1)
    if error.code not in _OF_QUERIES:
        error.saying(message)
        return error
    first = message.replace(" is not read by dp_query", " cannot stand there").partition(". ")[0]
    return ParameterError("P070", f"{first}. {_HINT}")


def _items(expr: Expr) -> list[Expr]:
    """Return the columns of an expression, in the order of its text."""
    items = [part for part in expr.walk() if part.what == "item"]
    return sorted(items, key=lambda item: item.at or 0)  # stable where places are not known


def _resolved(expr: Expr) -> Expr:
    """Return an expression in which each column is an item, or a field of an item that is a struct."""
    expr = expr.mapped(_resolved)
    if expr.what != "column":
        return expr
    name, *fields = expr.names
    if fold(name) in _SESSION or fold(name).startswith("dpsql_"):
        raise ParameterError(
            "P070",
            f"condition names {show(name)}, which may be more than a column. Write now() or today() for the time, or "
            "rename the column in a view.",
        )
    resolved = Expr("item", name, value="", at=expr.at)
    for field in fields:
        resolved = Expr("field", parts=(resolved, Expr("constant", "string", value=field)))
    return resolved


def _spelled(expr: Expr, spellings: dict[str, str]) -> Expr:
    """Return an expression in which each column has one spelling."""
    expr = expr.mapped(lambda part: _spelled(part, spellings))
    return replace(expr, name=spellings[fold(expr.name)]) if expr.what == "item" else expr
