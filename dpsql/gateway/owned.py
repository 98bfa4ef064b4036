"""Answer owners and auditors in the broker: it checks the roles of a grant, whatever the front says.

An auditor of a dataset sees its budget, its entries, its grants, and refusals. An owner also grants and revokes. An
owner controls only the owner's own datasets: only the command line makes and revokes tokens of a principal who may
query another owner's dataset or owns a dataset, and only the command line sets the role of an owner.

The module also writes receipts of releases as JSON values, which the front passes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from dpsql.contract.covers import COVERING
from dpsql.contract.events import Cost, cost_of
from dpsql.contract.grant_fields import DEFAULTS, GRANT_FIELDS, NEVER, ROLES
from dpsql.errors import GatewayError
from dpsql.functions.noise_statement import noise_statement
from dpsql.functions.registry import FUNCTIONS, QUERY, check_askable
from dpsql.gateway.audit import Audit
from dpsql.gateway.granted import Granted, asked_as
from dpsql.gateway.values import values_of
from dpsql.ledger import clock
from dpsql.ledger.caps import NO_DATASET
from dpsql.ledger.grants import Grant, Grants
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import StoredRelease, tables_of
from dpsql.released.release import Release


def receipt_of(release: Release, ledger: Ledger) -> dict[str, Any]:
    """Return the receipt of a release of this request."""
    [stored] = ledger.releases([release.function], key=release.ledger_id)
    return {**stored_receipt(stored, ledger), "charged": not release.replayed}


def stored_receipt(stored: StoredRelease, ledger: Ledger) -> dict[str, Any]:
    """Return the receipt of a release in the ledger."""
    event = ledger.event(stored.sequence)
    cost: Cost = cost_of(event)
    policy = in_force(stored.arguments)
    return {
        "entry": stored.sequence,
        "function": stored.function,
        "dataset": stored.dataset,
        "source": (stored.lineage or {}).get("source") or stored.arguments.get("source"),
        "guarantee": stored.guarantee,
        "event": event,
        "epsilon": _text(cost.epsilon),
        "delta": _text(cost.delta),
        "defaults": (stored.lineage or {}).get(DEFAULTS, {}),
        "charged": False,
        "recorded_at": stored.recorded_at,
        "engine": None,
        "noise": noise_statement(stored.function, stored.arguments, stored.result),
        "policy": policy,
        **{name: policy.get(name) for name in COVERING},
    }


def own_releases(ledger: Ledger, granted: Granted) -> list[StoredRelease]:
    """Return a principal's releases on datasets that it may still query, oldest first."""
    datasets = {grant.dataset for grant in granted.grants}
    return [release for release in ledger.releases_by(granted.principal) if release.dataset in datasets]


def _text(amount: Fraction | None) -> str | None:
    return None if amount is None else f"{float(amount):.12g}"


Reply = tuple[dict[str, Any], list[pa.Table]]
_ANALYST, _, _OWNER = ROLES


class OwnersRequest(Protocol):
    """A request with a known principal."""

    principal: str
    request: Mapping[str, object]

    def text(self, name: str) -> str:
        """Return a string of the request."""


class OwnersDesk:
    """Answers requests of owners and auditors of a ledger's datasets.

    Parameters
    ----------
    ledger : Ledger
    audit : Audit
        The log of requests.
    unplaced : callable
        Returns the undeclared tables of the database.
    """

    def __init__(self, ledger: Ledger, audit: Audit, unplaced: Callable[[], list[dict[str, Any]]]) -> None:
        self._ledger, self._audit, self._unplaced = ledger, audit, unplaced

    @property
    def wants(self) -> dict[str, Callable[[Any], Reply]]:
        """Handlers of requests, by name."""
        return {
            "standing": self._standing,
            "overview": self._overview,
            "lineage": self._lineage,
            "reservations": self._reservations,
            "receipt": self._receipt,
            "grants": self._granted,
            "verify": self._verify,
            "refusals": self._refusals,
            "grant": self._grant,
            "revoke": self._revoke,
            "token": self._token,
        }

    def _standing(self, request: OwnersRequest) -> Reply:
        """Return the datasets of an owner, and those of an auditor."""
        return {"standing": {role: sorted(_of(self._grants(), request.principal, role)) for role in ROLES[1:]}}, []

    def _overview(self, request: OwnersRequest) -> Reply:
        """Return the datasets' budgets, declarations and daily spending."""
        grants = self._grants()
        seen = _seen(grants, request.principal)
        budgets, spent = self._ledger.budgets(), self._spent(seen)
        datasets = []
        for dataset in sorted(seen):
            policies = {
                policy.argument: policy.value for policy in self._ledger.policies(dataset) if policy.column_name is None
            }
            rows = [
                {**asdict(row), "spent": row.spent_text, "remaining": row.remaining_text}
                for row in budgets
                if row.dataset == dataset
            ]
            datasets.append({"dataset": dataset, "budgets": rows, "stated": policies, "spent": spent.get(dataset, {})})
        return {"overview": {"datasets": datasets}}, []

    def _lineage(self, request: OwnersRequest) -> Reply:
        """Return the tables of the datasets, the public tables, and the undeclared tables."""
        grants, declarations = self._grants(), self._ledger.declarations()
        seen, latest = _seen(grants, request.principal), declarations.latest
        states = self._ledger.states(seen)
        bases = {name: _base(name, latest, declarations.aliases) for name, kinds in latest.items() if "derive" in kinds}
        tables = []
        for dataset in sorted(seen):
            if "protect" in latest.get(dataset, {}):
                unit = None if (budget := states[dataset].budget) is None else budget.privacy_unit
                facts = tables_of(latest[dataset]["protect"].lineage)
                tables += [{"unit": unit, **_table(dataset, dataset, fact)} for fact in facts]
            for name in sorted(name for name, base in bases.items() if base == dataset):
                derivation = latest[name]["derive"].facts
                tables.append(_table(name, dataset, derivation, made_of=derivation["base"]))
        public = sorted(name for name, kinds in latest.items() if "public" in kinds)
        every = {row.dataset for row in self._ledger.budgets()}
        # Only the owner of all datasets sees names of undeclared tables.
        unplaced = self._unplaced() if every <= _of(grants, request.principal, _OWNER) else None
        return {"lineage": {"tables": tables, "public": public, "unplaced": unplaced}}, []

    def _reservations(self, request: OwnersRequest) -> Reply:
        """Return charges that have no answer yet."""
        seen = _seen(self._grants(), request.principal)
        return {
            "reservations": [
                asdict(open_reservation)
                for open_reservation in self._ledger.open_reservations()
                if open_reservation.dataset in seen
            ]
        }, []

    def _receipt(self, request: OwnersRequest) -> Reply:
        """Return the receipt of a release, without its rows."""
        seen, number = _seen(self._grants(), request.principal), request.request.get("number")
        if type(number) is int:
            for release in self._ledger.releases([*FUNCTIONS, QUERY], key=number):
                if release.dataset in seen:
                    return {"receipt": {**stored_receipt(release, self._ledger), "charged": None}}, []
        raise GatewayError("G018", "there is no such release of your datasets. Look at the ledger.")

    def _spent(self, seen: set[str]) -> dict[str, dict[str, float]]:
        """Return each dataset's charged epsilon, summed by day."""
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for entry in self._ledger.entries():
            if (
                entry.dataset in seen
                and entry.kind in ("release", "charge")
                and not (entry.block or "").startswith("@")
            ):
                sums[entry.dataset][entry.recorded_at[:10]] += entry.epsilon or 0.0
        return sums

    def _granted(self, request: OwnersRequest) -> Reply:
        """Return the grants on the datasets, and their tokens."""
        grants = self._grants()
        seen, own = _seen(grants, request.principal), _of(grants, request.principal, _OWNER)
        rows = [asdict(granted_row) for granted_row in self._ledger.granted_rows() if granted_row.dataset in seen]
        names, now = {str(row["principal"]) for row in rows}, clock.now()
        tokens = [
            {"principal": token.principal, "id": token.id, "expires": token.expires, "stands": token.stands(now)}
            for token in grants.tokens.values()
            if token.principal in names
        ]
        within = sorted(name for name in names if _is_within(grants, name, own))
        for row in rows:
            row["said"] = grants.grants[row["principal"], row["dataset"]].texts(now)
        return {"grants": {"grants": rows, "tokens": tokens, "owned": sorted(own), "within": within}}, []

    def _verify(self, request: OwnersRequest) -> Reply:
        """Verify the chain that all datasets share; reveal nothing of any."""
        _seen(self._grants(), request.principal)
        head = request.request.get("head")
        report = self._ledger.verify(head if isinstance(head, str) and head else None)
        return {"verify": asdict(report)}, []

    def _refusals(self, request: OwnersRequest) -> Reply:
        """Return the last refusals of principals who may query the datasets."""
        grants = self._grants()
        seen = _seen(grants, request.principal)
        names = {name for name, dataset in grants.grants if dataset in seen}
        return {"refusals": self._audit.refusals(names)}, []

    def _grant(self, request: OwnersRequest) -> Reply:
        fields, grants = _fields(request.request.get("grant")), self._grants()
        if not {"principal", "dataset"} <= fields.keys():
            raise GatewayError("G012", "a grant is of a principal, on a dataset. Name both.")
        own = _of(grants, request.principal, _OWNER)
        grant = Grant.of(fields["principal"], **_grant_arguments(fields))
        check_askable(grant.functions or ())
        if grant.dataset not in own:
            raise GatewayError("G015", NO_DATASET)
        before = grants.grants.get((grant.principal, grant.dataset))
        if _OWNER in (grant.role, None if before is None else before.role):
            raise _only_by_command("who owns a dataset")
        self._check_reach(grant, before, grants, own)
        return {"granted": self._ledger.grant(grant)}, []

    def _check_reach(self, grant: Grant, before: Grant | None, grants: Grants, own: set[str]) -> None:
        """Raise if a grant names another owner's table, or sets the subject of a principal whom others let in."""
        latest = self._ledger.declarations().latest
        declarations = {name: latest.get(name, {}).get("protect") for name in own}
        within = {
            asked_a for name, facts in declarations.items() for asked_a in asked_as(name, facts and facts.lineage)
        }
        within |= set((before and before.sources) or ())
        if set(grant.sources or ()) - within:
            raise _only_by_command("a table or view that is none of your datasets'")
        is_new = not any(name == grant.principal for name, _ in grants.grants)
        if grant.subject != (before and before.subject) and not (is_new or _is_within(grants, grant.principal, own)):
            raise _only_by_command("what the identity provider calls this principal")

    def _revoke(self, request: OwnersRequest) -> Reply:
        fields, grants = _fields(request.request.get("revoke")), self._grants()
        own, principal = _of(grants, request.principal, _OWNER), fields.get("principal", "")
        if "token" in fields:
            self._check_within(grants, principal, own)
            self._ledger.revoke(principal, token=fields["token"])
            return {}, []
        grant = grants.grants.get((principal, fields.get("dataset", "")))
        if grant is None or grant.dataset not in own:
            raise GatewayError("G015", NO_DATASET)
        if grant.role == _OWNER:
            raise _only_by_command("who owns a dataset")
        self._ledger.revoke(principal, grant.dataset)
        return {}, []

    def _token(self, request: OwnersRequest) -> Reply:
        grants = self._grants()
        principal = request.text("principal")
        self._check_within(grants, principal, _of(grants, request.principal, _OWNER))
        issued = self._ledger.issue_token(principal, now=request.request.get("now") is True)
        return {"token": {"text": issued.text, "id": issued.token.id, "expires": issued.token.expires}}, []

    def _check_within(self, grants: Grants, principal: str, own: set[str]) -> None:
        if not _is_within(grants, principal, own):
            raise _only_by_command("tokens of this principal")

    def _grants(self) -> Grants:
        return self._ledger.grants()


def _of(grants: Grants, principal: str, role: str) -> set[str]:
    """Return the datasets on which a principal has a role."""
    return {grant.dataset for grant in grants.of(principal, clock.now()) if grant.role == role}


def _seen(grants: Grants, principal: str) -> set[str]:
    """Return the datasets that an owner or auditor may see.

    Raises
    ------
    GatewayError
        G019: there is none.
    """
    datasets = {grant.dataset for grant in grants.of(principal, clock.now()) if grant.role != _ANALYST}
    if not datasets:
        raise GatewayError("G019", "this is for owners and auditors of a dataset. Ask for the role.")
    return datasets


def _table(name: str, dataset: str, facts: Mapping[str, Any], made_of: object = None) -> dict[str, Any]:
    """Return the location of a declared table's rows, and their path to the privacy unit."""
    path, parts = facts.get("path"), facts.get("table")
    return {
        "dataset": dataset,
        "table": facts.get("name") or name,
        # The first part is the database ID.
        "place": None if parts is None else ".".join(parts[1:]),
        "is_view": facts.get("view") is not None,
        "columns": len(facts.get("columns") or ()),
        **({} if facts.get("unit") is None else {"unit": facts["unit"]}),
        "path": None if path is None else f"{path['column']} -> {path['parent']}.{path['key']}",
        "rows_per_unit": facts.get("rows"),
        "made_of": made_of,
    }


def _base(name: str, latest: Mapping[str, Mapping[str, Any]], aliases: Mapping[str, str]) -> str:
    """Return the dataset of a derived table."""
    passed: set[str] = set()
    while "derive" in latest.get(name, {}) and name not in passed:
        passed.add(name)
        name = latest[name]["derive"].facts["base"]
    return aliases.get(name, name)


def _is_within(grants: Grants, principal: str, own: set[str]) -> bool:
    """Return whether one owner's datasets cover a principal's grants, and the principal owns none."""
    principal_grants = [grant for (name, _), grant in grants.grants.items() if name == principal]
    return bool(principal_grants) and all(grant.dataset in own and grant.role != _OWNER for grant in principal_grants)


def _only_by_command(what: str) -> GatewayError:
    return GatewayError("G019", f"{what} cannot be changed here. Use dpsql grant, revoke and token.")


def _fields(fields: object) -> dict[str, str]:
    """Return the fields of a grant: strings by name."""
    if not isinstance(fields, Mapping) or not all(
        isinstance(name, str) and name in _FIELDS and isinstance(value, str) and len(value) <= 1000
        for name, value in fields.items()
    ):
        raise GatewayError("G012", "a grant is said by texts.")
    return dict(fields)


def _grant_arguments(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a grant's strings as arguments of `Grant.of`; skip empty strings."""
    arguments: dict[str, Any] = {}
    for field in GRANT_FIELDS:
        text = fields.get(field.name, "").strip()
        if field.kind == "flag":
            arguments[field.name] = text == "true"
        elif field.kind == "days" and text == NEVER:
            arguments[field.name] = None
        elif text and field.kind in ("number", "days"):
            arguments |= values_of({field.name: {"number": text}}, _no_release)
        elif text:
            arguments[field.name] = (
                [word.strip() for word in text.split(",") if word.strip()] if field.kind == "names" else text
            )
    return arguments


_FIELDS = {"principal", "token", *(field.name for field in GRANT_FIELDS)}


def _no_release(name: str) -> int:
    raise GatewayError("G018", "you have no such release. List your releases.")
