"""Text that is not UTF-8, in every form in which Arrow hands text over; Arrow and DuckDB do not check it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

# One of each kind: in eleven bytes or fewer, which DuckDB keeps in place, and in more, which it points to.
DAMAGED = {
    "a lone continuation": b"\x80",
    "a slash in two bytes": b"\xc0\xaf",
    "a surrogate": b"word\xed\xa0\x80",
    "cut off": b"abc\xe2\x82",
    "beyond the last letter": b"\xf4\x90\x80\x80",
    "a byte of no letter": b"\xff",
    "a NUL before it": b"\x02\x00\xfea",
    "of a neighbour's length": b"word\xc3",
    "in a long text": b"0123456789abcdef\xff0123456789",
    "at the end of a long text": b"https://example.org/one-and-the-same-beginning/\xe2\x82",
}
# Forms of text of the same values.
FORMS = {
    "string": pa.string(),
    "large string": pa.large_string(),
    "string view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
_BYTES = {"string": pa.binary(), "large string": pa.large_binary(), "string view": pa.binary_view()}


def text_array(values: Sequence[bytes | None], form: str = "string") -> pa.Array:
    """Return bytes as an array of text, unchecked."""
    if form == "dictionary":
        known = list(dict.fromkeys(value for value in values if value is not None))
        places = pa.array([None if value is None else known.index(value) for value in values], pa.int32())
        return pa.DictionaryArray.from_arrays(places, text_array(known))
    plain = pa.array(values, type=_BYTES[form])
    return pa.Array.from_buffers(FORMS[form], len(plain), plain.buffers(), plain.null_count)


def damaged(
    table: pa.Table, columns: Iterable[str] | None = None, form: str = "string", share: float = 0.06
) -> tuple[pa.Table, pa.Table]:
    """Return a table with damaged texts here and there, and the same table with NULL in their places.

    Parameters
    ----------
    table : pyarrow.Table
    columns : iterable of str, optional
        Columns of text to damage; by default all.
    form : str
        One of `FORMS`.
    share : float
        Of the cells.
    """
    generator = random.Random(form)
    chosen = [field.name for field in table.schema if pa.types.is_string(field.type)] if columns is None else columns
    spoilt = plain = table
    for name in chosen:
        values: list[bytes | None] = [
            None if value is None else value.encode() for value in table.column(name).to_pylist()
        ]
        hit = {place: generator.choice(list(DAMAGED.values())) for place in _places(len(values), share, generator)}
        place = table.column_names.index(name)
        spoilt = spoilt.set_column(place, name, text_array(_with(values, hit), form))
        nothing: dict[int, bytes | None] = dict.fromkeys(hit)
        plain = plain.set_column(place, name, text_array(_with(values, nothing), "string"))
    return spoilt, plain


def _places(count: int, share: float, generator: random.Random) -> list[int]:
    return generator.sample(range(count), max(1, round(share * count)))


def _with(values: Sequence[bytes | None], given: Mapping[int, bytes | None]) -> list[bytes | None]:
    return [given.get(place, value) for place, value in enumerate(values)]
