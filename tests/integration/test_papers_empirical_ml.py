"""benchmarks/papers/empirical_ml.py: a made-up corpus and a real one, the references' arithmetic, and the tables."""

from __future__ import annotations

import csv
import importlib
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"
RESULTS = FOLDER / "results" / "empirical_ml"
WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
# So much that next to no noise is left.
PLENTY = 1e5


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("empirical_ml", "empirical_ml_report", "dp_sis_report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("empirical_ml")


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_corpus(folder: Path, documents: int = 400) -> None:
    """Write a set of eight words, two of which tell the label, and one that occurs once."""
    generator = np.random.default_rng(2)
    numbers = 3 * np.arange(documents) + 7
    labels = generator.integers(0, 2, documents)
    has = generator.random((documents, len(WORDS))) < 0.1 + 0.05 * np.arange(len(WORDS))
    has[:, 0] |= (labels == 1) & (generator.random(documents) < 0.6)
    has[:, 1] |= (labels == 0) & (generator.random(documents) < 0.4)
    places = [(number, word) for number, row in zip(numbers, has, strict=True) for word, bit in zip(WORDS, row) if bit]  # noqa: B905
    places = [places[place] for place in generator.permutation(len(places))] + [(int(numbers[5]), "once")]
    (folder / "text").mkdir()
    raw = pa.table({"doc_id": pa.array(numbers, pa.int32()), "label": pa.array(labels, pa.int8())})
    pq.write_table(raw.append_column("text", pa.array([""] * documents)), folder / "text" / "sms_spam_raw.parquet")
    of_document = dict(zip(numbers.tolist(), labels.tolist(), strict=True))
    bag = {
        "doc_id": pa.array([number for number, _ in places], pa.int32()),
        "label": pa.array([of_document[int(number)] for number, _ in places], pa.int8()),
        "token": [word for _, word in places],
    }
    pq.write_table(pa.table(bag), folder / "text" / "sms_spam_bow.parquet")


@pytest.fixture
def fold(study: ModuleType, tmp_path: Path) -> Any:
    write_corpus(tmp_path)
    return next(study.folds_of(study.load(tmp_path, "sms_spam")))


def test_rows_in_sql_are_those_that_are_counted(fold: Any) -> None:
    assert fold.corpus.names == WORDS
    connection = fold.context.connection
    counted = connection.execute(
        "SELECT token, count(*) FILTER (label = 1) AS one, count(*) FILTER (label = 0) AS zero FROM rows "
        "WHERE token IS NOT NULL AND token <> 'once' GROUP BY token ORDER BY token"
    ).fetchall()
    points, labels = fold.counts
    assert [(word, *pair) for word, pair in zip(WORDS, points.tolist(), strict=True)] == counted
    assert connection.execute("SELECT count(DISTINCT doc_id) FROM rows").fetchone() == (labels.sum(),) == (360,)
    found = connection.execute("SELECT DISTINCT doc_id FROM test ORDER BY doc_id").fetchnumpy()["doc_id"]
    assert found.tolist() == sorted(fold.corpus.documents[fold.test].tolist())


def test_without_noise_a_call_is_what_the_references_are(study: ModuleType, fold: Any) -> None:
    """A huge epsilon finds the true words and predicts as scikit-learn does; the predictions meet their own labels."""
    for given in (
        study.Filter("difference_count", "laplace", "k", 2),
        study.Filter("total_count", "gaussian", "k", 3),
        study.Filter("total_count", "one_shot", "k", 3),
    ):
        line = study.measure(fold, given, PLENTY)
        exact = study.measure_noiseless(fold, study.Filter(given.score, "exact", "k", given.number))
        assert line["f1"] == 1.0
        assert line["features"] == exact["features"] == given.number
        assert line["naive_bayes accuracy"] == pytest.approx(exact["naive_bayes accuracy"])
        assert line["naive_bayes auc"] == pytest.approx(exact["naive_bayes auc"], abs=0.01)
    best = study.measure(fold, study.Filter("difference_count", "laplace", "k", 2), PLENTY)
    assert best["naive_bayes auc"] > 0.7
    assert study.measure_filter(fold, study.Filter("difference_count", "laplace", "k", 2), PLENTY)["precision"] == 1.0
    for method in ("ptt", "noisycut"):
        found = study.not_private(fold, study.Filter("total_count", method, "threshold", 120), PLENTY)
        assert found.tolist() == fold.truth(study.Filter("total_count", method, "threshold", 120)).tolist()
        assert 0 < len(found) < len(WORDS)


def test_a_filter_without_words_predicts_the_majority(study: ModuleType, fold: Any) -> None:
    line = study.measure(fold, study.Filter("total_count", "laplace", "threshold", 5000), 1.0)
    assert (line["features"], line["f1"]) == (0, 1.0)
    assert line["naive_bayes accuracy"] == line["logistic_regression accuracy"] == fold.majority
    assert line["naive_bayes auc"] == 0.5


def test_the_whole_study_on_a_small_corpus(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path)
    monkeypatch.setattr(study, "BEST", 3)
    monkeypatch.setattr(study, "THRESHOLD", 40)
    kept = {("noiseless", "all words exact"), ("fit", "total_count gaussian k = 3"), ("settings", "all words")}
    kept |= {("filter", "difference_count gaussian ≥ 40"), ("fit", "all words pure"), ("fit", "total_count ptt ≥ 40")}
    jobs = study.jobs
    monkeypatch.setattr(study, "jobs", lambda epsilons: [job for job in jobs(epsilons) if (job[0], job[1]) in kept])
    monkeypatch.setattr(study, "ROC_SETTINGS", {name: study.ROC_SETTINGS[name] for name in study.ROC_IN_SQL})
    monkeypatch.setattr(study, "in_sql", lambda fold: ["SELECT 1;"])
    study.main(["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--no-figure"])
    told = capsys.readouterr().out
    assert "skipped tweets_sentiment140_7304" in told
    assert "1 sets, 12 cells each" in told
    filters = lines(tmp_path / "out" / "filters.csv")
    assert {(line["kind"], line["filter"]) for line in filters} == kept
    assert {line["folds"] for line in filters} == {"2"}
    curves = lines(tmp_path / "out" / "curves.csv")
    assert len(curves) == 3 * (3 + 4 + 1)
    assert all(0.0 <= float(line["auc_error"]) <= 1.0 for line in curves)
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| NOT PRIVATE: total_count ptt ≥ 40 |" in table
    assert "| SMS | 1.0 | 0.023 |" in table


def test_real_messages(study: ModuleType) -> None:
    if not (study.DATA / "text" / "sms_spam_raw.parquet").exists():
        pytest.skip("the data are not in ../shared/data")
    corpus = study.load(study.DATA, "sms_spam")
    assert (corpus.labels.sum(), len(corpus.labels), len(corpus.names)) == (747, 5574, 3964)
    fold = next(study.folds_of(corpus))
    exact = study.measure_noiseless(fold, study.Filter("", "exact"))
    assert exact["naive_bayes auc"] > 0.97
    line = study.measure(fold, study.Filter("", "gaussian"), 1.0)
    assert line["features"] == 3964
    assert 0.85 < line["naive_bayes auc"] < exact["naive_bayes auc"] + 0.01
    statements = study.in_sql(fold)
    assert len(statements) == 6
    assert statements[0].endswith("-- 100")


@pytest.mark.parametrize(
    ("found", "truth", "expected"),
    [
        ("abc", "bcde", (2 / 3, 1 / 2, 4 / 7)),
        ("", "ab", (0.0, 0.0, 0.0)),
        ("ab", "", (0.0, 0.0, 0.0)),
        ("", "", (1.0, 1.0, 1.0)),
    ],
)
def test_overlap(study: ModuleType, found: str, truth: str, expected: Sequence[float]) -> None:
    given = study.overlap(found, truth)
    assert (given["precision"], given["recall"], given["f1"]) == pytest.approx(expected)


def test_true_curve(study: ModuleType) -> None:
    generator = np.random.default_rng(1)
    scores = np.round(generator.random(200), 1)  # with ties
    labels = (generator.random(200) < scores).astype(int)
    fpr, tpr = study.true_curve(scores, labels)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert len(fpr) == len(np.unique(scores)) + 1
    assert study.area_under(fpr, tpr) == pytest.approx(roc_auc_score(labels, scores))


def test_references_come_to_the_true_curve(study: ModuleType) -> None:
    """With a huge epsilon, and finely enough cut, the curves are the true ones; with little they are not."""
    generator = np.random.default_rng(4)
    scores = generator.random(300)
    labels = (generator.random(300) < scores).astype(int)
    given = study.Scored(0, scores, labels, study.true_curve(scores, labels))
    ways = (
        (study.all_thresholds_curve, 1e-7),
        (study.each_score_curve, 1e-7),
        (partial(study.printed_medians_curve, levels=6), 0.01),
    )
    for way, limit in ways:
        assert study.area_between(way(given, 1e9, generator), given.curve) < limit
        assert study.area_between(way(given, 0.01, generator), given.curve) > 0.02


def test_smooth_sensitivity_is_its_definition(study: ModuleType) -> None:
    generator = np.random.default_rng(3)
    for count in (0, 1, 2, 7, 12):
        points = np.sort(generator.random(count))

        def point(place: int, points: Any = points) -> float:
            return 0.0 if place < 1 else 1.0 if place > len(points) else float(points[place - 1])

        middle = (count + 1) // 2
        for beta in (0.05, 0.4, 3.0):
            expected = max(
                math.exp(-distance * beta) * (point(middle + step) - point(middle + step - distance - 1))
                for distance in range(count + 2)
                for step in range(distance + 2)
            )
            assert study.smooth_sensitivity(points, 0.0, 1.0, beta) == pytest.approx(expected)


def test_committed_results_are_whole(study: ModuleType) -> None:
    """Ten folds of both sets, and the claims of the table's summary: what is beaten, and by what."""
    report = importlib.import_module("empirical_ml_report")
    filters = report.Filters(report.read(RESULTS / "filters.csv"))
    curves = report.Curves(report.read(RESULTS / "curves.csv"))
    assert filters.sets == curves.sets == list(study.SETS)
    for name in filters.sets:
        for given in study.private_filters():
            for epsilon in study.EPSILONS:
                shown = f"{epsilon:.4g}"
                assert filters.value(name, "fit", given.label, shown, "f1", "folds") == study.FOLDS
                assert filters.value(name, "filter", given.label, shown, "f1", "folds") == study.FOLDS
        for method in study.ROC_IN_SQL:
            medians = curves.row(name, "logistic", method, "median")
            assert all(
                ours < theirs for ours, theirs in zip(medians, report.PRINTED[name]["RecursiveMedians"], strict=True)
            )
