"""Every function in every statement and macro is named in full, so that nothing of the caller's can stand in for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.macros import CALLED
from dpsql.engines.duckdb.planner import admit_sql, exact_sql, release_sql
from dpsql.engines.duckdb.releases import rows_sql, stored_sql
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import EXACT, FUNCTIONS, function_of
from dpsql.rendering import call
from support.cases import cases

SQL = Path(__file__).resolve().parents[2] / "sql"
# Nodes of an expression that no macro can replace; `test_what_is_no_function` shows it.
HARMLESS = {
    "BETWEEN",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN_REF",
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "LAMBDA",
    "PARAMETER",
    "STAR",
    "SUBQUERY",
    "TYPE",
}
OPERATORS = {
    "OPERATOR_COALESCE",
    "OPERATOR_NOT",
    "OPERATOR_IS_NULL",
    "OPERATOR_IS_NOT_NULL",
    "COMPARE_IN",
    "OPERATOR_TRY",
    "OPERATOR_UNPACK",
}

COLUMNS = {"target": "y", "features": ["a", "b"], "epsilon": 1, "lower": 0, "upper": 1}
LONG = {"features": "word", "row_id": "doc", "names": ["p", "q"]}
UNIT = {"privacy_unit": "person", "max_rows_per_unit": 2}
# One of every kind of node that a condition has.
CONDITION = (
    "-age * 2 + 1 // 3 % 4 - 5 / 6 > -7 AND NOT (t LIKE 'a%' OR t NOT ILIKE 'b') AND t || 'a' IN ('c', lower(t)) AND "
    "CASE age WHEN 1 THEN f IS NOT TRUE ELSE place.city IS NULL END AND coalesce(t, 'd') IS DISTINCT FROM 'e' AND "
    "day + INTERVAL '1 day' BETWEEN DATE '2020-01-01' AND '2021-01-01'::DATE AND extract(year FROM day) = 2020 AND "
    "TRY_CAST(t AS DECIMAL(9, 2)) = 1.5 AND x IS FALSE AND age IN (1, 2, 3, 4, 5, 6, 7, 8)"
)
OWN: dict[str, dict[str, Any]] = {
    "dp_sis": {"k": 1},
    "dp_kendall": {"k": 1},
    "dp_two_stage": {"k": 1, "blocks": 3},
    "dp_best_subset": {"k": 1, "target_lower": 0, "target_upper": 1},
    "dp_score_filter": {"k": 1, "score": "total_count"},
    "dp_linear_regression": {"target_lower": 0, "target_upper": 1, "delta": 1e-6},
    "dp_pipeline": {"k": 1, "delta": 1e-6, "target_lower": 0, "target_upper": 1},
    "dp_quantile": {"column": "a", "quantiles": 0.5},
    "dp_bounds": {"column": "a", "columns": "a"},
    "dp_covariance": {"delta": 1e-6},
    "dp_correlation": {"delta": 1e-6},
    "dp_regression_metrics": {"prediction": "a", "error_bound": 1},
    "dp_roc": {"label": "y", "score": "a"},
    "dp_auc": {"label": "y", "score": "a"},
    "dp_confusion": {"label": "y", "score": "a", "thresholds": [0.5]},
    "dp_compare": {"groups": "g", "keys": ["A", "B"], "target": "a"},
    "dp_aggregate": {"aggregates": ["count", "variance"], "target": ["a", "b"]},
    "dp_histogram": {"n_bins": 3},
    "dp_crosstab": {"rows": "h", "columns": "i", "keys": {"h": ["p"], "i": ["q"]}},
    "dp_synthetic": {"columns": ["a", "b"], "delta": 1e-6, "target": None, "keys": None},
}
# Ways to group, with the limits of a unit.
_ONE_KEY = {"by": "g", "keys": ["A", None]}
_TWO_KEYS = {"by": ["g", "h"], "keys": {"g": ["A", "B"]}}
_PRIVATE = {"by": ["g", "h"], "keys": "private", "delta": 1e-6}
_OWNER = {"privacy_unit": "u", "max_groups_per_unit": 2, "max_rows_per_unit_group": 3, "max_rows_per_unit": 4}
GROUPED: list[dict[str, Any]] = [
    *(keys | unit for keys in (_ONE_KEY, _TWO_KEYS, _PRIVATE) for unit in ({}, _OWNER)),
    {"by": ["g", "h"], "keys": "db.main.public_keys"},
    {**_ONE_KEY, "other": True},
    {**_ONE_KEY, **_OWNER, "other": True},
    {"by": ["g", "h"], "keys": [{"g": "A", "h": 1}, {"g": None, "h": 2}]},
    {"by": ["g", "h"], "keys": [{"g": "A", "h": 1}], "other": True, **_OWNER},
    {**_ONE_KEY, "privacy_unit": "u", "max_groups_per_unit": 2, "unit_value": "sum"},
    {**_PRIVATE, "privacy_unit": "u", "max_groups_per_unit": 2, "unit_value": "sum"},
    {**_ONE_KEY, **_OWNER, "distinct_of": "a", "target": None},
    {**_PRIVATE, **_OWNER, "distinct_of": "u", "target": None},
]


def plans() -> Iterator[tuple[str, Plan]]:
    """Plans of every function, for every kind of statement that it has."""
    for name in (*FUNCTIONS, *EXACT):
        arguments = function_of(name).plan.arguments
        own = {**COLUMNS, **OWN.get(EXACT.get(name, name), {})}
        variants: list[dict[str, Any]] = [
            {},
            UNIT,
            {**UNIT, "row_id": "id"},
            {"features": "x", "n_features": 2},
            LONG,
            {**LONG, "value": "v"},
            {**LONG, **UNIT},
            {"center": "target"},
            {**LONG, "center": "target"},
            {"blocks": 3, "row_id": "id"},
            {"lower": None, "upper": None, "delta": 1e-6},
            {"features": None},
            {"condition": CONDITION},
            {"condition": CONDITION, **UNIT},
            {"condition": CONDITION, **LONG},
            {"features": "word", "row_id": "doc", "vocabulary": "private", "delta": 1e-6, **UNIT},
            {"score": "information_gain", "method": "canonical_lipschitz", "n_max": 100, **UNIT},
            {"score": "information_gain", "method": "canonical_lipschitz", "n_max": 100, **LONG},
            *(GROUPED if "by" in arguments else []),
        ]
        found = 0
        for variant in variants:
            given = {key: value for key, value in {**own, **variant}.items() if key in arguments}
            try:
                plan = function_of(name).plan.from_arguments("s.t", given)
            except dpsql.ParameterError:
                continue
            found += 1
            yield name, plan
        assert found > 1, name


def statements() -> Iterator[tuple[str, str]]:
    for name, plan in plans():
        if name in EXACT:
            yield name, exact_sql(plan, name)
            continue
        yield name, rows_sql(plan, release_sql(plan, name))
        types = ["VARCHAR"] * len(plan.key_columns) if isinstance(plan, GroupedPlan) else []
        yield f"{name}, stored", rows_sql(plan, stored_sql(plan, types))
        yield f"{name}, aggregate", admit_sql(plan)


def macros() -> Iterator[tuple[str, str]]:
    """Names and bodies of the macros, as statements."""
    head = re.compile(r"CREATE OR REPLACE (?:TEMP )?MACRO (\w+)\(")
    for path in sorted(SQL.glob("*/*.sql")):
        text = re.sub(r"^ *--.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        starts = list(head.finditer(text))
        assert starts, path
        for number, start in enumerate(starts):
            end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
            rest = text[_closed(text, start.end()) : end].strip().removesuffix(";")
            while rest:
                body = re.sub(r"^\s*AS\s+", "", rest)
                table = re.match(r"TABLE\s*(\()?", body)
                rest = ""
                if table and table.group(1):  # another form of the macro may follow
                    close = _closed(body, table.end())
                    following = re.match(r"\s*,\s*\(", body[close:])
                    rest = body[_closed(body, close + following.end()) :] if following else ""
                    yield f"{path.name}: {start.group(1)}", body[table.end() : close - 1]
                else:
                    body, *following = re.split(
                        r"(?:(?<=END)|(?<=x\))),\s*\(", body, maxsplit=1
                    )  # another form of a scalar macro
                    rest = following[0][_closed(following[0], 0) :] if following else ""
                    yield f"{path.name}: {start.group(1)}", body[5:] if table else f"SELECT {body}"


def _closed(text: str, position: int) -> int:
    """Return the place after the parenthesis that closes the one before `position`."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return position


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def parsed(con: Any, statement: str) -> Any:
    [(found,)] = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchall()
    tree = json.loads(found)
    assert not tree["error"], (tree, statement)
    return tree


def functions(con: Any, statement: str) -> set[str]:
    """Return the functions that a statement calls; fail on one that is not named in full."""
    names = set()
    for node in nodes(parsed(con, statement)):
        kind = node.get("class")
        if kind in ("FUNCTION", "WINDOW"):
            name = node["function_name"]
            if name in CALLED:  # installation writes their catalog
                continue
            assert (node["catalog"], node["schema"]) == ("system", "main"), (name, statement)
            names.add(name)
        elif kind == "OPERATOR":
            assert node["type"] in OPERATORS, (node["type"], statement)
        elif kind is not None:
            assert kind in HARMLESS, (kind, statement)
    return names


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with duckdb.connect() as opened:
        yield opened


@pytest.mark.long
def test_statements_name_every_function_in_full(con: Any) -> None:
    seen = {name: functions(con, text) for name, text in statements()}
    assert {name.split(",")[0] for name in seen} == {*FUNCTIONS, *EXACT}
    _refuse_macros(con, set().union(*seen.values()))


def test_no_row_is_chosen_by_a_chance_whose_seed_a_caller_sets(con: Any) -> None:
    """Where more rows count than may, those that stay are drawn by dpsql's own function, and not by DuckDB's."""
    given = {**COLUMNS, **OWN["dp_score_filter"], "score": "information_gain", "n_max": 9}
    plan = FUNCTIONS["dp_score_filter"].plan.from_arguments("t", {**given, "lower": None, "upper": None})
    called = {name.rpartition(".")[2] for name in functions(con, release_sql(plan, "dp_score_filter"))}
    assert "dpsql_random" in called
    assert called.isdisjoint({"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "setseed"})


def test_macros_name_every_function_in_full(con: Any) -> None:
    seen = [functions(con, text) for _, text in macros()]
    assert len(seen) > 30
    assert any("dpsql_curve_area" in names for names in seen)
    _refuse_macros(con, set().union(*seen))


def _refuse_macros(con: Any, names: set[str]) -> None:
    """DuckDB's own macros are no better than the caller's: what is in their bodies is looked up anew."""
    rows = con.execute(
        "SELECT function_name FROM duckdb_functions() WHERE function_type LIKE '%macro%' AND schema_name = 'main'"
    ).fetchall()
    assert not names & {row[0] for row in rows}


@pytest.mark.parametrize(
    "statement", ["SELECT abs(a) FROM t", "SELECT a + 1 FROM t", "SELECT [a] FROM t", "SELECT a[1] FROM t"]
)
def test_the_walk_sees_what_is_not(con: Any, statement: str) -> None:
    with pytest.raises(AssertionError):
        functions(con, statement)


def test_installation_names_the_catalog_of_the_exact_macros() -> None:
    with dpsql.connect() as opened:
        bodies = opened.execute(
            "SELECT function_name, macro_definition FROM duckdb_functions() WHERE regexp_matches(macro_definition, $1)",
            ["|".join(CALLED)],
        ).fetchall()
        assert {"exact_xty", "exact_gram_sql", "exact_kendall_sql", "dp_sis", "dp_protect"} <= {
            name for name, _ in bodies
        }
        for _, body in bodies:
            assert not re.search(rf"(?<![\w.\"])({'|'.join(CALLED)})\(", body.replace("dpsql.main.", ".")), body


SHADOWS = (
    "coalesce(a, b)",
    '"="(a, b)',
    '"<"(a, b)',
    '"<>"(a, b)',
    '"and"(a, b)',
    '"or"(a, b)',
    '"not"(a)',
    '"in"(a, b)',
    '"between"(a, b, c)',
    '"is_null"(a)',
    '"is_not_null"(a)',
    '"case"(a, b)',
    '"cast"(a)',
    "try_cast(a)",
    '"collate"(a, b)',
    "c(a)",
    "try(a)",
)


def test_what_is_no_function() -> None:
    """Comparisons, logic, CASE, CAST, COLLATE, COALESCE, IN, BETWEEN and IS NULL stay what they are, whatever macros."""
    probe = (
        "SELECT coalesce(NULL, 1), 1 = 1, 1 < 2, 1 <> 1, true AND false, true OR false, NOT true, 1 IN (1, 2), "
        "2 BETWEEN 1 AND 3, NULL IS NULL, 1 IS NOT NULL, CASE WHEN true THEN 1 ELSE 2 END, CAST('1' AS BIGINT), "
        "TRY_CAST('a' AS BIGINT), TRY(CAST('a' AS BIGINT)), 'x'::VARCHAR, 'a' COLLATE C = 'A', (SELECT 1), system.main.struct_pack(*COLUMNS(r.*)) FROM (SELECT 1 AS a) AS r"
    )
    with duckdb.connect() as con:
        before = con.execute(probe).fetchall()
        for shadow in SHADOWS:
            for scope in ("", "TEMP "):
                try:
                    con.execute(f"CREATE OR REPLACE {scope}MACRO {shadow} AS 'shadow'")
                except duckdb.ParserException:
                    continue
        for kind in ("BIGINT", "BLOB", "BOOLEAN", "DOUBLE", "HUGEINT", "INTEGER", "UBIGINT", "VARCHAR"):
            for schema in ("", "temp.", "memory.main."):
                with suppress(duckdb.Error):
                    con.execute(f"CREATE TYPE {schema}{kind} AS STRUCT(shadow BOOLEAN)")
        assert con.execute(probe).fetchall() == before


def test_names_of_one_statement_are_no_names_of_another() -> None:
    """A source or column may be called as a step is: no text is known before the statement is made."""
    [plan] = [plan for name, plan in plans() if name == "dp_auc"][:1]
    first, second = (release_sql(plan, "dp_auc") for _ in range(2))
    names = [set(re.findall(r"__dpsql__\w+", text)) for text in (first, second)]
    assert names[0]
    assert not names[0] & names[1]


@cases("name", ["__dpsql__gate", "dpsql_source", "found", "input", "dpsql_row", "gate", "s", "j"], quick=1)
def test_a_source_or_column_may_be_called_as_a_part_of_ours(name: str) -> None:
    with dpsql.connect() as opened:
        opened.execute(f'CREATE TABLE "{name}" AS SELECT i % 2 AS y, i AS "{name}" FROM range(10) AS r(i)')
        opened.execute("CREATE TABLE plain AS SELECT i % 2 AS y, i AS plain FROM range(10) AS r(i)")
        exact = "SELECT xty FROM exact_xty('{0}', target := 'y', target_lower := 0, target_upper := 1, lower := 0, upper := 9{1})"
        for more in ("", ", features := ['{0}']"):
            found, plain = (
                opened.execute(exact.format(source, more.format(source))).fetchall() for source in (name, "plain")
            )
            assert found == plain
    assert call("floor", "x") == "system.main.floor(x)"
    assert call("+", "a", "b") == 'system.main."+"(a, b)'


# Never 0, whatever the rows are: a literal, what is at least 1, and the rows of a window that holds its own row.
_NOT_ZERO = re.compile(
    r"[1-9]\d*(?:::\w+)?|system\.main\.greatest\(\w+, 1\)|system\.main\.count_star\(\) OVER \(PARTITION BY [^()]*"
    r"ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING\)"
)


def divisors(text: str) -> Iterator[str]:
    """Yield what a statement divides by."""
    for found in re.finditer(r'"(?://|/|%)"\(', text):
        inside = text[found.end() : _closed(text, found.end()) - 1]
        depth, start = 0, 0
        for place, char in enumerate(inside):
            depth += (char == "(") - (char == ")")
            start = place + 1 if char == "," and depth == 0 else start
        yield inside[start:].strip()


@pytest.mark.long
def test_no_row_makes_a_statement_divide_by_zero() -> None:
    """DuckDB 2.0 fails there, and may divide before a CASE decides: a row would decide an error."""
    assert list(divisors('a."//"(f(b, c), n0), "%"(x, greatest(y, 1))')) == ["n0", "greatest(y, 1)"]
    found = {divisor for _, text in statements() for divisor in divisors(text)}
    assert len(found) > 10
    assert not {divisor for divisor in found if _NOT_ZERO.fullmatch(divisor) is None}
