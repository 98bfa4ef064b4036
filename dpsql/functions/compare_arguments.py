"""The arguments of dp_compare, and how its bounds and thresholds are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMN_BOUNDS,
    COLUMN_PROTECTION,
    EPSILON,
    Argument,
    Signature,
    flag,
    word,
)
from dpsql.contract.bounds import bounds_by_feature, column_bounds, feature_bounds, refuse_extremes
from dpsql.contract.parameters import known
from dpsql.errors import ParameterError
from dpsql.functions.grouped.arguments import CONFIDENCE, COUNT_DELTA, NOISE
from dpsql.functions.roc import AREA_CELLS
from dpsql.released.comparison import AREA, ERROR, KINDS, MEAN, OF_COUNT, SHARE
from dpsql.statistics.comparison import LOSSES, ZERO_ONE

SCORES = (AREA, ERROR)


def _column(name: str, doc: str, kind: str = "str") -> Argument:
    return Argument(name, doc, names_column=True, table_only=True, kind=kind)


COMPARE = Signature(
    word(
        "of",
        "What is compared: the mean of a column, the share of rows in which it is true, or the number of rows, in "
        "two groups; or the area or the error of two scores on the same rows.",
        KINDS,
        MEAN,
    ),
    _column("target", "Column whose means or shares are compared; with 'count' only rows with a value count."),
    _column("groups", "Column that says which of the two groups a row is in."),
    Argument(
        "keys",
        "The two groups, from public knowledge: the difference is the first less the second. Other rows are ignored.",
        shown="[false, true], [0, 1], or stated by the owner",
        table_only=True,
        kind="Iterable[object]",
    ),
    _column("scores", "The two columns of scores, or of predictions, that are compared on the same rows.", "Names"),
    _column("label", "Column of the label, or of the numeric truth for losses of size, of 'auc' and 'error'."),
    EPSILON,
    COUNT_DELTA,
    replace(COLUMN_BOUNDS[0], shown="required for means, else 0", statistic=False, stand_in=None),
    replace(COLUMN_BOUNDS[1], shown="required for means, else 1", statistic=False, stand_in=None),
    word(
        "loss",
        "The error of a row: whether the predicted class is wrong, or how far the prediction is off.",
        LOSSES,
        ZERO_ONE,
    ),
    Argument(
        "thresholds",
        "Score from which the positive class is predicted: one number, or one for each score.",
        shown="the middle of the bounds",
        kind="Numbers",
    ),
    flag(
        "sampling",
        "Whether the interval is about the population that the rows are from, rather than about these rows.",
        True,
    ),
    CONFIDENCE,
    NOISE,
    AREA_CELLS,
    replace(CLASSES, statistic=False),
    *(replace(one, statistic=False) for one in COLUMN_PROTECTION),
)


def read_bounds(given: Mapping[str, object], of: str, loss: str) -> dict[str, float | None]:
    """Return the bounds of the target or of the scores."""
    missing = given["lower"] is None and given["upper"] is None
    if of in (OF_COUNT, SHARE):
        if not missing:
            raise ParameterError("P045", f"of := '{of}' takes no bounds. Leave lower and upper out.")
        return {"lower": 0.0, "upper": 1.0} if of == SHARE else {"lower": None, "upper": None}
    if of in SCORES:
        if missing and loss == ZERO_ONE:
            return {"lower": 0.0, "upper": 1.0}
        found = column_bounds(given, "they bound both scores")
        pair = (found["lower"], found["upper"])
    else:
        sides = feature_bounds(given)
        [pair] = bounds_by_feature(sides["lower"], sides["upper"], (str(given["target"]),), fold_case=True)
    refuse_extremes([pair])
    return {"lower": pair[0], "upper": pair[1]}


def read_thresholds(given: object, bounds: Mapping[str, float | None]) -> tuple[float, ...]:
    """Return the threshold of each score; the middle of the bounds where none is given."""
    lower, upper = known(float, bounds["lower"]), known(float, bounds["upper"])
    if given is None:
        return (lower / 2 + upper / 2,) * 2
    items = parameters.list_items(given, most=2)
    hint = "Give one number between the bounds, or one for each score."
    found = [parameters.finite_float("a threshold", one, hint=hint) for one in ((given,) if items is None else items)]
    if len(found) not in (1, 2) or not all(lower <= one <= upper for one in found):
        raise ParameterError("P032", f"thresholds are one or two numbers between lower and upper. {hint}")
    return tuple(found * 2)[:2]
