"""Of how many noisy numbers a column is made: the chance that its interval may fail is shared out among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class NoisyNumbers:
    """A count of noisy numbers, of which it may follow from the answers how many there are.

    Attributes
    ----------
    single : int
        Numbers that are known by themselves.
    groups : tuple of (str, int)
        By the name of a core, how many numbers of each of its groups, in the order of names.
    """

    single: int = 0
    groups: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_groups(cls, core: str) -> NoisyNumbers:
        """Return one number for each group of a core."""
        return cls(0, ((core, 1),))

    @classmethod
    def of_all_groups(cls, numbers: Iterable[tuple[str, str]]) -> NoisyNumbers:
        """Return the numbers of all groups, for a column that is made of some of one group: names of cores and numbers.

        So many hold at once that the column has its chance whichever groups noise chooses.
        """
        return cls.total(cls.of_groups(core) for core, _ in numbers)

    @classmethod
    def total(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return all of several together."""
        single, groups = 0, Counter[str]()
        for one in numbers:
            single += one.single
            groups.update(dict(one.groups))
        return cls(single, tuple(sorted(groups.items())))

    @classmethod
    def most(cls, numbers: Iterable[NoisyNumbers]) -> NoisyNumbers:
        """Return what is at least each of several."""
        single, groups = 0, Counter[str]()
        for one in numbers:
            single, groups = max(single, one.single), groups | Counter(dict(one.groups))
        return cls(single, tuple(sorted(groups.items())))

    def __bool__(self) -> bool:
        return bool(self.single or self.groups)

    def covers(self, other: NoisyNumbers) -> bool:
        """Whether a column of so many numbers may be made of one of so many others."""
        return bool(self.groups) or (not other.groups and self.single >= other.single)

    @property
    def tag(self) -> str:
        """It as a part of a column's name."""
        return "_".join([str(self.single), *(f"{times}x{core.strip('_')}" for core, times in self.groups)])


ONE = NoisyNumbers(1)
