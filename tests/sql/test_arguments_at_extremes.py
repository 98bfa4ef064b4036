"""Every public argument of every function at its extremes: an answer, or a refusal with a code and without a charge.

The arguments come from the functions' own lists, so that a new one is tried as soon as it exists. Memory is limited
while the calls run: an argument that decided how much of it a call takes would end the process.

Every run tries numbers that did harm once, and a share of all other values, others for each argument; all of
them take a quarter of an hour (``-m slow``).
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.functions.estimate import ESTIMATE
from dpsql.functions.query import ARGUMENTS
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

# Calls that answer may work; those that are refused must not. A call without an end meets the time that a test has.
_MEMORY = 3 << 30

NUMBERS = """
0 | -0.0::DOUBLE | -1 | 1 | 2 | 0.5 | 1.5 | 1e9 | 1e-9 | 9223372036854775807 | -9223372036854775808
170141183460469231731687303715884105727 | 1e15 | 1e300 | 1e308::DOUBLE | -1e308::DOUBLE | 1.7976931348623157e308::DOUBLE
1e-30 | 1e-300 | 5e-324::DOUBLE | 0.999999999999999999::DECIMAL(38,18) | 'nan'::DOUBLE | 'inf'::DOUBLE | '-inf'::FLOAT
"""
OTHERS = r"""
true | NULL | '' | ' ' | 'a' | 'y' | 'none' | repeat('x', 100000) | chr(0) | 'é😀' | 'it''s "quoted"' | '1' | E'\n'
DATE '2020-01-01' | TIMESTAMP '2020-01-01' | INTERVAL 1 DAY | 'ab'::BLOB | '00000000-0000-0000-0000-000000000001'::UUID
[] | [NULL] | [1] | [0, 0] | [1, NULL] | [0.25, 0.75] | [1e308::DOUBLE, -1e308::DOUBLE] | ['nan'::DOUBLE, 1] | [[1]]
[''] | ['a'] | ['a', 'c'] | ['a', 'a'] | ['a', NULL] | ['é', chr(0)] | range(5000) | [{'a': 1}] | [true, false]
{'a': 1} | {'release': 'none'} | {'release': NULL} | {'release': [1]} | {'release': 'none', 'a': 1} | {'a': NULL}
{'a': 0, 'c': 0} | {'a': 1, 'c': 1} | {'a': {'b': 1}} | {'a': [1]} | {'a': 1e308::DOUBLE, 'c': 1} | MAP {'a': 1} | MAP {}
MAP {1: 2} | MAP {['a']: 1} | MAP {'': 1} | MAP {'a': 0, 'A': 0, 'c': 0} | row(1, 2)
"""


def listed(text: str) -> list[str]:
    return [value.strip() for line in text.strip().splitlines() for value in line.split(" | ")]


VALUES = listed(NUMBERS) + listed(OTHERS)
HARMFUL = [
    "1e9",
    "9223372036854775807",
    "1e308::DOUBLE",
    "-1e308::DOUBLE",
    "1e-30",
    "0.999999999999999999::DECIMAL(38,18)",
]
SHARE = 24
# What DuckDB says of values that it cannot hand over, such as 1.5.6 of an empty map: it knows no row by then.
DUCKDB_REFUSES = re.compile(r"^Not implemented Error: Unsupported type")


def tried(place: int, *, all_of_them: bool) -> list[str]:
    """Return the values to try in a place of the table."""
    return VALUES if all_of_them else HARMFUL[place % 5 :: 5] + VALUES[place % SHARE :: SHARE]


WIDE = {"features": "['a', 'c']"}
ARRAY = {"features": "'x'", "n_features": "2"}
NAMED = {"features": "'x'", "names": "['a', 'c']"}
LONG = {"features": "'w'", "row_id": "'u'", "value": "'v'", "names": "['a', 'c']"}
UNIT = {"privacy_unit": "'u'", "max_rows_per_unit": "2"}
BOUNDS = {"lower": "0", "upper": "1"}
TARGET_BOUNDS = {"target_lower": "0", "target_upper": "1"}
DELTA = {"delta": "1e-6"}
ONE = {"target": "'y'", "epsilon": "1"}
SELECTED = {**ONE, "k": "1"}
MATRIX = {"epsilon": "1", **BOUNDS}
BOUNDED = {**SELECTED, **BOUNDS, **TARGET_BOUNDS}
LABELLED = {"target": "'b'", "epsilon": "1"}
PRESENT = {"present_above": "0.5"}
FILTERED = {**LABELLED, "threshold": "5"}
FITTED = {**ONE, **DELTA}
SCORED = {"label": "'b'", "score": "'p'", "epsilon": "1"}
GROUPS = {"by": "'u'", "keys": "[1, 2]", "other": "true"}
LISTED = {"by": "'u'", "keys": "[1, 2]"}
LIMITS = {"privacy_unit": "'u'", "max_groups_per_unit": "2", "max_rows_per_unit_group": "1"}
PRIVATE = {**DELTA, "by": "'b'", "keys": "'private'"}
SUMMED = {**ONE, **BOUNDS}

# For each function calls that answer; together they name every argument that can have a value.
CALLS: dict[str, list[dict[str, str]]] = {
    "dp_sis": [
        {**BOUNDED, **WIDE},
        {**BOUNDED, **WIDE, **UNIT, "center": "'target'", "center_share": "0.1"},
        {**BOUNDED, **NAMED, "mechanism": "'gumbel'"},
        {**BOUNDED, **ARRAY},
        {**BOUNDED, **LONG, "mechanism": "'canonical_lipschitz'", "gamma": "0.5"},
        {**SELECTED, **WIDE, "score": "'rank'", "verdict_share": "0.1", "verdict": "'set'", "n_rows": "50"},
    ],
    "dp_kendall": [
        {**SELECTED, **WIDE, "verdict_share": "0.1", "n_rows": "50"},
        {**SELECTED, **WIDE, **UNIT, "k": "2", "split": "'scaled'", "mechanism": "'exponential'"},
        {**SELECTED, **WIDE, "row_id": "'u'", "blocks": "3"},
        {**SELECTED, **ARRAY, "verdict": "'each'", "verdict_share": "0.1"},
        {**SELECTED, **LONG},
    ],
    "dp_two_stage": [
        {**SELECTED, **WIDE, "blocks": "3", "penalty": "0.1", "mechanism": "'canonical_lipschitz'", "gamma": "0.5"},
        {**SELECTED, **WIDE, **UNIT, "rows_per_block": "9", "count_share": "0.05", "count_failure": "0.01"},
        {**SELECTED, **NAMED, "blocks": "3"},
        {**SELECTED, **ARRAY, "blocks": "3"},
        {**SELECTED, **LONG, "blocks": "3"},
    ],
    "dp_best_subset": [
        {**BOUNDED, **WIDE, "radius": "1.1", "ridge": "0.1", "node_limit": "1000"},
        {**BOUNDED, **WIDE, **UNIT, "method": "'top_r'", "gap": "1", "list_size": "2", "intercept": "true"},
        {**BOUNDED, **NAMED},
        {**BOUNDED, **ARRAY},
        {**BOUNDED, **LONG},
    ],
    "dp_score_filter": [
        {**FILTERED, **WIDE, **PRESENT, "max_features_per_row": "1", "false_positives": "1"},
        {**FILTERED, **WIDE, **PRESENT, **UNIT, **DELTA},
        {**FILTERED, **WIDE, **PRESENT, "method": "'svt'", "cutoff": "1"},
        {**LABELLED, **WIDE, **PRESENT, "k": "1"},
        {**LABELLED, **WIDE, **PRESENT, "k": "1", "score": "'information_gain'", "n_max": "50", "method": "'gumbel'"},
        {**LABELLED, **WIDE, **PRESENT, "method": "'cluster'", "clusters": "2"},
        {**LABELLED, **ARRAY, **PRESENT, "k": "1", "score": "'purity'"},
        {**FILTERED, **NAMED, **PRESENT},
        {**FILTERED, **LONG},
        {**FILTERED, **LONG, **DELTA, "names": "NULL", "vocabulary": "'private'", "vocabulary_share": "0.5"},
    ],
    "dp_linear_regression": [
        {**FITTED, **WIDE, "rounds": "3", "split": "'thirds'", "bounds_share": "0.2", "scale_share": "0.1"},
        {**FITTED, **WIDE, "moments_share": "0.1", "method": "'ada_ssp'", "sampling": "true"},
        {**FITTED, **WIDE, **BOUNDS, **TARGET_BOUNDS, **UNIT, "method": "'ada_ssp'", "row_norm": "1"},
        {**FITTED, **WIDE, **BOUNDS, **TARGET_BOUNDS, "clip": "false"},
        {**FITTED, **WIDE, "method": "'tukey'", "count_share": "0.05", "count_failure": "0.01", "range_share": "0.05"},
        {**FITTED, **WIDE, "method": "'tukey'", "blocks": "5"},
        {**FITTED, **WIDE, **BOUNDS, **TARGET_BOUNDS, "method": "'tukey'", "n_rows": "50"},
        {**FITTED, **NAMED, "method": "'ada_ssp'"},
        {**FITTED, **ARRAY, "method": "'ada_ssp'"},
        {**FITTED, **LONG, "method": "'ada_ssp'"},
    ],
    "dp_pipeline": [
        {**FITTED, **WIDE, "k": "1", "rounds": "3", "selection_share": "0.05", "bounds_share": "0.2"},
        {**FITTED, **WIDE, "k": "1", "moments_share": "0.1", "clip": "false"},
        {**FITTED, **WIDE, "k": "1", "selector": "'two_stage'", "selection_blocks": "3", "method": "'ada_ssp'"},
        {**FITTED, **WIDE, **BOUNDS, **TARGET_BOUNDS, "k": "1", "selector": "'best_subset'", "row_norm": "1"},
        {**FITTED, **WIDE, **BOUNDS, **TARGET_BOUNDS, **UNIT, "k": "1", "selector": "'sis'", "scale_share": "0.1"},
        {
            **FITTED,
            **WIDE,
            "k": "1",
            "method": "'tukey'",
            "count_share": "0.05",
            "count_failure": "0.01",
            "range_share": "0.05",
        },
        {**FITTED, **WIDE, "k": "1", "method": "'tukey'", "blocks": "5"},
        {**FITTED, **WIDE, "k": "1", "method": "'tukey'", "n_rows": "50", "split": "'even'"},
        {**FITTED, **NAMED, "k": "1"},
        {**FITTED, **ARRAY, "k": "1"},
        {**FITTED, **LONG, "k": "1"},
    ],
    "dp_naive_bayes": [
        {
            **LABELLED,
            **WIDE,
            **PRESENT,
            "count_share": "0.1",
            "smoothing": "1",
            "shrink": "true",
            "max_features_per_row": "1",
        },
        {**LABELLED, **WIDE, **PRESENT, **UNIT, **DELTA, "count_share": "0.1"},
        {**LABELLED, **NAMED, **PRESENT},
        {**LABELLED, **ARRAY, **PRESENT},
        {**LABELLED, **LONG},
    ],
    "dp_logistic_regression": [
        {**LABELLED, **WIDE, **BOUNDS, "row_norm": "1", "regularization": "1"},
        {**LABELLED, **WIDE, **BOUNDS, **UNIT, **DELTA},
        {**LABELLED, **WIDE, **DELTA, "bounds_share": "0.2", "moments_share": "0.1"},
        {**LABELLED, **NAMED, **BOUNDS},
        {**LABELLED, **ARRAY, **BOUNDS},
        {**LABELLED, **LONG, **BOUNDS},
    ],
    "dp_count": [
        {"epsilon": "1", **GROUPS, "confidence": "0.9", "noise": "'laplace'"},
        {"epsilon": "1", "target": "'y'", **PRIVATE, **LIMITS},
        {"epsilon": "1", **UNIT, "by": "'b'", "distinct_of": "'u'"},
        {"epsilon": "1", **UNIT, "left_out_share": "0.1"},
    ],
    **{
        name: [
            {**SUMMED, **more, **GROUPS, "confidence": "0.9", "noise": "'laplace'"},
            {**SUMMED, **more, **PRIVATE, **LIMITS},
            {**SUMMED, **more, **UNIT, "unit_value": "'sum'"},
            {**SUMMED, **more, **UNIT, "left_out_share": "0.1"},
            {**ONE, **more, "bounds_share": "0.25", **GROUPS},
            *sized,
        ]
        for name, more, *sized in (
            ("dp_sum", {}, {**SUMMED, "group_sizes": "60"}),
            (
                "dp_avg",
                {"sampling": "false"},
                {**SUMMED, **LISTED, "group_sizes": "[2, 2]"},
                {**SUMMED, **LISTED, "nulls": "'middle'"},
            ),
            ("dp_variance", {"ddof": "0"}),
            ("dp_stddev", {"ddof": "1"}),
            (
                "dp_aggregate",
                {"aggregates": "['count', 'avg']", "ddof": "1", "sampling": "false"},
                {**SUMMED, "aggregates": "['sum', 'avg']", "group_sizes": "60"},
                {**SUMMED, "aggregates": "['sum', 'avg']", "nulls": "'middle'"},
            ),
        )
    },
    "dp_histogram": [
        {
            **ONE,
            "bins": "[0.25, 0.5]",
            "null_bin": "false",
            "curve": "'tree'",
            "confidence": "0.9",
            "noise": "'laplace'",
        },
        {**ONE, **BOUNDS, "n_bins": "4", **GROUPS, **LIMITS, **DELTA, "max_rows_per_unit": "2"},
    ],
    "dp_crosstab": [
        {
            "epsilon": "1",
            "rows": "'b'",
            "columns": "'u'",
            "keys": "{'b': [true, false], 'u': [1, 2]}",
            "margins": "false",
            "confidence": "0.9",
            "noise": "'laplace'",
        },
        {
            "epsilon": "1",
            "by": "['b', 'u']",
            "keys": "{'b': [true, false], 'u': [1, 2]}",
            **LIMITS,
            **DELTA,
            "max_rows_per_unit": "2",
        },
    ],
    "dp_synthetic": [
        {
            "epsilon": "1",
            **DELTA,
            "columns": "['u', 'b']",
            "target": "'b'",
            "lower": "{'u': 0}",
            "upper": "{'u': 9}",
            "report_share": "0.1",
            "privacy_unit": "'u'",
            "max_rows_per_unit": "2",
        },
        {
            "epsilon": "1",
            **DELTA,
            "columns": "['u', 'b']",
            "keys": "{'b': [true, false]}",
            "private_keys": "true",
            "bounds_share": "0.2",
        },
    ],
    "dp_quantile": [
        {**ONE, **BOUNDS},
        {**ONE, "bounds_share": "0.25"},
        {**ONE, **BOUNDS, **GROUPS, **LIMITS},
        {**ONE, **BOUNDS, **UNIT, "quantiles": "[0.25, 0.5]", "cells": "64", "interval_share": "0.1"},
    ],
    "dp_bounds": [{**ONE, "failure": "0.01"}, {**ONE, **UNIT}, {**ONE, **GROUPS, **LIMITS}],
    "dp_covariance": [
        {**MATRIX, **WIDE, "ddof": "0"},
        {**MATRIX, **WIDE, **UNIT, **DELTA, "ddof": "1"},
        {**MATRIX, **NAMED},
        {**MATRIX, **ARRAY},
        {**MATRIX, **LONG},
    ],
    "dp_correlation": [
        {**MATRIX, **WIDE},
        {**MATRIX, **WIDE, **UNIT, **DELTA, "sampling": "true"},
        {**MATRIX, **NAMED},
        {**MATRIX, **ARRAY},
        {**MATRIX, **LONG},
    ],
    "dp_regression_metrics": [
        {**ONE, **BOUNDS, "prediction": "'a'"},
        {**ONE, **BOUNDS, **UNIT, "prediction": "'a'", "error_bound": "0.5"},
    ],
    "dp_roc": [
        SCORED,
        {**SCORED, **BOUNDS, **UNIT, **DELTA, "n_thresholds": "7", "threshold_share": "0.1", "cells": "64"},
        {**SCORED, "thresholds": "'smooth_medians'", "curve": "'tree'", "threshold_share": "0.1"},
        {**SCORED, "thresholds": "'fixed'", "curve": "'wavelet'", "n_thresholds": "3"},
    ],
    "dp_auc": [
        SCORED,
        {**SCORED, **BOUNDS, **UNIT, **DELTA, "cells": "64", "noise": "'laplace'", "sampling": "true"},
        {**SCORED, **UNIT, "method": "'smooth'"},
    ],
    "dp_confusion": [SCORED, {**SCORED, **BOUNDS, **UNIT, **DELTA, "thresholds": "[0.25, 0.5]", "curve": "'toeplitz'"}],
    "dp_compare": [
        {"target": "'a'", "groups": "'b'", "epsilon": "1", **BOUNDS},
        {"target": "'a'", "groups": "'u'", "keys": "[1, 2]", "epsilon": "1", **BOUNDS, **DELTA, "noise": "'gaussian'"},
        {"of": "'count'", "groups": "'b'", "epsilon": "1", **UNIT},
        {"of": "'auc'", "scores": "['p', 'a']", "label": "'b'", "epsilon": "1", "cells": "64", "sampling": "false"},
        {
            "of": "'error'",
            "scores": "['p', 'a']",
            "label": "'b'",
            "target_levels": "[false, true]",
            "epsilon": "1",
            "thresholds": "0.5",
            "loss": "'zero_one'",
            "confidence": "0.9",
            **BOUNDS,
        },
    ],
}
for several in CALLS.values():
    several[0] = {**several[0], "condition": "'y < 2'"}


def columns_of(name: str) -> str:
    """Return what the aggregate form of a function is called with: the columns that its first call names."""
    given = {
        argument.column: "x" if argument.column == "x" else CALLS[name][0].get(argument.name, "'y'").strip("'")
        for argument in FUNCTIONS[name].plan.arguments.values()
        if argument.column
    }
    return ", ".join(given[column] for column in ("x", "y", "p") if column in given)


class Tables:
    """A connection with tables, and what was charged so far; once some are protected, no other one is answered."""

    def __init__(self, *, protected: bool = False) -> None:
        self.connection = dpsql.connect()
        self.connection.execute(
            "CREATE TABLE t AS SELECT random() AS y, random() AS a, random() AS c, i % 2 = 0 AS b, random() AS p, "
            "i // 2 AS u, [random(), random()] AS x FROM range(60) AS r(i);"
            "CREATE TABLE l AS SELECT u, y, b, unnest(['a', 'c']) AS w, unnest([a, c]) AS v FROM t;"
            "CREATE TABLE q AS FROM t; CREATE TABLE d AS SELECT *, DATE '2026-01-01' + i::INTEGER AS day "
            "FROM (SELECT *, u * 3 AS i FROM t)"
        )
        budgets = {"q": "", "d": ", period := 'month', period_of := 'day'"}
        for table, more in budgets.items() if protected else ():
            self.connection.execute(
                f"SELECT dp_protect('{table}', epsilon := 1e9, delta := 0.01, privacy_unit := 'u', "
                f"max_rows_per_unit := 2{more})"
            )
        self.ledger = dpsql.Context(self.connection).ledger
        self.signatures: dict[str, set[str]] = {
            name: set(arguments)
            for name, arguments in self.connection.execute(
                "SELECT function_name, parameters FROM duckdb_functions() "
                "WHERE database_name = 'temp' AND function_type = 'macro'"
            ).fetchall()
        }

    def releases(self) -> int:
        return sum(row.releases for row in self.ledger.budgets())


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with limited_memory():
        opened = Tables()
        yield opened
        opened.connection.close()


@pytest.fixture(scope="module")
def protected() -> Iterator[Tables]:
    with limited_memory():
        opened = Tables(protected=True)
        yield opened
        opened.connection.close()


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let the process grow by so much and no more, where the system has such a limit."""
    resource = pytest.importorskip("resource")
    pages = Path("/proc/self/statm")
    if not pages.exists():
        yield
        return
    now = int(pages.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + _MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def table_form(tables: Tables, name: str, given: dict[str, str]) -> str:
    source = "'l'" if given.get("features") == "'w'" else "'t'"
    return f"FROM {name}({', '.join([source, *written(given)])})"


def aggregate_form(tables: Tables, name: str, given: dict[str, str]) -> str:
    columns = columns_of(name)
    if columns.startswith("x") and "names" not in given:
        given = {"n_features": "2", **given}
    known = {argument: value for argument, value in given.items() if argument in tables.signatures[name]}
    return f"SELECT {name}({', '.join([columns, *written(known)])}) FROM t"


def written(given: dict[str, str]) -> list[str]:
    return [f"{argument} := {value}" for argument, value in given.items()]


def calls_of(name: str, arguments: list[str], *, all_of_them: bool) -> Iterator[dict[str, str]]:
    """Every argument in the calls that name it: in the first one at many values, in others at those that did harm."""
    calls = CALLS[name]
    for place, argument in enumerate(arguments, start=list(FUNCTIONS).index(name)):
        naming = [call for call in calls if argument in call] or calls[:1]
        yield from ({**naming[0], argument: value} for value in tried(place, all_of_them=all_of_them))
        yield from ({**call, argument: value} for call in naming[1:] for value in HARMFUL)


def complaint(tables: Tables, statement: str) -> str | None:
    """Run a statement; say what is wrong with how it ended, if anything."""
    before, message = tables.releases(), None
    try:
        tables.connection.execute(statement).fetchall()
    except duckdb.Error as error:
        message = str(error)
    except Exception as error:  # of any kind: none may come
        return f"{statement[:400]}: {error!r}"
    if message is None:
        return None
    code = re.search(r"\[DPSQL-([A-Z])\d", message)
    if (code is None and not DUCKDB_REFUSES.match(message)) or (code is not None and code[1] == "I"):
        return f"{statement[:400]}: {message[:400]}"
    if tables.releases() != before:
        return f"{statement[:400]}: charged, and refused: {message[:400]}"
    return None


def assert_none(complaints: list[str]) -> None:
    assert not complaints, f"{len(complaints)} calls:\n" + "\n".join(complaints[:20])


@cases("name", FUNCTIONS)
def test_the_calls_answer(tables: Tables, name: str) -> None:
    for call in CALLS[name]:
        assert tables.connection.execute(table_form(tables, name, call)).fetchall() is not None
        long = call.get("features") == "'w'"
        if not long and name in tables.signatures and "blocks" not in set(call) - tables.signatures[name]:
            assert tables.connection.execute(aggregate_form(tables, name, call)).fetchall()
    named = {argument for call in CALLS[name] for argument in call}
    optional = {
        "target_levels",
        "neighbours",
        "dataset",
        "engine",
        "during",
        "release",
        "privacy_unit",
        "row_id",
        "standardize",
        "intercept",
        "method",
    }
    assert set(FUNCTIONS[name].plan.arguments) - named <= optional | set(BOUNDS) | set(TARGET_BOUNDS) | {"mechanism"}


# Both forms check arguments in one place: of every function one form is looked at in the gate, the other with `-m slow`.
BY_TURNS = [
    pytest.param(form, name, marks=() if (place + turn) % 2 else pytest.mark.slow)
    for turn, form in enumerate((table_form, aggregate_form))
    for place, name in enumerate(FUNCTIONS)
]


@cases(("form", "name"), BY_TURNS)
@cases("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_argument_at_its_extremes(
    tables: Tables, all_of_them: bool, form: Any, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = list(FUNCTIONS[name].plan.arguments)
    if form is aggregate_form:
        if name not in tables.signatures:
            return  # it has no aggregate form
        arguments = [argument for argument in arguments if argument in tables.signatures[name]]
    statements = dict.fromkeys(
        form(tables, name, given) for given in calls_of(name, arguments, all_of_them=all_of_them)
    )
    assert_none([wrong for statement in statements if (wrong := complaint(tables, statement)) is not None])
    assert capfd.readouterr().err == ""


@cases("name", FUNCTIONS)
@cases("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_estimate_at_its_extremes(
    tables: Tables, all_of_them: bool, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    one = {"n_features": "2"} if "features" in FUNCTIONS[name].plan.arguments else {}
    calls = [
        {
            "n_rows": "100",
            **one,
            **{argument: value for argument, value in call.items() if argument in ESTIMATE},
        }
        for call in CALLS[name]
        if call.get("features") != "'w'"
    ]
    calls = [{argument: value for argument, value in call.items() if argument != "names"} for call in calls]
    complaints, named = [], set[str]()
    for call in calls:
        assert tables.connection.execute(f"FROM dp_estimate('{name}', {', '.join(written(call))})").fetchall()
        for place, argument in enumerate(ESTIMATE if call is calls[0] else call):
            values = tried(place, all_of_them=all_of_them)
            if not all_of_them and call is calls[0]:
                values = values[place % 3 :: 3]
            elif not all_of_them and argument in named:
                values = HARMFUL[place % 5 :: 5]
            for value in values:
                text = f"FROM dp_estimate('{name}', {', '.join(written({**call, argument: value}))})"
                complaints += [wrong for wrong in [complaint(tables, text)] if wrong is not None]
        named |= call.keys() if call is not calls[0] else set()
    assert_none(complaints)
    assert capfd.readouterr().err == ""


QUERY_ARGUMENTS = ("sql", *ARGUMENTS)
# Queries that answer; the first one names every argument but `during`.
QUERIES: list[dict[str, str]] = [
    {
        "sql": "'SELECT b, count(*) AS n, sum(y) AS s, avg(a) AS m FROM q GROUP BY b'",
        "epsilon": "1",
        "delta": "1e-6",
        "errors": "true",
        "keys": "{'b': [true, false]}",
        "lower": "{'y': 0, 'a': 0}",
        "upper": "{'y': 1, 'a': 1}",
        "max_rows_per_unit": "2",
        "max_groups_per_unit": "2",
        "left_out_share": "0",
        "confidence": "0.9",
        "release": "'r'",
        "max_age": "0",
        "estimate": "false",
        "fresh": "true",
    },
    {"sql": "'SELECT count(*) AS n FROM d'", "epsilon": "1", "during": "'2026-01'"},
    {"sql": "'SELECT count(*) AS n FROM q'", "epsilon": "1", "max_rows_per_unit": "'drawn'", "max_age": "0"},
    {"sql": "'SELECT i, count(*) AS n FROM d GROUP BY i'", "epsilon": "1", "delta": "1e-6", "keys": "'private'"}
    | {"during": "'2026-01'"},
]
TEXTS = r"""
'SELECT' | ';' | '--' | '/*' | 'SELECT 1; SELECT 2' | 'FROM q' | 'SELECT $1' | 'SELECT ?' | 'EXPLAIN SELECT 1'
repeat('(', 10000) | repeat('SELECT 1 UNION ALL ', 300) || 'SELECT 1' | 'SELECT ' || repeat('1+', 3000) || '1'
'SELECT count(*) FROM q ' || repeat(' ', 200000) | 'SELECT ' || chr(0) | 'SELECT count(*) FROM "q' || chr(0) || '"'
'COPY q TO ''x'' (FORMAT csv)' | 'PRAGMA version' | 'SELECT 1e400' | 'SELECT ' || repeat('9', 400) | current_date
"""


def query_form(given: dict[str, str]) -> str:
    more = {argument: value for argument, value in given.items() if argument != "sql"}
    return f"FROM dp_query({', '.join([given['sql'], *written(more)])})"


def estimated_form(given: dict[str, str]) -> str:
    named = {argument: value for argument, value in given.items() if argument in ESTIMATE}
    return f"FROM dp_estimate('dp_query', {', '.join(written(named))})"


@pytest.mark.parametrize("form", [query_form, estimated_form])
def test_the_queries_answer(protected: Tables, form: Any) -> None:
    for call in QUERIES:
        assert protected.connection.execute(form(call)).fetchall() is not None  # private keys may all be left out
    assert set[str]().union(*QUERIES) == set(QUERY_ARGUMENTS)


@pytest.mark.parametrize("form", [query_form, estimated_form])
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_argument_of_a_query_at_its_extremes(
    protected: Tables, all_of_them: bool, form: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    statements = []
    for number, call in enumerate(QUERIES):
        for place, argument in enumerate(QUERY_ARGUMENTS):
            if argument not in call and number:
                continue
            values = VALUES + listed(TEXTS) if argument == "sql" and not number else None
            values = values or tried(place + number, all_of_them=all_of_them)
            statements += [form({**call, argument: value}) for value in values]
    complaints = [complaint(protected, statement) for statement in dict.fromkeys(statements)]
    assert_none([wrong for wrong in complaints if wrong is not None])
    assert capfd.readouterr().err == ""


PROTECTED = (
    "epsilon",
    "delta",
    "rho",
    "neighbours",
    "privacy_unit",
    "max_rows_per_unit",
    *BOUNDS,
    *TARGET_BOUNDS,
    "replace",
)
GIVEN = {"epsilon": "1", **BOUNDS, **TARGET_BOUNDS}


@cases("argument", PROTECTED)
def test_a_budget_at_its_extremes(tables: Tables, argument: str) -> None:
    base = {name: value for name, value in GIVEN.items() if argument != "rho" or name != "epsilon"}
    complaints = []
    for number, value in enumerate(VALUES):
        text = f"SELECT dp_protect('{argument} {number}', {', '.join(written({**base, argument: value}))})"
        complaints += [wrong for wrong in [complaint(tables, text)] if wrong is not None]
    assert_none(complaints)


def test_names_of_datasets_sources_and_releases(tables: Tables) -> None:
    tables.connection.execute(f"FROM {'dp_roc'}('t', {', '.join(written(SCORED))}, release := 'curve')").fetchall()
    tables.connection.execute(
        f"FROM dp_naive_bayes('t', {', '.join(written({**LABELLED, **WIDE, **PRESENT}))}, release := 'model')"
    ).fetchall()
    forms = (
        "SELECT dp_protect({}, epsilon := 1)",
        "FROM dp_estimate({}, epsilon := 1)",
        "SELECT dp_predict({}, t) FROM t",
        "SELECT dp_predict_class({}, t) FROM t",
        "SELECT dp_predict('model', {}) FROM t",
        "SELECT dp_predict_class('model', {}) FROM t",
        "SELECT dp_predict('model', t, dataset := {}) FROM t",
        "FROM dp_precision_recall({})",
        "FROM dp_calibration({})",
        "FROM dp_precision_recall('curve', dataset := {})",
        "FROM exact_xty('t', target := 'y', lower := {}, upper := 1, target_lower := 0, target_upper := 1)",
        "FROM exact_discordant('t', target := {})",
    )
    complaints = [
        complaint(tables, form.format(value))
        for place, form in enumerate(forms)
        for value in tried(place, all_of_them=False)
    ]
    assert_none([wrong for wrong in complaints if wrong is not None])


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


class Endless:
    """An iterable that fails."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


class NoNumber(float):
    def __float__(self) -> float:
        raise RuntimeError


PYTHON_VALUES: list[Any] = [
    math.nan, -math.inf, 1e308, 10**30, 10**5000, -(10**5000), True, Decimal("1E+999999999"), Decimal("-1E-999999999"),
    Decimal("sNaN"), Fraction(1, 10**400), 1j, np.float32("nan"), np.int64(2**62), np.bool_(True), np.datetime64("NaT"),
    "\ud800", "a\x00b", "", b"ab", bytearray(b"ab"), (), [], {}, set(), {"a", "c"}, frozenset({1}), [None], [[]], [{}],
    {"a": None}, {None: 1}, {("a",): 1}, {"\ud800": 1}, {"release": {}}, {"release": math.nan}, {"release": True},
    np.array([]), np.array(5.0), np.zeros((2, 2)), range(10**9), itertools.repeat("a"), itertools.repeat(0.5), object(),
    Unprintable(), [Unprintable()], int, len, memoryview(b"ab"), slice(None), ..., NotImplemented,
]  # fmt: skip
QUERY_VALUES: list[Any] = [
    *PYTHON_VALUES, Endless(), Unequal(), [Unequal()], NoNumber(1), {"b": Unprintable()}, {"b": [10**5000]}, {"y": 10**5000},
    {"b": itertools.repeat("a")}, {"b": iter([True])}, {"y": NoNumber(1)}, {Unprintable(): 1}, "x" * 200_001,
]  # fmt: skip


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_query_in_python_takes_any_object(
    protected: Tables, all_of_them: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    context = dpsql.Context(protected.connection)
    call = {name: protected.connection.execute(f"SELECT {one}").fetchall()[0][0] for name, one in QUERIES[0].items()}
    complaints = []
    for place, argument in enumerate(QUERY_ARGUMENTS):
        for value in QUERY_VALUES if all_of_them or argument in ("sql", "keys") else QUERY_VALUES[place % 12 :: 12]:
            given, before = {**call, argument: value}, protected.releases()
            try:
                context.query(given.pop("sql"), **given)
            except dpsql.DpsqlError as error:
                if error.code.startswith("DPSQL-I") or protected.releases() != before:
                    complaints.append(f"{argument}={type(value)}: {error}")
            except Exception as error:  # of any kind: none may come
                complaints.append(f"{argument}={type(value)}: {error!r}")
    assert_none(complaints)
    assert capfd.readouterr().err == ""


def test_what_is_iterated_is_read_once_and_compared_as_a_whole(protected: Tables) -> None:
    """Texts of long arrays are shortened, and an iterator is empty when it is read again."""
    context, sql = dpsql.Context(protected.connection), "SELECT i, count(*) AS n FROM d GROUP BY i"
    more: dict[str, Any] = {"epsilon": 1, "during": "2026-01"}
    for more_by in (0, 5000):
        keys = np.arange(2000).astype(str)
        keys[1000] = str(1000 + more_by)
        for given in (keys, iter(keys.tolist())):
            answer = context.query(sql, keys={"i": given}, fresh=True, **more)
            assert set(answer.to_arrow()["i"].to_pylist()) == {*map(int, keys)}


@cases("name", FUNCTIONS)
def test_python_takes_any_object(tables: Tables, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A generator that never ends, too; what SQL has no form of is refused by our own errors."""
    call = {
        argument: tables.connection.execute(f"SELECT {value}").fetchall()[0][0]
        for argument, value in CALLS[name][0].items()
    }
    method = getattr(dpsql.Context(tables.connection), name)
    complaints = []
    arguments = enumerate(FUNCTIONS[name].plan.arguments)
    for argument, value in (
        (argument, value) for place, argument in arguments for value in PYTHON_VALUES[place % 16 :: 16]
    ):
        before = tables.releases()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                method("t", **{**call, argument: value})
        except dpsql.DpsqlError as error:
            if error.code.startswith("DPSQL-I") or tables.releases() != before:
                complaints.append(f"{argument}={type(value)}: {error}")
        except Exception as error:  # of any kind: none may come
            complaints.append(f"{argument}={type(value)}: {error!r}")
    assert_none(complaints)
    assert capfd.readouterr().err == ""
