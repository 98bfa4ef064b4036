"""What an owner grants through the gateway, written to the ledger and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpsql.contract.cost import UNITS_PER_ONE
from dpsql.contract.grant_fields import USUAL_DAYS
from dpsql.contract.parameters import show
from dpsql.errors import ParameterError
from dpsql.ledger import clock
from dpsql.ledger.accounts import counted
from dpsql.ledger.chain import GRANT, REVOKE, TOKEN, Draft, canonical
from dpsql.ledger.charge import entry_row, folded_dataset
from dpsql.ledger.grants import OVERLAP, Grant, Grants, Issued, new_token, principal_dataset, principal_named, time_text
from dpsql.ledger.opening import OpenLedger
from dpsql.ledger.reservations import end_lost
from dpsql.ledger.rows import LedgerRow, StoredRelease, ledger_row
from dpsql.ledger.transaction import Transaction

_STATUS = {GRANT: "granted", REVOKE: "revoked", TOKEN: "issued"}


@dataclass(frozen=True)
class GrantedBudget:
    """What a principal may spend of one dataset, has spent, and has left; None where there is no limit, or no number.

    Attributes
    ----------
    dataset : str
    per, period : str or None
        Where a cap is by periods of the calendar: their kind, and the one that is now; all the numbers are of it.
    releases : int
    epsilon_cap, epsilon_spent, epsilon_remaining : float or None
    delta_cap, delta_spent : float or None
    rho_cap, rho_spent : float or None
    """

    dataset: str
    per: str | None
    period: str | None
    releases: int
    epsilon_cap: float | None
    epsilon_spent: float | None
    epsilon_remaining: float | None
    delta_cap: float | None
    delta_spent: float | None
    rho_cap: float | None
    rho_spent: float | None


@dataclass(frozen=True)
class GrantedRow:
    """One grant in `dpsql principals`; None where nothing is said.

    Attributes
    ----------
    principal, dataset, role : str
    cap, spent : str or None
        In words; of a cap by periods, what is spent in the one that is now.
    releases : int
    default_epsilon : float or None
    functions, sources : str or None
        Names, separated by commas.
    expires : str or None
    share, total : bool
    """

    principal: str
    dataset: str
    role: str
    cap: str | None
    spent: str
    releases: int
    default_epsilon: float | None
    functions: str | None
    sources: str | None
    expires: str | None
    share: bool
    total: bool


class GrantingLedger(OpenLedger):
    """A ledger whose grants and tokens can be written and read."""

    _grants: Grants | None = None

    def grants(self) -> Grants:
        """Return who may ask for what; one look-up as long as nothing was granted or revoked."""
        known = self._grants
        found = self._grants = self._read(lambda transaction: transaction.grants(known))
        return found

    def end_lost_reservations(self) -> list[int]:
        """End what principals had reserved when the process that worked for them was lost; return their entries.

        Only where no such process is left. What was charged stays charged, and asked again it is charged again: how a
        call ended its process may have told something.
        """
        return self._write(end_lost) if self._read(lambda transaction: transaction.lost_reservations()) else []

    def open_reservations(self) -> list[LedgerRow]:
        """Return what principals have reserved and nothing has ended, oldest first.

        Their calls run now, or ran in a process that was lost.
        """
        return self._read(lambda transaction: [ledger_row(row) for row in transaction.lost_reservations()])

    def grant(self, grant: Grant) -> bool:
        """Let a principal ask about a dataset, in place of what it was granted before.

        Returns
        -------
        recorded : bool
            False when the same grant stands.

        Raises
        ------
        ParameterError
            P013: its subject is another principal's.
        """
        dataset = folded_dataset(grant.dataset)
        grant = replace(grant, dataset=dataset)

        def work(transaction: Transaction) -> bool:
            standing = transaction.grants(None).grants
            if standing.get((grant.principal, dataset)) == grant:
                return False
            subjects = {each.subject: each.principal for each in standing.values() if each.subject is not None}
            if grant.subject is not None and subjects.get(grant.subject, grant.principal) != grant.principal:
                raise ParameterError(
                    "P013",
                    f"subject {show(grant.subject)} is that of principal '{subjects[grant.subject]}'. Revoke its "
                    "grants first.",
                )
            _append(transaction, GRANT, dataset, grant.principal, grant.facts)
            return True

        return self._write(work)

    def revoke(self, principal: str, dataset: str | None = None, token: str | None = None) -> None:
        """Take from a principal one grant, one token, or else everything; it holds from the next request on.

        Parameters
        ----------
        principal : str
        dataset : str, optional
        token : str, optional
            The id of a token, its first characters after the prefix.

        Raises
        ------
        ParameterError
            P013: there is no such grant or token, or both were given.
        """
        principal_named(principal)
        if dataset is not None and token is not None:
            raise ParameterError("P013", "revoke takes a dataset or a token. Call it once for each.")
        of = None if dataset is None else folded_dataset(dataset)

        def work(transaction: Transaction) -> None:
            grants = transaction.grants(None)
            known = {
                *(("dataset", name) for owner, name in grants.grants if owner == principal),
                *(("token", held.id) for held in grants.tokens.values() if held.principal == principal),
            }
            what = ("dataset", of) if of is not None else ("token", token)
            if not known or (what[1] is not None and what not in known):
                raise ParameterError(
                    "P013", f"principal '{principal}' has no such grant or token. `dpsql principals` lists them."
                )
            facts = {} if what[1] is None else {what[0]: what[1]}
            _append(transaction, REVOKE, of or principal_dataset(principal), principal, facts)

        self._write(work)

    def issue_token(self, principal: str, *, days: object = USUAL_DAYS, now: bool = False) -> Issued:
        """Make a token of a principal who has a grant; its text is returned this once and kept nowhere.

        Parameters
        ----------
        principal : str
        days : int
            How long it holds.
        now : bool
            Earlier tokens end at once; else they hold for 24 hours more.

        Raises
        ------
        ParameterError
            P013: nothing was granted to this principal.
        """
        issued = new_token(principal_named(principal), days)
        keeps = clock.now() + (OVERLAP * (not now))
        facts = {
            "id": issued.token.id,
            "digest": issued.token.digest,
            "expires": issued.token.expires,
            "keeps": time_text(keeps),
        }

        def work(transaction: Transaction) -> Issued:
            if not any(owner == principal for owner, _ in transaction.grants(None).grants):
                raise ParameterError(
                    "P013",
                    f"principal '{principal}' has no grant. Give one first: dpsql grant {principal} --dataset NAME.",
                )
            _append(transaction, TOKEN, principal_dataset(principal), principal, facts)
            return issued

        return self._write(work)

    def granted_budgets(self, principal: str) -> list[GrantedBudget]:
        """Return what a principal has spent of each dataset that it may ask about, and has left."""

        def work(transaction: Transaction) -> list[GrantedBudget]:
            grants = transaction.grants(None).of(principal, clock.now())
            return [_granted_budget(transaction, grant) for grant in grants]

        return self._read(work)

    def granted_rows(self) -> list[GrantedRow]:
        """Return every grant, with what was spent of it."""

        def work(transaction: Transaction) -> list[GrantedRow]:
            return [_granted_row(transaction, grant) for _, grant in sorted(transaction.grants(None).grants.items())]

        return self._read(work)

    def releases_by(self, principal: str) -> list[StoredRelease]:
        """Return what a principal asked for, oldest first."""
        return self._read(lambda transaction: transaction.releases_by(principal))


def _append(transaction: Transaction, kind: str, dataset: str, principal: str, facts: Mapping[str, object]) -> None:
    row: Draft = entry_row(kind, dataset, f"dpsql {kind}", canonical(facts), guarantee="", status=_STATUS[kind])
    row["principal"] = principal
    transaction.append(row, transaction.state(dataset))


def _granted_budget(transaction: Transaction, grant: Grant) -> GrantedBudget:
    spent, period = counted(transaction, grant)
    limits = {} if grant.cap is None else grant.cap.limits
    charged = {name: spent.charged(name) for name in ("epsilon", "delta", "rho")}
    limit = limits.get("epsilon")
    left = None if limit is None else 0.0 if charged["epsilon"] is None else _number(max(0, limit - charged["epsilon"]))
    return GrantedBudget(
        grant.dataset,
        grant.per,
        period,
        spent.releases,
        *(_number(limits.get("epsilon")), _number(charged["epsilon"]), left),
        *(_number(limits.get("delta")), _number(charged["delta"])),
        *(_number(limits.get("rho")), _number(charged["rho"])),
    )


def _granted_row(transaction: Transaction, grant: Grant) -> GrantedRow:
    found = _granted_budget(transaction, grant)
    names = ("rho",) if found.rho_cap is not None else ("epsilon", "delta")
    spent = {name: getattr(found, f"{name}_spent") for name in names}
    said = [f"{name} {'no finite bound' if value is None else f'{value:.12g}'}" for name, value in spent.items()]
    return GrantedRow(
        grant.principal,
        grant.dataset,
        grant.role,
        None if grant.cap is None else grant.cap.text + (f" per {grant.per}" if grant.per else ""),
        ", ".join(each for each in said if each != "delta 0"),
        found.releases,
        None if grant.default_epsilon is None else float(grant.default_epsilon),
        None if grant.functions is None else ", ".join(grant.functions),
        None if grant.sources is None else ", ".join(grant.sources),
        grant.expires,
        grant.share,
        grant.total,
    )


def _number(units: int | None) -> float | None:
    return None if units is None else units / UNITS_PER_ONE
