"""A query's text, and what the splitter is told of a call's arguments: keys, bounds, and what no text says."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dpsql.contract import parameters
from dpsql.contract.keys import PRIVATE, key_text
from dpsql.contract.parameters import fold, known, list_items, show
from dpsql.contract.periods import DATED, Dated, block_of
from dpsql.contract.query.catalogue import Options
from dpsql.contract.query.tree import check_length
from dpsql.errors import ParameterError
from dpsql.functions.query_parts import PlacedCore

Given = Mapping[str, object]


def read_options(
    given: Given, now: datetime.datetime, columns: tuple[tuple[str, str], ...] | None, *, earlier: bool = False
) -> Options:
    """Return what the splitter is told of a call's arguments."""
    keys, private = given.get("keys"), False
    listed: dict[str, tuple[str | None, ...]] = {}
    if isinstance(keys, str):
        if fold(keys.strip()) != PRIVATE:
            raise ParameterError(
                "P066", f"keys must be a struct of lists by column, or 'private'; got {show(keys)}. Give one of both."
            )
        private = True
    elif isinstance(keys, Mapping):
        for name, values in keys.items():
            items = list_items(values)
            if not items:
                raise ParameterError("P066", f"keys of {show(name)} must be a list with at least one value. Give them.")
            listed[str(name)] = tuple(map(key_text, items))
    elif keys is not None:
        raise ParameterError(
            "P066", "keys must be a struct of lists by column, {ward: ['A', 'B']}, or 'private'. Give one of both."
        )
    return Options(
        keys=listed,
        private_keys=private,
        delta=given.get("delta") is not None,
        lower=_bounds("lower", given.get("lower")),
        upper=_bounds("upper", given.get("upper")),
        now=now,
        zone=str(now.tzinfo),
        columns=columns,
        errors=given.get("errors") is True,
        earlier=earlier,
    )


def _bounds(name: str, given: object) -> dict[str, Fraction]:
    if given is None:
        return {}
    hint = f"Give numbers by column: {name} := {{days: 0}}."
    named = given if isinstance(given, Mapping) else {"": given}
    found = {}
    for column, value in named.items():
        checked = parameters.finite_float(name, value, hint=hint)
        found[str(column)] = Fraction(str(checked))
    return found


def during_of(placed: Sequence[PlacedCore], given: object) -> object:
    """Return the periods that a call names; or those that literal bounds of the date leave in every core.

    Raises
    ------
    ParameterError
        P110: neither is there, and rows are dated.
    """
    dated = [(one.stated[DATED], one.core.dates) for one in placed if isinstance(one.stated.get(DATED), Dated)]
    if given is not None or all(known(Dated, stated).is_undated for stated, _ in dated):
        return given
    spans: dict[str, None] = {}
    for found, days in dated:
        stated = known(Dated, found)
        if days is None:
            column = stated.text if stated.tables else stated.base or stated.column
            raise ParameterError(
                "P110",
                f"during is missing: the budget is kept by the {stated.period} of {show(column)}. Say which, "
                f"during := '...', or write WHERE with dates: {column} >= DATE '...' AND {column} < DATE '...'.",
            )
        blocks = [block_of(stated.period, datetime.date.fromisoformat(day)) for day in days]
        spans["/".join(dict.fromkeys(blocks))] = None
    return list(spans)


def text_of(sql: object) -> str:
    """Return the text of a query.

    Raises
    ------
    ParameterError
        P100: it is no text that can be one SELECT.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise ParameterError("P100", f"sql must be one SELECT, as text; got {show(sql)}. Give 'SELECT ...'.")
    if not parameters.is_storable(sql):
        raise ParameterError("P100", "sql must be text without NUL characters and lone surrogates. Write it without.")
    check_length(sql)
    return sql


def tree_of(tree: object) -> str:
    """Return the parse tree of a query, as JSON; raise where there is none."""
    if not isinstance(tree, str):
        raise ParameterError("P100", "sql must be one SELECT, as text. Give 'SELECT ...'.")
    return tree
