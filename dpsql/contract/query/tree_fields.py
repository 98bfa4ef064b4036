"""The parts of a serialized tree, on every version: each field that says something is known, or refused (P101)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpsql.contract.parameters import show
from dpsql.errors import ParameterError

Json = Mapping[str, object]
# From here on an offset is one that DuckDB does not know.
_NOWHERE = 1 << 31
# Fields that say nothing about meaning.
_EVERYWHERE = frozenset(
    ("type", "class", "alias", "query_location", "query_location_length", "qualified_name", "named_param_map")
)


def as_record(value: object) -> Json:
    """Return a part of a tree that is an object."""
    if not isinstance(value, dict):
        raise unread("a part of it")
    return value


def as_records(value: object) -> list[Json]:
    """Return a list of objects of a tree; nothing where it is left out."""
    return [as_record(one) for one in value] if isinstance(value, list) else []


def as_texts(value: object) -> tuple[str, ...]:
    """Return a list of texts of a tree."""
    return tuple(map(str, value)) if isinstance(value, list) else ()


def place_of(record: Json) -> int | None:
    """Return where in the text a part of a tree stands, as an offset in bytes; None where it is not known."""
    place = record.get("query_location")
    return place if isinstance(place, int) and 0 <= place < _NOWHERE else None


def unread(what: str, instead: str = "Write the query without it.") -> ParameterError:
    """Return the refusal of what is not read."""
    return ParameterError("P101", f"sql: {what} is not read by dp_query. {instead}")


def only(record: Json, known: Collection[str], **usual: Collection[object]) -> None:
    """Raise unless all other fields say nothing, or what is usual."""
    for name, value in record.items():
        if name in _EVERYWHERE or name in known or value in (None, "", False, [], {}, 0):
            continue
        if not (name in usual and value in usual[name]):
            raise unread(f"{name.replace('_', ' ')} {show(value) if isinstance(value, str) else ''}".strip())
