"""Scores and clusters of binary features, computed from noisy counts: post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST_ROUNDS = 100


def point_scores(score: str, points: Floats, labels: Floats) -> Floats:
    """Return the score of each pair of counts.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    points : ndarray of float64, shape (d, 2)
        Noisy numbers of positive and negative rows in which each feature is present.
    labels : ndarray of float64, shape (2,) or (0,)
        Noisy numbers of positive and negative rows; used for ``purity`` and ``information_gain``.

    Returns
    -------
    scores : ndarray of float64, shape (d,)
        ``information_gain`` is in nats times rows and >= 0, because counts are clipped to possible values.
    """
    if score == "total_count":
        return np.asarray(points.sum(axis=1))
    difference = points[:, 0] - points[:, 1]
    if score == "difference_count":
        return np.asarray(np.abs(difference))
    if score == "purity":
        return np.asarray(np.maximum(np.abs(difference), np.abs(labels[0] - labels[1] - difference)))
    rows = np.maximum(labels, 0.0)
    ones = np.clip(points, 0.0, rows)
    with_ones, total = ones.sum(axis=1), rows.sum()
    gain = _n_log_n(ones).sum(axis=1) + _n_log_n(rows - ones).sum(axis=1) + _n_log_n(total)
    gain -= _n_log_n(with_ones) + _n_log_n(total - with_ones) + _n_log_n(rows).sum()
    return np.asarray(np.maximum(gain, 0.0))


def best_cluster(points: Floats, scores: Floats, clusters: int) -> NDArray[np.bool_]:
    """Return which features are in the cluster with the highest mean score: post-processing.

    Parameters
    ----------
    points : ndarray of float64, shape (d, 2)
        Noisy counts of each feature by label.
    scores : ndarray of float64, shape (d,)
    clusters : int
        Number of clusters, >= 1; at most one per feature is made.

    Returns
    -------
    member : ndarray of bool, shape (d,)

    Notes
    -----
    The first centre is the feature with the lowest score. Each further centre is the feature farthest from the centres
    before it. The k-means iteration then assigns every feature to its nearest centre and moves every centre to the mean
    of its features, until nothing changes.
    """
    if len(points) == 0:
        return np.zeros(0, dtype=np.bool_)
    starts = [int(np.argmin(scores))]
    distance = ((points - points[starts[0]]) ** 2).sum(axis=1)
    while len(starts) < min(clusters, len(points)):
        starts.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((points - points[starts[-1]]) ** 2).sum(axis=1))
    centres = points[starts]
    for _ in range(_MOST_ROUNDS):
        nearest = ((points - centres[0]) ** 2).sum(axis=1)
        member = np.zeros(len(points), dtype=np.intp)
        for number, centre in enumerate(centres[1:], start=1):
            away = ((points - centre) ** 2).sum(axis=1)
            member[away < nearest] = number
            nearest = np.minimum(away, nearest)
        sizes = np.bincount(member, minlength=len(centres))
        moved = centres.copy()
        for side in (0, 1):
            sums = np.bincount(member, points[:, side], len(centres))
            np.divide(sums, sizes, out=moved[:, side], where=sizes > 0)
        if (moved == centres).all():
            break
        centres = moved
    means = np.full(len(centres), -np.inf)
    np.divide(np.bincount(member, scores, len(centres)), sizes, out=means, where=sizes > 0)
    return np.asarray(member == int(np.argmax(means)), dtype=np.bool_)


def _n_log_n(values: Floats | np.float64) -> Floats:
    return np.asarray(values * np.log(np.where(values > 0.0, values, 1.0)))
