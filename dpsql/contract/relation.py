"""The neighbouring relation: which tables are neighbours, and how sensitivity to one row extends to them.

A statistic states only the effect of adding one row. The relation alone knows how many rows neighbouring tables differ
by. So the factors 1, 2, sqrt 2 and m occur only here, where m is the largest number of rows of one privacy unit:

==============  ======================  ===========  =====================  ================  =================
relation        neighbours              norm of one  squared norm of one    rise of one       spread of one
==============  ======================  ===========  =====================  ================  =================
add_remove      a unit comes or goes    m            m**2                   m                 m
replace         a unit for another      2 m          4 m**2; 2 m**2 where   m                 2 m
                                                     terms never oppose
==============  ======================  ===========  =====================  ================  =================

A replacement removes at most m rows and adds at most m. *norm*: the triangle inequality over all of them.
*squared norm*: its square. If the product of any two rows' terms is not negative (counts, ``q q'`` with the
Frobenius product), ``||A - B||**2 <= ||A||**2 + ||B||**2``, with at most ``(m b)**2`` each: the factor is 2, not 4, and
sqrt 2 for the norm. *rise*: if every row raises a number by a term in [0, b], then in both tables the number lies in
[c, c + m b], where c comes from the rows that the tables share; so it moves by at most m b. *spread*: if one row moves
all scores by amounts in an interval of length b, then 2 m rows move them by amounts in one of length 2 m b.

If a statistic has a better bound for a replaced row than for a removal and an addition, it states both, with a proof,
and `Relation.pick` selects one.
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
        Largest number of rows of one privacy unit, >= 1.

    Raises
    ------
    ParameterError
        P018 (max_rows_per_unit).
    """

    rows: int = 1

    kind: ClassVar[str]
    # Single-row changes per row of a unit: one addition or removal, or one of each.
    changes: ClassVar[int]

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or not self.rows >= 1:
            raise ParameterError("P018", f"max_rows_per_unit must be an integer >= 1; got {self.rows}.")

    @abstractmethod
    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return the bound that applies: for an added or removed row, or for a replaced one."""

    @property
    def steps(self) -> int:
        """Largest number of rows added or removed between neighbouring tables."""
        return self.rows * self.changes

    def norm(self, one: Number) -> Number:
        """Return a bound on any norm of the change of a sum in which each row's term has a norm of at most `one`."""
        return self.steps * one

    def squared_norm(self, one: Number, *, opposing: bool) -> Number:
        """Return a bound on the squared L2 norm of the change of a sum.

        Parameters
        ----------
        one : int or Fraction
            Bound on the squared norm of one row's term.
        opposing : bool
            Whether the terms of two rows may have a negative product.
        """
        return self.rows**2 * (self.changes**2 if opposing else self.changes) * one

    def rise(self, one: Number) -> Number:
        """Return a bound on the change of a number that every row raises by a term in ``[0, one]``."""
        return self.rows * one

    def spread(self, length: Number) -> Number:
        """Return a bound on the spread of score changes, if those by one row lie in an interval of this length."""
        return self.steps * length


class AddRemove(Relation):
    """One privacy unit is added or removed."""

    kind = "add_remove"
    changes = 1

    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return the bound for an added or removed row."""
        return added


class Replace(Relation):
    """One privacy unit is replaced by another."""

    kind = "replace"
    changes = 2

    def pick(self, added: Stated, replaced: Stated) -> Stated:
        """Return the bound for a replaced row."""
        return replaced


_relations: dict[str, type[Relation]] = {kind.kind: kind for kind in (AddRemove, Replace)}
NEIGHBOURS = tuple(_relations)


def relation_of(neighbours: str, max_rows_per_unit: int = 1) -> Relation:
    """Return the relation with this name.

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
