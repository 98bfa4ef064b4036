"""Turn a query of plain SQL into the statement that runs: find its tables, split it, judge its texts, plan it.

DuckDB folds three steps of the macro while it binds a statement: `QueryPlanner.tables`, `QueryPlanner.cores` and
`QueryPlanner.statement`. Each step gets DuckDB's plans of the texts that the step before returned. The steps read and
charge nothing. The plans alone decide about the splitter's texts. The module also keeps the split of earlier versions,
because their releases are stored.

**The statement** has all parts of a query as one relation, and makes the final rows from their answers. Every part is
the chain of steps that a call of its function runs (`dpsql.engines.duckdb.steps`), in its own frame. The parts share
one gate, which gives each part a ticket, and one release, which takes every part's statistic. So the release is one
value of one materialized query: reading any answer charges all parts in one transaction, and reading no answer charges
none.

A core's answers are a table with the core's name. The post text reads only these tables and public tables; dpsql checks
its plan before it writes the statement.
"""

from __future__ import annotations

import datetime
import json
import secrets
import threading
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpsql.contract import parameters
from dpsql.contract.covers import COVERS
from dpsql.contract.expression import functions
from dpsql.contract.grant_fields import USUAL_AGE, Asker
from dpsql.contract.json import Json
from dpsql.contract.keys import PRIVATE, key_text
from dpsql.contract.layout import Layout
from dpsql.contract.names import dotted, meant_in_sql, reason_to_write, statement_to_write, word_to_quote
from dpsql.contract.parameters import fold, list_items, narrow, show
from dpsql.contract.periods import DATED, Dated, block_of
from dpsql.contract.plan import Placement
from dpsql.contract.query.catalogue import (
    BEFORE_NARROW_KEYS,
    BEFORE_TOTAL_ORDERS,
    Catalogue,
    CatalogueTable,
    Options,
    Path,
    folded,
)
from dpsql.contract.query.draws import draws_sql, numbers_name, stub_tables, with_tables
from dpsql.contract.query.joins import without_unit
from dpsql.contract.query.nodes import pointing
from dpsql.contract.query.privacy_options import AVG_OF_ROWS, CALL, CLAUSE, PrivacyOptions, without_options
from dpsql.contract.query.relations import UnboundError
from dpsql.contract.query.split import SPANS, Draws, NoisyNumbers, QueryAggregate, QueryCore, Split, error_names
from dpsql.contract.query.splitter import split
from dpsql.contract.query.tree import check_length, is_catalog, read_tree, tables_of
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, paths, refusals
from dpsql.engines.duckdb.lineage import queries as reading
from dpsql.engines.duckdb.lineage.declarations import Declaration, Declarations
from dpsql.engines.duckdb.lineage.placing import declared_views, is_stored, missing_table, place_text
from dpsql.engines.duckdb.lineage.sources import Seen, Sources
from dpsql.engines.duckdb.lineage.stability import is_shown
from dpsql.engines.duckdb.planner import part_of_query
from dpsql.engines.duckdb.releases import PastReleases, digest_of, stored_query, tables_sql, texts_sql
from dpsql.engines.duckdb.steps.step import Frame, Step, key_types
from dpsql.engines.duckdb.typed_expression import TYPING
from dpsql.errors import BudgetError, DpsqlError, InternalError, ParameterError, SourceError
from dpsql.functions.grouped.left_out import LEFT_OUT_SHARE
from dpsql.functions.grouped.plan import CONFIDENCE
from dpsql.functions.query import ARGUMENTS, QueryPlan, VectorPlan, read_age
from dpsql.functions.query_expected import Expected, expected
from dpsql.functions.query_parts import RANKED, SOURCE, PlacedCore, has_earlier_parts, parts_of_cores
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.aggregates import CubeVector
from dpsql.parsing import without_call
from dpsql.progress import listen
from dpsql.rendering import call, cast, concatenated, double, element, field, identifier, struct, text

# The SQL type of a query's release.
CORES = (
    "STRUCT(sequence BIGINT, guarantee VARCHAR, cores STRUCT(keys VARCHAR[], numbers VARCHAR[], "
    "errors DOUBLE[], lower DOUBLE[], upper DOUBLE[], standings DOUBLE[], draws DOUBLE[][])[][], covers VARCHAR)"
)
GATE = "STRUCT(ticket BIGINT, zero DOUBLE, parts STRUCT(ticket BIGINT, zero DOUBLE)[])"
# The materialized query of the release, and the gate's step.
_DP, _WHOLE, _CHECKED = "__dp", "whole", "__checked"


@dataclass(frozen=True)
class QueryStatement:
    """The statement of a query.

    Attributes
    ----------
    plan : QueryPlan
    split : Split
    answers : sequence of mapping
        The places of the cores' answers, see `dpsql.functions.query_parts.Answers`.
    errors : bool
        Whether released tables have their numbers' errors.
    confidence : float
        For intervals.
    replayed : bool
        Whether the statement has an earlier version's form: it reads the stored release and never runs anew.
    """

    plan: QueryPlan
    split: Split
    answers: Sequence[Mapping[str, Json]]
    errors: bool = False
    replayed: bool = False
    confidence: float = 0.95

    @property
    def asked(self) -> str:
        """The request of the release, as JSON text."""
        cores = []
        for core, answers in zip(self.split.cores, self.answers, strict=True):
            listed = list(narrow(list, answers["answers"]))
            more = [{**listed[index], "over": self._over_numbers(count)} for index, count in self._spread(core)]
            draws = self.draws_of(core, answers)
            cores.append({**answers, "answers": [*listed, *more], **({"draws": draws} if draws else {})})
        words = {COVERS: self.plan.remark or True} if self.errors else {}
        return json.dumps({"confidence": self.confidence, "cores": cores, **words, **self._coordinates})

    @property
    def _coordinates(self) -> dict[str, object]:
        """Return, for draws, which coordinates of a vector's noise each of its blocks has, by the number of its part.

        Where rows of the tables choose the row limit, they choose the vector, too, and there are no draws.
        """
        if self.split.draws is None:
            return {}
        vectors = {
            str(number): part.plan.part.positions
            for number, part in enumerate(self.plan.parts)
            if part.rows_of is None and isinstance(part.plan, VectorPlan) and isinstance(part.plan.part, CubeVector)
        }
        return {"coordinates": vectors}

    def draws_of(self, core: QueryCore, answers: Mapping[str, Json]) -> list[int | None]:
        """Return the numbers of a core that are drawn, as places among its answers; None for a number without a law.

        The part that draws private keys shows numbers above a threshold alone, so their noise has another law.
        """
        if self.split.draws is None:
            return []
        listed = narrow(list, answers["answers"])
        numbers: list[int | None] = []
        for index, aggregate in enumerate(core.aggregates):
            if (core.name, aggregate.name) in self.split.draws.numbers:
                chooses = core.private_keys and narrow(dict, listed[index])["part"] == answers["keys_of"]
                numbers.append(None if chooses else index)
        return numbers

    def _over_numbers(self, numbers: NoisyNumbers) -> object:
        """Return how many noisy numbers a column combines, in the release's form; see `dpsql.released.query`."""
        if not numbers.groups:
            return numbers.single
        positions = {core.name: position for position, core in enumerate(self.split.cores)}
        return {"single": numbers.single, "groups": [[positions[name], times] for name, times in numbers.groups]}

    def _spread(self, core: QueryCore) -> list[tuple[int, NoisyNumbers]]:
        """Return the core's numbers with intervals: each number's place, and the count that splits its error chance."""
        return spread(self.split, core)

    def sql(self, *, noted: bool = False) -> str:
        """Return the statement that runs, charges and releases, or that reads a `replayed` release."""
        if self.replayed:
            return self.stored_sql()
        return self._over(self._release(noted=noted), self._free, noted=noted)

    def stored_sql(self) -> str:
        """Return the statement that reads the stored release; it reads no table of people."""
        texts = texts_sql(self.plan, runs=False)
        released = call("dpsql_query_stored", text(self.plan.to_json()), text(self.asked), texts)
        return self._over(f"SELECT {released} AS release", self._free)

    def answer(self, zone: str) -> str:
        """Return how a stored release gives rows, see `dpsql.engines.duckdb.releases.stored_answer`."""
        return json.dumps({"sql": self._over(stored_query()), "asked": self.asked, "zone": zone})

    @property
    def _free(self) -> Sequence[Path]:
        return () if self.plan.placement is None else self.plan.placement.free

    def _over(self, release: str, free: Sequence[Path] = (), *, noted: bool = False) -> str:
        """Return the post text over a release's tables, with a check of the `free` tables."""
        note = "-- What follows from the answers; it reads no row of people.\n" if noted else ""
        tables = [f"{identifier(_DP)} AS MATERIALIZED (\n{release}\n)"]
        for number, core in enumerate(self.split.cores):
            tables.append(f"{identifier(core.name)} AS (\n  {self._released(number, core)}\n)")
        tables += self._draws()
        return post_sql(self.split.post, free, tables, note=note, more=self._covers if self.errors else "")

    @property
    def _covers(self) -> str:
        """Return the column that says which rows count, named as DuckDB names a repeated column."""
        names = {fold(name) for name, _ in self.split.columns}
        name, number = COVERS, 0
        while name in names:
            number += 1
            name = f"{COVERS}_{number}"
        words = f"(SELECT {field('release', COVERS)} FROM {identifier(_DP)})"
        if self.split.draws is not None:
            words = concatenated(words, f"(SELECT {call('concat', *_drawn_words(self))} FROM {identifier(SPANS)})")
        return f", {words} AS {identifier(name)}"

    def _draws(self) -> list[str]:
        """Return the tables of the intervals by draws: the drawn numbers of each core, and those of `draws_sql`."""
        draws = self.split.draws
        if draws is None:
            return []
        tables, columns = {}, {}
        for number, core in enumerate(self.split.cores):
            names = [aggregate for name, aggregate in draws.numbers if name == core.name]
            if not names:
                continue
            rows = call("unnest", element(field("release", "cores"), number + 1))
            listed = [
                f"{cast(element(field('entry', 'keys'), ordinal), key.type)} AS {identifier(key.column)}"
                for ordinal, key in enumerate(core.keys, start=1)
            ]
            ordered = [aggregate.name for aggregate in core.aggregates if aggregate.name in names]
            for aggregate in core.aggregates:
                sql = "CAST(NULL AS DOUBLE)"
                if aggregate.name in ordered:
                    sql = call("unnest", element(field("entry", "draws"), ordered.index(aggregate.name) + 1))
                listed.append(f"{sql} AS {identifier(aggregate.name)}")
            numbered = call("-", call("generate_subscripts", element(field("entry", "draws"), 1), "1"), "1")
            entries = f"(SELECT {rows} AS entry FROM {identifier(_DP)})"
            selected = f"SELECT {numbered} AS draw, {', '.join(listed)} FROM {entries}"
            tables[numbers_name(core.name)] = selected
            columns[core.name] = [*(key.column for key in core.keys), *(part.name for part in core.aggregates)]
        return with_tables(tables | draws_sql(draws, columns, self.confidence))

    def _released(self, number: int, core: QueryCore) -> str:
        """Return the query of a core's released table."""
        rows = call("unnest", element(field("release", "cores"), number + 1))
        columns = [
            f"{cast(element(field('entry', 'keys'), ordinal), key.type)} AS {identifier(key.column)}"
            for ordinal, key in enumerate(core.keys, start=1)
        ]
        for index, aggregate in enumerate(core.aggregates, start=1):
            columns.append(
                f"{cast(element(field('entry', 'numbers'), index), aggregate.type)} AS {identifier(aggregate.name)}"
            )
        for position, (index, count) in enumerate(self._spread(core), start=len(core.aggregates) + 1):
            names = error_names(core.aggregates[index].name, count)
            fields = zip(("errors", "lower", "upper", "standings"), names, strict=True)
            columns += [f"{element(field('entry', part), position)} AS {identifier(name)}" for part, name in fields]
        return f"SELECT {', '.join(columns)} FROM (SELECT {rows} AS entry FROM {identifier(_DP)})"

    def _release(self, *, noted: bool) -> str:
        """Return the statement with one value, the release of all parts."""
        parts: list[tuple[Frame, list[Step], str]] = []
        for part in self.plan.parts:
            earlier = (part.keys_of, part.rows_of, part.bounds_of)
            frames_of = (None if index is None else parts[index][0] for index in earlier)
            parts.append(part_of_query(part.plan, part.plan.function, *frames_of))
        frames = [frame for frame, _, _ in parts]
        relation = frames[0].name(_WHOLE)
        steps = [(frame, chain[0]) for frame, chain, _ in parts]
        steps.append((frames[0], self._gate(frames)))
        for number, (frame, chain, _) in enumerate(parts, start=1):
            mine = element(f"(SELECT {field('gate', 'parts')} FROM {relation})", number)
            note = f"The ticket of part {number} of {len(parts)}. Every scan below waits for it."
            steps.append((frame, Step("gate", note, f"SELECT {mine} AS gate", is_materialized=True)))
            steps += [(frame, step) for step in chain[2:]]
        listed = ",\n".join(frame.sql(step, noted=noted) for frame, step in steps)
        tickets = call("list_value", *(frame.closing_ticket for frame in frames))
        statistics = call("list_value", *(cast(statistic, "BIGINT[]") for _, _, statistic in parts))
        ticket = f"(SELECT {field('gate', 'ticket')} FROM {relation})"
        note = "-- Charge, draw and store all parts, in one transaction of the ledger.\n" if noted else ""
        released = call("dpsql_query_release", ticket, tickets, statistics, text(self.asked))
        return f"WITH\n{listed}\n{note}SELECT {released} AS release"

    def _gate(self, frames: Sequence[Frame]) -> Step:
        """Return the gate's step, which has a ticket for each part."""
        probes = struct({f"p{n}": f"(SELECT probe FROM {frame.name('types')})" for n, frame in enumerate(frames)})
        kinds = [(key_types(frame) or ["CAST(NULL AS VARCHAR[])"])[0] for frame in frames]
        arguments = [text(self.plan.to_json()), probes, call("list_value", *kinds), texts_sql(self.plan)]
        return Step(
            _WHOLE,
            "Check arguments, column types and budget of all parts before any row is read.",
            f"SELECT {call('dpsql_query_gate', *arguments)} AS gate",
            is_materialized=True,
        )


def _drawn_words(statement: QueryStatement) -> list[str]:
    """Return the words on intervals by draws, as SQL over their table: what they hold for, and what they lack."""
    private = any(core.private_keys for core in statement.split.cores)
    words = "; ranks, shares and sums by draws of the noise" + (", among the groups shown" if private else "")
    cores = zip(statement.split.cores, statement.answers, strict=True)
    if any(None in statement.draws_of(core, answers) for core, answers in cores):
        words += "; not measured: a count that also chooses the keys; ask for a sum next to it"
    epsilon = call("*", "needed", double(float(statement.plan.epsilon)))
    listed = text("; not measured: a divisor may be 0, epsilon_needed about ")
    lacking = call("concat", listed, call("round", epsilon, "2"))
    return [text(words), f"CASE WHEN needed IS NULL THEN '' ELSE {lacking} END"]


def post_sql(post: str, free: Sequence[Path], tables: Sequence[str] = (), *, note: str = "", more: str = "") -> str:
    """Return the statement of a post text over `tables` of WITH, with `more` columns after its own.

    A check of the `free` tables runs before the statement returns a row, in any plan of DuckDB: a materialized query of
    WITH runs before all later queries.
    """
    checked = f"WHERE (SELECT checked FROM {identifier(_CHECKED)})" if free else ""
    if free:
        listed = call("list_value", *(call("list_value", *map(text, path)) for path in free))
        check = call("dpsql_query_free", listed, tables_sql())
        tables = [f"{identifier(_CHECKED)} AS MATERIALIZED (SELECT {check} AS checked)", *tables]
    before = "WITH\n" + ",\n".join(tables) + "\n" if tables else ""
    return f"{before}{note}SELECT *{more} FROM (\n{post}\n){checked}"


def _released_names(split: Split) -> list[str]:
    """Return the names of the tables that the statement defines around a text."""
    return [
        *(core.name for core in split.cores),
        *(_stubs(split.draws, split.cores) if split.draws is not None else ()),
    ]


def _stubs(draws: Draws, cores: Sequence[QueryCore]) -> dict[str, str]:
    keys = {core.name: core.keys for core in cores}
    return stub_tables(draws, keys, {core.name: core.aggregates for core in cores})


def spread(split: Split, core: QueryCore) -> list[tuple[int, NoisyNumbers]]:
    """Return the core's numbers that form columns: each number's place, and how many numbers form the column.

    If a column combines j noisy numbers, its interval uses for each number an interval whose failure chance is a j-th.
    """
    positions = {column.name: position for position, column in enumerate(core.aggregates)}
    return [(positions[aggregate], count) for name, aggregate, count in split.intervals if name == core.name]


def stub_sql(split: Split) -> str:
    """Return the post text over tables without rows, with the names and types of the released tables."""
    tables = []
    for core in split.cores:
        columns = [f"CAST(NULL AS {key.type}) AS {identifier(key.column)}" for key in core.keys]
        for aggregate in core.aggregates:
            columns.append(f"CAST(NULL AS {aggregate.type}) AS {identifier(aggregate.name)}")
        for index, count in spread(split, core):
            names = error_names(core.aggregates[index].name, count)
            columns += [f"CAST(NULL AS DOUBLE) AS {identifier(name)}" for name in names]
        tables.append(f"{identifier(core.name)} AS (SELECT {', '.join(columns)} WHERE false)")
    if split.draws is not None:
        tables += with_tables(_stubs(split.draws, split.cores))
    before = f"WITH {', '.join(tables)} " if tables else ""
    return f"SELECT * FROM (\n{before}SELECT * FROM (\n{split.post}\n)\n)"


def query_lines(statement: QueryStatement) -> tuple[str, ...]:
    """Return a query's explanation before it runs, line by line, and the statement as the last line."""
    plan, lines = statement.plan, list(statement.split.notes)
    if plan.during is not None:
        lines.append(f"rows of {plan.during.text}, by the {plan.during.dated.period}")
    for number, core in enumerate(statement.split.cores):
        of_core = [part for part in plan.parts if part.core == number]
        parts = [part.plan for part in of_core]
        draws = {id(part.plan) for part in of_core if part.rows_of is not None}
        lines.append(f"core {core.name} reads {', '.join(core.tables)}: {core.source}")
        if core.margin_of is not None and core.margin_of != core.name:
            lines.append(f"its sums are those of {core.margin_of}, whose groups are finer, and are fitted to them")
        if core.unit is not None and parts:
            whose = f"rows per {plan.layout.privacy_unit}"
            most = "what is drawn" if draws else f"at most {max(part.max_rows_per_unit for part in parts)}"
            lines.append(f"{whose}: {most} count; what others hold is left out")
        for key in core.keys:
            lines.append(f"key {key.column}: {'released privately' if core.private_keys else key.origin}")
        for aggregate in core.aggregates:
            lines += _bounds_told(aggregate, grouped=bool(core.keys))
        for part, of_part in zip(parts, of_core, strict=True):
            if of_part.keys_of is not None:
                lines.append(f"its keys are those that part {of_part.keys_of + 1} releases")
            if of_part.bounds_of is not None:
                lines.append(f"its bounds are those that part {of_part.bounds_of + 1} draws")
            title = part.function.removeprefix(f"{plan.function}.")
            lines.append(f"part of {core.name}: {title}, epsilon {float(part.epsilon):g} of {float(plan.epsilon):g}")
            if id(part) not in draws:
                lines += [f"{meaning}: {value:.4g}" for name, value, meaning in part.noise(0, None) if name in _TOLD]
    lines = list(dict.fromkeys(filter(None, [*lines, plan.remark])))
    return (*lines, f"what follows: {statement.split.post}", statement.sql(noted=True))


def expected_sql(lines: Sequence[Expected]) -> str:
    """Return the query of expected quantities, which reads no table."""
    rows = [
        ", ".join(
            (
                "NULL" if line.column is None else text(line.column),
                text(line.quantity),
                "NULL" if line.value is None else double(line.value),
                text(line.meaning),
            )
        )
        for line in lines
    ]
    listed = ", ".join(f"({row})" for row in rows)
    names = {"column": "VARCHAR", "quantity": "VARCHAR", "value": "DOUBLE", "meaning": "VARCHAR"}
    columns = ", ".join(f"CAST({identifier(name)} AS {kind}) AS {identifier(name)}" for name, kind in names.items())
    return f"SELECT {columns} FROM (VALUES {listed}) AS dpsql_expected({', '.join(map(identifier, names))})"


# Quantities of `dp_estimate` in the explanation of a part.
_TOLD = ("count_std_error", "rank_error", "least_count", "persons_off", "bounds_rows_needed")


def _bounds_told(aggregate: QueryAggregate, *, grouped: bool) -> list[str]:
    if aggregate.kind in ("rows", "values", "units", "items"):
        return []
    lines = []
    first = aggregate.column, aggregate.lower, aggregate.upper, f", {aggregate.bounds_from or 'stated'}"
    if aggregate.kind == "extreme":
        lines.append(f"{aggregate.name} is a private quantile, whose level follows from a noisy number of rows")
    columns = first, (aggregate.other, aggregate.other_lower, aggregate.other_upper, "")
    for name, lower, upper, origin in columns:
        if name is None:
            continue
        wording = "none are needed" if aggregate.kind in RANKED and not grouped else "drawn privately"
        if lower is not None and upper is not None:
            wording = f"{float(lower):g} to {float(upper):g}{origin}"
        lines.append(f"bounds of {name}: {wording}")
    return lines


@dataclass(frozen=True)
class Binding:
    """The state of one thread's statement while DuckDB binds it."""

    declarations: Declarations
    catalog: paths.Catalog
    search_path: str
    database: str
    now: datetime.datetime
    zone: str
    claim: Declaration | None = None  # of a table whose rows the caller assigns to a budget

    @property
    def claimed(self) -> frozenset[str]:
        """The tables read by a caller's claim, as placements show them."""
        path = None if self.claim is None or self.claim.table is None else self.catalog.path(self.claim.table)
        return frozenset() if path is None else frozenset((self.catalog.display(path),))


@dataclass(frozen=True)
class ReadQuery:
    """A query after its split, and the tables that it names."""

    split: Split
    binding: Binding
    direct: bool
    names: tuple[tuple[str, str], ...]
    private: bool = False  # whether a column has private labels
    earlier: int = 0  # as `Options.earlier`; before decision 65 labels were public, and DuckDB chose among ties
    before: tuple[ReadQuery, ...] = ()  # split by earlier versions, the latest first
    refusal: DpsqlError | None = None  # of differences from `before`
    files: tuple[reading.FileView, ...] = ()  # the views over files that it reads
    twins: tuple[tuple[str, str], ...] = ()  # each text that reads such a view, with its judged form
    remark: str = ""  # to the guarantee

    def judged(self, text: str) -> str:
        """Return the form of a text whose plan is judged: it reads the twins of views over files."""
        return dict(self.twins).get(text, text)

    @property
    def differs(self) -> frozenset[int]:
        """The earlier versions that split it differently."""
        return self.split.differs | ({BEFORE_TOTAL_ORDERS} if self.private else frozenset())

    @property
    def forms(self) -> list[ReadQuery]:
        """The query forms that may answer: the present one and the earlier ones."""
        return [self, *self.before]

    @property
    def declared(self) -> tuple[Declarations, paths.Catalog]:
        """The judge of the plans of its texts."""
        return self.binding.declarations, self.binding.catalog


Given = Mapping[str, object]


def with_options(tree: object, arguments: Given) -> Given:
    """Return a call's arguments with the privacy options of its statement."""
    if CALL not in tree_of(tree):
        return arguments
    return without_options(read_tree(tree_of(tree)))[1].added_to(arguments)


def _refuse_other_unit(options: PrivacyOptions, units: Collection[str], *, is_public: bool) -> None:
    """Raise unless the stated column of the privacy unit is a declared one, of any table of the query."""
    if options.unit is None or is_public or fold(options.unit) in map(fold, units):
        return
    declared = " or ".join(sorted(map(show, units)))
    error = BudgetError(
        "B003",
        f"privacy_unit_column is {show(options.unit)} in the statement's OPTIONS; the owner stated "
        f"{declared or 'that one row is protected'}. "
        f"{f'Write privacy_unit_column = {sorted(units)[0]}, or leave it out' if units else 'Leave it out'}.",
    )
    error.offset = options.at
    raise error


def read_options(
    arguments: Given, now: datetime.datetime, columns: tuple[tuple[str, str], ...] | None, *, earlier: int = 0
) -> Options:
    """Return the splitter's options from a call's arguments."""
    keys, private = arguments.get("keys"), False
    listed: dict[str, tuple[str | None, ...]] = {}
    if isinstance(keys, str):
        if fold(keys.strip()) != PRIVATE:
            raise ParameterError(
                "P066",
                f"keys must be a struct of lists by column, or 'private'; got {show(keys)}. Write keys := {{COLUMN: "
                f"[{text(keys)}, ...]}}, with the column of GROUP BY.",
            )
        private = True
    elif isinstance(keys, Mapping):
        for name, values in keys.items():
            items = list_items(values)
            if not items:
                example = text(values) if isinstance(values, str) and parameters.is_shown(values) else "..."
                raise ParameterError(
                    "P066",
                    f"keys of {show(name)} must be a list with at least one value. Write keys := "
                    f"{{{identifier(str(name))}: [{example}]}}.",
                )
            listed[str(name)] = tuple(map(key_text, items))
    elif keys is not None:
        raise ParameterError(
            "P066",
            "keys must be a struct of lists by column, or 'private'. Write keys := {COLUMN: ['A', 'B']}, with the "
            "column of GROUP BY.",
        )
    return Options(
        keys=listed,
        private_keys=private,
        lower=_bounds("lower", arguments.get("lower")),
        upper=_bounds("upper", arguments.get("upper")),
        now=now,
        zone=str(now.tzinfo),
        during=arguments.get("during"),
        columns=columns,
        errors=arguments.get("errors") is True,
        earlier=earlier,
    )


def _bounds(name: str, argument: object) -> dict[str, Fraction]:
    if argument is None:
        return {}
    numbers = argument if isinstance(argument, Mapping) else {"": argument}
    bounds = {}
    for column, value in numbers.items():
        hint = f"Give numbers by column: {name} := {{days: 0}}."
        if isinstance(value, datetime.date):  # and datetime
            sign = ">=" if name == "lower" else "<="
            hint += f" Bound a date in WHERE: {column or 'day'} {sign} DATE '{value:%Y-%m-%d}'."
        checked = parameters.finite_float(name, value, hint=hint)
        bounds[str(column)] = Fraction(value) if isinstance(value, int) else Fraction(str(checked))
    return bounds


def during_of(placed: Sequence[PlacedCore], periods: object) -> object:
    """Return the periods that a call names, or else those that literal date bounds leave in every core.

    Raises
    ------
    ParameterError
        P110: neither exists, and rows are dated.
    """
    dated = [
        (core.protection[DATED], core.core.dates) for core in placed if isinstance(core.protection.get(DATED), Dated)
    ]
    if periods is not None or all(narrow(Dated, policy).is_undated for policy, _ in dated):
        return periods
    spans: dict[str, None] = {}
    for policy, days in dated:
        rule = narrow(Dated, policy)
        if days is None:
            column = rule.text if rule.tables else rule.base or rule.column
            raise ParameterError(
                "P110",
                f"during is missing: the budget is kept by the {rule.period} of {show(column)}. Say which, "
                f"during := '...', or write WHERE with dates: {column} >= DATE '...' AND {column} < DATE '...'.",
            )
        blocks = [block_of(rule.period, datetime.date.fromisoformat(day)) for day in days]
        spans["/".join(dict.fromkeys(blocks))] = None
    return list(spans)


def text_of(sql: object) -> str:
    """Return the text of a query.

    Raises
    ------
    ParameterError
        P100: the text cannot be one SELECT.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise ParameterError("P100", f"sql must be one SELECT, as text; got {show(sql)}. Give 'SELECT ...'.")
    if not parameters.is_storable(sql):
        raise ParameterError("P100", "sql must be text without NUL characters and lone surrogates. Write it without.")
    check_length(sql)
    return sql


def tree_of(tree: object) -> str:
    """Return the parse tree of a query, as JSON; raise if there is none."""
    if not isinstance(tree, str):
        raise ParameterError("P100", "sql must be one SELECT, as text. Give 'SELECT ...'.")
    return tree


# Selects all columns of the caller's text: its plan shows names and types.
_ORIGINAL = "SELECT * FROM (\n{sql}\n) AS dpsql_query"
_ZONED = "TIMESTAMP WITH TIME ZONE"
# Maximum time between the steps of one statement; calls within it share the value of now().
_ONE_STATEMENT = datetime.timedelta(seconds=5)


class QueryPlanner:
    """Plans queries; charges nothing and reads no row.

    Parameters
    ----------
    ledger : Ledger
    sources : Sources
    past : PastReleases
    """

    def __init__(self, ledger: Ledger, sources: Sources, past: PastReleases) -> None:
        self._ledger = ledger
        self._sources = sources
        self._past = past
        self._bindings: dict[int, Binding] = {}
        self._split: dict[int, tuple[object, ReadQuery]] = {}
        self._claims: dict[int, Declaration] = {}

    @contextmanager
    def claiming(self, claim: Declaration) -> Iterator[None]:
        """Let this thread's queries read a table whose rows the caller assigns to a budget."""
        mine = threading.get_ident()
        self._claims[mine] = claim
        try:
            yield
        finally:
            del self._claims[mine]

    def tables(self, sql: object, tree: object, search_path: str, database: str, zone: str) -> list[str]:
        """Return the queries whose plans show a query's tables, names and types."""
        listen()
        text = text_of(sql)
        with pointing(text):
            try:
                references = tables_of(read_tree(tree_of(tree)))
            except ParameterError as error:
                if error.message.startswith(("sql is not understood", "sql is not a SELECT")):
                    error.saying(f"{error.message} {statement_to_write(text) or word_to_quote(error.message)}".rstrip())
                raise
        now, before = datetime.datetime.now(_zone(zone)), self._bindings.get(threading.get_ident())
        if before is not None and before.zone == zone and now - before.now < _ONE_STATEMENT:
            now = before.now  # DuckDB may call twice while it binds one statement
        declarations, claim = self._sources.declarations(), self._claims.get(threading.get_ident())
        if claim is not None:
            declarations = replace(declarations, listed=(*declarations.listed, claim))
        binding = Binding(declarations, self._sources.catalog(), search_path, database, now, zone, claim)
        self._bindings[threading.get_ident()] = binding
        queries, reads_files = _views(binding), False
        for reference in references:
            if is_catalog(reference):
                continue
            spelled = _spellings(reference, binding)
            parents = reading.parents_of(spelled, binding.declarations, binding.catalog)
            queries += [*spelled, reading.described(reference), *parents]
            files = [path for path in _positions(spelled, parents) if _is_over_files(path, binding)]
            queries += [reading.described(path) for path in files]
            reads_files = reads_files or bool(files)
        return list(dict.fromkeys([_described(text) if reads_files else _original(text), *queries]))

    def cores(self, sql: object, tree: object, arguments: Given, seen: Seen) -> list[str]:
        """Return the texts that DuckDB plans next: of cores, of public keys, and of the final statement."""
        read = self._read(sql, tree, with_options(tree, arguments), seen)
        texts = (form.judged(text) for form in read.forms for text in _texts(form.split))
        return list(dict.fromkeys(texts))

    def plan(
        self,
        sql: object,
        tree: object,
        arguments: Given,
        seen: Seen,
        texts: Sequence[tuple[str, str, str]],
        asker: Asker | None = None,
    ) -> tuple[QueryStatement | None, str]:
        """Return the statement of a query for an asker, with its plan; only its text if it reads no protected rows.

        Raises
        ------
        ParameterError, SourceError, BudgetError
            The query, an argument, or a table is refused.
        InternalError
            I036: the written text returns other columns than the query.
        """
        if parameters.boolean("estimate", False if arguments.get("estimate") is None else arguments["estimate"]):
            return None, expected_sql(self.expected(sql, tree, arguments, seen, texts))
        statement, division, free = self._judged(sql, tree, arguments, seen, texts, asker)
        return statement, "" if statement is not None else post_sql(division.post, free)

    def expected(
        self, sql: object, tree: object, arguments: Given, seen: Seen, texts: Sequence[tuple[str, str, str]]
    ) -> list[Expected]:
        """Return the cost of a query and the noise of its columns; errors as in `plan`."""
        statement, division, _ = self._judged(sql, tree, arguments, seen, texts)
        return (
            expected(None, division, ()) if statement is None else expected(statement.plan, division, statement.answers)
        )

    def _judged(
        self,
        sql: object,
        tree: object,
        arguments: Given,
        seen: Seen,
        texts: Sequence[tuple[str, str, str]],
        asker: Asker | None = None,
    ) -> tuple[QueryStatement | None, Split, tuple[paths.Path, ...]]:
        """Return a query's judged statement (None if it reads no protected rows), its split, and its free tables.

        Free tables are public tables outside its cores.
        """
        arguments = with_options(tree, arguments)
        read = self._read(sql, tree, arguments, seen)
        plans = {text: plan for text, plan, _ in texts}
        for _, _, syntax in texts:
            reading.refuse_unpinned(syntax, [name for form in read.forms for name in _released_names(form.split)])

        def stored(
            form: ReadQuery, placed: list[PlacedCore], free: tuple[paths.Path, ...], versions: Iterable[bool]
        ) -> tuple[QueryStatement, Split, tuple[paths.Path, ...]] | None:
            for earlier in versions:
                with suppress(DpsqlError):
                    statement = self._statement(text_of(sql), form, placed, arguments, free, asker, earlier=earlier)
                    if statement is not None and self._past.replay(statement.plan) is not None:
                        return replace(statement, replayed=True), form.split, free
            return None

        for form in read.before:
            with suppress(DpsqlError):
                versions = (True,) if form.earlier == BEFORE_TOTAL_ORDERS else (False, True)
                release = stored(form, *self._placed(arguments, plans, seen, form), versions)
                if release is not None:
                    return release
        if read.refusal is not None:
            raise read.refusal
        placed, free = self._placed(arguments, plans, seen, read)
        statement = self._statement(text_of(sql), read, placed, arguments, free, asker)
        if statement is None or not has_earlier_parts(statement.plan) or self._past.replay(statement.plan) is not None:
            return statement, read.split, free
        return stored(read, placed, free, (True,)) or (statement, read.split, free)

    def _placed(
        self, arguments: Given, plans: Mapping[str, str], seen: Seen, read: ReadQuery
    ) -> tuple[list[PlacedCore], tuple[paths.Path, ...]]:
        """Return a query's cores with the places of their rows, and the public tables outside of cores."""
        free = dict.fromkeys(self._refuse_other_columns(read, arguments, plans))
        for core in read.split.cores:
            for key in core.keys:
                if key.query is not None:
                    free |= dict.fromkeys(
                        reading.refuse_people(_node(plans, read.judged(key.query)), "a list of keys", *read.declared)
                    )
        free = free if read.binding.declarations.governed else {}
        if not read.split.cores:
            for view in read.files:
                if any(view.item in text for text, _ in read.twins):
                    raise refusals.text_of_files(read.declared[1].display(view.path), "the query asks of nobody")
        placed = [self._placed_core(core, plans, seen, read) for core in read.split.cores]
        free |= dict.fromkeys(path for entry in placed for path in entry.placement.free)
        return placed, tuple(free)

    def _read(self, sql: object, tree: object, arguments: Given, seen: Seen) -> ReadQuery:
        """Return the split of a query; both steps that need it get the same one."""
        mine = threading.get_ident()
        binding = self._bindings.get(mine)
        if binding is None:
            raise InternalError("I006", "what the query reads was not asked for. Run the statement again.")
        key = (sql, tree, repr(arguments), tuple(seen), binding)
        known_split = self._split.get(mine)
        if known_split is not None and known_split[0] == key:
            return known_split[1]
        question = text_of(sql), tree_of(tree), arguments, dict(seen), binding
        try:
            with pointing(question[0]):
                query = self._fresh(*question)
            query = replace(query, before=self._before(*question, versions=query.differs)) if query.differs else query
        except DpsqlError as error:
            before = self._before(*question)
            if not before:
                raise
            query = replace(before[-1], before=before, refusal=error)
        if len(self._split) > 256:
            self._split.clear()
        self._split[mine] = key, query
        return query

    def _before(
        self, *question: Any, versions: Collection[int] = (BEFORE_NARROW_KEYS, BEFORE_TOTAL_ORDERS)
    ) -> tuple[ReadQuery, ...]:
        """Return a query as earlier versions split it, where that is another split."""
        forms = []
        for earlier in sorted(versions):
            with suppress(DpsqlError):
                form = self._fresh(*question, earlier=earlier)
                forms += [form] if earlier in form.differs else []
        return tuple(forms)

    def _fresh(
        self,
        sql: str,
        tree: str,
        arguments: Given,
        plans: dict[str, str],
        binding: Binding,
        *,
        earlier: int = 0,
    ) -> ReadQuery:
        replayed = earlier == BEFORE_TOTAL_ORDERS
        query, clause = read_tree(tree_of(tree)), None
        if CALL in tree:
            query, clause = without_options(query)
        views = declared_views([(text, plans[text]) for text in _views(binding)], binding.declarations, binding.catalog)

        keys: dict[paths.Path, frozenset[str]] = {}
        catalog = binding.catalog.knowing(keys)
        files: dict[paths.Path, reading.FileView] = {}

        def plan_of(path: paths.Path | None, plan: str) -> bound.Node | None:
            """Return the plan that reads a table, of a view over files that of its twin."""
            node = paths.read_plan(plan)
            if path is None or (node is not None and is_shown(node)):
                return node
            view = reading.file_view(
                path, plans.get(reading.described(path), ""), binding.declarations, binding.catalog
            )
            if view is None:
                return node
            files[folded(path)], keys[folded(path)] = view, frozenset()
            return view.node

        def table(path: paths.Path, node: bound.Node, description: str = "") -> reading.SeenTable:
            context = views, binding.declarations, catalog, self._ledger.policy
            return reading.table_of(path, node, *context, description, replayed=replayed)

        tables: dict[tuple[str, str, str], reading.SeenTable] = {}
        parents: dict[paths.Path, reading.SeenTable] = {}
        direct = True
        for reference in tables_of(query):
            if is_catalog(reference):
                continue
            spelled = _spellings(reference, binding)
            listed = [(text, plans[text]) for text in spelled]
            name = reading.spelled(reference)
            if paths.is_missing(listed[0][1]) or paths.has_no_place(listed[0][1]):
                spelling = dotted(part for part in reference if part)
                step = "SHOW ALL TABLES lists what there is."
                raise missing_table(spelling, binding.declarations.protected, step)
            path = paths.pinned_path(name, listed)
            node = plan_of(path, listed[0][1])
            if path is not None and node is None:
                raise SourceError(
                    "S018",
                    f"the plan of {show(name)} cannot be read, as of what reads a file. Name a view that is declared "
                    "(dp_protect, dp_derive or dp_public) and names Parquet files alone; or make a table of it.",
                )
            if path is None or node is None:
                raise SourceError(
                    "S018",
                    f"which table {show(name)} stands for cannot be seen. Name its schema: 'main.{reference[-1]}'; of "
                    "a file or a frame make a table.",
                )
            catalog_path, summary = reading.as_catalogued(path, node), plans[reading.described(reference)]
            keys[catalog_path] = reading.single_columns(summary)
            relation = table(catalog_path, node, summary)
            direct = direct and relation.direct and is_stored(node)
            tables[folded(reference)] = relation
            for spelling in reading.parents_of(spelled, binding.declarations, binding.catalog):
                parent_path = reading.parent_path(spelling)
                parent = plan_of(parent_path, plans[spelling])
                if parent_path is not None and parent is not None:
                    parents[folded(parent_path)] = table(parent_path, parent)
        described = _described(sql) if _described(sql) in plans else _original(sql)
        # If one column has private labels, all ENUMs are text: equal labels would reveal private ones.
        private = any(source.private for source in (*tables.values(), *parents.values()))
        as_text = private and not replayed
        original = reading.names_and_types(plans[described], described=described != _original(sql), as_text=as_text)
        names = original or ()
        options = read_options(arguments, binding.now, names or None, earlier=earlier)
        if clause is not None:
            units = {unit for relation in tables.values() for unit in relation.table.units}
            _refuse_other_unit(clause, units, is_public=all(relation.table.public for relation in tables.values()))
            options = replace(options, least_units=clause.least_units)

        def unbound() -> ParameterError:
            why = paths.why_unread(plans[described])
            lacking = paths.lacking_function(why)
            step = meant_in_sql(lacking, functions.listed()) if lacking else ""
            reason = f"DuckDB has no function {show(lacking)}." if lacking else f"DuckDB does not bind the query: {why}"
            step = step or reason_to_write(why) or "Check its names and types."
            return ParameterError("P101", f"{reason} {step}")

        def split_over(items: Mapping[paths.Path, str]) -> Split:
            """Return the split of the query, with these FROM items of views over files."""
            catalogue = Catalogue(_tables(tables, as_text, items), TYPING, _tables(parents, as_text, items))
            return split(query, catalogue, options)

        try:
            found_split = split_over({path: view.item for path, view in files.items()})
            twins = split_over({path: view.twin for path, view in files.items()}) if files else found_split
        except (ParameterError, SourceError) as error:
            lacks = original is None and paths.lacking_function(paths.why_unread(plans[described]))
            if lacks or (original is None and (isinstance(error, UnboundError) or error.code == "DPSQL-P070")):
                raise unbound() from None  # a function that DuckDB lacks is in no view, either
            raise
        if original is None:
            raise unbound()
        binding = replace(binding, catalog=catalog)
        read = ReadQuery(found_split, binding, direct and not files, names, private, earlier)
        if clause is not None and any(
            aggregate.kind == "avg" for core in found_split.cores for aggregate in core.aggregates
        ):
            read = replace(read, remark=AVG_OF_ROWS)
        forms = _twins(found_split, twins, files.values())
        return replace(read, files=tuple(files.values()), twins=forms)

    def _refuse_other_columns(
        self, read: ReadQuery, arguments: Given, plans: Mapping[str, str]
    ) -> tuple[paths.Path, ...]:
        """Raise unless the post text reads no protected rows and returns the query's columns; return its tables."""
        errors = arguments.get("errors") is True
        node = _node(plans, read.judged(stub_sql(read.split)))
        free = reading.refuse_people(node, "the query", *read.declared, listing=plans.get(reading.SHOW_TABLES, ""))
        types = () if node is None else reading.types_of(node)
        names = read.names + tuple(read.split.columns[len(read.names) :] if errors else ())
        wrong = [
            (mine, theirs) for mine, theirs in zip(types, names, strict=False) if not reading.are_alike(mine, theirs)
        ]
        if node is not None and (wrong or len(types) != len(names)):
            difference = f"{wrong[0][0]} for {wrong[0][1]}" if wrong else f"{len(types)} for {len(names)}"
            raise InternalError(
                "I036", f"the query was written with other columns than it has: {difference}. Report it."
            )
        return free

    def _placed_core(self, core: QueryCore, plans: Mapping[str, str], seen: Seen, read: ReadQuery) -> PlacedCore:
        """Return a core with the origin of its rows, from its own plan."""
        replayed = read.earlier == BEFORE_TOTAL_ORDERS
        declarations, catalog = read.declared
        views = [(text, plan) for text, plan in seen if text in _views(read.binding)]
        plan = plans[read.judged(core.source)]
        placement = place_text(SOURCE, plan, views, declarations, catalog, replayed=replayed)
        if not placement.charged:
            raise InternalError("I037", "a part of the query reads no rows of people. Report it.")
        content = placement.content
        if _ZONED in plan:
            content = paths.digest(f"{content}\n{read.binding.now.tzinfo}")
        policy = self._ledger.policy(placement.charged[0])
        terms: dict[str, object] = {}
        if policy is not None:
            terms = {
                "neighbours": policy.neighbours,
                "max_rows_per_unit": policy.max_rows_per_unit,
                DATED: policy.dated and policy.dated.of_source(placement.date, placement.dated),
            }
        content = paths.digest(f"{core.source}\n{content}")
        claimed = not read.binding.claimed.isdisjoint(placement.tables)
        return PlacedCore(core, replace(placement, content=content, claimed=claimed), terms)

    def _statement(
        self,
        sql: str,
        read: ReadQuery,
        placed: Sequence[PlacedCore],
        arguments: Given,
        free: tuple[paths.Path, ...],
        asker: Asker | None,
        *,
        earlier: bool = False,
    ) -> QueryStatement | None:
        """Return the plan of a query's parts, which reads `free` tables, under its name; None for a query of nobody.

        Private keys alone need a delta, so a default of delta is spent for them alone.
        """
        if not placed:
            return None
        granted = () if asker is None else asker.defaults
        charged = tuple(dict.fromkeys(name for core in placed for name in core.placement.charged))
        usual = self._sources.usual("epsilon", arguments, charged, granted)
        if any(core.core.private_keys for core in placed):
            usual |= self._sources.usual("delta", arguments, charged, granted)
        filled = ARGUMENTS.fill({**arguments, **usual})
        epsilon, delta = parameters.epsilon(filled["epsilon"]), ARGUMENTS["delta"].read(filled)
        if delta is None:
            read.split.refuse_lacking(sql)
        filled["during"] = during_of(placed, filled["during"])
        parts, answers = parts_of_cores(placed, filled, epsilon, delta, earlier=earlier)  # type: ignore[arg-type]
        first = placed[0].placement
        dated = [part.plan.during for part in parts if part.plan.during is not None]
        if dated and len(charged) > 1:
            raise SourceError(
                "S012",
                f"the query reads several protected tables, {', '.join(map(repr, charged))}, and one has periods: a "
                "row may be of two. Ask of each by itself.",
            )
        if len({period.blocks for period in dated}) > 1:
            raise SourceError(
                "S012", "the query reads dated rows and undated ones, whose budgets are apart. Ask of each by itself."
            )
        unit = first.unit
        lacking = [core.placement for core in placed if core.placement.unit is None]
        if 0 < len(lacking) < len(placed):
            raise without_unit(table for origin in lacking for table in origin.tables)
        placement = Placement(
            first.counter,
            charged,
            sql,
            SOURCE,
            tuple(dict.fromkeys(name for core in placed for name in core.placement.tables)),
            claimed=any(core.placement.claimed for core in placed),
            seen=True,
            unit=unit,
            direct=read.direct,
            plan=paths.digest("\n".join(f"{core.placement.plan} {core.core.source}" for core in placed)),
            enums=any(core.placement.enums for core in placed),
            free=free,
            keyed=tuple(dict.fromkeys(key for core in placed for key in core.placement.keyed)),
            files=tuple(view.path for view in read.files),
        )
        # Not `read.placement`: an equal query before may have left it.
        placement = self._sources.with_judgement(placement, self._bindings[threading.get_ident()].catalog)
        release = filled["release"]
        plan = QueryPlan(
            source=SOURCE,
            layout=Layout("wide", "", (), None, None, None, None, unit and (self._unit(charged[0]) or unit)),
            epsilon=epsilon,
            target_bounds=None,
            target_levels=None,
            neighbours=parts[0].plan.neighbours,
            max_rows_per_unit=max(part.plan.max_rows_per_unit for part in parts),
            dataset=charged[0],
            release=None if release is None else parameters.text("release", release, hint="Give the release a name."),
            placement=placement,
            during=dated[0] if dated else None,
            defaults=tuple(usual),
            delta=delta,  # type: ignore[arg-type]
            parts=parts,
            untold=filled[LEFT_OUT_SHARE.name] is not None and LEFT_OUT_SHARE.read(filled) is None,
            remark=read.remark,
        )
        errors = parameters.boolean("errors", filled["errors"])
        named_plan = self._name_plan(plan, filled, unique=read.binding.claim is not None)
        confidence = float(narrow(Fraction, CONFIDENCE.read(filled)))
        statement = QueryStatement(
            named_plan, read.split, [answer.to_json() for answer in answers], errors=errors, confidence=confidence
        )
        answered = replace(named_plan, answer=statement.answer(read.binding.zone))
        return replace(statement, plan=answered if asker is None else self._past.asked_by(answered, asker))

    def _unit(self, dataset: str) -> str | None:
        """Return the owner's name of a budget's privacy unit."""
        policy = self._ledger.policy(dataset)
        return None if policy is None else policy.privacy_unit

    def _name_plan(self, plan: QueryPlan, arguments: Given, *, unique: bool) -> QueryPlan:
        """Return the plan under the name of a stored release that is recent enough, or of a new one.

        An unnamed query gets a name from its contents, or a `unique` one if its contents do not determine the rows that
        it reads. When its answer is too old, or must be fresh, the next answer has the next number behind the name.
        """
        if plan.release is None and unique:
            return replace(plan, release=f"query {secrets.token_hex(32)}")
        fresh, age = parameters.boolean("fresh", arguments["fresh"]), read_age(arguments["max_age"])
        if plan.release is None:
            plan = self._past.of_question(plan, lambda record: f"query {digest_of(record)}")
            age = USUAL_AGE if age is None else age
        return self._past.of_age(plan, age, fresh=fresh)


def _original(sql: str) -> str:
    sql = without_call(sql) if CLAUSE.search(sql) else sql
    return _ORIGINAL.format(sql=sql.rstrip().rstrip(";"))


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return datetime.UTC


def _views(binding: Binding) -> list[str]:
    """Return the queries whose plans show declared views."""
    declared = (binding.catalog.path(view.table) for view in binding.declarations.views() if view.table is not None)
    return list(dict.fromkeys(paths.declared_query(path) for path in declared if path is not None))


def _described(sql: str) -> str:
    """Return the query whose plan shows names and types of a query that reads files."""
    return f"SELECT * FROM (DESCRIBE {_original(sql)})"


def _positions(spelled: Sequence[str], parents: Sequence[str]) -> list[paths.Path]:
    """Return the paths that a name may stand for, and the tables along their paths."""
    along = map(reading.parent_path, parents)
    return [*paths.candidate_paths(spelled), *(path for path in along if path is not None)]


def _is_over_files(path: paths.Path, binding: Binding) -> bool:
    """Whether a path is that of a declared view over files."""
    return any(entry.is_over_files for entry in binding.declarations.about(binding.catalog.table(path), path[0]))


def _tables(
    seen: Mapping[tuple[str, str, str], reading.SeenTable], private: bool, items: Mapping[paths.Path, str]
) -> dict[tuple[str, str, str], CatalogueTable]:
    """Return the seen tables; if a column has `private` labels, with text instead of ENUMs.

    `items` are the FROM items of tables that are not read by their names, by their folded paths.
    """
    tables = {name: source.as_text() if private else source.table for name, source in seen.items()}
    return {name: replace(table, item=items.get(folded(table.path), "")) for name, table in tables.items()}


def _twins(split: Split, twins: Split, files: Iterable[reading.FileView]) -> tuple[tuple[str, str], ...]:
    """Return the texts of a split that read views over files, each with its judged form.

    Judged is what runs: the two forms of a text differ in the FROM items of these views alone.

    Raises
    ------
    InternalError
        I036: they differ elsewhere.
    """
    forms = []
    for sql, judged in zip(_texts(split), _texts(twins), strict=True):
        back = judged
        for view in files:
            back = back.replace(view.twin, view.item)
        if back != sql:
            raise InternalError("I036", "what was written of the query is not what was judged. Report it.")
        if judged != sql:
            forms.append((sql, judged))
    return tuple(forms)


def _spellings(reference: reading.Reference, binding: Binding) -> list[str]:
    return paths.spellings(reading.spelled(reference), binding.search_path, binding.database, [])


def _node(plans: Mapping[str, str], text: str) -> bound.Node | None:
    """Return the plan of a text; raise if DuckDB cannot bind it."""
    if text not in plans:
        raise InternalError("I006", "what the query reads was not asked for. Run the statement again.")
    node = paths.read_plan(plans[text])
    if node is None and '"error":true' in plans[text].replace(" ", ""):
        raise InternalError(
            "I036", f"what was written of the query does not bind: {paths.why_unread(plans[text])} Report it."
        )
    return node


def _texts(division: Split) -> list[str]:
    keys = [key.query for core in division.cores for key in core.keys if key.query is not None]
    listing = [reading.SHOW_TABLES] if "SHOW " in division.post else []
    return [*(core.source for core in division.cores), *keys, stub_sql(division), *listing]
