"""What a private additive model gains over a private linear one. NOT PRIVATE as it stands, and not in the product.

    python benchmarks/papers/additive_models.py [--data DIR] [--splits 3]

Cyclic boosting on binned features, as differentially private explainable boosting machines do it (Nori, Caruana, Bu,
Shen, Kulkarni, ICML 2021), by the accounting of `dp_linear_regression`: noisy counts per bin once, then in every epoch
and for every feature noisy sums of clipped residuals per bin, all mu-GDP together. Bounds are those of the whole set,
as public ones; moments and the target's quantiles are exact, which favours it a little. The noise is floating point.

README.md has what came out beside `dp_linear_regression` with the same bounds.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

import numpy as np
from dp_kendall import DATA, SMALLER, Doubles, load, r_squared

from dpsql.contract.gaussian_profile import usable_mu

DELTA = Fraction(1, 10**5)
EPSILONS = ("0.1", "1.0986", "3")
# Epochs, bins per feature, learning rate.
SETTINGS = ((5, 8, 0.5), (10, 16, 0.5), (20, 16, 0.3))
# Shares of epsilon for the target's scale, and of mu squared for moments and for the counts.
SCALE_SHARE, MOMENTS_SHARE, COUNT_SHARE = Fraction(1, 20), 0.05, 0.1


def additive(
    rows: Doubles,
    target: Doubles,
    test: Doubles,
    mu: float,
    setting: tuple[int, int, float],
    generator: np.random.Generator,
) -> Doubles:
    """Fit an additive model of step functions to some rows, and predict others."""
    epochs, bins, rate = setting
    count, width = rows.shape
    mean, spread = rows.mean(axis=0), 3 * rows.std(axis=0) + 1e-12
    low, high = np.maximum(rows.min(axis=0), mean - spread), np.minimum(rows.max(axis=0), mean + spread)
    high = np.where(high > low, high, low + 1)
    places, others = (np.clip(((part - low) / (high - low) * bins).astype(int), 0, bins - 1) for part in (rows, test))
    first, middle, last = np.quantile(target, [0.05, 0.5, 0.95])
    reach = max(middle - first, last - middle)
    scaled = (target - middle) / reach
    rest = mu**2 * (1 - MOMENTS_SHARE)
    count_noise = np.sqrt(width / (COUNT_SHARE * rest))
    sum_noise = np.sqrt(epochs * width / ((1 - COUNT_SHARE) * rest))
    held = [
        np.maximum(np.bincount(column, minlength=bins) + generator.normal(0, count_noise, bins), 1.0)
        for column in places.T
    ]
    steps, fitted = np.zeros((width, bins)), np.zeros(count)
    for _ in range(epochs):
        for feature, column in enumerate(places.T):
            residual = np.clip(scaled - fitted, -1.0, 1.0)
            noisy = np.bincount(column, residual, bins) + generator.normal(0, sum_noise, bins)
            step = rate * noisy / (held[feature] + 2 * sum_noise)  # bins in which noise rules move little
            steps[feature] += step
            fitted += step[column]
    return np.asarray(middle + reach * sum(steps[feature][column] for feature, column in enumerate(others.T)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds regression/*.parquet")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    generator = np.random.default_rng(1)
    found: dict[tuple[str, tuple[int, int, float]], list[float]] = {}
    for name in SMALLER:
        table = load(options.data, name)
        for epsilon in EPSILONS:
            mu = float(usable_mu(Fraction(epsilon) * (1 - SCALE_SHARE), DELTA))
            for setting in SETTINGS:
                scores = []
                for split in range(options.splits):
                    order = np.random.default_rng([split, 7]).permutation(len(table.target))
                    test, fit = np.split(order, [len(order) // 10])
                    predicted = additive(
                        table.features[fit], table.target[fit], table.features[test], mu, setting, generator
                    )
                    scores.append(r_squared(table.target[test], predicted))
                found.setdefault((epsilon, setting), []).append(max(0.0, float(np.median(scores))))
                print(f"{name:18} epsilon {epsilon:7} {setting}: {np.median(scores):.3f}", flush=True)
    for (epsilon, setting), scores in found.items():
        print(f"mean of {len(scores)} sets, epsilon {epsilon:7} {setting}: {np.mean(scores):.3f}")


if __name__ == "__main__":
    main()
