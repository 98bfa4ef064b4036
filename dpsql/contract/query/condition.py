"""Read a condition: the text of one expression that chooses rows.

DuckDB parses the text as the WHERE of a query, in a database without tables, and `dpsql.contract.query.tree` reads the
tree. So a condition and a query's WHERE are one language. The text itself never runs: dpsql writes the SQL that runs
from the tree, with full function names and quoted identifiers.

Behind the gateway another process parses the text, and `rewrite` writes the condition from the tree alone.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from functools import lru_cache

from dpsql.contract import parameters
from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.expressions import UntypedSql, bucketed, simplified
from dpsql.contract.query.nodes import Expr, Select, TableRef, Writer
from dpsql.contract.query.tree import read_tree
from dpsql.errors import ParameterError
from dpsql.rendering import text

MOST_CHARACTERS = 40_000
# The query whose WHERE is the condition.
QUERY = "SELECT 1 FROM dpsql_row WHERE\n"
_HINT = "Use columns of the row, literals, comparisons, AND, OR, NOT and the functions that docs/calls.md lists."
# A condition with its keyword, and aggregates, which no row has.
_CLAUSE = re.compile(r"\s*(WHERE|HAVING|AND)\s+(.+)", re.IGNORECASE | re.DOTALL)
_AGGREGATES = frozenset(("count", "count_star", "sum", "avg", "mean", "min", "max", "median", "stddev"))
# Codes of errors about a query's text.
_OF_QUERIES = frozenset(("DPSQL-P100", "DPSQL-P101", "DPSQL-P103"))
# DuckDB gives these names a value if the table has no such column, quoted or not.
_SESSION = frozenset(
    (
        *("current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp"),
        *("current_user", "localtime", "localtimestamp", "session_user", "user"),
    )
)


def check(condition: object) -> str:
    """Return a condition stripped of blanks, with the time of the call in UTC for now() and today().

    Raises
    ------
    ParameterError
        P013: `condition` is no string. P070, P082: `condition` is not one expression over the columns of a row.
    """
    text = parameters.text("condition", condition, hint="Give it as text, such as 'age >= 18'.").strip()
    return text if _is_timeless(text) else _timed(text)


@lru_cache(maxsize=256)
def _is_timeless(condition: str) -> bool:
    """Return whether a condition reads no clock; raise as `check` does."""
    tree = _parsed(condition)
    timed = _simplified(tree, datetime.datetime.min)
    _allowed(timed)
    return timed == _simplified(tree, None)


def _timed(condition: str) -> str:
    return Writer().sql(_simplified(_parsed(condition), datetime.datetime.now(datetime.UTC)))


@lru_cache(maxsize=256)  # one call of dpsql needs it several times
def columns_of(condition: str) -> tuple[str, ...]:
    """Return the columns that a condition names, by first occurrence.

    Raises
    ------
    ParameterError
        P070, P082.
    """
    return tuple(dict.fromkeys(item.name for item in _items(expression(condition))))


def expression(condition: str) -> Expr:
    """Return the expression of a condition, with columns as items of relation ``''`` in their first spelling.

    Raises
    ------
    ParameterError
        P070, P082.
    """
    return _allowed(_parsed(condition))


def _allowed(tree: Expr) -> Expr:
    """Return the expression of a tree; raise unless the allow lists contain every part."""
    resolved = _resolved(_simplified(tree, None))
    spellings = {fold(item.name): item.name for item in reversed(_items(resolved))}
    if any(part.what == "call" and part.name in _AGGREGATES for part in resolved.walk()):
        raise ParameterError(
            "P070",
            "condition is asked of one row, and an aggregate is of many. Write it in plain SQL: FROM dp_query('SELECT "
            "..., count(*) FROM ... GROUP BY ... HAVING count(*) > 4', epsilon := 1).",
        )
    if not spellings:
        raise ParameterError("P070", f"condition names no column of the row. {_HINT}")
    spelled = _spelled(resolved, spellings)
    try:
        untimed = bucketed(spelled, lambda part: Type("DATE"))  # the types are not known yet
        UntypedSql({("", name): name for name in spellings.values()}, []).sql(untimed)
    except ParameterError as error:
        raise _about_condition(error) from None
    return spelled


def rewrite(tree: str) -> str:
    """Write the text of a condition from its tree.

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
    try:
        return _where(PARSER.tree(QUERY + condition))
    except ParameterError as error:
        if (clause := _CLAUSE.match(condition)) is not None:
            error.saying(f"{error.message.removesuffix(_HINT)}Leave {clause[1]} out: condition := {text(clause[2])}.")
        raise


def _where(tree: str) -> Expr:
    """Return the WHERE of a tree; raise if the rest is not `QUERY`."""
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
    """Reword an error about a query as an error about a condition."""
    message = error.message.replace("sql", "condition", 1)
    if error.code not in _OF_QUERIES:
        error.saying(message)
        return error
    first = message.replace(" is not read by dp_query", " cannot stand there").partition(". ")[0]
    return ParameterError("P070", f"{first}. {_HINT}")


def _items(expr: Expr) -> list[Expr]:
    """Return the columns of an expression in text order."""
    items = [part for part in expr.walk() if part.what == "item"]
    return sorted(items, key=lambda item: item.at or 0)  # stable if positions are unknown


def _resolved(expr: Expr) -> Expr:
    """Return an expression whose columns are items, or fields of struct items."""
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
    """Return an expression with one spelling for each column."""
    expr = expr.mapped(lambda part: _spelled(part, spellings))
    return replace(expr, name=spellings[fold(expr.name)]) if expr.what == "item" else expr
