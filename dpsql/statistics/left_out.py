"""What a limit on the rows of a privacy unit leaves out: how many units, rows, and the sum of their values.

Say a unit has e rows beyond its limits, of which e_t have a value of target t, with codes q in [-S, S] that add up to T
(`dpsql.statistics.aggregates`). It adds to the statistic, over all groups together::

    units    1 if e > 0, else 0
    rows     min(e, m)                                    without targets
    target   n = min(e_t, m) rows with a value, whose codes add up to trunc(T n / e_t)

where m is the number of rows of a unit that count at most in all groups, `dpsql.contract.relation.Contribution.rows`.
So a unit's part is cut at as many rows as count of it, in proportion to what it lacks.

**Sensitivity.** The integer ``trunc(T n / e_t)`` is between n times the least and n times the largest code that a row
may have, because its real number is, and both ends are integers. So n rows with codes exist that have these sums, and a
unit moves a block as n <= m rows in one group do: by `Block.norm` of ``Contribution(neighbours, m, 1, m, keys=1)``. It
moves the number of units by 1, under replace too: both units count 0 or 1.

Without the cut no bound holds: whoever has 1,000 rows would move the number of rows that fell away by 1,000 - m. For
the same reason **no number released here bounds what fell away from above**: one person with a million rows adds m to
it, as one with 2 m rows does, and their presence must not show. What can be said, but for noise, is how much fell away
at least.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.contract.relation import Contribution
from dpsql.statistics.aggregates import Block, DirectSum, GroupCount, TransformedPair, UnitCount, ValueBlock


class UnitsOver(UnitCount):
    """The number of privacy units that have rows beyond their limits, in one group: a unit counts once."""

    kind = "units_over"


def left_out_contribution(contribution: Contribution) -> Contribution:
    """Return what one unit adds to the rows that fell away, as one group: as many rows as count of it in all."""
    return Contribution(contribution.neighbours, contribution.rows, 1, contribution.rows, keys=1)


def left_out_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks of what was left out, for those of what counts: of units, then of each target or of all rows.

    Codes are those of the target's own block. Sums go with the number of rows, which Laplace noise gives for nothing.
    """
    return (UnitsOver(), *map(_of_target, blocks))


def _of_target(block: Block) -> Block:
    if not isinstance(block, ValueBlock):
        return GroupCount()
    kind = DirectSum if isinstance(block, DirectSum) else TransformedPair
    return kind(block.lower, block.upper, block.one)


def shortened(rows: int, total: int, most: int) -> tuple[int, int]:
    """Return what a unit with so many rows beyond its limits adds: rows, and the sum of their codes.

    The twin of the step `beyond` (`dpsql.engines.duckdb.steps.caps`).
    """
    kept = min(rows, most)
    if not rows:
        return 0, 0
    whole = abs(total) * kept // rows
    return kept, whole if total >= 0 else -whole
