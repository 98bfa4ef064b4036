"""Receipts of releases as JSON values, as the front passes them on."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpsql.contract.cost import Cost
from dpsql.contract.covers import COVERING
from dpsql.contract.events import cost_of
from dpsql.functions.noise_statement import noise_statement
from dpsql.gateway.granted import Granted
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.policy import in_force
from dpsql.ledger.rows import StoredRelease
from dpsql.released.release import Release


def receipt_of(release: Release, ledger: Ledger) -> dict[str, Any]:
    """Return the receipt of a release that was asked for now."""
    [stored] = ledger.releases([release.function], key=release.ledger_id)
    return {**stored_receipt(stored, ledger), "charged": not release.replayed}


def stored_receipt(stored: StoredRelease, ledger: Ledger) -> dict[str, Any]:
    """Return the receipt of a release that the ledger holds."""
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
        "charged": False,
        "recorded_at": stored.recorded_at,
        "engine": None,
        "noise": noise_statement(stored.function, stored.arguments, stored.result),
        "policy": policy,
        **{name: policy.get(name) for name in COVERING},
    }


def own_releases(ledger: Ledger, granted: Granted) -> list[StoredRelease]:
    """Return what a principal asked for, of the datasets that it may still ask about, oldest first."""
    datasets = {grant.dataset for grant in granted.grants}
    return [one for one in ledger.releases_by(granted.principal) if one.dataset in datasets]


def _text(amount: Fraction | None) -> str | None:
    return None if amount is None else f"{float(amount):.12g}"
