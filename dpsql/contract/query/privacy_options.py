"""Read the options of ``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (…)`` of GoogleSQL, and of ``WITH ANONYMIZATION``.

DuckDB does not parse the clause. So `dpsql.parsing.with_call` writes a call of the function `CALL` in its place, as the
first column of the SELECT; all other offsets of the text stay. `without_options` takes the call out of the nodes again.

An option is an argument of dp_query under another name, the column of the privacy unit, or the least number of persons
of a shown group. The first two change nothing about the guarantee: an argument is checked as in the call, and the
column must be the declared one. Groups below the least number are dropped by their released, noisy number of persons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from dpsql.contract import parameters
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.nodes import Derived, Expr, From, Join, Query, Select, SetOperation, about
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError

CALL = "dpsql_privacy"
# Finds every text that may have a clause, or a call in its place.
CLAUSE = re.compile(rf"differential_privacy|anonymization|{CALL}", re.IGNORECASE)
UNIT, LEAST_UNITS = "privacy_unit_column", "min_privacy_units_per_group"
# The arguments of dp_query that options state.
_ARGUMENTS = {
    "epsilon": "epsilon",
    "delta": "delta",
    "max_groups_contributed": "max_groups_per_unit",
    "kappa": "max_groups_per_unit",
    "max_rows_contributed": "max_rows_per_unit",
}
AVG_OF_ROWS = "avg is the average of rows, not of the averages of persons"


@dataclass(frozen=True)
class PrivacyOptions:
    """The options of a statement.

    Attributes
    ----------
    arguments : mapping of str to Decimal
        Arguments of dp_query; NULL is the same as none.
    unit : str or None
        The column of the privacy unit.
    least_units : int or None
        A group with fewer persons is not shown.
    at : int or None
        The clause's offset in the text.
    """

    arguments: Mapping[str, Decimal]
    unit: str | None = None
    least_units: int | None = None
    at: int | None = None

    def added_to(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return a call's arguments with the options.

        Raises
        ------
        ParameterError
            P045: an option and an argument contradict.
        """
        for name, value in self.arguments.items():
            argument = arguments.get(name)
            if argument is not None and _number(argument) != Fraction(value):
                raise ParameterError(
                    "P045",
                    f"{name} is {value} in the statement's OPTIONS and {show(argument)} in the call. State one.",
                )
        return {**arguments, **self.arguments}


def without_options(query: Query) -> tuple[Query, PrivacyOptions]:
    """Return a query without its options, whose tree has `CALL`, and the options.

    Raises
    ------
    ParameterError
        P016: an option is unknown, or its value no literal. P018, P021 and the like: a value is out of range. P045: an
        option is stated twice. P100: the clause is there twice, or within an expression.
    """
    clauses: list[Expr] = []
    bare = _bare(query, clauses)
    if len(clauses) != 1 or CALL in repr(bare):  # a call that is left stands within an expression
        raise ParameterError(
            "P100",
            "sql states its privacy options more than once, or in a subquery of an expression. State them once, behind "
            "the first SELECT.",
        )
    return bare, _options(clauses[0])


def _bare(query: Query, clauses: list[Expr]) -> Query:
    query = replace(query, withs=tuple(replace(part, query=_bare(part.query, clauses)) for part in query.withs))
    if isinstance(query, SetOperation):
        return replace(query, parts=tuple(_bare(part, clauses) for part in query.parts))
    if not isinstance(query, Select):
        return query
    first = query.items[0] if query.items else None
    if first is not None and (first.what, fold(first.name)) == ("call", CALL):
        clauses.append(first)
        query = replace(query, items=query.items[1:])
    return replace(query, source=_source(query.source, clauses))


def _source(source: From, clauses: list[Expr]) -> From:
    if isinstance(source, Derived):
        return replace(source, query=_bare(source.query, clauses))
    if isinstance(source, Join):
        return replace(source, left=_source(source.left, clauses), right=_source(source.right, clauses))
    return source


def _options(clause: Expr) -> PrivacyOptions:
    values: dict[str, Expr] = {}
    for part in clause.parts:
        sides = part.parts if (part.what, part.name) == ("compare", "=") else ()
        name = fold(sides[0].names[-1]) if sides and sides[0].what == "column" else ""
        with about(part if part.begins is not None else clause):
            if name not in (*_ARGUMENTS, UNIT, LEAST_UNITS):
                listed = ", ".join((*_ARGUMENTS, UNIT, LEAST_UNITS))
                what = f"no option {show(name)}" if name else "an option that is no NAME = VALUE"
                raise ParameterError("P016", f"OPTIONS has {what}. There are {listed}.")
            if name in values or (name in _ARGUMENTS and _ARGUMENTS[name] in map(_ARGUMENTS.get, values)):
                raise ParameterError("P045", f"OPTIONS states {name} twice. State it once.")
            values[name] = sides[1]
    unit = values.get(UNIT)
    if unit is not None and unit.what != "column":
        raise ParameterError("P016", f"{UNIT} must be the name of a column. Write {UNIT} = person.")
    least = None
    if LEAST_UNITS in values:
        number = _literal(LEAST_UNITS, values[LEAST_UNITS])
        least = parameters.positive_integer(LEAST_UNITS, number, hint="Give a whole number such as 20.")
    arguments = {
        _ARGUMENTS[name]: _literal(name, value)
        for name, value in values.items()
        if name in _ARGUMENTS and (value.what, value.name) != ("constant", "NULL")
    }
    return PrivacyOptions(arguments, None if unit is None else unit.names[-1], least, clause.begins)


def _literal(name: str, expr: Expr) -> Decimal:
    """Return the number of an option's literal."""
    while expr.what == "cast" and len(expr.parts) == 1:
        expr = expr.parts[0]
    if (expr.what, expr.name) != ("constant", "number"):
        raise ParameterError("P016", f"{name} in OPTIONS must be a number, written out. Write {name} = 1.")
    return Decimal(str(expr.value))


def _number(argument: object) -> Fraction | None:
    try:
        return Fraction(str(argument))
    except (ValueError, ZeroDivisionError):
        return None
