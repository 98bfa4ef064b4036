"""How much one privacy unit contributes to grouped sums, and what follows for the sensitivity of all groups together.

A unit has at most m rows in the table, at most g groups with any of them, and at most r rows in one group; engines
enforce this before they add anything up. A statistic states only what one row adds to the vector of its group. This
module and `dpsql.contract.relation` alone know the factors. With ``Q = floor(m / r)`` and ``rest = m - Q r``::

    K1 = min(m, g r)
    K2 = g r**2                if Q >= g
         Q r**2 + rest**2      otherwise

============  ==============  ==================================================================
norm          add_remove      replace
============  ==============  ==================================================================
L1            K1 b            2 K1 b
squared L2    K2 B            K2 max(2 B, D2) if r divides m or m >= g r, else 2 K2 (B + c)
============  ==============  ==================================================================

Here b bounds the L1 norm of a row's vector f and B its squared L2 norm; D2 bounds ``||f(x) - f(y)||**2`` of two rows
in one group, and c bounds ``-<f(x), f(y)>``. The second bound under replace holds for every r, but is never smaller.

*L1*: the triangle inequality over at most K1 rows, twice under replace. *Squared L2*: it is convex in the row counts
``k_j <= r`` of the groups, whose sum is at most m, and in the rows' vectors. So it is largest at a vertex: Q groups
(or g) with r equal rows each, and one group with the rest. Under replace the change in a group is
``k f(x) - k' f(y)``, whose squared norm is at most ``k**2 B + k'**2 B + 2 k k' c``, and ``2 k k' <= k**2 + k'**2``;
over all groups that is at most ``2 K2 (B + c)``. Where vertices have no rest, a group changes by r rows against r, at
most ``r**2 D2``, or by r rows against none, at most ``r**2 B``, and then so does another group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpsql.contract import parameters
from dpsql.contract.relation import Number, Relation, relation_of
from dpsql.errors import ParameterError

ROWS, GROUPS, ROWS_PER_GROUP = "max_rows_per_unit", "max_groups_per_unit", "max_rows_per_unit_group"
_hints = {
    ROWS: "Give the rows that one privacy unit may contribute.",
    GROUPS: "Give the groups in which one privacy unit may have rows.",
    ROWS_PER_GROUP: "Give the rows that one privacy unit may contribute to a group.",
}


@dataclass(frozen=True)
class Contribution:
    """What one privacy unit contributes at most, and the neighbouring relation.

    Attributes
    ----------
    neighbours : {'add_remove', 'replace'}
    rows : int
        Largest number of rows of one unit in all groups together, >= 1.
    groups : int
        Largest number of groups in which one unit has rows, >= 1.
    rows_per_group : int
        Largest number of rows of one unit in one group, >= 1.

    Raises
    ------
    ParameterError
        P018, when an argument is out of range.

    Notes
    -----
    The three are lowered to what they allow together: `rows` to ``groups * rows_per_group``, and the others to `rows`.
    """

    neighbours: str
    rows: int = 1
    groups: int = 1
    rows_per_group: int = 1

    def __post_init__(self) -> None:
        relation_of(self.neighbours)
        for name in ("rows", "groups", "rows_per_group"):
            value = getattr(self, name)
            if not isinstance(value, int) or not value >= 1:
                raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")
        object.__setattr__(self, "rows", min(self.rows, self.groups * self.rows_per_group))
        object.__setattr__(self, "rows_per_group", min(self.rows, self.rows_per_group))
        object.__setattr__(self, "groups", min(self.rows, self.groups))

    @classmethod
    def of(
        cls,
        neighbours: str,
        rows: object = None,
        groups: object = None,
        rows_per_group: object = None,
        *,
        key_count: int | None = 1,
    ) -> Self:
        """Return the contribution that a call's arguments state.

        Parameters
        ----------
        neighbours : {'add_remove', 'replace'}
        rows, groups, rows_per_group : int or None
            The arguments `max_rows_per_unit`, `max_groups_per_unit` and `max_rows_per_unit_group`. Without any of them
            the privacy unit is a row. Left out beside the others: `rows` is ``groups * rows_per_group``, `groups` is
            `rows`, and `rows_per_group` is `rows`.
        key_count : int or None
            Number of groups if it is public, 1 without `by`; None if the keys are private. There are never more groups
            per unit than this.

        Raises
        ------
        ParameterError
            P021, P050: not an integer of at least 1, or too large. P046: only `groups` is given, or only
            `rows_per_group` where keys are private, and nothing bounds the rows of a unit.
        """
        given = {ROWS: rows, GROUPS: groups, ROWS_PER_GROUP: rows_per_group}
        m, g, r = (
            None if value is None else parameters.positive_integer(name, value, hint=_hints[name])
            for name, value in given.items()
        )
        if m is None and g is None and r is None:
            return cls(neighbours)
        r = m if r is None else r
        if r is None:
            raise ParameterError("P046", f"{GROUPS} alone does not bound the rows of a unit. Add {ROWS_PER_GROUP}.")
        g = m if g is None else g
        g = key_count if g is None else min(g, g if key_count is None else key_count)
        if g is None:
            raise ParameterError("P046", f"{ROWS_PER_GROUP} needs {GROUPS} where keys are private. Add {GROUPS}.")
        return cls(neighbours, g * r if m is None else m, g, r)

    @property
    def relation(self) -> Relation:
        """The relation of tables that differ in one row."""
        return relation_of(self.neighbours)

    @property
    def squared_rows(self) -> int:
        """K2: the largest sum, over groups, of the squared number of rows of one unit. K1 is `rows`."""
        full, rest = divmod(self.rows, self.rows_per_group)
        return full * self.rows_per_group**2 + rest**2

    @property
    def changed_groups(self) -> int:
        """Largest number of groups that differ between neighbouring tables."""
        return self.relation.norm(self.groups)

    def norm(self, one: Number) -> Number:
        """Return a bound on the L1 norm of the change of all groups, if that of one row's vector is at most `one`."""
        return self.relation.norm(self.rows * one)

    def squared_norm(self, one: Number, *, distance: Number, opposing: Number) -> Number:
        """Return a bound on the squared L2 norm of the change of all groups.

        Parameters
        ----------
        one : int or Fraction
            B, a bound on the squared norm of one row's vector.
        distance : int or Fraction
            D2, a bound on the squared norm of the difference of two rows' vectors.
        opposing : int or Fraction
            c, a bound on the negative product of two rows' vectors, >= 0.
        """
        even = self.rows % self.rows_per_group == 0
        replaced = max(2 * one, distance) if even else 2 * (one + opposing)
        return self.squared_rows * self.relation.pick(one, replaced)
