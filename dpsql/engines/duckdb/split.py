"""Which privacy units are in the test part of a keyed split, by the macro that SQL has for it."""

from __future__ import annotations

from importlib.resources import files

import duckdb
import polars as pl
import pyarrow as pa

_SQL = "SELECT dp_split(id, ?, test := ?) AS side FROM ids"


def in_test(ids: pl.Series, key: str, test: float) -> pl.Series:
    """Return for each id whether its unit is in the test part; null for null.

    Parameters
    ----------
    ids : polars.Series
    key : str
    test : float
        Share of the units in the test part.
    """
    column = ids.to_arrow(compat_level=pl.CompatLevel.oldest())
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(files("dpsql.sql").joinpath("dp/dp_split.sql").read_text(encoding="utf-8"))
        connection.register("ids", pa.table({"id": column}))
        found = connection.sql(_SQL, params=[key, test]).to_arrow_table()
    return pl.Series(ids.name, found["side"])
