"""The statement of a plain SQL query: all its parts as one relation, and the final rows from their answers.

Every part is the chain of steps that a call of its function runs (`dpsql.engines.duckdb.steps`), in its own frame. The
parts share one gate, which gives each part a ticket, and one release, which takes every part's statistic. So the
release is one value of one materialized query: reading any answer charges all parts in one transaction, and reading no
answer charges none.

A core's answers are a table with the core's name. The post text reads only these tables and public tables; dpsql checks
its plan before it writes the statement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsql.contract.covers import COVERS
from dpsql.contract.json import Json
from dpsql.contract.parameters import fold, narrow
from dpsql.contract.query.catalogue import Path
from dpsql.contract.query.split import NoisyNumbers, QueryAggregate, QueryCore, Split, error_names
from dpsql.engines.duckdb.result_rows import stored_query, tables_sql, texts_sql
from dpsql.engines.duckdb.statements import part_of_query
from dpsql.engines.duckdb.steps.step import Frame, Step, key_types
from dpsql.functions.query import QueryPlan
from dpsql.functions.query_expected import Expected
from dpsql.rendering import call, cast, double, element, field, identifier, struct, text

# The SQL type of a query's release.
CORES = (
    "STRUCT(sequence BIGINT, guarantee VARCHAR, cores STRUCT(keys VARCHAR[], numbers VARCHAR[], "
    "errors DOUBLE[], lower DOUBLE[], upper DOUBLE[], standings DOUBLE[])[][], covers VARCHAR)"
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
            cores.append({**answers, "answers": [*listed, *more]})
        return json.dumps({"confidence": self.confidence, "cores": cores, **({COVERS: True} if self.errors else {})})

    def _over_numbers(self, numbers: NoisyNumbers) -> object:
        """Return how many noisy numbers a column combines, in the release's form; see `dpsql.released.query`."""
        if not numbers.groups:
            return numbers.single
        positions = {core.name: position for position, core in enumerate(self.split.cores)}
        return {"single": numbers.single, "groups": [[positions[name], times] for name, times in numbers.groups]}

    def _spread(self, core: QueryCore) -> list[tuple[int, NoisyNumbers]]:
        """Return the core's numbers with intervals: each number's place, and the count that splits its error chance."""
        return spread(self.split, core) if self.errors else []

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
        """Return how a stored release gives rows, see `dpsql.engines.duckdb.result_rows.stored_answer`."""
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
        return post_sql(self.split.post, free, tables, note=note, more=self._covers if self.errors else "")

    @property
    def _covers(self) -> str:
        """Return the column that says which rows count, named as DuckDB names a repeated column."""
        names = {fold(name) for name, _ in self.split.columns}
        name, number = COVERS, 0
        while name in names:
            number += 1
            name = f"{COVERS}_{number}"
        return f", (SELECT {field('release', COVERS)} FROM {identifier(_DP)}) AS {identifier(name)}"

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


def spread(split: Split, core: QueryCore) -> list[tuple[int, NoisyNumbers]]:
    """Return the core's numbers that form columns: each number's place, and how many numbers form the column.

    If a column combines j noisy numbers, its interval uses for each number an interval whose failure chance is a j-th.
    """
    positions = {column.name: position for position, column in enumerate(core.aggregates)}
    return [(positions[aggregate], count) for name, aggregate, count in split.intervals if name == core.name]


def stub_sql(split: Split, *, errors: bool) -> str:
    """Return the post text over tables without rows, with the names and types of the released tables."""
    tables = []
    for core in split.cores:
        columns = [f"CAST(NULL AS {key.type}) AS {identifier(key.column)}" for key in core.keys]
        for aggregate in core.aggregates:
            columns.append(f"CAST(NULL AS {aggregate.type}) AS {identifier(aggregate.name)}")
        for index, count in spread(split, core) if errors else ():
            names = error_names(core.aggregates[index].name, count)
            columns += [f"CAST(NULL AS DOUBLE) AS {identifier(name)}" for name in names]
        tables.append(f"{identifier(core.name)} AS (SELECT {', '.join(columns)} WHERE false)")
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
    lines = list(dict.fromkeys(lines))
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
    columns = first, (aggregate.other, aggregate.other_lower, aggregate.other_upper, "")
    for name, lower, upper, origin in columns:
        if name is None:
            continue
        wording = "none are needed" if aggregate.kind == "quantile" and not grouped else "drawn privately"
        if lower is not None and upper is not None:
            wording = f"{float(lower):g} to {float(upper):g}{origin}"
        lines.append(f"bounds of {name}: {wording}")
    return lines
