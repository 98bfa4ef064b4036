"""What each feature adds to the predictions of an additive model: the shape of a feature, read from a release.

A prediction is the intercept plus, for each feature, coefficient times value plus the step that the value is on. A
shape is this sum as a function of the feature, over the interval in which values count: what is outside of it counts as
its end. All of this is post-processing of what was released, and free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from dpsql.arrays import Doubles
from dpsql.contract.json import Json
from dpsql.released.results import FeatureSteps, Fitted

SHAPES_SCHEMA = pa.schema(
    [
        ("feature", pa.string()),
        *((name, pa.float64()) for name in ("lower", "upper", "at_lower", "at_upper", "std_error")),
    ]
)


class ShapePiece(TypedDict):
    """A piece of a shape: a line over an interval of the feature, and the noise of its step."""

    feature: str
    lower: float
    upper: float
    at_lower: float
    at_upper: float
    std_error: float


def steps_at(steps: FeatureSteps, values: Doubles) -> Doubles:
    """Return the step of each value; of NaN any of them, as the linear part is NaN there."""
    found: Doubles = np.array(steps["values"])[np.searchsorted(steps["edges"], values, side="right")]
    return found


def pieces(result: Fitted) -> Iterator[ShapePiece]:
    """Yield the shapes of an additive model piece by piece, feature by feature; of one that was left out none.

    `std_error` is that of the step alone: the coefficient's is in the rows of the release.
    """
    features, slopes = result["terms"][1:], (result["coefficients"] or [])[1:]
    for name, slope, bounds, steps in zip(
        features, slopes, result["bounds"] or (), result.get("steps") or (None,) * len(features), strict=True
    ):
        if bounds is None:
            continue
        lower, upper = bounds
        inside = [edge for edge in (steps or _NO_STEPS)["edges"] if lower < edge < upper]
        ends = [lower, *inside, upper]
        middles = (np.array(ends[1:]) + np.array(ends[:-1])) / 2
        values, errors = np.zeros(len(middles)), np.zeros(len(middles))
        if steps is not None:
            values = steps_at(steps, middles)
            errors = steps_at({**steps, "values": steps["std_errors"]}, middles)
        for first, last, value, error in zip(ends[:-1], ends[1:], values.tolist(), errors.tolist(), strict=True):
            yield {
                "feature": name,
                "lower": first,
                "upper": last,
                "at_lower": slope * first + value,
                "at_upper": slope * last + value,
                "std_error": error,
            }


_NO_STEPS: FeatureSteps = {"edges": [], "values": [0.0], "std_errors": [0.0]}


def shapes_table(result: Fitted) -> pa.Table:
    """Return the pieces as a table."""
    return pa.Table.from_pylist([dict(one) for one in pieces(result)], schema=SHAPES_SCHEMA)


def by_feature(result: Fitted) -> list[tuple[str, float, list[ShapePiece]]]:
    """Return each feature, how far it moves a prediction over its interval, and its pieces; the farthest first."""
    found: dict[str, list[ShapePiece]] = {}
    for piece in pieces(result):
        found.setdefault(piece["feature"], []).append(piece)
    rows = [(name, _reach(of), of) for name, of in found.items()]
    return sorted(rows, key=lambda row: -row[1])


def glass_box(result: Any) -> list[Json]:
    """Return how far each feature moves a prediction over its interval, the farthest first, as the receipt has it."""
    return [{"feature": name, "adds": adds} for name, adds, _ in by_feature(result)]


def _reach(of: Sequence[ShapePiece]) -> float:
    ends = [end for piece in of for end in (piece["at_lower"], piece["at_upper"])]
    return float(max(ends) - min(ends))
