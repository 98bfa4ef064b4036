"""Runners of audits, and of tests of output laws."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import dpsql
from dpsql.testing.distribution import fit, runs_needed

# Chances of a wrong verdict: that a right sampler is rejected, and that a wrong one passes.
FALSE_ALARM, MISS = 1e-8, 1e-8
# Noise that is this many times as wide as it should be must be noticed.
WRONG = (Fraction(7, 10), Fraction(13, 10))


def connecting(opened: list[Any], *prepare: Callable[[Any], object]) -> Callable[[], Any]:
    """Return how an audit connects: anew each time, noted in `opened` to be closed, with more installed if given."""

    def connect() -> Any:
        opened.append(dpsql.connect())
        opened[-1].execute("SET threads = 1")  # several would draw in any order
        for install in prepare:
            install(opened[-1])
        return opened[-1]

    return connect


def judge(
    sampler: Callable[[Any, int], Sequence[Hashable]],
    law_of: Callable[[Any], Mapping[Any, float]],
    epsilon: Any,
    *,
    runs: int = 0,
) -> None:
    """Accept the sampler at `epsilon`; reject it where its noise is 0.7 or 1.3 times as wide. At least `runs` draws."""
    law = law_of(epsilon)
    for factor in WRONG:
        needed = runs_needed(law, law_of(epsilon / factor), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(epsilon / factor, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(sampler(epsilon, runs), law, false_alarm=FALSE_ALARM).accepted
