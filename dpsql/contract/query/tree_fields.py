"""The parts of a serialized tree, on every version: each field that says something is known, or refused (P101)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpsql.contract.parameters import show
from dpsql.errors import ParameterError

Json = Mapping[str, object]
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
