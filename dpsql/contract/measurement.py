"""Measurements: the spending and the draws of a call in one object, so that the two cannot differ.

A plan builds one `Measurement` of parts from its public arguments. Each part is one mechanism with its share of the
loss: it has the `event` that the ledger records, and only the part samples that mechanism. A part samples only under a
`Permit` of its measurement, and only as often as its event allows.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from dpsql.contract.events import Cost, Event, composed
from dpsql.contract.json import Json
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")
P = TypeVar("P", bound="Part")
Planned = TypeVar("Planned", bound="Measured")
# The permit of this thread's sampling.
_current: ContextVar[Permit | None] = ContextVar("dpsql_permit", default=None)


@dataclass(frozen=True)
class Part(ABC):
    """One mechanism with its share of the loss.

    Attributes
    ----------
    name : str
        Role of the part in its measurement.

    Notes
    -----
    Equal parts are the same mechanism at the same cost. The decorator `sampled` marks every method that samples.
    """

    name: str

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event that the ledger records."""

    def draws(self, share: str) -> int:
        """Return the allowed draws of the part for one of its shares; most parts have a single, unnamed share."""
        return 0 if share else 1

    def covers(self, other: Part) -> bool:
        """Return whether `other` is this part, or a smaller use of it at no higher cost."""
        return self == other


def sampled(draw: Callable[Concatenate[P, Given], Drawn]) -> Callable[Concatenate[P, Given], Drawn]:
    """Decorate a sampling method of a part: each call needs a permit, and uses up one of its draws."""

    @wraps(draw)
    def permitted(part: P, /, *arguments: Given.args, **keywords: Given.kwargs) -> Drawn:
        take(part)
        return draw(part, *arguments, **keywords)

    return permitted


def take(part: Part, share: str = "") -> None:
    """Use up one permitted draw of a part.

    Raises
    ------
    InternalError
        I034: no running call pays for the part, or the part already sampled.
    """
    permit = _current.get()
    if permit is None:
        raise InternalError("I034", f"{part.name} was to be drawn without a charge. Report it.")
    permit.take(part, share)


def exchange(before: Measurement, after: Measurement) -> None:
    """Let the running call sample other parts instead of parts of its measurement; see `Permit.exchange`."""
    permit = _current.get()
    if permit is None:
        raise InternalError("I034", "parts were to be drawn without a charge. Report it.")
    permit.exchange(before, after)


@dataclass(frozen=True)
class Measurement:
    """All samples that a call may draw, in the order of the ledger's record.

    Attributes
    ----------
    parts : tuple of Part or Measurement
        At least one; the ledger records a nested measurement as one event.
    """

    parts: tuple[Part | Measurement, ...]

    @cached_property
    def event(self) -> Event:
        """The event that the ledger records."""
        return composed([part.event for part in self.parts])

    @cached_property
    def leaves(self) -> tuple[Part, ...]:
        """The parts of this measurement and of all nested measurements."""
        leaves: list[Part] = []
        for part in self.parts:
            leaves.extend(part.leaves if isinstance(part, Measurement) else (part,))
        return tuple(leaves)

    def __getitem__(self, name: str) -> Any:
        """Return the part with this name."""
        return {part.name: part for part in self.parts if isinstance(part, Part)}[name]

    def only(self, *names: str) -> Measurement:
        """Return the measurement of only the named parts."""
        return Measurement(tuple(part for part in self.parts if isinstance(part, Part) and part.name in names))


@dataclass(frozen=True)
class Within(Measurement):
    """Parts that a call may replace by others within the same loss; see `exchange`.

    Attributes
    ----------
    bound : Event
        The event that the ledger records: the sums of the parts' epsilons and deltas do not exceed it. It is one event
        with an (epsilon, delta) and no privacy profile, so each accountant charges it as any release of that loss.

    Raises
    ------
    InternalError
        I034: the parts cost more, or the bound has a privacy profile.
    """

    bound: Event

    def __post_init__(self) -> None:
        most, cost = self.bound.cost, composed([part.event for part in self.parts]).cost
        if most.parts or most.is_profile or most.epsilon is None:
            raise InternalError("I034", "a bound of several parts is no loss with an epsilon and a delta. Report it.")
        if cost.epsilon is None or cost.epsilon > most.epsilon or cost.delta > most.delta:
            raise InternalError("I034", "parts cost more than what is charged. Report it.")

    @cached_property
    def event(self) -> Event:
        """The event that the ledger records."""
        return self.bound


@dataclass(frozen=True)
class Draw:
    """A draw at less than the planned cost, because an earlier draw showed that the rest is useless.

    Attributes
    ----------
    measurement : Measurement
        The spending, in parts of the plan's measurement.
    run : callable
        Returns the result as JSON values.
    """

    measurement: Measurement
    run: Callable[[], Json]


class Permit:
    """The right of one call to sample its measurement, each part as often as its event allows.

    A call gets its permit at the gate. Passes over the rows may sample before the ledger's transaction, because a later
    pass needs their draws. Any failure from then on is charged for the whole measurement. All other draws happen while
    the ledger writes the charge. So nothing is sampled without a charge. If draws leave the process before that
    transaction, the ledger charges the whole measurement first (`reserve`).

    Parameters
    ----------
    measurement : Measurement
        A call that is not private has a measurement without parts, and may sample nothing.
    """

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement
        self._reserved: Event | None = None
        self._samples: Counter[tuple[Part, str]] = Counter()
        self._lock = threading.Lock()

    @property
    def event(self) -> Event:
        """The event of the charge."""
        return self._measurement.event if self._reserved is None else self._reserved

    def reserve(self) -> Event:
        """Return the event of the whole measurement, and fix it as the charge for any end of the call."""
        with self._lock:
            self._reserved = self.event
        return self._reserved

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let this thread sample."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def take(self, part: Part, share: str) -> None:
        """Use up one permitted draw of a part; raise I034 if no draw remains."""
        with self._lock:
            allowed = sum(leaf.draws(share) for leaf in self._measurement.leaves if leaf == part)
            if not self._samples[part, share] < allowed:
                what = "was to be drawn again" if allowed else "is no part of what is charged"
                raise InternalError("I034", f"{part.name} {what}. Report it.")
            self._samples[part, share] += 1

    def exchange(self, before: Measurement, after: Measurement) -> None:
        """Let a call sample other parts instead of parts of its measurement, at exactly the same cost.

        Raises
        ------
        InternalError
            I034: the measurement has no such part, a replaced part already sampled, or the costs differ.
        """
        with self._lock:
            parts = list(self._measurement.parts)
            is_sampled = any(part == leaf for part, _ in self._samples for leaf in before.leaves)
            if before not in parts or before.event != after.event or is_sampled:
                raise InternalError("I034", "parts were to be drawn in place of others. Report it.")
            parts[parts.index(before)] = after
            self._measurement = Measurement(tuple(parts))

    def reduce(self, measurement: Measurement) -> None:
        """Charge less: for some parts only, or for cheaper parts. The other parts can no longer sample.

        The ledger has already charged a reserved measurement, so it becomes no cheaper.

        A call's spending may depend on its own output. Basic composition adds up epsilons and deltas of stages, each
        fixed before the stage samples: outputs of earlier stages may leave a stage out, or remove its delta. A part
        with a privacy profile is one stage, whose epsilon and delta are one point of the profile of all its releases.
        So the part keeps both, even if it leaves releases out. Its rho falls, since Rényi losses of releases add up for
        every order, and each account charges the losses that it adds up (`Spent`, `Composition`).

        Raises
        ------
        InternalError
            I034: the measurement holds a part that the call may not sample, lacks a part that already sampled, or
            has another epsilon or delta of a part with a privacy profile.
        """
        with self._lock:
            rest = list(self._measurement.leaves)
            for part in measurement.leaves:
                planned = next((leaf for leaf in rest if leaf.covers(part)), None)
                if planned is None:
                    raise InternalError("I034", f"{part.name} is no part of what the call spends. Report it.")
                if not _keeps_its_point(planned.event.cost, part.event.cost):
                    raise InternalError("I034", f"the epsilon of {part.name} follows from its own output. Report it.")
                rest.remove(planned)
            for (part, share), times in self._samples.items():
                if times > sum(leaf.draws(share) for leaf in measurement.leaves if part.covers(leaf)):
                    raise InternalError("I034", f"{part.name} was drawn and would not be charged. Report it.")
            self._measurement = measurement


def _keeps_its_point(planned: Cost, spent: Cost) -> bool:
    """Return whether the charge of a cheaper part was fixed before it sampled; see `Permit.reduce`."""
    has_profile = any(mechanism.is_profile for mechanism in (*planned.mechanisms, *spent.mechanisms))
    fixed = spent.delta == planned.delta or (spent.delta == 0 and not has_profile)
    return fixed and spent.epsilon == planned.epsilon


class Measured(Protocol):
    """A plan."""

    @property
    def measurement(self) -> Measurement:
        """The measurement of the plan."""


def draw_once(
    draw: Callable[Concatenate[Planned, Given], Drawn], plan: Planned, *arguments: Given.args, **keywords: Given.kwargs
) -> Drawn:
    """Draw once from a plan's measurement without a ledger: only for studies and tests of laws, never for calls.

    Parameters
    ----------
    draw : callable
        A function whose first argument is the plan, such as `dpsql.functions.sis.draw_selection`.
    plan : Plan
    *arguments, **keywords
        The other arguments of `draw`.
    """
    with Permit(plan.measurement).drawing():
        return draw(plan, *arguments, **keywords)


def measurement_of(*parts: Part | Measurement) -> Measurement:
    """Return the measurement of some parts, in order."""
    return Measurement(parts)


def one_of(names: Sequence[str], share: str) -> int:
    """Return the number of allowed draws of a share if each name allows one draw: for `Part.draws`."""
    return list(names).count(share)


NOTHING = Measurement(())
