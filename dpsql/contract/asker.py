"""Who asks through the gateway, and how old an answer may be."""

from __future__ import annotations

from dataclasses import dataclass

# Seconds after which a question is asked anew, unless it says otherwise.
USUAL_AGE = 24 * 60 * 60


@dataclass(frozen=True)
class Asker:
    """Who asks, as the gateway knows it.

    Attributes
    ----------
    principal : str
        Whose grants must allow a charge.
    share : bool
        Equal questions of all who share have one answer; else only those of the principal do.
    fresh : bool
        Ask anew, at a charge.
    key : str
        Of a question that is asked anew: those with one key are one question, so that it can be repeated safely.
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
        """Whose questions have one answer."""
        return "all" if self.share else f"p:{self.principal}"
