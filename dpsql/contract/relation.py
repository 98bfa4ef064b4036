"""Neighbouring relation: which tables are neighbours, and how sensitivity to one row extends to them.

A statistic states only the effect of adding one row. Only the relation knows how many rows neighbouring tables differ
by. So the factors 1, 2, sqrt 2 and m occur only here, where m is the largest number of rows of one privacy unit:

==============  ======================  ===========  =====================  ================  =================
relation        neighbours              norm of one  squared norm of one    rise of one       spread of one
==============  ======================  ===========  =====================  ================  =================
add_remove      a unit comes or goes    m            m**2                   m                 m
replace         a unit for another      2 m          4 m**2; 2 m**2 if      m                 2 m
                                                     terms never oppose
==============  ======================  ===========  =====================  ================  =================

A replacement removes at most m rows and adds at most m. *norm*: the triangle inequality over all of them.
*squared norm*: its square. If the product of any two rows' terms is not negative (counts, ``q q'`` with the
Frobenius product), ``||A - B||**2 <= ||A||**2 + ||B||**2``, with at most ``(m b)**2`` each: the factor is 2, not 4, and
sqrt 2 for the norm. *rise*: if every row raises a number by a term in [0, b], then in both tables the number lies in
[c, c + m b], where c comes from the rows that the tables share; so the number moves by at most m b. *spread*: if one
row moves all scores by amounts in an interval of length b, then 2 m rows move them by amounts in an interval of length
2 m b.

If a statistic has a better bound for a replaced row than for a removal and an addition, it states both, with a proof,
and `Relation.pick` selects one.

**Conditions.** A condition reads one row. So only the row decides whether it passes, neighbouring tables remain
neighbours after the condition drops rows, and no sensitivity changes. Under 'replace', a unit that does not pass may
replace a unit that passes: a unit of at most m rows becomes a unit of fewer rows, and the bounds of `Relation` hold.

**Contributions.** This part bounds one privacy unit's contribution to grouped sums, and the sensitivity of all groups
together.

A unit has at most m rows in the table, rows in at most g groups, and at most r rows in one group; engines enforce this
before they add anything up. A statistic states only how much one row adds to the vector of its group. Only this module
knows the factors. With ``Q = floor(m / r)`` and ``rest = m - Q r``::

    K1 = min(m, g r)
    K2 = g r**2                if Q >= g
         Q r**2 + rest**2      otherwise

Under replace, the old and the new unit share groups if there are few groups. With K groups in all, where K is public,
``t = min(2 g, K)`` groups have rows of either unit; without a public number t is ``2 g``. In the best case for an
attacker each of these groups has rows of only one unit::

    M  = min(m, ceil(t / 2) r) + min(m, floor(t / 2) r)            between m and 2 m; m if K = 1
    M2 = the same for squares: full groups add r**2, and the rest of m adds its square
    s  = max(0, 2 Q - K)                                           groups that both fill, if r divides m

============  ============  ==========================================================================
norm          add_remove    replace
============  ============  ==========================================================================
L1            K1 b          max(M b, (2 m - M) D1 + 2 (M - m) b)
squared L2    K2 B          M2 B                                       if D2 <= B
                            r**2 max(s D2 + 2 (Q - s) B, Q D2)         else, if r divides m
                            2 K2 (B + c)                               else
============  ============  ==========================================================================

Here b bounds the L1 norm of a row's vector f and B its squared L2 norm; D1 and D2 bound ``||f(x) - f(y)||`` and
``||f(x) - f(y)||**2`` of two rows in one group, and c bounds ``-<f(x), f(y)>``.

*One unit comes.* L1: the triangle inequality over at most K1 rows. The squared L2 norm is convex in the row counts
``k_j <= r`` of the groups, whose sum is at most m, and in the rows' vectors. So it is largest at a vertex: Q groups
(or g) with r equal rows each, and one group with the rest.

*Replaced.* Let a group have k rows of one unit and ``k' <= k`` of the other. By convexity each unit's rows are equal
there, and the change is ``k f(x) - k' f(y) = k' (f(x) - f(y)) + (k - k') f(x)``.

* L1: at most ``k' D1 + (k - k') b``. Over all groups, with X the sum of the larger counts and N the sum of the smaller
  counts, this is ``N D1 + (X - N) b``, where ``X + N <= 2 m`` and ``X <= M``: if the smaller counts become 0, each
  larger count belongs to one unit alone, and a unit with a of the t groups has at most ``min(m, a r)`` rows in them.
  This is concave in a, so even halves are the maximum. The linear form is largest at ``X = M`` with ``N = 0`` or
  ``N = 2 m - M``.
* Squared L2, ``D2 <= B``: the norm is at most ``k' sqrt(D2) + (k - k') sqrt(B) <= k sqrt(B)``, as if the smaller count
  were 0. The squares of the counts are largest in halves, as above.
* Squared L2, r divides m: at vertices a group is full or empty for each unit. With s groups full for both units and l
  for one, it is ``r**2 (s D2 + l B)`` with ``2 s + l <= 2 Q`` and ``s + l <= K``: linear, and for ``D2 > B`` largest at
  s as above or at ``s = Q``.
* Squared L2, always: at most ``k**2 B + k'**2 B + 2 k k' c``, and ``2 k k' <= k**2 + k'**2``: together
  ``2 K2 (B + c)``.

A count has ``D1 = D2 = 0``: replaced without groups, it moves by m and not by 2 m, since both units' counts lie between
0 and m. `tests/property/test_sensitivity_aggregates.py` finds a pair of units that reaches each bound except the last
bound, which only vectors at right angles or opposite vectors reach.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, Self, TypeVar

from dpsql.contract import parameters
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
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
        """Return the applicable bound: for an added or removed row, or for a replaced row."""

    @property
    def steps(self) -> int:
        """Largest number of rows added or removed between neighbouring tables."""
        return self.rows * self.changes

    def norm(self, bound: Number) -> Number:
        """Return a bound on any norm of the change of a sum whose row terms have a norm of at most `bound`."""
        return self.steps * bound

    def squared_norm(self, bound: Number, *, opposing: bool) -> Number:
        """Return a bound on the squared L2 norm of the change of a sum.

        Parameters
        ----------
        bound : int or Fraction
            Bound on the squared norm of one row's term.
        opposing : bool
            Whether the terms of two rows may have a negative product.
        """
        return self.rows**2 * (self.changes**2 if opposing else self.changes) * bound

    def rise(self, bound: Number) -> Number:
        """Return a bound on the change of a number that every row raises by a term in ``[0, bound]``."""
        return self.rows * bound

    def spread(self, length: Number) -> Number:
        """Return a bound on the spread of score changes if one row's changes lie in an interval of this length."""
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
        raise ParameterError("P018", f"neighbours must be one of {', '.join(NEIGHBOURS)}; got {show(neighbours)}.")
    return _relations[neighbours](max_rows_per_unit)


ROWS, GROUPS, ROWS_PER_GROUP = "max_rows_per_unit", "max_groups_per_unit", "max_rows_per_unit_group"
_hints = {
    ROWS: "Give the rows that one privacy unit may contribute.",
    GROUPS: "Give the groups in which one privacy unit may have rows.",
    ROWS_PER_GROUP: "Give the rows that one privacy unit may contribute to a group.",
}


@dataclass(frozen=True)
class Contribution:
    """Largest contribution of one privacy unit, and the neighbouring relation.

    Attributes
    ----------
    neighbours : {'add_remove', 'replace'}
    rows : int
        Largest number of rows of one unit in all groups together, >= 1.
    groups : int
        Largest number of groups with rows of one unit, >= 1.
    rows_per_group : int
        Largest number of rows of one unit in one group, >= 1.
    keys : int or None
        Number of groups in all, >= 1; None if not public.

    Raises
    ------
    ParameterError
        P018: an argument is out of range.

    Notes
    -----
    The constructor lowers the first three to fit together: `groups` to `keys`, `rows` to
    ``groups * rows_per_group``, and the others to `rows`.
    """

    neighbours: str
    rows: int = 1
    groups: int = 1
    rows_per_group: int = 1
    keys: int | None = None

    def __post_init__(self) -> None:
        relation_of(self.neighbours)
        for name in ("rows", "groups", "rows_per_group", "keys"):
            value = getattr(self, name)
            if name == "keys" and value is None:
                continue
            if not isinstance(value, int) or not value >= 1:
                raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")
        object.__setattr__(self, "groups", self.groups if self.keys is None else min(self.groups, self.keys))
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
            Arguments `max_rows_per_unit`, `max_groups_per_unit` and `max_rows_per_unit_group`. Without them the privacy
            unit is a row. Defaults next to the others: `rows` is ``groups * rows_per_group``, `groups` is `rows`, and
            `rows_per_group` is `rows`.
        key_count : int or None
            Number of groups if it is public, 1 without `by`; None for private keys. A unit never has more groups.

        Raises
        ------
        ParameterError
            P021, P050: not an integer of at least 1, or too large. P046: nothing bounds the rows of a unit, because the
            call has only `groups`, or only `rows_per_group` with private keys.
        """
        limits = {ROWS: rows, GROUPS: groups, ROWS_PER_GROUP: rows_per_group}
        m, g, r = (
            None if value is None else parameters.positive_integer(name, value, hint=_hints[name])
            for name, value in limits.items()
        )
        if m is None and g is None and r is None:
            return cls(neighbours, keys=key_count)
        r = m if r is None else r
        if r is None:
            raise ParameterError("P046", f"{GROUPS} alone does not bound the rows of a unit. Add {ROWS_PER_GROUP}.")
        g = m if g is None else g
        g = key_count if g is None else min(g, g if key_count is None else key_count)
        if g is None:
            raise ParameterError("P046", f"{ROWS_PER_GROUP} needs {GROUPS} where keys are private. Add {GROUPS}.")
        return cls(neighbours, g * r if m is None else m, g, r, key_count)

    @property
    def relation(self) -> Relation:
        """The relation of tables that differ in one row."""
        return relation_of(self.neighbours)

    @property
    def squared_rows(self) -> int:
        """K2: the largest sum, over groups, of the squared number of rows of one unit. K1 is `rows`."""
        return self._squares_in(self.groups)

    @property
    def changed_groups(self) -> int:
        """Largest number of groups that differ between neighbouring tables: t under replace."""
        both = 2 * self.groups if self.keys is None else min(2 * self.groups, self.keys)
        return self.relation.pick(self.groups, both)

    def norm(self, bound: Number, *, distance: Number) -> Number:
        """Return a bound on the L1 norm of the change of all groups.

        Parameters
        ----------
        bound : int or Fraction
            b, a bound on the L1 norm of one row's vector.
        distance : int or Fraction
            D1, a bound on the L1 norm of the difference of two rows' vectors.
        """
        apart = self._in_halves(self._rows_in)
        shared = (2 * self.rows - apart) * distance + 2 * (apart - self.rows) * bound
        return self.relation.pick(self.rows * bound, max(apart * bound, shared))

    def squared_norm(self, bound: Number, *, distance: Number, opposing: Number) -> Number:
        """Return a bound on the squared L2 norm of the change of all groups.

        Parameters
        ----------
        bound : int or Fraction
            B, a bound on the squared norm of one row's vector.
        distance : int or Fraction
            D2, a bound on the squared norm of the difference of two rows' vectors.
        opposing : int or Fraction
            c, a bound on the negative product of two rows' vectors, >= 0.
        """
        full, rest = divmod(self.rows, self.rows_per_group)
        if distance <= bound:
            replaced = self._in_halves(self._squares_in) * bound
        elif rest:
            replaced = 2 * self.squared_rows * (bound + opposing)
        else:
            fewest = 0 if self.keys is None else max(0, 2 * full - self.keys)
            most = max(shared * distance + 2 * (full - shared) * bound for shared in (fewest, full))
            replaced = self.rows_per_group**2 * most
        return self.relation.pick(self.squared_rows * bound, replaced)

    def _in_halves(self, most: Callable[[int], int]) -> int:
        """Return M or M2: the largest total of two units if no group has rows of both."""
        half, odd = divmod(self.changed_groups, 2)
        return most(half + odd) + most(half)

    def _rows_in(self, groups: int) -> int:
        """Return the largest number of rows of one unit in some groups."""
        return min(self.rows, groups * self.rows_per_group)

    def _squares_in(self, groups: int) -> int:
        """Return the largest sum of the squared numbers of rows of one unit in some groups."""
        full, rest = divmod(self._rows_in(groups), self.rows_per_group)
        return full * self.rows_per_group**2 + rest**2
