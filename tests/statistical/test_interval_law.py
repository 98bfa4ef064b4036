"""Private intervals against their exact law; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import interval_scan as module
from dpsql.mechanisms.interval_scan import IntervalNoise, interval_scan, noisy_counts, stop
from dpsql.noise.entropy import SYSTEM
from support.audits import judge
from support.cases import cases
from support.laws.interval import interval_law, scan_law
from support.laws.roc import discrete_laplace_law

FAILURE = Fraction(1, 100)
COUNTS = [3, 9, 1, 6, 4, 2]
ROWS = [cell for cell, count in enumerate(COUNTS) for _ in range(count)]


# The shares of epsilon of scans.
SCANS = {False: Fraction(3, 5), True: Fraction(31, 60)}


@cases(
    ("epsilon", "neighbours", "rows", "tails"),
    [(2, "add_remove", 1, False), (2, "add_remove", 1, True), (8, "replace", 2, False)],
    quick=1,
)
def test_scans(epsilon, neighbours, rows, tails):
    def sampler(at, runs):
        counts, noise = np.array(COUNTS), IntervalNoise(at, neighbours, rows, FAILURE, tails)
        return [stop(counts, noise, SYSTEM) for _ in range(runs)]

    def law_of(at):
        scale = Fraction(2 if neighbours == "add_remove" else 3) * rows / (SCANS[tails] * at)
        beyond = [sum(COUNTS[cell + 1 :]) for cell in range(len(COUNTS))]
        return scan_law(beyond, float(scale), math.ceil(2 * scale))

    judge(sampler, law_of, Fraction(epsilon))


@pytest.mark.long
def test_far_cells_stop_a_scan_sooner():
    """The second half of the cells is far from the start: nine scales of rows may be left there."""

    def sampler(at, runs):
        counts, noise = np.array(COUNTS), IntervalNoise(at, "add_remove", 1, FAILURE)
        return [stop(counts, noise, SYSTEM, 3) for _ in range(runs)]

    def law_of(at):
        scale = 2 / (Fraction(3, 5) * at)
        beyond = [sum(COUNTS[cell + 1 :]) for cell in range(len(COUNTS))]
        return scan_law(beyond, float(scale), [math.ceil((2 if cell < 3 else 9) * scale) for cell in range(6)])

    judge(sampler, law_of, Fraction(2))


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "neighbours", "rows"), [(8, "add_remove", 1), (20, "replace", 2)])
def test_start_and_scans(monkeypatch, epsilon, neighbours, rows):
    """The ends are seen whether or not the interval is found."""
    monkeypatch.setattr(IntervalNoise, "is_found", lambda *_: True)
    monkeypatch.setattr(module, "fine_interval", lambda first, last: (first, last))

    def sampler(at, runs):
        counts, noise = np.array(COUNTS), IntervalNoise(at, neighbours, rows, FAILURE)
        return [interval_scan(counts, noise).ends for _ in range(runs)]

    def law_of(at):
        law = {}
        given = {"epsilon": at, "neighbours": neighbours, "max_rows_per_unit": rows}
        for (_, first, last), chance in interval_law(ROWS, len(COUNTS), **given).items():
            law[first, last] = law.get((first, last), 0.0) + chance
        return law

    judge(sampler, law_of, Fraction(epsilon))


@cases(
    ("neighbours", "rows", "exact"),
    [("add_remove", 1, [7, 2]), ("add_remove", 1, [0, 2, 9, 40, 3, 1, 5]), ("replace", 3, [7, 2])],
    quick=1,
)
def test_counts(neighbours, rows, exact):
    def sampler(at, runs):
        noise, found = IntervalNoise(at, neighbours, rows, FAILURE, len(exact) > 2), []
        while len(found) < runs:
            found += [noisy - one for noisy, one in zip(noisy_counts(exact, noise, SYSTEM), exact, strict=True)]
        return found

    def law_of(at):
        scale = (2 if neighbours == "replace" else 1) * rows / (0.15 * float(at))
        return discrete_laplace_law(0, scale, reach=math.ceil(40 * scale))

    judge(sampler, law_of, Fraction(4))
