"""Quantiles against their exact law, bounds' counts against the noise; 0.7 and 1.3 times the noise must show.

False-alarm rate 1e-8 per case, rate of missing the wrong scale 1e-6; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.kernels.cells import COARSE_CELLS, FINE_CELLS, MagnitudeCounts, coarse_counts
from dpsql.mechanisms import bounds as module
from dpsql.mechanisms.bounds import gaussian_bounds
from dpsql.mechanisms.quantile import quantiles
from support.audits import judge
from support.laws.quantile import quantile_law

HALF, MOST = Fraction(1, 2), Fraction(3, 4)
COUNTS = [2, 3, 1, 2]
ROWS = [cell for cell, count in enumerate(COUNTS) for _ in range(count)]


@pytest.mark.parametrize(
    ("chosen", "epsilon", "neighbours", "rows"),
    [
        ([HALF], 2, "add_remove", 1),
        ([Fraction(9, 10)], 2, "add_remove", 1),
        ([MOST], 3, "replace", 1),
        ([HALF, MOST], 4, "add_remove", 1),
        ([HALF, MOST], 8, "replace", 1),
        ([Fraction(1, 4), HALF, Fraction(9, 10)], 8, "add_remove", 2),
    ],
)
def test_quantiles(chosen, epsilon, neighbours, rows):
    given = {"quantiles": chosen, "neighbours": neighbours, "max_rows_per_unit": rows}

    def sampler(at, runs):
        counts = np.array(COUNTS)
        return [tuple(quantiles(counts, epsilon=at, **given)) for _ in range(runs)]

    judge(sampler, lambda at: quantile_law(ROWS, len(COUNTS), epsilon=at, **given), Fraction(epsilon))


def noise_of(monkeypatch, draw, width):
    """Return the noise that a release of bounds added to the counts of `width` columns, coarse and fine apart."""
    magnitudes = MagnitudeCounts(width)
    magnitudes.add(np.random.default_rng(0).normal(size=(width, 500)))
    counts, noise = magnitudes.counts, []

    def record(fine, coarse, thresholds):
        noise.append((fine, coarse))
        return 0.0, 1.0

    monkeypatch.setattr(module, "interval_from_counts", record)
    draw(counts)
    return counts, noise


@pytest.mark.parametrize(("neighbours", "rows", "width"), [("add_remove", 1, 1), ("replace", 2, 3)])
def test_gaussian_noise_of_the_counts(monkeypatch, neighbours, rows, width):
    """Standard deviation ``m sqrt(2 width) / mu`` rows, ``m sqrt(4 width) / mu`` under replace; in eighths of it."""
    sensitivity = rows * math.sqrt(2 * width * (2 if neighbours == "replace" else 1))
    edges = np.arange(-48, 49) / 8

    def law_of(mu):
        """Share of each eighth of the right standard deviation; the noise has 1 / mu of it."""
        below = [0.5 * math.erfc(-edge * float(mu) / math.sqrt(2)) for edge in edges]
        shares = np.diff([0.0, *below, 1.0])
        return dict(enumerate(shares.tolist()))

    def sampler(mu, runs):
        found = []
        while len(found) < runs:
            counts, noise = noise_of(
                monkeypatch,
                lambda counts: gaussian_bounds(counts, mu=mu, neighbours=neighbours, max_rows_per_unit=rows),
                width,
            )
            for column, (fine, coarse) in zip(counts, noise, strict=True):
                unit = 2.0 ** math.ceil(30 - math.log2(sensitivity / float(mu)))  # 2**30 steps or more
                added = [coarse - coarse_counts(column) * unit, (fine - column * unit)[:COARSE_CELLS]]
                found += np.searchsorted(edges, np.concatenate(added) / unit / sensitivity).tolist()
        return found

    judge(sampler, law_of, Fraction(1))


def test_all_counts_have_their_own_noise(monkeypatch):
    """No two columns, and no coarse and fine count, share noise."""
    _, noise = noise_of(monkeypatch, lambda counts: gaussian_bounds(counts, mu=Fraction(1), neighbours="add_remove"), 4)
    every = np.concatenate([np.concatenate(pair) for pair in noise])
    assert len(every) == 4 * (COARSE_CELLS + FINE_CELLS)
    # 20 thousand draws of noise with a standard deviation of 3 million steps.
    assert len(np.unique(every)) > 0.99 * len(every)
