"""The correlations of columns of Californian districts, within public bounds, beside what they are without privacy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

# 20,640 districts.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "regression" / "california.parquet"
# From what the columns mean, not from the table: 10,000 dollars, years, rooms, people, degrees, 100,000 dollars.
LOWER = {"MedInc": 0, "HouseAge": 0, "AveRooms": 0, "AveOccup": 1, "Latitude": 32.5, "Longitude": -124.5, "y": 0}
UPPER = {"MedInc": 15, "HouseAge": 52, "AveRooms": 12, "AveOccup": 6, "Latitude": 42, "Longitude": -114, "y": 5}


def read() -> pl.DataFrame:
    if DATA.exists():
        return pl.read_parquet(DATA).select(*LOWER)
    # Made up: every column leans on the first one, the later the less.
    generator = np.random.default_rng(7)
    first, lean = generator.random((20_000, 1)), np.linspace(1.0, 0.2, len(LOWER))
    share = lean * first + (1 - lean) * generator.random((20_000, len(LOWER)))
    return pl.DataFrame({name: LOWER[name] + (UPPER[name] - LOWER[name]) * share[:, j] for j, name in enumerate(LOWER)})


def main(folder: Path) -> None:
    districts = read()
    with dpsql.Context() as ctx:
        ctx.dp_protect("districts", epsilon=2.0, delta=1e-6, source=False)
        matrix = ctx.dp_correlation(
            districts, features=[*LOWER], lower=LOWER, upper=UPPER, epsilon=1.0, delta=5e-7, dataset="districts"
        )
        print(matrix)
        print("verdict:", matrix.verdict)
        save(matrix.plot(), folder / "correlations.svg")

        clipped = districts.select(pl.col(name).clip(LOWER[name], UPPER[name]) for name in LOWER)
        apart = np.triu_indices(len(LOWER), 1)
        errors = abs(matrix.matrix() - np.corrcoef(clipped.to_numpy().T))[apart]
        print(f"largest error {errors.max():.3f}, largest standard error {matrix.matrix('std_error')[apart].max():.3f}")

        # Variances and covariances in the columns' own units: the standard deviation of incomes, for example.
        two = ctx.dp_covariance(
            districts, features=["MedInc", "y"], lower=LOWER, upper=UPPER, epsilon=1.0, dataset="districts"
        )
        print(f"standard deviation of incomes {two.matrix()[0, 0] ** 0.5:.3f}")
        print(pl.DataFrame(ctx.dp_budget()).select("dataset", "epsilon_spent", "epsilon_remaining", "delta_remaining"))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
