"""Turn a call's public arguments into its plan, and the plan into the statement that runs.

The module also defines a private call that was planned but not run, for explaining a statement.

**The statement.** A call runs it in the caller's own session: bound, aggregate, release. A statement does not depend on
the rows, grows only with the names of the columns, and draws nothing by itself: its functions that read rows or draw
are volatile, so EXPLAIN, DESCRIBE and PREPARE do not run them. `dpsql_gate` checks types and budget before any row is
read: every scan waits for its ticket.

Ordered steps pass the ticket on: key checks, ends of passes and the release each need the ticket that the step before
returned. Rows that wait for a ticket do not suffice: if DuckDB 1.5.6 plans a source as empty, it may never request the
ticket, and a release would come before the passes end.

A statement is a chain of steps (`dpsql.engines.duckdb.steps`), each a query with a note. An explanation adds the notes
as comments, and changes nothing else.

The contents of a source enter a statement in one place, `steps.step.rows_of`, and statements use them in only three
ways:

- *Identities* (privacy units, row ids, labels) become a number or bytes (`identity`) before any join, grouping,
  partition or hash. Names of features become a string that is compared by its bytes (`exact_text`). Collations apply to
  none of them.
- *Samples* (which rows of a unit count) and *blocks* follow from `place_hash`, a 128-bit hash of identities and
  contents under a secret key. With groups, a fast hash of 64 bits replaces it, and the hashed values break ties.
- *Values* go to dpsql's own functions over Arrow, which are opaque to DuckDB. A predicate on a column is not safe:
  DuckDB may decide it at planning time from the minimum and maximum in a Parquet file, which ignore NaN. Scores are the
  one exception: the statement adds a zero to them that only the gate knows (`steps.scores`).

No step calls a macro, not even a macro of dpsql: the holder of a connection may replace any macro, and none of DuckDB's
own functions. A value that is used twice is a column with a name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from dpsql.contract.call import check_named
from dpsql.contract.grant_fields import Defaults
from dpsql.contract.keys import MOST_GROUPS, PRIVATE, key_text, values_of
from dpsql.contract.names import dataset_name
from dpsql.contract.parameters import fold, list_items, narrow, show, text
from dpsql.contract.periods import DATED, Dated
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, GROUPED, HISTOGRAM, SCORES, XTY, Placement, Plan
from dpsql.contract.query.catalogue import BEFORE_NARROW_KEYS, Catalogue, CatalogueColumn, CatalogueTable, Options
from dpsql.contract.query.condition import check, columns_of, expression
from dpsql.contract.query.nodes import Expr, Select, TableRef
from dpsql.contract.query.split import QueryCore
from dpsql.contract.query.splitter import split
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.keys import ONE
from dpsql.engines.duckdb.lineage import paths
from dpsql.engines.duckdb.lineage.queries import grouped_source, types_of
from dpsql.engines.duckdb.lineage.refusals import undated
from dpsql.engines.duckdb.lineage.sources import Seen, Sources, columns_of_source
from dpsql.engines.duckdb.releases import PastReleases, catalogued_sql, rows_sql
from dpsql.engines.duckdb.steps import rows, step
from dpsql.engines.duckdb.steps.grouped import grouped_steps
from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step
from dpsql.engines.duckdb.typed_expression import TYPES, TYPING, ColumnTypes, column_types, judged, types_query
from dpsql.engines.port import PART
from dpsql.errors import BudgetError, InternalError, ParameterError, SourceError
from dpsql.functions.grouped.plan import KEYS, GroupedPlan
from dpsql.functions.query_bounds import CoreBoundsPlan
from dpsql.functions.query_rows import RowsPlan
from dpsql.functions.registry import FUNCTIONS, function_of
from dpsql.ledger.ledger import Ledger
from dpsql.parsing import PARSER
from dpsql.progress import listen
from dpsql.rendering import call, cast, coalesce
from dpsql.rendering import text as literal


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
        granted: Defaults = (),
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
        granted : Defaults
            The defaults of the asker's grants.

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

        before = arguments
        if governed and seen and placement is not None:
            arguments, before = _with_public_keys(function, arguments, terms, placement, seen)

        def planned(owner_terms: Mapping[str, object], usual: Mapping[str, object]) -> Plan:
            values = {**arguments, "dataset": dataset, **usual}
            plan: Plan = function_of(function).plan.from_arguments(name, values, owner_terms)
            plan = replace(plan, defaults=tuple(amount for amount in usual if amount != KEYS.name))
            if isinstance(plan, GroupedPlan) and plan.keys_table is not None:
                plan = replace(plan, keys_table=self._sources.public_path(plan.keys_table))
                if placement is not None and placement.governed and plan.keys_table is not None:
                    listing = paths.path_of_pinned(plan.keys_table)
                    return replace(plan, placement=replace(placement, free=(*placement.free, listing)))
            if plan.condition is not None and typed is not None:
                types = _as_read(column_types(plan.condition, typed), placement)
                plan = plan if types is None else replace(plan, judged=judged(plan.condition, types, ONE))
            return replace(plan, placement=placement)

        usual: Mapping[str, object] = {}
        if function_of(function).spends:
            datasets = (dataset,) if placement is None else placement.charged
            amount = partial(self._sources.usual, arguments=arguments, datasets=datasets, granted=granted)
            kinds = _key_types(arguments, seen, placement)
            plan, usual = self._with_defaults(partial(planned, terms), arguments, kinds, amount)
        else:
            plan = planned(terms, usual)
        if placement is None:
            return plan
        if before != arguments and plan.release is not None:
            arguments, present = before, arguments
            try:
                earlier = planned(terms, usual)
                stored = self._past.replay(earlier) is not None
            except ParameterError:  # the name has another release
                stored = False
            plan, arguments = (earlier, before) if stored else (plan, present)
        if placement.once and plan.release is not None:
            # Earlier versions counted the owner's declared number of rows; their releases keep that name.
            policy = self._owner_terms(function, dataset, aggregate).get("max_rows_per_unit")
            earlier = planned({**terms, "max_rows_per_unit": placement.rows_per_unit or policy}, usual)
            plan = plan if self._past.replay(earlier) is None else earlier
        if governed and seen:
            self._refuse_absent(plan, seen)
        return plan

    def _with_defaults(
        self,
        planned: Callable[[Mapping[str, object]], Plan],
        arguments: Mapping[str, object],
        kinds: Mapping[str, str],
        usual: Callable[[str], Mapping[str, object]],
    ) -> tuple[Plan, Mapping[str, object]]:
        """Return the plan of a call, and the arguments that it leaves out and gets: amounts, and private keys.

        A default of delta is spent if the call is refused without one and not with it, or if its keys are missing. Both
        follow from arguments, declarations and types, and so from no row.

        Parameters
        ----------
        planned : callable
            Returns the plan with more arguments.
        arguments : mapping
        kinds : mapping
            The SQL types of the source's columns, see `_key_types`.
        usual : callable
            Returns the default of ``'epsilon'`` or ``'delta'``, by its name; empty without one.
        """
        more, refusal = usual("epsilon"), None
        try:
            plan = planned(more)
        except ParameterError as error:
            refusal = error
        else:
            if not (isinstance(plan, GroupedPlan) and plan.lacks_keys(kinds)):
                return plan, more
        chance = usual("delta")
        if refusal is None:
            if not chance and arguments.get("delta") is None:
                return plan, more
            return planned({**more, **chance, KEYS.name: PRIVATE}), {**more, **chance, KEYS.name: PRIVATE}
        with suppress(ParameterError):
            if chance:
                return planned({**more, **chance}), {**more, **chance}
        raise refusal

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


# The source in the query whose groups are those of a call.
_GROUPED_SOURCE = ("", "", "dpsql_source")


def _with_public_keys(
    function: str, arguments: Mapping[str, object], terms: Mapping[str, object], placement: Placement, seen: Seen
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return a call's arguments with the public keys that a query of the same groups has, where keys are missing.

    The splitter decides for both which values are public: from declarations, types, bounds, the condition and the
    periods. It sees no row. Declared keys, and those of a BOOLEAN or an ENUM, are left to the call unless the condition
    narrows them or it is a table of all keys. The second arguments are those of earlier versions, whose keys were not
    narrowed.
    """
    keys, by = arguments.get("keys"), arguments.get("by")
    if by is None and function == "dp_crosstab":
        by = [arguments.get("rows"), arguments.get("columns")]
    names = [by] if isinstance(by, str) else list_items(by) or []
    is_table = function == "dp_synthetic"
    if not (is_table or (names and issubclass(function_of(function).plan, GroupedPlan))):
        return arguments, arguments
    node = paths.read_plan(seen[0][1])
    if node is None or not all(isinstance(name, str) for name in names) or not isinstance(keys, Mapping | None):
        return arguments, arguments
    table = grouped_source(_GROUPED_SOURCE, node, terms, placement)
    declared = narrow(Mapping, terms.get("keys") or {})
    listed = {fold(str(name)) for name in (declared if keys is None else keys)}
    if is_table:
        labelled = (
            arguments if arguments.get("private_keys") is True else _with_labels(arguments, table, declared, listed)
        )
        return labelled, labelled
    lacking = [table.column(name) for name in names if fold(name) not in listed]
    is_usual = not lacking or (function != "dp_crosstab" and all(map(_lists_labels, lacking)))
    condition = arguments.get("condition")
    if None in lacking or (is_usual and (condition is None or keys is not None)):
        return arguments, arguments
    columns = tuple(Expr("column", names=(name,)) for name in names)
    try:
        where = None if condition is None else _with_columns(expression(check(condition)))
        if is_usual and not {fold(part.names[0]) for part in columns} & set(map(fold, columns_of(check(condition)))):
            return arguments, arguments
        items = (*columns, Expr("call", "count_star"))
        query = Select(items=items, source=TableRef(_GROUPED_SOURCE), where=where, groups=columns)
        texts = {name: tuple(map(key_text, list_items(values) or ())) for name, values in (keys or {}).items()}
        options = Options(keys=texts, during=arguments.get("during"))
        present = before = split(query, Catalogue({_GROUPED_SOURCE: table}, TYPING), options)
        if BEFORE_NARROW_KEYS in present.differs:
            options = replace(options, earlier=BEFORE_NARROW_KEYS)
            before = split(query, Catalogue({_GROUPED_SOURCE: table}, TYPING), options)
    except (ParameterError, SourceError):
        return arguments, arguments  # the call says what is wrong
    if not is_usual:
        usual = arguments if before.cores[0].private_keys else _listing(arguments, names, before.cores[0])
        if present is before or present.cores[0].private_keys:
            return usual, usual
        return _listing(arguments, names, present.cores[0], usual), usual
    is_narrow = _narrows(present.cores[0], [table.column(name) for name in names])
    return _listing(arguments, names, present.cores[0]) if is_narrow else arguments, arguments


def _narrows(core: QueryCore, columns: Sequence[CatalogueColumn | None]) -> bool:
    """Whether a condition narrows declared keys, or those of a type; not if it names a value that is none of them."""
    every = [() if column is None else column.values or values_of(column.type.sql) for column in columns]
    listed = [
        (set(key.values), set(domain or ()))
        for key, domain in zip(core.keys, every, strict=True)
        if key.values is not None
    ]
    is_shorter = len(listed) < len(columns) or any(some < domain for some, domain in listed)
    return is_shorter and all(some <= domain for some, domain in listed)


def _listing(
    arguments: Mapping[str, object],
    names: Sequence[str],
    core: QueryCore,
    otherwise: Mapping[str, object] | None = None,
) -> Mapping[str, object]:
    """Return arguments with the public keys of a core; `otherwise` if the condition excludes all values of a column."""
    public = {name: list(key.values or public_texts(key.query)) for name, key in zip(names, core.keys, strict=True)}
    if not all(public.values()):
        return arguments if otherwise is None else otherwise
    return {**arguments, "keys": {**public, **narrow(Mapping, arguments.get("keys") or {})}}


def _with_labels(
    arguments: Mapping[str, object], table: CatalogueTable, declared: Mapping[str, object], listed: Collection[str]
) -> Mapping[str, object]:
    """Return the arguments of a synthetic table with the public labels of its columns that are an ENUM."""
    chosen = arguments.get("columns")
    names = {fold(str(name)) for name in list_items(chosen) or ([] if chosen is None else [chosen])}
    labels = {
        column.name: list(column.type.values)
        for column in table.columns
        if column.type.kind == "ENUM" and fold(column.name) not in listed and (not names or fold(column.name) in names)
    }
    keys = arguments.get("keys")
    return (
        {**arguments, "keys": {**narrow(Mapping, declared if keys is None else keys), **labels}}
        if labels
        else arguments
    )


def _lists_labels(column: CatalogueColumn | None) -> bool:
    return column is not None and column.type.kind in ("BOOLEAN", "ENUM")


def _with_columns(expr: Expr) -> Expr:
    """Return a condition's expression with names in place of its columns."""
    return Expr("column", names=(expr.name,)) if expr.what == "item" else expr.mapped(_with_columns)


def public_texts(query: str | None) -> list[str | None]:
    """Return the public values that a query over no table lists, as texts."""
    listed = coalesce(call("list", "CAST(v AS VARCHAR) ORDER BY v ASC NULLS LAST"), "[]")
    rows = f"(SELECT v FROM ({query}) AS listed(v) LIMIT {MOST_GROUPS + 1})"
    texts: list[str | None] = json.loads(PARSER.value(f"SELECT CAST({call('to_json', listed)} AS VARCHAR) FROM {rows}"))
    return texts


def _key_types(arguments: Mapping[str, object], seen: Seen | None, placement: Placement | None) -> dict[str, str]:
    """Return the SQL types of a source's columns as the call reads them, folded; empty if no keys can be missing."""
    node = paths.read_plan(seen[0][1]) if seen and arguments.get("by") is not None else None
    if node is None or arguments.get(KEYS.name) is not None or placement is None:
        return {}
    texts = {fold(name) for name, _ in placement.texts}
    return {fold(name): "VARCHAR" if fold(name) in texts else kind for name, kind in types_of(node)}


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


# The position column of rows that are split into parts.
POSITION = "dpsql_position"


def release_sql(plan: Plan, function: str, *, noted: bool = False) -> str:
    """Return the statement whose one value is the release: its ledger sequence and its rows.

    Columns key0, key1, … are NULLs of the result's key types. With `noted`, each step has its note.
    """
    frame = _frame(plan, function)
    note = "-- Charge, draw and store, in one transaction of the ledger.\n" if noted else ""
    released = call(f"dpsql_release_{FUNCTIONS[function].shape.name}", frame.closing_ticket, _statistic(frame))
    keys = plan.key_columns if isinstance(plan, GroupedPlan) else ()
    by = len(plan.by) if isinstance(plan, GroupedPlan) else 0
    types = [f"(SELECT {step.typed_key(number)} FROM {frame.name('types')})" for number in range(by)]
    types += ["NULL::BOOLEAN"] * (len(keys) - by)
    witnesses = "".join(f", {kind} AS key{number}" for number, kind in enumerate(types))
    return f"{_definitions(frame, noted=noted)}\n{note}SELECT {released} AS release{witnesses}"


def call_sql(plan: Plan, function: str, *, noted: bool = False) -> str:
    """Return the statement that a call of a table function runs: the rows of its release."""
    return rows_sql(plan, release_sql(plan, function, noted=noted))


def statistic_sql(plan: Plan, function: str) -> str:
    """Return the statement with one value, the exact statistic as a list. Not private."""
    return _statistic_sql(_frame(plan, function))


def exact_sql(plan: Plan, function: str) -> str:
    """Return the statement of the exact statistic, one row per feature. Not private."""
    frame = _frame(plan, function)
    listed = call("unnest", call(f"dpsql_{function}", frame.ticket, _statistic(frame)))
    entry = call("unnest", "entry")  # entry.* is a struct_extract, which a caller's macro can replace
    return f"{_definitions(frame)}\nSELECT {entry} FROM (SELECT {listed} AS entry)"


def part_sql(plan: Plan, function: str, number: int, blocks: int | None, *, noted: bool = False) -> str:
    """Return the statement that folds some rows of a call, in pass `number` alone, without its gate.

    Its one value is the list of the collected batches' numbers. `blocks` is the number of blocks that the pass takes as
    wholes, or None for the plan's number for every pass. With `noted`, each step has its note.
    """
    return _statistic_sql(_frame(plan, function, number, blocks), noted=noted)


def split_sql(plan: Plan, function: str, number: int, blocks: int, parts: int) -> str:
    """Return the query of each row's part and position; the part is NULL for rows without a privacy unit."""
    frame = _frame(plan, function, number, blocks)
    return f"{_with(frame, [step.gate(frame)])}\n{rows.parts_of_rows(frame, PART, POSITION, parts)}"


def types_sql(plan: Plan, function: str) -> str:
    """Return the statement, without rows, of a call's column types and of its keys' SQL types."""
    frame = _frame(plan, function)
    [spelled] = step.key_types(frame) or ["NULL"]
    probe = f"(SELECT probe FROM {frame.name('types')})"
    return f"{_with(frame, [step.types(frame)])}\nSELECT {probe} AS probe, {spelled} AS spelled"


def part_of_query(
    plan: Plan,
    function: str,
    keyed: Frame | None = None,
    drawing: Frame | None = None,
    bounding: Frame | None = None,
) -> tuple[Frame, list[Step], str]:
    """Return a query part's frame, its steps in order, types and gate first, and the SQL of its statistic.

    The part of frame `keyed` releases the group keys, the part of `drawing` draws how many rows of a unit count, and
    the part of `bounding` draws the column bounds.
    """
    frame = replace(_frame(plan, function), drawing=drawing)
    if isinstance(frame, GroupedFrame) and isinstance(keyed, GroupedFrame):
        frame = replace(frame, keyed=keyed)
    if isinstance(frame, GroupedFrame) and isinstance(bounding, GroupedFrame):
        frame = replace(frame, bounding=bounding)
    if isinstance(plan, RowsPlan):
        steps = [step.types(frame), step.gate(frame), *rows.rows_of_units(frame, plan.cells or 1)]
    elif isinstance(plan, CoreBoundsPlan) and isinstance(frame, GroupedFrame):
        steps = [step.types(frame), step.gate(frame), *rows.bounds_alone(frame)]
    else:
        steps = list(_steps(frame))
    if drawing is not None:
        steps.insert(2, rows.limited(frame, drawing))
    return frame, steps, _statistic(frame)


def admit_sql(plan: Plan) -> str:
    """Return the statement whose one value is the aggregate form's checked plan; it fails if the budget fails.

    The aggregated rows are in the enclosing statement, whose plan DuckDB serializes before it reads a row.
    """
    statement = cast(call("json_serialize_plan", call("current_query")), "VARCHAR")
    arguments = [
        literal(plan.to_json()),
        statement,
        call("current_query"),
        catalogued_sql(listed=True, tables=True, keys=True),
    ]
    return f"SELECT {call('dpsql_admit', *arguments)} AS plan"


_STEPS: Mapping[str, Callable[[Frame], Iterator[Step]]] = {
    XTY: rows.products,
    HISTOGRAM: rows.counts,
    SCORES: rows.compared,
    GROUPED: grouped_steps,
    COLLECTED: rows.in_passes,
    FEATURE_COUNTS: rows.in_passes,
}


def _frame(plan: Plan, function: str, only: int | None = None, blocks: int | None = None) -> Frame:
    if isinstance(plan, GroupedPlan) and plan.statement == GROUPED:
        return GroupedFrame(plan, function, only, blocks)
    return Frame(plan, function, only, blocks)


def _steps(frame: Frame) -> Iterator[Step]:
    """Yield every step up to the statistic."""
    plan = frame.plan
    if frame.only is None or plan.statement == GROUPED:
        yield step.types(frame)
    yield step.gate(frame)
    if plan.statement == FEATURE_COUNTS:
        yield from rows.gathered_names(frame)
    elif plan.statement == COLLECTED and plan.layout.kind == "long":
        yield from rows.gathered(frame)
    yield from _STEPS[plan.statement](frame)


def _definitions(frame: Frame, *, noted: bool = False) -> str:
    return _with(frame, _steps(frame), noted=noted)


def _with(frame: Frame, steps: Iterator[Step] | list[Step], *, noted: bool = False) -> str:
    return "WITH\n" + ",\n".join(frame.sql(step, noted=noted) for step in steps)


def _statistic(frame: Frame) -> str:
    """Return the SQL of the statistic: a list of exact sums, or of the collected batches' numbers.

    The direction is explicit because the caller can set default_order.
    """
    return f"(SELECT {call('list', 's ORDER BY j ASC NULLS LAST')} FROM {frame.name('statistic')})"


def _statistic_sql(frame: Frame, *, noted: bool = False) -> str:
    return f"{_definitions(frame, noted=noted)}\nSELECT {_statistic(frame)} AS statistic"
