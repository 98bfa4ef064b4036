"""The arguments of dp_aggregate and its thin forms that no other function has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    COLUMN_BOUNDS,
    OPTIONAL_DELTA,
    REQUIRED,
    TARGET,
    Argument,
    flag,
)
from dpsql.contract.keys import PublicKeys
from dpsql.contract.parameters import fold
from dpsql.errors import ParameterError
from dpsql.functions.grouped.drawn_bounds import are_missing
from dpsql.statistics.aggregates import AGGREGATES, AVG, COUNT, STDDEV, SUM, VARIANCE

TARGETS = replace(
    TARGET,
    doc="Name of the column to aggregate, or a list of names. Rows whose value is NULL or NaN add nothing to it.",
    statistic=False,
    kind="Names",
)
BOUNDS = tuple(
    replace(
        bound,
        doc=f"Public {side} bound of the values: one number, a list with one per target, or a struct by name. "
        "Values are clipped to it.",
        statistic=False,
        shown="drawn privately",
        stand_in=None,
    )
    for side, bound in zip(("lower", "upper"), COLUMN_BOUNDS, strict=True)
)
DELTA = replace(
    OPTIONAL_DELTA,
    doc="Chance that the guarantee fails, from 1e-300 to 0.1. Without it pure DP; with it noise may be Gaussian, and "
    "keys may be private.",
)
DISTINCT = Argument(
    "distinct_of",
    "Name of a column whose different values are counted, in place of rows: of the privacy unit, or of items, of which "
    "at most max_rows_per_unit_group of a person count in a group.",
    names_column=True,
    table_only=True,
)
GROUP_SIZES = Argument(
    "group_sizes",
    "Rows with a value in every group, where these are published: one number without by, or a list in the order of "
    "keys. Then only the sum from the middle of the bounds gets noise. A wrong number makes wrong answers, and no less "
    "privacy.",
    table_only=True,
    kind="Numbers",
)
SAMPLING = flag(
    "sampling",
    "Whether the interval of an average is about the population that the rows are from, rather than about these rows. "
    "The sum of squares that it needs comes with Laplace noise at no cost, and with Gaussian noise at 1.2 times the "
    "noise.",
    False,
)
_SIZED = {SUM, AVG}
NULLS = Argument(
    "nulls",
    "With 'middle' a row without a value counts as the middle of the bounds in an average. Then every row counts, so "
    "several targets share one count, which takes less noise.",
    shown="left out",
    check=partial(parameters.choice, "nulls", options=("middle",)),
    choices=("middle",),
)
_COUNTED = {COUNT, SUM, AVG}
# Beside averages only what has squares, too, so that no interval of a release is about something else unnoticed.
_SAMPLED = {AVG, VARIANCE, STDDEV}
_MOST_SIZES, _LARGEST_SIZE = 1 << 20, 1 << 40


def _aggregates(given: object) -> tuple[str, ...]:
    """Return the names of the aggregates."""
    hint = f"Give some of {', '.join(map(repr, AGGREGATES))}."
    listed = parameters.text_list("aggregates", [given] if isinstance(given, str) else given, hint=hint)
    names = tuple(parameters.choice("aggregates", name, AGGREGATES) for name in listed)
    parameters.refuse_duplicates("aggregates", names, fold_case=False)
    return names


WHICH = Argument(
    "aggregates",
    "What to compute of every target: some of 'count', 'sum', 'avg', 'variance' and 'stddev', from the same noise.",
    shown=REQUIRED,
    check=_aggregates,
    stand_in="count",
    kind="Names",
)


def read_sampling(given: Mapping[str, object], aggregates: Sequence[str]) -> bool | None:
    """Return True where the intervals of averages are about the population."""
    if given.get("sampling") is None or not SAMPLING.read(given):
        return None
    if AVG not in aggregates or not set(aggregates) <= _SAMPLED:
        raise ParameterError(
            "P045", "sampling is for averages, alone or with variance and stddev. Leave it out, or ask for these."
        )
    if given.get("group_sizes") is not None:
        raise ParameterError("P045", "group_sizes leave no squares to tell the sampling. Give one of both.")
    return True


def read_sizes(
    given: Mapping[str, object], aggregates: Sequence[str], own: Mapping[str, object]
) -> tuple[int, ...] | None:
    """Return the public number of rows of each group."""
    listed = given.get("group_sizes")
    if listed is None:
        return None
    if not set(aggregates) <= _SIZED:
        raise ParameterError("P045", "group_sizes is for sums and averages. Leave it out, or ask for these alone.")
    lists, rows = own["keys"], own["key_rows"]
    count = None
    if lists is not None:
        known = parameters.known(tuple, lists), None if rows is None else parameters.known(tuple, rows)
        count = PublicKeys(*known).count
    if count is None:
        raise ParameterError("P046", "group_sizes needs keys that are listed. Give keys := [...].")
    hint = "Give the public number of rows of every group, such as [120, 80]."
    items = parameters.list_items(listed, most=_MOST_SIZES)
    sizes = tuple(
        parameters.positive_integer("group_sizes", item, hint=hint, most=_LARGEST_SIZE)
        for item in ((listed,) if items is None else items)
    )
    count += bool(own["other"])
    if len(sizes) != count:
        raise ParameterError("P046", f"group_sizes has {len(sizes)} numbers for {count} groups. {hint}")
    return sizes


def read_nulls(given: Mapping[str, object], aggregates: Sequence[str]) -> str | None:
    """Return what a row without a value counts as."""
    if given.get("nulls") is None:
        return None
    if not set(aggregates) <= _COUNTED or AVG not in aggregates:
        raise ParameterError(
            "P045", "nulls := 'middle' is for averages, and for counts and sums beside them. Leave it out."
        )
    if are_missing(given):
        raise ParameterError("P046", "nulls := 'middle' needs public bounds. Give lower and upper.")
    if merges_units(given) or given.get("group_sizes") is not None or read_sampling(given, aggregates):
        raise ParameterError("P045", "unit_value := 'sum', group_sizes and sampling exclude nulls. Leave nulls out.")
    return str(NULLS.read(given))


def merges_units(given: Mapping[str, object]) -> bool:
    """Whether a unit's rows in a group are one row: its values add up, or only its presence counts."""
    distinct, unit = given.get("distinct_of"), given.get("privacy_unit")
    counts_units = isinstance(distinct, str) and isinstance(unit, str) and fold(distinct) == fold(unit)
    return counts_units or given.get("unit_value") == "sum"
