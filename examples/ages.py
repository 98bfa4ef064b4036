"""The picture on the first page: how old the patients of `dpsql example` are, counted in public bins."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import dpsql
from dpsql.released.plots import save


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "hospital.duckdb"
        dpsql.example(database)
        with dpsql.Context(database) as ctx:
            ctx.dp_protect("patients", epsilon=3.0)
            ages = ctx.dp_histogram("patients", target="age", lower=18, upper=90, bins=12, null_bin=False, epsilon=0.1)
            print(ages)
            save(ages.plot(), folder / "ages.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
