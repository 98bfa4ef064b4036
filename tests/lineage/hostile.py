"""Sources over rows of every type, and rows that are hostile to them: one value of each is at an extreme."""

from __future__ import annotations

COLUMNS = (
    "id BIGINT, n INTEGER, big BIGINT, h HUGEINT, x DOUBLE, f FLOAT, d DECIMAL(9, 2), t VARCHAR, j VARCHAR, dt DATE, "
    "ts TIMESTAMP, tm TIME, iv INTERVAL, l DOUBLE[], b BOOLEAN, bl BLOB, u UUID"
)
# What a row of nobody in particular holds, for every column after the id.
BENIGN = {
    "n": "3",
    "big": "4",
    "h": "5",
    "x": "0.5",
    "f": "0.25",
    "d": "1.50",
    "t": "'12'",
    "j": "'{\"a\": 1}'",
    "dt": "DATE '2024-03-05'",
    "ts": "TIMESTAMP '2024-03-05 12:34:56'",
    "tm": "TIME '12:34:56'",
    "iv": "INTERVAL 3 DAY",
    "l": "[1.0, 2.0]",
    "b": "true",
    "bl": "'\\x41'::BLOB",
    "u": "'8f0e7f6e-1c1e-4c59-9f5b-7d3a0d1c2b3a'",
}
# Texts are words that no message of ours has, so that a message which quotes one shows.
_TEXTS = (
    *("", " ", "qqzzjx", "1e400", "NaN", "inf", "-inf", "99999999999999999999", "2024-02-30", "2024-13-01", "25:61:00"),
    *("[1", "(", "\\", "%", "_", "qq\nzz", "é", "\u202eqqzz", "😀", "a\u0301", "0x10", "1_000", " 12 ", "12.5", "-0"),
    *("''; DROP", "truefalse", "q" * 3000, "2147483648", "1.7976931348623159e308", "infinity", "epoch", "\t", "$1"),
)
_DOCUMENTS = (
    *("null", "[]", "{}", '{"a": null}', '{"a": "qqzzjx"}', '{"a": 1e999}', '{"a":', '"x"', '{"a": [1, {"b": 2}]}', ""),
    *("[" * 300, '{"a": 99999999999999999999999}', '{"a": true}', '{"a": 1, "a": 2}', "qqzzjx", '{"\\u0000": 1}'),
)
EXTREMES: dict[str, tuple[str, ...]] = {
    "n": ("0", "-1", "2147483647", "-2147483648", "NULL"),
    "big": ("0", "9223372036854775807", "-9223372036854775808", "NULL"),
    "h": ("0", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728", "NULL"),
    "x": ("'nan'", "'inf'", "'-inf'", "1e308", "-1e308", "5e-324", "-0.0", "0.0", "9007199254740993", "-1", "NULL"),
    "f": ("'nan'", "'inf'", "'-inf'", "3.4e38", "-3.4e38", "1e-45", "0", "NULL"),
    "d": ("9999999.99", "-9999999.99", "0", "0.01", "NULL"),
    "t": (*("'" + text.replace("'", "''") + "'" for text in _TEXTS), "chr(0) || 'q'", "NULL"),
    "j": (*("'" + text.replace("'", "''") + "'" for text in _DOCUMENTS), "NULL"),
    "dt": (
        *("'infinity'", "'-infinity'", "'0001-01-01'", "'9999-12-31'", "'1970-01-01'", "'2024-02-29'"),
        *("'5881580-07-10'", "'5877642-06-25 (BC)'", "NULL"),
    ),
    "ts": (
        *("'infinity'", "'-infinity'", "'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'"),
        *("'294247-01-10 04:00:54.775806'", "'290309-12-22 (BC) 00:00:00'", "NULL"),
    ),
    "tm": ("'00:00:00'", "'23:59:59.999999'", "'24:00:00'", "NULL"),
    "iv": (
        *("'0 days'", "'178956970 years'", "'-178956970 years'", "'2147483647 days'", "NULL"),
        *("'2562047788 hours'", "'-2147483648 months'"),
    ),
    "l": (
        *("[]", "[NULL]", "NULL", "[1e308, 1e308]", "['nan'::DOUBLE]", "['inf'::DOUBLE, '-inf'::DOUBLE]"),
        *("range(3000)::DOUBLE[]", "[-1.0]", "[0.0]"),
    ),
    "b": ("false", "NULL"),
    "bl": ("''::BLOB", "'\\xFF\\xFE'::BLOB", "'\\x00'::BLOB", "NULL"),
    "u": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "NULL"),
}
HOSTILE = tuple((column, value) for column, values in EXTREMES.items() for value in values)

# The value of a row, as its own columns give it.
_VALUES = (
    *(
        "n",
        "big",
        "x",
        "d::DOUBLE",
        "h::DOUBLE",
        "f::DOUBLE",
        "CAST(t AS INTEGER)",
        "CAST(t AS DOUBLE)",
        "TRY_CAST(t AS DATE) - dt",
    ),
    *("TRY_CAST(t AS INTEGER)", "TRY(CAST(t AS INTEGER))", "x::INTEGER", "x::TINYINT", "big::INTEGER", "h::BIGINT"),
    *("d::TINYINT", "f::SMALLINT", "b::INTEGER", "n + 1", "n * n", "-n", "abs(n)", "big * big", "big + n", "d * d * d"),
    *("n / x", "n // (n - 4)", "n % n", "x / 0", "sqrt(x)", "ln(x)", "log2(n)", "exp(x)", "pow(x, n)", "gamma(x)"),
    *("factorial(n)", "n << n", "round(x, n)", "ceil(x)::BIGINT", "even(x)", "greatest(x, n)", "bit_count(big)"),
    *("length(t)", "len(t || t)", "ascii(t)", "length(upper(t))", "length(lpad(t, n, 'x'))", "length(repeat(t, n))"),
    *(
        "instr(t, '1')",
        "length(substring(t, n, n))",
        "unicode(t)",
        "length(split_part(t, '-', n))",
        "levenshtein(t, '12')",
    ),
    *(
        "CAST(t LIKE '%1%' AS INT)",
        "regexp_matches(t, '^[0-9]+$')::INT",
        "length(regexp_replace(t, '(.)', '\\1\\1', 'g'))",
    ),
    *("length(regexp_extract(t, '([a-z]+)', 1))", "len(string_split(t, ','))", "hash(t) % 7", "length(md5(t))"),
    *("json_extract(j, '$.a')::INTEGER", "(j->>'a')::DOUBLE", "json_array_length(j)", "json_valid(j)::INT"),
    *("length(j::JSON::VARCHAR)", "TRY_CAST(j->>'a' AS INT)", "json_type(j) = 'OBJECT'", "len(json_keys(j))"),
    *("year(dt)", "dt - DATE '2024-01-01'", "date_diff('day', dt, DATE '2024-01-01')", "epoch(ts)", "epoch_us(ts) % 9"),
    *(
        "extract(hour FROM tm)",
        "date_diff('minute', ts, TIMESTAMP '2024-01-01')",
        "date_part('week', dt)",
        "dayofyear(ts)",
    ),
    *("year(dt + iv)", "year(ts + iv)", "year(date_trunc('month', ts))", "extract(day FROM iv)", "epoch(iv)"),
    *(
        "year(strptime(t, '%Y'))",
        "year(try_strptime(t, '%Y'))",
        "length(strftime(dt, '%Y'))",
        "year(make_date(n, 1, 1))",
    ),
    *("year(time_bucket(INTERVAL 1 WEEK, dt))", "dt::TIMESTAMP > ts", "year(to_timestamp(x))", "ts::DATE = dt"),
    *("l[n]", "list_sum(l)", "len(l)", "list_avg(l)", "list_max(l)", "list_sum(list_transform(l, lambda v: v * v))"),
    *("list_aggregate(l, 'sum')", "list_position(l, 2.0)", "len(list_sort(l))", "list_reduce(l, lambda p, q: p + q)"),
    *(
        "octet_length(bl)",
        "length(bl::VARCHAR)",
        "length(decode(bl))",
        "length(hex(bl))",
        "length(u::VARCHAR)",
        "octet_length(encode(t))",
    ),
    *("CASE WHEN n > 0 THEN x ELSE big END", "coalesce(TRY_CAST(t AS INT), n)", "nullif(n, 3)", "if(b, n, 1 / n)"),
    *(
        "struct_pack(a := n).a",
        "map {t: n}[t]",
        "CAST(x AS DECIMAL(4, 2))",
        "CAST(n AS DECIMAL(3, 2))",
        "TRY_CAST(t AS BOOLEAN)::INT",
    ),
)
_ROWS = (
    *(
        "t > '1'",
        "x > 0 OR n / x > 1",
        "CAST(t AS INTEGER) > 1",
        "l[1] > 0",
        "dt > DATE '2020-01-01'",
        "b",
        "t SIMILAR TO '1.'",
    ),
    *(
        "ts + iv > TIMESTAMP '2000-01-01'",
        "n IN (SELECT code FROM codes)",
        "sqrt(x) < 9",
        "j->>'a' = '1'",
        "regexp_matches(t, '1')",
    ),
)
_BY_UNIT = (
    *(
        "sum(n)",
        "sum(big)",
        "sum(h)",
        "avg(x)",
        "sum(x)",
        "max(t)::INTEGER",
        "count(DISTINCT t)",
        "sum(d)",
        "stddev(x)",
    ),
    *(
        "product(x)",
        "length(string_agg(t, ','))",
        "list_sum(flatten(list(l)))",
        "max(dt) - min(dt)",
        "median(x)",
        "mode(n)",
    ),
    *("bool_and(b)::INT", "quantile_cont(x, 0.5)", "bit_xor(big)", "arg_max(n, x)", "entropy(t)", "kurtosis(x)"),
)
# A view over `people` for each: of a row's own values, of the rows that meet a filter, and of a unit's rows.
ROW_SOURCES = (
    *(f"SELECT id, {value} AS v FROM people" for value in _VALUES),
    *(f"SELECT id, 1.0 AS v FROM people WHERE {condition}" for condition in _ROWS),
    "SELECT id, c.v FROM people LEFT JOIN (SELECT code, max(v) AS v FROM codes GROUP BY code) AS c ON n = code",
    "SELECT id, v FROM people LEFT JOIN (SELECT DISTINCT ON (code) code, v FROM codes) ON big = code",
    "SELECT id, n AS v FROM people SEMI JOIN codes ON n = code",
    "SELECT id, n AS v FROM people ANTI JOIN codes ON TRY_CAST(t AS INT) = code",
)
UNIT_SOURCES = (
    *(f"SELECT id, {value} AS v FROM people GROUP BY id" for value in _BY_UNIT),
    *(
        f"SELECT id, {value} OVER (PARTITION BY id) AS v FROM people"
        for value in ("sum(big)", "avg(x)", "count(t)", "max(d)")
    ),
    "SELECT id, unnest(l) AS v FROM people",
    "SELECT id, c.v FROM people JOIN codes AS c ON n >= code",
    "SELECT p.id, q.n + p.n AS v FROM people p JOIN people q USING (id)",
    "SELECT id, n AS v FROM people QUALIFY row_number() OVER (PARTITION BY id ORDER BY x, t) = 1",
    "SELECT id, n AS v FROM people UNION ALL SELECT id, big FROM people",
    "SELECT DISTINCT id, CAST(t AS INTEGER) AS v FROM people",
)
