"""A private classifier and its private ROC curve, from scikit-learn's breast cancer data."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
from sklearn.datasets import load_breast_cancer

import dpsql
from dpsql.released.plots import save

# Public ranges of the measurements, from what the instrument can show rather than from the rows.
RANGES = {
    "mean radius": (5, 30),
    "mean texture": (8, 42),
    "mean smoothness": (0.04, 0.2),
    "mean concavity": (0, 0.5),
    "mean concave points": (0, 0.25),
    "worst radius": (5, 40),
}


def main(folder: Path) -> None:
    data = load_breast_cancer()
    frame = pl.DataFrame(data.data, schema=[str(name) for name in data.feature_names]).select(*RANGES)
    frame = frame.with_columns(malignant=data.target == 0).sample(fraction=1.0, shuffle=True)
    training, held_out = frame[:400], frame[400:]
    with dpsql.Context() as ctx:
        ctx.dp_protect("patients", epsilon=6.0, delta=1e-6, source=False)
        model = ctx.dp_logistic_regression(
            training,
            dataset="patients",
            target="malignant",
            features=list(RANGES),
            lower=[low for low, _ in RANGES.values()],
            upper=[high for _, high in RANGES.values()],
            epsilon=2.0,
        )
        print(model)
        # Prediction is free; the rows that it is measured on are private too.
        judged = pl.DataFrame(ctx.dp_predict(model, held_out))
        scored = {"dataset": "patients", "label": "malignant", "score": "probability"}
        curve = ctx.dp_roc(judged, **scored, epsilon=1.0, n_thresholds=7)
        print(curve)
        print(ctx.dp_auc(judged, **scored, epsilon=0.5))
        print(ctx.dp_confusion(judged, **scored, thresholds=0.5, epsilon=0.5))
        print(pl.DataFrame(ctx.dp_calibration(curve)))
        print("verdict:", curve.verdict)
        save(curve.plot(), folder / "tumour_classifier.svg")
        print(pl.DataFrame(ctx.dp_budget()))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
