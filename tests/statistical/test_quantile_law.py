"""Quantiles against their exact law, bounds' counts against the noise; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.kernels.cells import MagnitudeCounts, TypedCells
from dpsql.mechanisms import prefix_bounds as module
from dpsql.mechanisms.prefix_bounds import PrefixMatrix, prefix_bounds
from dpsql.mechanisms.quantile import quantiles
from support.audits import judge
from support.cases import cases
from support.laws.quantile import quantile_law

HALF, MOST = Fraction(1, 2), Fraction(3, 4)
COUNTS = [2, 3, 1, 2]
ROWS = [cell for cell, count in enumerate(COUNTS) for _ in range(count)]


@pytest.mark.long
@cases(
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


def noise_of(monkeypatch, mu, neighbours, rows, kinds, which=0):
    """Return the noise that bounds of columns of these types add to the products of counts, in rows, of one column."""
    width, cells = len(kinds), [TypedCells.of(kind) for kind in kinds]
    magnitudes = MagnitudeCounts(width)
    magnitudes.add(np.random.default_rng(0).normal(0, 9, size=(width, 500)).round())
    counts = [of.counts(fine) for of, fine in zip(cells, magnitudes.counts, strict=True)]
    seen = []
    monkeypatch.setattr(module, "interval_from_sums", lambda sums, *given: seen.append(sums))
    shares = [Fraction(mu) ** 2 / width] * width
    prefix_bounds(counts, cells, squared_mus=shares, neighbours=neighbours, max_rows_per_unit=rows)
    count = cells[which].count
    column = PrefixMatrix.of(count).coefficients / 2.0**20
    size = 1 << (2 * count).bit_length()
    added = np.diff(seen[which] - np.cumsum(counts[which]), prepend=0)
    return np.fft.irfft(np.fft.rfft(added, size) * np.fft.rfft(column, size), size)[:count]


TINY, WIDE = pa.int8(), pa.float64()


@pytest.mark.parametrize(
    ("neighbours", "rows", "kinds", "which"),
    [
        ("add_remove", 1, [WIDE], 0),
        ("replace", 2, [WIDE] * 3, 0),
        ("add_remove", 1, [TINY, WIDE], 0),
        ("replace", 1, [TINY, WIDE], 1),
    ],
    ids=str,
)
def test_noise_of_the_prefix_sums(monkeypatch, neighbours, rows, kinds, which):
    """Of each product: ``m sqrt(width) / mu`` times the norm of a column of its own type's matrix; under replace
    sqrt(2) times that."""
    count = TypedCells.of(kinds[which]).count
    norm = math.sqrt(sum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(min(count, 500))))
    norm = math.sqrt(norm**2 + max(0.0, math.log(count / 500)) / math.pi)  # the rest is about 1 / (pi k)
    right = rows * norm * math.sqrt(len(kinds) * (2 if neighbours == "replace" else 1))
    edges = np.arange(-48, 49) / 8

    def law_of(mu):
        """Share of each eighth of the right standard deviation; the noise has 1 / mu of it."""
        below = [0.5 * math.erfc(-edge * float(mu) / math.sqrt(2)) for edge in edges]
        return dict(enumerate(np.diff([0.0, *below, 1.0]).tolist()))

    def sampler(mu, runs):
        found = []
        while len(found) < runs:
            noise = noise_of(monkeypatch, mu, neighbours, rows, kinds, which)
            found += np.searchsorted(edges, noise.ravel() / right).tolist()
        return found

    judge(sampler, law_of, Fraction(1))


def test_all_products_have_their_own_noise(monkeypatch):
    """No two columns, and no two cells, share noise."""
    every = np.concatenate([noise_of(monkeypatch, Fraction(1), "add_remove", 1, [WIDE] * 2, at) for at in (0, 1)])
    every = every.round(6)
    assert len(np.unique(every)) > 0.99 * every.size
