"""The answers of a query as a value of SQL, and what was made of stored ones: rows, where nothing else was read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from dpsql.contract.covers import COVERS, covers
from dpsql.errors import ParameterError
from dpsql.ledger.rows import StoredRelease
from dpsql.released.query import core_rows, counted
from dpsql.rendering import identifier, text

# The table that holds a stored release, in the statement that makes rows of it.
STORED = "dpsql_stored"
_ROW = pa.struct(
    [
        ("keys", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.string())),
        *((name, pa.list_(pa.float64())) for name in ("errors", "lower", "upper", "standings")),
    ]
)
_RELEASE = pa.struct(
    [
        *(("sequence", pa.int64()), ("guarantee", pa.string()), ("cores", pa.list_(pa.list_(_ROW)))),
        (COVERS, pa.string()),
    ]
)


class QueryAnswer(NamedTuple):
    """A released query: its number in the ledger, its receipt, its result, and what is asked of that, as JSON text.

    `covers` returns which rows count (`dpsql.contract.covers`), where that is asked.
    """

    sequence: int
    guarantee: str
    result: Mapping[str, Any]
    asked: str
    covers: Callable[[], str]


def answers(found: Iterable[QueryAnswer]) -> pa.Array:
    """Return releases as a result of SQL."""
    out = []
    for one in found:
        asked = json.loads(one.asked)
        cores = [
            core_rows(one.result, core, asked["confidence"]).rows() for core in counted(one.result, asked["cores"])
        ]
        words = one.covers() if asked.get(COVERS) else None
        out.append({"sequence": one.sequence, "guarantee": one.guarantee, "cores": cores, COVERS: words})
    return pa.array(out, type=_RELEASE)


def stored_answer(release: StoredRelease) -> pa.Table:
    """Return the rows of a stored query, as it was asked first; nothing but its answers is read.

    Raises
    ------
    ParameterError
        P030: the query reads public tables as well, or its text was not kept.
    """
    kept = (release.lineage or {}).get("answer")
    if isinstance(kept, Mapping):
        words = partial(covers, release.arguments)
        found = answers([QueryAnswer(release.sequence, "", release.result, str(kept["asked"]), words)])
        # What the ledger holds is text, so it runs where there is nothing else.
        with duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"}) as alone:
            alone.register(STORED, pa.table({"release": found}))
            try:
                alone.execute(f"SET TimeZone = {text(str(kept['zone']))}")
                return alone.sql(str(kept["sql"])).to_arrow_table()
            except duckdb.Error:
                pass
    raise ParameterError(
        "P030",
        "the ledger holds the answers of the query, and not the public tables that it reads besides. Ask the query "
        "again: it is a free replay.",
    )


def stored_query() -> str:
    """Return the query of a stored release."""
    return f"SELECT release FROM {identifier(STORED)}"
