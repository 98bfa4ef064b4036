"""Values of every type that DuckDB has, as SQL: benign ones, and extreme ones beside them."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa

_SIGNED = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_NEAR = (
    0,
    1,
    2,
    3,
    5,
    7,
    10,
    12,
    24,
    25,
    31,
    59,
    60,
    61,
    99,
    100,
    1000,
    1582,
    1970,
    2038,
    9999,
    10**6,
    10**12,
    400 * 10**9,
)


def _integers(bits: int, signed: bool) -> list[str]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    found = [high, low, high - 1, low + 1, high // 2, low // 2, *chain.from_iterable((one, -one) for one in _NEAR)]
    return [str(one) for one in dict.fromkeys(found) if low <= one <= high][:24]


def _cast(kind: str, *values: str) -> list[str]:
    return [f"CAST('{value}' AS {kind})" for value in values]


_DOUBLES = (
    *(
        "nan",
        "-nan",
        "inf",
        "-inf",
        "0",
        "-0",
        "1e308",
        "-1e308",
        "1.7976931348623157e308",
        "5e-324",
        "-5e-324",
        "1e-300",
    ),
    *("0.5", "-0.5", "1", "-1", "2147483648", "9.3e18", "-9.3e18", "1.8e19", "3.5e38", "1e40", "0.1", "1e15", "36"),
)
_FLOATS = (
    "nan",
    "inf",
    "-inf",
    "0",
    "-0",
    "3.4e38",
    "-3.4e38",
    "1e-45",
    "-1e-45",
    "1e-38",
    "0.5",
    "-0.5",
    "1",
    "-1",
    "1e19",
)
_DAYS = (
    *("infinity", "-infinity", "5881580-07-10", "5877642-06-25 (BC)", "0001-01-01", "0044-03-15 (BC)", "9999-12-31"),
    *("10000-01-01", "1582-10-04", "1582-10-15", "1900-02-28", "2000-02-29", "1969-12-31", "2038-01-19", "2262-04-12"),
    *("1677-09-21", "290309-12-22 (BC)", "294247-01-10", "2024-12-30", "2021-01-03", "0000-01-01", "2020-02-29"),
)
_INSTANTS = (
    *(
        "infinity",
        "-infinity",
        "294247-01-10 04:00:54.775806",
        "290309-12-22 (BC) 00:00:00",
        "1969-12-31 23:59:59.999999",
    ),
    *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "0044-03-15 (BC) 12:00:00", "1582-10-15 00:00:00"),
    *(
        "2000-02-29 24:00:00",
        "2262-04-11 23:47:16",
        "1677-09-21 00:12:44",
        "2038-01-19 03:14:08",
        "1900-01-01 00:00:00",
    ),
    *(
        "2016-12-31 23:59:59",
        "2021-01-03 23:59:59.5",
        "10000-01-01 00:00:00",
        "0000-06-01 00:00:00",
        "2024-12-30 00:00:00",
    ),
)
_CLOCKS = (
    "00:00:00",
    "24:00:00",
    "23:59:59.999999",
    "12:00:00",
    "00:00:00.000001",
    "01:02:03.5",
    "23:59:59",
    "11:59:59",
)
_SPANS = (
    *("0 days", "178956970 years", "-178956970 years", "2147483647 days", "-2147483648 days", "1 month", "-1 month"),
    *("9223372036854775807 microseconds", "-9223372036854775808 microseconds", "106751991 days", "-1 day", "13 months"),
    *(
        "1 microsecond",
        "-1 microsecond",
        "25 hours",
        "1 year 2 days 3 hours",
        "400 years",
        "30 days",
        "1 month -30 days",
    ),
    *("999 centuries", "2147483647 months", "-2147483648 months", "2147483647 months 2147483647 days", "1000000 hours"),
)
_TEXTS = (
    *("", " ", "%", "_", "\\", "%%%%a", "1", "-1", "1e400", "-9223372036854775809", "nan", "infinity", "true", "0x1f"),
    *("2020-02-30", "2020-02-29 24:00:00", "10:00:00", "99:99", "year", "timezone", "%Z", "[a", "(a", "{", "[1, 2]"),
    *(
        "1 day",
        "999999999999 years",
        "\u00e9",
        "e\u0301\u0301\u0301",
        "\U0001f986",
        "\u0130",
        "\u1e9e",
        "\u202e",
        "\ufeff",
    ),
    *("4ac7a9e9-607c-4c8a-84f3-843f0191e3fd", "\\xZZ", "\\x00", "A", "NULL"),
)
_LONG = ("repeat('x', 100000)", "repeat('\u00e9', 5000)", "repeat('9', 400)", "'a' || chr(0) || 'b'", "repeat('a%', 8)")

# By type: one benign value after another, then extreme ones.
VALUES: dict[str, tuple[list[str], list[str]]] = {
    "BOOLEAN": (["true"], ["false"]),
    **{kind: (["CAST(4 AS " + kind + ")"], _cast(kind, *_integers(bits, True))) for kind, bits in _SIGNED.items()},
    **{
        f"U{kind}": ([f"CAST(4 AS U{kind})"], _cast(f"U{kind}", *_integers(bits, False)))
        for kind, bits in _SIGNED.items()
    },
    "FLOAT": (_cast("FLOAT", "2.5"), _cast("FLOAT", *_FLOATS)),
    "DOUBLE": (_cast("DOUBLE", "2.5"), _cast("DOUBLE", *_DOUBLES)),
    "DECIMAL(4, 1)": (_cast("DECIMAL(4, 1)", "2.5"), _cast("DECIMAL(4, 1)", "999.9", "-999.9", "0", "0.1", "-0.1")),
    "DECIMAL(18, 3)": (
        _cast("DECIMAL(18, 3)", "2.5"),
        _cast("DECIMAL(18, 3)", "999999999999999.999", "-999999999999999.999", "0", "0.001", "-0.001", "1e14"),
    ),
    "DECIMAL(38, 10)": (
        _cast("DECIMAL(38, 10)", "2.5"),
        _cast(
            "DECIMAL(38, 10)",
            "9999999999999999999999999999.9999999999",
            "-9999999999999999999999999999.9",
            "0",
            "1e-10",
        ),
    ),
    "VARCHAR": (["'4'"], [*("'" + one.replace("'", "''") + "'" for one in _TEXTS), *_LONG]),
    "BLOB": (["'abc'::BLOB"], ["''::BLOB", "'\\x00\\xFF'::BLOB", "encode(repeat('x', 100000))", "'\\xC3\\x28'::BLOB"]),
    "BIT": (
        ["'0100'::BIT"],
        ["'0'::BIT", "'1'::BIT", "repeat('1', 200)::BIT", "repeat('0', 64)::BIT", "repeat('1', 129)::BIT"],
    ),
    "UUID": (
        _cast("UUID", "4ac7a9e9-607c-4c8a-84f3-843f0191e3fd"),
        _cast("UUID", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ),
    "DATE": (_cast("DATE", "2020-05-17"), _cast("DATE", *_DAYS)),
    "TIME": (_cast("TIME", "12:34:56"), _cast("TIME", *_CLOCKS)),
    "TIME WITH TIME ZONE": (
        _cast("TIME WITH TIME ZONE", "12:34:56+00"),
        _cast(
            "TIME WITH TIME ZONE", *(f"{one}{zone}" for one in _CLOCKS for zone in ("+15:59:59", "-15:59:59", "+00"))
        ),
    ),
    **{
        kind: (_cast(kind, "2020-05-17 12:34:56"), _cast(kind, *_INSTANTS))
        for kind in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
    },
    "TIMESTAMP WITH TIME ZONE": (
        _cast("TIMESTAMPTZ", "2020-05-17 12:34:56+00"),
        _cast("TIMESTAMPTZ", *(f"{one}+00" if one[-1] != "y" else one for one in _INSTANTS)),
    ),
    "INTERVAL": (_cast("INTERVAL", "3 days"), _cast("INTERVAL", *_SPANS)),
    "ENUM('a', 'b', '12:00', '')": (["'a'"], ["'b'", "'12:00'", "''"]),
    "INTEGER[]": (["[1, 2]"], ["[]", "[NULL]", "[1, NULL, 2147483647]", "range(3000)::INTEGER[]"]),
    "VARCHAR[]": (["['a', 'b']"], ["[]", "[NULL]", "['', NULL, 'a']", "[repeat('x', 100000)]"]),
    "INTEGER[3]": (["[1, 2, 3]"], ["[NULL, NULL, NULL]", "[2147483647, -2147483648, 0]"]),
    "STRUCT(a INTEGER, b VARCHAR)": (["{'a': 1, 'b': 'x'}"], ["{'a': NULL, 'b': NULL}", "{'a': -2147483648, 'b': ''}"]),
    "MAP(INTEGER, DOUBLE)": (["MAP {1: 2.0}"], ["MAP {}", "MAP {1: NULL}", "MAP {-2147483648: 'nan'::DOUBLE}"]),
    "UNION(n INTEGER, s VARCHAR)": (
        ["union_value(n := 1)"],
        ["union_value(s := 'x')", "union_value(n := NULL::INTEGER)"],
    ),
    "JSON": (
        ["'1'"],
        [
            "'{}'",
            "'[1, 2]'",
            "'\"a\"'",
            "'null'",
            "'1e400'",
            "'\"12:00\"'",
            "'true'",
            "'\"2020-02-30\"'",
            "'-1'",
            "'1e40'",
        ],
    ),
    "VARIANT": (["1::VARIANT"], ["'x'::VARIANT", "[1]::VARIANT"]),
    "TIME_NS": (_cast("TIME_NS", "12:34:56"), _cast("TIME_NS", "00:00:00", "24:00:00", "23:59:59.999999999")),
}


# What no text stands for, and a frame or a file may hold nevertheless.
_WORDS = (-(2**63), -(2**63) + 2, 2**63 - 2, -9223372022400000001, 10**18, 86_400_000_001, 10**14)


def _raw(kind: pa.DataType) -> pa.Table:
    """Return numbers as values of a type that they are out of range for."""
    words = np.array(_WORDS, dtype=np.int64)
    if kind.bit_width == 32:
        words = np.clip(words, -(2**31), 2**31 - 1).astype(np.int32)
    values = pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words.tobytes())])
    return pa.table({"place": range(len(words)), "x": values})


RAW = {
    "DATE": _raw(pa.date32()),
    "TIME": _raw(pa.time64("us")),
    "TIME_NS": _raw(pa.time64("ns")),
    "TIMESTAMP": _raw(pa.timestamp("us")),
    "TIMESTAMP_S": _raw(pa.timestamp("s")),
    "TIMESTAMP_MS": _raw(pa.timestamp("ms")),
    "TIMESTAMP_NS": _raw(pa.timestamp("ns")),
    "TIMESTAMP WITH TIME ZONE": _raw(pa.timestamp("us", "UTC")),
}
