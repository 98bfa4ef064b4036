"""Noise of prefix sums against its exact law; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.prefix_sums import noisy_prefix_sums, prefix_strategy
from support.audits import judge
from support.cases import cases

COUNTS = np.array([[3, 0, 7, 1], [0, 0, 5, 2]])


def noise_in_products(name, runs, given):
    """Return the noise that square strategies added, product by product: their matrix takes the sums back to it."""
    strategy = prefix_strategy(4, name=name, noise="gaussian")
    back = np.linalg.inv(strategy.reconstruction)
    found = []
    for _ in range(-(-runs // 8)):
        released = noisy_prefix_sums(COUNTS, strategy=strategy, **given)
        noise = (released.sums - np.cumsum(COUNTS, axis=1)) @ back.T
        found += noise.ravel().tolist()
    return found[:runs]


@cases(
    ("name", "neighbours", "rows", "factor"),
    [("identity", "add_remove", 1, 1), ("identity", "replace", 3, 6), ("wavelet", "add_remove", 2, 6)],
    quick=2,
)
def test_laplace_noise(name, neighbours, rows, factor):
    """Scale: rows per unit, twice that under replace, times the noisy counts per row (three for a wavelet of four)."""
    given = {"neighbours": neighbours, "max_rows_per_unit": rows}

    def law_of(epsilon):
        decay = math.exp(-epsilon / factor)
        reach = np.arange(-math.ceil(30 * factor / epsilon), math.ceil(30 * factor / epsilon) + 1)
        return dict(zip(reach.tolist(), ((1 - decay) / (1 + decay) * decay ** abs(reach)).tolist(), strict=True))

    def sampler(epsilon, runs):
        noise = noise_in_products(name, runs, {"epsilon": epsilon, **given})
        assert np.abs(noise - np.rint(noise)).max() < 1e-6
        return np.rint(noise).astype(int).tolist()

    judge(sampler, law_of, Fraction(2))


@cases(("neighbours", "rows"), [("add_remove", 1), ("replace", 2)], quick=1)
@cases("name", ["toeplitz", "wavelet"])
def test_gaussian_noise(name, neighbours, rows):
    """Standard deviation: the norm of the longest column, times rows per unit, times sqrt(2) under replace, over mu."""
    longest = {"toeplitz": math.sqrt(1 + 1 / 4 + (3 / 8) ** 2 + (5 / 16) ** 2), "wavelet": math.sqrt(3)}[name]
    sensitivity = longest * rows * math.sqrt(2 if neighbours == "replace" else 1)
    edges = np.arange(-48, 49) / 8

    def law_of(mu):
        """Share of each eighth of the right standard deviation; the noise has 1 / mu of it."""
        below = [0.5 * math.erfc(-edge * float(mu) / math.sqrt(2)) for edge in edges]
        return dict(enumerate(np.diff([0.0, *below, 1.0]).tolist()))

    def sampler(mu, runs):
        noise = noise_in_products(name, runs, {"mu": mu, "neighbours": neighbours, "max_rows_per_unit": rows})
        return np.searchsorted(edges, np.array(noise) / sensitivity).tolist()

    judge(sampler, law_of, Fraction(1))


@pytest.mark.parametrize(("name", "noise"), [("tree", {"epsilon": Fraction(1)}), ("toeplitz", {"mu": Fraction(1)})])
def test_stated_errors_are_those_of_the_draws(name, noise):
    """The mean square over 2000 draws is within 25 % of the stated variance; 0.7**2 or 1.3**2 times it would not be."""
    strategy = prefix_strategy(12, name=name, noise="gaussian")
    counts = np.zeros((2000, 12), dtype=np.int64)
    released = noisy_prefix_sums(counts, strategy=strategy, neighbours="add_remove", **noise)
    ratio = np.square(released.sums).mean(axis=0) / np.square(released.std_error)
    assert (np.abs(ratio - 1) < 0.25).all()
    shared = (released.sums * released.sums[:, -1:]).mean(axis=0)
    assert np.abs(shared - released.covariance).max() < 0.25 * released.std_error[-1] ** 2
    # Histograms have noise of their own.
    assert abs(np.corrcoef(released.sums[:1000, -1], released.sums[1000:, -1])[0, 1]) < 0.25
