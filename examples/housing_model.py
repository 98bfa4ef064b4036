"""Select, fit, predict, evaluate: house prices of 20,640 Californian districts, given nothing but a budget."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import dpsql

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "regression" / "california.parquet"


def main() -> None:
    if not DATA.exists():
        print("the housing table is not here")
        return
    frame = pl.read_parquet(DATA).sample(fraction=1.0, shuffle=True)
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

        # A released model is public: predictions cost nothing.
        model = ctx.model("model")
        scored = held_out.with_columns(predicted=pl.Series(model.predict(held_out)))
        metrics = ctx.dp_regression_metrics(
            scored, target="y", prediction="predicted", epsilon=1.0, lower=0, upper=5, dataset="districts"
        )
        print(metrics)
        print(model.to_json())
        print(pl.DataFrame(ctx.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining", "delta_remaining"))


if __name__ == "__main__":
    main()
