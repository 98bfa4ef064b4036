"""Draws of a function without its SQL and without a ledger, for audits and for tests of laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dpsql.contract.measurement import Measurement, Permit


class Measured(Protocol):
    """A plan."""

    @property
    def measurement(self) -> Measurement:
        """What it samples."""


Planned = TypeVar("Planned", bound=Measured)
Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def draw_once(
    draw: Callable[Concatenate[Planned, Given], Drawn], plan: Planned, *given: Given.args, **named: Given.kwargs
) -> Drawn:
    """Draw once what a plan measures, as a call does that is charged; nothing is charged here.

    Parameters
    ----------
    draw : callable
        Such as `dpsql.functions.sis.draw_selection`: its first argument is the plan.
    plan : Plan
    *given, **named
        The other arguments of `draw`.
    """
    with Permit(plan.measurement).drawing():
        return draw(plan, *given, **named)
