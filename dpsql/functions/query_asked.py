"""What a core of a query asks of which columns, and which bounds these have."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.contract.query.split import QueryAggregate, QueryCore
from dpsql.statistics.aggregates import AVG, COUNT, STDDEV, SUM, VARIANCE

# The column of a core in which every row has a value.
ALL = "dpsql_all"
# What is drawn for an aggregate of a column.
VALUED = {
    "sum": SUM,
    "avg": AVG,
    "var_samp": VARIANCE,
    "var_pop": VARIANCE,
    "stddev_samp": STDDEV,
    "stddev_pop": STDDEV,
    "values": COUNT,
}


@dataclass(frozen=True)
class ColumnPair:
    """A pair of columns; bounds are None where they are drawn."""

    first: str
    second: str
    bounds: tuple[tuple[float, float] | None, tuple[float, float] | None]


def counts_disjoint(core: QueryCore) -> bool:
    """Return whether a core's vector is counts of which a row enters one at most, and has public keys of its own."""
    return core.disjoint and not core.private_keys and core.margin_of is None


def aggregate_of(core: QueryCore, one: QueryAggregate) -> str:
    """Return what is drawn for an aggregate of a vector: a count of disjoint conditions is that of its rows."""
    return COUNT if one.kind == "rows" or counts_disjoint(core) else VALUED[one.kind]


def vectors_of(core: QueryCore) -> list[dict[str, list[str]]]:
    """Return the vector of a core, as the aggregates by target; nothing where none is asked for."""
    wanted: dict[str, list[str]] = {}
    for one in core.aggregates:
        if one.kind != "rows" and one.kind not in VALUED:
            continue
        names = wanted.setdefault(ALL if one.kind == "rows" else str(one.column), [])
        name = aggregate_of(core, one)
        if name not in names:
            names.append(name)
    return [wanted] if wanted else []


def public_bounds_of(core: QueryCore) -> dict[str, tuple[float, float]]:
    """Return the public bounds of columns."""
    found: dict[str, tuple[float, float]] = {}
    for one in core.aggregates:
        for name, lower, upper in (
            (one.column, one.lower, one.upper),
            (one.other, one.other_lower, one.other_upper),
        ):
            if name is not None and lower is not None and upper is not None:
                found[name] = float(lower), float(upper)
    return found


def unbounded_of(core: QueryCore, *, summed: bool) -> list[str]:
    """Return the columns whose bounds are drawn, each once; `summed` says whether sums are drawn with this core."""
    bounds, found = public_bounds_of(core), dict[str, None]()
    for one in core.aggregates:
        is_sum = summed and one.kind in VALUED and aggregate_of(core, one) != COUNT
        if is_sum or (one.kind == "quantile" and core.keys) or one.other is not None:
            found |= dict.fromkeys(name for name in (one.column, one.other) if name is not None and name not in bounds)
    return list(found)


def quantiles_of(core: QueryCore) -> dict[str, list[Fraction]]:
    """Return the quantiles of each column, ascending."""
    found: dict[str, set[Fraction]] = {}
    for one in core.aggregates:
        if one.kind == "quantile" and one.quantile is not None:
            found.setdefault(str(one.column), set()).add(one.quantile)
    return {column: sorted(asked) for column, asked in found.items()}


def pairs_of(core: QueryCore) -> list[ColumnPair]:
    """Return the pairs of columns whose moments are asked for, each once, in the order in which it was met."""
    found: dict[tuple[str, str], ColumnPair] = {}
    bounds = public_bounds_of(core)
    for one in core.aggregates:
        if one.other is None:
            continue
        pair = str(one.column), one.other
        if pair not in found and pair[::-1] not in found:
            found[pair] = ColumnPair(*pair, (bounds.get(pair[0]), bounds.get(pair[1])))
    return list(found.values())
