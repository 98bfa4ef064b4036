"""The SQL of predictions: a released model over all rows of a source, as fast as a handwritten formula.

A model of columns becomes one expression with numbers exact to the last bit, which DuckDB runs without Python. Vectors
and the lists of long rows go through `dpsql_predict`, which is faster for them than `list_extract`.

A row's prediction depends on that row alone, so a query may release from a view of predictions. DuckDB may decide a
comparison from a file's minimum and maximum, which ignore NaN. So a comparison that NaN passes either leaves NaN
unchanged (BETWEEN) or comes after `_is_nan`, which depends only on the value.
"""

from __future__ import annotations

import pyarrow as pa

from dpsql.contract.names import source_sql
from dpsql.errors import SourceError
from dpsql.released.model import LinearClassifier, LinearModel
from dpsql.released.results import FeatureSteps
from dpsql.rendering import call, cast, coalesce, double, identifier, plus, text

# Constant names give a view of predictions one plan, which identifies its base tables.
_ROWS, _SCORE = "__dpsql__rows", "__dpsql__score"
_SQL_TYPES = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR"}


def predictions_sql(model: LinearModel, source: str) -> str:
    """Return the query of a source's rows with a column ``prediction``; a classifier adds ``probability``.

    A classifier's prediction has the type of its levels: BOOLEAN, BIGINT, DOUBLE or VARCHAR. A model of long rows
    returns one row per row id. If the source lacks a feature, DuckDB raises its own binder error.

    Parameters
    ----------
    model : LinearModel
    source : str
        Name of a table, view, file or registered frame.

    Raises
    ------
    SourceError
        S010: the model is of long rows with values, which a list of names cannot store.
    """
    rows = source_sql(source)
    if model.long is not None:
        row_id, names = identifier(model.long[0]), _names(model)
        return f"SELECT {row_id}, {_computed(model, names)} FROM {rows} GROUP BY {row_id}"
    if model.vector is not None:
        return f"SELECT *, {_computed(model, identifier(model.vector))} FROM {rows}"
    scored = f"SELECT *, {_score(model)} AS {_SCORE} FROM {rows} AS {_ROWS}"
    return f"SELECT * EXCLUDE ({_SCORE}), {_predicted(model)} FROM ({scored}) AS {_ROWS}"


def _computed(model: LinearModel, row: str) -> str:
    """Return the prediction columns, with dpsql's functions, from a vector or a list of names."""
    number = call("dpsql_predict", str(model.ledger_id), row)
    if not isinstance(model, LinearClassifier):
        return f"{number} AS prediction"
    likelier = cast(call("dpsql_predict_class", str(model.ledger_id), row), _SQL_TYPES[model.class_type])
    return f"{likelier} AS prediction, {number} AS probability"


def _names(model: LinearModel) -> str:
    """Return the list of a row id's features in long rows."""
    _, feature, *value = map(identifier, model.long or ())
    names = call("list", cast(feature, "VARCHAR"))
    if not value:
        return names
    if isinstance(model, LinearClassifier) and model.binary:
        number = cast(value[0], "DOUBLE")
        present = f"{names} FILTER (WHERE {number} <> 0 AND {number} <> 'nan'::DOUBLE)"
        return coalesce(present, cast(call("list_value"), "VARCHAR[]"))
    raise SourceError(
        "S010", "the model was fitted to long rows with values. Pivot them: dp_predict(model, t) takes a column each."
    )


def _predicted(model: LinearModel) -> str:
    """Return the prediction columns from the linear form; NULL if the form is NaN."""
    missing = _is_nan(_SCORE)
    if not isinstance(model, LinearClassifier):
        value = _SCORE if model.prediction_bounds_ is None else _clipped(_SCORE, *model.prediction_bounds_)
        return f"CASE WHEN {missing} THEN NULL ELSE {value} END AS prediction"
    odds = call("exp", call("-", _SCORE))
    probability = call("/", double(1), plus(double(1), odds))
    negative, positive = (cast(text(class_text), _SQL_TYPES[model.class_type]) for class_text in model.class_texts)
    return (
        f"CASE WHEN {missing} THEN NULL WHEN {_SCORE} > {double(0)} THEN {positive} "
        f"WHEN {_SCORE} IS NOT NULL THEN {negative} END AS prediction, "
        f"CASE WHEN {missing} THEN NULL ELSE {probability} END AS probability"
    )


def _score(model: LinearModel) -> str:
    """Return a row's linear form, which checks the types of its columns while DuckDB plans the statement."""
    columns = [f"{_ROWS}.{identifier(name)}" for name in model.feature_names_in_]
    left_out = set(model.left_out)
    terms = [
        _term(model, position, cast(column, "DOUBLE"))
        for position, column in enumerate(columns)
        if position not in left_out
    ]
    terms += [
        _step(steps, cast(columns[position], "DOUBLE"))
        for position, steps in enumerate(model.steps_ or ())
        if steps is not None and position not in left_out
    ]
    types = call("list_value", *(call("typeof", column) for column in columns))
    numeric = call("dpsql_numeric", str(model.ledger_id), types)
    return f"CASE WHEN {numeric} THEN {plus(_sum(terms), double(model.intercept_))} END"


def _term(model: LinearModel, position: int, value: str) -> str:
    """Return a coefficient times a feature as the fit used it: present or absent, or clipped; NaN and NULL remain."""
    coefficient = double(float(model.coef_[position]))
    if isinstance(model, LinearClassifier) and model.binary:
        above = f"<> {double(0)}" if model.present_above is None else f"> {double(model.present_above)}"
        return (
            f"CASE WHEN {_is_nan(value)} THEN {double(0)} WHEN {value} {above} THEN {coefficient} ELSE {double(0)} END"
        )
    pair = None if model.feature_bounds_ is None else model.feature_bounds_[position]
    if pair is not None:
        value = _clipped(value, *pair)
    return call("*", coefficient, value)


def _step(steps: FeatureSteps, value: str) -> str:
    """Return the step of a value, by bisection; NaN and NULL may have any step, because their term decides.

    DuckDB may decide a comparison from a file's statistics, which ignore NaN; the sum is still NaN.
    """

    def search(first: int, last: int) -> str:
        if first == last:
            return double(steps["values"][first])
        middle = (first + last) // 2
        below, above = search(first, middle), search(middle + 1, last)
        return f"CASE WHEN {value} < {double(steps['edges'][middle])} THEN {below} ELSE {above} END"

    return search(0, len(steps["edges"]))


def _clipped(value: str, lower: float, upper: float) -> str:
    """Return a double clipped to bounds; NaN and NULL remain."""
    low, high = double(lower), double(upper)
    return (
        f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} WHEN {_is_nan(value)} THEN {value} "
        f"WHEN {value} < {low} THEN {low} WHEN {value} IS NOT NULL THEN {high} END"
    )


def _is_nan(value: str) -> str:
    """Return whether a double is NaN; DuckDB 2.0 decides a plain isnan() from statistics, but not this form."""
    return call("isnan", call("nextafter", value, value))


def _sum(terms: list[str]) -> str:
    """Return a sum in pairs, which is shallow for any number of terms."""
    if not terms:
        return double(0)
    while len(terms) > 1:
        terms = [plus(*terms[first : first + 2]) for first in range(0, len(terms), 2)]
    return terms[0]
