"""An additive model of the price of a ride: what each feature adds, as curves with bands of the noise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

ROWS = 20_000


def read() -> pl.DataFrame:
    """Invented rides: the price bends with the distance, the hour goes round, and the seat says nothing."""
    generator = np.random.default_rng(4)
    distance = generator.gamma(2.0, 4.0, ROWS)
    hour = generator.integers(0, 24, ROWS)
    age = generator.uniform(0, 15, ROWS)
    seat = generator.integers(1, 5, ROWS)
    price = 4 + 6 * np.log1p(distance) + 3 * np.cos((hour - 18) / 24 * 2 * np.pi) - 0.2 * age
    return pl.DataFrame(
        {"distance": distance, "hour": hour, "age": age, "seat": seat, "price": price + generator.normal(0, 2, ROWS)}
    )


def main(folder: Path) -> None:
    rides = read()
    names = ["distance", "hour", "age", "seat"]
    with dpsql.Context() as ctx:
        ctx.dp_protect("rides", epsilon=2.0, delta=2e-5, source=False)
        for method in ("boosted_ada_ssp", "additive"):
            fit = ctx.dp_linear_regression(
                rides,
                target="price",
                features=names,
                epsilon=1.0,
                delta=1e-5,
                method=method,
                lower={"distance": 0, "hour": 0, "age": 0, "seat": 1},
                upper={"distance": 40, "hour": 23, "age": 15, "seat": 4},
                target_lower=0,
                target_upper=40,
                dataset="rides",
                release=method,
            )
            # Not private: how well it fits the rows that it was fitted to.
            score = ctx.model(method).score(rides.select(names).to_numpy(), rides["price"].to_numpy())
            print(f"{method:16} R² {score:.3f}")
        print(fit)
        for one in fit.noise["glass_box"]:
            print(f"{one['feature']:10} moves a prediction by {one['adds']:.1f}")
        save(fit.plot(), folder / "additive.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
