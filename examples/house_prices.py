"""Select, fit, predict, evaluate: house prices of Californian districts, given nothing but a budget."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

# 20,640 districts, the median price in units of 100,000 dollars in column y.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "regression" / "california.parquet"


def read() -> pl.DataFrame:
    if DATA.exists():
        return pl.read_parquet(DATA)
    # Made up: income, age and the distance to the coast matter.
    generator = np.random.default_rng(7)
    names = ["MedInc", "HouseAge", "Distance", "AveRooms", "AveOccup", "Population"]
    frame = pl.DataFrame(generator.gamma(4.0, 1.0, (20_000, len(names))), schema=names)
    noise = pl.Series(generator.normal(0.0, 0.3, 20_000))
    return frame.with_columns(y=(0.5 + 0.4 * pl.col("MedInc") - 0.1 * pl.col("Distance") + noise).clip(0.1, 5.0))


def main(folder: Path) -> None:
    frame = read().sample(fraction=1.0, shuffle=True)
    held_out, districts = frame.head(4000), frame.tail(-4000)
    with dpsql.Context() as ctx:
        ctx.dp_protect("districts", epsilon=4.0, delta=1e-6, source=False)

        # The same in one step is ctx.select_then_fit(..., k=4), with one receipt.
        selection = ctx.dp_kendall(districts, target="y", k=4, epsilon=0.5, dataset="districts", release="sel")
        print(selection)
        fit = ctx.dp_linear_regression(
            districts, target="y", features=selection, epsilon=1.0, delta=2e-7, dataset="districts", release="model"
        )
        print(fit)
        print("verdict:", fit.verdict)
        save(fit.plot(), folder / "house_prices.svg")

        # A released model is public: predictions cost nothing. The rows that it is judged by are private again.
        model = ctx.model("model")
        scored = held_out.with_columns(predicted=pl.Series(model.predict(held_out)))
        metrics = ctx.dp_regression_metrics(
            scored, target="y", prediction="predicted", epsilon=1.0, lower=0, upper=5, dataset="districts"
        )
        print(metrics)
        print("verdict:", metrics.verdict)
        print(model.to_json())
        print(pl.DataFrame(ctx.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining", "delta_remaining"))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
