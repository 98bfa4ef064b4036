"""What the catalog holds, as the statement sees it that reads a source: views, macros, types and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage.paths import Path


@dataclass(frozen=True)
class View:
    """A view of the catalog; `sql` is empty for a frame that DuckDB shows no text of."""

    path: Path
    sql: str


@dataclass(frozen=True)
class Macro:
    """One form of a macro that somebody made."""

    path: Path
    table: bool
    parameters: tuple[str, ...]
    types: tuple[str | None, ...]
    body: str


@dataclass(frozen=True)
class Catalogued:
    """What the catalog holds.

    `macros` is None where they were not asked for: the plan is one whose texts were read before, or the texts call
    nothing. `types` are those that users made: by their name, folded, what they are.
    """

    views: Sequence[View] = ()
    macros: Sequence[Macro] | None = None
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tables: Sequence[Path] = ()


def catalogued(found: Mapping[str, Any] | None) -> Catalogued:
    """Read what the statement that reads a source says of the catalog: views, and maybe macros, types and tables."""
    if found is None:
        return Catalogued()
    views = [View(_path(one["path"]), one["sql"] or "") for one in found["views"] or ()]
    tables = [_path(path) for path in found.get("tables") or ()]
    if "macros" not in found:
        return Catalogued(views, tables=tables)
    macros = [
        Macro(_path(one["path"]), one["sort"] == "table_macro", *_parameters(one), one["body"])
        for one in found["macros"] or ()
    ]
    types: dict[str, frozenset[str]] = {}
    for one in found["types"] or ():
        name = fold(one["name"])
        types[name] = types.get(name, frozenset()) | {str(one["is"])}
    return Catalogued(views, macros, types, tables)


def _path(parts: Sequence[str]) -> Path:
    database, schema, name = parts
    return database, schema, name


def _parameters(macro: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    return tuple(macro["parameters"] or ()), tuple(macro["types"] or ())
