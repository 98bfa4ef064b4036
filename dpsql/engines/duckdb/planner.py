"""Turn a call's public arguments into its plan: add the owner's declarations, and place the source on budgets.

The module also defines a private call that was planned but not run, for explaining a statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from dpsql.contract.feature_columns import check_named
from dpsql.contract.names import dataset_name
from dpsql.contract.parameters import fold, show, text
from dpsql.contract.periods import DATED, Dated
from dpsql.contract.placement import Placement
from dpsql.contract.plan import Plan
from dpsql.contract.query.condition import check
from dpsql.engines.duckdb.keys import ONE
from dpsql.engines.duckdb.lineage import paths
from dpsql.engines.duckdb.lineage.refusals import undated
from dpsql.engines.duckdb.lineage.sources import Seen, Sources, columns_of_source
from dpsql.engines.duckdb.past_releases import PastReleases
from dpsql.engines.duckdb.typed_expression import TYPES, ColumnTypes, column_types, judged, types_query
from dpsql.errors import BudgetError, InternalError, ParameterError, SourceError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import function_of
from dpsql.ledger.ledger import Ledger
from dpsql.progress import listen


@dataclass(frozen=True)
class Planned:
    """A private call of a statement that was planned but not run.

    Attributes
    ----------
    function : str
    plan : Plan
    aggregate : bool
        Whether it is the aggregate form.
    replays : bool
        Whether it would return a stored release.
    refusal : str
        Why dpsql would refuse it now; ``''`` if it would not.
    lines : tuple of str
        The explanation of a query, line by line; its statement is last. Empty for other calls.
    """

    function: str
    plan: Plan
    aggregate: bool
    replays: bool
    refusal: str
    lines: tuple[str, ...] = ()


class EngineRegistry(Protocol):
    """The engines of a session, which knows only the budgets of their sources."""

    def place(
        self, engine: object, source: str, dataset: str | None, privacy_unit: str | None
    ) -> tuple[str, Placement]:
        """Return the name of an engine, and the budgets to charge for its source.

        Raises
        ------
        ParameterError
            P074: no engine has this name.
        SourceError, BudgetError
            The source cannot be placed.
        """


class Planner:
    """Makes plans of calls; charges nothing and reads no row.

    Parameters
    ----------
    ledger : Ledger
    sources : Sources
    engines : EngineRegistry
    past : PastReleases
        The releases whose selections calls name.
    """

    def __init__(self, ledger: Ledger, sources: Sources, engines: EngineRegistry, past: PastReleases) -> None:
        self._ledger = ledger
        self._sources = sources
        self._engines = engines
        self._past = past

    def plan(
        self,
        function: str,
        source: object,
        arguments: Mapping[str, object],
        *,
        seen: Seen | None = None,
        aggregate: bool = False,
    ) -> Plan:
        """Check a call's public arguments, after adding the owner's terms for the dataset.

        Parameters
        ----------
        function : str
        source : str
            The source's name; ``''`` in the aggregate form.
        arguments : mapping
        seen : sequence of (query, plan), optional
            Plans of the tables that the source may read, see `Sources.spellings`; missing if nothing is protected. One
            more plan shows the types of the condition's columns, see `condition_queries`.
        aggregate : bool

        Returns
        -------
        plan : Plan
            The function's own kind of plan.

        Raises
        ------
        ParameterError
            An argument is missing or not allowed.
        SourceError, BudgetError
            The source cannot be placed.
        """
        listen()
        typed = next((plan for query, plan in seen or () if query.startswith(TYPES)), None)
        seen = [pair for pair in seen or () if not pair[0].startswith(TYPES)]
        if aggregate:
            name = source if isinstance(source, str) else ""
        else:
            name = text("source", source, hint="Give the name of a table, view or registered frame.")
        governed = function_of(function).spends and (self._sources.governed_at_bind if seen else self._sources.governed)
        budget = arguments.get("dataset")
        engine = arguments.get("engine")
        if governed and aggregate and budget is None:
            raise ParameterError(
                "P013",
                "dataset is missing: this form of the call does not say whose rows it reads. Call the form that "
                f"names a table, FROM {function}('...', ...), or name the budget of the rows, dataset := '...'.",
            )
        placement = None
        if engine is not None:
            claim = None if budget is None else text("dataset", budget, hint="Give the name of the budget to charge.")
            unit = arguments.get("privacy_unit")
            engine, placement = self._engines.place(engine, name, claim, unit if isinstance(unit, str) else None)
            arguments = {**arguments, "engine": engine}
        elif not aggregate:
            placement = self._placement(function, name, arguments, seen, governed=governed)
        if placement is not None:
            budget, name = placement.charged[0], placement.source
        elif budget is None:
            budget = self._dataset_of(name)
        dataset = text("dataset", budget, hint="Give the name of the budget to charge.")
        features = arguments.get("features")
        if isinstance(features, Mapping) and set(features) == {"release"}:
            arguments = {**arguments, **self._past.chosen(dataset, features["release"], arguments)}
        terms = self._owner_terms(function, dataset, aggregate)
        if placement is not None and placement.unit is not None:
            terms["privacy_unit"] = placement.unit
            terms["max_rows_per_unit"] = placement.rows_stated(terms.get("max_rows_per_unit"))
        dated = terms.get(DATED)
        if isinstance(dated, Dated):
            if dated.tables and (placement is None or not (placement.date or placement.undated)):
                raise undated(name, dataset, [dated.text])
            if placement is not None:
                terms[DATED] = dated.of_source(placement.date, placement.dated)

        def planned(owner_terms: Mapping[str, object]) -> Plan:
            plan: Plan = function_of(function).plan.from_arguments(name, {**arguments, "dataset": dataset}, owner_terms)
            if isinstance(plan, GroupedPlan) and plan.keys_table is not None:
                plan = replace(plan, keys_table=self._sources.public_path(plan.keys_table))
                if placement is not None and placement.governed and plan.keys_table is not None:
                    listing = paths.path_of_pinned(plan.keys_table)
                    return replace(plan, placement=replace(placement, free=(*placement.free, listing)))
            if plan.condition is not None and typed is not None:
                types = _as_read(column_types(plan.condition, typed), placement)
                plan = plan if types is None else replace(plan, judged=judged(plan.condition, types, ONE))
            return replace(plan, placement=placement)

        plan = planned(terms)
        if placement is None:
            return plan
        if placement.once and plan.release is not None:
            # Earlier versions counted the owner's declared number of rows; their releases keep that name.
            policy = self._owner_terms(function, dataset, aggregate).get("max_rows_per_unit")
            earlier = planned({**terms, "max_rows_per_unit": placement.rows_per_unit or policy})
            plan = plan if self._past.replay(earlier) is None else earlier
        if governed and seen:
            self._refuse_absent(plan, seen)
        return plan

    def _refuse_absent(self, plan: Plan, seen: Seen) -> None:
        """Raise if the source lacks a column, so that DuckDB reads no row of a view before the gate refuses."""
        columns = columns_of_source(seen)
        if columns is not None and plan.placement is not None and plan.placement.joined:
            columns += [name for name in (plan.placement.unit, plan.placement.date) if name is not None]
        try:
            if columns is not None:
                check_named(plan, columns)
        except SourceError:
            if self._past.replay(plan) is None:
                raise

    def _placement(
        self, function: str, source: str, arguments: Mapping[str, object], seen: Seen | None, *, governed: bool
    ) -> Placement | None:
        """Return the placement of a source's rows; None if it is not needed and nothing is protected."""
        budget, unit = arguments.get("dataset"), arguments.get("privacy_unit")
        if not seen:
            if governed:
                raise InternalError("I006", "what the source reads was not asked for. Run the statement again.")
            return None
        if governed:
            return self._sources.place(
                source,
                seen,
                None if budget is None else text("dataset", budget, hint="Give the name of a budget."),
                unit if isinstance(unit, str) else None,
                is_named=arguments.get("release") is not None,
            )
        if not function_of(function).spends:
            return None
        if budget is None:
            return self._sources.identified(source, seen, self._dataset_of(source))
        return self._sources.identified(
            source, seen, text("dataset", budget, hint="Give the name of the budget to charge.")
        )

    def _owner_terms(self, function: str, dataset: str, aggregate: bool) -> dict[str, object]:
        """Return the owner's terms, by the names of a call's arguments."""
        policy = self._ledger.policy(dataset)
        if policy is None:
            return {}
        terms: dict[str, object] = {"neighbours": policy.neighbours, **(policy.bounds or {})}
        if not aggregate:
            terms |= {"privacy_unit": policy.privacy_unit, "max_rows_per_unit": policy.max_rows_per_unit}
            return terms | {DATED: policy.dated if function_of(function).spends else None}
        if policy.privacy_unit is not None:
            raise BudgetError(
                "B011",
                f"dataset {show(dataset)} protects all rows of one {policy.privacy_unit}, and the aggregate form "
                f"protects single rows. Use the table form: FROM {function}('{dataset}', ...).",
            )
        return terms

    def _dataset_of(self, source: str) -> str:
        """Return the budget of a source: its plain name, unless the owner protected this spelling."""
        plain = dataset_name(source)
        return source if plain != source and source and self._ledger.policy(source) is not None else plain


def _as_read(types: ColumnTypes | None, placement: Placement | None) -> ColumnTypes | None:
    """Return column types as a call reads them: text instead of ENUMs with private labels."""
    if types is None or placement is None or not placement.governed:
        return types
    texts = {fold(name) for name, _ in placement.texts}
    return tuple(
        (name, kind.without_labels if fold(name) in texts or not placement.seen else kind) for name, kind in types
    )


def condition_queries(source: object, condition: object) -> list[str]:
    """Return the queries whose plans show the types of the condition's columns, if there is a condition.

    `Planner.plan` reports errors in either argument.
    """
    try:
        return [types_query(source, check(condition))] if isinstance(source, str) and condition is not None else []
    except ParameterError:
        return []
