"""Repeat the study of private empirical machine learning on texts; README.md beside this file says what came out.

    python benchmarks/papers/empirical_ml.py [--quick] [--data DIR] [--only sms_spam] [--out DIR]

SMS messages (spam or not) and tweets (of good mood or bad), as binary bags of words. A private filter finds words, a
private classifier is fitted to them, both on nine tenths of the rows, and the other tenth is predicted: ten folds, four
epsilons, half of each for the filter. Then private ROC curves of scores of that tenth. Everything private is a call of
the product's functions; features reach the fit as ``features := release(...)``, predictions are ``dp_predict`` over
``GROUP BY doc_id``. Beside them references that are NOT PRIVATE: no noise, and the paper's private thresholds,
noisycut, clusters and medians as printed.

The words with two documents or more in the whole corpus stand in for a public list of words. Folds and references are
seeded; privacy noise cannot be. Nothing is charged to a budget: this is a study, not a release.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from empirical_ml_report import CURVE_COLUMNS, FILTER_COLUMNS, write_report
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.functions.feature_counts import best_cluster, point_scores
from dpsql.functions.roc import RocPlan, draw_roc
from dpsql.kernels.gram import one_thread
from dpsql.mechanisms.prefix_sums import noisy_prefix_sums, prefix_strategy
from dpsql.mechanisms.smooth import smooth_area
from dpsql.released.curves import area_between, area_under, consistent
from dpsql.released.release import Release

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1].parent / "shared" / "data"
# Set -> rows of the paper's test sets, for the ROC curves.
SETS = {"sms_spam": 558, "tweets_sentiment140_7304": 684}
EPSILONS = (1.0, 0.5, 0.25, 0.1)
DELTA = 1e-6
FOLDS = 10
SEED = 20240607  # of the folds, and of the noise of the references; the product draws from the operating system
LEAST_DOCUMENTS = 2
# Public settings, fixed before any result was looked at.
THRESHOLD, BEST, FEW, CUTOFF, WORDS_PER_ROW = 50, 100, 20, 20, 10
MOST_ROWS = 8000
REFERENCES = ("exact", "ptt", "noisycut", "printed cluster")  # NOT PRIVATE
# Words of a row at most by the paper's assumption, for its clusters.
ASSUMED_WORDS = 20
CLUSTER_ROUNDS = 5
WEAK_ROWS = 300
REPEATS = 20
LOG_ODDS = 8.0  # public bounds of the log odds that some curves are of
# Of the paper's medians: levels of halving (and what we would take), and share of epsilon.
PRINTED_LEVELS, PRINTED_SHARE = (10, 4), 0.2

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Curve = tuple[Floats, Floats]


@dataclass(frozen=True)
class Filter:
    """One way to find features.

    Attributes
    ----------
    score : str
        As of ``dp_score_filter``; '' for no filter.
    method : str
        As of ``dp_score_filter``, or a reference that is NOT PRIVATE: 'exact', 'ptt', 'noisycut', 'printed cluster'.
    rule : {'threshold', 'k', ''}
    number : int
        Of the rule.
    settings : tuple of pairs
        Further arguments of the call.
    share : float
        Share of epsilon that the filter costs.
    """

    score: str
    method: str
    rule: str = ""
    number: int = 0
    settings: tuple[tuple[str, Any], ...] = ()
    share: float = 0.5

    @property
    def label(self) -> str:
        """What a line is known by."""
        rule = {"threshold": f" ≥ {self.number}", "k": f" k = {self.number}", "": ""}[self.rule]
        more = "".join(f", {name} {value}" for name, value in self.settings if name not in ("cutoff", "n_max"))
        return f"{self.score or 'all words'} {self.method}{rule}{more}"

    @property
    def approximate(self) -> bool:
        """Whether delta is spent: half by the filter, half by the fit."""
        return self.method == "gaussian" or ("vocabulary", "private") in self.settings


def private_filters() -> list[Filter]:
    """Return the calls to measure."""
    found = []
    for score in ("total_count", "difference_count"):
        found += [Filter(score, method, "threshold", THRESHOLD) for method in ("gaussian", "laplace")]
        found.append(Filter(score, "svt", "threshold", THRESHOLD, (("cutoff", CUTOFF),)))
        found.append(Filter(score, "cluster"))
        found += [Filter(score, method, "k", BEST) for method in ("gaussian", "one_shot")]
        found += [Filter(score, method, "k", FEW) for method in ("gaussian", "one_shot")]
    found += [Filter("purity", method, "k", BEST) for method in ("gaussian", "one_shot")]
    found += [Filter("information_gain", method, "k", BEST) for method in ("gaussian", "laplace")]
    found.append(Filter("information_gain", "one_shot", "k", BEST, (("n_max", MOST_ROWS),)))
    found.append(Filter("difference_count", "gaussian", "threshold", THRESHOLD, (("vocabulary", "private"),)))
    return found


def filter_settings() -> list[Filter]:
    """Return calls that only the words are looked at of: how much of a row counts, and how many may be wrong."""
    return [
        *(
            Filter(score, method, "threshold", THRESHOLD, (("max_features_per_row", most),))
            for score in ("total_count", "difference_count")
            for method in ("gaussian", "laplace")
            for most in (2, 3, 5, 20)
        ),
        *(
            Filter(score, "gaussian", "threshold", THRESHOLD, (("false_positives", wrong),))
            for score in ("total_count", "difference_count")
            for wrong in (0.1, 10)
        ),
    ]


def references() -> list[Filter]:
    """Return filters that are NOT PRIVATE, before private fits. Shares as in the paper."""
    return [
        Filter("total_count", "ptt", "threshold", THRESHOLD, share=0.2),
        Filter("difference_count", "ptt", "threshold", THRESHOLD, share=0.2),
        Filter("difference_count", "noisycut", "threshold", THRESHOLD, share=0.5),
        Filter("difference_count", "printed cluster", share=0.2),
        *(
            Filter(score, "exact", *rule)
            for score, *rule in (
                ("total_count", "k", BEST),
                ("difference_count", "threshold", THRESHOLD),
                ("difference_count", "k", BEST),
                ("information_gain", "k", BEST),
            )
        ),
    ]


def noiseless() -> list[Filter]:
    """Return filters without noise, before fits without noise: NOT PRIVATE."""
    return [
        Filter("", "exact"),
        *(Filter(score, "exact", "threshold", THRESHOLD) for score in ("total_count", "difference_count")),
        *(
            Filter(score, "exact", "k", number)
            for number in (BEST, FEW)
            for score in ("total_count", "difference_count", "purity", "information_gain")
        ),
    ]


def fit_settings(*, filtered: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return fits to compare: how much of a row counts, and how wide the ridge is."""
    found: list[tuple[str, dict[str, Any]]] = []
    found += [("naive_bayes", {"max_features_per_row": most}) for most in (1, 3, 5, 10, 20)]
    found.append(("naive_bayes", {"shrink": False}))
    found += [("logistic_regression", {"row_norm": norm}) for norm in (0.5, 1.0, 1.75, 3.16)]
    if filtered:
        found += [("logistic_regression", {"row_norm": 1.0, "regularization": ridge}) for ridge in (5.0, 20.0, 80.0)]
    return found


@dataclass(frozen=True)
class Corpus:
    """Documents as rows of words.

    Attributes
    ----------
    names : list of str, length d
        The words that count as public, sorted.
    matrix : csr_array of float64, shape (n, d)
        1 where a document has a word.
    documents, labels : ndarray of int64, shape (n,)
        Numbers of the documents, ascending, and 0 or 1.
    long : Table
        doc_id, label, token: a row per word of a document, public or not; one with NULL for a document without words.
    """

    names: list[str]
    matrix: Any
    documents: Integers
    labels: Integers
    long: pa.Table


def load(data: Path, name: str) -> Corpus:
    """Read a set."""
    raw = pq.read_table(data / "text" / f"{name}_raw.parquet", columns=["doc_id", "label"])
    words = pq.read_table(data / "text" / f"{name}_bow.parquet", columns=["doc_id", "token"])
    documents, labels = (raw[column].to_numpy().astype(np.int64) for column in ("doc_id", "label"))
    if (np.diff(documents) <= 0).any():
        raise ValueError(f"{name}: doc_id must ascend")
    rows = np.searchsorted(documents, words["doc_id"].to_numpy())
    tokens, columns = np.unique(words["token"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(documents), len(tokens)))
    known = np.flatnonzero(matrix.sum(axis=0) >= LEAST_DOCUMENTS)
    long = raw.join(words, "doc_id", join_type="left outer")
    return Corpus(tokens[known].tolist(), matrix[:, known], documents, labels, long)


@dataclass
class Fold:
    """A corpus cut in two: ``rows`` and ``test`` in DuckDB, long."""

    corpus: Corpus
    number: int
    fit: NDArray[np.intp]
    test: NDArray[np.intp]
    context: dpsql.Context = field(default_factory=dpsql.Context)

    def __post_init__(self) -> None:
        connection = self.context.connection
        connection.execute("SET threads = 1")
        for name, part in (("rows", self.fit), ("test", self.test)):
            kept = pa.table({"doc_id": pa.array(self.corpus.documents[part], self.corpus.long["doc_id"].type)})
            connection.register("frame", self.corpus.long.join(kept, "doc_id", join_type="inner"))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM frame ORDER BY doc_id, token")
            connection.unregister("frame")

    @cached_property
    def counts(self) -> tuple[Integers, Integers]:
        """Rows of either label that have a word, shape (d, 2), and of either label, positive first; all words count."""
        positive = self.corpus.labels[self.fit] == 1
        rows = self.corpus.matrix[self.fit]
        points = [np.asarray(rows[side].sum(axis=0)).astype(np.int64) for side in (positive, ~positive)]
        return np.stack(points, axis=1), np.array([positive.sum(), (~positive).sum()])

    def scores(self, score: str) -> Floats:
        """Return the exact scores of all words."""
        points, labels = self.counts
        return point_scores(score, points.astype(np.float64), labels.astype(np.float64))

    @cached_property
    def majority(self) -> float:
        """Share of the test rows that have the label that most rows of the fit have."""
        usual = int(self.corpus.labels[self.fit].mean() >= 0.5)
        return float((self.corpus.labels[self.test] == usual).mean())

    def truth(self, given: Filter) -> NDArray[np.intp]:
        """Return the words that a filter would find without noise, on all words of a row."""
        scores = self.scores(given.score)
        if given.rule == "threshold":
            return np.flatnonzero(scores >= given.number)
        if given.rule == "k":
            return np.argsort(-scores, kind="stable")[: given.number]
        return np.flatnonzero(best_cluster(self.counts[0].astype(np.float64), scores, 2))


def folds_of(corpus: Corpus) -> Iterator[Fold]:
    """Cut a corpus in ten, the same way every time."""
    order = np.random.default_rng([SEED, len(corpus.labels)]).permutation(len(corpus.labels))
    for number, test in enumerate(np.array_split(order, FOLDS)):
        yield Fold(corpus, number, np.setdiff1d(order, test), test)


def overlap(found: Iterable[Any], truth: Iterable[Any]) -> dict[str, float]:
    """Return precision, recall and F1 of a set against the true one; of two empty sets all are 1."""
    ours, theirs = set(found), set(truth)
    both = len(ours & theirs)
    if not ours and not theirs:
        return {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    return {
        "precision": both / len(ours) if ours else 0.0,
        "recall": both / len(theirs) if theirs else 0.0,
        "f1": 2 * both / (len(ours) + len(theirs)),
    }


def true_curve(scores: Floats, labels: Integers) -> Curve:
    """Return false and true positive rates at every score that occurs, from (0, 0) to (1, 1)."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits = np.cumsum(labels[order])[last]
    alarms = last + 1 - hits
    return np.append(0.0, alarms / alarms[-1]), np.append(0.0, hits / hits[-1])


def judged(fold: Fold, probabilities: Floats) -> dict[str, float]:
    """Return accuracy and area under the curve of probabilities of label 1 for the test rows."""
    labels = fold.corpus.labels[fold.test]
    return {
        "accuracy": float(((probabilities > 0.5) == labels).mean()),
        "auc": area_under(*true_curve(probabilities, labels)),
    }


def fit_and_judge(fold: Fold, function: str, features: Any, **arguments: Any) -> dict[str, float]:
    """Fit by one call and predict the test rows in SQL. Where no feature was found the majority is predicted."""
    if not found_names(features):
        return {"accuracy": fold.majority, "auc": 0.5}
    if isinstance(features, Release):
        arguments["features"] = features
    else:
        arguments |= {"features": "token", "row_id": "doc_id", "names": features}
    if function == "logistic_regression":
        arguments |= {"lower": 0, "upper": 1}
    release = getattr(fold.context, f"dp_{function}")("rows", target="label", **arguments)
    predicted = fold.context.connection.execute(
        f"SELECT dp_predict({release.ledger_id}, list(token)) AS p FROM test GROUP BY doc_id ORDER BY doc_id"
    ).fetchnumpy()["p"]
    # Rows come by document, fold.test in any order.
    return judged(fold, np.asarray(predicted)[np.argsort(np.argsort(fold.test))])


def call(fold: Fold, given: Filter, epsilon: float, delta: float | None) -> Any:
    """Return what a filter finds: a release, or a list of words from a reference."""
    if given.method in REFERENCES:
        return [fold.corpus.names[place] for place in not_private(fold, given, epsilon)]
    settings = {"max_features_per_row": WORDS_PER_ROW, **dict(given.settings)}
    if settings.get("vocabulary") != "private":
        settings["names"] = fold.corpus.names
    if given.rule:
        settings[given.rule] = given.number
    if given.approximate:
        settings["delta"] = delta
    settings |= {"score": given.score, "method": given.method, "epsilon": epsilon}
    return fold.context.dp_score_filter("rows", target="label", features="token", row_id="doc_id", **settings)


def found_names(features: Any) -> list[str]:
    """Return the words of a release or list."""
    return list(features.features if isinstance(features, Release) else features)


def against_truth(fold: Fold, given: Filter, names: Sequence[str]) -> dict[str, Any]:
    """Compare words with what the filter would find without noise."""
    true = [fold.corpus.names[place] for place in fold.truth(given)]
    return {"features": len(names), "true": len(true), **overlap(names, true)}


def measure_filter(fold: Fold, given: Filter, epsilon: float) -> dict[str, Any]:
    """Filter, for the whole of epsilon: the line of the results."""
    names = found_names(call(fold, given, epsilon, DELTA))
    return against_truth(fold, given, names)


def measure(fold: Fold, given: Filter, epsilon: float) -> dict[str, Any]:
    """Filter, then fit both classifiers: the line of the results."""
    line: dict[str, Any]
    if given.score:
        half = {"epsilon": epsilon * (1 - given.share), "delta": DELTA / 2 if given.approximate else None}
        features = call(fold, given, epsilon * given.share, DELTA / 2)
        line = against_truth(fold, given, found_names(features))
    else:
        features, half = fold.corpus.names, {"epsilon": epsilon, "delta": DELTA if given.approximate else None}
        line = {"features": len(features)}
    for function in ("naive_bayes", "logistic_regression"):
        line |= {f"{function} {name}": value for name, value in fit_and_judge(fold, function, features, **half).items()}
    return line


def not_private(fold: Fold, given: Filter, epsilon: float) -> NDArray[np.intp]:
    """Return the words that a filter finds that is NOT PRIVATE: exact, or as printed in the paper.

    'ptt' compares exact scores with one noisy threshold. 'noisycut' adds noise to the scores too, however many are
    found. 'printed cluster' draws centres with noise and divides the exact points by them.
    """
    generator = np.random.default_rng([SEED, fold.number, int(epsilon * 1000), len(given.label)])
    scores = fold.scores(given.score)
    if given.method == "exact":
        return fold.truth(given)
    if given.method == "ptt":
        return np.flatnonzero(scores >= given.number + generator.laplace(scale=1 / epsilon))
    if given.method == "noisycut":
        level = given.number + generator.laplace(scale=4 / epsilon)
        return np.flatnonzero(scores + generator.laplace(scale=4 / (3 * epsilon), size=len(scores)) >= level)
    points = fold.counts[0].astype(np.float64)
    centres = np.array([[0.0, 0.0], [BEST, BEST]])
    step = epsilon / (2 * CLUSTER_ROUNDS)
    for _ in range(CLUSTER_ROUNDS):
        nearest = ((points[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        for cluster in range(2):
            size = (nearest == cluster).sum() + generator.laplace(scale=1 / step)
            sums = points[nearest == cluster].sum(axis=0) + generator.laplace(scale=ASSUMED_WORDS / step, size=2)
            centres[cluster] = sums / max(size, 1.0)
    means = point_scores(given.score, centres, fold.counts[1].astype(np.float64))
    nearest = ((points[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return np.flatnonzero(nearest == int(np.argmax(means)))


def measure_noiseless(fold: Fold, given: Filter) -> dict[str, Any]:
    """Fit scikit-learn's classifiers to exact counts. NOT PRIVATE."""
    places = fold.truth(given) if given.score else np.arange(len(fold.corpus.names))
    rows, labels = fold.corpus.matrix[:, places], fold.corpus.labels
    line: dict[str, Any] = {"features": len(places), "majority": fold.majority}
    models = {"naive_bayes": BernoulliNB(), "logistic_regression": LogisticRegression(max_iter=1000)}
    for function, model in models.items():
        found = model.fit(rows[fold.fit], labels[fold.fit]).predict_proba(rows[fold.test])[:, 1]
        line |= {f"{function} {name}": value for name, value in judged(fold, found).items()}
    return line


def measure_fits(fold: Fold, epsilon: float, *, filtered: bool) -> dict[str, Any]:
    """Fit with several settings, to the features of one filter or to all words."""
    features, half = fold.corpus.names, {"epsilon": epsilon, "delta": DELTA}
    if filtered:
        given = Filter("total_count", "gaussian", "k", BEST)
        features = call(fold, given, epsilon * given.share, DELTA / 2)
        half = {"epsilon": epsilon * (1 - given.share), "delta": DELTA / 2}
    line: dict[str, Any] = {}
    for function, settings in fit_settings(filtered=filtered):
        told = ", ".join(f"{name} {value}" for name, value in settings.items())
        found = fit_and_judge(fold, function, features, **half, **settings)
        line |= {f"{function}, {told} {name}": value for name, value in found.items()}
    return line


# ROC curves.


@dataclass(frozen=True)
class Scored:
    """Scores of the test rows of a fold, with what is true of them."""

    fold: int
    scores: Floats
    labels: Integers
    curve: Curve


def scored(fold: Fold, scorer: str, size: int) -> Scored:
    """Score the first test rows of a fold by a classifier that is NOT PRIVATE, fitted to the other rows."""
    rows, labels, test = fold.corpus.matrix, fold.corpus.labels, fold.test[:size]
    fit = fold.fit[np.random.default_rng([SEED, fold.number]).permutation(len(fold.fit))]
    fit = fit[:WEAK_ROWS] if scorer == "weak" else fit
    model = BernoulliNB() if scorer == "naive Bayes" else LogisticRegression(max_iter=1000)
    found = model.fit(rows[fit], labels[fit]).predict_proba(rows[test])[:, 1]
    return Scored(fold.number, found, labels[test], true_curve(found, labels[test]))


ROC_SETTINGS: dict[str, dict[str, Any]] = {
    "recursive": {},
    "recursive, n_thresholds 7": {"n_thresholds": 7},
    "recursive, n_thresholds 31": {"n_thresholds": 31},
    "recursive, threshold_share 0.1": {"threshold_share": 0.1},
    "recursive, threshold_share 0.5": {"threshold_share": 0.5},
    "recursive, delta 1e-6": {"delta": DELTA},
    "fixed": {"thresholds": "fixed"},
    "fixed, n_thresholds 7": {"thresholds": "fixed", "n_thresholds": 7},
    "fixed, n_thresholds 63": {"thresholds": "fixed", "n_thresholds": 63},
    "smooth_medians": {"thresholds": "smooth_medians"},
    "smooth_medians, n_thresholds 7": {"thresholds": "smooth_medians", "n_thresholds": 7},
    "recursive, log odds": {"lower": -LOG_ODDS, "upper": LOG_ODDS},
    "fixed, log odds": {"lower": -LOG_ODDS, "upper": LOG_ODDS, "thresholds": "fixed"},
    "fixed, log odds, n_thresholds 31": {
        "lower": -LOG_ODDS,
        "upper": LOG_ODDS,
        "thresholds": "fixed",
        "n_thresholds": 31,
    },
}
# These also go through SQL, once for each fold.
ROC_IN_SQL = ("recursive", "fixed", "smooth_medians")


def all_thresholds_curve(given: Scored, epsilon: float, generator: np.random.Generator) -> Curve:
    """Return the baseline of the paper: Laplace noise on the counts at each score that occurs. NOT PRIVATE.

    The scores that occur are private themselves, and the noise is that of floating point.
    """
    scores, at = np.unique(-given.scores, return_inverse=True)
    sums = []
    for label in (0, 1):
        exact = np.cumsum(np.bincount(at[given.labels == label], minlength=len(scores)))
        sums.append(
            consistent(exact + generator.laplace(scale=len(scores) / epsilon, size=len(scores)), np.ones(len(scores)))
        )
    return rates(sums[0], sums[1])


def rates(negatives: Floats, positives: Floats) -> Curve:
    """Return the curve of cumulative counts, the diagonal where a class has no rows."""
    if not (negatives[-1] > 0 and positives[-1] > 0):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    return np.append(0.0, negatives / negatives[-1]), np.append(0.0, positives / positives[-1])


def each_score_curve(given: Scored, epsilon: float, generator: np.random.Generator) -> Curve:
    """Return the curve of Laplace noise on the rows of either label at each score. NOT PRIVATE, likewise."""
    scores, at = np.unique(-given.scores, return_inverse=True)
    sums = []
    for label in (0, 1):
        noisy = np.bincount(at[given.labels == label], minlength=len(scores)) + generator.laplace(
            scale=1 / epsilon, size=len(scores)
        )
        sums.append(consistent(np.cumsum(noisy), np.ones(len(scores))))
    return rates(sums[0], sums[1])


def printed_medians_curve(given: Scored, epsilon: float, generator: np.random.Generator, *, levels: int) -> Curve:
    """Return the curve of the paper's recursive medians, with its constants. NOT PRIVATE.

    Medians by smooth sensitivity, Cauchy noise of eight times its bound over a level's part of epsilon's fifth, where a
    little more than that is spent; then counts by wavelets, with half of the rest for either label.
    """
    level = epsilon * PRINTED_SHARE / levels
    cuts = np.sort(np.array(halved(np.sort(given.scores), 0.0, 1.0, levels, level, generator)))
    at = np.searchsorted(cuts, given.scores, side="left")
    cells = len(cuts) + 1
    counts = np.stack([np.bincount(at[given.labels == label], minlength=cells)[::-1] for label in (0, 1)])
    released = noisy_prefix_sums(
        counts,
        strategy=prefix_strategy(cells, name="wavelet", noise="laplace"),
        neighbours="add_remove",
        max_rows_per_unit=1,
        epsilon=Fraction(str(epsilon)) * Fraction(2, 5),
        mu=None,
    )
    return rates(*(consistent(part, released.std_error) for part in released.sums))


def halved(points: Floats, low: float, high: float, levels: int, epsilon: float, generator: Any) -> list[float]:
    """Return noisy medians of sorted points, of both halves, of their halves, and so on."""
    if not levels:
        return []
    middle = min(max(noisy_median(points, low, high, epsilon, generator), low), high)
    cut = int(np.searchsorted(points, middle, side="right"))
    return [
        *halved(points[:cut], low, middle, levels - 1, epsilon, generator),
        middle,
        *halved(points[cut:], middle, high, levels - 1, epsilon, generator),
    ]


def noisy_median(points: Floats, low: float, high: float, epsilon: float, generator: Any) -> float:
    """Return the lower median with Cauchy noise of ``8 S / epsilon``, S its smooth sensitivity at beta = epsilon."""
    return lower_median(points, low) + 8 * smooth_sensitivity(points, low, high, epsilon) / epsilon * float(
        generator.standard_cauchy()
    )


def lower_median(points: Floats, low: float) -> float:
    return float(points[(len(points) - 1) // 2]) if len(points) else low


def smooth_sensitivity(points: Floats, low: float, high: float, beta: float) -> float:
    """Return ``max_k exp(-k beta) max_{0 <= t <= k + 1} (p[m + t] - p[m + t - k - 1])`` of the lower median."""
    count = len(points)
    middle = (count + 1) // 2
    padded = np.concatenate([np.full(count + 2, low), points, np.full(count + 2, high)])
    best = 0.0
    for distance in range(count + 1):
        # Place count + 1 + i holds p_i, of i from 1.
        start = count + 1 + middle - distance - 1
        window = padded[start : start + 2 * distance + 3]
        widest = (window[distance + 1 :] - window[: distance + 2]).max()
        best = max(best, math.exp(-beta * distance) * float(widest))
        if math.exp(-beta * (distance + 1)) * (high - low) <= best:
            break
    return best


def curve_lines(
    name: str, folds: Sequence[Fold], *, repeats: int, epsilons: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Measure the ROC curves of a set: yield one line per scorer, method and epsilon."""
    for scorer in ("logistic", "naive Bayes", "weak"):
        parts = [scored(fold, scorer, SETS[name]) for fold in folds]
        truth = float(np.median([area_under(*part.curve) for part in parts]))
        ways: dict[str, Callable[[Scored, float, np.random.Generator], Curve]] = {}
        ways["NOT PRIVATE Laplace on sums at all scores"] = all_thresholds_curve
        ways["NOT PRIVATE Laplace on rows at each score"] = each_score_curve
        for levels in PRINTED_LEVELS:
            ways[f"NOT PRIVATE medians as printed, {levels} levels"] = partial(printed_medians_curve, levels=levels)
        common = {"set": name, "scorer": scorer, "true_auc": truth}
        for epsilon in epsilons:
            for method, settings in ROC_SETTINGS.items():
                plan = RocPlan.from_arguments(
                    "scores", {"label": "label", "score": "score", "epsilon": epsilon, **settings}
                )
                found = []
                for fold, part in zip(folds, parts, strict=True):
                    cells = plan.cells.of(np.clip(given_scores(part, plan), plan.lower, plan.upper))
                    counts = [np.bincount(cells[part.labels == label], minlength=plan.grid) for label in (0, 1)]
                    for repeat in range(repeats):
                        if repeat == 0 and method in ROC_IN_SQL and scorer == "logistic":
                            drawn = sql_curve(fold, part, epsilon, settings)
                        else:
                            fpr, tpr = draw_once(draw_roc, plan, *counts).rates
                            drawn = (np.append(0.0, fpr), np.append(0.0, tpr))
                        found.append((part, drawn))
                yield common | {"method": method, "epsilon": epsilon} | summary(found, repeats)
            for method, way in ways.items():
                generator = np.random.default_rng([SEED, len(method), int(1000 * epsilon)])
                times = repeats if "10 levels" not in method else max(1, repeats // 5)
                found = [(part, way(part, epsilon, generator)) for part in parts for _ in range(times)]
                yield common | {"method": method, "epsilon": epsilon} | summary(found, times)
            yield common | {"method": "dp_auc", "epsilon": epsilon} | area_line(folds, parts, scorer, epsilon, repeats)


def given_scores(part: Scored, plan: RocPlan) -> Floats:
    """Return what the curve is of: probabilities, or log odds where the bounds are theirs."""
    if plan.lower == 0.0:
        return part.scores
    with np.errstate(divide="ignore"):
        return np.log(part.scores) - np.log1p(-part.scores)


def sql_curve(fold: Fold, part: Scored, epsilon: float, settings: dict[str, Any]) -> Curve:
    """Return the curve of one call of dp_roc."""
    store_scores(fold, part)
    more = "".join(f", {name} := '{value}'" for name, value in settings.items())
    found = fold.context.connection.execute(
        f"FROM dp_roc('scores', label := 'label', score := 'score', epsilon := {epsilon}{more})"
    ).fetchnumpy()
    return found["fpr"], found["tpr"]


def store_scores(fold: Fold, part: Scored) -> None:
    connection = fold.context.connection
    if not connection.execute("FROM duckdb_tables() WHERE table_name = 'scores'").fetchall():
        connection.register("frame", pa.table({"label": part.labels, "score": part.scores}))
        connection.execute("CREATE TABLE scores AS FROM frame")
        connection.unregister("frame")


def summary(found: Sequence[tuple[Scored, Curve]], repeats: int) -> dict[str, Any]:
    """Return medians of the area between true and private curves, and of the error of the area under them."""
    areas = np.array([area_between(curve, part.curve) for part, curve in found])
    errors = np.array([abs(area_under(*curve) - area_under(*part.curve)) for part, curve in found])
    return {
        "curves": len(areas),
        "median_of_ten": float(np.median(areas[::repeats])),
        "median": float(np.median(areas)),
        "lower_quartile": float(np.quantile(areas, 0.25)),
        "upper_quartile": float(np.quantile(areas, 0.75)),
        "auc_error": float(np.median(errors)),
    }


def area_line(
    folds: Sequence[Fold], parts: Sequence[Scored], scorer: str, epsilon: float, repeats: int
) -> dict[str, Any]:
    """Return the median error of dp_auc by smooth sensitivity."""
    errors = []
    cells = RocPlan.from_arguments("scores", {"label": "label", "score": "score", "epsilon": epsilon}).cells
    for fold, part in zip(folds, parts, strict=True):
        counts = [np.bincount(cells.of(part.scores[part.labels == label]), minlength=cells.count) for label in (0, 1)]
        for repeat in range(repeats):
            if repeat == 0 and scorer == "logistic":
                store_scores(fold, part)
                area = fold.context.connection.execute(
                    f"FROM dp_auc('scores', label := 'label', score := 'score', "
                    f"epsilon := {epsilon}, method := 'smooth')"
                ).fetchall()[0][0]
            else:
                area = float(smooth_area(*counts, epsilon=Fraction(str(epsilon)), neighbours="add_remove"))
            errors.append(abs(area - area_under(*part.curve)))
    return {"curves": len(errors), "auc_error": float(np.median(errors))}


# The whole study.


def in_sql(fold: Fold) -> list[str]:
    """Go the whole way in SQL, once: filter, fit, predict, curve. Return what was run, and what came out."""
    connection = fold.context.connection
    # Four thousand words: a variable keeps the statement readable.
    connection.execute("SET VARIABLE words = ?", [fold.corpus.names])
    statements = [
        "SELECT count(*) FROM dp_score_filter('rows', target := 'label', features := 'token', row_id := 'doc_id', "
        "names := getvariable('words'), score := 'information_gain', k := 100, epsilon := 0.5, delta := 5e-7, "
        "method := 'gaussian', release := 'words')",
        "SELECT count(*) FROM dp_naive_bayes('rows', target := 'label', features := release('words'), "
        "epsilon := 0.5, delta := 5e-7, release := 'model')",
        "CREATE TABLE predicted AS SELECT doc_id, any_value(label) AS label, dp_predict('model', list(token)) AS p, "
        "dp_predict_class('model', list(token)) AS class FROM test GROUP BY doc_id",
        "SELECT round(avg((class = label::VARCHAR)::INT), 3) FROM predicted",
        "SELECT count(*) FROM dp_roc('predicted', label := 'label', score := 'p', epsilon := 1)",
        "SELECT round(auc, 3) FROM dp_auc('predicted', label := 'label', score := 'p', epsilon := 1, "
        "method := 'smooth')",
    ]
    return [f"{text};  -- {connection.execute(text).fetchall()[0][0]}" for text in statements]


class Cells:
    """What was measured, over the folds: one list of numbers per set, kind, filter, epsilon and measure."""

    def __init__(self) -> None:
        self._values: dict[tuple[Any, ...], list[float]] = defaultdict(list)

    def add(self, name: str, kind: str, label: str, epsilon: float | None, line: Mapping[str, float]) -> None:
        """Take in what one fold gave."""
        for measure_name, value in line.items():
            self._values[name, kind, label, epsilon, measure_name].append(value)

    def write(self, path: Path) -> None:
        """Write means over the folds, and their standard errors."""
        lines = []
        for key, values in self._values.items():
            error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            lines.append(dict(zip(FILTER_COLUMNS, (*key, len(values), float(np.mean(values)), error), strict=True)))
        write_csv(path, FILTER_COLUMNS, lines)


Job = tuple[str, str, float | None, Callable[[Fold], dict[str, Any]]]


def jobs(epsilons: Sequence[float]) -> list[Job]:
    """Return the cells of a fold: kind of the line, filter, epsilon (None without noise), and how to measure it."""
    found: list[Job] = [
        ("noiseless", given.label, None, partial(measure_noiseless, given=given)) for given in noiseless()
    ]
    for epsilon in epsilons:
        whole = [Filter("", "pure"), Filter("", "gaussian")]
        for given in [*private_filters(), *whole, *references()]:
            found.append(("fit", given.label, epsilon, partial(measure, given=given, epsilon=epsilon)))
        for given in [*private_filters(), *filter_settings(), *references()]:
            if given.method != "exact":
                found.append(("filter", given.label, epsilon, partial(measure_filter, given=given, epsilon=epsilon)))
        for filtered, label in ((True, "total_count gaussian k = 100"), (False, "all words")):
            found.append(("settings", label, epsilon, partial(measure_fits, epsilon=epsilon, filtered=filtered)))
    return found


def gather(data: Path, only: Sequence[str]) -> list[str]:
    """Return the sets that are there; say which are absent."""
    found = []
    for name in SETS:
        if only and name not in only:
            continue
        if (data / "text" / f"{name}_raw.parquet").exists():
            found.append(name)
        else:
            print(f"skipped {name}: it is not in {data / 'text'}; give --data DIR, the folder above it")
    return found


def write_csv(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow(
                {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in line.items()}
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds text/*.parquet")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "empirical_ml", help="folder of what is written")
    parser.add_argument("--only", nargs="+", default=[], help="these sets")
    parser.add_argument("--quick", action="store_true", help="two folds, one epsilon, few curves; give another --out")
    parser.add_argument("--no-figure", action="store_true", help="leave the figures out (they need matplotlib)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    names = gather(options.data, options.only)
    cells, curves, shown = Cells(), list[dict[str, Any]](), list[str]()
    count, epsilons = (2, EPSILONS[:1]) if options.quick else (FOLDS, EPSILONS)
    todo = jobs(epsilons)
    bar = (TextColumn("{task.description:34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with one_thread(), Progress(*bar, TimeRemainingColumn()) as progress:
        task = progress.add_task("cells", total=len(names) * count * len(todo))
        for name in names:
            folds = list(islice(folds_of(load(options.data, name)), count))
            for fold in folds:
                for kind, label, epsilon, job in todo:
                    cells.add(name, kind, label, epsilon, job(fold))
                    progress.update(task, advance=1, description=name)
                cells.write(options.out / "filters.csv")
            progress.update(task, description=f"{name}: curves")
            curves += curve_lines(name, folds, repeats=2 if options.quick else REPEATS, epsilons=epsilons)
            write_csv(options.out / "curves.csv", CURVE_COLUMNS, curves)
            shown += [f"-- {name}", *in_sql(folds[0])]
    if names:
        (options.out / "statements.sql").write_text("\n".join(shown) + "\n")
        write_report(options.out, figures=not options.no_figure)
    print(f"{len(names)} sets, {count * len(todo)} cells each, {len(curves)} kinds of curves")
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
