"""Broken queries of plain SQL: what is written reads people beside the cores, is captured, or is stopped by a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpsql.contract.query.expressions import RowExpressions, Written
from dpsql.contract.query.split import Split
from dpsql.engines.duckdb import query_planner
from dpsql.engines.duckdb.lineage import queries
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


UNJUDGED: tuple[Patch, ...] = ((queries, "refuse_people", lambda *_, **__: None),)
UNPINNED: tuple[Patch, ...] = ((queries, "refuse_unpinned", lambda *_, **__: None),)
FILTER_OUTSIDE_TRY = Fault(
    "A condition on a row stands outside of TRY: a row on which it fails stops the query, and its message holds the "
    "value.",
    ((RowExpressions, "write", _unguarded),),
)
REPLAY_BEYOND_MAX_AGE = Fault(
    "An answer is replayed however old it is.", ((query_planner, "_seconds_since", lambda recorded: -1.0),)
)
MACRO_CAPTURED = Fault(
    "Functions are written without their schema: a caller's macro takes their place.", (splitting(_plain),)
)
MAIN_PREFIX = Fault(
    "Functions are written in the schema main: a caller's macro takes their place.", (splitting(_main),)
)
