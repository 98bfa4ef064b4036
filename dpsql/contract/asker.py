"""Principal and maximum answer age of a gateway query."""

from __future__ import annotations

from dataclasses import dataclass

# Default maximum age of a stored answer, in seconds.
USUAL_AGE = 24 * 60 * 60


@dataclass(frozen=True)
class Asker:
    """Principal of a query, as the gateway knows it.

    Attributes
    ----------
    principal : str
        Its grants must allow charges.
    share : bool
        Whether equal queries of all who share have one answer; else only the principal's own do.
    fresh : bool
        Run again, at a charge.
    key : str
        For a query that runs again: queries with one key are one query, so repeats are safe.
    max_age : float
        Seconds.
    """

    principal: str
    share: bool = False
    fresh: bool = False
    key: str = ""
    max_age: float = USUAL_AGE

    @property
    def scope(self) -> str:
        """Scope of a shared answer."""
        return "all" if self.share else f"p:{self.principal}"
