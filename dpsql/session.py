"""What every connection of one DuckDB instance shares: the ledger, and the calls that are running.

Functions registered in DuckDB belong to the whole instance, so their state does too. A call lives
from its gate, where types and budget are checked, to its release; in between, its parts find each
other by a ticket.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dpsql.accountant import cost_of
from dpsql.call import Call
from dpsql.budget import Budget
from dpsql.errors import DpsqlError, InternalError
from dpsql.ledger import Entry, Ledger
from dpsql.parameters import text
from dpsql.plan import SisPlan

# Calls that died between gate and release (a query that DuckDB aborted) are dropped oldest first.
_MOST_CALLS = 4096
Result = TypeVar("Result")


@dataclass
class RunningCall:
    """A call between its gate and its release."""

    call: Call
    function: str
    charged: bool = False


class Session:
    """The shared state of one DuckDB instance.

    Parameters
    ----------
    ledger : Ledger
        Where charges go.
    strict : bool
        Refuse datasets that were never protected.

    Attributes
    ----------
    identifier : str
        Random name by which a second `install` on the same instance finds this session.
    catalog : str
        Name of the in-memory catalog that holds the macros.
    """

    def __init__(self, ledger: Ledger, *, strict: bool, location: str | None = None) -> None:
        self.ledger = ledger
        self._location = location
        self.strict = strict
        self.identifier = secrets.token_hex(16)
        self.catalog = "dpsql"
        # Keys the hash that samples rows per privacy unit; secret, new in every process.
        self.sampling_key = int.from_bytes(secrets.token_bytes(16), "little")
        self._calls: OrderedDict[str, RunningCall] = OrderedDict()
        self._lock = threading.Lock()

    def uses(self, location: str) -> bool:
        """Whether a location names the ledger of this session."""
        mine = self._location
        if mine is None or location == ":memory:" or "://" in mine or "://" in location:
            return location == (mine or ":memory:")
        return Path(location).resolve() == Path(mine).resolve()

    def plan(self, source: Any, arguments: Mapping[str, Any], *, aggregate: bool = False) -> SisPlan:
        """Check a call's public arguments, with the owner's policy for the dataset filled in.

        Raises
        ------
        ParameterError
            An argument that does not fit.
        """
        if not aggregate:
            source = text("source", source, code="P014", hint="Give the name of a table, view or registered frame.")
        dataset = arguments.get("dataset") or source or "default"
        policy = self.ledger.policy(dataset) if isinstance(dataset, str) else None
        return SisPlan.from_arguments(source, arguments, {} if policy is None else _stated(policy, aggregate))

    def check(self, plan: SisPlan) -> None:
        """Raise when the budget does not allow the call now; charges nothing."""
        if plan.release is not None and self.replay(plan) is not None:
            return
        self.ledger.check(plan.dataset, cost_of(plan.event), strict=self.strict, **_protection(plan))

    def replay(self, plan: SisPlan, function: str = "dp_sis") -> Entry | None:
        """Return the stored result of a named release, if there is one."""
        if plan.release is None:
            return None
        fingerprint = self.ledger.fingerprint(plan.dataset, function, plan.public_arguments)
        return self.ledger.replay(plan.dataset, plan.release, fingerprint)

    def open_call(self, call: Call, function: str) -> str:
        """Start a call; return its ticket."""
        ticket = secrets.token_hex(8)
        with self._lock:
            self._calls[ticket] = RunningCall(call, function)
            if len(self._calls) > _MOST_CALLS:
                self._calls.popitem(last=False)
        return ticket

    def running(self, ticket: str) -> RunningCall:
        """Return the call that a ticket stands for."""
        with self._lock:
            found = self._calls.get(ticket)
        if found is None:
            raise InternalError("I002", "the call is no longer running. Run the statement again.")
        return found

    def close_call(self, ticket: str) -> None:
        """Forget a call that has released or failed."""
        with self._lock:
            self._calls.pop(ticket, None)

    def guarded(self, ticket: str, work: Callable[[RunningCall], Result]) -> Result:
        """Run a part of a call that reads rows; should it fail, the charge is committed without a result.

        Raises
        ------
        InternalError
            In place of any exception that is not our own, without its text.
        """
        running = self.running(ticket)
        try:
            return work(running)
        except DpsqlError:
            raise
        except BaseException as failure:
            self._charge_failure(running)
            if not isinstance(failure, Exception):
                raise
            raise InternalError(
                "I001",
                f"{running.function} failed after it read the table. The charge stands and nothing was released. "
                "Report it with the versions that `dpsql doctor` shows.",
            ) from None

    def release(self, plan: SisPlan, function: str, draw: Callable[[], object]) -> Entry:
        """Charge and draw in one durable transaction."""
        return self.ledger.charge(
            plan.dataset,
            event=plan.event,
            function=function,
            arguments=plan.public_arguments,
            draw=draw,
            name=plan.release,
            strict=self.strict,
            **_protection(plan),
        )

    def _charge_failure(self, running: RunningCall) -> None:
        with self._lock:  # several threads read rows of one call; it is charged once
            first, running.charged = not running.charged, True
        if first and running.function.startswith("dp_"):
            plan = running.call.plan
            self.ledger.charge_failure(
                plan.dataset,
                event=plan.event,
                function=running.function,
                arguments=plan.public_arguments,
                name=plan.release,
                **_protection(plan),
            )


def _stated(policy: Budget, aggregate: bool) -> dict[str, Any]:
    """What the owner stated, by the names of a call's arguments."""
    stated: dict[str, Any] = {"neighbours": policy.neighbours, **(policy.bounds or {})}
    if not aggregate:
        stated |= {"privacy_unit": policy.privacy_unit, "max_rows_per_unit": policy.max_rows_per_unit}
    return stated


def _protection(plan: SisPlan) -> dict[str, Any]:
    """What the call protects, as the ledger's arguments."""
    unit = plan.layout.privacy_unit
    return {
        "neighbours": plan.neighbours,
        "privacy_unit": unit,
        "max_rows_per_unit": plan.max_rows_per_unit if unit is not None else None,
    }
