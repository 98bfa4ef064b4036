"""A door to a gateway on another machine, for transports that run where their user is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dpsql.errors import GatewayError
from dpsql.remote import Remote


@dataclass(frozen=True)
class AnswerAfar:
    """What a gateway elsewhere answered.

    Attributes
    ----------
    table : pyarrow.Table
    receipts : list of dict
    settings : mapping
        None: a gateway over HTTP has no sessions.
    """

    table: pa.Table
    receipts: list[dict[str, Any]]
    settings: Mapping[str, object] = field(default_factory=dict)


class DoorAfar:
    """A door that asks a gateway with one token.

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
        """Return what may be asked."""
        return self._remote.datasets()

    def describe(self, _token: str, name: str) -> dict[str, Any]:
        """Return what is public about a dataset."""
        return self._remote.dataset(name)

    def estimate(self, _token: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return what a statement would cost."""
        return self._remote.estimate(sql, **_values(settings))

    def budget(self, _token: str) -> list[dict[str, Any]]:
        """Return what is left."""
        return self._remote.budget()

    def releases(self, _token: str, before: int | None = None) -> list[dict[str, Any]]:
        """Return the own releases."""
        return self._remote.releases(before)

    def ledger(self, _token: str, before: int | None = None) -> dict[str, Any]:
        """Return what an auditor sees."""
        return self._remote.ledger(before)

    def release(self, _token: str, number: int) -> AnswerAfar:
        """Return an own release again."""
        return AnswerAfar(*self._remote.stored(number))

    def health(self) -> dict[str, Any]:
        """Say whether the gateway works."""
        return self._remote.health()


def _values(settings: Mapping[str, str]) -> dict[str, object]:
    """Return settings as values of a body."""
    if not settings.keys() <= {"epsilon", "delta"}:
        raise GatewayError("G021", "only epsilon and delta are set here.")
    return {name: Decimal(value) for name, value in settings.items()}
