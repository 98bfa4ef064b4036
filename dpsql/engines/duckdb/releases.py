"""Releases in SQL: of the call that runs, which become rows, and of earlier calls, which are read back.

A query's answers become one SQL value. Stored answers become rows again if the query read nothing else. `PastReleases`
looks up results for repeated calls, models, curves, and selections for later calls.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar

import duckdb
import pyarrow as pa

from dpsql.arrays import from_values
from dpsql.contract.covers import COVERS, covers
from dpsql.contract.grant_fields import Asker
from dpsql.contract.json import Json
from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.parameters import show, text
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.lineage.functions import LINE, WHERE
from dpsql.engines.duckdb.lineage.texts import GENERATED
from dpsql.engines.duckdb.synthetic_table import read_count, read_seed
from dpsql.errors import ParameterError
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.registry import CURVES, FUNCTIONS, HISTOGRAMS, MODELS, QUERY, SELECTORS, SYNTHETICS, function_of
from dpsql.ledger.charge import folded_dataset
from dpsql.ledger.ledger import Entry, Ledger
from dpsql.ledger.rows import Older, StoredRelease
from dpsql.released.histogram import Histogram, read_quantiles
from dpsql.released.model import LinearModel
from dpsql.released.query import core_rows, counted, extremes, undetermined
from dpsql.released.results import Curve
from dpsql.released.shapes import KEYS, NOT_RELEASED, key_types
from dpsql.rendering import call, cast, double, element, field, identifier, struct
from dpsql.rendering import text as literal

# The table of a stored release, in the statement that makes rows of it.
STORED = "dpsql_stored"
_ROW = pa.struct(
    [
        ("keys", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.string())),
        *((name, pa.list_(pa.float64())) for name in ("errors", "lower", "upper", "standings")),
        ("draws", pa.list_(pa.list_(pa.float64()))),
    ]
)
_RELEASE = pa.struct(
    [
        *(("sequence", pa.int64()), ("guarantee", pa.string()), ("cores", pa.list_(pa.list_(_ROW)))),
        (COVERS, pa.string()),
    ]
)


class QueryAnswer(NamedTuple):
    """A released query: its ledger number, its receipt, its result, and the requested details of that, as JSON text.

    `covers` returns which rows count (`dpsql.contract.covers`), on request.
    """

    sequence: int
    guarantee: str
    result: Mapping[str, Any]
    asked: str
    covers: Callable[[], str]


def answers(releases: Iterable[QueryAnswer]) -> pa.Array:
    """Return releases as an SQL result."""
    out = []
    for release in releases:
        question = json.loads(release.asked)
        cores = [
            core_rows(release.result, core, question["confidence"]).rows()
            for core in counted(release.result, question["cores"], question.get("coordinates") or {})
        ]
        words = None
        if question.get(COVERS):
            needed = (undetermined(release.result, core, question["confidence"]) for core in question["cores"])
            levels = dict.fromkeys(extremes(release.result, core) for core in question["cores"])
            remark = "" if question[COVERS] is True else f"; {question[COVERS]}"
            words = release.covers() + "".join(levels) + remark + max(needed, key=len, default="")
        out.append({"sequence": release.sequence, "guarantee": release.guarantee, "cores": cores, COVERS: words})
    return from_values(out, _RELEASE)


def stored_answer(release: StoredRelease) -> pa.Table:
    """Return the rows of a stored query, as it ran first; read only its answers.

    Raises
    ------
    ParameterError
        P030: the query reads public tables as well, or its text was not kept.
    """
    answer = (release.lineage or {}).get("answer")
    if isinstance(answer, Mapping):
        words = partial(covers, release.arguments)
        releases = answers([QueryAnswer(release.sequence, "", release.result, str(answer["asked"]), words)])
        # The ledger holds text, so it runs in an instance without anything else.
        with duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"}) as alone:
            alone.register(STORED, pa.table({"release": releases}))
            try:
                alone.execute(f"SET TimeZone = {literal(str(answer['zone']))}")
                return alone.sql(str(answer["sql"])).to_arrow_table()
            except duckdb.Error:
                pass
    raise ParameterError(
        "P030",
        "the ledger holds the answers of the query, and not the public tables that it reads besides. Ask the query "
        "again: it is a free replay.",
    )


def stored_query() -> str:
    """Return the query of a stored release."""
    return f"SELECT release FROM {identifier(STORED)}"


# Names rows while they are cast to their types.
ROWS = f"{FRAME_PREFIX}rows"
# A table of the catalog: its path, and its number, which is constant for the instance's life.
TABLE = struct({"path": call("list_value", "database_name", "schema_name", "table_name"), "number": "table_oid"})


def stored_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that reads a named release back from the ledger and no table.

    `types` are the SQL types of the group keys.
    """
    shape = FUNCTIONS[plan.function].shape.name
    plain = plan.placement is None or plan.placement.is_plain
    released = call(f"dpsql_stored_{shape}", literal(plan.to_json()), "NULL" if plain else texts_sql(plan))
    return f"SELECT {released} AS release{_witnesses(types)}"


def engine_sql(plan: Plan, types: Sequence[str] = ()) -> str:
    """Return the statement that runs a call on the engine of its source; parameters as in `stored_sql`."""
    shape = FUNCTIONS[plan.function].shape.name
    return f"SELECT {call(f'dpsql_engine_{shape}', literal(plan.to_json()))} AS release{_witnesses(types)}"


def _witnesses(types: Sequence[str]) -> str:
    return "".join(f", NULL::{kind} AS key{number}" for number, kind in enumerate(types))


def texts_sql(plan: Plan, *, runs: bool = True) -> str:
    """Return the catalog's entries for a source's texts, see `texts.catalogued`; NULL if it needs no judging.

    A directly read table needs only its functions, and only if the call `runs`.
    """
    placement = plan.placement
    if placement is None:
        return "NULL"
    free, keys, plain = bool(placement.free), bool(placement.keyed), placement.is_plain
    listed = placement.governed and not placement.read and (runs or not plain)
    if (plain or (placement.direct and not placement.governed)) and not (listed or free or keys):
        return "NULL"
    reads_tables = placement.governed and not plain and not (placement.read and placement.seen)
    return catalogued_sql(listed=listed, tables=free or reads_tables, texts=not plain, keys=keys)


def tables_sql() -> str:
    """Return the catalog's tables with their numbers, as one value."""
    return f"(SELECT {call('list', TABLE)} FROM {call('duckdb_tables')} WHERE NOT internal)"


def catalogued_sql(*, listed: bool, tables: bool = False, texts: bool = True, keys: bool = False) -> str:
    """Return the catalog as a struct: the texts of views, and on demand tables, types, macros, functions.

    A call that rests on `keys` gets the constraints of tables, too. DuckDB takes as long to list macros and functions
    as for the rest of a small call.
    """
    path = [
        call("list_value", "database_name", "schema_name", f"{kind}_name") for kind in ("view", "function", "table")
    ]
    own = "WHERE NOT internal"
    lists: dict[str, str] = {}
    if texts:
        view = call("list", struct({"path": path[0], "sql": "sql"}))
        lists["views"] = f"(SELECT {view} FROM {call('duckdb_views')} {own})"
    if tables:
        generated = call("list", struct({"name": "table_name", "sql": "sql"}))
        condition = call("contains", "sql", literal(GENERATED))
        lists["tables"] = tables_sql()
        lists["generated"] = f"(SELECT {generated} FROM {call('duckdb_tables')} {own} AND {condition})"
        kind = call("list", struct({"name": "type_name", "is": "logical_type"}))
        lists["types"] = f"(SELECT {kind} FROM {call('duckdb_types')} {own})"
    if keys:
        row = struct({"path": path[2], "sort": "constraint_type", "columns": "constraint_column_names"})
        lists["keys"] = f"(SELECT {call('list', row)} FROM {call('duckdb_constraints')})"
    if listed:
        macro = {
            "path": path[1],
            "sort": "function_type",
            "parameters": "parameters",
            "types": "parameter_types",
            "body": "macro_definition",
        }
        both = {
            "macros": f"{call('list', struct(macro))} FILTER (WHERE macro_definition IS NOT NULL AND NOT internal)",
            "functions": f"{call('list', LINE)} FILTER (WHERE {WHERE})",
        }
        lists["listed"] = f"(SELECT {struct(both)} FROM {call('duckdb_functions')})"
        lists["transaction"] = call("txid_current")
    return struct(lists)


def rows_sql(plan: Plan, release: str) -> str:
    """Return the query that unpacks the result's rows from a release statement.

    Group keys are columns of their own types, which the release statement shows as NULLs key0, key1, ….
    """
    entries = call("unnest", field("release", "entries"))
    shape = FUNCTIONS[plan.function].shape
    if not shape.has_keys:
        return f"SELECT {call('unnest', 'entry')} FROM (SELECT {entries} AS entry FROM (\n{release}))"
    columns = [
        f"{call('cast_to_type', element(field('entry', KEYS), number + 1), f'key{number}')} AS {identifier(name)}"
        for number, name in enumerate(plan.key_columns if isinstance(plan, GroupedPlan) else ())
    ]
    columns += [f"{field('entry', name)} AS {name}" for name in shape.columns if name != KEYS]
    return f"SELECT {', '.join(columns)} FROM (SELECT {entries} AS entry, * EXCLUDE (release) FROM (\n{release}))"


def stored_rows(connection: duckdb.DuckDBPyConnection, release: StoredRelease) -> pa.Table:
    """Return the rows of a stored release, with its group keys as columns of their own types.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Casts the keys; nothing else may use it.
    release : StoredRelease
    """
    if release.function == QUERY:
        return stored_answer(release)
    shape, result = FUNCTIONS[release.function].shape, release.result
    rows = pa.Table.from_struct_array(shape.entries(result, covers(release.arguments)))
    if not shape.has_keys:
        return rows
    kinds = key_types(result)
    keys = [
        f"{cast(element(KEYS, number + 1), kind)} AS {identifier(name)}"
        for number, (name, kind) in enumerate(zip(result["columns"] if kinds else (), kinds, strict=True))
    ]
    columns = [*keys, *(name for name in shape.columns if name != KEYS)]
    return connection.register(ROWS, rows).sql(f"SELECT {', '.join(columns)} FROM {ROWS}").to_arrow_table()


Result = TypeVar("Result")
AnyPlan = TypeVar("AnyPlan", bound=Plan)


class ModelRow(TypedDict):
    """One model of the ledger, as `dp_models` shows it."""

    model: str | None
    ledger_id: int
    dataset: str
    function: str
    method: str
    target: str
    features: list[str]
    status: str
    guarantee: str
    recorded_at: str
    json: str | None


class PastReleases:
    """The releases of a ledger, by name or number; reading them costs nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._models: dict[tuple[str | int, str | None], LinearModel] = {}

    def chosen(self, dataset: str, key: object, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the features that the release `key` chose, with the layout of its call."""
        releases = [release for name in self._names(dataset) for release in self._releases_of(SELECTORS, name, key)]
        if not releases:
            raise ParameterError(
                "P030",
                f"no selection on dataset {show(dataset)} was released as {show(key)}. "
                "Give release := a name when you select, then features := release('that name').",
            )
        selected = function_of(releases[-1].function).shape.features
        layout, names = releases[-1].arguments["layout"], [] if selected is None else selected(releases[-1].result)
        if not names:
            raise ParameterError(
                "P053", f"release {show(key)} selected no feature. Select again, with a lower threshold."
            )
        layout_arguments = {
            part: layout[part]
            for part in ("n_features", "names", "row_id", "value")
            if arguments.get(part) is None and part in layout
        }
        if layout["kind"] == "wide":
            return {"features": names}
        if layout["kind"] == "long":
            return {**layout_arguments, "features": layout["features"], "names": names}
        return {**layout_arguments, "features": layout["features"], "chosen": names}

    def model(self, key: object, dataset: str | None = None) -> LinearModel:
        """Return a released model.

        Parameters
        ----------
        key : str or int
            Name of the release, or its ledger number.
        dataset : str, optional
            The budget of the release, if two datasets have a release with this name.

        Raises
        ------
        ParameterError
            P030, P053, P055: there is no such model, the call released nothing, or two models match.
        """
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise ParameterError("P013", f"a model must be the name or the number of a release; got {show(key)}.")
        model = self._models.get((key, dataset))
        if model is None:
            released = self._one_release(MODELS, dataset, key, "model", "SELECT * FROM dp_models() lists them.")
            # A released name keeps its model.
            model = self._models[(key, dataset)] = LinearModel.read(released)
        return model

    def curve(self, key: object, dataset: str | None, view: Callable[[Curve], Result]) -> Result:
        """Return a view of a released ROC curve; `key` and errors as for `model`."""
        return view(self._one_release(CURVES, dataset, key, "ROC curve", "Give release := a name to dp_roc.").result)

    def histogram(self, key: object, dataset: str | None, view: Callable[[Histogram, str], Result]) -> Result:
        """Return a view of a released histogram and of the rows that it covers; `key` and errors as for `model`."""
        step = "Give release := a name to dp_histogram."
        release = self._one_release(HISTOGRAMS, dataset, key, "histogram", step)
        return view(release.result, covers(release.arguments))

    def synthetic(self, key: object, dataset: str | None) -> StoredRelease:
        """Return a released model of a table; `key` and errors as for `model`."""
        return self._one_release(SYNTHETICS, dataset, key, "synthetic table", "Give release := a name to dp_synthetic.")

    def _releases_of(self, functions: tuple[str, ...], dataset: str | None, key: object) -> list[StoredRelease]:
        """Return the releases of a name, or the release of a ledger number; no releases for any other key."""
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            return []
        return self._ledger.releases(functions, dataset, key)

    def _one_release(
        self, functions: tuple[str, ...], dataset: str | None, key: object, what: str, step: str
    ) -> StoredRelease:
        """Return the only release of a name or number; raise if there is none or more than one."""
        releases = self._releases_of(functions, dataset, key)
        if not releases:
            raise ParameterError("P030", f"no {what} was released as {show(key)}. {step}")
        if len(releases) > 1:
            raise ParameterError("P055", f"more than one dataset has a {what} {show(key)}. Give dataset := as well.")
        return releases[0]

    def replay(self, plan: Plan) -> Entry | None:
        """Return the stored result of a named release, if it exists."""
        name = plan.release
        return None if name is None else self._ledger.of_one_state(lambda: self._replay(plan, name))

    def _replay(self, plan: Plan, name: str) -> Entry | None:
        for dataset in self._names(plan.dataset):
            candidate = plan if dataset == plan.dataset else replace(plan, dataset=dataset)
            fingerprint = self._ledger.fingerprint(dataset, plan.function, candidate.public_arguments)
            recorded = candidate.public_arguments
            entry = self._ledger.replay(dataset, name, fingerprint, self.older(candidate), recorded)
            if entry is not None:
                return entry
        return None

    def of_age(self, plan: AnyPlan, age: float | None, *, fresh: bool = False) -> AnyPlan:
        """Return a plan under the name of a recent enough stored release, or of a new release.

        If the latest answer under a plan's name is older than `age` seconds, or `fresh` is true, the next answer has
        the name with the next number.
        """
        latest, entry = self._ledger.of_one_state(lambda: self._latest(plan))
        if entry is None or (not fresh and (age is None or _seconds_since(entry.recorded_at) <= age)):
            return _numbered(plan, latest)
        return _numbered(plan, latest + 1)

    def asked_by(self, plan: AnyPlan, asker: Asker) -> AnyPlan:
        """Return a plan under the name of its question: equal questions of one scope have one answer.

        The name depends on everything that identifies the call, and not on its text: its function, its recorded
        arguments and the meaning of its source.
        """
        question = replace(plan, principal=asker.principal)
        plan = self.of_question(
            question, lambda record: f"{asker.scope} {digest_of([plan.function, plan.dataset, record])}"
        )
        if asker.fresh and asker.key:
            return replace(plan, release=f"{plan.release} {digest_of(asker.key)}")
        return self.of_age(plan, asker.max_age, fresh=asker.fresh)

    def of_question(self, plan: AnyPlan, name: Callable[[dict[str, Json]], str]) -> AnyPlan:
        """Return a plan under the name from its arguments; use an earlier version's name if only that one is stored."""
        first, *earlier = (
            replace(plan, release=name(record)) for record in (plan.public_arguments, *plan.earlier_arguments())
        )
        if not earlier or self.replay(first) is not None:
            return first
        return next((candidate for candidate in earlier if self.replay(candidate) is not None), first)

    def _latest(self, plan: AnyPlan) -> tuple[int, Entry | None]:
        """Return the latest release under a plan's name, with its number from 0; 0 and None if there is none."""
        entry = self.replay(plan)
        if entry is None:
            return 0, None
        low, high, step = 0, None, 1
        while high is None or high - low > 1:  # numbers are consecutive: double the step, then halve it
            tried = low + step if high is None else (low + high) // 2
            candidate = self.replay(_numbered(plan, tried))
            if candidate is None:
                high = tried
            else:
                low, entry, step = tried, candidate, step * 2
        return low, entry

    def _names(self, dataset: str) -> Iterator[str]:
        """Yield a dataset, and then the datasets that it replaced."""
        yield dataset
        aliases = self._ledger.declarations().aliases
        yield from (name for name, into in aliases.items() if into == folded_dataset(dataset))

    def older(self, plan: Plan) -> Older:
        """Return a function for a call's fingerprints in versions with other defaults.

        It includes those of a one-table dataset that is now one of several tables; on request, also those from before
        the ledger recorded a source's meaning.
        """

        def older(before_lineage: bool) -> set[str]:
            records = [plan.public_arguments, *plan.earlier_arguments()]
            if plan.placement is not None and plan.placement.earlier:  # an earlier version included labels
                records += [{**record, "content": plan.placement.earlier} for record in records]
            alone = None if plan.during is None else plan.during.of_one_table
            if alone is not None:  # before its dataset was merged into one of several tables
                records += [{**record, "during": alone.to_json()} for record in records]
            if before_lineage:
                records += [_without_meaning(record, plan) for record in records]
            return {self._ledger.fingerprint(plan.dataset, plan.function, record) for record in records}

        return older

    def models(self) -> list[ModelRow]:
        """Return one row per model in the ledger, oldest first."""
        rows: list[ModelRow] = []
        for entry in self._ledger.releases(MODELS):
            released = entry.result["coefficients"] is not None
            rows.append(
                {
                    "model": entry.name,
                    "ledger_id": entry.sequence,
                    "dataset": entry.dataset,
                    "function": entry.function,
                    "method": entry.result["method"],
                    "target": entry.arguments["layout"]["target"],
                    "features": entry.result["terms"][1:],
                    "status": "released" if released else f"{NOT_RELEASED}: {entry.result['reason']}",
                    "guarantee": entry.guarantee,
                    "recorded_at": entry.recorded_at,
                    "json": LinearModel.read(entry).to_json() if released else None,
                }
            )
        return rows

    def forget_models(self) -> None:
        """Forget the cached models: after another release, a name without a dataset may match two models."""
        self._models.clear()


def view_sql(view: str, key: object, dataset: object, *more: str, by_name: bool = False) -> str:
    """Return the query of a table function that reads a release again, by its name or number.

    Parameters
    ----------
    view : str
        The function.
    key, dataset : object
        As for `PastReleases.model`.
    *more : str
        Further arguments, as SQL.
    by_name : bool
        Whether the release is a named argument.
    """
    release = str(key) if isinstance(key, int) else literal(text("release", key, hint="Name a release."))
    of = "NULL" if dataset is None else literal(text("dataset", dataset, hint="Name a dataset."))
    first = f"release := {release}" if by_name else release
    return f"SELECT * FROM {view}({', '.join((first, *more))}, dataset := {of})"


def quantiles_asked(quantiles: object) -> str:
    """Return the requested quantiles as SQL; for errors see `read_quantiles`."""
    return call("list_value", *map(double, read_quantiles(quantiles)))


def rows_asked(count: object, seed: object) -> list[str]:
    """Return the given arguments of dp_synthetic_rows as SQL; for errors see `read_count`, `read_seed`."""
    number, seed_text = read_count(count), read_seed(seed)
    arguments = [] if number is None else [f"n := {number}"]
    return arguments if seed_text is None else [*arguments, f"seed := {literal(seed_text)}"]


def digest_of(value: Json) -> str:
    """Return the digest of JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _numbered(plan: AnyPlan, number: int) -> AnyPlan:
    return plan if not number else replace(plan, release=f"{plan.release} #{number + 1}")


def _seconds_since(recorded: str) -> float:
    """Return the seconds since a recorded time; infinity if the time is unreadable."""
    try:
        then = datetime.datetime.fromisoformat(recorded.replace("Z", "+00:00"))
    except ValueError:
        return float("inf")
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.UTC)
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def _without_meaning(record: Mapping[str, Json], plan: Plan) -> dict[str, Json]:
    """Return a call's arguments as recorded before the ledger recorded the meaning of a source."""
    arguments = {name: value for name, value in record.items() if name != "content"}
    if plan.placement is not None and "source" in arguments:
        arguments["source"] = plan.placement.written
    return arguments
