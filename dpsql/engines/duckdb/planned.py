"""A private call that was planned but not run, for explaining what a statement would do."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.contract.plan import Plan


@dataclass(frozen=True)
class Planned:
    """A private call of a statement that was planned but not run.

    Attributes
    ----------
    function : str
    plan : Plan
    aggregate : bool
        Whether it is the aggregate form.
    replays : bool
        Whether it would return a stored release.
    refusal : str
        Why it would be refused now; ``''`` where it would not.
    """

    function: str
    plan: Plan
    aggregate: bool
    replays: bool
    refusal: str
