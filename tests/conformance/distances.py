"""How far a statistic moved between neighbouring tables, beside the sensitivity that its noise is calibrated to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from calls import Call
from group_distances import group_claims
from seam import Pass, Seen

from dpsql.contract.plan import Plan
from dpsql.contract.relation import relation_of
from dpsql.functions.auc import AucPlan
from dpsql.functions.best_subset import BestSubsetPlan
from dpsql.functions.covariance import MomentsPlan
from dpsql.functions.feature_counts import FeatureCountsPlan
from dpsql.functions.grouped.bounds import BoundsPlan
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.grouped.quantile import QuantilePlan
from dpsql.functions.regression_metrics import MetricsPlan
from dpsql.functions.roc import ScorePlan
from dpsql.functions.sis import SisPlan
from dpsql.functions.synthetic import SyntheticPlan
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics import auc, coded_columns, counts, feature_counts, feature_moments, xty

Row = dict[str, Any]
# What moved, by how much, and the most that it may.
Claim = tuple[str, Any, Any]
State = tuple[tuple[int, ...], ...]
_ONE = FIXED_POINT_ONE**2


def claims(call: Call, relation: str, seen: Sequence[Seen], tables: Sequence[Sequence[Row]]) -> Iterator[Claim]:
    """Yield every claim that can be judged from what the calls on two neighbouring tables came to."""
    before, after = seen
    for one in seen:
        if one.error and not one.error.startswith("DPSQL-"):
            yield f"an error that is not ours, {one.error}", 1, 0
    if before.error or after.error:
        yield f"whether it answers ({before.error}, {after.error})", int(before.error != after.error), 0
    elif before.rows is not None:
        yield from _exact(call, before.rows, after.rows or [], tables)
    else:
        assert len(before.passes) == len(after.passes)
        for number, (first, second) in enumerate(zip(before.passes, after.passes, strict=True), 1):
            for what, moved, bound in _pass(after.call.plan, relation, first, second):
                yield f"pass {number}: {what}", moved, bound
            if first.given is not None and second.given is not None:
                keys = [None if len(one.passes) == number else one.passes[number].numbers for one in seen]
                for what, moved, bound in group_claims(relation, first, second, keys):
                    yield f"pass {number}: {what}", moved, bound
            if first.named is not None and second.named is not None and first.named.keys() != second.named.keys():
                break  # what follows is judged for one vocabulary, which is drawn


def _exact(call: Call, before: Sequence[Any], after: Sequence[Any], tables: Sequence[Sequence[Row]]) -> Iterator[Claim]:
    """Judge the rows of an exact function; they are about rows added or removed."""
    unit = call.rows_per_unit
    if call.function == "exact_xty":
        sums = [[value for row in rows for value in row if isinstance(value, int)] for rows in (before, after)]
        yield "a sum of products", _largest(map(abs, sums[0]), map(abs, sums[1])), unit * _ONE
    elif call.function == "exact_gram_sql":
        entries = [Counter({row[:2]: int(row[2]) for row in rows}) for rows in (before, after)]
        moved = {key: entries[1][key] - entries[0][key] for key in entries[0] | entries[1]}
        square = sum((1 if i == j else 2) * value**2 for (i, j), value in moved.items())
        yield "the norm of all products", math.isqrt(square), 4 * _ONE
    else:
        taus = []
        for rows, table in zip((before, after), tables, strict=True):
            sizes = _sizes(call, table)
            pairs = [row[-2:] if call.function == "exact_kendall_sql" else row[:0:-1] for row in rows]
            taus.append([abs(Fraction(int(yes - no), max(1, sizes - 1))) for yes, no in pairs])
        yield "a scaled tau", _largest(*taus), Fraction(3, 2)


def _sizes(call: Call, table: Sequence[Row]) -> int:
    """Return how many rows the statistic of a Kendall correlation counts."""
    if call.table == "long":
        return len({row["doc"] for row in table})
    if call.function == "exact_kendall_sql":
        columns = ("n", "b") if "'n'" in call.sql else ("s", "z")
        return sum(all(row[c] is not None and not math.isnan(row[c]) for c in columns) for row in table)
    return len(table)


def _largest(before: Any, after: Any) -> Any:
    return max((abs(b - a) for a, b in zip(before, after, strict=True)), default=0)


def _pass(plan: Plan, relation: str, before: Pass, after: Pass) -> Iterator[Claim]:
    if plan.passes[0].most_rows is not None:
        relation = "replace"  # of rows that are limited in number, one more takes the place of another
    unit, steps = plan.max_rows_per_unit, 2 if relation == "replace" else 1
    if before.named is not None and after.named is not None:
        names = {*before.named, *after.named}
        moved = sum(abs(after.named.get(name, 0) - before.named.get(name, 0)) for name in names)
        if isinstance(plan, GroupedPlan):
            yield "keys of groups", moved, plan.contribution.changed_groups
            return
        assert isinstance(plan, FeatureCountsPlan)
        yield "rows by name", moved, steps * unit * plan.max_features_per_row
        return
    if before.rows.size or after.rows.size:
        yield from _rows(plan, before.rows, after.rows, unit, steps)
    if isinstance(plan, SyntheticPlan) and before.state is not None and after.state is not None:
        yield from _columns(plan, before.state, after.state, relation)
    if before.integers is None or after.integers is None or len(before.integers) != len(after.integers):
        return  # rows alone, or features that a draw chose
    moves = [b - a for a, b in zip(before.integers, after.integers, strict=True)]
    total, squares = sum(map(abs, moves)), sum(move * move for move in moves)
    if isinstance(plan, SisPlan) and plan.center == "target" and len(moves) == 2:
        yield "the target's sums", total, xty.target_sums_sensitivity(relation, unit)
    elif isinstance(plan, SisPlan):
        sizes = [abs(b) - abs(a) for a, b in zip(before.integers, after.integers, strict=True)]
        yield "a score", max(map(abs, sizes)), xty.component_sensitivity(relation, unit)
        yield "two scores", max(sizes) - min(sizes), xty.utility_range(relation, unit)
    elif isinstance(plan, MetricsPlan):
        bounds = [scale * plan.epsilon * share for scale, share in zip(plan.scales, plan.shares, strict=True)]
        for move, bound in zip(moves, bounds, strict=True):
            yield "a sum of errors", abs(move), bound
    elif isinstance(plan, MomentsPlan):
        features = next(p for p in range(1, len(moves)) if feature_moments.moments_length(p) == len(moves))
        given = (relation, features, unit)
        yield "moments", total, feature_moments.UNIT * feature_moments.l1_sensitivity(*given)
        yield "squared moments", squares, feature_moments.UNIT**2 * feature_moments.squared_l2_sensitivity(*given)
    elif isinstance(plan, AucPlan) and plan.grid is None:
        between = relation_of(relation, unit)
        scaled = [Fraction(part[0], max(1, part[1] + part[2] - 1)) for part in (before.integers, after.integers)]
        yield "the scaled pairs", abs(scaled[1] - scaled[0]), auc.concordance_sensitivity(between)
        yield "rows of classes", sum(map(abs, moves[1:])), auc.class_sensitivity(between)
        yield "squared rows", sum(move**2 for move in moves[1:]), auc.squared_class_sensitivity(between)
    elif isinstance(plan, (ScorePlan, QuantilePlan, BoundsPlan)):
        yield "counts", total, counts.l1_sensitivity(relation, max_rows_per_unit=unit)
        yield "squared counts", squares, counts.squared_l2_sensitivity(relation, max_rows_per_unit=unit)
    elif isinstance(plan, FeatureCountsPlan):
        width = max(1, len(moves) // 2 - 1)
        norms = feature_counts.released_norms(
            "counts_and_labels",
            relation,
            max_features_per_row=plan.max_features_per_row,
            n_features=width,
            max_rows_per_unit=unit,
        )
        one = plan.denominator(width)
        moves = [*moves[:-2], *(one * move for move in moves[-2:])]  # class sizes are in rows
        yield "counts", sum(map(abs, moves)), norms.l1 * one
        yield "squared counts", sum(move * move for move in moves), norms.squared_l2 * one**2
    elif isinstance(plan, BestSubsetPlan):
        yield "a product of columns", max(map(abs, moves)), steps * unit * _ONE


def _columns(plan: SyntheticPlan, before: State, after: State, relation: str) -> Iterator[Claim]:
    """Judge the counts of every column's cells, and the number of rows, which come before any text."""
    if len(before) == len(coded_columns.ColumnCounts(()).state().columns) and len(before[0]) == len(after[0]):
        # The grains of columns of numbers have noise of their own.
        for number, (name, more) in enumerate((("columns", 1), ("grains", 0))):
            moves = [b - a for a, b in zip(before[number], after[number], strict=True)]
            most = counts.squared_l2_sensitivity(
                relation, histograms=len(plan.columns) + more, max_rows_per_unit=plan.max_rows_per_unit
            )
            yield f"squared counts of {name}", sum(move * move for move in moves), most


def _rows(plan: Any, before: Any, after: Any, unit: int, steps: int) -> Iterator[Claim]:
    """Judge rows that come to a collector as they are: how many are others, and in how many blocks."""
    bags = [Counter(map(tuple, rows.tolist())) for rows in (before, after)]
    moved = (bags[0] - bags[1]) + (bags[1] - bags[0])
    yield "rows", moved.total(), steps * unit
    blocks = getattr(plan, "blocks", None)
    if blocks is not None and any(row[-1] for row in moved):
        keys = np.array([row[-1] for row in moved], dtype=np.int64).view(np.uint64)
        yield "blocks", len(np.unique(keys % np.uint64(blocks))), steps
