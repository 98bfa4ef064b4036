"""Generate neighbouring tables: all of them over a small domain, or random ones with unusual values.

A table is a tuple of rows, a row is a tuple of values. Two tables are neighbours under ``'add_remove'`` if one has one
row more, and under ``'replace'`` if they differ in one row. With ``ordered=True``, tables with the same rows in another
order are neighbours too (they are at distance 0, so no mechanism may distinguish them better than neighbours): this
reveals a statistic that depends on row order.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

Row = tuple[Any, ...]
Table = tuple[Row, ...]
Relation = Literal["add_remove", "replace"]
RELATIONS: tuple[Relation, ...] = ("add_remove", "replace")


def check_relation(relation: str) -> None:
    """Raise ValueError unless `relation` is one of `RELATIONS`."""
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {RELATIONS}; got {relation!r}")


def tables(domain: Sequence[Row], max_rows: int, *, ordered: bool = False) -> Iterator[Table]:
    """Yield every table of at most `max_rows` rows over a public domain of rows.

    Parameters
    ----------
    domain : sequence of tuple
        The possible rows; distinct.
    max_rows : int
        Largest number of rows, >= 0. The empty table comes first.
    ordered : bool
        False: one table per multiset of rows. True: one per sequence of rows.

    Yields
    ------
    table : tuple of tuple
    """
    for size in range(max_rows + 1):
        if ordered:
            yield from itertools.product(domain, repeat=size)
        else:
            yield from itertools.combinations_with_replacement(domain, size)


def neighbouring_families(
    size: int, max_rows: int, relation: Relation, *, ordered: bool = False
) -> Iterator[list[tuple[int, ...]]]:
    """Yield families of tables, as row numbers, any two of which are neighbours.

    Every pair of neighbours is together in at least one family: for ``'replace'`` a family is a base table plus any one
    row; for ``'add_remove'`` it is a base table and one table with one more row. With ``ordered=True`` a family holds
    every order of each of its tables.

    Parameters
    ----------
    size : int
        Number of rows of the domain; a table is a tuple of numbers below it.
    max_rows : int
        Largest number of rows of any table.
    relation : {'add_remove', 'replace'}
        The neighbouring relation.
    ordered : bool
        Whether the order of rows counts.
    """
    check_relation(relation)
    for rows in range(max_rows):
        for base in itertools.combinations_with_replacement(range(size), rows):
            larger = [tuple(sorted((*base, extra))) for extra in range(size)]
            if relation == "replace":
                yield _orders(larger) if ordered else larger
            else:
                for table in larger:
                    yield _orders([base, table]) if ordered else [base, table]


def neighbouring_pairs(
    domain: Sequence[Row], max_rows: int, relation: Relation, *, ordered: bool = False
) -> Iterator[tuple[Table, Table]]:
    """Yield every pair of neighbouring tables of at most `max_rows` rows, in one of its two orders.

    Parameters
    ----------
    domain : sequence of tuple
        The possible rows; distinct.
    max_rows : int
        Largest number of rows of either table.
    relation : {'add_remove', 'replace'}
        The neighbouring relation.
    ordered : bool
        Also yield neighbours in every order of their rows, and tables that differ only in order.

    Examples
    --------
    >>> len(list(neighbouring_pairs([(0,), (1,)], 2, "add_remove")))
    6
    >>> len(list(neighbouring_pairs([(0,), (1,)], 2, "replace")))
    3
    """
    for family in neighbouring_families(len(domain), max_rows, relation, ordered=ordered):
        for first, second in itertools.combinations(family, 2):
            yield tuple(domain[i] for i in first), tuple(domain[i] for i in second)


def random_pairs(
    seed: int,
    relation: Relation,
    *,
    columns: int,
    count: int,
    max_rows: int = 12,
    lower: float = -1.0,
    upper: float = 1.0,
) -> Iterator[tuple[Table, Table]]:
    """Yield random neighbouring tables of floats with NULL, NaN, infinities, ties and extreme values.

    Parameters
    ----------
    seed : int
        The pairs are a function of the seed, so a failure can be repeated.
    relation : {'add_remove', 'replace'}
        The neighbouring relation.
    columns : int
        Values per row.
    count : int
        Pairs to yield.
    max_rows : int
        Largest number of rows of either table, >= 1.
    lower, upper : float
        The public bounds: values fall inside, on and outside of them.

    Yields
    ------
    table, neighbour : tuple of tuple
        The rows of either table are in a random order.
    """
    check_relation(relation)
    generator = random.Random(seed)  # noqa: S311  # test data, not noise
    for _ in range(count):
        palette = [random_value(generator, lower, upper) for _ in range(4)]

        def row(palette: list[Any] = palette) -> Row:
            return tuple(
                generator.choice(palette) if generator.random() < 0.5 else random_value(generator, lower, upper)
                for _ in range(columns)
            )

        base = [row() for _ in range(generator.randrange(max_rows))]
        first = [*base, row()]
        second = [*base, row()] if relation == "replace" else base[:]
        yield _shuffled(generator, first, second)


def random_unit_pairs(
    seed: int,
    relation: Relation,
    *,
    columns: int,
    count: int,
    max_units: int = 6,
    max_rows_per_unit: int = 4,
    lower: float = -1.0,
    upper: float = 1.0,
) -> Iterator[tuple[Table, Table]]:
    """Yield random tables that differ in all rows of one privacy unit.

    The unit's id is the first value of a row. Units own different numbers of rows (a release must cap them itself).
    Some rows have no id: nobody owns these rows, and both tables contain them.

    Parameters
    ----------
    seed : int
        The pairs are a function of the seed.
    relation : {'add_remove', 'replace'}
        Remove one unit with all its rows, or replace it by another unit, which may own more or fewer rows.
    columns : int
        Values per row, after the id.
    count : int
        Pairs to yield.
    max_units, max_rows_per_unit : int
        Largest number of units, and of rows that one unit owns.
    lower, upper : float
        The public bounds of the values.
    """
    check_relation(relation)
    generator = random.Random(seed)  # noqa: S311  # test data, not noise

    def rows(unit: int | None) -> list[Row]:
        owned = generator.randint(0 if unit is None else 1, max_rows_per_unit)
        return [(unit, *(random_value(generator, lower, upper) for _ in range(columns))) for _ in range(owned)]

    for _ in range(count):
        base = rows(None)
        for unit in range(1, generator.randint(1, max_units)):
            base += rows(unit)
        first = base + rows(max_units + 1)
        second = base + rows(max_units + 2) if relation == "replace" else base
        yield _shuffled(generator, first, second)


def random_value(generator: random.Random, lower: float, upper: float) -> float | None:
    """Return one unusual or plain value around public bounds; None is NULL."""
    width = upper - lower
    kind = generator.random()
    if kind < 0.3:
        special = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, lower, upper, (lower + upper) / 2]
        special += [math.nextafter(upper, math.inf), math.nextafter(lower, -math.inf), 5e-324, 1.7e308, -1.7e308]
        return generator.choice(special)
    if kind < 0.5:
        return lower + width * generator.randrange(-2, 7) / 4
    if kind < 0.6:
        return generator.uniform(lower - 10 * width, upper + 10 * width)
    return generator.uniform(lower, upper)


def to_arrow(table: Table, names: Sequence[str], types: Sequence[str] | None = None) -> Any:
    """Return the table as a pyarrow.Table.

    Parameters
    ----------
    table : tuple of tuple
        Rows; None becomes NULL, NaN stays NaN.
    names : sequence of str
        One per column.
    types : sequence of str, optional
        Arrow type names such as ``"int64"`` or ``"string"``; every column is ``"double"`` by default.

    Returns
    -------
    arrow : pyarrow.Table
        Also for a table without rows.
    """
    types = types or ["double"] * len(names)
    arrays = [
        pa.array([row[column] for row in table], type=pa.type_for_alias(types[column]), from_pandas=False)
        for column in range(len(names))
    ]
    return pa.table(dict(zip(names, arrays, strict=True)))


def _orders(indices: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    orders: dict[tuple[int, ...], None] = {}
    for table in indices:
        orders.update(dict.fromkeys(itertools.permutations(table)))
    return list(orders)


def _shuffled(generator: random.Random, first: list[Row], second: list[Row]) -> tuple[Table, Table]:
    pair = [first[:], second[:]]
    generator.shuffle(pair)
    for table in pair:
        generator.shuffle(table)
    return tuple(pair[0]), tuple(pair[1])
