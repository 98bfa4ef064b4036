"""Audit a mechanism statistically: a lower bound on epsilon, with a given confidence, from outputs alone.

The audit releases two neighbouring tables many times. If some set of outputs has probability at least ``p`` on one
table and at most ``q`` on the other, then ``epsilon >= log((p - delta) / q)``. Two fifths of the outputs choose the
set; the others bound ``p`` and ``q`` by exact binomial (Clopper-Pearson) limits, so the bound holds whatever the choice
tried.

An audit can refute a claim; it cannot prove a claim. It says ``'passes'`` only if it saw a large part of the claimed
loss, so that a larger loss would have shown, and ``'cannot tell'`` otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.dataclass import dataclass
from dpsql.testing.views import View, default_views

Verdict = Literal["violates", "passes", "cannot tell"]
# Sets tried per view and direction; held-out outputs decide the choice among all of them.
_EVENTS_PER_VIEW = 3


@dataclass(frozen=True)
class AuditReport:
    """The findings of an audit.

    Attributes
    ----------
    epsilon : float
        The claim, > 0.
    delta : float
        The claim, in [0, 1).
    epsilon_lower : float
        Lower bound on the true epsilon, in [0, inf), true with probability `confidence`.
    epsilon_seen : float
        Plain estimate for the same event, in [0, inf]; no guarantee.
    confidence : float
        In (0, 1): the audit reports a violation by a correct mechanism with probability at most ``1 - confidence``.
    runs : int
        Releases per table.
    event : str
        The set of outputs that separates the tables, and the table that makes it likelier.
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
        """Count the event: on the table that makes it likelier, and on the other."""
        hits = [sum(self.view(outcome) in self.categories for outcome in side) for side in outcomes]
        return hits[self.likelier], hits[1 - self.likelier]

    def bound(self, outcomes: Sequence[Sequence[Any]], tail: float, delta: float) -> float:
        """Lower bound on epsilon from these outcomes; -inf if they give no bound."""
        hits, misses = self.counts(outcomes)
        return float(_bound(hits, misses, len(outcomes[0]), tail, delta))

    def promise(self, outcomes: Sequence[Sequence[Any]], runs: int, tail: float, delta: float) -> float:
        """Lower bound on epsilon from `runs` outcomes like these, with half an outcome more on either side."""
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
        ``release(table, count)`` returns `count` independent outputs of the mechanism, as many per call as is
        efficient. An output may be of any kind: numbers, strings, None, nested tuples.
    tables : tuple
        Two neighbouring tables, passed to `release` unchanged. Choose tables with a large loss: one audit covers one
        pair.
    epsilon, delta : float
        The claim.
    runs : int
        Releases per table, >= 10. Two fifths of them choose the event.
    confidence : float
        In (0, 1), for the whole audit: both directions and both limits share the error.
    power : float
        In (0, 1]: ``'passes'`` needs ``epsilon_lower >= power * epsilon``.
    views : sequence of (str, callable), optional
        Maps from output to category; `dpsql.testing.views.default_views` by default.

    Returns
    -------
    report : AuditReport

    Notes
    -----
    - **Validity**: one event per direction, fixed before the outputs that test it; four one-sided Clopper-Pearson
      limits at ``(1 - confidence) / 4`` each.
    - **Assumes**: outputs of different releases are independent and identically distributed. A release that replays its
      noise breaks this: run `check_fresh_draws` first.
    - **Does not protect**: untested tables, parameters and events.
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
        # One occurrence of a category proves nothing: the best sets at a strict and at a lax limit differ.
        lax = _bound(np.cumsum(mine[order]), np.cumsum(other[order]), len(columns[side]), 0.2, delta)
        ends = {int(np.argmax(bounds)), int(np.argmax(lax)), int(np.sum(mine[order] > 2 * other[order])) - 1}
        for end in sorted(ends)[:_EVENTS_PER_VIEW]:
            if 0 <= end < len(categories) - 1:
                chosen = frozenset(categories[index] for index in order[: end + 1])
                events.append(_Event(name, view, chosen, side))
    return events


def _bound(hits: Any, misses: Any, runs: int, tail: float, delta: float) -> NDArray[np.float64]:
    """Return the lower bound ``log((p - delta) / q)`` from Clopper-Pearson limits; -inf if there is no bound."""
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
        Number of events, in [0, runs]; a fraction lies between the limits of its neighbours.
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
