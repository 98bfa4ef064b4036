"""Find the budget of an aggregate form's rows in the plan of its statement."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpsql.contract.plan import Placement
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, paths, refusals
from dpsql.engines.duckdb.lineage.closure import Closure
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.labels import EnumLabels
from dpsql.engines.duckdb.lineage.paths import refuse_other_columns
from dpsql.engines.duckdb.lineage.placing import refuse_unseen
from dpsql.engines.duckdb.lineage.stability import Reading, is_shown
from dpsql.engines.duckdb.lineage.texts import Catalogued
from dpsql.errors import ParameterError, SourceError

STATEMENT = "the statement"
# The catalog functions that the plan check reads, see `releases.catalogued_sql`.
CATALOGUED = frozenset(("duckdb_views", "duckdb_functions", "duckdb_types", "duckdb_tables", "duckdb_constraints"))


@dataclass(frozen=True)
class Around:
    """The statement of an aggregate form: its bound plan, as DuckDB serializes it, and its text."""

    plan: str
    text: str


def place_aggregate(
    around: Around,
    texts: Catalogued,
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    dataset: str,
    governed: bool,
    has_release: bool,
) -> Placement:
    """Decide whether an aggregate form reads rows of the budget `dataset`, which the caller names.

    If nothing is protected (not `governed`), only the statement's shape counts. `has_release`: it has a name.
    """
    node = paths.read_plan(around.plan)
    claim = paths.budget_of(dataset, declarations, catalog)
    if node is None or not is_shown(node, CATALOGUED):  # EXECUTE, a frame, a file
        _refuse_unseen(declarations, claim, governed=governed, has_release=has_release)
        if governed:
            _refuse_beside(around, texts, declarations, catalog)
        return Placement(declarations.counter, (claim or dataset,), claimed=governed, governed=governed)
    aggregates = _own_aggregates(node, has_release=has_release)
    labels = EnumLabels(declarations, catalog)
    content = labels.contents(*(aggregate for aggregate, _ in aggregates))
    placed = partial(Placement, declarations.counter, **content, seen=True, governed=governed)
    if not governed:
        return placed(charged=(dataset,))
    _read_text(around, texts)
    reading = Reading(declarations, replace(catalog, unique=texts.unique))
    for aggregate, rows in aggregates:
        if bound.listed(aggregate, "groups"):
            raise SourceError(
                "S023",
                "GROUP BY tells which groups there are, and charges each of them. Aggregate one group at a time, with "
                "a WHERE over a public list of groups.",
            )
        try:
            below = reading.walk(rows, {}, node)
        except bound.UnreadableError:
            if claim is None:
                raise refusals.cannot_see(STATEMENT, "a file or a frame") from None
            refusals.refuse_claim(STATEMENT, claim, declarations)
            _refuse_beside(around, texts, declarations, catalog)
            return placed(charged=(claim,), claimed=True)
        if reading.undeclared:
            raise refusals.undeclared(next(iter(reading.undeclared)), declarations)
        labels.refuse_order(STATEMENT, rows)
        refuse_other_columns(rows, declarations, catalog)
        refusals.refuse_functions(STATEMENT, {*bound.functions(rows), *bound.functions(aggregate["expressions"])})
        charged = tuple(dict.fromkeys((*below.scans, *reading.scanned)))
        if (charged and set(charged) != {claim}) or (not charged and claim is not None):
            raise refusals.other_dataset(STATEMENT, dataset, charged)
        if below.row_level and not below.by_unit:
            raise SourceError(
                "S012",
                f"one row of {charged[0]!r} may change many rows of what is aggregated ({below.row_level}). "
                "Aggregate the table, or a query that only filters and computes columns.",
            )
        if charged and (below.unfixed or below.loose):
            cause = below.unfixed or "a number with several spellings"
            raise refusals.order_decides(STATEMENT, cause, below.to_order)
    return placed(charged=(claim or dataset,), tables=tuple(reading.tables), free=tuple(reading.free))


def _read_text(around: Around, texts: Catalogued) -> Closure:
    """Return the names in the statement's text; raise if the text may not contain a name.

    Only some threads of DuckDB find a Python variable, so its content is never known.
    """
    closure = Closure(STATEMENT, texts, enums='"id":"ENUM"' in around.plan)
    closure.statement(around.text)
    if closure.elsewhere:
        raise refusals.variable_read(closure.elsewhere[0])
    return closure


def _refuse_beside(around: Around, texts: Catalogued, declarations: Declarations, catalog: paths.Catalog) -> None:
    """Raise if the statement names a table with a budget next to a source without a plan."""
    closure = _read_text(around, texts)
    refuse_unseen(STATEMENT, closure, declarations, catalog, charged=(), claimed=True)


def _refuse_unseen(declarations: Declarations, claim: str | None, *, governed: bool, has_release: bool) -> None:
    """Raise unless the caller may claim a budget for a statement without a plan."""
    if has_release:
        raise ParameterError(
            "P062",
            "release cannot be given here: what the statement aggregates cannot be seen (EXECUTE, a frame or a "
            "file). Leave release out, or use the table form.",
        )
    if governed and claim is None:
        raise refusals.cannot_see(STATEMENT, "EXECUTE, a frame or a file")
    if claim is not None:
        refusals.refuse_claim(STATEMENT, claim, declarations)


def _own_aggregates(node: bound.Node, *, has_release: bool) -> list[tuple[bound.Node, bound.Node]]:
    """Return each aggregation that calls a dpsql aggregate, with its input; raise if each row would be a release."""
    aggregates = _aggregates(node)
    if not aggregates:
        raise SourceError(
            "S022",
            "an aggregate form stands in a SELECT of its own: without OVER, and in no subquery that uses columns from "
            "outside. Each row would be a release.",
        )
    if has_release and any(bound.listed(aggregate, "groups") for aggregate, _ in aggregates):
        raise ParameterError(
            "P047", "each group is a release of its own, and a name holds only one. Leave release out."
        )
    return aggregates


def _aggregates(node: bound.Node) -> list[tuple[bound.Node, bound.Node]]:
    """Return each aggregation that calls a dpsql aggregate, with its input; none if such a call is anywhere else."""
    aggregates: list[tuple[bound.Node, bound.Node]] = []
    for operator in bound.operators(node):
        own = {name: value for name, value in operator.items() if name != "children"}
        if not any(name.startswith("dpsql_aggregate_") for name in bound.functions(own)):
            continue
        below = bound.children(operator)
        while len(below) >= 1 and (bound.kind(below[0]) == "FILTER" or _beside_admit(below[0])):
            below = bound.children(below[0])
        if not below or bound.kind(below[0]) != "AGGREGATE_AND_GROUP_BY":
            return []
        rows = bound.children(below[0])[0]
        while _beside_admit(rows):
            rows = bound.children(rows)[0]
        aggregates.append((below[0], rows))
    return aggregates


def _beside_admit(node: bound.Node) -> bool:
    """Whether an operator only joins the checked plan to the rows."""
    below = bound.children(node)
    return (
        bound.kind(node) == "CROSS_PRODUCT"
        and len(below) == 2
        and "dpsql_admit" in bound.functions(below[1])
        and {bound.function_of(scan) for scan in bound.scans(below[1])} <= CATALOGUED
    )
