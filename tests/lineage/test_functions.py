"""Every function and type of DuckDB's own stands in the list, read by somebody; a new version's new ones do not."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from importlib.resources import files

import duckdb
import pytest

import dpsql
from dpsql.contract.expression.functions import CALLED, FUNCTIONS, PLACES, called_in, listed
from dpsql.engines.duckdb.lineage import functions
from dpsql.udfs.specs import SPECS

# Came with a patch of a version.
SINCE_2_0_1 = {"add_grammar_extension", "duckdb_live_query_metrics", "map_type_id_to_pg_oid", "parquet_page_index",
               "remove_grammar_extension"}  # fmt: skip
TYPES_SINCE_2_0_1 = {"parquet_variant"}
# DuckDB's planner writes calls of these; no catalog lists them.
PLANNED = {"__cast", "first_value", "last_value", "is not distinct from"}
# DuckDB's parser makes something else of these.
PARSED = {"grouping", "grouping_id", "ifnull", "if", "width_bucket"}
ENTRIES = tomllib.loads(files("dpsql.contract.expression").joinpath("functions.toml").read_text(encoding="utf-8"))


def own_functions() -> set[str]:
    with duckdb.connect() as plain:
        rows = plain.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type <> 'pragma'"
        ).fetchall()
    return {name for (name,) in rows}


def test_no_function_is_unread() -> None:
    known = {name for name in functions.own() if not name.startswith("dpsql_")}
    assert own_functions() - known == set(), "read what they do, and put them into a group of functions.toml"
    assert known - own_functions() <= PLANNED | PARSED | SINCE_2_0_1


def test_a_name_that_no_catalog_has_is_called_nowhere() -> None:
    """Anyone may register a function of such a name."""
    called = {name for name, function in functions.own().items() if {"view", "post"} & function.places}
    free = called - own_functions() - {name for name in called if name.startswith("dpsql_")}
    assert free <= PLANNED | SINCE_2_0_1
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a; SELECT dp_protect('t', epsilon := 1)").fetchall()
        con.create_function("width_bucket", lambda x, y: x, ["BIGINT", "BIGINT"], "BIGINT")
        con.execute("CREATE TEMP VIEW v AS SELECT width_bucket(a, a) AS a FROM t")
        with pytest.raises(duckdb.Error, match="DPSQL-S041"):
            con.execute("FROM dp_count('v', epsilon := 1)")
        with pytest.raises(duckdb.Error, match="DPSQL-P101"):
            con.execute("FROM dp_query('SELECT width_bucket(count(*), 1) FROM t', epsilon := 1)")


def test_no_type_is_unread() -> None:
    with duckdb.connect() as plain:
        found = {name.lower() for (name,) in plain.execute("SELECT DISTINCT type_name FROM duckdb_types()").fetchall()}
    assert found - functions.types() == set(), "read what they are, and put them into functions.toml"
    assert functions.types() - found <= TYPES_SINCE_2_0_1


def test_a_function_is_in_one_list_with_a_reason() -> None:
    types = ENTRIES["types"]
    calls = {group: entry for group, entry in ENTRIES.items() if group != "types"}
    lists = {key for entry in calls.values() for key, names in entry.items() if isinstance(names, list)}
    for key in lists:
        places, _, only = key.partition("_only_")
        assert places in ("everywhere", "nowhere") or set(places.split("_")) < set(PLACES), key
        assert only in ("", "1_5", "2_0"), key
    names = [name for entry in calls.values() for names in entry.values() if isinstance(names, list) for name in names]
    assert [name for name, count in Counter(names).items() if count > 1] == ["if"]  # the parser's once
    for group, entry in (*calls.items(), ("types", types)):
        assert entry["reason"].endswith("."), group
        if group != "types" and any(
            isinstance(entry[key], list) and not re.search("post|everywhere", key) for key in entry
        ):
            assert entry["instead"].endswith("."), group


def test_volatile_functions_are_refused_in_views() -> None:
    """What DuckDB itself says of a function agrees with what was read."""
    with duckdb.connect() as plain:
        rows = plain.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        ).fetchall()
    assert [name for (name,) in rows if "view" in functions.own()[name].places] == []
    assert [name for (name,) in rows if "stranger" in functions.own()[name].places] == []


def test_what_has_types_on_a_row_is_in_the_list() -> None:
    assert {name for entry in FUNCTIONS for name in entry.names} - called_in("row") == set()
    assert CALLED - called_in("row") == set()


def test_a_stranger_calls_what_a_query_may_call() -> None:
    assert called_in("stranger") - called_in("post") == PARSED - {"ifnull"}


def test_the_exact_set_of_our_own() -> None:
    mine = {name for name, function in functions.own().items() if name.startswith("dpsql_")}
    assert mine == {name for name, function in functions.own().items() if function.group == "dpsql"}
    assert mine <= {spec.name for spec in SPECS}
    assert {place for function in listed().values() for place in function.places} == set(PLACES)


@pytest.mark.parametrize("newer", [False, True])
def test_a_version_has_its_own_functions(newer: bool) -> None:

    assert ("binom" in listed(newer)) == newer
    assert ("icu_collate_yue" in listed(newer)) == (not newer)
