"""Fields of a grant, for the options of ``dpsql grant`` and the owner's form; and the principal of a query."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from dpsql.contract.periods import PERIODS
from dpsql.dataclass import dataclass

ROLES = ("analyst", "auditor", "owner")
USUAL_DAYS = 90
NEVER = "never"


@dataclass(frozen=True)
class GrantField:
    """One field of a grant, named after an argument of `dpsql.ledger.grants.Grant.of`.

    Attributes
    ----------
    name : str
    kind : {'text', 'number', 'names', 'days', 'choice', 'flag'}
        Commas separate names; days are a number, or never.
    help : str
        Text for the command line.
    label : str
        Text for a form.
    usual : str
        Meaning of an empty field, for a form.
    choices : tuple of str
    needed : bool
    """

    name: str
    kind: str
    help: str
    label: str
    usual: str = ""
    choices: tuple[str, ...] = ()
    needed: bool = False


# All except the principal.
GRANT_FIELDS = (
    GrantField("dataset", "text", "The budget that may be asked about.", "Dataset", needed=True),
    GrantField(
        "epsilon",
        "number",
        "All that this principal may spend of it; by default its budget is the limit.",
        "Cap in epsilon",
        "no cap",
    ),
    GrantField("delta", "number", "The same of delta; none by default.", "Cap in delta", "none"),
    GrantField("rho", "number", "In place of epsilon and delta, for a budget in rho.", "Cap in rho", "none"),
    GrantField(
        "per",
        "choice",
        "The cap is for each such period of the calendar, in UTC.",
        "The cap is for each",
        "no period: for all time",
        ("", *PERIODS),
    ),
    GrantField(
        "default_epsilon",
        "number",
        "What a question spends that does not say.",
        "Epsilon of a question that does not say",
        "none",
    ),
    GrantField(
        "default_delta",
        "number",
        "What a question may spend of delta that needs one and does not say.",
        "Delta of a question that needs one and does not say",
        "none",
    ),
    GrantField(
        "functions",
        "names",
        "Functions that may be called, separated by commas; all by default.",
        "Functions, separated by commas",
        "all",
    ),
    GrantField(
        "sources",
        "names",
        "Tables or views to ask about; those of the dataset by default.",
        "Tables or views to ask about, separated by commas",
        "those of the dataset",
    ),
    GrantField("role", "choice", "", "Role", choices=ROLES),
    GrantField("days", "days", "Or never.", "Days until it ends, or never", str(USUAL_DAYS)),
    GrantField(
        "subject",
        "text",
        "What the identity provider of the gateway calls this principal.",
        "What the identity provider calls the principal",
        "none",
    ),
    GrantField(
        "share",
        "flag",
        "Equal questions of all who share have one answer, charged once.",
        "Equal questions of all who share have one answer",
    ),
    GrantField(
        "total",
        "flag",
        "Show what is spent of the dataset as a whole.",
        "Sees what is spent of the dataset as a whole",
    ),
)


# The field of an entry's lineage with the amounts that its call left out, and a default set.
DEFAULTS = "defaults"
# Default maximum age of a stored answer, in seconds.
USUAL_AGE = 24 * 60 * 60


# Defaults of an asker's grants: the dataset, 'epsilon' or 'delta', and the amount.
Defaults: TypeAlias = tuple[tuple[str, str, Fraction], ...]


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
    defaults : Defaults
    """

    principal: str
    share: bool = False
    fresh: bool = False
    key: str = ""
    max_age: float = USUAL_AGE
    defaults: Defaults = ()

    @property
    def scope(self) -> str:
        """Scope of a shared answer."""
        return "all" if self.share else f"p:{self.principal}"
