"""What a query becomes, as text: the rows of each core, and the query over its answers (`splits.sql`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dpsql.contract.query.split import QueryAggregate, QueryCore, QueryKey, Split
from support.cases import cases
from tests.support.split_queries import hospital, split_of

TEXT = Path(__file__).with_name("splits.sql").read_text(encoding="utf-8")
BLOCKS = [block.strip() for block in TEXT.split("\n\n")[1:]]
PLAIN = re.compile(r'(?<!")"([a-z_][a-z0-9_]*)"(?!")')


def written(split: Split) -> str:
    """Return a split as a query whose WITH lists the cores; plain names lose their quotes and DuckDB's schema."""
    cores = ",\n".join(f"{core.name}({', '.join(columns(core))}) AS (\n  {core.source}\n)" for core in split.cores)
    text = f"WITH {cores}\n{split.post};" if cores else f"{split.post};"
    return PLAIN.sub(r"\1", text).replace("system.main.", "").replace("memory.main.", "")


def columns(core: QueryCore) -> Iterator[str]:
    """Yield the columns of a core's answers."""
    yield from map(key, core.keys)
    yield from map(aggregate, core.aggregates)
    if core.margin_of not in (None, core.name):
        yield f"of {core.margin_of}"
    if core.disjoint:
        yield "disjoint"
    if core.dates is not None:
        yield "from {} to {}".format(*core.dates)


def key(key: QueryKey) -> str:
    values = key.query if key.values is None else ", ".join("NULL" if one is None else one for one in key.values)
    return f"{key.column} among [{values or 'private'}]"


def aggregate(aggregate: QueryAggregate) -> str:
    of = " and ".join(column for column in (aggregate.column, aggregate.other) if column is not None)
    bounds = f" in [{aggregate.lower}, {aggregate.upper}]" if aggregate.lower is not None else ""
    quantile = "" if aggregate.quantile is None else f" {aggregate.quantile}"
    return f"{aggregate.name}: {aggregate.kind}{quantile}{' of ' * bool(of)}{of}{bounds}"


@cases("block", BLOCKS)
def test_a_query_becomes_its_text(block: str) -> None:
    """After the sentence that says why: the query, and what it becomes."""
    why, query, expected = re.fullmatch(r"((?:-- .*\n)+)(.*?;)\n(.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]
    assert why
    assert written(split_of(hospital(), query.rstrip(";"))) == expected
