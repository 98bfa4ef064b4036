"""The neighbouring relation: which tables must look alike, and what that makes of the moves of one row.

A statistic states once what adding one row can do to it. The relation alone knows how many rows come and go between
neighbouring tables, so it is the only place where the numbers 1, 2, sqrt 2 and m stand, m being the most rows that one
privacy unit has:

==============  ======================  ===========  =====================  ================  =================
relation        neighbours              norm of one  squared norm of one    rise of one       spread of one
==============  ======================  ===========  =====================  ================  =================
add_remove      a unit comes or goes    m            m**2                   m                 m
replace         a unit for another      2 m          4 m**2; 2 m**2 where   m                 2 m
                                                     terms never oppose
==============  ======================  ===========  =====================  ================  =================

A replacement takes away at most m rows and brings at most m. *norm*: the triangle inequality over all of them.
*squared norm*: its square. Where any two rows' terms have a product that is not negative (counts, ``q q'`` with the
Frobenius product), ``||A - B||**2 <= ||A||**2 + ||B||**2``, with at most ``(m b)**2`` each: the factor is 2, not 4, and
sqrt 2 for the norm. *rise*: a number that every row raises by something in [0, b] moves from what the other rows make
of it plus [0, m b] to another such number: by m b at most. *spread*: when the moves of all scores by one row lie in
an interval of length b, the moves by 2 m rows lie in one of length 2 m b.

Where a statistic has a better bound for a replaced row than for a removed and an added one it states both, with its
reason, and `Relation.pick` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeVar

from dpsql.errors import ParameterError

Number = TypeVar("Number", int, Fraction)
Stated = TypeVar("Stated")


@dataclass(frozen=True)
class Relation(ABC):
    """A neighbouring relation of tables.

    Parameters
    ----------
    rows : int
        Rows of one privacy unit at most, >= 1.

    Raises
    ------
    ParameterError
        P018 (max_rows_per_unit).
    """

    rows: int = 1

    kind: ClassVar[str]
    # Changes of one row that stand for one row of a unit: it comes or goes, or one goes and another comes.
    changes: ClassVar[int]

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or not self.rows >= 1:
            raise ParameterError("P018", f"max_rows_per_unit must be an integer >= 1; got {self.rows}.")

    @abstractmethod
    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return what a statistic states of an added row, or of a replaced one."""

    @property
    def steps(self) -> int:
        """Rows that come or go between neighbouring tables, at most."""
        return self.rows * self.changes

    def norm(self, one: Number) -> Number:
        """Bound any norm of the change of a sum, to which a row adds a term of norm at most `one`."""
        return self.steps * one

    def squared_norm(self, one: Number, *, opposing: bool) -> Number:
        """Bound the squared L2 norm of the change of a sum.

        Parameters
        ----------
        one : int or Fraction
            Squared norm of the term of one row, at most.
        opposing : bool
            Whether the terms of two rows may have a negative product.
        """
        return self.rows**2 * (self.changes**2 if opposing else self.changes) * one

    def rise(self, one: Number) -> Number:
        """Bound the change of a number that every row raises by something in ``[0, one]``."""
        return self.rows * one

    def spread(self, length: Number) -> Number:
        """Bound how far apart the changes of scores are, those by one row being in an interval of this length."""
        return self.steps * length


class AddRemove(Relation):
    """One privacy unit comes or goes."""

    kind = "add_remove"
    changes = 1

    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return what a statistic states of an added row."""
        return added


class Replace(Relation):
    """One privacy unit is replaced by another."""

    kind = "replace"
    changes = 2

    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return what a statistic states of a replaced row."""
        return replaced


_relations: dict[str, type[Relation]] = {kind.kind: kind for kind in (AddRemove, Replace)}
NEIGHBOURS = tuple(_relations)


def relation_of(neighbours: str, max_rows_per_unit: int = 1) -> Relation:
    """Return the relation by its name.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        >= 1.

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit).
    """
    if neighbours not in _relations:
        raise ParameterError("P018", f"neighbours must be one of {', '.join(NEIGHBOURS)}; got {neighbours!r}.")
    return _relations[neighbours](max_rows_per_unit)
