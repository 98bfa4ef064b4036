"""Broken queries of plain SQL: what is written reads people beside the cores, is captured, or is stopped by a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpsql.contract.expression.kinds import Type
from dpsql.contract.measurement import measurement_of
from dpsql.contract.query import tree
from dpsql.contract.query.expressions import RowExpressions, Written
from dpsql.contract.query.joins import Joining
from dpsql.contract.query.split import Split
from dpsql.contract.query.stages import Stage
from dpsql.engines.duckdb import query_planner, releases
from dpsql.engines.duckdb.lineage import queries
from dpsql.engines.duckdb.lineage.placing import place_text
from dpsql.functions import query_parts
from dpsql.functions.query import QueryPlan
from dpsql.ledger.charge import Charge
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.rows import Entry
from support.broken.planting import Fault, Patch

_split: Callable[..., Split] = vars(query_planner)["split"]
_write = RowExpressions.write


def splitting(wrong: Callable[[Split], Split]) -> Patch:
    """Return what makes another split of the right one."""
    return query_planner, "split", lambda *given: wrong(_split(*given))


def _unguarded(self: RowExpressions, *given: Any, **named: Any) -> Written:
    found = _write(self, *given, **named)
    return replace(found, sql=found.sql.replace("TRY(", "("))


def _plain(split: Split) -> Split:
    """Return a split whose functions are named without their schema."""
    cores = tuple(replace(core, source=core.source.replace("system.main.", "")) for core in split.cores)
    return replace(split, cores=cores, post=split.post.replace("system.main.", ""))


def _main(split: Split) -> Split:
    """Return a split whose functions are named in the schema main of whatever database."""
    cores = tuple(replace(core, source=core.source.replace("system.main.", "main.")) for core in split.cores)
    return replace(split, cores=cores, post=split.post.replace("system.main.", "main."))


UNJUDGED: tuple[Patch, ...] = ((queries, "refuse_people", lambda *_, **__: ()),)
UNPINNED: tuple[Patch, ...] = ((queries, "refuse_unpinned", lambda *_, **__: None),)
FILTER_OUTSIDE_TRY = Fault(
    "A condition on a row stands outside of TRY: a row on which it fails stops the query, and its message holds the "
    "value.",
    ((RowExpressions, "write", _unguarded),),
)
REPLAY_BEYOND_MAX_AGE = Fault(
    "An answer is replayed however old it is.", ((releases, "_seconds_since", lambda recorded: -1.0),)
)
MACRO_CAPTURED = Fault(
    "Functions are written without their schema: a caller's macro takes their place.", (splitting(_plain),)
)
MAIN_PREFIX = Fault(
    "Functions are written in the schema main: a caller's macro takes their place.", (splitting(_main),)
)


def _unlimited(given: Callable[..., Sequence[Fraction]]) -> Callable[..., list[Fraction]]:
    """Return shares of which each core has all of epsilon, as if nobody were in two of them."""

    def shares(parts: Sequence[Any], epsilon: Fraction) -> list[Fraction]:
        cores = len({one.core for one in parts})
        return [share * cores for share in given(parts, epsilon)]

    return shares


def _either(joining: Joining, left: Any, right: Any) -> str:
    """Return an equality of two sides of whatever types."""
    sides = (joining.expressions.write(one, joining.scope.columns(one)).sql for one in (left, right))
    return " = ".join(sides)


def _one_by_one(ledger: Ledger, charge: Charge, draw: Callable[[], object], **more: Any) -> Entry:
    """Commit what a call spends, and its answer in another transaction."""
    _charge(ledger, replace(charge, name=None), lambda: {"parts": []}, **more)
    return _charge(ledger, charge, draw, **more)


_charge = Ledger.charge
_shares = vars(query_parts)["_shares"]
_core_rows = vars(releases)["core_rows"]
JOIN_KEY_CAST = Fault(
    "A join compares keys of two types: DuckDB casts one, and a row that it cannot cast stops the query and is told.",
    ((Joining, "_equal", _either),),
)
PER_PERSON_SUM_HUGEINT = Fault(
    "The sum of a person's integers of 128 bits is not clipped: two rows stop the query.",
    ((Stage, "_sum", lambda stage, name, kind, distinct=False: (f"system.main.sum({name})", Type("HUGEINT"))),),
)
TWO_COMMITS = Fault(
    "What the parts spend is committed in one transaction, and their answers in another.",
    ((Ledger, "charge", _one_by_one),),
)
UNREAD_CORE_UNCHARGED = Fault(
    "Only the first part is charged; the others are drawn, stored and shown.",
    ((QueryPlan, "measurement", property(lambda plan: measurement_of(plan.parts[0].plan.measurement))),),
)
ONE_CONFIDENCE = Fault(
    "An interval of several noisy numbers takes each of them with the confidence of the whole.",
    (
        (
            releases,
            "core_rows",
            lambda result, core, confidence: _core_rows(
                result, {**core, "answers": [{**one, "over": 1} for one in core["answers"]]}, confidence
            ),
        ),
    ),
)
WITHOUT_ZONE = Fault(
    "The time zone is not in the name of an answer: one of another day is replayed.",
    ((query_planner, "_ZONED", "no such type"),),
)
WITHOUT_VIEW_TEXT = Fault(
    "The texts of views are not in the name of an answer: one of other rows is replayed.",
    ((query_planner, "place_text", lambda *given, **named: replace(place_text(*given, **named), content="")),),
)
CORES_OF_DIFFERENT_PEOPLE = Fault(
    "Each core has all of epsilon, as if nobody were in two of them.",
    ((query_parts, "_shares", _unlimited(_shares)),),
)
UNIT_NOT_CARRIED = Fault(
    "A subquery keeps the columns that it names alone, and not whom a row belongs to.",
    ((Stage, "owner_columns", property(lambda stage: [])),),
)
DECIMAL_UNSCALED = Fault(
    "A decimal of DuckDB 1.5 is read without its scale: 0.05 is 5.",
    ((tree, "_decimal", lambda digits, scale: str(digits)),),
)
