"""Where the rows of a source on an engine come from, as far as the engine's own plan shows it.

An engine reads its own, structured plan of a source into a `Provenance`: the scans that the rows come from, and the
columns that are passed on as they are. It knows a short list of operators: scans, filters, projections and unions of
all rows; and a list of functions whose value follows from their arguments. So each row of a scan yields at most one row
of each mention of that scan, whatever other rows there are. Where a plan has anything else, `UnseenError` says what.

The lists stand beside the readers of the plans, `polars_plan.py`, `datafusion_plan.py` and `spark_plan.py`: one name
each, of the engine's own. What is not on a list is not seen, also if a later version of an engine brings it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias, TypeVar

from dpsql.contract.parameters import fold
from dpsql.errors import SourceError

# The name of a column, and of the column of each scan that it is; None for one that is computed.
Passed: TypeAlias = tuple[str, tuple[str, ...] | None]
_Frame = TypeVar("_Frame")


class UnseenError(Exception):
    """A plan has an operator, a function or a type that is not on the engine's list; its name is the message."""


@dataclass(frozen=True)
class Scan:
    """A reading of rows.

    Attributes
    ----------
    table : tuple of str or None
        The full name of a table of the engine's catalog.
    files : tuple of str
        Paths of files and folders. Without these and without a table, the rows are in memory.
    """

    table: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """What the rows of a source come from.

    Attributes
    ----------
    scans : tuple of Scan
    columns : tuple of (str, tuple of str or None)
        The columns in their order: each with its name, and with the name of the column of each scan that it is.
    """

    scans: tuple[Scan, ...]
    columns: tuple[Passed, ...]

    @classmethod
    def of(cls, scan: Scan, names: Iterable[str]) -> Provenance:
        """Return the provenance of all columns of one scan."""
        return cls((scan,), tuple((name, (name,)) for name in names))

    def column(self, name: str) -> tuple[str, ...] | None:
        """Return what a column is in each scan; None if it is computed, or if two columns have the name."""
        matches = [passed for column, passed in self.columns if fold(column) == fold(name)]
        return matches[0] if len(matches) == 1 else None

    def has(self, name: str) -> bool:
        """Whether there is a column of a name, as SQL compares names."""
        return any(fold(column) == fold(name) for column, _ in self.columns)

    def select(self, columns: Iterable[Passed]) -> Provenance:
        """Return the same rows with other columns."""
        return replace(self, columns=tuple(columns))

    def together(self, other: Provenance) -> Provenance:
        """Return the rows of both, column by column; files that differ become one scan, as files of one folder are.

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
    """Return all rows of some provenances; see `Provenance.together`."""
    return reduce(Provenance.together, parts)


def repeated(files: Sequence[str]) -> str | None:
    """Return a file that stands twice in a list of paths, or lies in a folder that stands there; None for none."""
    seen: set[str] = set()
    for path in sorted(files):
        parts = path.split("/")
        if any("/".join(parts[:depth]) in seen for depth in range(1, len(parts) + 1)):
            return path
        seen.add(path)
    return None


def scan_of_files(files: Sequence[str]) -> Scan:
    """Return a scan of files, under their plain paths.

    Raises
    ------
    SourceError
        S052: a file stands twice, so that each of its rows is read twice.
    """
    if repeated(files) is not None:
        raise SourceError(
            "S052",
            "the source names a file twice, or a file beside its folder, so rows are read twice. Name each once.",
        )
    return Scan(files=tuple(files))


# Frames that dpsql made, each with the frame whose rows it has: no plan shows what a function of Python does.
_origins: dict[int, tuple[weakref.ref[object], object]] = {}


def made_from(frame: _Frame, origin: object) -> _Frame:
    """Note that each row of a frame is one row of another, with the columns that it had, and return the frame."""
    number = id(frame)
    _origins[number] = weakref.ref(frame, lambda _: _origins.pop(number, None)), origin
    return frame


def seen_through(source: Any, read: Callable[[Any], Provenance]) -> Provenance:
    """Return the provenance of a source; of a frame that dpsql made, of what it was made from."""
    origin = _origins.get(id(source))
    if origin is None or origin[0]() is not source:
        return read(source)
    return seen_through(origin[1], read)
