"""A private selection inside a Polars pipeline, on scikit-learn's diabetes data."""

from __future__ import annotations

import polars as pl
from sklearn.datasets import load_diabetes

import dpsql


def main() -> None:
    data = load_diabetes(scaled=False)
    frame = pl.DataFrame(data.data, schema=list(data.feature_names)).with_columns(progression=data.target)
    # Public ranges of the ten measurements, from medicine rather than from the rows.
    bounds = {
        "age": (18, 90), "sex": (1, 2), "bmi": (15, 50), "bp": (50, 150), "s1": (80, 350),
        "s2": (30, 250), "s3": (15, 120), "s4": (1, 12), "s5": (3, 7), "s6": (50, 150),
    }  # fmt: skip
    with dpsql.Context() as ctx:
        ctx.dp_protect("diabetes", epsilon=4.0, source=False)
        release = ctx.dp_sis(
            frame,
            dataset="diabetes",
            target="progression",
            features=list(bounds),
            k=4,
            epsilon=2.0,
            lower=[low for low, _ in bounds.values()],
            upper=[high for _, high in bounds.values()],
            target_lower=25,
            target_upper=350,
            center="target",
        )
        print(release)
        print(frame.select(*release.features, "progression").head(3).columns)
        print(pl.from_arrow(ctx.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining"))


if __name__ == "__main__":
    main()
