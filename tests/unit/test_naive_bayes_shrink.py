"""What naive Bayes makes of noisy counts: the log odds, and the shrinking of noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.functions.naive_bayes import log_odds, shrunk


def counts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = np.array([800.0, 200.0])
    return np.stack(
        [rng.binomial(800, rates) for rates in (rng.uniform(0, 0.3, 50), rng.uniform(0, 0.3, 50))]
    ) * 1.0, rows


def test_no_noise_no_change() -> None:
    present, rows = counts(1)
    assert shrunk(present, rows, 0.0) == pytest.approx(present)
    assert shrunk(present, rows, 1e-9) == pytest.approx(present)


def test_what_noise_explains_goes() -> None:
    """Counts that differ by less than the noise have one rate in both levels, that of all rows."""
    rows = np.array([800.0, 200.0])
    present = np.array([[42.0, 400.0], [9.0, 20.0]])
    found = shrunk(present, rows, 5.0)
    assert found.sum(axis=0) == pytest.approx(present.sum(axis=0))
    assert found[:, 0] / rows == pytest.approx(np.full(2, 51 / 1000))
    difference = 20 - 0.2 * 420
    factor = 1 - 25 * (0.8**2 + 0.2**2) / difference**2
    assert found[1, 1] == pytest.approx(0.2 * 420 + factor * difference)


def test_it_is_closer_to_the_truth_than_noise_leaves_it() -> None:
    present, rows = counts(2)
    present[1] = np.rint(present[0] / 4)  # the same rates in both levels
    noise = np.random.default_rng(3).normal(0, 15, size=(200, *present.shape))
    true = log_odds(present, rows, 1.0)[1:]
    errors = [
        np.mean([np.square(log_odds(method(present + draw), rows, 1.0)[1:] - true).mean() for draw in noise])
        for method in (lambda noisy: shrunk(noisy, rows, 15.0), lambda noisy: noisy)
    ]
    assert errors[0] < errors[1] / 2


def test_nothing_at_all() -> None:
    for rows in (np.zeros(2), np.array([-5.0, 3.0])):
        found = shrunk(np.zeros((2, 3)), rows, 2.0)
        assert np.isfinite(log_odds(found, rows, 1.0)).all()
    assert np.isfinite(log_odds(shrunk(np.full((2, 3), -7.0), np.zeros(2), 2.0), np.zeros(2), 0.5)).all()


def test_log_odds_by_hand() -> None:
    found = log_odds(np.array([[3.0], [7.0]]), np.array([10.0, 10.0]), 1.0)
    rates = np.array([4 / 12, 8 / 12])
    assert found[1] == pytest.approx(np.log(rates[1] / (1 - rates[1])) - np.log(rates[0] / (1 - rates[0])))
    assert found[0] == pytest.approx(np.log((1 - rates[1]) / (1 - rates[0])))
