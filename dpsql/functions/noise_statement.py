"""The field `noise` of a release's receipt, from released numbers and public arguments.

==============  ==============================================================================================
key             meaning
==============  ==============================================================================================
verdict         the verdict of the call: `clear` only if every row is clear, else the first doubt (`call_verdict`)
claim           the claim of `clear` about a row
confidence      the least probability that the claim holds
resolution      largest effect of noise alone at that confidence, in `unit`; None if rows have different units
unit            unit of the resolution
rows_needed     rows (two_stage: blocks) from which some data could be clear; None if unknown
lead,           only for a selection whose set has its own verdict: the noisy lead over shuffled targets, and the
lead_std_error  standard deviation of its noise
glass_box       only for an additive model: how far each feature moves a prediction over its interval, largest first
bounds          only if aggregates or quantiles drew bounds: the released interval of each target, or None
left_out,       only if `left_out_share` paid for it: noisy numbers of the units and rows that limits left out (for a
                query: a list of them by part); and
next_step       the remedy if row limits or private bounds bias a row
==============  ==============================================================================================

The statement uses no exact row count; `rows_needed` follows from the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from statistics import NormalDist
from typing import Any, cast

import numpy as np

from dpsql.contract.covers import BIASED
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.plan import Plan
from dpsql.functions.grouped.quantile import QuantilePlan
from dpsql.functions.kendall import KendallPlan
from dpsql.functions.registry import FUNCTIONS
from dpsql.functions.sis import SisPlan
from dpsql.functions.two_stage import TwoStagePlan
from dpsql.released.aggregates import Aggregated, are_biased, estimated, left_out_statement
from dpsql.released.intervals import FAILURE, call_verdict, count_reach
from dpsql.released.model import glass_box
from dpsql.released.shapes import SET_VERDICT, VERDICT, Shape

_ROWS = "rows"
_EXCLUDES_NULL = "the interval excludes 0"
# The claim of `clear` about a row, by the name of its shape.
CLAIMS: Mapping[str, str] = {
    "aggregated": f"{_EXCLUDES_NULL}; of an average, it is at most half as wide as the bounds",
    "histogram": "the interval excludes 0: the bin holds rows",
    "crosstab": "the interval excludes 0: the cell holds rows",
    "covariance": _EXCLUDES_NULL,
    "correlation": _EXCLUDES_NULL,
    "metrics": _EXCLUDES_NULL,
    "coefficients": "the coefficient is not 0, for all features at once, to first order",
    "ranked": "the feature is selected for its score, not by noise",
    "quantiles": "the quantile is off by less than the resolution",
    "interval": "more than half of the values lie inside",
    "roc": "the rates of the two classes differ",
    "confusion": "the rates of the two classes differ",
    "area": "the interval excludes 1/2",
    "comparison": "the interval of the difference excludes 0",
    "synthetic": "at most a tenth of the rows would have to move for the counts of the pair or the values of "
    "either column to be right",
}
_SCORED_CLAIMS = {
    "dp_score_filter": "the score without noise is above the threshold, or above 0, for all features at once",
    "dp_sis": "a feature that is independent of the target has no such score, for all features at once",
    "dp_kendall": "a feature that is independent of the target has no such score, for all features at once",
}


RAISE_LIMITS = (
    "Rows beyond max_rows_per_unit, or another limit of units, fell away: more than the intervals are wide. Raise the "
    "limit, or read the numbers as those of the rows that count."
)
STATE_BOUNDS = (
    "Values beyond the bounds that were drawn are likely to move a number by more than its interval shows. State lower "
    "and upper, or read the numbers as those of clipped values."
)
_TOLD_APART = (
    "the interval is at most half as wide as the bounds; without these neither end is open, and the rank is within 5 %"
)
_LEADING = "the features together go with the target as no features do with a target that is independent of them"


def noise_statement(function: str, arguments: Mapping[str, Any], result: Any) -> dict[str, Json]:
    """Return the statement about the noise of a release.

    Parameters
    ----------
    function : str
        SQL function of the release.
    arguments : mapping
        The public arguments in the ledger.
    result : object
        The result in the ledger.
    """
    if function not in FUNCTIONS:  # errors := true reports the noise of a query
        statements: list[Json] = [left_out_statement(part, has_names=False) for part in _parts_that_tell(result)]
        nothing: dict[str, Json] = {
            "verdict": None,
            "claim": "",
            "confidence": 1 - FAILURE,
            "resolution": None,
            "unit": None,
        }
        return {**nothing, **({"left_out": statements} if statements else {})}
    shape = FUNCTIONS[function].shape
    rows = shape.entries(result)
    has_scores = shape.name == "ranked" and isinstance(result, Mapping) and result.get("level") is not None
    has_lead = shape.name == "ranked" and isinstance(result, Mapping) and result.get("lead") is not None
    judged = rows[shape.ends : len(rows) - shape.ends]
    words = (judged.field(name).unique().to_pylist() for name in (SET_VERDICT, VERDICT) if name in shape.columns)
    verdict = call_verdict(*words)
    confidence = result.get("confidence") if isinstance(result, Mapping) else None
    resolution, unit = _RESOLUTIONS.get(shape.name, _nothing)(shape, result)
    needed: float | None = None
    claim = CLAIMS[shape.name]
    plan = _stored_plan(function, arguments, result)
    if isinstance(plan, QuantilePlan):
        resolution, unit, needed = plan.ranks, _ROWS, plan.rows_needed
        claim = claim if plan.rank_part is None else _TOLD_APART
    elif isinstance(plan, (SisPlan, KendallPlan, TwoStagePlan)):
        certainty = plan.certainty(result["compared"])
        if has_lead and not isinstance(plan, TwoStagePlan):
            needed = plan.lead_rows_needed
        elif certainty is not None:
            needed = certainty.needed
            resolution, unit = (resolution, unit) if has_scores else (certainty.gap, "score")
    if shape.name == "comparison":
        needed = rows.field("rows_needed")[0].as_py()
    return {
        "verdict": verdict,
        "claim": _LEADING if has_lead else _SCORED_CLAIMS[function] if has_scores else claim,
        "confidence": 1 - FAILURE if confidence is None else confidence,
        "resolution": resolution,
        "unit": unit if resolution is not None else None,
        "rows_needed": needed,
        **({name: result[name] for name in ("lead", "lead_std_error")} if has_lead else {}),
        **_glass_box(result),
        **_drawn_bounds(result),
        **_left_out(result, verdict),
    }


def _parts_that_tell(result: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a query that measure the rows that limits left out."""
    parts = result.get("parts", ()) if isinstance(result, Mapping) else ()
    return [part for part in parts if isinstance(part, Mapping) and "left_out" in part]


def _left_out(result: Any, verdict: str | None) -> dict[str, Json]:
    """Return the measured effect of limits of privacy units, if any, and the remedy for biased rows."""
    if not isinstance(result, Mapping) or "aggregates" not in result:
        return {}
    limits: dict[str, Json] = {"left_out": left_out_statement(result)} if "left_out" in result else {}
    if verdict != BIASED:
        return limits
    series = list(estimated(cast(Aggregated, result)))
    limited = {**result, "blocks": [{**block, "drawn": []} for block in result["blocks"]]}
    clipped = {name: value for name, value in result.items() if name != "left_out"}
    causes = ((limited, RAISE_LIMITS), (clipped, STATE_BOUNDS))
    return {**limits, "next_step": " ".join(step for alone, step in causes if np.any(are_biased(alone, series)))}


def _glass_box(result: Any) -> dict[str, Json]:
    """Return the effect of each feature of an additive model."""
    return {"glass_box": glass_box(result)} if isinstance(result, Mapping) and result.get("steps") else {}


def _drawn_bounds(result: Any) -> dict[str, Json]:
    """Return the private bounds of a first pass, if any: the ones that clip values."""
    if not isinstance(result, Mapping):
        return {}
    intervals = [(block["drawn"], block["bounds"]) for block in result.get("blocks", ()) if "drawn" in block]
    if isinstance(result.get("bounds"), Mapping):
        interval = result["bounds"]["interval"]
        intervals = [(interval, interval[:2])]
    ends: list[Json] = [None if interval[0] is None else clipped for interval, clipped in intervals]
    return {"bounds": ends} if ends else {}


def _stored_plan(function: str, arguments: Mapping[str, Any], result: Any) -> Plan | None:
    """Return the plan of a release if it determines the noise; None for other releases and older selections."""
    kind = FUNCTIONS[function].plan
    has_plan = kind is QuantilePlan or (isinstance(result, Mapping) and "compared" in result)
    if not has_plan or not issubclass(kind, (QuantilePlan, SisPlan, KendallPlan, TwoStagePlan)):
        return None
    record: dict[str, Any] = {field.name: None for field in fields(kind)} | dict(arguments)
    layout = {field.name: None for field in fields(Layout)} | arguments["layout"]
    return kind.from_record({**record, "layout": layout, "judged": None, "placement": None})


_Resolution = tuple[float | None, str | None]


def _nothing(shape: Shape, result: Any) -> _Resolution:
    return None, None


def _longest(value: str, ends: tuple[str, ...], unit: str) -> Callable[[Shape, Any], _Resolution]:
    """Return the function that reads the longest distance from a number to an end of its interval."""

    def read(shape: Shape, result: Any) -> _Resolution:
        rows = shape.entries(result)
        columns = [rows.field(name).to_pylist() for name in (value, *ends)]
        ways = [
            abs(end - number)
            for number, *others in zip(*columns, strict=True)
            for end in others
            if number is not None and end is not None
        ]
        return (max(ways), unit) if ways else (None, None)

    return read


def _of_aggregates(shape: Shape, result: Any) -> _Resolution:
    """Return the resolution of one aggregate of one target; several aggregates have several units."""
    if len(result["aggregates"]) * len(result["blocks"]) > 1:
        return None, None
    unit = _ROWS if result["aggregates"] == ["count"] else "unit of the value"
    return _longest("value", ("upper",), unit)(shape, result)


def _of_curve(shape: Shape, result: Any) -> _Resolution:
    return count_reach(result["std_error"][-1], FAILURE / 4), _ROWS


def _of_coefficients(shape: Shape, result: Any) -> _Resolution:
    errors = [error for error in result["std_errors"] or () if error is not None and math.isfinite(error)]
    if result["coefficients"] is None or not errors:
        return None, None
    away = NormalDist().inv_cdf(1 - FAILURE / (2 * max(1, len(result["terms"]) - 1)))
    return away * max(errors), "unit of a coefficient"


def _of_scores(shape: Shape, result: Any) -> _Resolution:
    reach = result.get("reach") if isinstance(result, Mapping) else None
    return (None, None) if reach is None else (reach, "score")


_RESOLUTIONS: Mapping[str, Callable[[Shape, Any], _Resolution]] = {
    "aggregated": _of_aggregates,
    "histogram": _longest("count", ("count_upper",), _ROWS),
    "crosstab": _longest("count", ("upper",), _ROWS),
    "covariance": _longest("value", ("lower", "upper"), "product of the units"),
    "correlation": _longest("value", ("lower", "upper"), "correlation"),
    "comparison": _longest("difference", ("lower", "upper"), "unit of the difference"),
    "synthetic": _longest("error", ("upper",), "share of the rows"),
    "area": _longest("auc", ("lower", "upper"), "area"),
    "roc": _of_curve,
    "confusion": _of_curve,
    "coefficients": _of_coefficients,
    "ranked": _of_scores,
}
