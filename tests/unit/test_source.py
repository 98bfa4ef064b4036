"""Names and quoting, and which arguments make which layout."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.contract.layout import Layout
from dpsql.contract.names import dataset_name, source_sql
from dpsql.errors import ParameterError
from dpsql.rendering import identifier, text
from support.cases import cases

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1, max_size=20)


@pytest.mark.long
@given(TEXT)
def test_quoted_text_is_that_text(value: str) -> None:
    connection = duckdb.connect()
    try:
        assert connection.execute(f"SELECT {text(value)}, 1 AS {identifier(value)}").fetchall() == [(value, 1)]
        assert connection.description[1][0] == value
    finally:
        connection.close()


@cases(
    ("source", "sql", "dataset"),
    [
        ("t", '"t"', "t"),
        ("my table", '"my table"', "my table"),
        ('we"ird', '"we""ird"', 'we"ird'),
        ("s.t", '"s"."t"', "s.t"),
        ("main.t", '"main"."t"', "t"),
        ("MAIN.t", '"MAIN"."t"', "t"),
        ("db.main.t", '"db"."main"."t"', "db.t"),
        ("c.s.t", '"c"."s"."t"', "c.s.t"),
        ('"t"', '"t"', "t"),
        ('"we.ird"', '"we.ird"', '"we.ird"'),
        ('s."we.ird"', '"s"."we.ird"', 's."we.ird"'),
        ('"a""b"', '"a""b"', '"a""b"'),
        ("x.parquet", '"x.parquet"', "x.parquet"),
        ("/data/a b/*.csv.gz", '"/data/a b/*.csv.gz"', "/data/a b/*.csv.gz"),
        ("s3://b/x.parquet", '"s3://b/x.parquet"', "s3://b/x.parquet"),
        ("a; DROP TABLE b", '"a; DROP TABLE b"', "a; DROP TABLE b"),
    ],
)
def test_sources(source: str, sql: str, dataset: str) -> None:
    assert source_sql(source) == sql
    assert dataset_name(source) == dataset


@cases("source", ["a..b", ".a", "a.", '"a', 'a."b', '""', "a.b.c.d", '"a"b', '"a".', "."])
def test_what_is_no_name(source: str) -> None:
    for read in (source_sql, dataset_name):
        with pytest.raises(ParameterError) as failure:
            read(source)
        assert failure.value.code == "DPSQL-P020"


def test_the_aggregate_form_has_the_default_dataset() -> None:
    assert dataset_name("") == "default"


@given(TEXT)
def test_whatever_the_name_it_is_identifiers_only(source: str) -> None:
    try:
        written = source_sql(source)
    except ParameterError:
        return
    rest = written
    for _ in range(3):
        assert rest.startswith('"')
        end = 1
        while rest[end : end + 2] == '""' or rest[end] != '"':
            end += 2 if rest[end : end + 2] == '""' else 1
        rest = rest[end + 1 :]
        if not rest:
            return
        assert rest[0] == "."
        rest = rest[1:]
    raise AssertionError(written)


def layout(**arguments: Any) -> Layout:
    return Layout.from_arguments({"target": "y", **arguments})


def test_layouts() -> None:
    assert layout().kind == "wide"
    assert layout(features=["a", "b"]).features == ("a", "b")
    assert layout(row_id="i").kind == "wide"
    assert layout(features="x").kind == "array"
    assert layout(features="x", names=["p", "q"]).kind == "array"
    assert layout(features="x", n_features=3, row_id="i").kind == "array", "a stored id to sample rows by"
    assert layout(features="x", names=["p"], row_id="i").kind == "long"
    assert layout(features="x", names=["p"], row_id="i", value="v").kind == "long"
    assert layout(features="x", privacy_unit="u").privacy_unit == "u"


@cases(
    ("code", "arguments"),
    [
        ("P013", {"target": None}),
        ("P011", {"features": ["a", "Y"]}),
        ("P011", {"features": "y"}),
        ("P011", {"privacy_unit": "Y"}),
        ("P011", {"features": ["a"], "row_id": "A"}),
        ("P043", {"features": []}),
        ("P043", {"features": {"a": 1}, "n_features": 2}),
        ("P044", {"features": ["a", "a"]}),
        ("P010", {"names": ["a"]}),
        ("P010", {"n_features": 3}),
        ("P010", {"value": "v"}),
        ("P046", {"features": "x", "value": "v", "names": ["a"]}),
        ("P042", {"features": "x", "row_id": "i"}),
        ("P044", {"features": "x", "names": ["a", "a"]}),
        ("P041", {"features": "x", "names": ["a"], "n_features": 2}),
        ("P043", {"features": "x", "names": "a"}),
        ("P013", {"privacy_unit": 3}),
    ],
)
def test_layouts_that_do_not_fit(code: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as failure:
        layout(**arguments)
    assert failure.value.code == f"DPSQL-{code}"
