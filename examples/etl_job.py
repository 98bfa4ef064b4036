"""An ETL job that may be retried: a named release is drawn and charged once, however often the job runs."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
from sklearn.datasets import load_breast_cancer

import dpsql


def nightly(database: Path) -> list[tuple[int, str]]:
    """One run of the job: it writes the selection into a table of the same database."""
    con = dpsql.connect(database, strict=True)
    try:
        con.execute("SELECT dp_protect('screening', epsilon := 3.0)").fetchall()
        con.execute(
            """
            CREATE OR REPLACE TABLE selected AS
            SELECT * FROM dp_sis('screening', target := 'malignant', k := 3, epsilon := 1.0, lower := 0, upper := 60,
                                 features := ['mean radius', 'mean texture', 'worst radius', 'worst texture'],
                                 release := 'selection of 2026')
            """
        ).fetchall()
        return con.execute("SELECT rank, feature FROM selected ORDER BY rank").fetchall()
    finally:
        con.close()


def main(folder: Path) -> None:
    database = folder / "screening.duckdb"
    data = load_breast_cancer()
    frame = pl.DataFrame(data.data, schema=list(data.feature_names)).with_columns(malignant=pl.Series(data.target == 0))
    with dpsql.Context(database) as ctx:
        ctx.connection.register("rows", frame)
        ctx.sql("CREATE OR REPLACE TABLE screening AS FROM rows")
        ctx.connection.unregister("rows")
    first, again = nightly(database), nightly(database)
    print("selected", [feature for _, feature in first])
    print("the retry gave the same, at no charge" if first == again else "the retry differs")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
