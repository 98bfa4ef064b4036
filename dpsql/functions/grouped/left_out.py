"""The argument `left_out_share`: a share of epsilon that measures how much row limits of privacy units leave out.

`dpsql.statistics.aggregates` has the statistic and its sensitivity. `dpsql.released.aggregates` derives a row's verdict
from the noisy numbers. The measurement has Laplace noise, whatever the law of the rest.

It costs nothing if no limit can leave a row out, if the share is 0, or if keys are private: then the rows of keys that
are not released are left out, too.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from dpsql.contract.arguments import optional_share
from dpsql.contract.json import Json
from dpsql.contract.keys import PublicKeys
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import narrow
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.grouped.plan import DrawnBoundsPlan
from dpsql.mechanisms.aggregates import GroupedNoise, equal_shares
from dpsql.statistics.aggregates import Block, left_out_blocks, left_out_contribution

USUAL_SHARE = Fraction(1, 20)
# The field of an engine's result that names the kind of a record: a group, the rows left out, or the units with such
# rows. The last two come after the groups.
RECORD = "record"
GROUP, ROWS, UNITS = range(3)


LEFT_OUT_SHARE = optional_share(
    "left_out_share",
    "Share of epsilon, from 0 to below 1, that tells how many units have more rows than count, and how much fell away. "
    "Rows are 'biased' where that is more than their intervals show.",
    None,
    hint="0.05 is usual; 0 pays for nothing.",
    default_text="0.05, where limits may leave rows out",
    earlier=(0,),
    table_only=True,
)


class Enforced(NamedTuple):
    """Limits on a privacy unit that may leave a row out, because the other limits do not imply them."""

    groups: bool
    rows_per_group: bool
    rows: bool


def enforced_limits(rows: int, groups: int, rows_per_group: int, *, group_count: int | None, alone: bool) -> Enforced:
    """Return the limits that may leave a row out.

    A unit with m rows is in at most m groups, and has at most m rows in each.

    Parameters
    ----------
    rows, groups, rows_per_group : int
        The limits of one unit.
    group_count : int or None
        Number of all groups; None if it is not public.
    alone : bool
        Whether a unit has at most one row in a group.
    """
    present: float = math.inf if group_count is None else group_count
    in_group: float = 1 if alone else math.inf
    by_groups = groups < min(present, rows)
    present = groups if by_groups else present
    by_rows = rows_per_group < min(in_group, rows)
    in_group = rows_per_group if by_rows else in_group
    return Enforced(by_groups, by_rows, rows < present * in_group)


def read_left_out_share(arguments: Mapping[str, object], *, may_leave_out: bool) -> Fraction | None:
    """Return the share of epsilon that measures the rows left out; None for no measurement.

    Parameters
    ----------
    arguments : mapping
    may_leave_out : bool
        Whether a limit on units may leave a row out, and keys are public.

    Raises
    ------
    ParameterError
        P006: the value is not a share. P045: a share is given but nothing can be left out.
    """
    read = LEFT_OUT_SHARE.read(arguments)
    share = None if read is None else narrow(Fraction, read)
    if share is not None and not may_leave_out:
        raise ParameterError(
            "P045",
            "left_out_share tells what the limits of a privacy unit leave out, with public keys, and here they leave "
            "nothing out. Leave it out, or give privacy_unit and max_rows_per_unit.",
        )
    return USUAL_SHARE if may_leave_out and arguments.get("left_out_share") is None else share


@dataclass(frozen=True, kw_only=True)
class LeftOutPlan(DrawnBoundsPlan):
    """The plan of a function that measures how much limits of privacy units leave out."""

    left_out_share: Fraction | None  # None for no measurement

    @classmethod
    def _left_out_share(
        cls,
        arguments: Mapping[str, object],
        layout: Layout,
        own: Mapping[str, object],
        bounds: Mapping[str, object],
        *,
        alone: bool,
    ) -> Fraction | None:
        """Return the share of epsilon that measures the rows left out.

        Parameters
        ----------
        arguments : mapping
        layout : Layout
        own, bounds : mapping
            The checked fields of the keys and of the bounds.
        alone : bool
            Whether a unit has at most one row in a group.
        """
        may = own["keys"] is not None and layout.privacy_unit is not None
        if may:
            keys = PublicKeys(*(own[name] for name in ("keys", "key_rows", "keys_table")))  # type: ignore[arg-type]
            other = bool(own["other"])
            bounded = cls._contribution(arguments, layout, keys, other=other)
            count = cls._group_count(arguments, keys, other=other)
            limits = bounded.rows, bounded.groups, bounded.rows_per_group
            may = any(enforced_limits(*limits, group_count=count, alone=alone))
        share = read_left_out_share(arguments, may_leave_out=may)
        bounds_share = bounds["bounds_share"]
        if share is not None and isinstance(bounds_share, Fraction) and share + bounds_share >= 1:
            raise ParameterError("P051", "bounds_share and left_out_share leave nothing of epsilon. Lower one of them.")
        return share

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments as earlier versions recorded the same call, without this measurement."""
        yield from super().earlier_arguments()
        if self.left_out_share == USUAL_SHARE:
            yield {name: value for name, value in self.public_arguments.items() if name != "left_out_share"}

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """The statistic: a block for each target, or one for all rows."""

    @property
    def measures_left_out(self) -> bool:
        """Whether the call measures how much limits of units leave out."""
        return self.left_out_share is not None

    @cached_property
    def remaining_epsilon(self) -> Fraction:
        """Epsilon that remains for the aggregates."""
        return self.epsilon - self.bounds_epsilon - self.epsilon * (self.left_out_share or 0)

    @cached_property
    def left_out_parts(self) -> tuple[GroupedNoise, ...]:
        """The part that measures the rows left out, if any."""
        if self.left_out_share is None:
            return ()
        return (left_out_noise(self.epsilon * self.left_out_share, self.contribution, self.blocks),)


def left_out_noise(epsilon: Fraction, contribution: Contribution, blocks: tuple[Block, ...]) -> GroupedNoise:
    """Return the part that measures the left-out rows, for `blocks` of rows that count: Laplace noise, equal shares.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, in addition to the other parts.
    - **Neighbouring relation**: the one of `contribution`.
    - **Sensitivity**: `dpsql.statistics.aggregates`.
    """
    noise_blocks = left_out_blocks(blocks)
    return GroupedNoise(
        "left out",
        epsilon,
        None,
        None,
        left_out_contribution(contribution),
        noise_blocks,
        equal_shares(len(noise_blocks)),
    )
