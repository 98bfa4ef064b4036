"""Every function that reads a table: its plan and its call, under its SQL name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from dpsql.call import Call
from dpsql.plan import Plan
from dpsql.results import RANKED, Shape
from dpsql.selectors.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.selectors.kendall import KendallCall, KendallPlan
from dpsql.selectors.sis import SisCall, SisPlan
from dpsql.selectors.two_stage import TwoStageCall, TwoStagePlan


@dataclass(frozen=True)
class Function:
    """What stands behind one SQL function.

    Attributes
    ----------
    plan : type
        Its public arguments.
    call : type
        Its statistic and its draw.
    shape : Shape
        The rows that it returns.
    """

    plan: type[Plan]
    call: type[Call]
    shape: Shape


FUNCTIONS: dict[str, Function] = {
    "dp_sis": Function(SisPlan, SisCall, RANKED),
    "dp_kendall": Function(KendallPlan, KendallCall, RANKED),
    "dp_two_stage": Function(TwoStagePlan, TwoStageCall, RANKED),
    "dp_best_subset": Function(BestSubsetPlan, BestSubsetCall, RANKED),
}
# The exact statistic of a function, by a function of its own that is not private.
EXACT: dict[str, str] = {"exact_xty": "dp_sis", "exact_discordant": "dp_kendall"}


def function_of(name: str) -> Function:
    """Return what stands behind a SQL function, exact forms included."""
    return FUNCTIONS[EXACT.get(name, name)]


@lru_cache(maxsize=256)
def plan_from_json(text: str) -> Plan:
    """Read back what `Plan.to_json` wrote."""
    record = json.loads(text)
    plan: Plan = FUNCTIONS[record.pop("function")].plan.from_record(record)
    return plan
