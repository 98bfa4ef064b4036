"""A statistical auditor: a lower bound on epsilon, with a stated confidence, from outputs alone.

Two neighbouring tables are released many times. If some set of outputs has probability at least
``p`` on one and at most ``q`` on the other, then ``epsilon >= log((p - delta) / q)``. Which set to
look at is chosen on two fifths of the outputs, ``p`` and ``q`` are bounded on the others by exact
binomial (Clopper-Pearson) limits, so the bound holds whatever was tried while choosing.

An audit can refute a claim; it cannot prove one. It says ``'passes'`` only when it saw a good part of
the claimed loss, so that a larger one would have shown, and ``'cannot tell'`` otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.testing.views import View, default_views

Verdict = Literal["violates", "passes", "cannot tell"]
# Sets tried per view and direction; the choice among all of them is made on held-out outputs.
_EVENTS_PER_VIEW = 3


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes
    ----------
    epsilon : float
        The claim, > 0.
    delta : float
        The claim, in [0, 1).
    epsilon_lower : float
        Lower bound on the true epsilon, in [0, inf), which holds with probability `confidence`.
    epsilon_seen : float
        Plain estimate for the same event, in [0, inf]; no guarantee.
    confidence : float
        In (0, 1): a mechanism that keeps its claim is said to violate it with probability at most
        ``1 - confidence``.
    runs : int
        Releases per table.
    event : str
        The set of outputs that separates the tables, and the table on which it is likelier.
    verdict : {'violates', 'passes', 'cannot tell'}
        ``'passes'``: no violation, and the audit resolved the stated part of the claimed loss.
        ``'cannot tell'``: no violation, but a large one might have gone unseen.
    """

    epsilon: float
    delta: float
    epsilon_lower: float
    epsilon_seen: float
    confidence: float
    runs: int
    event: str
    verdict: Verdict

    def __str__(self) -> str:
        return (
            f"{self.verdict}: epsilon >= {self.epsilon_lower:.3f} with confidence {self.confidence} "
            f"(seen {self.epsilon_seen:.3f}), claimed {self.epsilon:g}, from {self.runs} releases per table; "
            f"{self.event}"
        )


@dataclass(frozen=True)
class _Event:
    name: str
    view: View
    categories: frozenset[Hashable]
    likelier: int

    def counts(self, outcomes: Sequence[Sequence[Any]]) -> tuple[int, int]:
        """How often the event happened: on the table where it is likelier, and on the other."""
        hits = [sum(self.view(outcome) in self.categories for outcome in side) for side in outcomes]
        return hits[self.likelier], hits[1 - self.likelier]

    def bound(self, outcomes: Sequence[Sequence[Any]], tail: float, delta: float) -> float:
        """Lower bound on epsilon from these outcomes; -inf when they give none."""
        hits, misses = self.counts(outcomes)
        return float(_bound(hits, misses, len(outcomes[0]), tail, delta))

    def promise(self, outcomes: Sequence[Sequence[Any]], runs: int, tail: float, delta: float) -> float:
        """Lower bound on epsilon that so many outcomes like these would give, with half a one more on either side."""
        hits, misses = (runs * (count + 0.5) / (len(outcomes[0]) + 1) for count in self.counts(outcomes))
        return float(_bound(hits, misses, runs, tail, delta))

    def __str__(self) -> str:
        texts = sorted(map(repr, self.categories))
        listed = ", ".join(texts[:4]) + (f", ... ({len(texts)} in all)" if len(texts) > 4 else "")
        return f"{self.name} in {{{listed}}} is likelier on table {self.likelier}"


def audit(
    release: Callable[[Any, int], Collection[Any]],
    tables: tuple[Any, Any],
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    runs: int = 4000,
    confidence: float = 0.9999,
    power: float = 0.5,
    views: Sequence[tuple[str, View]] | None = None,
) -> AuditReport:
    """Bound epsilon from below by releasing two neighbouring tables many times.

    Parameters
    ----------
    release : callable
        ``release(table, count)`` returns `count` independent outputs of the mechanism, as many per
        call as is efficient. Any output will do: numbers, texts, None, nested tuples.
    tables : tuple
        Two neighbouring tables, handed to `release` as they are. Choose them so that the loss is
        large: one audit speaks about one pair.
    epsilon, delta : float
        The claim.
    runs : int
        Releases per table, >= 10. Two fifths of them choose the event.
    confidence : float
        In (0, 1), for the whole audit: both directions and both limits share the error.
    power : float
        In (0, 1]: ``'passes'`` needs ``epsilon_lower >= power * epsilon``.
    views : sequence of (str, callable), optional
        What to look at, output -> category; `dpsql.testing.views.default_views` by default.

    Returns
    -------
    report : AuditReport

    Notes
    -----
    - **Validity**: one event per direction, fixed before the outputs that judge it; four one-sided
      Clopper-Pearson limits at ``(1 - confidence) / 4`` each.
    - **Assumes**: outputs of different releases are independent and identically distributed. A
      release that replays its noise breaks this: look for it with `check_fresh_draws` first.
    - **Does not protect**: tables, parameters and events that were not tried.
    """
    if not (runs >= 10 and 0.0 < confidence < 1.0 and epsilon > 0):
        raise ValueError("runs must be >= 10, confidence in (0, 1) and epsilon > 0")
    outcomes = [list(release(table, runs)) for table in tables]
    if any(len(side) != runs for side in outcomes):
        raise ValueError("release(table, count) must return count outputs")
    first, second = runs // 5, 2 * runs // 5
    train = [side[:first] for side in outcomes]
    choose = [side[first:second] for side in outcomes]
    test = [side[second:] for side in outcomes]
    tail = (1.0 - confidence) / 4.0
    pairs = views if views is not None else default_views([*train[0], *train[1]])
    events = [event for name, view in pairs for event in _candidates(name, view, train, tail, delta)]
    bound, seen, text = 0.0, 0.0, "no event separates the tables"
    for side in (0, 1):
        mine = [event for event in events if event.likelier == side]
        if not mine:
            continue
        best = max(mine, key=lambda event: event.promise(choose, len(test[0]), tail, delta))
        hits, misses = best.counts(test)
        limit = best.bound(test, tail, delta)
        if limit > bound or side == 0:
            bound, text = max(limit, 0.0), str(best)
            seen = max(0.0, math.log(hits / misses)) if hits and misses else math.inf if hits else 0.0
    claim = float(epsilon)
    verdict: Verdict = "violates" if bound > claim else "passes" if bound >= power * claim else "cannot tell"
    return AuditReport(claim, delta, bound, seen, confidence, runs, text, verdict)


def _candidates(name: str, view: View, train: Sequence[Sequence[Any]], tail: float, delta: float) -> list[_Event]:
    """Return sets of categories with large likelihood ratio, in both directions."""
    numbers: dict[Hashable, int] = {}
    columns = [[numbers.setdefault(view(outcome), len(numbers)) for outcome in side] for side in train]
    if len(numbers) < 2:
        return []
    counts = np.array([np.bincount(column, minlength=len(numbers)) for column in columns])
    categories = list(numbers)
    events = []
    for side in (0, 1):
        mine, other = counts[side], counts[1 - side]
        order = np.argsort(-(mine + 0.5) / (other + 0.5), kind="stable")
        bounds = _bound(np.cumsum(mine[order]), np.cumsum(other[order]), len(columns[side]), tail, delta)
        # A category seen once proves nothing: the best sets at a strict and at a lax limit differ.
        lax = _bound(np.cumsum(mine[order]), np.cumsum(other[order]), len(columns[side]), 0.2, delta)
        ends = {int(np.argmax(bounds)), int(np.argmax(lax)), int(np.sum(mine[order] > 2 * other[order])) - 1}
        for end in sorted(ends)[:_EVENTS_PER_VIEW]:
            if 0 <= end < len(categories) - 1:
                chosen = frozenset(categories[index] for index in order[: end + 1])
                events.append(_Event(name, view, chosen, side))
    return events


def _bound(hits: Any, misses: Any, runs: int, tail: float, delta: float) -> NDArray[np.float64]:
    """Return the lower bound ``log((p - delta) / q)`` from Clopper-Pearson limits; -inf when there is none."""
    lower, _ = binomial_limits(hits, runs, tail)
    _, upper = binomial_limits(misses, runs, tail)
    with np.errstate(divide="ignore"):
        bound: NDArray[np.float64] = np.log(np.maximum(lower - delta, 0.0)) - np.log(upper)
    return bound


def binomial_limits(hits: Any, runs: int, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return exact (Clopper-Pearson) limits of a probability.

    Parameters
    ----------
    hits : float or ndarray
        How often the event happened, in [0, runs]; a fraction lies between the limits of its neighbours.
    runs : int
        Independent trials.
    tail : float
        Error in (0, 1) of either limit.

    Returns
    -------
    lower, upper : ndarray of float64
        In [0, 1]; each one-sided with confidence ``1 - tail``.
    """
    from scipy.special import betaincinv

    count = np.asarray(hits, dtype=np.float64)
    # betaincinv(0, ...) is undefined: the limits at 0 and at `runs` hits are 0 and 1.
    some, few = np.maximum(count, 1.0), np.minimum(count, runs - 1.0)
    lower = np.where(count > 0, betaincinv(some, runs - some + 1.0, tail), 0.0)
    upper = np.where(count < runs, betaincinv(few + 1.0, runs - few, 1.0 - tail), 1.0)
    return lower, upper
