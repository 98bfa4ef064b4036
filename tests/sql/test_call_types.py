"""Every call on a column of every type is answered or refused with a code of arguments or sources, and then charges nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

# A value of every type.
TYPES = {
    "BOOLEAN": "true",
    "TINYINT": "1",
    "SMALLINT": "1",
    "INTEGER": "1",
    "BIGINT": "1",
    "HUGEINT": "1",
    "UTINYINT": "1",
    "USMALLINT": "1",
    "UINTEGER": "1",
    "UBIGINT": "1",
    "UHUGEINT": "1",
    "FLOAT": "1",
    "DOUBLE": "1",
    "DECIMAL(9,3)": "1",
    "DECIMAL(38,10)": "1",
    "DATE": "'2020-02-29'",
    "TIME": "'01:02:03'",
    "TIME_NS": "'01:02:03'",
    "TIMETZ": "'01:02:03+01'",
    "TIMESTAMP": "'2020-02-29'",
    "TIMESTAMP_S": "'2020-02-29'",
    "TIMESTAMP_MS": "'2020-02-29'",
    "TIMESTAMP_NS": "'2020-02-29'",
    "TIMESTAMPTZ": "'2020-02-29'",
    "INTERVAL": "'1 day'",
    "UUID": "'00000000-0000-0000-0000-000000000001'",
    "BLOB": "'a'",
    "BIT": "'101'",
    "VARCHAR": "'a'",
    "ENUM('a','b')": "'a'",
    "JSON": "'{\"a\": 1}'",
    "INTEGER[]": "[1]",
    "VARCHAR[]": "['a']",
    "FLOAT[2]": "[1,2]",
    "VARCHAR[2]": "['a','b']",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': 1, 'b': 'x'}",
    "MAP(VARCHAR, INTEGER)": "MAP {'a': 1}",
    "UNION(x INTEGER, y VARCHAR)": "1",
    "BIGNUM": "1",
}
_BOUNDS, _TARGET = "lower := 0, upper := 1", "target_lower := 0, target_upper := 1"
_PURE, _DELTA, _UNIT = "epsilon := 1", "epsilon := 1, delta := 1e-6", "max_rows_per_unit := 1"
# Calls with a column x in each of the parts that a column can have.
CALLS = (
    f"dp_count('t', {_PURE}, privacy_unit := 'x', {_UNIT})",
    f"dp_count('t', {_PURE}, target := 'x')",
    f"dp_count('t', {_PURE}, distinct_of := 'x', privacy_unit := 'id', {_UNIT})",
    f"dp_count('t', {_PURE}, distinct_of := 'x', privacy_unit := 'x', {_UNIT})",
    f"dp_count('t', {_PURE}, \"by\" := 'x', keys := ['a'])",
    f"dp_count('t', {_DELTA}, \"by\" := 'x', keys := 'private')",
    f"dp_count('t', {_DELTA}, \"by\" := 'x', keys := 'private', privacy_unit := 'id', {_UNIT})",
    f"dp_count('t', {_PURE}, condition := 'x IS NOT NULL')",
    f"dp_sum('t', target := 'x', {_BOUNDS}, {_PURE})",
    f"dp_avg('t', target := 'x', {_DELTA})",
    f"dp_variance('t', target := 'x', {_BOUNDS}, {_PURE})",
    f"dp_stddev('t', target := 'x', {_BOUNDS}, {_PURE})",
    f"dp_aggregate('t', aggregates := ['sum'], target := ['x','a'], {_BOUNDS}, {_PURE})",
    f"dp_sum('t', target := 'x', {_BOUNDS}, unit_value := 'sum', privacy_unit := 'id', max_rows_per_unit := 2, {_PURE})",
    f"dp_histogram('t', target := 'x', bins := [0, 1], {_PURE})",
    f"dp_crosstab('t', rows := 'x', columns := 'a', keys := struct_pack(x := ['a'], a := [0,1]), {_PURE})",
    f"dp_synthetic('t', columns := ['x','a'], private_keys := true, {_DELTA})",
    f"dp_synthetic('t', private_keys := true, lower := -1, upper := 1, privacy_unit := 'x', {_UNIT}, {_DELTA})",
    f"dp_sis('t', features := ['x','a'], target := 'a2', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', features := ['a','a2'], target := 'x', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', features := 'x', n_features := 2, target := 'a', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', features := 'x', row_id := 'id', names := ['a'], value := 'a', target := 'a', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', features := 'n', row_id := 'x', names := ['a'], value := 'a', target := 'a', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', features := 'n', row_id := 'id', names := ['a'], value := 'x', target := 'a', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_sis('t', target := 'a', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_kendall('t', features := ['x','a'], target := 'a2', k := 1, {_PURE}, blocks := 2, row_id := 'id')",
    f"dp_kendall('t', features := ['a2','a'], target := 'x', k := 1, {_PURE})",
    f"dp_kendall('t', features := ['a2','a'], target := 'a', k := 1, {_PURE}, blocks := 2, row_id := 'x')",
    f"dp_two_stage('t', features := ['x','a'], target := 'a2', k := 1, {_PURE}, blocks := 2)",
    f"dp_two_stage('t', features := ['a','a2'], target := 'x', k := 1, {_PURE}, blocks := 2)",
    f"dp_best_subset('t', features := ['x','a'], target := 'a2', {_BOUNDS}, {_TARGET}, k := 1, {_PURE})",
    f"dp_linear_regression('t', features := ['x','a'], target := 'a2', {_DELTA})",
    f"dp_linear_regression('t', features := ['a'], target := 'x', {_DELTA})",
    f"dp_linear_regression('t', features := ['a'], target := 'x', {_BOUNDS}, {_TARGET}, {_DELTA})",
    f"dp_pipeline('t', features := ['x','a'], target := 'a2', {_BOUNDS}, {_TARGET}, k := 1, {_DELTA})",
    f"dp_logistic_regression('t', features := ['a'], target := 'x', {_BOUNDS}, {_PURE})",
    f"dp_logistic_regression('t', features := ['x'], target := 'y', {_BOUNDS}, {_PURE})",
    f"dp_naive_bayes('t', features := ['x'], target := 'y', {_DELTA}, max_features_per_row := 1)",
    f"dp_naive_bayes('t', features := ['a'], target := 'x', {_DELTA}, max_features_per_row := 1, present_above := 0)",
    f"dp_score_filter('t', features := ['x','a'], target := 'y', {_DELTA}, threshold := 5, max_features_per_row := 1, present_above := 0)",
    f"dp_score_filter('t', features := 'x', row_id := 'id', target := 'y', {_DELTA}, threshold := 5, vocabulary := 'private', max_features_per_row := 1)",
    f"dp_score_filter('t', features := 'n', row_id := 'x', target := 'y', {_DELTA}, threshold := 5, vocabulary := 'private', max_features_per_row := 1)",
    f"dp_score_filter('t', features := 'n', row_id := 'id', target := 'x', {_DELTA}, threshold := 5, vocabulary := 'private', max_features_per_row := 1)",
    f"dp_score_filter('t', features := 'n', row_id := 'id', value := 'x', target := 'y', {_DELTA}, threshold := 5, vocabulary := 'private', max_features_per_row := 1)",
    f"dp_quantile('t', target := 'x', {_BOUNDS}, {_PURE})",
    f"dp_quantile('t', target := 'x', {_PURE})",
    f"dp_bounds('t', target := 'x', {_PURE})",
    f"dp_covariance('t', features := ['x','a'], {_BOUNDS}, {_PURE})",
    f"dp_covariance('t', features := 'x', n_features := 2, {_BOUNDS}, {_PURE})",
    f"dp_correlation('t', features := ['x','a'], {_BOUNDS}, {_PURE})",
    f"dp_regression_metrics('t', target := 'x', prediction := 'a', {_BOUNDS}, {_PURE})",
    f"dp_regression_metrics('t', target := 'a', prediction := 'x', {_BOUNDS}, {_PURE})",
    f"dp_roc('t', label := 'x', score := 'a', {_BOUNDS}, {_PURE})",
    f"dp_roc('t', label := 'y', score := 'x', {_BOUNDS}, {_PURE})",
    f"dp_auc('t', label := 'x', target_levels := ['a','b'], score := 'a', {_BOUNDS}, {_PURE})",
    f"dp_confusion('t', label := 'x', score := 'a', thresholds := [0.5], {_BOUNDS}, {_PURE})",
    f"dp_compare('t', target := 'x', groups := 'y', {_BOUNDS}, {_PURE})",
    f"dp_compare('t', target := 'a', groups := 'x', {_BOUNDS}, {_PURE})",
    f"dp_compare('t', of := 'share', target := 'x', groups := 'x', keys := ['a', 'b'], {_PURE})",
    f"dp_compare('t', of := 'count', groups := 'x', keys := ['a', 'b'], {_PURE})",
    f"dp_compare('t', of := 'count', groups := 'x', keys := [0, 1], {_PURE})",
    f"dp_compare('t', of := 'auc', scores := ['x', 'a'], label := 'y', {_PURE})",
    f"dp_compare('t', of := 'error', loss := 'absolute', scores := ['a', 'a2'], label := 'x', {_BOUNDS}, {_PURE})",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """Return a connection with a table for each type."""
    with dpsql.connect() as opened:
        for place, (kind, value) in enumerate(TYPES.items()):
            with contextlib.suppress(duckdb.Error):  # not a type of this version
                opened.execute(
                    f"CREATE TABLE t{place} AS SELECT CAST({value} AS {kind}) AS x, random() AS a, random() AS a2, "
                    "range AS id, range % 2 = 0 AS y, 'w' || (range % 3) AS n FROM range(12)"
                )
        yield opened


def _failures(con: Any, call: str) -> list[tuple[str, str]]:
    """Return the types on which a call ends as it must not."""
    known = [row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
    wrong = []
    for place, kind in enumerate(TYPES):
        if f"t{place}" not in known:
            continue
        before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
        try:
            con.execute("SELECT * FROM " + call.replace("'t'", f"'t{place}'")).fetchall()
        except duckdb.Error as error:
            charged = con.execute("SELECT count(*) FROM dp_ledger()").fetchall() != before
            if charged or not re.search(r"\[DPSQL-[PS]\d{3}\]", str(error)):
                wrong.append((kind, str(error)[:200]))
    return wrong


def test_every_function_is_asked() -> None:
    asked = {call.partition("(")[0] for call in CALLS}
    assert asked == {name for name, known in FUNCTIONS.items() if known.spends}


@cases("call", CALLS)
def test_a_type_is_answered_or_refused(con: Any, call: str) -> None:
    assert _failures(con, call) == []
