"""A Polars pipeline that selects features, fits a model and evaluates it privately, on scikit-learn's diabetes data."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
from sklearn.datasets import load_diabetes

import dpsql.polars

# Public ranges of measurements, from medicine rather than from the rows.
LOWER = {"age": 18, "sex": 1, "bmi": 15, "bp": 50, "s1": 80, "s2": 30, "s3": 15, "s4": 1, "s5": 3, "s6": 50}
UPPER = {"age": 90, "sex": 2, "bmi": 50, "bp": 150, "s1": 350, "s2": 250, "s3": 120, "s4": 12, "s5": 7, "s6": 150}
TARGET = {"target": "progression", "target_lower": 25, "target_upper": 350}


def patients() -> pl.LazyFrame:
    """Return one row per patient."""
    data = load_diabetes(scaled=False)
    frame = pl.DataFrame(data.data, schema=list(data.feature_names))
    return frame.with_columns(patient=pl.int_range(pl.len()), progression=pl.Series(data.target)).lazy()


def main(folder: Path) -> None:
    """Print the releases, and write the picture of the model."""
    owner = dpsql.polars.use(ledger=folder / "diabetes.dpsql-ledger", strict=True)
    # The pipeline names its dataset once, where the rows come from.
    rows = patients().dp.of("diabetes")
    rows.dp.protect(epsilon=10.0, delta=1e-5)
    train, test = rows.dp.split("patient", key="spring")

    selected = train.dp.sis(
        **TARGET,
        features=list(LOWER),
        k=4,
        epsilon=2.0,
        lower=LOWER,
        upper=UPPER,
        center="target",
        release="measurements",
    )
    print(selected)
    model = train.dp.linear_regression(
        **TARGET, features=selected, epsilon=4.0, delta=1e-6, lower=LOWER, upper=UPPER, release="progression"
    )
    print(model)
    ax = model.dp.release.plot()
    ax.figure.savefig(folder / "polars_pipeline.svg")

    # Predicting costs nothing; the error on the other patients is a release again.
    scored = test.dp.predict(model)
    error = scored.dp.regression_metrics(
        target="progression", prediction="prediction", lower=25, upper=350, epsilon=2.0, release="error"
    )
    print(error)
    print(pl.DataFrame(owner.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
