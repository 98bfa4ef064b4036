"""The time at which a broker begins: the system's, unless it is before the ledger's last entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dpsql.errors import GatewayError
from dpsql.ledger import clock
from dpsql.ledger.ledger import Ledger


def begin_time(ledger: Ledger, system: datetime) -> tuple[datetime, str]:
    """Return the time at which a broker begins, and what is said of the gap to the ledger's last entry.

    The entries of a broker are at most an hour ahead of the time, so a system's clock that is behind them by an hour
    was set right again, and the broker begins at the last entry.

    Parameters
    ----------
    ledger : Ledger
    system : datetime
        The system's time.

    Raises
    ------
    GatewayError
        G027: the system's clock was set back by more than an hour.
    """
    last = ledger.last_recorded()
    if last is None:
        return system, ""
    gap, at = system - last, f"the ledger's last entry is of {_text(last)}"
    if gap < -clock.MOST_AHEAD:
        raise GatewayError(
            "G027",
            f"the system's time is {_text(system)}, but {at}. Set the clock: sudo timedatectl set-ntp true. Grants and "
            "tokens that have ended would hold again.",
        )
    if gap < timedelta(0):
        return last, f"{at}, {_length(-gap)} after the system's time. Time begins there."
    return system, f"{at}, {_length(gap)} before the system's time. If the gap is too long, the clock was set forwards."


def _text(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _length(gap: timedelta) -> str:
    return str(timedelta(seconds=round(gap.total_seconds())))
