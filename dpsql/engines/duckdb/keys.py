"""SQL of the keys by which rows are compared, sampled and sorted into blocks: identities and places.

**Valid text.** The SQL that makes NULL of a value whose text is not UTF-8, before any other function meets it.

DuckDB checks text when it stores a table, and when it reads a Parquet, CSV or JSON file. It does not check frames,
whose bytes it takes as they are: `upper` and `lower` then end the whole instance, ILIKE and collations too, also inside
of TRY, and what comes out of other functions may be bytes of other rows (2.0.0 and 1.5.6). `decode` of a value's bytes
fails where they are not UTF-8, in a way that TRY catches, and `encode` never fails. Both stand in the body of a lambda,
as a condition does: the optimizer could compute them outside of TRY. The lambda
keeps the value or leaves it out, so any type stays as it is.

**The sample of a unit.** Which rows of a privacy unit count: a systematic sample of them, which follows from its own
rows and a secret key.

**Conditions.** The SQL that keeps the rows of a source which meet the caller's condition.

DuckDB's optimizer must not touch a condition. ``TRY`` around it is not enough: a long IN list becomes a join, and a
subexpression that occurs twice is computed beforehand, in both cases outside of the TRY, so that an error there ends
the statement, by the rows (2.0.0 and 1.5.6). Nor may a comparison be decided from the minimum and maximum in a file,
which ignore NaN. So the condition is the body of a lambda over a list of one row, where the optimizer does not look:
there TRY makes NULL of an error, one row at a time. What is in the body was judged by its types
(`dpsql.contract.expression`), because TRY does not catch every error. The element of the list is picked by the gate's
zero, a value from run time: no row is judged before the gate has let the call pass.
"""

from __future__ import annotations

from dpsql.contract.expression.judge import Judged
from dpsql.rendering import call, cast, concatenated, plus, struct, text

# The types that hold no text, as `typeof` spells them.
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

    Types that hold no text cost nothing when rows are read: `typeof` is a constant when a statement is planned.
    """
    decoded = call("decode", call("encode", cast(_VALUE, "VARCHAR")))
    judged = f"lambda {_VALUE}: TRY({decoded}) IS NOT NULL"
    checked = call("list_extract", call("list_filter", call("list_value", column), judged), "1")
    without = call("regexp_full_match", call("typeof", column), text(_WITHOUT_TEXT))
    return f"CASE WHEN {without} THEN {column} ELSE {checked} END"


# Times a number of rows below 2**43, smaller limits fit into 64 bits.
_LARGE = 1 << 20


def partition_by(names: list[str]) -> str:
    """Return the clause of a window over the rows that agree in some columns."""
    return f"PARTITION BY {', '.join(names)}"


def order_by(names: list[str]) -> str:
    """Return the clause of an order; nothing for no columns."""
    return f"ORDER BY {', '.join(f'{name} ASC NULLS LAST' for name in names)}" if names else ""


def sampled(owner_hash: str, owner: list[str], sorted_by: list[str], most: int | str) -> str:
    """Return the condition that keeps `most` rows of each owner, or all if it has fewer: a systematic sample.

    The n rows of an owner are in the order of what they hold, so that only equal rows may change places. Each is in the
    sample with the same chance most / n, over the key of the call: row i is, if ``i * most + start`` modulo n is below
    `most`, where `owner_hash`, a keyed hash of the owner of 64 bits, is the start.
    """
    window = f"{partition_by(owner)} {order_by(sorted_by)} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    position, count = (f"{call(name)} OVER ({window})" for name in ("row_number", "count_star"))
    if isinstance(most, int) and most >= _LARGE:  # a limit that is drawn, which SQL has, is smaller
        position = cast(position, "HUGEINT")
    start = cast(call(">>", owner_hash, "16"), "BIGINT")
    return f"{call('%', plus(call('*', position, str(most)), start), count)} < {most}"


# Types that DuckDB compares as numbers; the others compare as bytes.
_NUMBERS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
# Types of keys of groups that are numbers, and those that have NaN and two zeros.
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
FLOATS = ("FLOAT", "DOUBLE")


def text_of_label(column: str) -> str:
    """Return a column, an ENUM as text; the type of the column is known when a statement is planned."""
    both = struct({"label": cast(column, "VARCHAR"), "value": column})
    is_label = call("starts_with", call("typeof", column), text("ENUM("))
    return call("struct_extract", both, f"CASE WHEN {is_label} THEN 'label' ELSE 'value' END")


def identity(column: str) -> tuple[str, str]:
    """Return the identity of a value as a number and bytes: integers are numbers, everything else is bytes.

    Values of one column are the same identity exactly when both are equal; neither is NULL where the value is not. The
    type of a column is known when a statement is planned, so branches that are not needed disappear. Text becomes its
    UTF-8 bytes; `dpsql.kernels.identity` makes the bytes of other types.
    """
    kind = call("typeof", column)
    numeric = f"{kind} IN ({', '.join(map(text, _NUMBERS))})"
    number = f"CASE WHEN {numeric} THEN TRY_CAST({column} AS BIGINT) ELSE 0 END"
    other = f"WHEN {kind} = 'VARCHAR' THEN {text_bytes(column)} ELSE {call('dpsql_identity', column)}"
    return number, f"CASE WHEN {numeric} THEN ''::BLOB {other} END"


def text_bytes(column: str) -> str:
    """Return a value's text as bytes, to which collations do not apply."""
    return call("encode", cast(column, "VARCHAR"))


def exact_text(column: str, zero: str) -> str:
    """Return a value's text, to be compared with others of this form: byte by byte, and only when the statement runs.

    As `text_bytes` does, this keeps collations out. But DuckDB 2.0 joins and groups texts that it stores as a
    dictionary by the dictionary, three times as fast as bytes. `zero` is SQL of the gate's zero, which nobody knows at
    planning time; so the result may be either branch, and has no statistics by which a join could be decided. (DuckDB
    2.0 replaces a side of a join by nothing if the minimum and maximum of the other, in a Parquet file, say that no
    two texts are equal.)
    """
    value = cast(column, "VARCHAR")
    return f"(CASE WHEN {zero} = 0 THEN {value} ELSE {call('concat', value, value)} END) COLLATE C"


def place(ticket: str, *parts: tuple[str, str] | str) -> str:
    """Return a 128-bit hash under the call's key, of identities and of 16 bytes of contents.

    The hashed bytes are unambiguous: each identity's number and the length of its bytes are followed by a colon.
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
    """Return a 64-bit hash under the call's key, of columns that identities were made of.

    It is fast, and no more than that: other values may have the same place, so ties must fall to the columns
    themselves. The hash of several columns is hashed again, because it is a sum without carry of theirs.
    """
    return call("hash", call("hash", f"(SELECT {call('dpsql_sampling_key', ticket)})", *columns))


def block_hash(ticket: str, *parts: tuple[str, str] | str) -> str:
    """Return the 64 bits of a place that decide a block."""
    return cast(call(">>", place(ticket, *parts), "64"), "UBIGINT")


def first_rows(rows: str, most: int | str, *sort_keys: str, partition: str = "") -> str:
    """Return the first rows by their sort keys, of each part where they are partitioned.

    These become columns before they are compared, because DuckDB 2.0 accepts nothing volatile in a window's order.
    """
    names = [f"place{number}" for number in range(1, len(sort_keys) + 1)]
    columns = ", ".join(f"{expression} AS {name}" for expression, name in zip(sort_keys, names, strict=True))
    order = ", ".join(f"{name} ASC NULLS LAST" for name in names)
    within = f"PARTITION BY {partition} " if partition else ""
    return (
        f"SELECT * EXCLUDE ({', '.join(names)}) FROM (SELECT *, {columns} FROM ({rows})) "
        f"QUALIFY {call('row_number')} OVER ({within}ORDER BY {order}) <= {most}"
    )


def key(column: str, zero: str) -> str:
    """Return a key as one value: equal exactly when the keys are, and NULL where the key is.

    Integers are a BIGINT. Everything else is its text under the collation C, which compares bytes; it hangs on the zero
    that the gate gives, so that column statistics say nothing about it; and with it added, -0.0 is 0.0. All NaN are
    one key, whatever their sign.
    """
    kind = call("typeof", column)
    is_integer, is_float = (f"{kind} IN ({', '.join(map(text, kinds))})" for kinds in (_INTEGERS, FLOATS))
    number = f"CASE WHEN {is_integer} THEN TRY_CAST({column} AS BIGINT) END"
    opaque = plus(f"TRY_CAST({cast(column, 'VARCHAR')} AS DOUBLE)", zero)
    floating = f"CASE WHEN {call('isnan', opaque)} THEN 'nan' ELSE {cast(opaque, 'VARCHAR')} END"
    data = f"CASE WHEN {is_integer} THEN '' WHEN {is_float} THEN {floating} ELSE {exact_text(column, zero)} END"
    return key_of(column, number, data)


def key_of(column: str, number: str, data: str) -> str:
    """Return the key that is a number where a column holds integers, and a text under the collation C elsewhere.

    So its type hangs on that of the column: `typeof` is a constant when a statement is planned, and so is the name of
    the field that is taken. DuckDB groups, joins and sorts by one value faster than by a pair of which one is constant.
    """
    is_integer = f"{call('typeof', column)} IN ({', '.join(map(text, _INTEGERS))})"
    both = struct({"number": number, "data": f"({data}) COLLATE C"})
    return call("struct_extract", both, f"CASE WHEN {is_integer} THEN 'number' ELSE 'data' END")


def key_parts(name: str) -> tuple[str, str]:
    """Return the number and the text of a key, as they are hashed and handed over; the one that it has not is 0 or ''.

    `name` is the column that holds the key.
    """
    is_number = f"{call('typeof', name)} = 'BIGINT'"
    number = f"CASE WHEN {is_number} THEN TRY_CAST({name} AS BIGINT) ELSE 0 END"
    return number, f"(CASE WHEN {is_number} THEN '' ELSE {cast(name, 'VARCHAR')} END) COLLATE C"


# The column of the input that holds the columns which a condition names, as a struct, and its name in the lambda.
NAMED, ONE = "dpsql_condition", "dpsql_one"


def kept(rows: str, columns: str, judged: Judged | None, zero: str) -> str:
    """Return the query of the rows that meet a condition.

    Parameters
    ----------
    rows : str
        A FROM item with the struct `NAMED`.
    columns : str
        What is selected of it.
    judged : Judged or None
        The condition; None where no types are known, and the gate will refuse the call.
    zero : str
        SQL of the gate's zero.
    """
    verdicts = f"lambda {ONE}: TRY({'NULL::BOOLEAN' if judged is None else judged.sql})"
    position = plus("1", cast(zero, "BIGINT"))
    passes = call("list_extract", call("list_transform", call("list_value", NAMED), verdicts), position)
    return f"SELECT {columns} FROM {rows} WHERE {passes}"
