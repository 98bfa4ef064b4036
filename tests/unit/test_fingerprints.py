"""A named release is found by the fingerprint of its call: what is stored of a call must never change."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.arguments import Signature
from dpsql.functions.registry import FUNCTIONS, plan_from_json
from dpsql.ledger.ledger import Ledger
from support.cases import cases

COLUMNS = {"target": "y", "features": ["a", "b"]}
ROWS = {"target": "y", "features": "word", "row_id": "doc"}
BOUNDS = {"lower": 0, "upper": 1.5}
TARGET = {"target_lower": -1, "target_upper": 1}
UNIT = {"privacy_unit": "person", "max_rows_per_unit": 3}
SCORED = {"label": "y", "score": "p", "epsilon": 0.3}
BUDGET = {"epsilon": 0.3, "delta": 1e-6}
# Recorded on 2026-11-22, before arguments had a class of their own.
STATED_ROWS = {**COLUMNS, **BUDGET, "k": 1, "selection_share": 0.05, "n_rows": 10000, "bounds_share": 0.3}

CALLS: list[tuple[str, dict[str, Any], str]] = [
    (
        "dp_sis",
        {**COLUMNS, **BOUNDS, **TARGET, "k": 1, "epsilon": 0.1},
        "09407ea93a1e4acfed4da0690f7022794ddeb283744177d0118fe018078846d6",
    ),
    (
        "dp_sis",
        {
            "target": "y",
            "features": "x",
            "n_features": 3,
            **BOUNDS,
            "target_levels": ["no", "yes"],
            "k": 2,
            "epsilon": 1,
            "mechanism": "canonical_lipschitz",
            "gamma": 0.25,
            "center": "target",
            "center_share": 0.2,
            "neighbours": "replace",
        },
        "3dcb8a79a38ffbfe0301b3e86bdeeb61acaeb09bc3362feb35a4978fb91e93ec",
    ),
    (
        "dp_kendall",
        {**COLUMNS, **UNIT, "k": 1, "epsilon": 1, "split": "scaled", "blocks": 4},
        "b8f2b75787b5ea3d3759a106c197841d7580f434ff1276ac5b993c41cdb91dba",
    ),
    (
        "dp_two_stage",
        {**COLUMNS, "k": 1, "epsilon": 1, "rows_per_block": 50, "penalty": 0.2, "standardize": False},
        "d891fd1df1b7018349106830d71c26e67e3bf5e729dc4a3ef3d392cc9f0c62d8",
    ),
    (
        "dp_best_subset",
        {
            **COLUMNS,
            **BOUNDS,
            **TARGET,
            "k": 1,
            "epsilon": 1,
            "method": "top_r",
            "list_size": 2,
            "gap": 0.5,
            "ridge": 0.1,
        },
        "4f47564ef7532a58c2f6ee758fe3d25e1e026605bd2fcfdd9599974efc10f5d5",
    ),
    (
        "dp_score_filter",
        {**COLUMNS, **BUDGET, "threshold": 10.5, "present_above": 0.5},
        "eea3d31fb9145a8e53b3cffccb659e4517ef08114aba19a8691591fc652f8f05",
    ),
    (
        "dp_score_filter",
        {**ROWS, **BUDGET, "k": 3, "vocabulary": "private", "clusters": 2, "target_levels": [0, 1]},
        "37a13c4718e515ee1012d8b178c2bb19accae613b85be9bb70519315338edb95",
    ),
    (
        "dp_linear_regression",
        {**COLUMNS, **BOUNDS, **TARGET, **BUDGET, "row_norm": 1, "rounds": 5, "method": "boosted_ada_ssp"},
        "3a06e7509de4cf8171632819e765b89b64a495d16bf9f5d902de402a75209dd1",
    ),
    (
        "dp_linear_regression",
        {**COLUMNS, **BUDGET, "blocks": 2000, "dataset": "other"},
        "b3e355e00090d862e5c57c256e06d8df62fa8cd6b119aca6ef605067f99fc0be",
    ),
    (
        "dp_pipeline",
        # The share was a default when this was recorded.
        STATED_ROWS,
        "4ab7c7e5fce8e32aef57252e46f238c70f53d4081221d724d6c83ac05d2a869e",
    ),
    (
        "dp_naive_bayes",
        {
            **ROWS,
            **BUDGET,
            "names": ["u", "v"],
            "value": "n",
            "smoothing": 2,
            "shrink": False,
            "max_features_per_row": 3,
        },
        "8939257157991c2e3992263473277736c589de2e7e463c77a5303f9870873206",
    ),
    (
        "dp_logistic_regression",
        {**COLUMNS, **BOUNDS, **BUDGET, "row_norm": 2, "regularization": 0.01},
        "5af795dddc7b08bd4af0587ec64d7ce52e094d0e407bf9cef20b78483fe77d79",
    ),
    (
        "dp_quantile",
        # There were no intervals when this was recorded.
        {"target": "y", "quantiles": [0.25, 0.5], **BOUNDS, "epsilon": 0.3, "cells": 64, "interval_share": 0},
        "8f2497b2db17da921e4ff16c78fe9575996db72d80439d6d875a3e4425bf3e61",
    ),
    (
        "dp_bounds",
        {"target": "y", "epsilon": 0.3, "failure": 0.01},
        "8446b892fad5bb22d2afe89e4a1feb2cba9e265ca8c04e155e5f1dbaffb72f8a",
    ),
    (
        "dp_covariance",
        {"features": ["a", "b"], **BOUNDS, **UNIT, "epsilon": 0.3, "ddof": 0},
        "ce297321edc50ee33cc256bbad3ffb696f9ac2420c00406ac2692e090cb35ecd",
    ),
    (
        "dp_correlation",
        {"features": "x", "n_features": 5, **BOUNDS, **BUDGET, "neighbours": "replace"},
        "d757358b21b8f4090c9adad959001b3a5a5c4ec1a1606fcc6df0588e8a2dfda7",
    ),
    (
        "dp_regression_metrics",
        {"target": "y", "prediction": "p", **BOUNDS, "epsilon": 0.3, "error_bound": 0.5},
        "6f5e50c41169ef03e557e5cdeeff3fbf4c6709611e87d79c106c336398d820d0",
    ),
    (
        "dp_roc",
        {**SCORED, "delta": 1e-6, "thresholds": "fixed", "n_thresholds": 7, "threshold_share": 0.3},
        "78b05f5367e74a293319ea7e9100b48ece2f277b01da529e8b9c0eb5ff579ae3",
    ),
    (
        "dp_auc",
        {**SCORED, **UNIT, "row_id": "id", "cells": 128, "method": "smooth"},
        "fe069daa904b2d8a1aaf9fb9ba1b1fccf581920589973d71feece48b8af5b2a5",
    ),
    (
        "dp_auc",
        # Scores were rounded to cells where nothing was said of it.
        {**SCORED, "delta": 1e-6, "cells": 4096},
        "9b63aee6fdfc979d0f60c6731eacd4ee4c70dfa2d8faa5ce948a22d1583306f9",
    ),
    (
        "dp_compare",
        {"target": "y", "groups": "g", "keys": ["a", "b"], **BOUNDS, "epsilon": 0.3, "sampling": False, "cells": 4096},
        "ace267f3fb289ffcd3bfc4f983e17c37adabd5c0440b0a3b55449a4000ffd4ed",
    ),
    (
        "dp_compare",
        {"of": "auc", "scores": ["p", "q"], "label": "y", **UNIT, "epsilon": 0.3, "cells": 128},
        "e94f20ade203f6a51638dc499dc6b07356205a9237a5f2e2325505c8589db57f",
    ),
    (
        "dp_confusion",
        {**SCORED, "thresholds": [0.5, 0.9], "curve": "tree"},
        "a3da1b2c38c8eea945f2bfa3ce2d654959a0f41e5af76ea8532b5384927397ff",
    ),
    (
        "dp_histogram",
        {"target": "y", "bins": [0, 1.5], "by": "g", "keys": ["a", None], "epsilon": 1, "curve": "tree"},
        "2d652e5f50718d7a04f9d42dbfda59df97931bb4c8443fce0e141b92f2eb2eee",
    ),
    (
        "dp_histogram",
        {"target": "y", **BOUNDS, "n_bins": 1, "epsilon": 1, **UNIT},
        "fa8768ac04e734c2db9d2fa192866a7a5a7f9beb73f3f4dd8aebbf5140d41369",
    ),
    (
        "dp_crosstab",
        {"rows": "g", "columns": "h", "keys": {"g": ["a", None], "h": [1, 2]}, **BUDGET, "margins": False},
        "8189e25ff648f48dda25236fa755a853562ea71293199a72af7e8ce66eef6e94",
    ),
    (
        "dp_synthetic",
        {"columns": ["x", "g"], **BUDGET, "keys": {"g": ["a"]}, "lower": {"x": 0}, "upper": {"x": 1}, "target": "g"},
        "45d7817f869a0aa4b56bb856a6f9376ca5f75e50c6dca9c8d6655c019a6caae2",
    ),
    (
        "dp_quantile",
        # The cells were a default, and there were no intervals.
        {
            "target": "y",
            **BOUNDS,
            "epsilon": 1,
            "by": ["g", "h"],
            "keys": [{"g": 1, "h": 2}],
            "cells": 1024,
            "interval_share": 0,
        },
        "45901b32c41e4bae1dbd4d7896771510f92583dd6f9bb74c407c34499cf871b9",
    ),
    (
        "dp_bounds",
        {"target": "y", "epsilon": 1, "by": "g", "keys": [1], "other": True},
        "afd0e4d3694cdc2f117c74ce909c0381695adb432ceabadfbe3821b23a0c8c23",
    ),
    (
        "dp_count",
        {"epsilon": 1, "by": "g", "keys": ["a", None], "other": True},
        "5d4212e7e04774c9b6d7e69e9fb7343f3791b8cdec67fa10fb765b5e20ea02ab",
    ),
    (
        "dp_count",
        {**BUDGET, "by": "g", "keys": "private", **UNIT, "max_groups_per_unit": 2},
        "afb6e3bfe9f89bdc9970177e338451aeed342cf21d352ed279c13c7a0dd63c96",
    ),
    (
        "dp_sum",
        {"target": "y", **BOUNDS, "epsilon": 1},
        "56804335661d1ee4edb8256f7217089f57c1e54ec0536216d3dd1d74a3cd7bc5",
    ),
    (
        "dp_avg",
        {"target": ["y", "z"], **BOUNDS, "epsilon": 1, "by": ["g", "h"], "keys": {"g": [1]}},
        "4cd46722904ee945484969d791335dbdb4fc956853ed168283a94ff83c7e8980",
    ),
    (
        "dp_variance",
        {"target": "y", **BOUNDS, "epsilon": 1, "ddof": 0},
        "70734c8a7b7c8318b05e1a86e8c51897a0d805781fdd270e4a93d14532f726f9",
    ),
    (
        "dp_stddev",
        {"target": "y", **BOUNDS, **BUDGET, "noise": "gaussian", **UNIT, "left_out_share": 0},
        "11d74345f588b6c0e88a05d62bbbfe397df96c534088514028f2ad794d5ae3db",
    ),
    (
        "dp_aggregate",
        {"aggregates": ["count", "avg"], "target": "y", **BOUNDS, "epsilon": 1, "condition": "y > 1"},
        "f19ac57cd74ee7b7969617c6a1b5ab7028e5d90e956471064dcc9a9ded23ed85",
    ),
]


def fingerprint(function: str, given: dict[str, Any]) -> str:
    plan = FUNCTIONS[function].plan.from_arguments("t", {**given, "release": "r"})
    return Ledger.fingerprint(plan.dataset, plan.function, plan.public_arguments)


@cases(("function", "given", "recorded"), CALLS)
def test_the_fingerprint_of_a_call_stays(function: str, given: dict[str, Any], recorded: str) -> None:
    assert fingerprint(function, given) == recorded


@cases(("function", "given"), [call[:2] for call in CALLS])
def test_a_plan_comes_back_from_its_text(function: str, given: dict[str, Any]) -> None:
    plan = FUNCTIONS[function].plan.from_arguments("t", given)
    again = plan_from_json(plan.to_json())
    assert again == plan
    for field in fields(plan):
        assert type(getattr(again, field.name)) is type(getattr(plan, field.name)), field.name
    assert again.event == plan.event


# What calls without these arguments were recorded with, at any time: a new default needs the old one in `earlier`.
DEFAULTS = Path(__file__).with_name("defaults.txt")


def defaults() -> str:
    lines = [
        f"{name} {argument.name} {argument.default!r}\n"
        for name, function in sorted(FUNCTIONS.items())
        for argument in function.plan.arguments.values()
        if argument.default is not None
    ]
    return "".join(sorted(lines))


def test_every_default_that_ever_was_is_known() -> None:
    known = set(defaults().splitlines())
    for name, function in FUNCTIONS.items():
        known |= {
            f"{name} {argument.name} {value!r}"
            for argument in function.plan.arguments.values()
            for value in argument.earlier
        }
    recorded = set(DEFAULTS.read_text(encoding="utf-8").splitlines())
    assert known >= recorded, "add the default that was to `earlier` of the argument"
    assert set(defaults().splitlines()) <= recorded, f"add the new default to {DEFAULTS.name}"


EARLIER = {"bounds_share": 0.25, "scale_share": 0.05}


def test_a_named_release_outlives_new_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A named regression that was made under other defaults is returned again, as it was made."""
    connection = dpsql.connect()
    connection.execute("CREATE TABLE t AS SELECT range % 7 AS a, range % 5 AS y FROM range(400)")
    call = "FROM dp_linear_regression('t', target := 'y', features := ['a'], epsilon := 1, delta := 1e-6, {})"
    plan = FUNCTIONS["dp_linear_regression"].plan
    now = plan.arguments
    was = [replace(each, default=EARLIER.get(each.name, each.default)) for each in now.values()]
    monkeypatch.setattr(plan, "arguments", Signature(*was))
    made = connection.execute(call.format("release := 'nightly'")).fetchall()
    other = connection.execute(call.format("release := 'asked', bounds_share := 0.3")).fetchall()
    monkeypatch.setattr(plan, "arguments", now)
    again = connection.execute(call.format("release := 'nightly'")).fetchall()
    assert str(again) == str(made)
    with pytest.raises(duckdb.Error, match="DPSQL-P014"):  # asked for with another share than it was made with
        connection.execute(call.format("release := 'nightly', bounds_share := 0.3"))
    with pytest.raises(duckdb.Error, match="DPSQL-P014"):
        connection.execute(call.format("release := 'asked'"))
    assert str(connection.execute(call.format("release := 'asked', bounds_share := 0.3")).fetchall()) == str(other)
    assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'release'").fetchall() == [(2,)]


def test_a_named_quantile_outlives_cells_bounds_and_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made with 1024 cells, within bounds that were drawn, and without intervals is returned as it was."""
    connection = dpsql.connect()
    connection.execute("CREATE TABLE t AS SELECT range % 7 AS y FROM range(4000)")
    plan = FUNCTIONS["dp_quantile"].plan
    now, was = plan.arguments, {"cells": 1024, "interval_share": 0, "bounds_share": 0.25}
    calls = [
        "FROM dp_quantile('t', target := 'y', epsilon := 1, release := 'free')",
        "FROM dp_quantile('t', target := 'y', epsilon := 1, lower := 0, upper := 9, release := 'bounded')",
    ]
    monkeypatch.setattr(
        plan, "arguments", Signature(*(replace(one, default=was.get(one.name, one.default)) for one in now.values()))
    )
    made = [connection.execute(call).fetchall() for call in calls]
    assert all(row[2:5] == (None, None, "not measured") for [row] in made)
    monkeypatch.setattr(plan, "arguments", now)
    assert [connection.execute(call).fetchall() for call in calls] == made
    assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE kind = 'release'").fetchall() == [(2,)]
    [row] = connection.execute(calls[1].replace("bounded", "new")).fetchall()
    assert row[4] == "clear"


def test_every_function_is_recorded() -> None:
    assert {function for function, _, _ in CALLS} == set(FUNCTIONS)


def test_a_call_that_left_out_what_had_another_default_is_found() -> None:
    """`dp_best_subset` scored all subsets where no method was given."""
    given = {**COLUMNS, **BOUNDS, **TARGET, "k": 1, "epsilon": 1}
    plans = [
        FUNCTIONS["dp_best_subset"].plan.from_arguments("t", {**given, "release": "r", **method})
        for method in ({}, {"method": "exact"})
    ]
    assert plans[1].public_arguments in list(plans[0].earlier_arguments())


def test_a_call_for_which_auto_had_another_method_is_found() -> None:
    """'auto' boosted where enough rows are stated for an additive model; with 'boosted_ada_ssp' it does still."""
    plan = FUNCTIONS["dp_pipeline"].plan.from_arguments("t", {**STATED_ROWS, "release": "r"})
    before = [Ledger.fingerprint(plan.dataset, plan.function, record) for record in plan.earlier_arguments()]
    assert before == ["be4e42611941fff57906efadc0571d7d5b0e2fbd168ccb119b71b7d82afa3145"]
    assert fingerprint("dp_pipeline", {**STATED_ROWS, "method": "boosted_ada_ssp"}) == before[0]
