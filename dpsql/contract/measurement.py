"""Measurements: what a call spends and what it draws, as one object, so that the two cannot differ.

A plan builds one `Measurement` from its public arguments. It consists of parts. Each part is one mechanism with its
share of the loss: it has the `event` that the ledger records, and only the part samples that mechanism. A part samples
only under a `Permit` of its measurement, and only as often as its event says.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from dpsql.contract.cost import Cost
from dpsql.contract.events import Event, composed
from dpsql.contract.json import Json
from dpsql.errors import InternalError

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")
P = TypeVar("P", bound="Part")
Planned = TypeVar("Planned", bound="Measured")
# The permit under which this thread samples.
_current: ContextVar[Permit | None] = ContextVar("dpsql_permit", default=None)


@dataclass(frozen=True)
class Part(ABC):
    """One mechanism with its share of the loss.

    Attributes
    ----------
    name : str
        Its role in its measurement.

    Notes
    -----
    Equal parts are the same mechanism at the same cost. Every method that samples is decorated with `sampled`.
    """

    name: str

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event that the ledger records."""

    def draws(self, share: str) -> int:
        """Return how often the part may be sampled for one of its shares; most parts have a single, unnamed share."""
        return 0 if share else 1

    def covers(self, other: Part) -> bool:
        """Whether `other` is this part, or the same part at no higher cost because less of it was needed."""
        return self == other


def sampled(draw: Callable[Concatenate[P, Given], Drawn]) -> Callable[Concatenate[P, Given], Drawn]:
    """Decorate a method of a part that samples: each call needs a permit, and uses up one of its draws."""

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
        I034: no running call is charged for the part, or it was already sampled.
    """
    permit = _current.get()
    if permit is None:
        raise InternalError("I034", f"{part.name} was to be drawn without a charge. Report it.")
    permit.take(part, share)


def exchange(before: Measurement, after: Measurement) -> None:
    """Let the running call sample other parts in place of some of its measurement; see `Permit.exchange`."""
    permit = _current.get()
    if permit is None:
        raise InternalError("I034", "parts were to be drawn without a charge. Report it.")
    permit.exchange(before, after)


@dataclass(frozen=True)
class Measurement:
    """Everything that a call may sample, in the order in which the ledger records it.

    Attributes
    ----------
    parts : tuple of Part or Measurement
        At least one; a nested measurement is recorded as one event.
    """

    parts: tuple[Part | Measurement, ...]

    @cached_property
    def event(self) -> Event:
        """The event that the ledger records."""
        return composed([part.event for part in self.parts])

    @cached_property
    def leaves(self) -> tuple[Part, ...]:
        """The parts of this measurement and of all nested ones."""
        leaves: list[Part] = []
        for part in self.parts:
            leaves.extend(part.leaves if isinstance(part, Measurement) else (part,))
        return tuple(leaves)

    def __getitem__(self, name: str) -> Any:
        """Return the part with this name."""
        return {part.name: part for part in self.parts if isinstance(part, Part)}[name]

    def only(self, *names: str) -> Measurement:
        """Return the measurement of the named parts alone."""
        return Measurement(tuple(part for part in self.parts if isinstance(part, Part) and part.name in names))


@dataclass(frozen=True)
class Within(Measurement):
    """Parts in place of which others may be sampled that are within the same loss; see `exchange`.

    Attributes
    ----------
    bound : Event
        What the ledger records: the parts cost no more than it, each epsilon and delta added up. It is one event with
        an (epsilon, delta) and no privacy profile, so each accountant charges it as any release of that loss.

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
    """A draw that costs less than planned, because an earlier draw showed that the rest is useless.

    Attributes
    ----------
    measurement : Measurement
        What was spent, in parts of the plan's measurement.
    run : callable
        Returns the result as JSON values.
    """

    measurement: Measurement
    run: Callable[[], Json]


class Permit:
    """The right of one call to sample its measurement, each part as often as its event says.

    A call gets its permit at the gate. Passes over the rows may sample before the ledger's transaction, because a later
    pass needs their draws. Any failure from then on is charged for the whole measurement. All other draws are made
    while the charge is written. So nothing is sampled without being charged. Where draws leave the process before that
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
        """The event that is charged."""
        return self._measurement.event if self._reserved is None else self._reserved

    def reserve(self) -> Event:
        """Return the event of the whole measurement, which stays what is charged however the call ends."""
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
        """Use up one permitted draw of a part; raise I034 if none is left."""
        with self._lock:
            allowed = sum(leaf.draws(share) for leaf in self._measurement.leaves if leaf == part)
            if not self._samples[part, share] < allowed:
                what = "was to be drawn again" if allowed else "is no part of what is charged"
                raise InternalError("I034", f"{part.name} {what}. Report it.")
            self._samples[part, share] += 1

    def exchange(self, before: Measurement, after: Measurement) -> None:
        """Let a call sample other parts in place of some of its measurement, which cost exactly as much.

        Raises
        ------
        InternalError
            I034: the measurement has no such part, or one of it was sampled, or the other parts cost something else.
        """
        with self._lock:
            parts = list(self._measurement.parts)
            is_sampled = any(part == leaf for part, _ in self._samples for leaf in before.leaves)
            if before not in parts or before.event != after.event or is_sampled:
                raise InternalError("I034", "parts were to be drawn in place of others. Report it.")
            parts[parts.index(before)] = after
            self._measurement = Measurement(tuple(parts))

    def reduce(self, measurement: Measurement) -> None:
        """Charge less: for some parts only, or for cheaper parts. The rest can no longer be sampled.

        A reserved measurement was charged already, so that nothing becomes cheaper.

        What a call spends may follow from its own output. Basic composition adds up epsilons and deltas of stages, each
        fixed before the stage is sampled: a stage may be left out, or lose its delta, because of outputs of earlier
        stages. A part with a privacy profile is one stage, whose epsilon and delta are one point of the profile of all
        its releases. So the part keeps both, whatever is left out of it. Its rho falls, since Rényi losses of releases
        add up for every order, and each account charges the losses that it adds up (`Spent`, `Composition`).

        Raises
        ------
        InternalError
            I034: the measurement holds a part that the call may not sample, lacks one that was already sampled, or
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
    """Return whether a cheaper part is charged as a stage that was fixed before it was sampled; see `Permit.reduce`."""
    has_profile = any(mechanism.is_profile for mechanism in (*planned.mechanisms, *spent.mechanisms))
    fixed = spent.delta == planned.delta or (spent.delta == 0 and not has_profile)
    return fixed and spent.epsilon == planned.epsilon


class Measured(Protocol):
    """A plan."""

    @property
    def measurement(self) -> Measurement:
        """What the plan samples."""


def draw_once(
    draw: Callable[Concatenate[Planned, Given], Drawn], plan: Planned, *arguments: Given.args, **keywords: Given.kwargs
) -> Drawn:
    """Draw once from a plan's measurement without a ledger. This is for studies and tests of laws, never for calls.

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
    """Return how often a share may be sampled if each name allows one draw: for `Part.draws`."""
    return list(names).count(share)


NOTHING = Measurement(())
