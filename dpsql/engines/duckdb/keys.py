"""SQL that compares rows, samples them and sorts them into blocks, and that filters them by the caller's condition.

Invalid text: values whose text is not UTF-8 become NULL before any other function sees them. DuckDB checks text when it
stores a table, and when it reads a Parquet, CSV or JSON file. It does not check frames: `upper` and `lower` then end
the whole instance, ILIKE and collations too, also inside TRY, and other functions may return bytes of other rows
(2.0.0 and 1.5.6). `decode` of a value's bytes fails if they are not UTF-8, TRY catches that error, and `encode` never
fails. Both run in the body of a lambda, as a condition does: the optimizer could compute them outside of TRY. The
lambda keeps the value or leaves it out, so any type stays the same.

Samples: a systematic sample of each privacy unit's rows counts. It depends only on the unit's own rows and a secret
key.

Conditions: DuckDB's optimizer must not touch a condition. ``TRY`` around it is not enough: a long IN list becomes a
join, and a repeated subexpression is computed beforehand. Both happen outside of TRY, so an error ends the statement,
depending on the rows (2.0.0 and 1.5.6). The minimum and maximum of a file, which ignore NaN, must not decide a
comparison either. So the condition is the body of a lambda over a list of one row, where the optimizer does not look:
there TRY turns an error into NULL, one row at a time. `dpsql.contract.expression` judges the body by its types, because
TRY does not catch every error. The gate's zero, a run-time value, picks the list's element: no row is judged before the
gate lets the call pass.
"""

from __future__ import annotations

from dpsql.contract.expression.judge import Judged
from dpsql.rendering import call, cast, concatenated, plus, struct, text

# Types without text, as `typeof` spells them.
_WITHOUT_TEXT = "|".join(
    (
        *("BOOLEAN", "U?(TINY|SMALL|BIG|HUGE)INT", "U?INTEGER", "FLOAT", "DOUBLE", r"DECIMAL\(\d+,\d+\)"),
        *("DATE", "TIME(_NS)?", "TIMESTAMP(_S|_MS|_NS)?", "(TIME|TIMESTAMP) WITH TIME ZONE", "INTERVAL"),
        *("UUID", "BLOB", "BIT", '"NULL"'),
    )
)
# The value, in the lambda.
_VALUE = "dpsql_value"


def valid_text(column: str) -> str:
    """Return a column of the same type, NULL where its text is not UTF-8.

    Types without text cost nothing at run time: `typeof` is a constant when DuckDB plans a statement.
    """
    decoded = call("decode", call("encode", cast(_VALUE, "VARCHAR")))
    judged = f"lambda {_VALUE}: TRY({decoded}) IS NOT NULL"
    checked = call("list_extract", call("list_filter", call("list_value", column), judged), "1")
    without = call("regexp_full_match", call("typeof", column), text(_WITHOUT_TEXT))
    return f"CASE WHEN {without} THEN {column} ELSE {checked} END"


# Smaller limits times fewer than 2**43 rows fit into 64 bits.
_LARGE = 1 << 20


def partition_by(names: list[str]) -> str:
    """Return the window clause of rows that agree in some columns."""
    return f"PARTITION BY {', '.join(names)}"


def order_by(names: list[str]) -> str:
    """Return an ORDER BY clause; nothing for no columns."""
    return f"ORDER BY {', '.join(f'{name} ASC NULLS LAST' for name in names)}" if names else ""


def sampled(owner_hash: str, owner: list[str], sorted_by: list[str], most: int | str) -> str:
    """Return the condition that keeps `most` rows of each owner, or all if it has fewer: a systematic sample.

    The n rows of an owner are ordered by their contents, so only equal rows may change places. Each row has the same
    chance most / n to be in the sample, over the key of the call. The sample has row i if ``i * most + start`` modulo n
    is below `most`; the start is `owner_hash`, a keyed 64-bit hash of the owner.
    """
    window = f"{partition_by(owner)} {order_by(sorted_by)} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    position, count = (f"{call(name)} OVER ({window})" for name in ("row_number", "count_star"))
    if isinstance(most, int) and most >= _LARGE:  # a drawn limit is SQL and smaller
        position = cast(position, "HUGEINT")
    start = cast(call(">>", owner_hash, "16"), "BIGINT")
    return f"{call('%', plus(call('*', position, str(most)), start), count)} < {most}"


# Types that DuckDB compares as numbers; it compares others as bytes.
_NUMBERS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
# Integer types of group keys; other number types have NaN and two zeros.
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
FLOATS = ("FLOAT", "DOUBLE")


def text_of_label(column: str) -> str:
    """Return a column, an ENUM as text; DuckDB knows the column's type when it plans a statement."""
    both = struct({"label": cast(column, "VARCHAR"), "value": column})
    is_label = call("starts_with", call("typeof", column), text("ENUM("))
    return call("struct_extract", both, f"CASE WHEN {is_label} THEN 'label' ELSE 'value' END")


def identity(column: str) -> tuple[str, str]:
    """Return the identity of a value as a number and bytes: integers are numbers, everything else is bytes.

    Two values of one column are the same identity exactly when number and bytes are equal; neither is NULL unless the
    value is NULL. DuckDB knows a column's type when it plans a statement, so it drops unneeded branches. Text becomes
    its UTF-8 bytes; `dpsql.kernels.identity` makes the bytes of other types.
    """
    kind = call("typeof", column)
    numeric = f"{kind} IN ({', '.join(map(text, _NUMBERS))})"
    number = f"CASE WHEN {numeric} THEN TRY_CAST({column} AS BIGINT) ELSE 0 END"
    other = f"WHEN {kind} = 'VARCHAR' THEN {text_bytes(column)} ELSE {call('dpsql_identity', column)}"
    return number, f"CASE WHEN {numeric} THEN ''::BLOB {other} END"


def text_bytes(column: str) -> str:
    """Return a value's text as bytes, which ignore collations."""
    return call("encode", cast(column, "VARCHAR"))


def exact_text(column: str, zero: str) -> str:
    """Return a value's text for comparison with other such texts: byte by byte, and only when the statement runs.

    Like `text_bytes`, this keeps collations out. But DuckDB 2.0 joins and groups dictionary-encoded texts by the
    dictionary, three times as fast as bytes. `zero` is SQL of the gate's zero, which is unknown at planning time; so
    the result may be either branch, and has no statistics that could decide a join. (DuckDB 2.0 drops a side of a join
    if the minimum and maximum of the other side, in a Parquet file, say that no two texts are equal.)
    """
    value = cast(column, "VARCHAR")
    return f"(CASE WHEN {zero} = 0 THEN {value} ELSE {call('concat', value, value)} END) COLLATE C"


def place_hash(ticket: str, *parts: tuple[str, str] | str) -> str:
    """Return a 128-bit hash under the call's key, of identities and of 16 bytes of contents.

    The hashed bytes are unambiguous: a colon follows each identity's number and the length of its bytes.
    """
    out = [f"(SELECT {call('dpsql_sampling_key', ticket)})"]
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        else:
            number, data = part
            length = cast(call("octet_length", data), "VARCHAR")
            out += [call("encode", concatenated(cast(number, "VARCHAR"), "':'", length, "':'")), data]
    return call("md5_number", concatenated(*out))


def short_place(ticket: str, *columns: str) -> str:
    """Return a 64-bit hash under the call's key, of columns that come from identities.

    The hash is only fast: different values may have the same place, so the columns themselves must break ties. The
    hash of several columns is hashed again, because it is a carry-free sum of their hashes.
    """
    return call("hash", call("hash", f"(SELECT {call('dpsql_sampling_key', ticket)})", *columns))


def block_hash(ticket: str, *parts: tuple[str, str] | str) -> str:
    """Return the 64 bits of a place that decide a block."""
    return cast(call(">>", place_hash(ticket, *parts), "64"), "UBIGINT")


def first_rows(rows: str, most: int | str, *sort_keys: str) -> str:
    """Return the first rows by their sort keys.

    Sort keys become columns before the comparison, because DuckDB 2.0 accepts nothing volatile in a window's order.
    """
    names = [f"place{number}" for number in range(1, len(sort_keys) + 1)]
    columns = ", ".join(f"{expression} AS {name}" for expression, name in zip(sort_keys, names, strict=True))
    return (
        f"SELECT * EXCLUDE ({', '.join(names)}) FROM (SELECT *, {columns} FROM ({rows})) "
        f"QUALIFY {call('row_number')} OVER ({order_by(names)}) <= {most}"
    )


def key(column: str, zero: str) -> str:
    """Return a key as one value: equal exactly when the keys are equal, and NULL when the key is NULL.

    Integers are a BIGINT. Other keys are their text under the collation C, which compares bytes. The text depends on
    the gate's zero, so column statistics say nothing about it. Adding the zero turns -0.0 into 0.0. All NaN are one
    key, whatever their sign.
    """
    kind = call("typeof", column)
    is_integer, is_float = (f"{kind} IN ({', '.join(map(text, kinds))})" for kinds in (_INTEGERS, FLOATS))
    number = f"CASE WHEN {is_integer} THEN TRY_CAST({column} AS BIGINT) END"
    opaque = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", zero)
    floating = f"CASE WHEN {call('isnan', opaque)} THEN 'nan' ELSE {cast(opaque, 'VARCHAR')} END"
    data = f"CASE WHEN {is_integer} THEN '' WHEN {is_float} THEN {floating} ELSE {exact_text(column, zero)} END"
    return key_of(column, number, data)


def key_of(column: str, number: str, data: str) -> str:
    """Return the key: a number if the column holds integers, else a text under the collation C.

    Its type depends on the column's type: `typeof` and the name of the chosen field are constants when DuckDB plans a
    statement. DuckDB groups, joins and sorts by one value faster than by a pair with a constant.
    """
    is_integer = f"{call('typeof', column)} IN ({', '.join(map(text, _INTEGERS))})"
    both = struct({"number": number, "data": f"({data}) COLLATE C"})
    return call("struct_extract", both, f"CASE WHEN {is_integer} THEN 'number' ELSE 'data' END")


def key_parts(name: str) -> tuple[str, str]:
    """Return the number and the text of a key for hashing and handing over; the absent one is 0 or ''.

    `name` is the column that holds the key.
    """
    is_number = f"{call('typeof', name)} = 'BIGINT'"
    number = f"CASE WHEN {is_number} THEN TRY_CAST({name} AS BIGINT) ELSE 0 END"
    return number, f"(CASE WHEN {is_number} THEN '' ELSE {cast(name, 'VARCHAR')} END) COLLATE C"


# The input's struct of the columns that a condition names, and its name in the lambda.
NAMED, ONE = "dpsql_condition", "dpsql_one"


def filtered_rows(rows: str, columns: str, judged: Judged | None, zero: str) -> str:
    """Return the query of the rows that match a condition.

    Parameters
    ----------
    rows : str
        A FROM item with the struct `NAMED`.
    columns : str
        The selected columns.
    judged : Judged or None
        The condition; None if no types are known, and the gate will refuse the call.
    zero : str
        SQL of the gate's zero.
    """
    verdicts = f"lambda {ONE}: TRY({'NULL::BOOLEAN' if judged is None else judged.sql})"
    position = plus("1", cast(zero, "BIGINT"))
    passes = call("list_extract", call("list_transform", call("list_value", NAMED), verdicts), position)
    return f"SELECT {columns} FROM {rows} WHERE {passes}"
