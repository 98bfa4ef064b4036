"""What holds for every function that fits or summarises: answers, forms, odd rows, refusals, charges, interrupts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from dpsql.call import Call
from dpsql.functions import FUNCTIONS, SELECTORS

ROWS = 3000
FEATURES = ["a", "b", "c", "d"]
PUBLIC = {"lower": -3, "upper": 3, "target_lower": -8, "target_upper": 8}
HUGE = 10**5
DELTA = 1e-6
FIT = {"epsilon": HUGE, "delta": DELTA, "features": FEATURES}


def fit(**more: Any) -> tuple[str, dict[str, Any]]:
    return "dp_linear_regression", {**FIT, **more}


def pipeline(**more: Any) -> tuple[str, dict[str, Any]]:
    return "dp_pipeline", {**FIT, "k": 2, **PUBLIC, **more}


# Every function that releases and is no selection, in each of its ways through the rows.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ada_ssp": fit(method="ada_ssp", **PUBLIC),
    "ada_ssp, private bounds": fit(method="ada_ssp"),
    "boosted": fit(method="boosted_ada_ssp", rounds=300, **PUBLIC),
    "boosted, private bounds": fit(method="boosted_ada_ssp", rounds=300, split="thirds"),
    "tukey": fit(method="tukey"),
    "tukey, private count": fit(method="tukey", **PUBLIC),
    "tukey, public blocks": fit(blocks=50, **PUBLIC),
    "kendall, ada_ssp": pipeline(),
    "two_stage, tukey": pipeline(selector="two_stage", selection_blocks=20, method="tukey"),
    "best_subset, private bounds of the target": pipeline(
        selector="sis", method="boosted_ada_ssp", rounds=300, selection_share=0.2
    ),
    "quantile": (
        "dp_quantile",
        {"epsilon": HUGE, "quantiles": [0.25, 0.5, 0.75], "lower": -8, "upper": 8, "cells": 4096},
    ),
    "bounds": ("dp_bounds", {"epsilon": HUGE}),
    "metrics": ("dp_regression_metrics", {"epsilon": HUGE, "prediction": "p", "lower": -8, "upper": 8}),
}
FITS = [case for case, (name, _) in CASES.items() if name == "dp_linear_regression"]
MODELS = [case for case, (name, _) in CASES.items() if "features" in CASES[case][1]]
# The passes over the rows that each makes.
PASSES = {
    "ada_ssp": 1,
    "ada_ssp, private bounds": 2,
    "boosted": 1,
    "boosted, private bounds": 2,
    "tukey": 3,
    "tukey, private count": 2,
    "tukey, public blocks": 1,
    "kendall, ada_ssp": 2,
    "two_stage, tukey": 3,
    "best_subset, private bounds of the target": 3,
    "quantile": 1,
    "bounds": 1,
    "metrics": 1,
}
