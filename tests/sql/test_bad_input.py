"""Bad input: a clear error with a code, nothing charged, nothing told about the data; in SQL and in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from exact_reference import literal

import dpsql
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

SECRET_NUMBER = 987654
SECRET_TEXT = "Alice Secretperson"
GOOD: dict[str, Any] = {
    "target": "y",
    "k": 2,
    "epsilon": 1.0,
    "lower": 0,
    "upper": 1,
    "target_lower": 0,
    "target_upper": 1,
}
RAW = object()


class Sql(str):
    """An argument written as SQL."""


NAN, INF = Sql("'nan'::DOUBLE"), Sql("'inf'::DOUBLE")
IN_PYTHON = {NAN: math.nan, INF: math.inf}


@pytest.fixture(scope="module")
def ctx() -> Iterator[dpsql.Context]:
    opened = dpsql.Context()
    opened.connection.execute(
        f"CREATE TABLE t AS SELECT {SECRET_NUMBER}.5 AS a, {SECRET_NUMBER}.25 AS b, {SECRET_NUMBER} AS c, "
        f"'{SECRET_TEXT}' AS s, {SECRET_NUMBER}::INTEGER AS y, DATE '1987-06-05' AS d, [{SECRET_NUMBER}.5, 1.0] AS x, "
        f"[{SECRET_NUMBER}.5, 1.0]::FLOAT[2] AS fx, i AS u, ['{SECRET_TEXT}'] AS sx FROM range(7) AS r(i)"
    )
    yield opened
    opened.close()


def sql(arguments: dict[str, Any], source: Any = "t") -> str:
    shown = [f"{name} := {value if isinstance(value, Sql) else literal(value)}" for name, value in arguments.items()]
    first = source if isinstance(source, Sql) else literal(source)
    return f"SELECT * FROM dp_sis({', '.join([first, *shown])})"


def aggregate(arguments: dict[str, Any]) -> str:
    shown = [f"{name} := {value if isinstance(value, Sql) else literal(value)}" for name, value in arguments.items()]
    return f"SELECT dp_sis({', '.join(['x', 'y', *shown])}) FROM t"


def in_python(value: Any) -> Any:
    return IN_PYTHON[value] if isinstance(value, Sql) else value


def assert_quiet(ctx: dpsql.Context, error: BaseException, code: str, before: Any) -> None:
    text = str(error)
    assert re.search(rf"\[DPSQL-{code}\]", text), text
    message = re.search(r"\[DPSQL-\w+\] ([^\n]*)", text)
    assert message is not None
    assert re.search(r"\. \S|\.$", message[1]), "a sentence, and a next step"
    for secret in (str(SECRET_NUMBER), SECRET_TEXT, "1987"):
        assert secret not in text
    assert state(ctx) == before


def state(ctx: dpsql.Context) -> Any:
    return [row.hash for row in ctx.ledger.entries()]


ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"epsilon {shown}": ("P001", {"epsilon": value})
        for shown, value in {"0": 0, "negative": -1, "NaN": NAN, "inf": INF, "NULL": None, "text": "one"}.items()
    },
    "epsilon list": ("P001", {"epsilon": [1.0]}),
    "epsilon boolean": ("P001", {"epsilon": True}),
    **{
        f"k {shown}": ("P021", {"k": value})
        for shown, value in {"0": 0, "negative": -1, "half": 1.5, "NULL": None, "text": "2"}.items()
    },
    "k too many": ("P002", {"k": 99}),
    "lower missing": ("P003", {"lower": None}),
    "upper missing": ("P003", {"upper": None}),
    "bounds swapped": ("P003", {"lower": 1, "upper": 0}),
    "bounds equal": ("P003", {"lower": 1, "upper": 1}),
    "bound NaN": ("P003", {"lower": NAN}),
    "bound inf": ("P003", {"upper": INF}),
    "bound text": ("P003", {"upper": "1"}),
    "bounds too close": ("P036", {"lower": 0.0, "upper": 5e-324}),
    "bounds too wide": ("P036", {"lower": -1.7e308, "upper": 1.7e308}),
    "bounds of unequal lengths": ("P035", {"lower": [0, 0, 0], "upper": [1, 1]}),
    "bounds for another number of features": ("P035", {"lower": [0, 0, 0, 0, 0, 0, 0, 0]}),
    "bound NULL in a list": ("P003", {"lower": [0, None]}),
    "empty bounds": ("P003", {"lower": Sql("[]")}),
    "target bounds missing": ("P004", {"target_lower": None, "target_upper": None}),
    "one target bound": ("P003", {"target_lower": None}),
    "target bounds swapped": ("P003", {"target_lower": 2}),
    "target bounds list": ("P037", {"target_lower": [0, 0]}),
    "target bound NaN": ("P003", {"target_upper": NAN}),
    "levels and bounds": ("P045", {"target_levels": ["a", "b"]}),
    "mechanism": ("P005", {"mechanism": "laplace"}),
    "gamma 0": ("P006", {"gamma": 0}),
    "gamma 1": ("P006", {"gamma": 1}),
    "neighbours": ("P005", {"neighbours": "both"}),
    "center": ("P005", {"center": "median"}),
    "center share": ("P006", {"center_share": 1}),
    "dataset empty": ("P013", {"dataset": ""}),
    "dataset number": ("P013", {"dataset": 7}),
    "release empty": ("P013", {"release": ""}),
    "release number": ("P013", {"release": 7}),
}
IN_PYTHON[Sql("[]")] = []


def test_a_budget_in_every_form() -> None:
    with dpsql.Context() as ctx:
        ctx.connection.execute("CREATE TABLE t AS SELECT 0.5 AS a, 0.25 AS b, 1 AS y, [0.5, 1.0] AS x FROM range(7)")
        ctx.dp_protect("t", epsilon=0.5)
        before = state(ctx)
        for statement in (
            sql(GOOD),
            "SELECT dp_quantile(a, epsilon := 1, lower := 0, upper := 1, dataset := 't') FROM t",
        ):
            with pytest.raises(duckdb.Error) as failure:
                ctx.connection.execute(statement).fetchall()
            assert_quiet(ctx, failure.value, "B001", before)
        with pytest.raises(dpsql.BudgetError, match="B001"):
            ctx.dp_sis("t", **GOOD)
        assert state(ctx) == before


@cases("case", ARGUMENTS)
def test_arguments_in_the_table_form(ctx: dpsql.Context, case: str) -> None:
    code, change = ARGUMENTS[case]
    before = state(ctx)
    with pytest.raises(duckdb.Error) as failure:
        ctx.connection.execute(sql({**GOOD, **change})).fetchall()
    assert_quiet(ctx, failure.value, code, before)


@cases("case", ARGUMENTS)
def test_arguments_in_python(ctx: dpsql.Context, case: str) -> None:
    code, change = ARGUMENTS[case]
    before = state(ctx)
    with pytest.raises(dpsql.DpsqlError) as failure:
        ctx.dp_sis("t", **{**GOOD, **{name: in_python(value) for name, value in change.items()}})
    assert_quiet(ctx, failure.value, code, before)
    assert failure.value.code == f"DPSQL-{code}"


@cases("case", ARGUMENTS)
def test_arguments_in_the_aggregate_form(ctx: dpsql.Context, case: str) -> None:
    code, change = ARGUMENTS[case]
    before = state(ctx)
    arguments = {name: value for name, value in {**GOOD, "n_features": 2, **change}.items() if name != "target"}
    with pytest.raises(duckdb.Error) as failure:
        ctx.connection.execute(aggregate(arguments)).fetchall()
    assert_quiet(ctx, failure.value, code, before)


def without(*names: str, **change: Any) -> dict[str, Any]:
    return {name: value for name, value in {**GOOD, **change}.items() if name not in names}


COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "no target": ("P013", without("target")),
    "target number": ("P013", {**GOOD, "target": 3}),
    "unknown target": ("S002", {**GOOD, "target": "nosuch"}),
    "unknown feature": ("S002", {**GOOD, "features": ["a", "nosuch"]}),
    "unknown vector": ("S002", {**GOOD, "features": "nosuch", "n_features": 2}),
    "unknown unit": ("S002", {**GOOD, "privacy_unit": "nosuch", "max_rows_per_unit": 1}),
    "unknown row id": ("S002", {**GOOD, "row_id": "nosuch"}),
    "unknown token": ("S002", {**GOOD, "features": "nosuch", "row_id": "u", "names": ["a", "b"]}),
    "unknown value": ("S002", {**GOOD, "features": "s", "row_id": "u", "value": "nosuch", "names": ["a", "b"]}),
    "pseudo-column rowid": ("S002", {**GOOD, "features": ["a", "rowid"]}),
    "pseudo-column as row id": (
        "S002",
        {**GOOD, "features": ["a", "b"], "privacy_unit": "u", "max_rows_per_unit": 1, "row_id": "rowid"},
    ),
    "target among the features": ("P011", {**GOOD, "features": ["a", "Y"]}),
    "unit among the features": ("P011", {**GOOD, "features": ["a", "u"], "privacy_unit": "u", "max_rows_per_unit": 1}),
    "target is the unit": ("P011", {**GOOD, "privacy_unit": "y", "max_rows_per_unit": 1}),
    "duplicate features": ("P044", {**GOOD, "features": ["a", "b", "A"]}),
    "duplicate names": ("P044", {**GOOD, "features": "x", "names": ["p", "p"]}),
    "no features": ("P043", {**GOOD, "features": Sql("[]")}),
    "NULL feature": ("P043", {**GOOD, "features": ["a", None]}),
    "empty feature": ("P043", {**GOOD, "features": ["a", ""]}),
    "number as feature": ("P043", {**GOOD, "features": [1, 2]}),
    "text column as feature": ("S003", {**GOOD, "features": ["a", "s"]}),
    "date column as feature": ("S003", {**GOOD, "features": ["a", "d"]}),
    "list column among features": ("S003", {**GOOD, "features": ["a", "x"]}),
    "scalar column as vector": ("S003", {**GOOD, "features": "a", "n_features": 2}),
    "list of texts as vector": ("S003", {**GOOD, "features": "sx", "n_features": 2}),
    "text value": ("S003", {**GOOD, "features": "s", "row_id": "u", "value": "d", "names": ["a", "b"]}),
    "date target": ("S003", {**GOOD, "target": "d"}),
    "list target": ("S003", {**GOOD, "target": "x"}),
    "list without its length": ("S006", {**GOOD, "features": "x"}),
    "array of another length": ("P041", {**GOOD, "features": "fx", "n_features": 5}),
    "n_features 0": ("P021", {**GOOD, "features": "x", "n_features": 0}),
    "n_features for columns": ("P010", {**GOOD, "n_features": 2}),
    "names and n_features": ("P041", {**GOOD, "features": "x", "n_features": 3, "names": ["p", "q"]}),
    "long without names": ("P042", {**GOOD, "features": "s", "row_id": "u"}),
    "value without row id": ("P046", {**GOOD, "features": "s", "value": "c", "names": ["a", "b"]}),
    "text target with bounds": ("S005", {**GOOD, "target": "s"}),
    "text target without levels": ("S005", without("target_lower", "target_upper", target="s")),
    "one level": ("P012", without("target_lower", "target_upper", target="s", target_levels=["a"])),
    "equal levels": ("P012", without("target_lower", "target_upper", target="s", target_levels=["a", "a"])),
    "NULL level": ("P012", without("target_lower", "target_upper", target="s", target_levels=["a", None])),
    "numbers for a text target": ("P012", without("target_lower", "target_upper", target="s", target_levels=[0, 1])),
    "texts for a numeric target": ("P012", without("target_lower", "target_upper", target_levels=["0", "1"])),
    "levels as text": ("P012", without("target_lower", "target_upper", target="s", target_levels="ab")),
    "unit without a cap": ("P009", {**GOOD, "privacy_unit": "u"}),
    "cap without a unit": ("P009", {**GOOD, "max_rows_per_unit": 2}),
    "cap 0": ("P021", {**GOOD, "privacy_unit": "u", "max_rows_per_unit": 0}),
    "cap inf": ("P021", {**GOOD, "privacy_unit": "u", "max_rows_per_unit": INF}),
    "k beyond the columns": ("P002", {**GOOD, "k": 5}),
    "no numeric column": ("S007", {**GOOD, "k": 1}),
    "NUL in a column": ("P013", {**GOOD, "target": Sql("'y' || chr(0)")}),
}
IN_PYTHON[Sql("'y' || chr(0)")] = "y\x00"


@cases("case", COLUMNS)
@cases("form", ["SQL", "Python"])
def test_columns(ctx: dpsql.Context, case: str, form: str) -> None:
    code, arguments = COLUMNS[case]
    source = "t"
    if case == "no numeric column":
        ctx.connection.execute("CREATE OR REPLACE TEMP VIEW texts AS SELECT s, y FROM t")
        source = "texts"
    before = state(ctx)

    def run() -> None:
        if form == "SQL":
            ctx.connection.execute(sql(arguments, source)).fetchall()
        else:
            ctx.dp_sis(source, **{name: in_python(value) for name, value in arguments.items()})

    with pytest.raises(duckdb.Error if form == "SQL" else dpsql.DpsqlError) as failure:
        run()
    assert_quiet(ctx, failure.value, code, before)


def test_aggregate_form_types(ctx: dpsql.Context) -> None:
    base = "k := 1, epsilon := 1, lower := 0, upper := 1, target_lower := 0, target_upper := 1"
    for code, call in {
        "S006": f"dp_sis(x, y, {base})",
        "S003": f"dp_sis(a, y, n_features := 2, {base})",
        "S005": f"dp_sis(x, s, n_features := 2, {base})",
        "P041": f"dp_sis(fx, y, n_features := 5, {base})",
        "P002": f"dp_sis({{'a': a}}, y, {base.replace('k := 1', 'k := 2')})",
    }.items():
        before = state(ctx)
        with pytest.raises(duckdb.Error) as failure:
            ctx.connection.execute(f"SELECT {call} FROM t").fetchall()
        assert_quiet(ctx, failure.value, code, before)


INJECTIONS = [
    "t'); DROP TABLE t; --",
    't"; DROP TABLE t; --',
    't" UNION ALL SELECT * FROM t --',
    "x' || (SELECT max(s) FROM t) || '",
    '"), (SELECT max(c) FROM t) AS ("',
    "\\'; DROP TABLE t; --",
    "$$; DROP TABLE t; $$",
]


FEATURED: dict[str, Any] = {"target": "y", "features": ["a", "b"], "epsilon": 1.0}
FILTERED: dict[str, Any] = {**FEATURED, "present_above": 0}
SCORED: dict[str, Any] = {"label": "y", "score": "a", "epsilon": 1.0}
CLASSIFYING: dict[str, tuple[str, dict[str, Any]]] = {
    "filter": ("dp_score_filter", {**FILTERED, "threshold": 5}),
    "filter of k": ("dp_score_filter", {**FILTERED, "k": 1, "score": "purity"}),
    "filter by gain": ("dp_score_filter", {**FILTERED, "k": 1, "score": "information_gain", "n_max": 100}),
    "filter, svt": ("dp_score_filter", {**FILTERED, "threshold": 5, "method": "svt", "cutoff": 2}),
    "filter, cluster": ("dp_score_filter", {**FILTERED, "method": "cluster"}),
    "private names": (
        "dp_score_filter",
        {**FEATURED, "features": "s", "row_id": "u", "k": 1, "vocabulary": "private", "delta": 1e-6},
    ),
    "naive bayes": ("dp_naive_bayes", FILTERED),
    "naive bayes, delta": ("dp_naive_bayes", {**FILTERED, "delta": 1e-6}),
    "logistic": ("dp_logistic_regression", {**FEATURED, "lower": 0, "upper": 1}),
    "roc": ("dp_roc", SCORED),
    "roc, delta": ("dp_roc", {**SCORED, "delta": 1e-6}),
    "roc, fixed": ("dp_roc", {**SCORED, "thresholds": "fixed", "n_thresholds": 3}),
    "roc, smooth medians": ("dp_roc", {**SCORED, "thresholds": "smooth_medians", "n_thresholds": 3}),
    "auc": ("dp_auc", SCORED),
    "confusion": ("dp_confusion", SCORED),
}
# Arguments of a layout are tested above for all functions alike.
OF_LAYOUT = {"features", "n_features", "names", "row_id", "value", "privacy_unit", "max_rows_per_unit"}
STRANGE = [
    None,
    0,
    -1,
    1,
    1.5,
    10**30,
    1e-320,
    1e-300,
    1e308,
    NAN,
    INF,
    True,
    "x",
    "",
    Sql("[]"),
    [1.0],
    [None],
    ["a", "b"],
]


def run(function: str, arguments: dict[str, Any], source: str = "t") -> str:
    return sql(arguments, source).replace("dp_sis(", f"{function}(", 1)


@cases(
    "case",
    [
        pytest.param(case, marks=[] if case in ("filter", "naive bayes", "auc") else [pytest.mark.slow])
        for case in CLASSIFYING
    ],
)
def test_a_strange_argument_is_refused_at_once_or_does_not_matter(ctx: dpsql.Context, case: str) -> None:
    """Never is a call charged and then fails; SQL and Python say the same."""
    function, good = CLASSIFYING[case]
    names = FUNCTIONS[function].plan.arguments.keys() - OF_LAYOUT - {"dataset", "release"}
    refused, answered = 0, 0
    for name in sorted(names):
        for value in STRANGE:
            if (name, value) == ("epsilon", 1e308):
                continue  # below, with a ledger of its own
            arguments = {**good, name: value}
            before = state(ctx)
            try:
                ctx.connection.execute(run(function, arguments)).fetchall()
            except duckdb.Error as error:
                found = re.search(r"DPSQL-(\w+)", str(error))
                assert found is not None, (name, value, str(error))
                assert found[1][0] in "PS", (name, value, str(error))
                assert_quiet(ctx, error, found[1], before)
                with pytest.raises(dpsql.DpsqlError, match=found[1]):
                    getattr(ctx, function)("t", **{key: in_python(given) for key, given in arguments.items()})
                assert state(ctx) == before
                refused += 1
            else:
                assert len(state(ctx)) == len(before) + 1
                answered += 1
    assert refused > answered > 0


@pytest.mark.parametrize("epsilon", [1e160, 1e308])
def test_an_epsilon_beyond_all_measure_leaves_the_ledger_readable(epsilon: float) -> None:
    with dpsql.Context() as context:
        context.sql("CREATE OR REPLACE TABLE t AS SELECT i % 2 AS y, i / 9 AS a FROM range(9) AS r(i)")
        for _ in range(2):
            try:
                context.dp_auc("t", **{**SCORED, "epsilon": epsilon})
            except dpsql.ParameterError as error:
                assert error.code == "DPSQL-P001"
        context.dp_auc("t", **SCORED)
        assert 1 <= len(context.dp_ledger()) <= 3
        assert len(context.dp_budget()) == 1


@cases("text", INJECTIONS)
@cases("case", ["filter", "naive bayes", "logistic", "roc", "auc", "confusion"])
def test_text_of_classification_is_never_sql(ctx: dpsql.Context, case: str, text: str) -> None:
    function, good = CLASSIFYING[case]
    before = state(ctx)
    for name in FUNCTIONS[function].plan.arguments.keys() - {"dataset", "release", "target_levels"}:
        with pytest.raises(duckdb.Error) as failure:
            ctx.connection.execute(run(function, {**good, name: text})).fetchall()
        assert SECRET_TEXT not in str(failure.value)
        assert str(SECRET_NUMBER) not in str(failure.value)
    for view in ("dp_precision_recall({0})", "dp_calibration({0})", "dp_precision_recall('r', dataset := {0})"):
        with pytest.raises(duckdb.Error, match="DPSQL-P030"):
            ctx.connection.execute(f"FROM {view.format(literal(text))}").fetchall()
    for prediction in (
        "dp_predict({0}, [1])",
        "dp_predict_class({0}, [1])",
        "dp_predict_class('m', [1], dataset := {0})",
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-P030"):
            ctx.connection.execute(f"SELECT {prediction.format(literal(text))}").fetchall()
    assert state(ctx) == before
    levels = {**good, "target": "s", "target_levels": [text, "other"]}
    if "label" in good:
        levels = {**levels, "label": "s", "target": None}
    named = {
        name: value
        for name, value in {**levels, "dataset": f"{text} {case}", "release": f"{case}: {text}"}.items()
        if value is not None
    }
    ctx.connection.execute(run(function, named)).fetchall()
    assert len(state(ctx)) == len(before) + 1
    assert ctx.connection.execute("SELECT count(*) FROM t").fetchall() == [(7,)]


@cases("source", [None, "", 7, "a.b.c.d", "a..b", ".t", "t.", '"t', "t\x00"])
def test_what_is_no_table_name(ctx: dpsql.Context, source: Any) -> None:
    before = state(ctx)
    written = Sql("'t' || chr(0)") if source == "t\x00" else source
    code = "P013" if source in (None, "", 7, "t\x00") else "P020"
    with pytest.raises(duckdb.Error) as failure:
        ctx.connection.execute(sql(GOOD, written)).fetchall()
    assert_quiet(ctx, failure.value, code, before)
    if isinstance(source, str):
        with pytest.raises(dpsql.ParameterError) as again:
            ctx.dp_sis(source, **GOOD)
        assert_quiet(ctx, again.value, code, before)


@cases("source", ["nosuch", "nosuch.t", "a.b.c", "nosuch.parquet", "t; DROP TABLE t", "t'--", 't"', "(SELECT 1)"])
def test_unknown_tables(ctx: dpsql.Context, source: str) -> None:
    """In SQL it is DuckDB's own error: what a TEMP table or a frame is called, only its binder knows."""
    before = state(ctx)
    with pytest.raises(duckdb.Error) as failure:
        ctx.connection.execute(sql(GOOD, source)).fetchall()
    assert str(SECRET_NUMBER) not in str(failure.value)
    with pytest.raises(dpsql.DpsqlError) as coded:
        ctx.dp_sis(source, **GOOD)
    assert coded.value.code in ("DPSQL-S001", "DPSQL-P020")
    assert_quiet(ctx, coded.value, coded.value.code[-4:], before)
    assert ctx.connection.execute("SELECT count(*) FROM t").fetchall() == [(7,)]


def test_an_object_that_is_no_frame(ctx: dpsql.Context) -> None:
    before = state(ctx)
    for source in (3, object(), None, {"a": 1}):
        with pytest.raises(dpsql.SourceError) as failure:
            ctx.dp_sis(source, **GOOD)
        assert_quiet(ctx, failure.value, "S009", before)


def test_unknown_arguments(ctx: dpsql.Context) -> None:
    before = state(ctx)
    with pytest.raises(duckdb.BinderException, match="epsilon := NULL"):  # the binder shows the signature
        ctx.connection.execute(sql({**GOOD, "epsilom": 1})).fetchall()
    for call in (
        lambda: ctx.dp_sis("t", **GOOD, epsilom=1),
        lambda: ctx.dp_estimate("dp_sis", n_features=3, k=1, epsilon=1, epsilom=1),
    ):
        with pytest.raises(dpsql.ParameterError) as coded:
            call()
        assert_quiet(ctx, coded.value, "P016", before)
    with pytest.raises(dpsql.ParameterError) as coded:
        ctx.dp_protect("t", epsilon=1, epsilom=1)
    assert_quiet(ctx, coded.value, "P016", before)


ODD = [
    'quote"d',
    "apo'strophe",
    "semi;colon",
    "spa ce",
    "Ünïcödé ☃",
    "back\\slash",
    "per%cent",
    "select",
    "-- comment",
    "/* x */",
    "a]b",
    "{c}",
    "1st",
    "new\nline",
    "$1",
]


@cases("name", [*ODD, "we.ird", "x.parquet"])
def test_odd_names_work_where_they_exist(name: str) -> None:
    ctx = dpsql.Context()
    try:
        quoted = '"' + name.replace('"', '""') + '"'
        ctx.connection.execute(
            f'CREATE TABLE {quoted} AS SELECT 1.0 AS {quoted}, 2 AS "{name.replace(chr(34), "")}_2", true AS y'
        )
        selected = [(1, name, None, None, "not measured", "not measured")]
        source = quoted if "." in name or name.startswith('"') else name
        arguments = {"target": "y", "features": [name], "k": 1, "epsilon": 1, "lower": 0, "upper": 1}
        assert ctx.connection.execute(sql(arguments, source)).fetchall() == selected
        release = ctx.dp_sis(source, **arguments, dataset=name, release=name)
        assert (release.features, release.dataset) == ([name], name)
        assert ctx.dp_sis(source, **arguments, dataset=name, release=name).replayed
        assert (
            ctx.connection.execute(sql({**arguments, "dataset": name, "release": name}, source)).fetchall() == selected
        )
        assert ctx.connection.execute(sql(arguments, quoted)).fetchall() == selected
        target = {
            "target": name,
            "features": [name.replace('"', "") + "_2"],
            "k": 1,
            "epsilon": 1,
            "lower": 0,
            "upper": 1,
        }
        ctx.connection.execute(sql({**target, "target_lower": 0, "target_upper": 1}, source)).fetchall()
    finally:
        ctx.close()


@cases("text", INJECTIONS)
def test_text_is_never_sql(ctx: dpsql.Context, text: str) -> None:
    base = {**GOOD, "features": ["a", "b"]}
    cases = [
        (text, base),
        ("t", {**base, "target": text}),
        ("t", {**base, "features": ["a", text]}),
        ("t", {**base, "features": text, "n_features": 2}),
        ("t", {**base, "features": "s", "row_id": "u", "value": text, "names": ["p", "q"]}),
        ("t", {**base, "features": "s", "row_id": text, "names": ["p", "q"]}),
        ("t", {**base, "privacy_unit": text, "max_rows_per_unit": 1}),
        ("t", {**base, "mechanism": text}),
    ]
    before = state(ctx)
    for source, arguments in cases:
        with pytest.raises(duckdb.Error) as failure:
            ctx.connection.execute(sql(arguments, source)).fetchall()
        assert SECRET_TEXT not in str(failure.value)
        assert str(SECRET_NUMBER) not in str(failure.value)
    assert state(ctx) == before
    works = [
        {**base, "dataset": text},
        {**base, "dataset": text, "release": text},
        {**base, "features": "x", "names": [text, "q"]},
        {**base, "features": "s", "row_id": "u", "names": [text, "q"]},
    ]
    for arguments in works:
        rows = ctx.connection.execute(sql(arguments)).fetchall()
        assert len(rows) == 2
        assert SECRET_TEXT not in str(rows)
    assert ctx.connection.execute("SELECT count(*) FROM t").fetchall() == [(7,)]


WORKS = {
    "empty table": "SELECT 1.0 AS a, 2.0 AS b, 1 AS y WHERE false",
    "one row": "SELECT 1.0 AS a, 2.0 AS b, 1 AS y",
    "all-NULL column": "SELECT NULL::DOUBLE AS a, 2.0 AS b, 1 AS y FROM range(5)",
    "all-NULL target": "SELECT 1.0 AS a, 2.0 AS b, NULL::INTEGER AS y FROM range(5)",
    "constant column": "SELECT 7 AS a, 2.0 AS b, 1 AS y FROM range(5)",
    "NaN and infinity": "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, '-inf'::DOUBLE AS y FROM range(5)",
}


@cases("case", WORKS)
def test_what_rows_hold_never_stops_a_call(case: str) -> None:
    ctx = dpsql.Context()
    try:
        ctx.connection.execute(f"CREATE TABLE t AS {WORKS[case]}")
        for mechanism in ("one_shot", "gumbel", "canonical_lipschitz"):
            for center in ("public", "target"):
                got = ctx.dp_sis("t", **GOOD, mechanism=mechanism, center=center).features
                assert sorted(got) == ["a", "b"]
        ctx.connection.execute("CREATE TABLE l AS SELECT [a, b] AS x, y, 'p' AS token, 1 AS d FROM t")
        assert sorted(ctx.dp_sis("l", **GOOD, features="x", names=["p", "q"]).features) == ["p", "q"]
        assert sorted(ctx.dp_sis("l", **GOOD, features="token", row_id="d", names=["p", "q"]).features) == ["p", "q"]
    finally:
        ctx.close()


@cases("protected", [False, True])
@cases("rows", [1, 3000])
@cases("in_transaction", [False, True])
def test_a_view_that_fails_on_a_row_tells_nothing_in_python(protected: bool, rows: int, in_transaction: bool) -> None:
    """DuckDB quotes the cell that it cannot cast; in Python the text is ours, and the call is charged."""
    ctx = dpsql.Context()
    try:
        ctx.connection.execute(f"CREATE TABLE raw AS SELECT '{SECRET_TEXT}' AS s, true AS y FROM range({rows})")
        if protected:
            ctx.dp_protect("raw", epsilon=5)
        ctx.connection.execute("CREATE VIEW broken AS SELECT s::DOUBLE AS a, y FROM raw")
        if in_transaction:
            ctx.connection.begin()
        with pytest.raises(dpsql.InternalError) as failure:
            ctx.dp_sis("broken", target="y", k=1, epsilon=1, lower=0, upper=1)
        if in_transaction:
            ctx.connection.rollback()
        assert failure.value.code == "DPSQL-I001"
        assert SECRET_TEXT not in str(failure.value)
        assert failure.value.__cause__ is None
        assert failure.value.__suppress_context__
        charges = [(row.status, row.epsilon) for row in ctx.ledger.entries() if row.function == "dp_sis"]
        assert charges == [("charged, no result", 1.0)]
    finally:
        ctx.close()


@cases("in_transaction", [False, True])
@cases("source", ["nowhere", "nowhere.parquet", "nothing"])
def test_a_source_that_does_not_bind_costs_nothing(source: str, in_transaction: bool) -> None:
    ctx = dpsql.Context()
    try:
        ctx.connection.execute("CREATE TABLE t AS SELECT 1 AS other; CREATE VIEW nothing AS FROM t")
        ctx.connection.execute("ALTER TABLE t RENAME TO gone")
        if in_transaction:
            ctx.connection.begin()
        with pytest.raises(dpsql.SourceError):
            ctx.dp_sis(source, target="y", k=1, epsilon=1, lower=0, upper=1)
        if in_transaction:
            ctx.connection.rollback()
        assert ctx.ledger.entries() == []
    finally:
        ctx.close()
