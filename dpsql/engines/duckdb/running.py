"""A call between its gate and its release, and what it says to the ledger."""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.measurement import NOTHING, Permit
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.collecting import Collecting
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.query import QueryPlan
from dpsql.functions.registry import function_of
from dpsql.ledger.ledger import Entry

# What was summed in SQL, or the collector of the last pass.
Statistic: TypeAlias = NDArray[np.int64] | NDArray[np.object_] | Collector
_Call = TypeVar("_Call", bound=Call)
Result = TypeVar("Result")


@dataclass
class RunningCall:
    """A call between its gate and its release."""

    call: Call
    function: str
    number: int
    collecting: Collecting | None
    charged: bool = False
    entry: Entry | None = None
    reservation: int | None = None  # the entry that charged it before its first draw
    batches: int = 0
    passed: int = 0  # completed passes over the rows
    center: int | None = None  # the private mean of the target, once it is drawn
    # Two keys, both new in every call: of the choice of a row's private names, and of the hash that samples rows and
    # privacy units, and sorts them into blocks. All passes of the call agree on them.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    sampling_key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    touched: float = field(default_factory=time.monotonic)
    permit: Permit = field(default_factory=lambda: Permit(NOTHING))  # to sample what will be charged
    # Of a part of a query: the query, which is charged; and of a query the tickets of its parts.
    whole: RunningCall | None = None
    parts: tuple[int, ...] = ()
    limit: int | None = None  # rows of a unit that count, once they were drawn
    lock: threading.Lock = field(default_factory=threading.Lock)
    turning: threading.Lock = field(default_factory=threading.Lock)
    charging: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

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

    def learn_bounds(self, call: Call) -> None:
        """Go on with a call that knows bounds which another part has drawn; it costs what it cost before."""
        if call.plan is not self.call.plan:
            raise InternalError("I034", "bounds were to change what is charged. Report it.")
        self.learn(call)

    def limit_rows(self, call: Call, most: int) -> None:
        """Go on, once, with a call whose units have as many rows as were drawn; it costs what it cost before."""
        with self.turning:
            if self.limit is None and self.batches == 0 and self.passed == 0:
                self.permit.exchange(self.call.plan.measurement, call.plan.measurement)
                collector = call.start()
                self.call, self.collecting = call, None if collector is None else Collecting(collector)
                self.limit = most

    def call_as(self, kind: type[_Call]) -> _Call:
        """Return the call as one of a function's own kind."""
        if not isinstance(self.call, kind):
            raise TypeError("the ticket is of another function")
        return self.call

    def complete(self, numbers: pa.Array) -> Collector:
        """Return the collector of a pass after checking that the pass reported each of its batches exactly once."""
        came = [] if numbers.values is None else numbers.values.to_pylist()
        if self.collecting is None or sorted(came) != list(range(1, self.batches + 1)):
            raise InternalError("I005", "DuckDB did not read each batch of rows exactly once. Report it.")
        return self.collecting.whole()


class Calls(ABC):
    """The running calls, which SQL functions find by their tickets."""

    @abstractmethod
    def running(self, ticket: int, *, private: bool | None = None) -> RunningCall:
        """Return the call that a ticket stands for.

        Parameters
        ----------
        ticket : int
        private : bool, optional
            Refuse the ticket of a call that is not private (True), or that is (False).
        """

    @abstractmethod
    def guarded(self, ticket: int, work: Callable[[RunningCall], Result], *, private: bool | None = None) -> Result:
        """Run a part of a call that reads rows; what it raises says nothing about them."""


class Protection(TypedDict):
    """What a call protects, as attributes of a `Charge`."""

    neighbours: str
    privacy_unit: str | None
    max_rows_per_unit: int | None


def resolved(plan: Plan, function: str, probe: pa.StructType, types: Sequence[str]) -> Call:
    """Return the call of a plan, from the types of its columns by their names in a statement.

    Parameters
    ----------
    plan : Plan
    function : str
    probe : pyarrow struct type
    types : sequence of str
        SQL types of the columns that the call groups by.
    """
    kinds = {field.name: field.type for field in probe}
    parts = {
        "privacy_unit": "dpsql_unit",
        "row_id": "dpsql_row_id",
        "features": "dpsql_feature",
        "value": "dpsql_value",
        "condition": "dpsql_condition",
        "date": "dpsql_date",
    }
    others = {part: kinds[name] for part, name in parts.items() if name in kinds}
    return function_of(function).call.resolve(plan, kinds["dpsql_row"], others, types)


def may_be_long(plan: Plan) -> bool:
    """Whether a call may take more than a few seconds beside reading its rows once, as its function says.

    Counts, sums, averages, histograms and queries do not; selections, regressions and classifiers compute for long
    after they have read rows, and what asks for several passes reads them as often.
    """
    return plan.readings > 1 or not isinstance(plan, GroupedPlan | QueryPlan)


def protection(plan: Plan) -> Protection:
    """Return what the call protects, as attributes of a `Charge`."""
    unit = plan.layout.privacy_unit
    return {
        "neighbours": plan.neighbours,
        "privacy_unit": unit,
        "max_rows_per_unit": plan.told_rows if unit is not None else None,
    }


def row_text(plan: Plan) -> str:
    """Return what counts as one row: in the long layout, all rows of one row id."""
    return f"all rows of one {plan.layout.row_id}" if plan.layout.kind == "long" else "one row"
