"""The reader of trees: limits before anything recursive, and clauses by an allow list."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest

from dpsql.contract.query.nodes import Derived, Join, Select, TableRef
from dpsql.contract.query.tree import check_length, read_tree, tables_of
from dpsql.errors import ParameterError
from support.broken.planting import planted
from support.broken.queries import DECIMAL_UNSCALED
from support.cases import cases
from tests.support.split_queries import tree_of


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    found = duckdb.connect()
    yield found
    found.close()


def read(con: duckdb.DuckDBPyConnection, sql: str) -> Select:
    found = read_tree(tree_of(con, sql))
    assert isinstance(found, Select)
    return found


def code(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    with pytest.raises(ParameterError) as caught:
        read_tree(tree_of(con, sql))
    assert caught.value.message.count(".") >= 1
    return caught.value.code


def test_fields_of_either_version(con: duckdb.DuckDBPyConnection) -> None:
    found = read(
        con,
        "WITH d(a) AS (SELECT 1) SELECT x + 2.50 AS y, 1e3, -3, 't', NULL, true, CAST(z AS DECIMAL(10, 2)), "
        "extract(year FROM z), count(*) FILTER (WHERE b) FROM d, main.t AS q(x) WHERE a BETWEEN 1 AND 2 ORDER BY 1 DESC LIMIT 3",
    )
    assert [one.name for one in found.withs] == ["d"]
    assert found.withs[0].columns == ("a",)
    values = [(one.name, one.value) for one in found.items[1:6]]
    assert values[1:] == [("number", "-3"), ("string", "t"), ("NULL", None), ("boolean", "true")]
    assert float(str(values[0][1])) == 1000
    assert "e" in str(values[0][1])
    assert found.items[0].parts[1].value == "2.50"
    assert found.items[0].alias == "y"
    assert found.items[6].name == "DECIMAL(10, 2)"
    assert (found.items[7].name, str(found.items[7].parts[0].value).lower()) == ("date_part", "year")
    assert found.items[8].filter is not None
    assert isinstance(found.source, Join)
    assert found.source.right == TableRef(("", "main", "t"), "q", ("x",))
    assert found.modifiers.orders[0].direction == "DESC"
    assert found.modifiers.limit is not None


# What DuckDB 1.5 serializes of 0.05, -12.5, 7.00 and 123456789012345678.90: integers beside their scales.
OLDER_DECIMALS = ((5, 2), (-125, 1), (700, 2), ({"upper": 0, "lower": 12345678901234567890}, 2))


def older_tree() -> str:
    """Return a tree of DuckDB 1.5 with these constants."""

    def constant(value: object, scale: int) -> dict[str, object]:
        kind = {"id": "DECIMAL", "type_info": {"type": "DECIMAL_TYPE_INFO", "alias": "", "width": 20, "scale": scale}}
        given = {"type": kind, "is_null": False, "value": value}
        return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": 7, "value": given}

    table = {
        "type": "BASE_TABLE",
        "alias": "",
        "sample": None,
        "schema_name": "",
        "table_name": "t",
        "catalog_name": "",
    }
    node = {
        **{"type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "from_table": table, "where_clause": None},
        "select_list": [constant(*one) for one in OLDER_DECIMALS],
        **{"group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING"},
        **{"having": None, "sample": None, "qualify": None},
    }
    return json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})


def numbers_of(tree: str) -> list[object]:
    found = read_tree(tree)
    assert isinstance(found, Select)
    return [one.value for one in found.items]


def test_a_decimal_of_the_older_tree_has_its_scale(con: duckdb.DuckDBPyConnection) -> None:
    """literal_scale_15."""
    right = ["0.05", "-12.5", "7.00", "123456789012345678.90"]
    assert numbers_of(older_tree()) == right
    assert numbers_of(tree_of(con, f"SELECT {', '.join(right)} FROM t")) == right
    with planted(*DECIMAL_UNSCALED.patches):
        assert numbers_of(older_tree())[:3] == ["5", "-125", "700"]


@cases(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "PIVOT t ON a USING count(*)",
        "INSERT INTO t VALUES (1)",
        "SELEC 1",
        "SELECT ?",
        "SELECT $a",
        f"SELECT {' + '.join(['1'] * 60)}",
        f"SELECT {'(SELECT ' * 25}1{')' * 25}",
        f"SELECT {', '.join(['1'] * 11000)}",
        f"SELECT * FROM {', '.join(['t'] * 80)}",
    ],
)
def test_not_one_select_or_too_large(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert code(con, sql) == "DPSQL-P100"


def test_a_tree_that_is_too_deep_for_any_parser() -> None:
    with pytest.raises(ParameterError, match="P100"):
        read_tree("[" * 200_000)
    with pytest.raises(ParameterError, match="P100"):
        check_length("x" * 100_001)


@cases(
    "sql",
    [
        "SUMMARIZE t",
        "SELECT #1 FROM t",
        "SELECT x FROM t AT (VERSION => 1)",
        "SELECT COLUMNS('a.*') FROM t",
        "SELECT x::my_type FROM t",
        "SELECT my.f(x) FROM t",
    ],
)
def test_clauses_that_are_not_read(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert code(con, sql) == "DPSQL-P101"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t TABLESAMPLE 10%",
        "SELECT * FROM a POSITIONAL JOIN b",
        "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT * FROM r",
    ],
)
def test_rows_that_others_choose(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert code(con, sql) == "DPSQL-P103"


def test_an_unknown_field_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    tree = json.loads(tree_of(con, "SELECT a FROM t WHERE b"))
    for place in (tree["statements"][0]["node"], tree["statements"][0]["node"]["from_table"]):
        place["new_clause"] = "something"
        with pytest.raises(ParameterError, match="P101"):
            read_tree(json.dumps(tree))
        del place["new_clause"]
    assert isinstance(read_tree(json.dumps(tree)), Select)


def test_tables_are_named_once_and_without_those_of_with(con: duckdb.DuckDBPyConnection) -> None:
    sql = """
        WITH d AS (SELECT * FROM visits), e AS (SELECT * FROM d)
        SELECT (SELECT max(x) FROM wards), count(*) FROM e JOIN "A b".main.t ON e.x IN (SELECT y FROM Visits)
        WHERE EXISTS (SELECT 1 FROM main.d) GROUP BY ALL ORDER BY (SELECT 1 FROM calendar)
    """
    found = tables_of(read(con, sql))
    assert set(found) == {
        ("", "", "visits"), ("", "", "Visits"), ("", "", "wards"), ("A b", "main", "t"), ("", "main", "d"),
        ("", "", "calendar"),
    }  # fmt: skip


def test_catalogs_are_no_tables(con: duckdb.DuckDBPyConnection) -> None:
    assert tables_of(read(con, "SELECT * FROM information_schema.columns")) == ()
    inner = read(con, "SELECT * FROM (SELECT * FROM t) s").source
    assert isinstance(inner, Derived)
