"""Plan of a call: its checked public arguments, and nothing private; and the placement of its source.

A `Placement` is the origin of a source's rows, and the budgets that a call on it charges. A `Pass` states what every
engine must know before it reads a row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import ClassVar, Self, final

from dpsql.contract import parameters
from dpsql.contract.arguments import CONDITION, DURING, ENGINE, EPSILON, NEIGHBOUR_RELATION, Signature, hashable
from dpsql.contract.events import Event
from dpsql.contract.expression.judge import Judged
from dpsql.contract.grant_fields import DEFAULTS
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, has_no_target_code, target_of
from dpsql.contract.measurement import Measurement
from dpsql.contract.names import FRAME_PREFIX, NAMELESS
from dpsql.contract.parameters import Level, narrow
from dpsql.contract.periods import DATED, Dated, During
from dpsql.contract.relation import Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.noise.discrete import LARGEST_SCALE


@dataclass(frozen=True)
class Placement:
    """Origin of a source's rows.

    Attributes
    ----------
    counter : int
        State of the ledger's declarations at the decision; see `Declarations.counter`.
    charged : tuple of str
        Budgets to charge; the policy of the first budget applies.
    written : str
        The source as the caller wrote it.
    source : str
        Spelling to read, which no WITH query of the caller can shadow.
    tables : tuple of str
        Tables that the source reads, as far as they are visible.
    seen : bool
        Whether DuckDB could serialise the plan.
    claimed : bool
        Whether `charged` rests on the caller's statement alone.
    unit : str or None
        Column of the privacy unit, traced through the plan.
    date : str or None
        Column of the date for the dataset's periods, traced through the plan.
    dated : tuple of (str, str or None)
        Date declarations of the tables that the source reads, if there are several; see `Dated.tables`.
    undated : bool
        Whether the rows of a dataset with periods have no date.
    numbered : bool
        Whether the plan shows that the column of the privacy unit holds integers of at most 64 bits.
    content : str
        Digest of the source's meaning: equal for different spellings, different for different views.
    earlier : str
        Digest with private labels, as earlier versions recorded it; ``''`` if the source reads none.
    direct : bool
        Whether the source is a table of the catalog, not a view, file or frame.
    checked : bool
        Whether DuckDB checked that all text in the source is UTF-8, when it stored the rows.
    governed : bool
        Whether the ledger protects any table.
    views : str
        Digest of the SQL of the views that the source depends on. The gate sets it, so it does not distinguish calls.
    plan : str
        Digest of the source's bound plan.
    enums : bool
        Whether a column that the plan reads has an ENUM type.
    texts : tuple of (str, str)
        Columns with private labels, by name, each with the SQL that reads it as text. They do not distinguish calls:
        the rows are the same.
    state : int or None
        State of the catalog at the decision; see `CatalogState`.
    read : bool
        Whether the texts behind the source were already judged in this state of the catalog.
    generated : bool
        Whether a directly read table has columns that DuckDB computes on reading.
    joined : str
        FROM item of a table with the joins along its path to the privacy unit; ``''`` without joins.
    rows_per_unit : int or None
        Row limit per privacy unit, from declarations of the tables.
    once : bool
        Whether the plan leaves each privacy unit at most one row, so that a row limit of 1 is enough.
    free : tuple of (str, str, str)
        Paths of tables that the source reads as public.
    keyed : tuple of tuple of str
        Table keys that make orders total: database, schema, table, and the key's columns. dpsql reads them again when
        the statement runs.
    loose : tuple of (str, str)
        Number columns, with types, whose values are fixed except for their spelling, such as 0 and -0. A call reads
        them with one spelling.
    engine : str
        Engine that holds the source, and its version; ``''`` for DuckDB.
    files : tuple of (str, str, str)
        Paths of the views over files that a query reads. Their texts are judged when the statement runs.
    """

    counter: int
    charged: tuple[str, ...] = ()
    written: str = ""
    source: str = ""
    tables: tuple[str, ...] = ()
    seen: bool = False
    claimed: bool = False
    unit: str | None = None
    content: str = ""
    direct: bool = False
    checked: bool = False
    governed: bool = True
    earlier: str = field(default="", compare=False)
    views: str = field(default="", compare=False)
    plan: str = field(default="", compare=False)
    enums: bool = field(default=False, compare=False)
    texts: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    state: int | None = field(default=None, compare=False)
    read: bool = field(default=False, compare=False)
    generated: bool = field(default=False, compare=False)
    joined: str = ""
    rows_per_unit: int | None = None
    once: bool = False
    engine: str = ""
    date: str | None = None
    dated: tuple[tuple[str, str | None], ...] = ()
    undated: bool = False
    numbered: bool = field(default=False, compare=False)
    free: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    keyed: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    loose: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    files: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the source is a table that stores all its columns, so that no text is behind it."""
        return self.direct and not self.generated

    @property
    def key(self) -> str:
        """Key for a judgement of the texts behind the source; ``''`` without texts."""
        return "" if self.is_plain else f"{self.enums} {self.plan} {self.source}"

    def rows_stated(self, policy: object) -> object:
        """Return the row limit per privacy unit for a call without one; `policy` is the owner's limit.

        This is a default: any limit on the rows keeps the guarantee.
        """
        return 1 if self.once else self.rows_per_unit or policy

    def to_json(self) -> dict[str, Json]:
        """Return the placement as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Placement:
        """Return the placement that `to_json` wrote."""
        plain = {name: hashable(value) for name, value in record.items()}
        build: Callable[..., Placement] = cls
        return build(**plain)


def engine_of(lineage: Mapping[str, object] | None) -> str | None:
    """Return the engine that read a release's rows, with its version; None for DuckDB."""
    engine = (lineage or {}).get("engine")
    return None if engine is None else str(engine)


# Statements that compute a statistic: from rows that the call's collector reads, or as sums in SQL.
COLLECTED, XTY, HISTOGRAM, SCORES = "collected", "xty", "histogram", "scores"
FEATURE_COUNTS, GROUPED = "feature_counts", "grouped"


@dataclass(frozen=True)
class Pass:
    """One reading of the rows by a call.

    Attributes
    ----------
    statement : str
        Name of the statement that computes the statistic.
    keyed : bool
        Whether every row has a key that is the same in all passes: a hash of its id, or without an id of its
        contents. The key decides the block of the row.
    whole_blocks : int
        Number of blocks that sort the rows before collection; 0 for no sorting.
    most_rows : int or None
        Limit on the number of rows that count; the call drops excess rows at random. None for no limit.
    draws_names : bool
        Whether the feature names are private, and drawn from the rows of this pass.
    keeps_rows : str
        Alternative to request on an engine if the pass must store single rows; empty if the statistic is a fold.
    may_stop : bool
        Whether the rows of earlier passes may leave this pass out.
    reads_rows : bool
        Whether the pass reads rows, rather than earlier draws.
    """

    statement: str = COLLECTED
    keyed: bool = False
    whole_blocks: int = 0
    most_rows: int | None = None
    draws_names: bool = False
    keeps_rows: str = ""
    may_stop: bool = False
    reads_rows: bool = True


# Name, value and meaning of one line of dp_estimate.
Quantity = tuple[str, float, str]
# Gaussian noise of this many rows exceeds any signal, but is still within the samplers' range.
WIDEST_ROWS = 10**9
# Largest number of rows in an argument.
MOST_ROWS = 10**12
# For functions that do not use the owner's declared bounds of features and target.
NOT_STATED: Mapping[str, str | None] = dict.fromkeys(("lower", "upper", "target_lower", "target_upper"))


# Fields of a plan that do not identify its call.
NO_ARGUMENTS = ("principal", DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """The checked public arguments of one call.

    A field of a function's own plan holds the checked value of the argument with its name, unless a comment says more.

    Attributes
    ----------
    source : str
        The source's name as written; ``''`` in the aggregate form.
    layout : Layout
        Role of each column.
    epsilon : Fraction
        Privacy loss of the whole call, > 0.
    target_bounds : tuple of float or None
        Public bounds of a numeric target.
    target_levels : tuple or None
        The two public levels of a text or boolean target; the first is coded -1, the second +1.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Row limit per privacy unit, from 1 to 1e9.
    dataset : str
        Name of the budget to charge.
    release : str or None
        Name of the release.
    condition : str or None
        Condition for rows to count, see `dpsql.contract.relation`; None for all rows.
    judged : Judged or None
        SQL that replaces the condition; None until the types of its columns are known.
    placement : Placement or None
        Origin of the rows and budgets to charge; None if not determined.
    engine : str or None
        Name of the attached engine that holds the source; None for DuckDB.
    during : During or None
        Periods whose rows the call sees, and whose blocks it charges; None for a dataset without periods.
    principal : str or None
        Principal of a gateway query; not a part of the query.
    defaults : tuple of str
        ``'epsilon'`` and ``'delta'``, if the call left them out and a default took their place; not a part of the
        query: a call that states the same amounts is the same call.
    """

    source: str
    layout: Layout
    epsilon: Fraction
    target_bounds: tuple[float, float] | None
    target_levels: tuple[Level, Level] | None
    neighbours: str
    max_rows_per_unit: int
    dataset: str
    release: str | None
    condition: str | None = None
    judged: Judged | None = None
    placement: Placement | None = None
    engine: str | None = None
    during: During | None = None
    principal: str | None = None
    defaults: tuple[str, ...] = ()

    function: ClassVar[str]
    # All arguments after the source.
    arguments: ClassVar[Signature]
    # Argument after which the aggregate form has `n_features` and `names`; None keeps their position.
    names_after: ClassVar[str | None] = None
    # Whether the target has two public levels, by default false and true, or 0 and 1; other rows are ignored.
    target_is_label: ClassVar[bool] = False
    # Argument for the two levels.
    levels_argument: ClassVar[str] = "target_levels"
    # This function's names for the owner's declared bounds; None drops a bound.
    stated_as: ClassVar[Mapping[str, str | None]] = {}
    # Whether adding up a row of few columns takes less time than passing it to Python.
    adds_fast: ClassVar[bool] = False

    @classmethod
    def from_arguments(
        cls, source: str, arguments: Mapping[str, object], protection: Mapping[str, object] | None = None
    ) -> Self:
        """Check the arguments of a call.

        Parameters
        ----------
        source : str
            The source's name, or ``''`` in the aggregate form.
        arguments : mapping
            Values by the names in `arguments`; a missing argument has its default. The further key ``chosen`` holds the
            elements of a vector that an earlier release selected.
        protection : mapping, optional
            Values that the data's owner declared with `dp_protect` (bounds, neighbours, privacy unit), for arguments
            that the call leaves out. `DATED` holds the dates of the source's rows, if any.

        Raises
        ------
        ParameterError
            The code, and the valid form of the failing argument.
        """
        values = cls.arguments.fill(arguments)
        dated = (protection or {}).get(DATED)
        cls._fill(values, dict(protection or {}), of_table=bool(source))
        layout = cls._layout({**values, "chosen": arguments.get("chosen")})
        own = cls._own(values, layout)
        target_bounds, target_levels = target_of(values)
        release = values["release"]
        if release is not None:
            release = parameters.text("release", release, hint="Give the release a name, or leave it out.")
        dataset = values["dataset"] if values["dataset"] is not None else source or NAMELESS
        dataset = parameters.text("dataset", dataset, hint="Give the name of the budget to charge.")
        build: Callable[..., Self] = cls  # each function has its own fields
        return build(
            source=source,
            layout=layout,
            epsilon=parameters.epsilon(values[EPSILON.name]),
            target_bounds=target_bounds,
            target_levels=target_levels,
            neighbours=NEIGHBOUR_RELATION.read(values) or "add_remove",
            max_rows_per_unit=cls._rows_per_unit(values, layout),
            dataset=dataset,
            release=release,
            condition=narrow(str, CONDITION.read(values)) if values.get(CONDITION.name) is not None else None,
            engine=cls._engine(values),
            during=During.read(values.get(DURING.name), dated if isinstance(dated, Dated) else None),
            **own,
        )

    @staticmethod
    def _engine(arguments: Mapping[str, object]) -> str | None:
        """Return the name of the engine that holds the source."""
        name = arguments.get(ENGINE.name)
        return None if name is None else parameters.text("engine", name, hint="Give the name of an attached engine.")

    @classmethod
    def _fill(cls, arguments: dict[str, object], protection: dict[str, object], *, of_table: bool) -> None:
        """Fill in the owner's declared values for arguments that the call leaves out."""
        keys = protection.pop("keys", {})
        target = arguments["label"] if "label" in arguments else arguments.get("target")  # curves call it a label
        declared = narrow(dict, keys).get(parameters.fold(str(target))) if of_table else None
        levels = [level for level in declared or () if level is not None]
        if len(levels) == 2 and has_no_target_code(arguments):
            arguments["target_levels"] = levels
            protection = {name: value for name, value in protection.items() if not name.startswith("target_")}
        for stated_name, value in protection.items():
            name = cls.stated_as.get(stated_name, stated_name)
            if value is not None and name in arguments and arguments[name] is None:
                arguments[name] = value

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    @property
    def target_needs_bounds(self) -> bool:
        """Whether a numeric target needs bounds, because the statistic sums its coded values; else it stays uncoded."""
        return True

    @classmethod
    def stand_ins(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return values, by name, for required arguments that do not affect the noise, next to the given ones."""
        return cls.arguments.stand_ins

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        """Return the layout of the source."""
        return Layout.from_arguments(arguments)

    @classmethod
    def _rows_per_unit(cls, arguments: Mapping[str, object], layout: Layout) -> int:
        """Return the rows that one privacy unit may contribute."""
        rows = arguments["max_rows_per_unit"]
        if (layout.privacy_unit is None) != (rows is None):
            raise ParameterError(
                "P009",
                "privacy_unit and max_rows_per_unit go together. Give the id's column and the rows that one id may "
                "contribute, such as max_rows_per_unit := 10.",
            )
        if rows is None:
            return 1
        return parameters.positive_integer(
            "max_rows_per_unit", rows, hint="Give the rows that one privacy unit may contribute."
        )

    @classmethod
    @abstractmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        """Return the checked fields that only this function has."""

    @classmethod
    def _read(cls, arguments: Mapping[str, object], *names: str) -> dict[str, object]:
        """Return the checked values of some arguments, and check them in this order."""
        return {name: cls.arguments[name].read(arguments) for name in names}

    def check_features(self, count: int) -> None:  # noqa: B027 - a function may have nothing to check
        """Raise if the arguments do not fit the number of features."""

    def check_drawable(self, count: int) -> None:
        """Raise unless dpsql can draw every part of the budget for `count` features.

        A share of a budget can be too small to be useful, and its noise can exceed the samplers' range. Both follow
        from public arguments, so this check runs before dpsql reads a row, and no later step fails because of them.
        """
        for scale in self.laplace_scales(count):
            refuse_wide_noise(scale)
        for part in self.gaussian_parts(count):
            refuse_small_part(part)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of all Laplace noise of the call for `count` features."""
        return ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu for Gaussian noise, each per row of a privacy unit."""
        return ()

    @property
    def row_columns(self) -> Mapping[str, str] | None:
        """Columns in the row's struct, by their names there; None for all columns of the source."""
        layout = self.layout
        if layout.kind == "wide" and layout.features is None:
            return None
        columns = [layout.target] if layout.target else []
        if layout.kind == "wide":
            columns += layout.features or ()
        elif layout.kind == "array" or not columns:  # long rows without a target: a struct has at least one field
            columns.append(str(layout.features))
        return {name: name for name in columns}

    @property
    def told_rows(self) -> int | None:
        """Row limit per privacy unit, as messages show it; None if they show another number."""
        return self.max_rows_per_unit

    @final
    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of the call, in order; each may use draws that follow earlier passes."""
        return self._passes()

    def _passes(self) -> tuple[Pass, ...]:
        return (Pass(),)

    @final
    @cached_property
    def readings(self) -> int:
        """Number of passes over the rows, or the largest number if passes may be left out."""
        return sum(reading.reads_rows for reading in self.passes)

    @final
    @property
    def statement(self) -> str:
        """Name of the statement that computes the statistic, in all passes."""
        return self.passes[0].statement

    @final
    @property
    def keeps_rows(self) -> str:
        """Alternative to request on an engine if a pass must store single rows; empty if all statistics are folds."""
        return next((reading.keeps_rows for reading in self.passes if reading.keeps_rows), "")

    @final
    @property
    def is_summed_in_sql(self) -> bool:
        """Whether DuckDB may sum a statistic of its own table; engines and the aggregate form use collectors."""
        return bool(self.source) and self.engine is None

    @property
    @abstractmethod
    def measurement(self) -> Measurement:
        """Spending and draws of the call: its mechanisms in order, each with its share of the loss."""

    @property
    def event(self) -> Event:
        """The event that the ledger records: the mechanisms and their parameters."""
        return self.measurement.event

    @abstractmethod
    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call, from public numbers.

        Parameters
        ----------
        n_features : int
        n_rows : int or None
            A public guess of the number of rows, for comparison with the noise.

        Returns
        -------
        quantities : list of (name, value, meaning)
        """

    def has_enough_rows(self, line: str, n_features: int, rows: int) -> bool:
        """Return whether this many rows satisfy a line of `noise`, such as ``'rows_needed'``."""
        return any(name == line and value <= rows for name, value, _ in self.noise(n_features, rows))

    def earlier_arguments(self) -> Iterator[dict[str, Json]]:
        """Yield the arguments as earlier versions, with other defaults, recorded the same call.

        A call may have left out an argument that has its present default. A repeated call with a release name means the
        original call.
        """
        record = self.public_arguments
        changed: list[tuple[str, list[Json]]] = []
        for name, argument in self.arguments.items():
            if not argument.earlier:
                continue
            defaults = (argument.default, *argument.earlier)
            forms = [None if value is None else _plain(argument.read({name: value})) for value in defaults]
            if record.get(name) == forms[0]:
                changed.append((name, forms))
        for values in islice(product(*(forms for _, forms in changed)), 1, None):
            other = record | dict(zip((name for name, _ in changed), values, strict=True))
            yield {name: value for name, value in other.items() if value is not None}

    @property
    def chosen_by_date(self) -> During | None:
        """The periods that select rows; None without such periods."""
        return None if self.during is None or self.during.is_undated else self.during

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """The call's arguments as JSON values, stored with the charge and compared on a replay."""
        record = self._record()
        del record["placement"], record["judged"]
        for name in NO_ARGUMENTS:
            record.pop(name, None)
        if self.placement is not None and self.placement.content:
            record["content"] = self.placement.content  # the source's meaning, which may change under the same name
        if self.source.startswith(FRAME_PREFIX):
            record["source"] = "frame"  # its name is random, and a repeated call must replay
        record["layout"] = {name: value for name, value in vars(self.layout).items() if value is not None}
        return {name: _plain(value) for name, value in record.items() if value is not None and name != "release"}

    def _record(self) -> dict[str, object]:
        """Return the fields by name, including the layout's fields."""
        record = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        for name in NO_ARGUMENTS:
            if not record[name]:
                del record[name]
        during = None if self.during is None else self.during.to_json()
        return {**record, "layout": dict(vars(self.layout)), "during": during}

    def to_json(self) -> str:
        """Return the plan as JSON text; `dpsql.functions.registry.plan_from_json` reads it."""
        record = {"function": self.function, **self._record()}
        for name in ("judged", "placement"):
            part: Judged | Placement | None = getattr(self, name)
            record[name] = None if part is None else part.to_json()
        return json.dumps({name: _plain(value) for name, value in record.items()}, ensure_ascii=False)

    @classmethod
    def from_record(cls, record: Mapping[str, Json]) -> Self:
        """Return the plan that `to_json` wrote."""
        build_layout: Callable[..., Layout] = Layout
        layout = build_layout(**{name: hashable(value) for name, value in narrow(dict, record["layout"]).items()})
        rest: dict[str, object] = {}
        for attribute in fields(cls):
            if attribute.name in NO_ARGUMENTS and attribute.name not in record:
                continue
            stored = record[attribute.name]
            if attribute.name == DURING.name:
                rest[attribute.name] = None if stored is None else During.from_json(narrow(dict, stored))
            elif attribute.name in cls.arguments:
                rest[attribute.name] = cls.arguments[attribute.name].restore(stored)
            elif attribute.name not in ("layout", "judged", "placement"):
                rest[attribute.name] = hashable(stored)
        placement = None if (stored := record["placement"]) is None else Placement.from_json(narrow(dict, stored))
        judged = None if (stored := record["judged"]) is None else Judged.from_json(narrow(dict, stored))
        build: Callable[..., Self] = cls
        return build(layout=layout, judged=judged, placement=placement, **rest)

    @property
    def charged(self) -> tuple[str, ...]:
        """Budgets that a release charges; the first is `dataset`."""
        return (self.dataset,) if self.placement is None else self.placement.charged

    @property
    def traced(self) -> bool:
        """Whether dpsql traced the column of the privacy unit through the source's plan."""
        return self.placement is not None and self.placement.unit is not None and not self.placement.claimed

    @property
    def lineage(self) -> dict[str, Json] | None:
        """The source's lineage as the ledger stores it."""
        placement = self.placement
        if placement is None:
            return None
        record: dict[str, Json] = {
            "source": placement.written,
            "read": placement.source,
            "tables": list(placement.tables),
            "charged": list(placement.charged),
        }
        if placement.claimed:
            record["claimed"] = True
        if placement.views:
            record["views"] = placement.views
        if placement.engine:
            record["engine"] = placement.engine
        if self.defaults:
            record[DEFAULTS] = {name: str(getattr(self, name)) for name in self.defaults}
        return record


def refuse_wide_noise(scale: Fraction) -> None:
    """Raise if the noise would exceed the samplers' range and so be useless."""
    if scale > LARGEST_SCALE:
        raise ParameterError("P038", "epsilon is too small: the noise would drown any table. Raise epsilon.")


def refuse_small_part(part: Fraction) -> None:
    """Raise if a share of mu means useless Gaussian noise of about `WIDEST_ROWS` rows."""
    if part * WIDEST_ROWS < 1:
        raise ParameterError(
            "P038", "a part of the budget leaves noise that would drown any table. Raise epsilon, delta or its share."
        )


def _plain(value: object) -> Json:
    """Return a value of a plan in its JSON form."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, (tuple, list)):
        if set(map(type, value)) == {str}:  # the names of a large vocabulary
            return list(value)
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    raise InternalError("I032", f"a plan holds a {type(value).__name__}, which JSON does not. Report it.")
