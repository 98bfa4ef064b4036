"""What the ledger keeps of the queries that are asked while one looks on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsql.ledger.rows import Entry
from dpsql.udfs import query
from support.broken.planting import planted


@contextmanager
def noted_entries() -> Iterator[list[Entry]]:
    """Collect the entries of all queries that are answered in the body of the with statement."""
    found: list[Entry] = []
    answer: Any = vars(query)["_answer"]

    def noted(entry: Entry, asked: str) -> Any:
        found.append(entry)
        return answer(entry, asked)

    with planted((query, "_answer", noted)):
        yield found


def parts_of(entry: Entry) -> list[dict[str, Any]]:
    """Return what the ledger keeps of the parts of a query."""
    found: list[dict[str, Any]] = entry.result["parts"]
    return found


def arguments_of(entry: Entry) -> list[dict[str, Any]]:
    """Return the public arguments of the parts of a query."""
    return [part["arguments"] for part in json.loads(entry.arguments)["parts"]]
