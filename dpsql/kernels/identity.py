"""Identify privacy units and rows by bytes, and compute keyed hashes of the contents of rows.

Two values are one identity exactly when their bytes are equal:

=====================================  ==========================================================
type                                   bytes
=====================================  ==========================================================
integers, decimals without a fraction  ``i``, then 17 bytes: signed, most significant byte first
decimals with a fraction               ``d``, their scale without trailing zeros, then 17 bytes
floating                               ``f``, then a double; -0.0 is 0.0, and every NaN is one NaN
text, enums                            ``t``, then UTF-8 as stored: no collation, no normal form
booleans                               ``o``, then 0 or 1
binary                                 ``b``, then the bytes
dates                                  ``D``, then 8 bytes: days since 1970
timestamps, with a zone or without     ``T``, then 16 bytes: nanoseconds since 1970
=====================================  ==========================================================

NULL is nobody. Lists, structs, times and intervals have no identity: cast them in a view.

DuckDB statements compare integers, booleans and strings in DuckDB's form (a number, or the UTF-8 bytes without a tag):
two values are equal in that form exactly when their bytes are equal.

The module also chooses which private names of a row count: each name once, up to a limit, by a keyed hash of the row
and the name. A row's choice is a function of its own names, its seed and the key, whatever the other rows and the order
of its names. Privacy needs only this and the limit; good mixing of the hash keeps every name equally likely.
`dpsql.statistics.presence.NameCounts` explains why names are chosen but features have shares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from dpsql.arrays import Words
from dpsql.kernels.columns import to_doubles
from dpsql.kernels.xty import compiled_kernels, distinct_features

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def count_kept(
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64] | None,
    key: bytes,
    words: NDArray[np.uint64],
) -> None:
    """Count the chosen names of rows.

    Parameters
    ----------
    counts : ndarray of int64
        Raised by 1 at the position of every chosen name of a row.
    lengths : ndarray of int64, shape (rows,)
        Number of names of each row, repeats included.
    positions : ndarray of int64, shape (sum of lengths,)
        Positions of these names, >= 0; a row may repeat one.
    most : int
        Largest number of chosen names per row, >= 1.
    seeds : ndarray of uint64, shape (rows,), or None
        Keyed hash of each row's identity; needed if a row has more than `most`.
    key : bytes
        Secret, new for every call.
    words : ndarray of uint64, shape (names, 2)
        Keyed hash of the name at each position, different for different names.

    Notes
    -----
    The order of a row's names is by ``mixed(words[position, 0] ^ mixed(seed ^ lanes[0]))``, then by the same function
    of the second word and lane, then by both words. This order is total, so the first `most` different names do not
    depend on the names' order and repetition.

    **Sensitivity**: a row raises at most `most` places, each by 1, and they follow from the row alone.
    """
    if seeds is None:
        if (lengths > most).any():
            raise ValueError("long rows carry a hash of their identity")
        seeds = np.zeros(len(lengths), dtype=np.uint64)
    lanes = np.frombuffer(hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest(), dtype=np.uint64).copy()
    rows, names = distinct_features(lengths, positions)
    overfull = np.bincount(rows, minlength=len(lengths))[rows] > most
    if overfull.any():
        is_first = ~overfull
        is_first[overfull] = first_by_key(rows[overfull], words[names[overfull]], seeds, lanes, most)
        names = names[is_first]
    np.add.at(counts, names, 1)


def first_by_key(
    rows: NDArray[np.int64], items: NDArray[np.uint64], seeds: NDArray[np.uint64], lanes: NDArray[np.uint64], most: int
) -> NDArray[np.bool_]:
    """Return which items of each row come first in the row's own keyed order.

    Parameters
    ----------
    rows : ndarray of int64, shape (n,)
        Row of each item, ascending.
    items : ndarray of uint64, shape (n, 2)
        The items, distinct within a row.
    seeds : ndarray of uint64, shape (rows,)
        Keyed hash of each row's identity.
    lanes : ndarray of uint64, shape (2,)
        Secret, new for every call.
    most : int
        >= 1.

    Returns
    -------
    is_first : ndarray of bool, shape (n,)
        Marks `most` items of every row, or all its items. Depends on the row's identity and items, and on the key.
    """
    seed = seeds[rows]
    hashes = [mixed(items[:, number] ^ mixed(seed ^ lanes[number])) for number in (0, 1)]
    # A total order: 128 bits of hash, then the item itself. One word of row and hash decides unless there are ties.
    bits = np.uint64(int(rows.max(initial=0)).bit_length())
    word = (hashes[0] >> bits) | (rows.astype(np.uint64) << (np.uint64(63) - bits) << np.uint64(1))
    order = np.argsort(word)
    if (word[order[1:]] == word[order[:-1]]).any():
        order = np.lexsort((items[:, 1], items[:, 0], hashes[1], hashes[0], rows))
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
    is_first = np.zeros(len(rows), dtype=np.bool_)
    is_first[order[rank < most]] = True
    return is_first


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words mixed by the finaliser of splitmix64."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# The number of 32-bit multilinear hashes in the hash of a row's contents.
_LANES = 4
_LOW_HALF = np.uint64(0xFFFFFFFF)
_Encoder = Callable[[int], bytes] | Callable[[str], bytes] | Callable[[bytes], bytes] | Callable[[Decimal], bytes]


def has_identity(kind: pa.DataType) -> bool:
    """Return whether values of a type have an identity."""
    return bool(
        pa.types.is_null(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or _is_text(kind)
        or _is_binary(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def is_name(kind: pa.DataType) -> bool:
    """Return whether values of a type can name features: their text must not depend on a session's settings."""
    return bool(
        _is_text(kind)
        or pa.types.is_null(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
    )


def identity_bytes(array: pa.Array) -> pa.Array:
    """Return the identity of every value, as binary; NULL for NULL.

    Parameters
    ----------
    array : pyarrow.Array
        Of a type that `has_identity`.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return array.cast(pa.binary())
    if pa.types.is_dictionary(kind):
        return identity_bytes(array.dictionary).take(array.indices)
    if pa.types.is_boolean(kind):
        return _fixed(b"o", array.cast(pa.uint8()), np.uint8)
    if pa.types.is_floating(kind):
        return _fixed(b"f", pa.array(_canonical(to_doubles(array)), mask=_absent(array)), np.dtype(">f8"))
    if pa.types.is_date(kind):
        return _fixed(b"D", array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), np.dtype(">i8"))
    if pa.types.is_timestamp(kind):
        return _timestamps(array.cast(pa.int64()), _NANOSECONDS[kind.unit])
    encode = _encoder(kind)
    distinct = array.dictionary_encode()
    encoded = [encode(value) for value in distinct.dictionary.to_pylist()]
    return pa.array(encoded, type=pa.binary()).take(distinct.indices)


def row_contents(target: NDArray[np.float64], features: NDArray[np.float64], key: bytes) -> pa.Array:
    """Return a keyed 128-bit hash of every row, as a statistic reads it.

    Rows that read alike have the same hash. Two other rows collide with a chance of ``2**-128`` over the key, which is
    drawn after the rows are fixed: each of the four lanes is a multilinear hash, strongly universal in its upper half.
    Two lanes are a word, which is mixed: so the order of hashes is as good as random also for rows whose values have a
    pattern, of which a multilinear hash keeps something. Mixing maps different words to different ones.

    Parameters
    ----------
    target : ndarray of float64, shape (rows,)
    features : ndarray of float64, shape (d, rows)
    key : bytes
        Secret, new for every call.

    Returns
    -------
    hashes : pyarrow binary array of 16 bytes each

    References
    ----------
    .. [1] M. Dietzfelbinger, Universal hashing and k-wise independent random variables via integer arithmetic without
       primes, STACS 1996.
    """
    values = _canonical(np.vstack([target, features])).view(np.uint64)
    rows, count = values.shape[1], 2 * len(values)
    stream = hashlib.shake_128(b"dpsql row contents" + key).digest(8 * _LANES * (count + 1))
    keys = np.frombuffer(stream, dtype=np.uint64).reshape(count + 1, _LANES)
    fast = compiled_kernels(values.size)
    lanes = np.empty((_LANES, rows), dtype=np.uint64)
    (_add_words if fast is None else fast.add_words)(values, keys, lanes)
    lanes >>= np.uint64(32)
    words = np.empty((rows, 2), dtype=np.uint64)
    for number in (0, 1):
        words[:, number] = mixed(lanes[2 * number] | lanes[2 * number + 1] << np.uint64(32))
    offsets = np.arange(rows + 1, dtype=np.int32) * (4 * _LANES)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(words)])


def _add_words(values: Words, keys: Words, lanes: Words) -> None:
    """Set the lanes, shape (4, rows), of values, shape (columns, rows), to their sums of 32-bit halves times keys."""
    lanes[:] = keys[-1][:, np.newaxis]
    for column, value in enumerate(values):
        for half, word in enumerate((value & _LOW_HALF, value >> np.uint64(32))):
            for lane, number in zip(lanes, keys[2 * column + half], strict=True):
                lane += word * number


def text_words(texts: Sequence[bytes], key: bytes) -> NDArray[np.uint64]:
    """Return a keyed 128-bit hash of every text, as two words, shape (texts, 2)."""
    digests = bytearray().join(hashlib.blake2b(text, digest_size=16, key=key).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or inner == pa.string_view())


def _is_binary(kind: pa.DataType) -> bool:
    sized = pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view() or sized)


def _absent(array: pa.Array) -> NDArray[np.bool_]:
    """Return an array's NULL mask."""
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))


def _canonical(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return doubles without negative zeros, and with one NaN."""
    with np.errstate(invalid="ignore"):  # for a signalling NaN
        values = values + 0.0
    values[np.isnan(values)] = np.nan
    return values


def _fixed(tag: bytes, array: pa.Array, kind: DTypeLike) -> pa.Array:
    """Return tag and value of every number, the most significant byte first."""
    values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(kind)
    return _tagged(tag, values.view(np.uint8).reshape(len(array), -1), _absent(array))


def _tagged(tag: bytes, payload: NDArray[np.uint8], absent: NDArray[np.bool_]) -> pa.Array:
    """Return rows of bytes behind a tag, as binary."""
    rows, width = payload.shape
    body = np.hstack([np.full((rows, 1), tag[0], dtype=np.uint8), payload]).tobytes()
    offsets = np.arange(rows + 1, dtype=np.int32) * (width + 1)
    array = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(body)])
    return pc.if_else(pa.array(absent), pa.scalar(None, pa.binary()), array) if absent.any() else array


def _timestamps(array: pa.Array, factor: int) -> pa.Array:
    """Return the identity of instants in units of `factor` nanoseconds, in 128 bits."""
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    high, low = (values >> 32) * factor, (values & 0xFFFFFFFF) * factor
    upper = (high + (low >> 32)) >> 32
    payload = np.stack([upper, (high << 32) + low], axis=1).astype(">i8").view(np.uint8)
    return _tagged(b"T", payload, _absent(array))


def _encoder(kind: pa.DataType) -> _Encoder:
    """Return the function that turns a Python value into its identity."""
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_decimal(kind):
        return _decimal
    if _is_text(kind):
        return _text
    if _is_binary(kind):
        return _binary
    raise TypeError(f"values of type {kind} stand for nobody")


def _integer(value: int) -> bytes:
    return b"i" + int(value).to_bytes(17, "big", signed=True)


def _text(value: str) -> bytes:
    return b"t" + value.encode()


def _binary(value: bytes) -> bytes:
    return b"b" + value


def _decimal(value: Decimal) -> bytes:
    """Return a decimal's identity; a whole decimal has its integer's identity."""
    sign, digits, exponent = value.as_tuple()
    number, scale = int("".join(map(str, digits))), -int(exponent)
    while scale > 0 and number % 10 == 0:
        number, scale = number // 10, scale - 1
    number = -number if sign else number
    if scale <= 0:
        return _integer(number * 10**-scale)
    return b"d" + bytes([scale]) + number.to_bytes(17, "big", signed=True)
