"""Four private selections of the same table under one budget, on scikit-learn's diabetes data."""

from __future__ import annotations

import polars as pl
from sklearn.datasets import load_diabetes

import dpsql


def main() -> None:
    data = load_diabetes(scaled=False)
    frame = pl.DataFrame(data.data, schema=list(data.feature_names)).with_columns(progression=data.target)
    # Public ranges of the ten measurements, from medicine rather than from the rows.
    ranges = {
        "age": (18, 90), "sex": (1, 2), "bmi": (15, 50), "bp": (50, 150), "s1": (80, 350),
        "s2": (30, 250), "s3": (15, 120), "s4": (1, 12), "s5": (3, 7), "s6": (50, 150),
    }  # fmt: skip
    bounds = {
        "lower": [low for low, _ in ranges.values()],
        "upper": [high for _, high in ranges.values()],
        "target_lower": 25,
        "target_upper": 350,
    }
    call = {"dataset": "diabetes", "target": "progression", "features": list(ranges), "k": 3, "epsilon": 1.0}
    with dpsql.Context() as ctx:
        ctx.dp_protect("diabetes", epsilon=4.0, source=False)
        # What would be the noise? Nothing is read and nothing charged.
        print(pl.DataFrame(ctx.dp_estimate("dp_best_subset", n_features=10, k=3, epsilon=1.0, n_rows=442)))
        releases = [
            ctx.dp_best_subset(frame, **call, **bounds, intercept=True),  # the subset that predicts best together
            ctx.dp_sis(frame, **call, **bounds, center="target"),  # covariance with the target, one by one
            ctx.dp_kendall(frame, **call),  # ranks: no bounds
            ctx.dp_two_stage(frame, **call, blocks=20),  # votes of 20 Lasso fits: no bounds
        ]
        for release in releases:
            print(release)
        try:
            ctx.dp_kendall(frame, **call)
        except dpsql.BudgetError as refused:
            print(refused)


if __name__ == "__main__":
    main()
