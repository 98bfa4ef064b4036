"""Identities are bytes of one form for every type, and keyed hashes follow from contents alone."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dpsql
from dpsql.engines.duckdb.keys import identity
from dpsql.kernels import compiled
from dpsql.kernels import identity as kernel
from dpsql.kernels.identity import has_identity, identity_bytes, is_name, row_contents, text_words
from support.cases import cases

NAN = float("nan")


def one(value: Any, kind: pa.DataType) -> bytes | None:
    return identity_bytes(pa.array([value], type=kind))[0].as_py()


def seventeen(value: int) -> bytes:
    return value.to_bytes(17, "big", signed=True)


@cases(
    ("value", "kind", "expected"),
    [
        (7, pa.int8(), b"i" + seventeen(7)),
        (-1, pa.int64(), b"i" + seventeen(-1)),
        (2**64 - 1, pa.uint64(), b"i" + seventeen(2**64 - 1)),
        (Decimal("7.00"), pa.decimal128(9, 2), b"i" + seventeen(7)),
        (Decimal("-7.50"), pa.decimal128(9, 2), b"d\x01" + seventeen(-75)),
        (Decimal(10**37), pa.decimal128(38, 0), b"i" + seventeen(10**37)),
        (1.5, pa.float32(), b"f" + np.array(1.5, dtype=">f8").tobytes()),
        (-0.0, pa.float64(), b"f" + bytes(8)),
        ("É ", pa.string(), "tÉ ".encode()),
        ("", pa.large_string(), b"t"),
        (True, pa.bool_(), b"o\x01"),
        (b"\x00t", pa.binary(), b"b\x00t"),
        (dt.date(1969, 12, 31), pa.date32(), b"D" + (-1).to_bytes(8, "big", signed=True)),
        (dt.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us"), b"T" + (10**9).to_bytes(16, "big", signed=True)),
        (-1, pa.timestamp("s"), b"T" + (-(10**9)).to_bytes(16, "big", signed=True)),
        (2**62, pa.timestamp("us"), b"T" + (2**62 * 1000).to_bytes(16, "big", signed=True)),
        (-(2**62), pa.timestamp("ms"), b"T" + (-(2**62) * 10**6).to_bytes(16, "big", signed=True)),
    ],
)
def test_the_form_of_each_type(value: Any, kind: pa.DataType, expected: bytes) -> None:
    given = (
        pa.array([value], type=pa.int64()).cast(kind)
        if pa.types.is_timestamp(kind) and isinstance(value, int)
        else pa.array([value], type=kind)
    )
    assert identity_bytes(given)[0].as_py() == expected
    assert identity_bytes(pa.concat_arrays([pa.array([None, None], type=kind), given]))[1:].to_pylist() == [
        None,
        expected,
    ]
    assert has_identity(kind)


def test_one_nan_and_one_zero() -> None:
    payloads = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    assert len(set(identity_bytes(pa.array(payloads)).to_pylist())) == 1
    assert one(0.0, pa.float64()) == one(-0.0, pa.float64())
    assert one(NAN, pa.float64()) != one(0.0, pa.float64())


def test_texts_are_their_bytes() -> None:
    texts = ["a", "A", "a ", "á", "a\u0301", "", "\U0001f600"]
    found = identity_bytes(pa.array(texts)).to_pylist()
    assert len(set(found)) == len(texts)
    assert identity_bytes(pa.array(texts).dictionary_encode()).to_pylist() == found
    assert one("1", pa.string()) != one(1, pa.int64())


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.time64("us"), pa.month_day_nano_interval()]
)
def test_what_identifies_nobody(kind: pa.DataType) -> None:
    assert not has_identity(kind)
    assert not is_name(kind)


COLUMNS = {
    "integers": ("BIGINT", ["1", "-1", "9223372036854775807", "0"]),
    "small": ("UTINYINT", ["1", "255"]),
    "huge": ("HUGEINT", ["1", "170141183460469231731687303715884105727"]),
    "booleans": ("BOOLEAN", ["true", "false"]),
    "texts": ("VARCHAR", ["'a'", "'A'", "'á'", "'a '", "''"]),
    "collated": ("VARCHAR COLLATE NOCASE", ["'a'", "'A'", "'b'"]),
    "enums": ("ENUM ('a', 'A')", ["'a'", "'A'"]),
    "doubles": ("DOUBLE", ["1", "0.0", "-0.0", "'nan'", "'-nan'", "'inf'"]),
    "decimals": ("DECIMAL(9, 2)", ["1.00", "1.5"]),
    "dates": ("DATE", ["'2020-01-01'", "'1969-12-31'"]),
    "instants": ("TIMESTAMPTZ", ["'2020-01-01 00:00:00+00'", "'2020-01-01 00:00:00+01'"]),
    "blobs": ("BLOB", ["'a'", "'b'"]),
    "uuids": ("UUID", ["'00000000-0000-0000-0000-000000000001'", "'00000000-0000-0000-0000-000000000002'"]),
}


@cases("column", COLUMNS, quick=1)
def test_sql_tells_apart_what_the_bytes_do(column: str) -> None:
    """Numbers and texts in DuckDB's own form, everything else by the kernel: equal in one exactly when in the other."""
    kind, values = COLUMNS[column]
    with dpsql.connect() as con:
        con.execute(f"CREATE TABLE t (v {kind})")
        con.execute("INSERT INTO t VALUES " + ", ".join(f"({value})" for value in values))
        number, data = identity("v")
        rows = con.execute(f"SELECT {number}, {data}, system.main.dpsql_identity(v) FROM t").fetchall()
        assert None not in itertools.chain(*rows)
        for (*short, exact), (*other_short, other) in itertools.combinations(rows, 2):
            assert (short == other_short) == (exact == other)
        plan = con.execute(f"EXPLAIN SELECT {number}, {data} FROM t").fetchall()[0][1]
        if kind in ("BIGINT", "UTINYINT", "BOOLEAN", "VARCHAR", "VARCHAR COLLATE NOCASE"):
            assert "dpsql_identity" not in plan, "the type is known when the statement is planned"


def test_a_row_is_known_by_what_a_statistic_reads() -> None:
    target, features = np.array([1.0, 1.0, 1.0, -1.0]), np.array([[0.0, -0.0, 1.0, 0.0], [NAN, -NAN, NAN, NAN]])
    found = row_contents(target, features, b"k" * 16).to_pylist()
    assert {len(part) for part in found} == {16}
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert row_contents(target, features, b"l" * 16).to_pylist()[0] != found[0]
    swapped = row_contents(features[0], np.stack([target, features[1]]), b"k" * 16).to_pylist()
    assert swapped[2:] != found[2:], "columns have places of their own"


def test_contents_differ_wherever_rows_do() -> None:
    rng = np.random.default_rng(3)
    features = rng.integers(0, 2, (40, 3000)).astype(float)
    found = row_contents(np.zeros(3000), features, b"k" * 16).to_pylist()
    assert len(set(found)) == len({column.tobytes() for column in features.T})


def test_words_of_texts() -> None:
    words = text_words([b"a", b"A", b""], b"k" * 16)
    assert words.shape == (3, 2)
    assert len({tuple(word) for word in words.tolist()}) == 3
    assert text_words([], b"k").shape == (0, 2)


def test_compiled_and_plain_hashes_of_rows_are_one() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**64, (7, 300), dtype=np.uint64)
    keys = rng.integers(0, 2**64, (15, 4), dtype=np.uint64)
    lanes = np.empty((2, 4, 300), dtype=np.uint64)
    kernel._add_words(values, keys, lanes[0])
    compiled.add_words(values, keys, lanes[1])
    assert (lanes[0] == lanes[1]).all()


def law_of_the_first(rows: int = 12, keys: int = 20_000, most: int = 3) -> float:
    """Return the chance of counts as uneven as those of the rows that come first, for rows with a pattern."""
    target, counts = np.arange(rows, dtype=float), np.zeros(rows)
    features = np.vstack([2.0 * target, 0.0 * target])
    for number in range(keys):
        found = row_contents(target, features, number.to_bytes(16, "little")).to_pylist()
        counts[sorted(range(rows), key=found.__getitem__)[:most]] += 1
    expected = keys * most / rows
    squares = ((counts - expected) ** 2).sum() / (expected * (1 - most / rows)) * (rows - 1) / rows
    return float(stats.chi2.sf(squares, rows - 1))


@pytest.mark.long
def test_each_row_comes_first_equally_often(monkeypatch: Any) -> None:
    """The keys are fixed. A hash that is not mixed is strongly universal, and still prefers some rows."""
    assert law_of_the_first() > 0.01
    monkeypatch.setattr(kernel, "mixed", lambda words: words)
    assert law_of_the_first() < 1e-6
