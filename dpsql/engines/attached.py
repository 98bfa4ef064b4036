"""Engines by the names that calls use: the sources of each engine, and their budgets.

The names of tables decide budgets on an engine:

- A table of the engine's catalog has one budget, under the names of the engine and the table:
  ``lake.spark_catalog.clinic.visits``. The engine identifies the table in any spelling (`Engine.table`), and the call
  reads the table by its full name, so no temporary view can replace it. Its owner may declare it public or derived,
  like a table of DuckDB. If the ledger protects anything, dpsql refuses a table without a declaration, whatever budget
  the caller names.
- A view, a query or a frame has the budgets of the tables in the engine's own plan (`engines/provenance.py`). The
  caller must name the budget of rows in files and in memory, and the guarantee tells that the caller claimed it. dpsql
  refuses a plan with an unknown operator, unless the budget has ``claims := 'all'``. Nobody can declare a view or a
  frame: it may be replaced.

An engine's catalog has no database ID, and any other catalog may be attached under its name. So, as for a database
without an ID, the ledger stores the budgets, and public and derived tables are declared for one session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

import pyarrow as pa

from dpsql.contract.names import TableName, did_you_mean, parts_of
from dpsql.contract.parameters import fold, positive_integer, show, text
from dpsql.contract.plan import Placement, Plan
from dpsql.dataclass import dataclass
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

# Default number of parts of the rows: enough for many workers, few enough for small states.
PARTS = 64


@dataclass
class Attached:
    """An engine under the name that calls use, and the frames that calls read.

    Attributes
    ----------
    name : str
        In lower case, as SQL compares names.
    engine : Engine
    parts : int
        Number of parts of the rows. A worker has all rows of a part in memory at once.
    frames : dict
        Frames of the engine by their names in a plan.

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
        """Return the name of a source in the engine: remove the engine's name at the front, once.

        Only this function gives the first part a meaning. The name of a database with the engine's name has both parts:
        ``lake.lake.visits``.
        """
        first, dot, rest = source.partition(".")
        return rest if dot and fold(first) == self.name else source

    def table(self, source: str) -> TableName | None:
        """Return the identity of a table of the engine's catalog; None for any other source.

        Raises
        ------
        SourceError
            S024: the engine has no such source.
        """
        path = None if source in self.frames else self.engine.table(self.relative(source))
        return None if path is None else TableName.on_engine(self.name, path)

    def source(self, plan: Plan) -> object:
        """Return the source of a call: a table's full name (a tuple), a view's name, or a frame."""
        if plan.placement is not None and plan.placement.tables:
            return tuple(parts_of(plan.source, most=None)[1:])
        return self.frames.get(plan.source, plan.source)

    @contextmanager
    def holding(self, name: str, frame: object) -> Iterator[None]:
        """Register a frame under a name for the `with` block."""
        self.frames[name] = frame
        try:
            yield
        finally:
            del self.frames[name]

    def schema(self, source: object) -> pa.Schema:
        """Return the column types of a source without reading rows.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S056: the source has no columns. S039: two columns differ in case
            alone. SQL cannot tell them apart, so one could pass for the privacy unit's column.
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
        """Return a lazy frame of the engine: a source's rows with a released model's predictions.

        Raises
        ------
        SourceError
            S024: the engine has no such source. Other errors: see `Predictor.check`.
        """
        read = self.relative(source) if isinstance(source, str) else source
        predictor = Predictor(model)
        predictor.check(self.schema(read))
        return made_from(self.engine.map(read, predictor.run, predictor.added), read)

    # Budgets.

    def place(self, sources: Sources, source: str, dataset: str | None, privacy_unit: str | None) -> Placement:
        """Decide which budget pays for a source of the engine.

        Parameters
        ----------
        sources : Sources
        source : str
            As the caller wrote it, or the name of a frame.
        dataset : str or None
            The budget that the caller names.
        privacy_unit : str or None
            The column that the caller names.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S025: the plan does not show the rows' owner, and the caller names no
            budget. Other errors: see `place_on_engine`.
        BudgetError
            B006: the table has no declaration.
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
            assert table is not None  # noqa: S101 - only a table has no provenance
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
            direct=True,  # the call reads no DuckDB view
            governed=governed,
            engine=self.label,
        )

    def _claimed(self, source: str, dataset: str | None, claim: str | None, budgets: Sequence[str]) -> str:
        """Return the budget that the caller claims for the rows of a view or a frame."""
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
        """Return the origin of a view's or frame's rows, or the unseen part's error."""
        try:
            return self.engine.provenance(self.frames.get(source, self.relative(source)))
        except UnseenError as unseen:
            return unseen

    def _refuse_unseen(self, source: str, what: str, claim: str, declarations: Declarations) -> None:
        """Raise unless a budget's owner accepts claims about rows of unseen origin."""
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
        """Return a table of the engine's catalog that its owner names; read only types.

        Parameters
        ----------
        function : str
            Such as ``'dp_public'``.
        source : str
            As the owner wrote it.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S040: the source is a view or a frame.
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
        """Return the source that `dp_protect` names: a table, or a view's or frame's name for its budget.

        Raises
        ------
        SourceError
            S024: the engine has no such source. S002: the source has no column with the unit's name.
        """
        name = text("dataset", source, hint="Give the name of a table of the engine.")
        if self.table(name) is not None:
            return name, self.owned("dp_protect", name)
        columns = self.schema(self.relative(name)).names
        if unit is not None and fold(str(unit)) not in map(fold, columns):
            raise SourceError("S002", f"there is no column {show(unit)} in {show(name)}. Check its name.")
        return self.relative(name), None

    def base(self, source: str) -> str:
        """Return the budget name of a table of the engine; return any other name unchanged."""
        try:
            table = self.table(source)
        except SourceError as missing:
            if missing.code != "DPSQL-S024":
                raise
            table = None
        return source if table is None else table.budget

    def catalog(self) -> list[tuple[TableName, str]]:
        """Return the tables of the engine's catalog, each with its spelling in a statement."""
        listed = self.engine.catalog().items()
        return [(TableName.on_engine(self.name, parts), f"{self.name}.{spelled}") for spelled, parts in listed]


class Engines:
    """The engines of one DuckDB instance, by name.

    Parameters
    ----------
    sources : Sources
        Stores the declarations of their tables.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._attached: dict[str, Attached] = {}

    def attach(self, attached: Attached) -> None:
        """Attach an engine under its name; replace another engine with this name.

        The session forgets declarations of the replaced engine's tables: the new engine may use their names for others.
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
            P074: no engine has this name.
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
        """Return the engine's name and the budgets of its source; for errors see `named` and `Attached.place`."""
        attached = self.named(engine)
        return attached.name, attached.place(self._sources, source, dataset, privacy_unit)


def engines_of(session: Session) -> Engines:
    """Return the engines of a session."""
    if not isinstance(session.engines, Engines):
        raise TypeError("the session has no engines")
    return session.engines


def _parts(table: TableName) -> tuple[str, ...]:
    """Return the full name of a table in its engine."""
    return tuple(parts_of(table.name, most=None))
