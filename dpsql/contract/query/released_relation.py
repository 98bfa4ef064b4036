"""Relations over released and public tables: their columns, bound over no rows, and the errors behind these."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.contract.expression.kinds import NOTHING, Type
from dpsql.contract.query.errors import divided_sql, error_columns, hidden_names, unmeasured_sql, verdict_sql
from dpsql.contract.query.noisy_numbers import NoisyNumbers
from dpsql.contract.query.relations import RELEASED, Column, Noisy, PartOfQuery
from dpsql.contract.query.work import Splitting, check_written
from dpsql.errors import ParameterError
from dpsql.rendering import identifier


class UnboundError(ParameterError):
    """A part over released and public tables is not bound on its own."""


def released(
    work: Splitting, sql: str, stub: str, noisy: Sequence[Noisy], level: str = RELEASED, *, within: bool = False
) -> PartOfQuery:
    """Return the relation of a text over released and public tables.

    What stands `within` an expression may read columns of the query around it, where alone it is not bound.
    """
    check_written(sql)
    check_written(stub)
    found = work.catalogue.typing.columns(f"SELECT * FROM {stub} AS dpsql_stub")
    if found is None and within:
        found = (("", Type(NOTHING)),)
    if found is None:
        raise UnboundError(
            "P101", "sql: a part over released or public tables does not fit the types there. Check it without noise."
        )
    every: Noisy = frozenset().union(*noisy) if noisy else frozenset()
    columns = tuple(
        Column(name, name, kind, noisy=noisy[place] if len(noisy) == len(found) else every)
        for place, (name, kind) in enumerate(found)
    )
    return PartOfQuery(level, columns, sql, stub)


def with_errors(work: Splitting, relation: PartOfQuery, columns: int) -> PartOfQuery:
    """Return a relation with the errors of its noisy columns behind them: those of whose making nothing is known.

    A relation that has more than `columns` has them already.
    """
    noisy = [one.noisy for one in relation.columns]
    if len(relation.columns) > columns or not any(noisy):
        return relation
    none = NoisyNumbers()
    made = [one.made or none if relation.told is not None else none for one in relation.columns]
    if any(made):
        try:
            return _with_ends(work, relation, made)
        except ParameterError as error:  # what is written of the intervals does not fit: then there are none
            if not isinstance(error, UnboundError) and error.code != "DPSQL-P100":
                raise
    return _with_ends(work, relation, [none] * len(made))


def _with_ends(work: Splitting, relation: PartOfQuery, made: Sequence[NoisyNumbers]) -> PartOfQuery:
    """Return a relation with the errors of its noisy columns, of which some are made of so many known numbers."""
    noisy = [one.noisy for one in relation.columns]
    texts = (relation.sql, relation.stub)
    if relation.told is not None and any(made):
        texts = relation.told(sorted({one for one in made if one}))
    shown = [f"dpsql_told.{identifier(one.sql)}" for one in relation.columns]
    values, listed = list(shown), []
    for place, names in enumerate(error_columns([one.name for one in relation.columns])):
        if not noisy[place]:
            continue
        ends = ["CAST(NULL AS DOUBLE)"] * 3
        verdict = unmeasured_sql(shown[place])
        if made[place]:
            ends = [f"dpsql_told.{identifier(name)}" for name in hidden_names(place, made[place])]
            standing = ends.pop()
            verdict = verdict_sql(shown[place], lower=ends[1], upper=ends[2], standing=standing)
            values[place] = f"{divided_sql(shown[place], standing)} AS {identifier(relation.columns[place].sql)}"
        listed += [f"{sql} AS {identifier(name)}" for sql, name in zip((*ends, verdict), names, strict=True)]
    selected = ", ".join([*(values if any(made) else ["*"]), *listed])
    whole, nothing = (f"(SELECT {selected} FROM {one} AS dpsql_told)" for one in texts)
    return released(work, whole, nothing, [*noisy, *[frozenset[tuple[str, str]]()] * len(listed)], relation.level)
