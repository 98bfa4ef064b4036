"""Groups that are unions of finer ones: where each of these goes, and the sums of the unions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.statistics.aggregates import Sums, Words

Labels = Sequence[Sequence[str | None]]


@dataclass(frozen=True, eq=False)
class UnitedGroups:
    """The groups of some of the key columns.

    Attributes
    ----------
    labels : list of list of (str or None)
        The key of each group, a list per column.
    places : ndarray of int, shape (G,)
        The group that each finest group is in.
    count : int
        Number of groups.
    """

    labels: list[list[str | None]]
    places: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, labels: Labels, columns: Sequence[int], groups: int) -> UnitedGroups:
        """Return the groups of some columns of the finest groups' keys, in the order in which they are met."""
        if not columns:
            return cls([], np.zeros(groups, dtype=np.intp), 1)
        known: dict[tuple[str | None, ...], int] = {}
        rows = zip(*(labels[column] for column in columns), strict=True)
        places = np.array([known.setdefault(row, len(known)) for row in rows], dtype=np.intp)
        return cls([list(column) for column in zip(*known, strict=True)] or [[] for _ in columns], places, len(known))

    def sums(self, finest: Sums) -> Sums:
        """Return the exact sums of the groups."""
        squares = finest.s2
        if isinstance(squares, Words):
            low = squares.low if isinstance(squares.low, np.ndarray) else np.zeros_like(squares.high)
            squares = Words.of(self._added(squares.high), self._added(low), squares.bits)
        elif squares is not None:
            squares = self._added(squares)
        return Sums(self._added(finest.n), self._added(finest.s1), squares)

    def _added(self, values: Any) -> Any:
        out = np.zeros((*values.shape[:-1], self.count), dtype=values.dtype)
        np.add.at(out.T, self.places, values.T)
        return out
