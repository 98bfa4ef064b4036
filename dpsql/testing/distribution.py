"""Test goodness of fit against an exact law, with a given false-alarm rate and a known power.

A test of a sampler is useful only if it can fail: `runs_needed` gives the number of samples that distinguish a law from
a wrong law (say, noise scaled by 0.7 or 1.3), and `fit` then accepts or rejects.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from dpsql.dataclass import dataclass

# Below this expected number of samples, the chi-square tail is unreliable at small false-alarm rates.
MINIMUM_EXPECTED = 10.0


@dataclass(frozen=True)
class Fit:
    """Result of a chi-square test.

    Attributes
    ----------
    statistic : float
        Pearson's chi-square, >= 0; inf if an outcome of probability 0 occurred.
    degrees : int
        Degrees of freedom: merged cells minus one.
    p_value : float
        Probability in [0, 1] of a statistic at least as large under the law.
    false_alarm : float
        Rejection rate of a correct sampler.
    runs : int
        Samples.
    """

    statistic: float
    degrees: int
    p_value: float
    false_alarm: float
    runs: int

    @property
    def accepted(self) -> bool:
        """Whether the samples are compatible with the law at the given false-alarm rate."""
        return self.p_value >= self.false_alarm


def fit(
    samples: Iterable[Hashable],
    law: Mapping[Any, float],
    *,
    false_alarm: float = 1e-6,
    minimum_expected: float = MINIMUM_EXPECTED,
) -> Fit:
    """Test whether samples follow an exact law on a countable set.

    Parameters
    ----------
    samples : iterable
        Independent outputs.
    law : mapping
        Output -> probability. If the law is truncated, the missing mass (if above 1e-12) is one further cell for every
        unlisted output; otherwise an unlisted output rejects at once.
    false_alarm : float
        In (0, 1).
    minimum_expected : float
        Cells with fewer expected samples are merged.

    Returns
    -------
    result : Fit

    Examples
    --------
    >>> fit(["a"] * 480 + ["b"] * 520, {"a": 0.5, "b": 0.5}).accepted
    True
    >>> fit(["a"] * 300 + ["b"] * 700, {"a": 0.5, "b": 0.5}).accepted
    False
    """
    from scipy.special import chdtrc

    counts = Counter(samples)
    runs = sum(counts.values())
    rest = 1.0 - math.fsum(law.values())
    unlisted = sum(count for output, count in counts.items() if law.get(output, 0.0) <= 0.0)
    cells = [(runs * probability, counts.get(output, 0)) for output, probability in law.items() if probability > 0.0]
    if rest > 1e-12:
        cells.append((runs * rest, unlisted))
    elif unlisted:
        return Fit(math.inf, max(0, len(cells) - 1), 0.0, false_alarm, runs)
    merged = _merge(cells, minimum_expected)
    statistic = math.fsum((seen - expected) ** 2 / expected for expected, seen in merged)
    degrees = len(merged) - 1
    p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    return Fit(statistic, degrees, p_value, false_alarm, runs)


def runs_needed(
    law: Mapping[Any, float],
    wrong: Mapping[Any, float],
    *,
    false_alarm: float = 1e-6,
    miss: float = 1e-6,
    minimum_expected: float = MINIMUM_EXPECTED,
) -> int:
    """Return the number of samples of `wrong` that lets `fit` reject `law`, except with probability `miss`.

    Parameters
    ----------
    law, wrong : mapping
        Output -> probability: the law of a correct sampler, and the law of a faulty sampler.
    false_alarm, miss : float
        Rates in (0, 1) of rejecting the correct sampler and of accepting the faulty sampler.
    minimum_expected : float
        As in `fit`.

    Returns
    -------
    runs : int
        Enough by the noncentral chi-square approximation, and at most 20 % too many.

    Raises
    ------
    ValueError
        If no number of samples up to 2**30 suffices.
    """
    from scipy.stats import chi2, ncx2

    runs = 64
    while runs <= 2**30:
        cells = [(runs * p, runs * wrong.get(output, 0.0)) for output, p in law.items() if p > 0.0]
        merged = _merge(cells, minimum_expected)
        noncentrality = math.fsum((seen - expected) ** 2 / expected for expected, seen in merged)
        if len(merged) > 1 and noncentrality > 0.0:
            critical = chi2.isf(false_alarm, len(merged) - 1)
            if ncx2.cdf(critical, len(merged) - 1, noncentrality) < miss:
                return runs
        runs += runs // 5
    raise ValueError("the two laws are too close to be told apart by sampling")


def _merge(cells: Iterable[tuple[float, float]], minimum: float) -> list[tuple[float, float]]:
    """Merge the cells with the fewest expected samples until every cell expects `minimum`."""
    merged: list[tuple[float, float]] = []
    expected = seen = 0.0
    for cell_expected, cell_seen in sorted(cells, key=lambda cell: cell[0]):
        expected, seen = expected + cell_expected, seen + cell_seen
        if expected >= minimum:
            merged.append((expected, seen))
            expected = seen = 0.0
    if expected:
        if merged:
            last = merged.pop()
            expected, seen = expected + last[0], seen + last[1]
        merged.append((expected, seen))
    return merged
