"""The integers of calls with groups never move further than their noise is wide, and a limit that is off by one shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from calls import CALLS, GROUPED, Call
from neighbours import judge, judged
from seam import Watch, watching

from dpsql.functions.grouped.counts import ColumnPlan
from dpsql.functions.registry import FUNCTIONS
from support.broken import limits as broken
from support.broken.planting import Fault, planted
from support.cases import cases

CALLED = tuple(enumerate((*CALLS, *GROUPED)))
BY_NAME = {call.name: (number, call) for number, call in CALLED}
# Pairs of tables whose units have equal rows, and rows of all kinds.
PAIRS = (0, 1, 3)


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


@pytest.mark.long
@cases("part", range(6))
def test_a_sample_of_groups(part: int, watch: Watch) -> None:
    judge("table", "wide", part, [*enumerate(GROUPED, len(CALLS))][part::6], watch, Path())


@pytest.mark.long
@cases("number", range(12))
def test_all_groups(number: int, watch: Watch) -> None:
    judge("table", "wide", number, [*enumerate(GROUPED, len(CALLS))], watch, Path())


@pytest.mark.long
@cases("function", FUNCTIONS)
def test_every_charged_function_is_judged(function: str, watch: Watch) -> None:
    """Each form of a function, with groups and without, has a call of which integers move; no call is refused."""
    forms = {False, True} if issubclass(FUNCTIONS[function].plan, ColumnPlan) else {False}
    calls = [(number, call) for number, call in CALLED if call.function == function]
    for (number, call), pair in product(calls, PAIRS):
        moved = []
        for _, _, (what, by, most) in judged("table", call.table, pair, [(number, call)], watch, Path()):
            assert "whether it answers" not in what, call.name
            assert by <= most, (call.name, what)
            moved.append(by)
        if any(moved):
            forms.discard(_has_groups(call))
        if not forms:
            return
    pytest.fail(f"no call of {function} moves any integers that are judged: {forms}", pytrace=False)


def _has_groups(call: Call) -> bool:
    """Whether a call of a function of one column, which reads rows in two ways, has groups."""
    return issubclass(FUNCTIONS[call.function].plan, ColumnPlan) and "by := " in call.sql


@pytest.mark.long
@cases("part", range(8))
def test_every_call_answers_and_is_judged_pass_by_pass(part: int, watch: Watch) -> None:
    """A call that is refused, or a pass of which nothing is looked at, would be a hole in this net."""
    for number, call in CALLED[part::8]:
        if not call.function.startswith("dp_"):
            continue
        claimed = [claim for *_, claim in judged("table", call.table, part, [(number, call)], watch, Path())]
        assert not [what for what, *_ in claimed if "whether it answers" in what], call.name
        assert [what for what, *_ in claimed if what.startswith("pass 1:")], call.name


@pytest.mark.long
@cases(
    ("fault", "name"),
    [
        (broken.ONE_ROW_MORE, "dp_avg of one group"),
        (broken.ONE_ROW_MORE, "dp_quantile of all limits"),
        (broken.ONE_ROW_MORE, "dp_bounds of groups per unit"),
        (broken.ONE_ROW_MORE, "dp_histogram with a tree"),
        (broken.ONE_GROUP_MORE, "dp_count of few groups"),
        (broken.ONE_GROUP_MORE, "dp_histogram of all limits"),
        (broken.ONE_ROW_MORE, "dp_count of few rows in a group"),
        (broken.ONE_ROW_MORE, "dp_crosstab of few cells"),
        (broken.TWICE_THE_BOUND, "dp_sum plain"),
        (broken.TWICE_THE_BOUND, "dp_sum of sums of units"),
        (broken.TWICE_THE_BOUND, "dp_variance with Gaussian noise"),
        (broken.TWICE_THE_BOUND, "dp_stddev of few groups"),
        (broken.NARROW_NOISE, "dp_count plain"),
        (broken.POOLED_MARGINS, "dp_crosstab of all limits"),
        (broken.CURVE_OF_ROWS, "dp_histogram with wavelets by groups"),
        (broken.SQUARES_OF_ROWS, "dp_count of few rows in a group"),
        (broken.SQUARES_OF_ROWS, "dp_avg of private groups"),
        (broken.ONE_ROW_MORE_IN_ALL, "dp_synthetic per unit"),
    ],
    ids=lambda value: value.what[:45] if isinstance(value, Fault) else None,
)
def test_a_fault_is_caught(fault: Fault, name: str, watch: Watch) -> None:
    number, call = BY_NAME[name]
    with planted(*fault.patches):
        found = (
            what
            for pair in (4, 3, 1, 0, 2, 5)
            for *_, (what, by, most) in judged("table", "wide", pair, [(number, call)], watch, Path())
            if by > most
        )
        assert next(found, None), f"{fault.what} is not noticed in {call.name}"
