"""The clock of a ledger, which alone says when an entry is made, and in which period of the calendar that is."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
