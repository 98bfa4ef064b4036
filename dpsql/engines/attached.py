"""An engine under the name by which calls refer to it: its sources, and the budgets that they are charged to.

Budgets on an engine follow from the names of tables:

- A table of the engine's catalog has one budget, under its full name behind the engine's:
  ``lake.spark_catalog.clinic.visits``. However a call spells it, the engine says which table that is (`Engine.table`),
  and the call reads the table by its full name, so that no temporary view can take its place. Its owner may declare it
  public, or derived, as a table of DuckDB; if the ledger protects anything, a table of which nothing is declared is
  not answered, whatever budget the caller names.
- A view, a query or a frame has the budgets of the tables that the engine's own plan shows (`engines/provenance.py`).
  Whose rows are in files and in memory, the caller must say, and the guarantee tells that it was claimed. Where the
  plan shows an operator that is not known, the source is refused, unless the budget's owner answers all claims. Nothing
  is declared of a view or a frame: it may be replaced.

An engine's catalog carries no mark of its ledger, and any other may be attached under its name. So, as in a database
without a mark, a budget is kept in the ledger, while public and derived tables are declared for one session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from dpsql.contract.names import TableName, did_you_mean, parts_of
from dpsql.contract.parameters import fold, positive_integer, show, text
from dpsql.contract.placement import Placement
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.placing import place_on_engine, place_seen
from dpsql.engines.duckdb.lineage.refusals import refuse_claim
from dpsql.engines.duckdb.lineage.sources import Owned, Sources
from dpsql.engines.duckdb.session import Session
from dpsql.engines.port import Engine
from dpsql.engines.provenance import Provenance, UnseenError, made_from
from dpsql.engines.task import Predictor, plain
from dpsql.errors import ParameterError, SourceError
from dpsql.released.model import LinearModel

# Number of parts that rows are grouped into: enough for many workers, few enough for small states.
PARTS = 64


@dataclass
class Attached:
    """An engine under the name by which calls refer to it, and the frames that calls read.

    Attributes
    ----------
    name : str
        In small letters, as SQL compares names.
    engine : Engine
    parts : int
        Number of parts that rows are grouped into. All rows of a part are in the memory of a worker at once.
    frames : dict
        Frames of the engine by the names that stand for them in a plan.

    Raises
    ------
    ParameterError
        P079: the name is not a plain word, or `engine` is not an engine. P021: `parts` is not a number of parts.
    """

    name: str
    engine: Engine
    parts: int = PARTS
    frames: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.name) is None:
            raise ParameterError(
                "P079",
                f"an engine's name is one word of letters, digits and underscores; got {show(self.name)}. "
                "Give a name such as 'lake'.",
            )
        if not hasattr(self.engine, "fold_parts"):
            raise ParameterError(
                "P079",
                f"{show(type(self.engine).__name__)} is not an engine. Make one of it: dpsql.polars.engine({{...}}), "
                "dpsql.spark.engine(session) or dpsql.datafusion.engine(session).",
            )
        self.name = fold(self.name)
        self.parts = positive_integer("parts", self.parts, hint="64 is usual.", most=1 << 20)

    @property
    def label(self) -> str:
        """The engine and its version, for receipts: ``'polars 2.1.0'``."""
        return f"{self.engine.name} {self.engine.version}"

    # Sources.

    def relative(self, source: str) -> str:
        """Return the name of a source in the engine: a first part that is the engine's name is left out, once.

        This is the only place where that part means anything. A database that has the engine's name is written with
        both: ``lake.lake.visits``.
        """
        first, dot, rest = source.partition(".")
        return rest if dot and fold(first) == self.name else source

    def table(self, source: str) -> TableName | None:
        """Return the identity of a table of the engine's catalog; None for anything else.

        Raises
        ------
        SourceError
            S024: the engine has no such source.
        """
        path = None if source in self.frames else self.engine.table(self.relative(source))
        return None if path is None else TableName.on_engine(self.name, path)

    def source(self, plan: Plan) -> object:
        """Return what a call reads: the full name of a table (a tuple), the name of a view, or a frame."""
        if plan.placement is not None and plan.placement.tables:
            return tuple(parts_of(plan.source, most=None)[1:])
        return self.frames.get(plan.source, plan.source)

    @contextmanager
    def holding(self, name: str, frame: object) -> Iterator[None]:
        """Let a name stand for a frame in the body of a with statement."""
        self.frames[name] = frame
        try:
            yield
        finally:
            del self.frames[name]

    def schema(self, source: object) -> pa.Schema:
        """Return the column types of a source; no row is read.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S056: it has no columns. S039: two columns differ in case alone. SQL
            cannot tell them apart, so one of them might pass for the column of the privacy unit.
        """
        schema = plain(self.engine.schema(source))
        if not schema.names:
            raise SourceError(
                "S056",
                "the source has no column of a type that calls read. Check its columns, and that its files are there.",
            )
        seen: dict[str, str] = {}
        for name in schema.names:
            other = seen.setdefault(fold(name), name)
            if other is not name:
                raise SourceError(
                    "S039", f"columns {show(other)} and {show(name)} have one name in SQL. Rename one in a view."
                )
        return schema

    def predictions(self, model: LinearModel, source: object) -> object:
        """Return a lazy frame of the engine: the rows of a source with a released model's predictions.

        Raises
        ------
        SourceError
            S024: the engine has no such source. Others as of `Predictor.check`.
        """
        read = self.relative(source) if isinstance(source, str) else source
        predictor = Predictor(model)
        predictor.check(self.schema(read))
        return made_from(self.engine.map(read, predictor.run, predictor.added), read)

    # Budgets.

    def place(self, sources: Sources, source: str, dataset: str | None, privacy_unit: str | None) -> Placement:
        """Decide which budget a source of the engine is charged to.

        Parameters
        ----------
        sources : Sources
        source : str
            As the caller wrote it; or the name that stands for a frame.
        dataset : str or None
            The budget that the caller names.
        privacy_unit : str or None
            The column that the caller names.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S025: whose rows it holds cannot be seen, and no budget is named.
            Others as of `place_on_engine`.
        BudgetError
            B006: nothing is declared of the table.
        """
        table, name = self.table(source), self.relative(source)
        declarations = sources.declarations()
        governed = declarations.governed
        claim = sources.budget_of(dataset) if governed and dataset is not None else None
        unit: str | None = None
        date: str | None = None
        claimed = False
        provenance = self._provenance(source) if table is None else None
        if not governed:
            charged: tuple[str, ...] = (dataset or (name if table is None else table.path),)
        elif isinstance(provenance, UnseenError):
            charged = (self._claimed(source, dataset, claim, declarations.protected),)
            self._refuse_unseen(source, str(provenance), charged[0], declarations)
            claimed = True
        elif provenance is not None:
            claimed = any(scan.table is None for scan in provenance.scans)
            if claimed:
                claim = self._claimed(source, dataset, claim, declarations.protected)
            label = "a frame" if source in self.frames else source
            charged, unit, date = place_seen(
                label,
                self.name,
                provenance,
                declarations,
                dataset=dataset,
                claim=claim,
                privacy_unit=privacy_unit,
            )
            unit, date = (None, None) if claimed else (unit, date)
        else:
            assert table is not None  # noqa: S101 - it is what has no provenance
            charged, unit, date = place_on_engine(
                source,
                table,
                declarations,
                dataset=dataset,
                claim=claim,
                spelled={table.budget, fold(source), fold(name)},
                privacy_unit=privacy_unit,
            )
        return Placement(
            declarations.counter,
            charged,
            written=source,
            source=name if table is None else table.path,
            tables=() if table is None else (table.path,),
            claimed=claimed,
            unit=unit,
            date=date,
            direct=True,  # no view of DuckDB's is read
            governed=governed,
            engine=self.label,
        )

    def _claimed(self, source: str, dataset: str | None, claim: str | None, budgets: Sequence[str]) -> str:
        """Return the budget that the caller says the rows of a view or a frame belong to."""
        if claim is not None:
            return claim
        name = self.relative(source)
        listed = show(next((budget for budget in budgets if fold(budget) == fold(name)), "..."))
        if dataset is not None:
            hint = did_you_mean(dataset, budgets, "SELECT * FROM dp_budget() lists them.")
            raise SourceError("S025", f"there is no budget {show(dataset)}. {hint}")
        label = "a frame" if source in self.frames else f"{show(source)}, a view or a frame,"
        raise SourceError(
            "S025",
            f"on engine {show(self.name)} it cannot be seen whose rows {label} holds. Name their budget: "
            f"dataset := {listed}.",
        )

    def _provenance(self, source: str) -> Provenance | UnseenError:
        """Return what the rows of a view or a frame come from, or what cannot be seen."""
        try:
            return self.engine.provenance(self.frames.get(source, self.relative(source)))
        except UnseenError as unseen:
            return unseen

    def _refuse_unseen(self, source: str, what: str, claim: str, declarations: Declarations) -> None:
        """Raise unless a budget's owner answers claims about rows of which nothing is seen."""
        label = "a frame" if source in self.frames else source
        refuse_claim(label, claim, declarations)
        if declarations.claims(claim) != "all":
            raise SourceError(
                "S053",
                f"on engine {show(self.name)} what a row of {show(label)} comes from cannot be seen ({what}): one row "
                f"of {show(claim)} may change many. Filter and compute columns alone; or collect a frame of Polars, or "
                "write a table and declare it with dp_derive; or let the owner state claims := 'all'.",
            )

    def owned(self, function: str, source: object) -> Owned:
        """Return a table of the engine's catalog that its owner names; types alone are read.

        Parameters
        ----------
        function : str
            Such as ``'dp_public'``.
        source : str
            As its owner wrote it.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S040: it is a view or a frame.
        """
        name = text("source", source, hint="Give the name of a table of the engine.")
        table = self.table(name)
        if table is None:
            raise SourceError(
                "S040",
                f"on engine {show(self.name)} {show(name)} is a view or a frame: what it reads cannot be seen, and it "
                f"may be replaced, so {function} cannot declare it. Write it to a table of the catalog, or name a "
                "budget in each call: dataset := '...'.",
            )
        return Owned(table, name, tuple(self.schema(_parts(table)).names))

    def budgeted(self, source: object, unit: object) -> tuple[str, Owned | None]:
        """Return what `dp_protect` names: a table, or a view or a frame, whose budget has the name alone.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S002: it has no column of the unit's name.
        """
        name = text("dataset", source, hint="Give the name of a table of the engine.")
        if self.table(name) is not None:
            return name, self.owned("dp_protect", name)
        columns = self.schema(self.relative(name)).names
        if unit is not None and fold(str(unit)) not in map(fold, columns):
            raise SourceError("S002", f"there is no column {show(unit)} in {show(name)}. Check its name.")
        return self.relative(name), None

    def base(self, source: str) -> str:
        """Return the budget's name of a table of the engine; any other name, such as of another budget, as it is."""
        try:
            table = self.table(source)
        except SourceError as missing:
            if missing.code != "DPSQL-S024":
                raise
            table = None
        return source if table is None else table.budget

    def catalog(self) -> list[tuple[TableName, str]]:
        """Return the tables of the engine's catalog, each with what a statement calls it."""
        listed = self.engine.catalog().items()
        return [(TableName.on_engine(self.name, parts), f"{self.name}.{spelled}") for spelled, parts in listed]


class Engines:
    """The engines that are attached to one instance of DuckDB, by their names.

    Parameters
    ----------
    sources : Sources
        Keeps what is declared of their tables.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._attached: dict[str, Attached] = {}

    def attach(self, attached: Attached) -> None:
        """Let calls refer to an engine by its name; another engine of this name is replaced.

        What was declared of the tables of the other one is forgotten: this one may have other tables of their names.
        """
        standing = self._attached.get(attached.name)
        if standing is not None and standing.engine is not attached.engine:
            self._sources.forget_engine(attached.name)
        self._attached[attached.name] = attached

    def named(self, name: object) -> Attached:
        """Return the engine of a name.

        Raises
        ------
        ParameterError
            P074: none is attached under this name.
        """
        name = text("engine", name, hint="Give the name of an attached engine.")
        attached = self._attached.get(fold(name))
        if attached is None:
            listed = f" It has: {', '.join(sorted(self._attached))}." if self._attached else ""
            raise ParameterError(
                "P074",
                f"no engine {show(name)} is attached to this session.{listed} Attach it in Python: "
                f"dpsql.attach_engine(connection, {show(name)}, ...), or start dpsql with --engine.",
            )
        return attached

    def place(
        self, engine: object, source: str, dataset: str | None, privacy_unit: str | None
    ) -> tuple[str, Placement]:
        """Return the name of an engine, and the budgets of its source; errors as of `named` and `Attached.place`."""
        attached = self.named(engine)
        return attached.name, attached.place(self._sources, source, dataset, privacy_unit)


def engines_of(session: Session) -> Engines:
    """Return the engines that were handed to a session."""
    if not isinstance(session.engines, Engines):
        raise TypeError("the session has no engines")
    return session.engines


def _parts(table: TableName) -> tuple[str, ...]:
    """Return the full name of a table in its engine."""
    return tuple(parts_of(table.name, most=None))


def engine_of(lineage: Mapping[str, object] | None) -> str | None:
    """Return the engine that read a release's rows, with its version; None for DuckDB."""
    engine = (lineage or {}).get("engine")
    return None if engine is None else str(engine)
