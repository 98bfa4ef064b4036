"""Columns of all kinds, whose private bounds are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np


def odd_columns(rows: int) -> dict[str, Any]:
    """Return columns by name: spread and narrow, of one sign and both, missing, constant, and beyond all doubles."""
    generator = np.random.default_rng(5)
    return {
        "normal": generator.normal(size=rows),
        "far": generator.normal(1e6, 1.0, size=rows),
        "years": generator.integers(1922, 2012, rows),
        "binary": generator.integers(0, 2, rows),
        "signs": generator.choice([-1.0, 1.0], rows),
        "heavy": generator.standard_cauchy(rows),
        "skewed": -generator.lognormal(0.0, 3.0, rows),
        "small": generator.normal(size=rows) * 1e-12,
        "half missing": np.where(generator.random(rows) < 0.5, np.nan, generator.random(rows)),
        "constant": np.full(rows, -7.0),
        "zeros": np.zeros(rows),
        "infinite": np.full(rows, np.inf),
        "two lumps": np.where(generator.random(rows) < 0.3, generator.normal(1e4, 1, rows), generator.random(rows)),
    }
