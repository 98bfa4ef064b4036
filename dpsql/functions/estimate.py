"""Estimates of a call's cost and noise, computed from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from dpsql.contract.arguments import Argument, Signature
from dpsql.contract.layout import MOST_FEATURES
from dpsql.contract.parameters import choice, list_items, positive_integer
from dpsql.contract.plan import MOST_ROWS, Plan, Quantity
from dpsql.errors import ParameterError
from dpsql.functions.query import SQL
from dpsql.functions.query_expected import Expected
from dpsql.functions.registry import FUNCTIONS, QUERY, function_of

# The arguments that dp_estimate shares with other functions, in the order of the SQL macro.
_ORDER = (
    "n_features", "k", "epsilon", "delta", "n_rows", "neighbours", "mechanism", "gamma", "center", "center_share",
    "split", "blocks", "rows_per_block", "count_share", "range_share", "radius", "intercept", "method", "selector",
    "selection_share", "selection_blocks", "lower", "upper", "target_lower", "target_upper", "target_levels",
    "row_norm", "rounds", "bounds_share", "scale_share", "quantiles", "cells", "interval_share", "error_bound", "score",
    "threshold", "max_features_per_row", "n_max", "cutoff", "false_positives", "clusters", "vocabulary",
    "vocabulary_share",
    "regularization", "thresholds", "n_thresholds", "threshold_share", "curve", "aggregates", "keys",
    "max_groups_per_unit", "max_rows_per_unit_group", "unit_value", "noise", "ddof", "confidence",
    "max_rows_per_unit", "left_out_share", "bins", "n_bins", "null_bin", "margins", "verdict_share", "verdict",
    "standardize", "moments_share", "of", "loss", "sampling", "sql", "during",
)  # fmt: skip
# Arguments of the estimate of dp_query only.
_OF_QUERY = ("sql", "during")
_ROWS_NEEDED, _EPSILON_NEEDED = "rows_needed", "epsilon_needed"
# The search for epsilon: its range, the factor of a step, and the final precision of a thousandth.
_LEAST_EPSILON, _MOST_EPSILON, _STEP, _FINE = 1e-9, 1e6, 8.0, 1.001
_PER_UNIT = ("max_rows_per_unit", "max_groups_per_unit", "max_rows_per_unit_group")


def _estimated(name: str) -> Argument:
    """Return an argument of dp_estimate, documented as in the functions that take it."""
    if name == "n_rows":
        return Argument(
            name, "A public guess of the number of rows, up to 1e12, to which noise is compared.", kind="Integer"
        )
    if name in _OF_QUERY:
        template = SQL if name == "sql" else function_of(QUERY).plan.arguments[name]
        return Argument(name, f"For dp_query alone. {template.doc}", kind=template.annotation)
    if name == "n_features":
        return Argument(name, "Number of features, from 1 to 1000000; not for functions of one column.", kind="Integer")
    takers = [function for function, entry in FUNCTIONS.items() if name in entry.plan.arguments]
    variants = [FUNCTIONS[taker].plan.arguments[name] for taker in takers]
    docs = {argument.doc for argument in variants}
    kinds = " | ".join(dict.fromkeys(argument.annotation for argument in variants))
    return Argument(name, docs.pop() if len(docs) == 1 else f"As of {', '.join(takers)}.", kind=kinds)


ESTIMATE = Signature(*map(_estimated, _ORDER))


def query_to_estimate(arguments: Mapping[str, object]) -> tuple[object, dict[str, object]]:
    """Return the statement and the arguments of a query to estimate.

    Raises
    ------
    ParameterError
        P016: dp_query has no such argument.
    """
    settings = {name: value for name, value in arguments.items() if value is not None}
    sql = settings.pop(SQL.name, None)
    for name in settings:
        if name not in function_of(QUERY).plan.arguments:
            raise ParameterError("P016", f"{QUERY} has no argument {name}. Leave it out.")
    return sql, settings


def of_query(lines: Iterable[Expected]) -> list[dict[str, str | float | None]]:
    """Return the expected lines of a query in the columns of dp_estimate; `quantity` names the column."""
    return [
        {
            "quantity": line.quantity if line.column is None else f"{line.quantity} of {line.column}",
            "value": line.value,
            "meaning": line.meaning,
        }
        for line in lines
    ]


def _grouped_by(function: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the group columns of a call as its argument `by`; a placeholder if only keys or limits imply groups."""
    keys = arguments.get("keys")
    if "by" not in FUNCTIONS[function].plan.arguments:
        return {}
    if isinstance(keys, Mapping) and keys:
        return {"by": list(keys)}
    return {"by": ["key"]} if any(arguments.get(name) is not None for name in ("keys", *_PER_UNIT[1:])) else {}


def _epsilon_needed(name: str, planned: Callable[..., Plan], n_features: int, rows: int) -> list[Quantity]:
    """Return the least epsilon for which `rows` rows satisfy a line of `rows_needed`, by bisection on epsilon.

    Parameters
    ----------
    name : str
        Name of the line.
    planned : callable
        Returns the plan of the call with another epsilon.
    n_features, rows : int

    Returns
    -------
    lines : list of tuple
        Empty if no epsilon suffices, or if all do.
    """

    def enough(epsilon: float) -> bool:
        try:
            return planned(epsilon=Fraction(epsilon).limit_denominator(10**12)).has_enough_rows(name, n_features, rows)
        except ParameterError:  # epsilon is too small
            return False

    low = high = float(planned().epsilon)
    while enough(low):
        if low < _LEAST_EPSILON:
            return []
        low, high = low / _STEP, low
    while not enough(high):
        if high > _MOST_EPSILON:
            return []
        low, high = high, high * _STEP
    while high / low > _FINE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    # To four digits, rounded up.
    threshold = float(f"{high * 1.0005:.4g}")
    meaning = f"epsilon from which {rows:,} rows are as many as {name}, all else alike"
    return [(name.replace(_ROWS_NEEDED, _EPSILON_NEEDED), threshold, meaning)]


def estimate(
    function: object, n_features: object = None, n_rows: object = None, **arguments: object
) -> list[dict[str, str | float]]:
    """Return the cost and the noise of a call.

    Parameters
    ----------
    function : str
        Name of a function that spends budget, such as ``'dp_sis'``.
    n_features : int
        Number of features, from 1 to `MOST_FEATURES`; not for functions of one column.
    n_rows : int, optional
        A public guess of the number of rows, at most `MOST_ROWS`, to compare the noise with.
    **arguments
        Arguments of that function, except those that do not affect its noise.

    Returns
    -------
    rows : list of dict
        ``quantity``, ``value``, ``meaning``.
    """
    name = choice("function", function, tuple(FUNCTIONS))
    by = _grouped_by(name, arguments)
    kind = FUNCTIONS[name].plan
    for argument in arguments:
        if argument not in kind.arguments or argument in _OF_QUERY:
            raise ParameterError("P016", f"{name} has no argument {argument}. Leave it out.")
    if "features" not in kind.arguments and n_features is None:
        n_features = 1
    count = positive_integer("n_features", n_features, hint="Give the number of features.", most=MOST_FEATURES)
    rows = None
    if n_rows is not None:
        rows = positive_integer("n_rows", n_rows, hint="Give a public number of rows.", most=MOST_ROWS)

    defaults = kind.stand_ins(arguments | by)
    if any(arguments.get(limit) is not None for limit in _PER_UNIT):
        defaults["privacy_unit"] = "unit"
    elif arguments.get("blocks") is not None:
        defaults["row_id"] = "id"
    if "n_features" in kind.arguments:
        defaults["n_features"] = count
    defaults |= by
    if list_items(arguments.get("bins")) is not None:  # edges; a number needs ends
        defaults |= {"lower": None, "upper": None}

    def planned(**more: object) -> Plan:
        # A row id with one column of features means the long layout; an array of `count` features is equivalent.
        candidate = kind.from_arguments("source", {**defaults, **arguments, **more})
        candidate.check_features(count)
        candidate.check_drawable(count)
        return candidate

    plan = planned()
    cost = plan.event.cost
    quantities: list[tuple[str, float, str]] = [
        ("epsilon", float(cost.epsilon or plan.epsilon), "privacy loss charged, basic composition")
    ]
    if cost.delta:
        quantities.append(("delta", float(cost.delta), "chance that the guarantee fails"))
    if cost.rho is not None:
        quantities.append(("rho", float(cost.rho), "the same loss under zCDP"))
    noise = plan.noise(count, rows)
    quantities += noise
    if rows is not None:
        for name, _, _ in noise:
            if name.endswith(_ROWS_NEEDED):
                quantities += _epsilon_needed(name, planned, count, rows)
    return [{"quantity": quantity, "value": value, "meaning": meaning} for quantity, value, meaning in quantities]
