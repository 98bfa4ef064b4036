"""The identity of a table, independent of how its name is spelled.

The identity of a table has three parts: database, schema and name. They are folded as in DuckDB, which folds A to Z
only, so É and é differ. For a marked database (`dpsql.engines.duckdb.mark`) the database part is the identity in its
mark; for any other it is the number of the attached object or, for a budget, the name that it is attached under.

A table of an engine's catalog is in no database of DuckDB. Its identity is the engine's name and its full name, as the
catalog spells it: on some engines, names that differ in case are two tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from dpsql.contract.parameters import fold, show
from dpsql.errors import ParameterError
from dpsql.rendering import identifier

MARKED = "#"  # first character of a marked database's part; `identifier` never writes such a name without quotes
ATTACHED = "@"  # the same for a database without a mark: the number of the object that is attached, gone at DETACH


class TableName(NamedTuple):
    """The identity of a table or view: three parts, folded. On an engine the database is empty, see `on_engine`."""

    database: str
    schema: str
    name: str

    @classmethod
    def of(cls, database: str, schema: str, name: str) -> TableName:
        """Return the identity of a table from its path."""
        return cls(fold(database), fold(schema), fold(name))

    @classmethod
    def on_engine(cls, engine: str, parts: Iterable[str]) -> TableName:
        """Return the identity of a table of an engine's catalog from its full name; no database has an empty name."""
        return cls("", engine, dotted(parts))

    @property
    def engine(self) -> str | None:
        """The engine that holds the table; None for DuckDB."""
        return None if self.database else self.schema

    @property
    def path(self) -> str:
        """Of a table of an engine: its full name behind the engine's, as the catalog spells it."""
        return f"{self.schema}.{self.name}"

    @property
    def budget(self) -> str:
        """Of a table of an engine: the name of its budget, which has no case."""
        return fold(self.path)


def parts_of(text: str, *, most: int | None = 3) -> list[str]:
    """Split a name as SQL does: at dots outside double quotes.

    Raises
    ------
    ParameterError
        P020: the text is not a name, or has more than `most` parts.
    """
    parts, rest = [], text
    while True:
        match = re.match(r'"((?:[^"]|"")+)"(\.|$)|([^."]+)(\.|$)', rest)
        if match is None:
            raise ParameterError(
                "P020", f"source {show(text)} is not a table name. Write parts with dots or quotes as '\"odd.name\"'."
            )
        quoted, plain = match.group(1), match.group(3)
        parts.append(quoted.replace('""', '"') if quoted is not None else plain)
        rest = rest[match.end() :]
        if "." not in (match.group(2), match.group(4)):
            break
    if most is not None and len(parts) > most:
        raise ParameterError("P020", f"source {show(text)} has more than three parts. Give catalog.schema.table.")
    return parts


def path_of(text: str) -> list[str]:
    """Split a search path, which DuckDB writes as ``catalog.schema`` entries separated by commas."""
    return [match.group(0).strip() for match in re.finditer(r'(?:"(?:[^"]|"")*"|[^",])+', text)]


def display(database: str, schema: str, name: str, main: str) -> str:
    """Return the shortest spelling that names no other table in any database.

    Parameters
    ----------
    database, schema, name : str
        The table's path.
    main : str
        The main database; its name is left out, and so is its schema main.
    """
    parts = [name] if fold(schema) == "main" else [schema, name]
    if fold(database) != fold(main):
        parts = [database, schema, name]
    return dotted(parts)


def dotted(parts: Iterable[str]) -> str:
    """Return a name of several parts, which `parts_of` splits again."""
    return ".".join(identifier(part) if "." in part or '"' in part else part for part in parts)


_FILE = re.compile(r"\.(parquet|csv|tsv|json|jsonl|ndjson)(\.gz|\.zst)?$", re.IGNORECASE)

# A frame passed from Python has no name; it is registered under this prefix and a random suffix.
FRAME_PREFIX = "dpsql_frame_"
# The budget of rows that nobody named.
NAMELESS = "default"


def source_sql(source: str) -> str:
    """Return the FROM item for a source's name.

    The name is read as in DuckDB: dots separate catalog, schema and table, and a part in double
    quotes is taken literally (``'"odd.name"'``). A name without dots and quotes, or a path to a
    data file, is one identifier whatever characters it contains.
    """
    return ".".join(identifier(part) for part in source_parts(source))


def dataset_name(source: str) -> str:
    """Return the name of a source's budget: the source's name without needless quotes and without the schema main.

    If ``t``, ``"t"`` and ``main.t`` were three budgets, a different spelling would evade a table's limit.
    """
    parts = source_parts(source) if source else []
    if len(parts) < 2 and not source.startswith('"'):
        return source or NAMELESS
    if len(parts) > 1 and fold(parts[-2]) == "main":
        del parts[-2]
    return dotted(parts)


def is_file(source: str) -> bool:
    """Whether a source is the path of a data file."""
    return _FILE.search(source) is not None


def source_parts(source: str) -> list[str]:
    """Split a source's name into catalog, schema and table; only the table is required."""
    if ("." not in source and not source.startswith('"')) or is_file(source):
        return [source]
    return parts_of(source)
