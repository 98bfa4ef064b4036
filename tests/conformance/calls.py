"""Every statistic of the package as a call in SQL: each function, layout, cap and kind of block."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tables import FAR, NAMES, OTHER_IDENTITIES, TYPES

from dpsql.functions.registry import FUNCTIONS

Value = Any
Asked = TypeVar("Asked")
# Which share of the calls each place is asked at night; all of them are hours of work.
SHARE = float(os.environ.get("DPSQL_CONFORMANCE_SHARE", 0.25))


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes
    ----------
    name : str
    sql : str
        A statement; ``{source}`` stands for the source's name.
    table : str
        One of `tables.TABLES`.
    function : str
    """

    name: str
    sql: str
    table: str
    function: str

    @property
    def reads_text(self) -> bool:
        """Whether ids, names or labels of it are texts, which collations compare."""
        return re.search(r"'(unit|name|t|word|doc|far\w*)'", self.sql) is not None

    @property
    def owner(self) -> str:
        """The column of the privacy unit; empty where a row is one."""
        found = re.search(r"privacy_unit := '(\w+)'", self.sql)
        return "" if found is None else found.group(1)

    @property
    def ids(self) -> list[str]:
        """The columns of privacy unit and row id."""
        return re.findall(r"(?:privacy_unit|row_id) := '(\w+)'", self.sql)

    def identities(self, types: str) -> str:
        """Return types that give the same statistics: caps and blocks depend on the types of ids.

        A synthetic table has cells and keys that depend on the types of all its columns. A logistic regression keeps
        units of columns with few values, and a HUGEINT comes as doubles.
        """
        if self.function == "dp_logistic_regression" and types == "huge":
            return types
        if self.function == "dp_synthetic" or "private_keys := true" in self.sql:
            return types
        named = [*self.ids, *re.findall(r"\bby := '(\w+)', keys := 'private'", self.sql)]
        return types if any(TYPES[types].get(name) in OTHER_IDENTITIES for name in named) else "plain"

    @property
    def rows_per_unit(self) -> int:
        """Rows that one privacy unit may have."""
        found = re.search(r"max_rows_per_unit := (\d+)", self.sql)
        return 1 if found is None else int(found.group(1))

    def under_replace(self) -> Call:
        """Return the call under the other neighbouring relation."""
        if not self.function.startswith("dp_") or "neighbours" in self.sql:
            return self
        head, bracket, tail = self.sql.rpartition(")")
        return replace(self, name=f"{self.name}, replace", sql=f"{head}, neighbours := 'replace'{bracket}{tail}")


def share(calls: Sequence[Asked], place: object) -> list[Asked]:
    """Return the calls of one place at night, in their order: at least one, and each call in its share of the places."""
    kept = random.Random(str(place)).sample(range(len(calls)), max(1, round(SHARE * len(calls))))
    return [calls[number] for number in sorted(kept)]


def literal(value: Value) -> str:
    """Return a value as SQL in which nothing is named that a caller's macro could replace."""
    if isinstance(value, (list, tuple)):
        return f"system.main.list_value({', '.join(map(literal, value))})"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).lower()


def _arguments(given: Mapping[str, Value]) -> str:
    return "".join(f", {name} := {literal(value)}" for name, value in given.items())


def _table_form(table: str, function: str, name: str, given: dict[str, Value]) -> Call:
    sql = f"SELECT * FROM {function}('{{source}}'{_arguments(given)})"
    return Call(f"{function} {name or 'plain'}", sql, table, function)


def _aggregate(table: str, function: str, columns: str, given: dict[str, Value]) -> Call:
    sql = f"SELECT {function}({columns}{_arguments(given)}) FROM {{source}}"
    return Call(f"{function} aggregate over {table}", sql, table, function)


def _all() -> list[Call]:
    wide: dict[str, Value] = {"features": ("a", "b", "e", "k", "s")}
    bounded = {"lower": -4, "upper": 4}
    number = {"target": "z", "target_lower": -2, "target_upper": 2}
    truth = {"target": "y"}
    text = {"target": "t", "target_levels": ("a", "b")}
    unit = {"privacy_unit": "unit", "max_rows_per_unit": 2}
    units = {
        "per unit": unit,
        "per unit by row id": {**unit, "row_id": "id"},
        "per unit by name": {**unit, "row_id": "name"},
        "per number": {"privacy_unit": "unit_number", "max_rows_per_unit": 3, "row_id": "id"},
        "per float": {"privacy_unit": "f", "max_rows_per_unit": 60},
        "per unit by float": {**unit, "row_id": "f"},
        "per long text": {"privacy_unit": "far", "max_rows_per_unit": 3, "row_id": "far_id"},
        "per day": {"privacy_unit": "day", "max_rows_per_unit": 2, "row_id": "id"},
    }
    vector = {"features": "x", "n_features": 3}
    constant: dict[str, Value] = {"features": ("c", "a"), "target": "d", "target_lower": -2, "target_upper": 2}
    solid = {"features": "w", "n_features": 3}
    words = {"features": "word", "row_id": "doc", "names": NAMES}
    valued = {**words, "value": "v"}
    select = {"k": 2, "epsilon": 1}
    model = {"epsilon": 1, "delta": 1e-6}
    score = {"lower": 0, "upper": 1}
    present = {"present_above": 0}
    information = {"epsilon": 1, "score": "information_gain", "method": "svt", "threshold": 5, "cutoff": 2, "n_max": 50}
    zero_one = {"target_levels": (0, 1)}
    calls = [
        _table_form("wide", "exact_xty", "of listed columns", {**wide, **number, **bounded}),
        _table_form("wide", "exact_xty", "of every column", {**truth, **bounded}),
        _table_form("wide", "exact_xty", "of a text", {**wide, **text, **bounded}),
        *(_table_form("wide", "exact_xty", name, {**wide, **number, **bounded, **more}) for name, more in units.items()),
        _table_form("wide", "dp_sis", "centred", {**wide, **text, **bounded, **select, "center": "target", **unit}),
        _table_form("wide", "dp_sis", "replace", {**wide, **number, **bounded, **select, "neighbours": "replace"}),
        _table_form("wide", "exact_discordant", "of columns", {**wide, "target": "z"}),
        _table_form("wide", "dp_kendall", "per unit", {**wide, "target": "z", **select, **unit}),
        _table_form("wide", "dp_kendall", "in blocks", {**wide, "target": "z", **select, "blocks": 9, "row_id": "id"}),
        _table_form("wide", "dp_kendall", "in blocks of units", {**wide, "target": "z", **select, "blocks": 9, **unit}),
        _table_form("wide", "dp_two_stage", "by row id", {**wide, **truth, **select, "blocks": 20, "row_id": "name"}),
        _table_form("wide", "dp_two_stage", "by unit", {**wide, **text, **select, "blocks": 20, **unit}),
        _table_form("wide", "dp_best_subset", "", {**wide, **number, **bounded, **select}),
        _table_form("wide", "dp_best_subset", "replace", {**wide, **text, **bounded, **select, "intercept": True,
                                                          "neighbours": "replace"}),
        _table_form("wide", "dp_linear_regression", "AdaSSP", {**wide, **number, **bounded, **model, "method": "ada_ssp"}),
        _table_form("wide", "dp_linear_regression", "private bounds", {**wide, "target": "z", **model}),
        _table_form("wide", "dp_linear_regression", "boosted", {**wide, **number, **bounded, **model, **unit}),
        _table_form("wide", "dp_linear_regression", "Tukey by row id",
                    {**wide, "target": "z", **model, "blocks": 50, "row_id": "id"}),
        _table_form("wide", "dp_linear_regression", "Tukey by contents", {**wide, "target": "z", **model, "blocks": 50}),
        _table_form("wide", "dp_linear_regression", "Tukey by unit", {**wide, "target": "z", **model, "blocks": 50, **unit}),
        _table_form("wide", "dp_pipeline", "", {**wide, **number, **bounded, **model, "k": 2}),
        _table_form("wide", "dp_logistic_regression", "", {**wide, **text, **bounded, **model}),
        _table_form("wide", "dp_naive_bayes", "", {**wide, **truth, **model, "max_features_per_row": 3, **present}),
        _table_form("wide", "dp_score_filter", "", {**wide, **truth, **model, "threshold": 5, "max_features_per_row": 2, **present}),
        _table_form("wide", "dp_quantile", "", {"target": "s", "quantiles": (0.1, 0.5), "epsilon": 1, **score}),
        _table_form("wide", "dp_quantile", "per unit",
                    {"target": "e", "quantiles": 0.5, "epsilon": 1, "lower": -9, "upper": 9, **unit}),
        _table_form("wide", "dp_bounds", "", {"target": "e", "epsilon": 1}),
        _table_form("wide", "dp_bounds", "per unit", {"target": "s", "epsilon": 1, **units["per unit by row id"]}),
        _table_form("wide", "dp_covariance", "", {**wide, **bounded, **model}),
        _table_form("wide", "dp_covariance", "per unit", {"features": ("s", "z"), **bounded, "epsilon": 1, **unit}),
        _table_form("wide", "dp_correlation", "of every column", {**bounded, **model, **units["per unit by row id"]}),
        _table_form("wide", "dp_regression_metrics", "", {"target": "z", "prediction": "s", "epsilon": 1, **bounded}),
        _table_form("wide", "dp_roc", "", {"label": "y", "score": "s", "epsilon": 1, **score}),
        _table_form("wide", "dp_roc", "at fixed thresholds",
                    {"label": "t", "target_levels": ("a", "b"), "score": "n", "epsilon": 1, **score, "thresholds": "fixed"}),
        _table_form("wide", "dp_roc", "per unit",
                    {"label": "t", "target_levels": ("a", "b"), "score": "e", "epsilon": 1, "lower": -1, "upper": 9, **unit}),
        _table_form("wide", "dp_auc", "", {"label": "y", "score": "n", "epsilon": 1, **score}),
        _table_form("wide", "dp_confusion", "",
                    {"label": "y", "score": "n", "epsilon": 1, "thresholds": (0.25, 0.75), **score}),
        _table_form("wide", "dp_confusion", "of numbers",
                    {"label": "k", "target_levels": (0, 1), "score": "a", "epsilon": 1, "thresholds": 0.5, **score}),
        _table_form("wide", "dp_compare", "",
                    {"target": "s", "groups": "t", "keys": ("a", "b"), "lower": 0, "upper": 1, "epsilon": 1, **unit}),
        _table_form("wide", "dp_compare", "of counts", {"of": "count", "target": "e", "groups": "k", "keys": (0, 1), "epsilon": 1}),
        _table_form("wide", "dp_compare", "of areas", {"of": "auc", "scores": ("n", "s"), "label": "y", "epsilon": 1}),
        _table_form("wide", "dp_compare", "of errors", {"of": "error", "loss": "absolute", "scores": ("n", "s"), "label": "z",
                                                         "lower": -2, "upper": 2, "epsilon": 1}),
        # Groups: keys of every type, public and private, and limits of units.
        _table_form("wide", "dp_count", "", {"by": "t", "keys": ("a", "b"), "other": True, "epsilon": 1}),
        _table_form("wide", "dp_count", "of private texts per unit",
                    {"by": "name", "keys": "private", **model, **unit, "max_groups_per_unit": 2}),
        _table_form("wide", "dp_count", "of units", {"by": "y", "distinct_of": "unit", "epsilon": 1, **unit}),
        _table_form("wide", "dp_sum", "", {"target": "z", "lower": -2, "upper": 2, "by": "y", "epsilon": 1}),
        _table_form("wide", "dp_sum", "of units",
                    {"target": "s", **bounded, "by": "t", "keys": ("a", "b"), "unit_value": "sum", "epsilon": 1, **unit}),
        _table_form("wide", "dp_avg", "", {"target": "e", **bounded, "epsilon": 1}),
        _table_form("wide", "dp_avg", "per unit", {"target": "e", **bounded, "by": "k", "keys": (0, 1), "epsilon": 1, **unit}),
        _table_form("wide", "dp_variance", "", {"target": "n", **score, "by": ("y", "t"), "keys": "private", **model}),
        _table_form("wide", "dp_stddev", "", {"target": "c", "lower": 0, "upper": 2, "epsilon": 1}),
        _table_form("wide", "dp_stddev", "of floating keys",
                    {"target": "a", **bounded, "by": "f", "keys": "private", **model}),
        _table_form("wide", "dp_aggregate", "", {"aggregates": ("count", "variance"), "target": ("a", "s"), **bounded,
                                                 "by": "far_label", "keys": (f"{FAR}1", f"{FAR}2"), "epsilon": 1}),
        _table_form("wide", "dp_aggregate", "per unit", {"aggregates": ("sum", "avg"), "target": ("a", "s"), **bounded,
                                                         "by": "day", "keys": "private", **model, **unit}),
        _table_form("wide", "dp_histogram", "", {"target": "e", "bins": (-1, 0, 0.5), "epsilon": 1}),
        _table_form("wide", "dp_histogram", "per unit",
                    {"target": "s", "lower": 0, "upper": 1, "n_bins": 4, "by": "y", "epsilon": 1, **unit}),
        _table_form("wide", "dp_quantile", "of groups",
                    {"target": "s", "epsilon": 1, **score, "by": "t", "keys": ("a", "b"), **unit}),
        _table_form("wide", "dp_bounds", "of groups", {"target": "e", "epsilon": 1, "by": "y"}),
        _table_form("wide", "dp_synthetic", "", {"columns": ("a", "t", "k", "y"), "private_keys": True, **model}),
        _table_form("wide", "dp_synthetic", "per unit", {"columns": ("a", "s"), **bounded, **model, **unit}),
        Call("dp_crosstab plain", "SELECT * FROM dp_crosstab('{source}', rows := 't', columns := 'k', keys := "
             "system.main.struct_pack(t := system.main.list_value('a', 'b'), k := system.main.list_value(0, 1)), epsilon := 1)",
             "wide", "dp_crosstab"),
        *(_aggregate("wide", function, "e", {"epsilon": 1, **bounded})
          for function in ("dp_sum", "dp_avg", "dp_variance", "dp_stddev")),
        _aggregate("wide", "dp_count", "e", {"epsilon": 1}),
        _aggregate("wide", "dp_histogram", "e", {"bins": (0, 1), "epsilon": 1}),
        _aggregate("wide", "dp_quantile", "s", {"quantiles": 0.5, "epsilon": 1, **score}),
        _aggregate("wide", "dp_bounds", "e", {"epsilon": 1}),
        _aggregate("wide", "dp_regression_metrics", "z, s", {"epsilon": 1, **bounded}),
        _aggregate("wide", "dp_roc", "y, s", {"epsilon": 1, **score}),
        _aggregate("wide", "dp_auc", "y, s", {"epsilon": 1, **score}),
        _aggregate("wide", "dp_confusion", "y, s", {"epsilon": 1, "thresholds": 0.5, **score}),
        Call("exact_xty aggregate in SQL", "SELECT exact_xty(n, z, 0, 1, -2, 2), exact_xty(e, y, -4, 4, 0, 1) FROM {source}",
             "wide", "exact_xty"),
        Call("exact_kendall_sql", "SELECT * FROM exact_kendall_sql('{source}', 's', 'z')", "wide", "exact_kendall_sql"),
        Call("exact_kendall_sql of scores", "SELECT * FROM exact_kendall_sql('{source}', 'n', 'b')", "wide", "exact_kendall_sql"),
        Call("exact_gram_sql", "SELECT * FROM exact_gram_sql('{source}', 'w', 'z', -1, 1, -2, 2, row_norm := 1.2)",
             "vectors", "exact_gram_sql"),
        _table_form("vectors", "exact_xty", "of vectors", {**vector, **number, **bounded}),
        _table_form("vectors", "exact_xty", "of vectors per unit", {**vector, **number, **bounded, **unit}),
        _table_form("vectors", "exact_xty", "solid", {**solid, **truth, **bounded}),
        _table_form("vectors", "exact_discordant", "of vectors", {**vector, "target": "z"}),
        _table_form("vectors", "dp_two_stage", "by contents of units", {**solid, **truth, **select, "blocks": 20, **unit}),
        _table_form("vectors", "dp_linear_regression", "of vectors", {**vector, **number, **bounded, **model, "method": "ada_ssp"}),
        _table_form("vectors", "dp_naive_bayes", "of vectors", {**vector, **truth, **model, "max_features_per_row": 2, **present}),
        *(
            _aggregate("vectors", function, "x, z", {"n_features": 3, **number_bounds, **select, **more})
            for function, number_bounds, more in (
                ("dp_sis", {**bounded, "target_lower": -2, "target_upper": 2}, {}),
                ("dp_kendall", {}, {}),
                ("dp_two_stage", {}, {"blocks": 5}),
                ("dp_best_subset", {**bounded, "target_lower": -2, "target_upper": 2}, {}),
                ("dp_pipeline", {**bounded, "target_lower": -2, "target_upper": 2}, {"delta": 1e-6}),
            )
        ),
        _table_form("vectors", "dp_correlation", "of vectors", {**vector, **bounded, **model}),
        _aggregate("vectors", "dp_covariance", "x", {"n_features": 3, **bounded, "epsilon": 1}),
        _aggregate("vectors", "dp_linear_regression", "x, z",
                   {"n_features": 3, **bounded, "target_lower": -2, "target_upper": 2, **model}),
        _aggregate("vectors", "dp_logistic_regression", "x, y", {"n_features": 3, **bounded, **model}),
        _aggregate("vectors", "dp_naive_bayes", "x, y", {"n_features": 3, **model, "max_features_per_row": 2, **present}),
        _aggregate("vectors", "dp_score_filter", "x, y",
                   {"n_features": 3, **model, "threshold": 5, "max_features_per_row": 2, **present}),
        _table_form("long", "exact_xty", "with values", {**valued, **number, **bounded}),
        _table_form("long", "exact_xty", "of presence", {**words, **truth, "lower": 0, "upper": 1}),
        _table_form("long", "exact_xty", "of long rows per unit", {**valued, **number, **bounded, **unit}),
        _table_form("long", "dp_sis", "of long rows, centred", {**words, **truth, **score, **select, "center": "target", **unit}),
        _table_form("long", "exact_discordant", "of long rows", {**valued, "target": "z"}),
        _table_form("long", "dp_kendall", "of long rows in blocks of units", {**valued, "target": "z", **select, "blocks": 5, **unit}),
        _table_form("long", "dp_two_stage", "of long rows", {**words, **truth, **select, "blocks": 10}),
        _table_form("long", "dp_linear_regression", "of long rows", {**valued, "target": "z", **model}),
        _table_form("long", "dp_covariance", "of long rows", {**valued, **bounded, **model}),
        _table_form("long", "dp_covariance", "of long rows per unit", {**valued, **bounded, **model, **unit}),
        _table_form("long", "dp_logistic_regression", "of long rows", {**words, **truth, **score, **model}),
        _table_form("long", "dp_score_filter", "of public names", {**words, **truth, "epsilon": 1, "threshold": 5, "max_features_per_row": 9}),
        _table_form("long", "dp_score_filter", "of values per unit", {**valued, **truth, **select, "max_features_per_row": 9, **unit}),
        _table_form("long", "dp_score_filter", "private vocabulary",
                    {"features": "word", "row_id": "doc", **truth, **model, "threshold": 5, "vocabulary": "private",
                     "max_features_per_row": 20}),
        _table_form("long", "dp_score_filter", "private vocabulary per unit",
                    {"features": "word", "row_id": "doc", **truth, **model, "threshold": 5, "vocabulary": "private",
                     "max_features_per_row": 3, **unit}),
        _table_form("long", "dp_score_filter", "of information",
                    {**words, **truth, **information, "max_features_per_row": 9}),
        _table_form("long", "dp_score_filter", "of information per unit",
                    {**words, **truth, **information, "max_features_per_row": 2, **unit}),
        _table_form("long", "dp_naive_bayes", "of presence", {**words, **truth, **model, "max_features_per_row": 20}),
        _table_form("long", "dp_naive_bayes", "with values", {**valued, **truth, **model, "max_features_per_row": 2}),
        # Columns that are constant but for NaN: the minimum and maximum of a file are equal.
        _table_form("wide", "exact_xty", "of constants", {**constant, **bounded}),
        _table_form("wide", "exact_discordant", "of constants", {"features": ("c", "f"), "target": "d"}),
        _table_form("wide", "dp_two_stage", "of constants", {"features": ("c", "f"), "target": "d", **select, "blocks": 20}),
        _table_form("wide", "dp_naive_bayes", "of constants",
                    {"features": ("c", "f"), **truth, **model, "max_features_per_row": 1, **present}),
        _table_form("wide", "dp_quantile", "of a constant", {"target": "c", "quantiles": 0.5, "epsilon": 1, "lower": 0, "upper": 2}),
        _table_form("wide", "dp_bounds", "of a constant", {"target": "c", "epsilon": 1}),
        _table_form("wide", "dp_regression_metrics", "of constants", {"target": "d", "prediction": "c", "epsilon": 1, **bounded}),
        _table_form("wide", "dp_roc", "of a constant score", {"label": "y", "score": "c", "epsilon": 1, "lower": 0, "upper": 2}),
        _table_form("wide", "dp_roc", "of a constant score at a bound", {"label": "y", "score": "c", "epsilon": 1, **score}),
        _table_form("wide", "dp_roc", "of a constant label", {"label": "d", **zero_one, "score": "n", "epsilon": 1, **score}),
        _table_form("wide", "dp_confusion", "of constants",
                    {"label": "d", **zero_one, "score": "c", "epsilon": 1, "thresholds": 0.5, **score}),
        Call("exact_kendall_sql of constants", "SELECT * FROM exact_kendall_sql('{source}', 'c', 'd')", "wide", "exact_kendall_sql"),
        Call("exact_xty aggregate in SQL of constants", "SELECT exact_xty(c, d, 0, 4, 0, 2), exact_xty(c, a, 0, 1, -4, 4) FROM {source}",
             "wide", "exact_xty"),
        _table_form("long", "exact_xty", "with constants", {**words, "value": "c", **number, **bounded}),
        _table_form("long", "dp_score_filter", "of constants", {**words, "value": "c", **truth, **select, "max_features_per_row": 9}),
        _table_form("long", "dp_kendall", "of constants", {**words, "value": "c", "target": "d", **select}),
        # Numbers in several forms, and texts that are alike for long, as labels, ids and names.
        _table_form("wide", "dp_roc", "of a label in several forms", {"label": "f", **zero_one, "score": "n", "epsilon": 1, **score}),
        _table_form("wide", "dp_two_stage", "by a row id in several forms", {**wide, **truth, **select, "blocks": 5, "row_id": "f"}),
        _table_form("wide", "dp_roc", "of a long text",
                    {"label": "far_label", "target_levels": (f"{FAR}1", f"{FAR}2"), "score": "n", "epsilon": 1, **score}),
        _table_form("long", "exact_xty", "of long texts",
                    {"features": "far_word", "row_id": "far", "names": [f"{FAR}{n}" for n in range(3)], "value": "v", **number, **bounded}),
        _table_form("long", "dp_score_filter", "private vocabulary of long texts",
                    {"features": "far_word", "row_id": "far", **truth, **model, "threshold": 5, "vocabulary": "private",
                     "max_features_per_row": 2}),
    ]  # fmt: skip
    assert {call.function for call in calls} >= {*FUNCTIONS}
    assert len({call.name for call in calls}) == len(calls)
    return calls


CALLS = tuple(_all())
# One call of each function that is let through, so that its answer is compared too. Private keys are numbered as they come,
# and get their noise in the order of these numbers.
ANSWERS = tuple(
    {
        call.function: call for call in reversed(CALLS) if call.function in FUNCTIONS and "'private'" not in call.sql
    }.values()
)


def _grouped() -> list[Call]:
    """Return calls whose groups, limits of units, laws of noise and marginals are of every kind."""
    score, wide = {"lower": 0, "upper": 1}, {"lower": -4, "upper": 4}
    private = {"keys": "private", "epsilon": 1, "delta": 1e-6}
    gaussian = {"epsilon": 1, "delta": 1e-6, "noise": "gaussian"}
    texts = {"by": "t", "keys": ("a", "b"), "other": True}
    unit = {"privacy_unit": "unit", "max_rows_per_unit": 2}
    spread = {"privacy_unit": "unit", "max_groups_per_unit": 2, "max_rows_per_unit_group": 1}
    piled = {"privacy_unit": "unit", "max_groups_per_unit": 1, "max_rows_per_unit_group": 2}
    capped = {"privacy_unit": "unit", "max_groups_per_unit": 2, "max_rows_per_unit_group": 2, "max_rows_per_unit": 3}
    keys = "keys := system.main.struct_pack(y := system.main.list_value(true, false), k := system.main.list_value(9, -3, 0))"
    crosstab = "SELECT * FROM dp_crosstab('{source}', rows := 'y', columns := 'k', " + keys
    given = [
        ("dp_count", "of few groups", {**texts, **spread, "epsilon": 1}),
        ("dp_count", "of few rows in a group", {**texts, **piled, **gaussian}),
        ("dp_count", "of all limits", {**texts, **capped, **gaussian}),
        ("dp_count", "of values", {"target": "e", "by": "y", "keys": "private", **capped, **gaussian}),
        ("dp_count", "of items", {"distinct_of": "k", "by": "y", **capped, "epsilon": 1}),
        ("dp_count", "of items in private groups", {"distinct_of": "t", "by": "k", **spread, **private}),
        ("dp_sum", "of all limits", {"target": "e", **wide, **texts, **capped, "epsilon": 1}),
        ("dp_sum", "with Gaussian noise", {"target": "a", "lower": -1, "upper": 3, **texts, **capped, **gaussian}),
        ("dp_sum", "of sums of units", {"target": "e", **wide, "unit_value": "sum", **texts, **spread, **gaussian}),
        ("dp_avg", "of one group", {"target": "e", **wide, **unit, **gaussian}),
        ("dp_avg", "of private groups", {"target": "e", **wide, "by": ("y", "t"), **capped, **private}),
        ("dp_variance", "with Gaussian noise", {"target": "e", **wide, "by": "y", **piled, **gaussian}),
        ("dp_variance", "of sums of units", {"target": "z", **wide, "unit_value": "sum", "by": "y", **spread, "epsilon": 1}),
        ("dp_stddev", "of few groups", {"target": "a", "lower": -5, "upper": -1, **texts, **spread, "epsilon": 1}),
        ("dp_aggregate", "of several columns", {"aggregates": ("sum", "variance", "count"), "target": ("a", "e", "s"), **wide,
                                                **texts, **capped, **gaussian}),
        ("dp_histogram", "with a tree", {"target": "s", **score, "n_bins": 70, "curve": "tree", "epsilon": 1, **unit}),
        ("dp_histogram", "with wavelets by groups",
         {"target": "s", **score, "n_bins": 9, "null_bin": True, "curve": "wavelet", "by": "y", **capped, "epsilon": 1}),
        ("dp_histogram", "with Gaussian curves",
         {"target": "s", **score, "n_bins": 9, "curve": "toeplitz", "by": "y", **unit, "epsilon": 1, "delta": 1e-6}),
        ("dp_histogram", "of all limits", {"target": "e", "bins": (-1, 0, 1), "null_bin": True, **texts, **capped, **gaussian}),
        ("dp_quantile", "of all limits", {"target": "s", "epsilon": 1, **score, **texts, **capped}),
        ("dp_quantile", "of one row in a group", {"target": "e", "quantiles": (0.1, 0.9), "epsilon": 1, **wide, "by": "y", **spread}),
        ("dp_bounds", "of groups per unit", {"target": "e", "epsilon": 1, "by": "y", **capped}),
    ]  # fmt: skip
    calls = [_table_form("wide", function, name, arguments) for function, name, arguments in given]
    for name, arguments in {
        "of rows": {"epsilon": 1},
        "per unit": {**unit, "epsilon": 1},
        "of few cells": {**spread, "epsilon": 1, "margins": True},
        "of all limits": {**capped, **gaussian, "margins": True},
    }.items():
        calls.append(Call(f"dp_crosstab {name}", f"{crosstab}{_arguments(arguments)})", "wide", "dp_crosstab"))
    assert not {call.name for call in calls} & {call.name for call in CALLS}
    return calls


# More calls with groups, whose integers move in ways of their own.
GROUPED = tuple(_grouped())
