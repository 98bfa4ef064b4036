"""A call between its gate and its release, and what it says to the ledger."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.measurement import NOTHING, Permit
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.collecting import Collecting
from dpsql.functions.registry import function_of
from dpsql.ledger.ledger import Entry

# What was summed in SQL, or the collector of the last pass.
Statistic: TypeAlias = NDArray[np.int64] | NDArray[np.object_] | Collector
_Call = TypeVar("_Call", bound=Call)


@dataclass
class RunningCall:
    """A call between its gate and its release."""

    call: Call
    function: str
    number: int
    collecting: Collecting | None
    charged: bool = False
    entry: Entry | None = None
    batches: int = 0
    passed: int = 0  # completed passes over the rows
    center: int | None = None  # the private mean of the target, once it is drawn
    # Keys the sample of the features of a row; new in every call.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    touched: float = field(default_factory=time.monotonic)
    permit: Permit = field(default_factory=lambda: Permit(NOTHING))  # to sample what will be charged
    lock: threading.Lock = field(default_factory=threading.Lock)
    turning: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spends(self) -> bool:
        """Whether the call is charged, as the registry of functions says."""
        return function_of(self.function).spends

    @property
    def is_idle(self) -> bool:
        """Whether no thread is at work on it."""
        return not (self.lock.locked() or self.turning.locked())

    def learn(self, call: Call) -> None:
        """Go on with a call that knows more of its public arguments; no row was read before."""
        with self.turning:
            if self.batches == 0 and self.passed == 0:
                collector = call.start()
                self.call, self.collecting = call, None if collector is None else Collecting(collector)

    def call_as(self, kind: type[_Call]) -> _Call:
        """Return the call as one of a function's own kind."""
        if not isinstance(self.call, kind):
            raise TypeError("the ticket is of another function")
        return self.call


class Protection(TypedDict):
    """What a call protects, as arguments of `Ledger.charge`."""

    neighbours: str
    privacy_unit: str | None
    max_rows_per_unit: int | None


def protection(plan: Plan) -> Protection:
    """Return what the call protects, as the ledger's arguments."""
    unit = plan.layout.privacy_unit
    return {
        "neighbours": plan.neighbours,
        "privacy_unit": unit,
        "max_rows_per_unit": plan.max_rows_per_unit if unit is not None else None,
    }


def row_text(plan: Plan) -> str:
    """Return what counts as one row: in the long layout, all rows of one row id."""
    return f"all rows of one {plan.layout.row_id}" if plan.layout.kind == "long" else "one row"
