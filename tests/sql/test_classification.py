"""Classification from end to end: filter, model, prediction, ROC and its views, beside scikit-learn; and rows of every kind."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, precision_recall_curve, roc_auc_score, roc_curve
from sklearn.naive_bayes import BernoulliNB

import dpsql
from dpsql.functions.registry import FUNCTIONS
from dpsql.released.model import LinearClassifier, LinearModel
from support.cases import cases

DOCUMENTS = 900
SPAMMY, PLAIN, RARE = ["win", "cash"], ["lunch", "report"], ["zebra", "quark"]
NAMES = [*SPAMMY, *PLAIN, *RARE]
HUGE = 10**5
CURVE = (
    "FROM dp_roc('scored', label := 'spam', score := 'p', thresholds := 'fixed', n_thresholds := 15, "
    f"epsilon := {HUGE}, dataset := 'mail', release := 'curve')"
)
RIDGE = 2
MODELS = ("bayes", "logit")
LONG = f"features := 'token', row_id := 'doc', names := {NAMES}"


def presence() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return which document has which name, shape (documents, names), and the labels; some documents have none."""
    rng = np.random.default_rng(5)
    spam = rng.random(DOCUMENTS) < 0.4
    rates = np.where(spam[:, np.newaxis], [0.6, 0.5, 0.1, 0.15, 0.02, 0.02], [0.1, 0.15, 0.5, 0.6, 0.02, 0.02])
    return rng.random((DOCUMENTS, len(NAMES))) < rates, spam


def tokens() -> list[tuple[int, bool, str | None]]:
    """Return long rows: a NULL and a token that no list holds in each document, and some tokens twice."""
    x, spam = presence()
    found: list[tuple[int, bool, str | None]] = []
    for doc, (row, label) in enumerate(zip(x.tolist(), spam.tolist(), strict=True)):
        present = [name for name, has in zip(NAMES, row, strict=True) if has]
        found += [(doc, label, token) for token in (None, "and", *present, *present[: doc % 3])]
    return found


def fill(con: Any, name: str = "mail") -> None:
    long = pl.DataFrame(tokens(), schema=["doc", "spam", "token"], orient="row")
    con.register("frame", long.to_arrow())
    con.execute(f"CREATE TABLE {name} AS FROM frame")
    con.unregister("frame")


def fit(con: Any, model: str, source: str = "mail", more: str = "features := release('words')", **kept: Any) -> Any:
    """Fit one of the two models and release it under its name."""
    function = "dp_naive_bayes" if model == "bayes" else "dp_logistic_regression"
    own = "" if model == "bayes" else f", lower := 0, upper := 1, regularization := {RIDGE}"
    text = f"target := 'spam', epsilon := {HUGE}, {more}{own}, release := '{kept.get('release', model)}'"
    return con.execute(f"FROM {function}('{source}', {text})").fetchall()


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the documents in each layout, a filter, two models, their scores and ROC curves."""
    made = dpsql.connect()
    fill(made)
    x, spam = presence()
    wide = pl.DataFrame({"doc": range(DOCUMENTS), **dict(zip(NAMES, x.T, strict=True)), "spam": spam})
    made.register("frame", wide.to_arrow())
    made.execute("CREATE TABLE wide AS FROM frame")
    made.execute(
        f"FROM dp_score_filter('mail', target := 'spam', {LONG}, threshold := 100, epsilon := {HUGE}, release := 'words')"
    ).fetchall()
    for model in MODELS:
        fit(made, model)
    made.execute(
        "CREATE TABLE scored AS SELECT doc, any_value(spam) AS spam, dp_predict('bayes', list(token)) AS p, "
        "dp_predict('logit', list(token)) AS q FROM mail GROUP BY doc ORDER BY doc"
    )
    made.execute(CURVE).fetchall()
    yield made
    made.close()


def column(con: Any, statement: str) -> list[Any]:
    return [row[0] for row in con.execute(statement).fetchall()]


def charged(con: Any) -> int:
    return int(column(con, "SELECT count(*) FROM dp_ledger() WHERE kind <> 'replay'")[0])


def chosen(con: Any) -> list[str]:
    """Return the features of both models, in their order."""
    names = dpsql.install(con).model("bayes").feature_names_in_
    assert names.tolist() == dpsql.install(con).model("logit").feature_names_in_.tolist()
    return list(names)


def probabilities(model: str, names: list[str]) -> np.ndarray[Any, Any]:
    """Return what scikit-learn predicts of every document, from some of the names."""
    x, spam = presence()
    x = x[:, [NAMES.index(name) for name in names]].astype(float)
    if model == "bayes":
        fitted: Any = BernoulliNB().fit(x, spam)
    else:
        # Long rows are bounded by their largest absolute value: middle 0; with the intercept no row is longer than 1.
        x = np.column_stack([np.ones(len(x)), x]) / math.sqrt(len(names) + 1)
        fitted = LogisticRegression(C=1 / RIDGE, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, spam)
    found: np.ndarray[Any, Any] = fitted.predict_proba(x)[:, 1]
    return found


def test_the_filter_finds_the_words_that_tell(con: Any) -> None:
    x, spam = presence()
    gaps = np.abs(x[spam].sum(axis=0) - x[~spam].sum(axis=0))
    telling = [name for name, gap in zip(NAMES, gaps, strict=True) if gap >= 100]
    assert set(telling) >= {"win", "lunch", "report"}
    assert sorted(chosen(con)) == sorted(telling)
    assert column(con, "SELECT dataset FROM dp_ledger() WHERE kind = 'release'") == ["mail"] * 4


LAYOUTS = {
    "list of names": "SELECT dp_predict{c}('{m}', list(token)) FROM mail GROUP BY doc ORDER BY doc",
    "rows": "SELECT dp_predict{c}('{m}', wide) FROM wide ORDER BY doc",
    "struct": "SELECT dp_predict{c}('{m}', {{{fields}}}) FROM wide ORDER BY doc",
    "vector": "SELECT dp_predict{c}('{m}', [{casts}]::DOUBLE[]) FROM wide ORDER BY doc",
    "array": "SELECT dp_predict{c}('{m}', [{casts}]::FLOAT[{n}]) FROM wide ORDER BY doc",
}


@cases("model", MODELS, quick=1)
@cases("layout", LAYOUTS)
def test_every_layout_predicts_what_scikit_learn_does(con: Any, model: str, layout: str) -> None:
    names = chosen(con)
    before = charged(con)
    parts = {
        "m": model,
        "n": len(names),
        "fields": ", ".join(f"'{name}': {name}" for name in reversed(names)),
        "casts": ", ".join(f"{name}::INTEGER" for name in names),
    }
    found = column(con, LAYOUTS[layout].format(c="", **parts))
    exact = probabilities(model, names)
    assert found == pytest.approx(exact, abs=2e-3)
    classes = column(con, LAYOUTS[layout].format(c="_class", **parts))
    assert classes == ["true" if p > 0.5 else "false" for p in found]
    assert accuracy_score(presence()[1], [text == "true" for text in classes]) > 0.8
    assert charged(con) == before


@pytest.mark.parametrize("model", MODELS)
def test_a_model_of_wide_vector_and_long_rows_is_the_same(con: Any, model: str) -> None:
    """Boolean columns need no naming; lower is -1 where rows are not long, so that both have the middle 0."""
    con.execute("CREATE OR REPLACE VIEW unnamed AS SELECT * EXCLUDE (doc) FROM wide")
    con.execute(
        f"CREATE OR REPLACE VIEW vectors AS SELECT spam, [{', '.join(f'{n}::INT' for n in NAMES)}] AS x FROM wide"
    )
    made: dict[str, dict[str, float]] = {}
    for source, more in (
        ("mail", LONG),
        ("unnamed", "n_features := NULL"),
        ("wide", f"features := {NAMES}"),
        ("vectors", f"features := 'x', names := {NAMES}"),
    ):
        function = "dp_naive_bayes" if model == "bayes" else "dp_logistic_regression"
        own = "" if model == "bayes" else f", lower := -1, upper := 1, regularization := {RIDGE}"
        if model == "bayes" and source == "vectors":
            own = ", present_above := 0"
        rows = con.execute(f"FROM {function}('{source}', target := 'spam', epsilon := {HUGE}, {more}{own})").fetchall()
        made[source] = {row[0]: row[1] for row in rows}
        assert list(made[source]) == ["intercept", *NAMES]
    for source in made:
        assert made[source] == pytest.approx(made["mail"], abs=0.02), source


def test_a_filter_takes_wide_booleans_without_naming_them(con: Any) -> None:
    con.execute("CREATE OR REPLACE VIEW unnamed AS SELECT * EXCLUDE (doc) FROM wide")
    rows = con.execute(
        f"FROM dp_score_filter('unnamed', target := 'spam', threshold := 100, epsilon := {HUGE})"
    ).fetchall()
    assert sorted(row[1] for row in rows) == sorted(chosen(con))


def rounded(p: Any, thresholds: list[float]) -> np.ndarray[Any, Any]:
    ends = np.array(sorted(thresholds))
    found: np.ndarray[Any, Any] = ends[np.searchsorted(ends, p, side="right") - 1]
    return found


def scores(con: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = con.execute("SELECT spam, p FROM scored ORDER BY doc").fetchnumpy()
    return np.asarray(found["spam"], dtype=bool), np.asarray(found["p"], dtype=float)


def test_the_curve_of_the_scores(con: Any) -> None:
    y, p = scores(con)
    rows = con.execute(CURVE).fetchall()
    thresholds = [row[0] for row in rows[1:]]
    assert thresholds == [place / 16 for place in reversed(range(16))]
    fpr, tpr, found = roc_curve(y, rounded(p, thresholds), drop_intermediate=False)
    exact = dict(zip(found.tolist(), zip(fpr.tolist(), tpr.tolist(), strict=True), strict=True))
    for threshold, false, true, *_ in rows:
        if threshold in exact:  # scikit-learn has those that some score takes
            assert (false, true) == pytest.approx(exact[threshold], abs=1e-3)
    [(auc,)] = con.execute(
        f"SELECT auc FROM dp_auc('scored', label := 'spam', score := 'p', epsilon := {HUGE}, dataset := 'mail')"
    ).fetchall()
    assert auc == pytest.approx(roc_auc_score(y, p), abs=2e-3)
    assert auc > 0.85


@pytest.mark.parametrize("by", ["name", "number", "name and dataset"])
def test_precision_and_recall_of_the_released_curve(con: Any, by: str) -> None:
    before = charged(con)
    rows = con.execute(f"FROM dp_precision_recall({key(con, by)})").fetchall()
    y, p = scores(con)
    precision, recall, found = precision_recall_curve(y, rounded(p, [row[0] for row in rows]))
    exact = dict(zip(found.tolist(), zip(precision.tolist(), recall.tolist(), strict=False), strict=False))
    assert len(exact) > 5
    assert [row[1:] for row in rows if row[0] in exact] == [
        pytest.approx(exact[row[0]], abs=1e-3) for row in rows if row[0] in exact
    ]
    assert charged(con) == before


@pytest.mark.parametrize("by", ["name", "number", "name and dataset"])
def test_calibration_of_the_released_curve(con: Any, by: str) -> None:
    before = charged(con)
    rows = con.execute(f"FROM dp_calibration({key(con, by)})").fetchall()
    y, p = scores(con)
    assert [row[:2] for row in rows] == [(place / 16, (place + 1) / 16) for place in range(16)]
    assert [row[2] for row in rows] == [(row[0] + row[1]) / 2 for row in rows]
    held = [((p >= low) & ((p < high) | (high == 1))) for low, high in (row[:2] for row in rows)]
    assert [row[4] for row in rows] == pytest.approx([some.sum() for some in held], abs=0.01)
    full = [(row[3], y[some].mean()) for row, some in zip(rows, held, strict=True) if some.any()]
    assert [rate for rate, _ in full] == pytest.approx([exact for _, exact in full], abs=1e-3)
    true, _ = calibration_curve(y, p, n_bins=16)
    assert [rate for rate, _ in full] == pytest.approx(true, abs=1e-3)
    assert charged(con) == before


@cases("by", ["name", "number", "name and dataset"], quick=2)
def test_area_of_the_released_curve(con: Any, by: str) -> None:
    before = charged(con)
    [row] = con.execute(f"FROM dp_auc(release := {key(con, by)})").fetchall()
    points = con.execute(CURVE).fetchall()
    auc, error, lower, upper, verdict = row
    assert auc == pytest.approx(np.trapezoid([tpr for _, _, tpr, *_ in points], [fpr for _, fpr, *_ in points]))
    assert (error, verdict) == (None, "clear")
    y, p = scores(con)
    assert lower <= roc_auc_score(y, p) <= upper
    assert upper - lower < 0.2
    with dpsql.Context(con) as context:
        name: Any = int(key(con, by)) if by == "number" else "curve"
        assert list(context.dp_auc(release=name).to_pylist()[0].values()) == pytest.approx(list(row), nan_ok=True)
        with pytest.raises(dpsql.SourceError, match="S009"):
            context.dp_auc(label="spam", score="p", epsilon=1)
    assert charged(con) == before


@pytest.mark.parametrize("name", ["'nothing'", "99999", "NULL", "'bayes'", "'curve', dataset := 'other'"])
def test_area_of_what_is_no_curve(con: Any, name: str) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-P030"):
        con.execute(f"FROM dp_auc(release := {name})").fetchall()


def key(con: Any, by: str) -> str:
    if by == "number":
        [(number,)] = con.execute("SELECT min(sequence) FROM dp_ledger() WHERE release = 'curve'").fetchall()
        return str(number)
    return "'curve'" if by == "name" else "'curve', dataset := 'mail'"


@cases("view", ["dp_precision_recall", "dp_calibration"])
@cases("name", ["'nothing'", "99999", "NULL", "true", "'bayes'", "'words'", "'curve', dataset := 'other'"])
def test_views_of_what_is_no_curve(con: Any, view: str, name: str) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-P030"):
        con.execute(f"FROM {view}({name})").fetchall()


def test_two_datasets_with_one_name() -> None:
    with dpsql.Context() as context:
        con = context.connection
        fill(con)
        con.execute("CREATE TABLE scored AS SELECT doc, any_value(spam) AS spam, doc / 900 AS p FROM mail GROUP BY doc")
        for place, dataset in enumerate(("one", "two")):
            con.execute(
                "FROM dp_roc('scored', label := 'spam', score := 'p', thresholds := 'fixed', epsilon := 10, "
                f"n_thresholds := {3 + place}, dataset := '{dataset}', release := 'r')"
            ).fetchall()
            fit(con, "bayes", more=f"{LONG}, dataset := '{dataset}'", release="m")
        for made in (
            "FROM dp_precision_recall('r')",
            "FROM dp_calibration('r')",
            "FROM dp_auc(release := 'r')",
            "SELECT dp_predict('m', ['win'])",
            "SELECT dp_predict_class('m', ['win'])",
        ):
            with pytest.raises(duckdb.Error, match=r"DPSQL-P055.*more than one dataset.*dataset :="):
                con.execute(made).fetchall()
            assert con.execute(made[:-1] + ", dataset := 'two')").fetchall()
        assert len(context.dp_precision_recall("r", dataset="two")) == 5
        assert len(context.dp_calibration("r", dataset="one")) == 4
        assert len(context.dp_auc(release="r", dataset="one")) == 1
        with pytest.raises(dpsql.ParameterError, match="P055"):
            context.dp_calibration("r")


def test_dp_predict_of_a_context(con: Any) -> None:
    """Of long rows a row per row id; on a table and on frames; a struct of the features where rows are wide."""
    names = chosen(con)
    with dpsql.Context(con) as context:
        for model in MODELS:
            exact = probabilities(model, names)
            long = pl.DataFrame(tokens(), schema=["doc", "spam", "token"], orient="row")
            for source in ("mail", long, long.to_arrow()):
                found: Any = pl.from_arrow(context.dp_predict(model, source))
                assert found.columns == ["doc", "prediction", "probability"]
                found = found.sort("doc")
                assert found["doc"].to_list() == list(range(DOCUMENTS))
                assert found["probability"].to_list() == pytest.approx(exact, abs=2e-3)
                assert found["prediction"].to_list() == [p > 0.5 for p in found["probability"]]
            with pytest.raises(dpsql.SourceError, match="S002"):
                context.dp_predict(model, "wide")
        fitted = context.dp_naive_bayes("wide", target="spam", features=names, epsilon=HUGE)
        found = pl.from_arrow(context.dp_predict(fitted, pl.from_arrow(con.sql("FROM wide").to_arrow_table())))
        assert {"doc", "spam", *NAMES, "prediction", "probability"} == set(found.columns)
        assert found.sort("doc")["probability"].to_list() == pytest.approx(probabilities("bayes", names), abs=2e-3)


def test_dp_predict_of_long_rows_with_values(con: Any) -> None:
    """A cell of 0, NULL or NaN is as good as none; also where a document has no other."""
    con.execute(
        "CREATE OR REPLACE TABLE valued AS SELECT *, CASE WHEN token = 'and' THEN 0.0 ELSE 2.5 END AS v FROM mail"
    )
    with dpsql.Context(con) as context:
        release = context.dp_naive_bayes(
            "valued", target="spam", features="token", row_id="doc", value="v", names=NAMES, epsilon=HUGE
        )
        cells = [
            (1, "win", 1.0),
            (1, "lunch", 0.0),
            (2, "win", 0.0),
            (3, "cash", math.nan),
            (4, "cash", None),
            (5, None, 1.0),
        ]
        frame = pl.DataFrame(cells, schema=["doc", "token", "v"], orient="row", strict=False)
        found: Any = pl.from_arrow(context.dp_predict(release, frame)).sort("doc")
        only, none = (
            context.model(release).predict_proba(np.eye(1, len(NAMES), place))[0, 1] for place in (0, len(NAMES))
        )
        assert found["probability"].to_list() == pytest.approx([only, none, none, none, none])


LEVELS: dict[str, tuple[str, str, tuple[Any, Any], tuple[str, str]]] = {
    "boolean": ("spam", "", (False, True), ("false", "true")),
    "boolean, turned": ("NOT spam", "target_levels := [true, false]", (True, False), ("true", "false")),
    "0 and 1": ("spam::INTEGER", "", (0, 1), ("0", "1")),
    "numbers": ("CASE WHEN spam THEN 3.5 ELSE 7 END", "target_levels := [7, 3.5]", (7, 3.5), ("7", "3.5")),
    "text": (
        "CASE WHEN spam THEN 'bad''s' ELSE 'ok' END",
        "target_levels := ['ok', 'bad''s']",
        ("ok", "bad's"),
        ("ok", "bad's"),
    ),
}


@cases("model", MODELS, quick=1)
@cases("kind", LEVELS)
def test_classes_of_every_kind_of_level(con: Any, model: str, kind: str) -> None:
    expression, levels, classes, texts = LEVELS[kind]
    con.execute(f"CREATE OR REPLACE VIEW named AS SELECT * REPLACE ({expression} AS spam) FROM wide")
    more = f"features := {NAMES}, dataset := '{kind}'{levels and ', ' + levels}"
    fit(con, model, "named", more, release=f"{model} of {kind}")
    fitted = dpsql.install(con).model(f"{model} of {kind}")
    assert isinstance(fitted, LinearClassifier)
    assert fitted.classes_.tolist() == list(classes)
    assert [type(level) is bool for level in fitted.classes_.tolist()] == [type(level) is bool for level in classes]
    x, spam = presence()
    rows = x.astype(float)
    odds, both, found = fitted.decision_function(rows), fitted.predict_proba(rows), fitted.predict(rows)
    assert both.shape == (DOCUMENTS, 2)
    assert both.sum(axis=1) == pytest.approx(np.ones(DOCUMENTS))
    assert both[:, 1] == pytest.approx(1 / (1 + np.exp(-odds)))
    assert odds == pytest.approx(rows @ fitted.coef_ + fitted.intercept_)
    assert found.tolist() == [classes[int(score > 0)] for score in odds]
    assert (found == np.array(classes, dtype=object)[spam.astype(int)]).mean() > 0.8
    shown = column(con, f"SELECT dp_predict_class('{fitted.name}', wide) FROM wide ORDER BY doc")
    assert shown == [texts[int(score > 0)] for score in odds]
    frame = pl.DataFrame(dict(zip(NAMES, x.T, strict=True)))
    for given in (frame, frame.to_arrow()):
        assert fitted.predict_proba(given) == pytest.approx(both)
        assert fitted.predict(given).tolist() == found.tolist()
    again = LinearModel.from_json(fitted.to_json())
    assert type(again) is LinearClassifier
    assert again.to_json() == fitted.to_json()
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert (again.binary, again.kind) == (fitted.binary, fitted.kind)
    assert again.predict(rows).tolist() == found.tolist()


@cases("text", ["", "{}", "null", "[]", '{"model": "naive_bayes"}', '{"model": "tree"}'])
def test_json_that_is_no_model(text: str) -> None:
    with pytest.raises(dpsql.ParameterError, match="P054"):
        LinearModel.from_json(text)


def test_missing_features_and_rows(con: Any) -> None:
    """Of naive Bayes what is missing is absent; of logistic regression it leaves no prediction. No row, no prediction."""
    names = chosen(con)
    absent = dict.fromkeys(names, "false")
    rows = {
        "zero": absent,
        "NULL": {**absent, "win": "NULL::BOOLEAN"},
        "NaN": {**absent, "win": "'nan'::DOUBLE"},
        "five": {**absent, "win": "5"},
        "one": {**absent, "win": "1"},
    }
    found = {}
    for model, (kind, row) in itertools.product(MODELS, rows.items()):
        text = ", ".join(f"'{name}': {value}" for name, value in row.items())
        given = con.execute(
            f"SELECT dp_predict('{model}', r), dp_predict_class('{model}', r) FROM (SELECT {{{text}}} AS r)"
        ).fetchall()
        found[model, kind] = given[0]
    assert found["bayes", "NULL"] == found["bayes", "NaN"] == found["bayes", "zero"]
    assert found["bayes", "five"] == found["bayes", "one"]
    assert found["logit", "NULL"] == found["logit", "NaN"] == (None, None)
    assert found["logit", "five"] == found["logit", "one"], "outside of the bounds it counts as the bound"
    for model in MODELS:
        assert found[model, "one"][0] > found[model, "zero"][0]
        kind = ", ".join(f"{name} BOOLEAN" for name in names)
        for missing in (f"NULL::STRUCT({kind})", "NULL::VARCHAR[]"):
            statement = f"SELECT dp_predict('{model}', {missing}), dp_predict_class('{model}', {missing})"
            assert con.execute(statement).fetchall() == [(None, None)], (model, missing)
        mixed = "VALUES (1, ['win']), (2, NULL), (3, [])"
        both = con.execute(
            f"SELECT dp_predict('{model}', w), dp_predict_class('{model}', w) FROM ({mixed}) AS v(i, w) ORDER BY i"
        ).fetchall()
        assert both == [found[model, "one"], (None, None), found[model, "zero"]]
    # In Python NaN says that there is no probability, and None that there is no class.
    one = dpsql.install(con).model("logit")
    assert isinstance(one, LinearClassifier)
    gap = np.full((1, len(names)), math.nan)
    assert np.isnan(one.predict_proba(gap)).all()
    assert one.predict(gap).tolist() == [None]


@cases("model", MODELS, quick=1)
def test_lists_of_names(con: Any, model: str) -> None:
    """Unknown names, NULL and long ones count for nothing, a name that comes twice is there once; no name is a row of zeros."""
    lists = {
        "zero": [
            "[]::VARCHAR[]",
            "[NULL]::VARCHAR[]",
            "['and', 'Win', '']",
            f"['{'x' * 10_000}']",
            "list_slice(['a'], 2, 3)",
        ],
        "win": ["['win']", "['win', 'win']", "['win', NULL, 'and']", "list_append(['win'], repeat('y', 10000))"],
    }
    found = {
        kind: [column(con, f"SELECT dp_predict('{model}', {text})")[0] for text in texts]
        for kind, texts in lists.items()
    }
    fitted = dpsql.install(con).model(model)
    assert isinstance(fitted, LinearClassifier)
    names = chosen(con)
    for kind, values in found.items():
        row = np.array([[float(name == kind) for name in names]])
        assert values == pytest.approx([fitted.predict_proba(row)[0, 1]] * len(values), rel=1e-12)


ODD_NAMES = ["it's", 'say "x"', "Ünïcödé ☃", "semi;colon", "$1", "new\nline", "select", "a]b", "{c}"]


@cases("model", MODELS, quick=1)
def test_odd_names_and_columns(model: str) -> None:
    """Of words, columns, datasets and releases; words are told apart by case."""
    with dpsql.Context() as context:
        words = [*ODD_NAMES, "WIN", "win"]
        cells = [
            (doc, doc % 2 == 1, word) for doc in range(400) for place, word in enumerate(words) if (doc + place) % 2
        ]
        frame = pl.DataFrame(cells, schema=["doc id", 'la"bel', "wo'rd"], orient="row")
        layout = {"target": 'la"bel', "row_id": "doc id", "features": "wo'rd"}
        chosen = context.dp_score_filter(
            frame,
            **layout,
            names=words,
            threshold=50,
            max_features_per_row=20,
            epsilon=HUGE,
            dataset="it's",
            release="f'",
        )
        assert set(chosen.features) == set(words)
        fit = context.dp_naive_bayes if model == "bayes" else context.dp_logistic_regression
        more = {"max_features_per_row": 20} if model == "bayes" else {"lower": 0, "upper": 1, "row_norm": 5}
        fit(frame, target='la"bel', features=chosen, epsilon=HUGE, dataset="it's", release="m\"'", **more)
        found: Any = pl.from_arrow(context.dp_predict("m\"'", frame)).sort("doc id")
        assert found["prediction"].to_list() == [doc % 2 == 1 for doc in range(400)]
        scores = (
            frame.group_by("doc id")
            .agg(pl.col('la"bel').first())
            .join(found, on="doc id")
            .rename({"probability": "p'"})
        )
        context.dp_roc(scores, label='la"bel', score="p'", epsilon=HUGE, dataset="it's", release="r';")
        assert len(context.dp_precision_recall("r';", dataset="it's")) > 1
        assert context.dp_auc(scores, label='la"bel', score="p'", epsilon=HUGE).to_polars()["auc"][0] > 0.99


@cases("smoothing", [1e-300, 1e-17, 1e-12, 1e12, 1e100, 1e308], quick=5)
def test_any_smoothing_is_refused_at_once_or_gives_a_model(con: Any, smoothing: float) -> None:
    before = charged(con)
    for epsilon in (1e-6, 1, HUGE):
        made = f"dp_naive_bayes('wide', target := 'spam', features := {NAMES}, epsilon := {epsilon}, smoothing := {smoothing})"
        try:
            rows = con.execute(f"FROM {made}").fetchall()
        except duckdb.Error as error:
            assert "DPSQL-P050" in str(error)
            assert charged(con) == before
        else:
            assert all(math.isfinite(row[1]) for row in rows)


@cases("plain", ["bayes", "logit", "curve", "words"], quick=1)
def test_a_release_of_the_workflow_is_replayed_and_plotted(con: Any, plain: str) -> None:
    """The name stands for the result: another call under it is refused, the same one costs nothing."""
    pytest.importorskip("matplotlib")
    before = charged(con)
    with dpsql.Context(con) as context:
        if plain in MODELS:
            fit(con, plain)
            with pytest.raises(duckdb.Error, match="DPSQL-P014"):
                fit(con, plain, more="features := ['win'], row_id := NULL")
            function = context.dp_naive_bayes if plain == "bayes" else context.dp_logistic_regression
            own = {} if plain == "bayes" else {"lower": 0, "upper": 1, "regularization": RIDGE}
            release = function("mail", target="spam", features={"release": "words"}, epsilon=HUGE, release=plain, **own)
        elif plain == "curve":
            release = context.dp_roc(
                "scored", label="spam", score="p", thresholds="fixed", n_thresholds=15, epsilon=HUGE,
                dataset="mail", release="curve",
            )  # fmt: skip
        else:
            release = context.dp_score_filter(
                "mail", target="spam", features="token", row_id="doc", names=NAMES, threshold=100, epsilon=HUGE,
                release="words",
            )  # fmt: skip
        assert release.replayed
        assert charged(con) == before
        kinds = ("roc", "precision_recall", "calibration") if plain == "curve" else (None,)
        for kind in kinds:
            assert (release.plot() if kind is None else release.plot(kind=kind)) is not None
        assert charged(con) == before


def test_a_regression_has_no_classes(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE lines AS SELECT i / 100 AS a, 2 * i / 100 AS y FROM range(100) AS r(i)")
    con.execute(
        "FROM dp_linear_regression('lines', target := 'y', features := ['a'], lower := 0, upper := 1, target_lower := 0, "
        "target_upper := 2, epsilon := 10, delta := 1e-6, method := 'ada_ssp', release := 'line')"
    ).fetchall()
    with pytest.raises(duckdb.Error, match=r"DPSQL-P057.*dp_predict for a number"):
        con.execute("SELECT dp_predict_class('line', lines) FROM lines").fetchall()
    assert len(column(con, "SELECT dp_predict('line', lines) FROM lines")) == 100


@cases(
    ("expression", "code"),
    [
        ("dp_predict('nothing', ['win'])", "P030"),
        ("dp_predict_class('nothing', ['win'])", "P030"),
        ("dp_predict('words', ['win'])", "P030"),
        ("dp_predict('curve', ['win'])", "P030"),
        ("dp_predict('bayes', 'win')", "S010"),
        ("dp_predict_class('bayes', 1)", "S010"),
        ("dp_predict('logit', {'win': true})", "S002"),
        ("dp_predict('logit', {'win': 'x', 'cash': 'y', 'lunch': 'z', 'report': 'w'})", "S003"),
        ("dp_predict_class('bayes', ['win'], dataset := 'other')", "P030"),
    ],
)
def test_refused(con: Any, expression: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"SELECT {expression}").fetchall()


def test_models_lists_classifiers(con: Any) -> None:
    rows = con.execute(
        "SELECT model, function, dataset, target, features, status, json FROM dp_models() WHERE model IN ('bayes', 'logit') ORDER BY 1"
    ).fetchall()
    names = chosen(con)
    for (model, function, *others, text), expected in zip(
        rows, ("dp_naive_bayes", "dp_logistic_regression"), strict=True
    ):
        assert function == expected
        assert others == ["mail", "spam", names, "released"]
        record = json.loads(text)
        assert record["classes_"] == [False, True]
        assert record["model"] == function.removeprefix("dp_")
        assert record["n_features_in_"] == len(names)
        assert LinearModel.from_json(text).coef_.tolist() == dpsql.install(con).model(model).coef_.tolist()


@pytest.mark.long
def test_the_workflow_in_python(tmp_path: Any) -> None:
    """Releases stand for their names; what one connection released another one reads."""
    path = str(tmp_path / "mail.duckdb")
    with dpsql.Context(path) as context:
        fill(context.connection)
        context.dp_protect("mail", epsilon=4, delta=1e-6)
        words = context.dp_score_filter(
            "mail", target="spam", features="token", row_id="doc", names=NAMES, k=3, epsilon=1, delta=5e-7
        )
        bayes = context.dp_naive_bayes("mail", target="spam", features=words, epsilon=1, delta=5e-7, release="bayes")
        assert set(bayes.features) == set(words.features)
        scored = pl.from_arrow(context.dp_predict(bayes, "mail"))
        assert isinstance(scored, pl.DataFrame)
        frame = scored.sort("doc").with_columns(spam=pl.Series(presence()[1]))
        curve = context.dp_roc(frame, label="spam", score="probability", epsilon=1, dataset="mail", release="curve")
        table = context.dp_precision_recall(curve)
        assert table == context.dp_precision_recall("curve")
        assert context.dp_calibration(curve.ledger_id) == context.dp_calibration("curve", dataset="mail")
        context.dp_auc(frame, label="spam", score="probability", epsilon=1, dataset="mail")
        with pytest.raises(dpsql.BudgetError):
            context.dp_confusion(frame, label="spam", score="probability", epsilon=1, dataset="mail")
    with dpsql.Context(path) as context:
        assert context.dp_precision_recall("curve") == table
        [(remaining,)] = context.connection.execute("SELECT epsilon_remaining FROM dp_budget()").fetchall()
        assert remaining == 0
        assert context.connection.execute("SELECT dp_predict_class('bayes', ['lunch', 'report'])").fetchall() == [
            ("false",)
        ]


def few_quick(cases: Any, *quick: str) -> list[Any]:
    """Return cases as parameters, of which all but a few are slow."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


# Whatever the rows hold: what each function makes of odd rows, and what of the rows that they stand for.
SCORING = {
    "dp_roc": "thresholds := 'fixed'",
    "dp_roc, recursive": "n_thresholds := 3",
    "dp_roc, smooth": "thresholds := 'smooth_medians', n_thresholds := 3",
    "dp_roc, gaussian": "thresholds := 'fixed', delta := 1e-6",
    "dp_auc": "cells := 4096",
    "dp_confusion": "thresholds := [0.1, 0.5, 0.9]",
}
ODD_SCORES = {
    "outside": (
        "id % 2, [-5, -1e300, '-inf'::DOUBLE, 1.5, 1e300, 'inf'::DOUBLE][1 + id % 6]",
        "id % 2, (id % 6 > 2)::INT",
    ),
    "NaN and NULL": ("id % 2, [NULL, 'nan'::DOUBLE, 0.2][1 + id % 3]", "id % 2, [0.5, 0.5, 0.2][1 + id % 3]"),
    "positives alone": ("1, id / 600", None),
    "negatives alone": ("0, id / 600", None),
    "outside of the levels": (
        "[0, 1, 2, -1, NULL][1 + id % 5], id / 600",
        "CASE WHEN id % 5 < 2 THEN id % 5 END, id / 600",
    ),
    "no level": ("2 + id, id / 600", None),
    "no label": ("NULL::INT, id / 600", None),
    "one score": ("id % 2, 0.3", None),
    "no row": ("0, 0.5 WHERE false", None),
    "one row": ("1, 0.5 WHERE id = 0", None),
    "huge integers": (
        "id % 2, CASE WHEN id % 3 = 0 THEN -9e36::HUGEINT ELSE 9e36::HUGEINT END",
        "id % 2, (id % 3 > 0)::INT",
    ),
}


@cases("kind", ODD_SCORES, quick=2)
@cases("case", few_quick(SCORING, "dp_roc", "dp_auc", "dp_confusion"))
def test_no_score_and_no_label_stops_a_curve(con: Any, case: str, kind: str) -> None:
    function = case.partition(",")[0]
    odd, plain = ODD_SCORES[kind]
    answers = []
    for number, (rows, epsilon) in enumerate(((odd, 1), (odd, HUGE), (plain or odd, HUGE))):
        name = f"odd_{number}"
        values, _, where = rows.partition(" WHERE ")
        con.execute(
            f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM (SELECT {values} FROM range(600) AS r(id)"
            f"{where and ' WHERE ' + where}) AS v(y, p)"
        )
        given = f"label := 'y', score := 'p', epsilon := {epsilon}, {SCORING[case]}, dataset := 'odd', release := '{case} {kind} {number}'"
        answers.append(con.execute(f"FROM {function}('{name}', {given})").fetchall())
        rates = [value for row in answers[-1] for value in row if isinstance(value, (int, float))]
        assert all(value >= 0 for value in rates)
        if function == "dp_roc":
            assert answers[-1][0][:3] == (math.inf, 0, 0)
            assert answers[-1][-1][:3] == (0, 1, 1)
            for view in ("dp_precision_recall", "dp_calibration"):
                assert con.execute(f"FROM {view}('{case} {kind} {number}')").fetchall()
        elif function == "dp_auc":
            answers[-1] = [row[:1] for row in answers[-1]]
            assert answers[-1][0][0] is None or rates[0] <= 1
    _, sure, expected = answers
    if plain is not None and case not in ("dp_roc, recursive", "dp_roc, smooth"):  # where ties leave thresholds open
        for found, exact in zip(sure, expected, strict=True):
            assert found == pytest.approx(exact, abs=0.02)
    if function == "dp_auc" and kind not in ("outside", "NaN and NULL", "outside of the levels", "huge integers"):
        assert sure[0][0] == pytest.approx(0.5, abs=0.02)


COUNTING = {
    "filter by threshold": ("dp_score_filter", "threshold := 20"),
    "filter, gaussian": ("dp_score_filter", "threshold := 20, delta := 1e-6"),
    "filter, svt": ("dp_score_filter", "threshold := 20, method := 'svt', cutoff := 3"),
    "filter, cluster": ("dp_score_filter", "method := 'cluster'"),
    "filter of k": ("dp_score_filter", "k := 2"),
    "filter by gain": ("dp_score_filter", "k := 1, score := 'information_gain', n_max := 1000"),
    "filter, private names": ("dp_score_filter", "k := 2, vocabulary := 'private', delta := 1e-6"),
    "naive bayes": ("dp_naive_bayes", "smoothing := 1"),
    "naive bayes, gaussian": ("dp_naive_bayes", "delta := 1e-6"),
    "logistic": ("dp_logistic_regression", "lower := 0, upper := 1, regularization := 2"),
    "logistic, own ridge": ("dp_logistic_regression", "lower := 0, upper := 1, delta := 1e-6"),
}
BASE = "SELECT id, id % 2 AS y, CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END AS token FROM range(600) AS r(id)"
# Rows beside those of BASE that change nothing, but the number of rows.
BESIDE = {
    "NULL token": "SELECT id, id % 2, NULL FROM range(600) AS r(id)",
    "10 kB": "SELECT id, id % 2, repeat('x', 10000) FROM range(600) AS r(id) WHERE id < 200",
    "outside of the levels": "SELECT 1000 + id, [2, -1, NULL][1 + id % 3], 'c' FROM range(600) AS r(id)",
    "no row id": "SELECT NULL, id % 2, 'c' FROM range(600) AS r(id)",
    "twice": BASE,
}
# Tables of their own.
ALONE = {
    "no row": f"FROM ({BASE}) WHERE id < 0",
    "one row": f"FROM ({BASE}) WHERE id = 7",
    "positives alone": f"FROM ({BASE}) WHERE y = 1",
    "negatives alone": f"FROM ({BASE}) WHERE y = 0",
    "outside of the levels alone": f"SELECT * REPLACE (y + 5 AS y) FROM ({BASE})",
    "no label": f"SELECT * REPLACE (NULL::INT AS y) FROM ({BASE})",
    "all-zero documents": f"SELECT * REPLACE (NULL::VARCHAR AS token) FROM ({BASE})",
    "10 kB alone": f"SELECT * REPLACE (repeat('x', 10000) AS token) FROM ({BASE}) WHERE id < 100",
    "empty token": f"SELECT * REPLACE ('' AS token) FROM ({BASE})",
}


def counting(con: Any, case: str, epsilon: float) -> list[tuple[Any, ...]]:
    """Run a function on the long rows of `odd`; the answer is well formed."""
    function, more = COUNTING[case]
    names = "" if "private" in case else ", names := ['a', 'b', 'c']"
    given = f"target := 'y', features := 'token', row_id := 'id'{names}, epsilon := {epsilon}, {more}"
    found: list[tuple[Any, ...]] = con.execute(f"FROM {function}('odd', {given})").fetchall()
    if function == "dp_score_filter":
        assert [row[0] for row in found] == list(range(1, len(found) + 1))
        assert len({row[1] for row in found}) == len(found)
        assert "private" in case or {row[1] for row in found} <= {"a", "b", "c"}
        assert all(value is None or math.isfinite(value) for row in found for value in row[2:4])
    else:
        assert [row[0] for row in found] == ["intercept", "a", "b", "c"]
        assert all(math.isfinite(row[1]) for row in found)
    return found


@cases("rows", BESIDE, quick=1)
@cases("case", few_quick(COUNTING, "filter, gaussian", "naive bayes", "logistic"))
def test_odd_tokens_and_labels_change_nothing(con: Any, case: str, rows: str) -> None:
    con.execute(f"CREATE OR REPLACE TABLE odd AS {BASE} UNION ALL {BESIDE[rows]}")
    counting(con, case, 1)
    found = counting(con, case, HUGE)
    if "private" in case and rows == "10 kB":
        assert {row[1] for row in found} <= {"a", "b", "x" * 10_000}
        return
    con.execute(f"CREATE OR REPLACE TABLE odd AS {BASE}")
    plain = counting(con, case, HUGE)
    if COUNTING[case][0] == "dp_score_filter":
        if case not in ("filter by gain", "filter, cluster"):  # both names tell all of the label; a cluster has one
            assert {row[1] for row in found} == {row[1] for row in plain} == {"a", "b"}
    elif case != "logistic, own ridge":  # at such an epsilon next to none, and the label is told exactly
        assert [row[1] for row in found] == pytest.approx([row[1] for row in plain], abs=0.1)


@cases("rows", ALONE, quick=3)
@cases("case", few_quick(COUNTING, "filter, private names", "naive bayes", "logistic"))
def test_no_token_and_no_label_stops_a_call(con: Any, case: str, rows: str) -> None:
    con.execute(f"CREATE OR REPLACE TABLE odd AS {ALONE[rows]}")
    for epsilon in (1, HUGE):
        counting(con, case, epsilon)


class PlantedError(Exception):
    """Its text is secret."""


@cases("part", ["turn", "prepare", "draw"], quick=1)
@cases("error", [PlantedError("SECRET-31337"), KeyboardInterrupt()], ids=["own", "interrupt"])
def test_a_private_vocabulary_that_fails_is_charged_once(
    con: Any, monkeypatch: pytest.MonkeyPatch, part: str, error: BaseException
) -> None:
    """Long rows are counted twice, with a draw in between: whatever fails there, the whole price stands."""
    failing = FUNCTIONS["dp_score_filter"].call

    def fail(*given: Any) -> Any:
        raise error

    def prepare_to_fail(*given: Any) -> Any:
        return lambda: fail()

    monkeypatch.setattr(failing, "prepare" if part == "draw" else part, prepare_to_fail if part == "draw" else fail)
    made = (
        "FROM dp_score_filter('mail', target := 'spam', features := 'token', row_id := 'doc', k := 2, epsilon := 50, "
        "delta := 1e-3, vocabulary := 'private', dataset := 'planted')"
    )
    latest = "SELECT status, epsilon, delta FROM dp_ledger() WHERE sequence > {} ORDER BY sequence"
    [(before,)] = con.execute("SELECT max(sequence) FROM dp_ledger()").fetchall()
    with pytest.raises((duckdb.Error, KeyboardInterrupt)) as failure:
        con.execute(made).fetchall()
    assert "31337" not in str(failure.value)
    assert con.execute(latest.format(before)).fetchall() == [("charged, no result", 50, 1e-3)]
    monkeypatch.undo()
    rows = con.execute(made).fetchall()
    assert {row[1] for row in rows} <= {*NAMES, "and"}
    assert con.execute(latest.format(before)).fetchall()[1:] == [("released", 50, 1e-3)]


def test_a_list_of_integers_is_neither_names_nor_places(con: Any) -> None:
    """Tokens that are numbers would be read as a vector by place."""
    con.execute(
        "CREATE OR REPLACE TABLE coded AS SELECT i AS doc, i % 2 AS y, 7 + i % 2 AS token FROM range(200) AS r(i)"
    )
    con.execute(
        "FROM dp_naive_bayes('coded', target := 'y', features := 'token', row_id := 'doc', names := ['7', '8'], "
        "epsilon := 1000, release := 'coded')"
    ).fetchall()
    with pytest.raises(duckdb.Error, match=r"DPSQL-S010.*VARCHAR"):
        con.execute("SELECT dp_predict('coded', list(token)) FROM coded GROUP BY doc").fetchall()
    rows = con.execute(
        "SELECT y, dp_predict_class('coded', list(token::VARCHAR)) FROM coded GROUP BY doc, y"
    ).fetchall()
    assert {(y, int(found)) for y, found in rows} == {(0, 0), (1, 1)}


def test_a_level_that_a_float_cannot_hold(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE single AS SELECT (i % 2 + 0.1)::FLOAT AS y, i % 2 AS a FROM range(400) AS r(i)"
    )
    for source in ("single", "(SELECT y::DOUBLE AS y, a FROM single)"):
        con.execute(f"CREATE OR REPLACE VIEW levels AS FROM {source}")
        for layout in ("features := ['a'], present_above := 0", "features := 'name', row_id := 'id', names := ['a']"):
            con.execute(
                "CREATE OR REPLACE VIEW cells AS SELECT row_number() OVER () AS id, y, a, CASE a WHEN 1 THEN 'a' END AS name "
                "FROM levels"
            )
            found = con.execute(
                f"FROM dp_naive_bayes('cells', target := 'y', {layout}, target_levels := [0.1, 1.1], epsilon := 1000)"
            ).fetchall()
            assert found[1][1] > 5 if source == "single" else abs(found[1][1]) < 5
