"""Quantiles against their exact law, bounds' counts against the noise; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.kernels.cells import FINE_CELLS, MagnitudeCounts
from dpsql.mechanisms import prefix_bounds as module
from dpsql.mechanisms.prefix_bounds import PrefixMatrix, prefix_bounds
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


def noise_of(monkeypatch, mu, neighbours, rows, width):
    """Return the noise that bounds of `width` columns add to the products of the counts, in rows, by column."""
    magnitudes = MagnitudeCounts(width)
    magnitudes.add(np.random.default_rng(0).normal(size=(width, 500)))
    seen = []
    monkeypatch.setattr(module, "interval_from_sums", lambda sums, *given: seen.append(sums))
    shares = [Fraction(mu) ** 2 / width] * width
    prefix_bounds(magnitudes.counts, squared_mus=shares, neighbours=neighbours, max_rows_per_unit=rows)
    column = PrefixMatrix.of(FINE_CELLS).coefficients / 2.0**20
    size = 1 << (2 * FINE_CELLS).bit_length()
    added = np.diff([sums - np.cumsum(counts) for sums, counts in zip(seen, magnitudes.counts, strict=True)], prepend=0)
    return np.fft.irfft(np.fft.rfft(added, size) * np.fft.rfft(column, size), size)[:, :FINE_CELLS]


@pytest.mark.parametrize(("neighbours", "rows", "width"), [("add_remove", 1, 1), ("replace", 2, 3)])
def test_noise_of_the_prefix_sums(monkeypatch, neighbours, rows, width):
    """Of each product: ``m sqrt(width) / mu`` times the norm of a column, sqrt(2) times that under replace."""
    norm = math.sqrt(sum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(500)))
    norm = math.sqrt(norm**2 + math.log(FINE_CELLS / 500) / math.pi)  # the rest is about 1 / (pi k)
    right = rows * norm * math.sqrt(width * (2 if neighbours == "replace" else 1))
    edges = np.arange(-48, 49) / 8

    def law_of(mu):
        """Share of each eighth of the right standard deviation; the noise has 1 / mu of it."""
        below = [0.5 * math.erfc(-edge * float(mu) / math.sqrt(2)) for edge in edges]
        return dict(enumerate(np.diff([0.0, *below, 1.0]).tolist()))

    def sampler(mu, runs):
        found = []
        while len(found) < runs:
            noise = noise_of(monkeypatch, mu, neighbours, rows, width)
            found += np.searchsorted(edges, noise.ravel() / right).tolist()
        return found

    judge(sampler, law_of, Fraction(1))


def test_all_products_have_their_own_noise(monkeypatch):
    """No two columns, and no two cells, share noise."""
    every = noise_of(monkeypatch, Fraction(1), "add_remove", 1, 4).round(6)
    assert len(np.unique(every)) > 0.99 * every.size
