"""The argument `left_out_share`: a part of epsilon that tells how much the limits of privacy units leave out.

The statistic and its sensitivity are in `dpsql.statistics.left_out`, what its noisy numbers say of a row's verdict in
`dpsql.released.left_out`. It has Laplace noise, whatever the law of the rest.

Nothing is charged where no limit can leave a row out, where the share is 0, and where keys are private: there the rows
of keys that are not released are left out, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from dpsql.contract.arguments import Argument
from dpsql.contract.parameters import known, open_unit_interval
from dpsql.contract.relation import Contribution
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import GroupedNoise, equal_shares
from dpsql.statistics.aggregates import Block
from dpsql.statistics.left_out import left_out_blocks, left_out_contribution

USUAL_SHARE = Fraction(1, 20)
# The field of what an engine hands over that says what a record is of: a group, the rows that fell away, or the units
# that have such rows. The last two stand behind the groups.
RECORD = "record"
GROUP, ROWS, UNITS = range(3)


def _share(given: object) -> Fraction | None:
    """Return the share; None for 0."""
    if not isinstance(given, bool) and given == 0:
        return None
    return open_unit_interval("left_out_share", given, hint="0.05 is usual; 0 pays for nothing.")


LEFT_OUT_SHARE = Argument(
    "left_out_share",
    "Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell away. "
    "Rows are 'biased' where that is more than their intervals show.",
    shown="0.05, where limits may leave rows out",
    check=_share,
    exact=True,
    earlier=(0,),
    table_only=True,
)


class Enforced(NamedTuple):
    """Which limits on a privacy unit may leave a row out, because the others do not imply them."""

    groups: bool
    rows_per_group: bool
    rows: bool


def enforced_limits(rows: int, groups: int, rows_per_group: int, *, group_count: int | None, alone: bool) -> Enforced:
    """Return which limits may leave a row out.

    A unit with m rows is in at most m groups, and has at most m rows in each.

    Parameters
    ----------
    rows, groups, rows_per_group : int
        The limits of one unit.
    group_count : int or None
        Number of groups in all; None if it is not public.
    alone : bool
        Whether a unit has at most one row in a group.
    """
    present: float = math.inf if group_count is None else group_count
    in_group: float = 1 if alone else math.inf
    by_groups = groups < min(present, rows)
    present = groups if by_groups else present
    each = rows_per_group < min(in_group, rows)
    in_group = rows_per_group if each else in_group
    return Enforced(by_groups, each, rows < present * in_group)


def read_left_out_share(given: Mapping[str, object], *, may_leave_out: bool) -> Fraction | None:
    """Return the share of epsilon that tells what was left out; None for nothing.

    Parameters
    ----------
    given : mapping
    may_leave_out : bool
        Whether a limit on units may leave a row out, and keys are public.

    Raises
    ------
    ParameterError
        P045: a share is given where nothing can be left out. P013, P032: it is no share.
    """
    read = LEFT_OUT_SHARE.read(given)
    share = None if read is None else known(Fraction, read)
    if share is not None and not may_leave_out:
        raise ParameterError(
            "P045",
            "left_out_share tells what the limits of a privacy unit leave out, with public keys, and here they leave "
            "nothing out. Leave it out, or give privacy_unit and max_rows_per_unit.",
        )
    return USUAL_SHARE if may_leave_out and given.get("left_out_share") is None else share


def left_out_noise(epsilon: Fraction, contribution: Contribution, blocks: tuple[Block, ...]) -> GroupedNoise:
    """Return the part that draws what was left out, beside blocks of what counts: Laplace noise, equal shares.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, beside that of the other parts.
    - **Neighbouring relation**: that of `contribution`.
    - **Sensitivity**: `dpsql.statistics.left_out`.
    """
    found = left_out_blocks(blocks)
    return GroupedNoise(
        "left out", epsilon, None, None, left_out_contribution(contribution), found, equal_shares(len(found))
    )
