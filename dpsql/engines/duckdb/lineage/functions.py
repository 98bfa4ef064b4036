"""The functions and types of DuckDB that a source may name: `functions.toml`, as it is for the version that runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import duckdb

_TYPES = "types"


@dataclass(frozen=True)
class Group:
    """Functions that a source may call, or may not, for one reason; `instead` is what to write in their place."""

    name: str
    allowed: bool
    reason: str
    instead: str = ""


@cache
def _data() -> Mapping[str, Mapping[str, object]]:
    return tomllib.loads(files(__package__).joinpath("functions.toml").read_text(encoding="utf-8"))


def _names(entry: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of an entry that the version which runs has."""
    only = "only_1_5" if duckdb.__version__.startswith("1.") else "only_2_0"
    for field in ("names", only):
        listed = entry.get(field, [])
        if isinstance(listed, list):
            yield from map(str, listed)


@cache
def groups() -> Mapping[str, Group]:
    """Return the group of every function of DuckDB's own, and of dpsql's that may stand in a source, by its name."""
    found: dict[str, Group] = {}
    for name, entry in _data().items():
        if name == _TYPES:
            continue
        group = Group(name, entry["allowed"] is True, str(entry["reason"]), str(entry.get("instead", "")))
        found.update(dict.fromkeys(_names(entry), group))
    return found


def in_group(*names: str) -> frozenset[str]:
    """Return the functions of some groups."""
    return frozenset(function for function, group in groups().items() if group.name in names)


@cache
def types() -> frozenset[str]:
    """Return the names of DuckDB's own types."""
    return frozenset(_names(_data()[_TYPES]))
