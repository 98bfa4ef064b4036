"""Every function and type of DuckDB's own stands in a list that somebody has read; a new version's new ones do not."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import duckdb

from dpsql.engines.duckdb.lineage import functions
from dpsql.udfs.specs import SPECS

# Came with a patch of a version.
SINCE_2_0_1 = {"add_grammar_extension", "duckdb_live_query_metrics", "map_type_id_to_pg_oid", "parquet_page_index",
               "remove_grammar_extension"}  # fmt: skip
TYPES_SINCE_2_0_1 = {"parquet_variant"}
DATA = Path(functions.__file__).parent / "functions.toml"


def own_functions() -> set[str]:
    with duckdb.connect() as plain:
        rows = plain.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type <> 'pragma'"
        ).fetchall()
    return {name for (name,) in rows}


def test_no_function_is_unread() -> None:
    known = {name for name in functions.groups() if not name.startswith("dpsql_")}
    assert own_functions() - known == set(), "read what they do, and put them into a group of functions.toml"
    assert known - own_functions() <= {"__cast", "first_value", "last_value", "IS NOT DISTINCT FROM"} | SINCE_2_0_1


def test_no_type_is_unread() -> None:
    with duckdb.connect() as plain:
        found = {name.lower() for (name,) in plain.execute("SELECT DISTINCT type_name FROM duckdb_types()").fetchall()}
    assert found - functions.types() == set(), "read what they are, and put them into functions.toml"
    assert functions.types() - found <= TYPES_SINCE_2_0_1


def test_a_function_is_in_one_group_with_a_reason() -> None:
    entries = tomllib.loads(DATA.read_text(encoding="utf-8"))
    names = [
        name for entry in entries.values() for part in ("names", "only_1_5", "only_2_0") for name in entry.get(part, [])
    ]
    types = {name for part in ("names", "only_2_0") for name in entries["types"].get(part, [])}
    assert {name for name, count in Counter(names).items() if count > 1} <= types
    for name, entry in entries.items():
        assert entry["reason"].endswith("."), name
        if name != "types" and not entry["allowed"]:
            assert entry["instead"].endswith("."), name


def test_volatile_functions_are_refused() -> None:
    """What DuckDB itself says of a function agrees with what was read."""
    with duckdb.connect() as plain:
        rows = plain.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        ).fetchall()
    assert [name for (name,) in rows if functions.groups()[name].allowed] == []


def test_the_exact_set_of_our_own() -> None:
    mine = {name for name in functions.groups() if name.startswith("dpsql_")}
    assert mine == functions.in_group("dpsql")
    assert mine <= {spec.name for spec in SPECS}
