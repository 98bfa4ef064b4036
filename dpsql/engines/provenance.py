"""The origin of the rows of an engine's source, as the engine's own plan shows it.

An engine reads its own structured plan of a source into a `Provenance`: the scans of the rows, and the unchanged
columns. The readers accept a short list of operators: scans, filters, projections and unions of all rows; and a list of
functions whose value follows from their arguments. So each row of a scan yields at most one row for each mention of
that scan, whatever other rows exist. For any other plan, `UnseenError` names the unknown part.

The lists are in the readers of the plans, `polars_plan.py`, `datafusion_plan.py` and `spark_plan.py`, with each
engine's own names. dpsql does not see operators outside the lists, even if a later engine version adds them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeAlias, TypeVar

from dpsql.contract.parameters import fold
from dpsql.dataclass import dataclass
from dpsql.errors import SourceError

# A column's name, and the name of the same column in each scan; None for a computed column.
Passed: TypeAlias = tuple[str, tuple[str, ...] | None]
_Frame = TypeVar("_Frame")


class UnseenError(Exception):
    """A plan has an operator, a function or a type outside the engine's list; the message is its name."""


@dataclass(frozen=True)
class Scan:
    """A read of rows.

    Attributes
    ----------
    table : tuple of str or None
        The full name of a table of the engine's catalog.
    files : tuple of str
        Paths of files and folders. Without paths and without a table, the rows are in memory.
    """

    table: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """The origin of a source's rows.

    Attributes
    ----------
    scans : tuple of Scan
    columns : tuple of (str, tuple of str or None)
        The columns in order: each with its name, and the name of the same column in each scan.
    """

    scans: tuple[Scan, ...]
    columns: tuple[Passed, ...]

    @classmethod
    def of(cls, scan: Scan, names: Iterable[str]) -> Provenance:
        """Return the provenance of all columns of one scan."""
        return cls((scan,), tuple((name, (name,)) for name in names))

    def column(self, name: str) -> tuple[str, ...] | None:
        """Return a column's name in each scan; None if it is computed, or if two columns have the name."""
        matches = [passed for column, passed in self.columns if fold(column) == fold(name)]
        return matches[0] if len(matches) == 1 else None

    def has(self, name: str) -> bool:
        """Whether a column has this name, as SQL compares names."""
        return any(fold(column) == fold(name) for column, _ in self.columns)

    def select(self, columns: Iterable[Passed]) -> Provenance:
        """Return the same rows with other columns."""
        return replace(self, columns=tuple(columns))

    def together(self, other: Provenance) -> Provenance:
        """Return the rows of both, column by column; different files become one scan, like files of one folder.

        Raises
        ------
        UnseenError
            One has more columns.
        """
        if len(self.columns) != len(other.columns):
            raise UnseenError("a union of other columns")
        pairs = list(zip(self.columns, other.columns, strict=True))
        if len(self.scans) == len(other.scans) == 1 and self.scans[0].files and other.scans[0].files:
            files = (*self.scans[0].files, *other.scans[0].files)
            if not repeated(files):
                same = ((name, mine if mine == theirs else None) for (name, mine), (_, theirs) in pairs)
                return Provenance((Scan(files=files),), tuple(same))
        both = (
            (name, None if mine is None or theirs is None else mine + theirs) for (name, mine), (_, theirs) in pairs
        )
        return Provenance(self.scans + other.scans, tuple(both))


def union(parts: Iterable[Provenance]) -> Provenance:
    """Return all rows of the provenances; see `Provenance.together`."""
    return reduce(Provenance.together, parts)


def repeated(files: Sequence[str]) -> str | None:
    """Return a path that is twice in a list, or inside a listed folder; None if there is none."""
    seen: set[str] = set()
    for path in sorted(files):
        parts = path.split("/")
        if any("/".join(parts[:depth]) in seen for depth in range(1, len(parts) + 1)):
            return path
        seen.add(path)
    return None


def scan_of_files(files: Sequence[str]) -> Scan:
    """Return a scan of files, by their plain paths.

    Raises
    ------
    SourceError
        S052: the list has a file twice, so a scan reads its rows twice.
    """
    if repeated(files) is not None:
        raise SourceError(
            "S052",
            "the source names a file twice, or a file beside its folder, so rows are read twice. Name each once.",
        )
    return Scan(files=tuple(files))


# Frames from dpsql, each with the origin of its rows: no plan shows the effect of a Python function.
_origins: dict[int, tuple[weakref.ref[object], object]] = {}


def made_from(frame: _Frame, origin: object) -> _Frame:
    """Record that each row of a frame is one row of the origin with unchanged columns, and return the frame."""
    number = id(frame)
    _origins[number] = weakref.ref(frame, lambda _: _origins.pop(number, None)), origin
    return frame


def seen_through(source: Any, read: Callable[[Any], Provenance]) -> Provenance:
    """Return the provenance of a source; for a frame from dpsql, the provenance of its origin."""
    origin = _origins.get(id(source))
    if origin is None or origin[0]() is not source:
        return read(source)
    return seen_through(origin[1], read)
