"""A synthetic census table: one release, a picture of how far off each pair is, and free queries from then on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

# The adult census table, 32,561 people.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tables" / "adult.parquet"
# From what the columns mean, not from the table.
LOWER = {"age": 17, "education_num": 1, "hours_per_week": 1}
UPPER = {"age": 90, "education_num": 16, "hours_per_week": 99}
TEXTS = ["marital_status", "occupation", "sex", "income"]


def read() -> pl.DataFrame:
    if DATA.exists():
        return pl.read_parquet(DATA).select(*LOWER, *TEXTS)
    # Made up: pay goes with schooling, hours and age.
    generator = np.random.default_rng(7)
    people = 20_000
    schooling, hours = generator.binomial(16, 0.6, people).clip(1), generator.normal(40, 10, people).clip(1, 99)
    age = generator.gamma(9, 4.5, people).clip(17, 90)
    high = schooling / 4 + hours / 20 + age / 30 + generator.normal(0, 1, people) > 6.5
    return pl.DataFrame(
        {
            "age": age.astype(int),
            "education_num": schooling,
            "hours_per_week": hours.astype(int),
            "marital_status": np.where(age + generator.normal(0, 9, people) > 35, "married", "single"),
            "occupation": np.array(["office", "craft", "care"])[
                (schooling // 4 + generator.integers(0, 2, people)) % 3
            ],
            "sex": np.where(generator.random(people) < 0.5, "Female", "Male"),
            "income": np.where(high, ">50K", "<=50K"),
        }
    )


def main(folder: Path) -> None:
    people = read()
    with dpsql.Context() as ctx:
        ctx.dp_protect("people", epsilon=1.0, delta=1e-6, source=False)
        report = ctx.dp_synthetic(
            people,
            epsilon=1.0,
            delta=1e-6,
            target="income",
            lower=LOWER,
            upper=UPPER,
            private_keys=True,
            dataset="people",
            release="twin",
        )
        save(report.plot(), folder / "synthetic_twin.svg")
        print(pl.DataFrame(report.value).select("column_1", "column_2", "fit", "error", "upper", "verdict"))

        # Free from here on: any rows, any query.
        twin = pl.DataFrame(ctx.dp_synthetic_rows("twin", seed=1))
        for name, rows in (("real", people), ("synthetic", twin)):
            high = rows.group_by("sex").agg((pl.col("income") == ">50K").mean().round(3).alias("high")).sort("sex")
            print(name, rows.height, dict(high.iter_rows()))
        query = (
            "SELECT education_num, avg(hours_per_week) AS hours FROM dp_synthetic_rows('twin') GROUP BY 1 ORDER BY 1"
        )
        print(pl.DataFrame(ctx.sql(query)).tail(4))
        print(pl.DataFrame(ctx.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining"))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
