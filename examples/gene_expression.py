"""Screen thousands of genes for those that go with a diagnosis, and say how far the noise reaches."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import dpsql
from dpsql.released.plots import save

# 181 lung tumours of two kinds, 12,533 probes (Gordon et al., 2002).
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "microarray" / "gordon.parquet"
LEVELS = ["adenocarcinoma", "mesothelioma"]


def read() -> tuple[pl.DataFrame, list[str]]:
    """Return a row per tumour, with its kind in y and a vector x, and the names of the probes."""
    if DATA.exists():
        names = pl.read_parquet(DATA.with_suffix(".features.parquet"))
        return pl.read_parquet(DATA), names["feature_name"].to_list()
    # Made up: of 2,000 genes the first twenty differ between the two kinds.
    generator = np.random.default_rng(7)
    kind = generator.integers(0, 2, 200)
    x = generator.normal(size=(200, 2000))
    x[:, :20] += 2.5 * kind[:, None]
    return pl.DataFrame({"y": np.array(LEVELS)[kind], "x": x}), [f"gene {number}" for number in range(2000)]


def main(folder: Path) -> None:
    frame, names = read()
    call = {"n_features": len(names), "k": 8, "score": "rank", "verdict_share": 0.25, "verdict": "each"}
    with dpsql.Context() as ctx:
        ctx.dp_protect("tumours", epsilon=8.0, source=False)
        # A few hundred people are few for thousands of genes: look at the noise first, which is free.
        for epsilon in (1.0, 8.0):
            noise = pl.DataFrame(ctx.dp_estimate("dp_sis", **call, epsilon=epsilon))
            deviation = noise.filter(quantity="score_std_error")["value"].item()
            print(f"epsilon {epsilon}: the noise on a released score has a standard deviation of {deviation:.1f}")
        # By ranks, which need no bounds. A quarter of epsilon buys the scores of the chosen genes, and a verdict.
        release = ctx.dp_sis(
            frame, dataset="tumours", target="y", target_levels=LEVELS, features="x", **call, epsilon=8.0
        )
        print(release)
        print("verdict:", release.verdict)
        # x[1] is the first probe.
        print("probes:", *(names[int(feature[2:-1]) - 1] for feature in release.features))
        save(release.plot(), folder / "gene_expression.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
