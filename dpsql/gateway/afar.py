"""Door to a remote gateway, for transports that run on the user's machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.remote import Remote


@dataclass(frozen=True)
class AnswerAfar:
    """Answer of a remote gateway.

    Attributes
    ----------
    table : pyarrow.Table
    receipts : list of dict
    settings : mapping
        Empty: a gateway over HTTP has no sessions.
    """

    table: pa.Table
    receipts: list[dict[str, Any]]
    settings: Mapping[str, object] = field(default_factory=dict)


class DoorAfar:
    """Door to a remote gateway, with one token.

    Parameters
    ----------
    url, token : str
    """

    def __init__(self, url: str, token: str) -> None:
        self._remote = Remote(url, token)

    def answer(self, _token: str, sql: str, settings: Mapping[str, str]) -> AnswerAfar:
        """Answer a statement."""
        return AnswerAfar(*self._remote.answer(sql, _values(settings)))

    def datasets(self, _token: str) -> list[dict[str, Any]]:
        """Return the datasets."""
        return self._remote.datasets()

    def describe(self, _token: str, name: str) -> dict[str, Any]:
        """Return a dataset's public facts."""
        return self._remote.dataset(name)

    def estimate(self, _token: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the cost of a statement."""
        return self._remote.estimate(sql, **_values(settings))

    def budget(self, _token: str) -> list[dict[str, Any]]:
        """Return the budgets."""
        return self._remote.budget()

    def releases(self, _token: str, before: int | None = None) -> list[dict[str, Any]]:
        """Return own releases."""
        return self._remote.releases(before)

    def ledger(self, _token: str, before: int | None = None) -> dict[str, Any]:
        """Return the auditor's view."""
        return self._remote.ledger(before)

    def release(self, _token: str, number: int) -> AnswerAfar:
        """Return one own release."""
        return AnswerAfar(*self._remote.stored(number))

    def health(self) -> dict[str, Any]:
        """Return the gateway's health."""
        return self._remote.health()


def _values(settings: Mapping[str, str]) -> dict[str, object]:
    """Return settings as body values."""
    if not settings.keys() <= {"epsilon", "delta"}:
        raise GatewayError("G021", "only epsilon and delta are set here.")
    return {name: Decimal(value) for name, value in settings.items()}
