"""Public keys of groups: allowed values of the columns of `by`, as texts that an engine casts to the column's type.

The caller gives keys: a list for one column, a struct with a list per column (their product), a list of structs (only
those combinations), or the name of a public table with these columns. A column without keys has all values of its type,
which are public if the type lists them: BOOLEAN, and an ENUM with labels that its owner declared. A column with other
labels is read as text (`dpsql.engines.duckdb.lineage.labels`). NULL is a key like any other: a type lists NULL, and a
list includes NULL only if the caller writes it.

Engines compare texts only after the cast: '1' and '01' are one key of an integer column, an error there.
"""

from __future__ import annotations

import datetime
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from dpsql.contract import parameters
from dpsql.contract.parameters import fold, list_items, show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.rendering import identifier

# Most groups with public keys: each has a few integers in memory.
MOST_GROUPS = 1_000_000
PRIVATE = "private"
# In place of a table: another part of the same query has released the keys.
RELEASED = "(released)"
_HINT = "Give keys := [...] from public knowledge, not from the table."
_ENUM = re.compile(r"'((?:[^']|'')*)'")

Key = str | None
Lists = tuple[tuple[Key, ...] | None, ...]


@dataclass(frozen=True)
class PublicKeys:
    """The public keys of some columns.

    Attributes
    ----------
    lists : tuple of (tuple of str or None) or None
        Values of each column; None instead of a list for all values of the column's type.
    rows : tuple of tuple of int, or None
        Combinations that are groups, as positions in the lists; None for all combinations.
    table : str or None
        Public table that lists the keys, if no list does.
    """

    lists: Lists
    rows: tuple[tuple[int, ...], ...] | None = None
    table: str | None = None

    @property
    def count(self) -> int | None:
        """Number of groups; None if a column's type decides."""
        if self.rows is not None:
            return len(self.rows)
        sizes = [len(values) for values in self.lists if values is not None]
        return math.prod(sizes) if len(sizes) == len(self.lists) else None

    def with_types(self, kinds: Sequence[str], columns: Sequence[str]) -> PublicKeys:
        """Return the keys with a list for every column.

        Parameters
        ----------
        kinds : sequence of str
            SQL type of each column.
        columns : sequence of str
            Names, for messages.

        Raises
        ------
        ParameterError
            P065: a column has no list, and its type lists no values. P068: too many groups.
        """
        lists = []
        for values, kind, column in zip(self.lists, kinds, columns, strict=True):
            texts = values if values is not None else values_of(kind)
            if texts is None:
                raise ParameterError(
                    "P065",
                    f"keys of {show(column)} are missing: which groups a private table has is private. {_HINT} Or name "
                    "a public table that lists them: keys := 'TABLE'. Or pay for private ones: keys := 'private', "
                    "delta := 1e-6.",
                )
            lists.append(texts)
        keys = PublicKeys(tuple(lists), self.rows)
        refuse_many(keys.count)
        return keys


def values_of(kind: str) -> tuple[Key, ...] | None:
    """Return all values of a SQL type that lists them, as texts, and NULL; None for any other type."""
    if kind == "BOOLEAN":
        return ("false", "true", None)
    if kind.startswith("ENUM("):
        return (*(text.replace("''", "'") for text in _ENUM.findall(kind)), None)
    return None


def read_keys(argument: object, by: Sequence[str]) -> PublicKeys | None:
    """Return the public keys of the columns `by`; None for private keys. `PublicKeys` pass unchanged.

    Raises
    ------
    ParameterError
        P065: a required list is missing. P066: the keys have another form. P044: a key occurs twice. P068: too many
        groups.
    """
    if isinstance(argument, PublicKeys):
        return argument
    if isinstance(argument, str):
        if argument.strip().lower() == PRIVATE:
            return None
        return PublicKeys((None,) * len(by), table=parameters.text("keys", argument, hint=_HINT))
    if argument is None:
        return PublicKeys((None,) * len(by))
    if isinstance(argument, Mapping):
        columns = _by_column(argument, by)
        keys = PublicKeys(tuple(_texts(name, columns[fold(name)]) if fold(name) in columns else None for name in by))
    else:
        items = list_items(argument, MOST_GROUPS)
        if items is None or not items:
            raise ParameterError("P066", f"keys must be a list with at least one value; got {show(argument)}. {_HINT}")
        refuse_many(len(items))
        if all(isinstance(item, Mapping) for item in items):
            keys = _combinations(items, by)
        elif len(by) == 1:
            keys = PublicKeys((_texts(by[0], items),))
        else:
            raise ParameterError(
                "P066",
                f"keys of {len(by)} columns must be a struct of lists, or a list of structs. Write keys := "
                f"{{{', '.join(f'{identifier(name)}: [...]' for name in by)}}}, from public knowledge.",
            )
    refuse_many(keys.count)
    return keys


def refuse_many(count: int | None) -> None:
    """Raise if there are more groups than the limit for public keys."""
    if count is not None and count > MOST_GROUPS:
        raise ParameterError(
            "P068",
            f"there are more than {MOST_GROUPS} groups with public keys. Group by fewer columns, or list fewer keys.",
        )


def keys_of_rows(rows: Sequence[Sequence[Key]], columns: int) -> PublicKeys:
    """Return the keys in the rows of a public table, whose values are texts; each row once."""
    positions: list[dict[Key, int]] = [{} for _ in range(columns)]
    indices = [
        tuple(position.setdefault(text, len(position)) for position, text in zip(positions, row, strict=True))
        for row in rows
    ]
    lists = tuple(map(tuple, positions))
    return PublicKeys(lists) if columns == 1 else PublicKeys(lists, tuple(indices))


def _by_column(entries: Mapping[str, object], by: Sequence[str]) -> dict[str, object]:
    """Return the entries by folded column names; raise for a name that is not in `by`."""
    values = {fold(str(name)): value for name, value in entries.items()}
    for name in values:
        if name not in map(fold, by):
            raise ParameterError("P066", f"keys names {show(name)}, which is not in by. Leave it out, or add it to by.")
    return values


def _texts(column: str, values: object) -> tuple[Key, ...]:
    """Return the values of one column as texts."""
    items = list_items(values, MOST_GROUPS)
    if items is None or not items:
        raise ParameterError("P066", f"keys of {show(column)} must be a list with at least one value. {_HINT}")
    refuse_many(len(items))
    kinds = set(map(type, items))  # fast check for a million integers or texts
    if kinds == {int} or (kinds == {str} and parameters.is_storable("".join(items))):
        texts: tuple[Key, ...] = tuple(map(str, items))
    else:
        texts = tuple(map(key_text, items))
    if len(set(texts)) < len(texts):
        seen: set[Key] = set()
        for text in texts:
            if text in seen:
                raise ParameterError("P044", f"keys holds {show(text)} twice. Give each one once.")
            seen.add(text)
    return texts


def _combinations(items: Sequence[Mapping[str, object]], by: Sequence[str]) -> PublicKeys:
    """Return the keys of a list of structs."""
    positions: list[dict[Key, int]] = [{} for _ in by]
    rows = []
    for item in items:
        entries = _by_column(item, by)
        if len(entries) < len(by):
            raise ParameterError("P066", f"each struct in keys must have a value for every column of by. {_HINT}")
        texts = [key_text(entries[fold(name)]) for name in by]
        rows.append(
            tuple(position.setdefault(text, len(position)) for position, text in zip(positions, texts, strict=True))
        )
    if len(set(rows)) < len(rows):
        raise ParameterError("P044", "keys holds a struct twice. Give each one once.")
    return PublicKeys(tuple(map(tuple, positions)), tuple(rows))


def key_text(value: object) -> Key:
    """Return the text of a public key, which DuckDB casts to the column's type; None for NULL."""
    if value is None:
        return None
    if isinstance(value, str) and parameters.is_storable(value):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, Fraction) and value.denominator == 1:
        return str(value.numerator)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return "".join(f"\\x{byte:02X}" for byte in value)
    raise ParameterError("P066", f"a key must be text, a number, a date, a boolean or NULL; got {show(value)}. {_HINT}")
