"""Add the namespace `dp` to Polars frames: ``frame.dp.count(by="ward", keys=["A", "B"], epsilon=0.5)``.

``import dpsql.polars`` registers the namespace. It has one method for each private function, generated from the
function's list of arguments, so names, defaults and documentation match SQL.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from dpsql.context import Context
from dpsql.contract.boundary import public, public_methods
from dpsql.contract.names import did_you_mean, on_frames
from dpsql.contract.parameters import fold, show
from dpsql.contract.plan import Plan
from dpsql.engines.attached import Attached
from dpsql.engines.duckdb.query_frames import FrameRows, in_test
from dpsql.engines.polars import PolarsEngine, as_arrow, with_decimals
from dpsql.engines.provenance import made_from
from dpsql.engines.task import read_columns
from dpsql.errors import DpsqlError, ParameterError, SourceError
from dpsql.manual.slips import no_method, with_column
from dpsql.methods import OF_FRAME, FrameMethods

if TYPE_CHECKING:
    from dpsql.released.release import Release

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
_contexts: dict[str, Context] = {}


@public
def use(*, ledger: str | PathLike[str] | None = None, strict: bool = False) -> Context:
    """Choose the ledger of all frames; by default they share a ledger in memory, which ends with the process.

    Parameters
    ----------
    ledger : path or URL, optional
        The store of budgets and releases.
    strict : bool
        Refuse releases of frames whose dataset has no budget.

    Returns
    -------
    context : Context
        For calls without a frame: ``dp_protect``, ``dp_budget``, ``dp_ledger``, ``model``.
    """
    _contexts["frames"] = Context(ledger=ledger, strict=strict, engine=Attached("polars", PolarsEngine()))
    return _contexts["frames"]


def _context() -> Context:
    return _contexts.get("frames") or use()


@public_methods()
class Frames(FrameMethods, Generic[Frame]):
    """Private releases from a Polars frame.

    A result is a Polars frame; ``result.dp.release`` is its `Release`: the guarantee, the receipt, the pictures.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame: Frame = frame
        self._dataset: str | None = None
        self._release: Release | None = None

    def of(self, dataset: str) -> Frame:
        """Return the same frame, as rows of a dataset: its releases charge that budget.

        Name the dataset once, at the source. Polars makes new frames (``filter``, ``with_columns``): name the dataset
        again there, if every row still belongs to one privacy unit. Once the ledger protects any dataset, dpsql refuses
        a frame without a dataset, and a dataset without a budget.

        Parameters
        ----------
        dataset : str
            A name from `dpsql.polars.use(...).dp_budget()`, such as ``'patients'``.

        Returns
        -------
        frame : polars.DataFrame or polars.LazyFrame
            It shares the rows with this frame.
        """
        if not isinstance(dataset, str) or not dataset:
            raise ParameterError("P013", f"a dataset is named by a text; got {show(dataset)}. Try 'patients'.")
        return self._like(self._frame.clone(), dataset)

    @property
    def dataset(self) -> str | None:
        """The dataset of the rows; None without `of`."""
        return self._dataset

    @property
    def release(self) -> Release:
        """The release with this frame's rows.

        Raises
        ------
        AttributeError
            No method of `dp` returned the frame; a Polars operation on a result gives another frame.
        """
        if self._release is None:
            raise AttributeError("this frame is no release. Take it from the frame that a method of .dp returned.")
        return self._release

    def _protect(self, budget: dict[str, Any]) -> str:
        """Set the budget of the frame's dataset, like `protect`."""
        if self._dataset is None:
            raise ParameterError("P081", "the rows are of no dataset. Name it first: frame.dp.of('patients').")
        unit = budget.get("privacy_unit")
        if isinstance(unit, str) and fold(unit) != "row":
            self._check(unit)
        try:
            return _context().dp_protect(self._dataset, source=False, **budget)
        except DpsqlError as error:
            raise error.saying(on_frames(error.message)) from None

    def predict(self, model: object) -> Frame:
        """Return the frame with a column ``prediction`` of a released model; costs nothing.

        For a classifier, ``prediction`` is the likelier class, and ``probability`` the probability of its second class.
        A lazy frame stays lazy.

        Parameters
        ----------
        model : polars.DataFrame, Release, str or int
            The result of `linear_regression` or a similar method, the model's name, or its number in the ledger.
        """
        predictions: Any = _context().dp_predict(_released(model), self._frame, dataset=self._dataset)
        return self._like(
            made_from(predictions if isinstance(self._frame, pl.LazyFrame) else predictions.collect(), self._frame)
        )

    def split(self, unit: str, *, test: float = 0.25, key: str | None = None) -> tuple[Frame, Frame]:
        """Split the rows in two parts, to fit a model and to evaluate it; each unit's rows are in one part.

        A keyed hash of a unit's id decides. No other unit moves a row between the parts, so a release that is private
        on a part is private on the whole. Both parts belong to the same dataset, and their charges add up, although a
        unit's rows are in one part only. Rows without an id are in neither part.

        Parameters
        ----------
        unit : str
            Column with the privacy unit's id.
        test : float
            Share of the units in the second part, in (0, 1).
        key : str, optional
            Key of the hash; the same key gives the same split, here and in SQL (``dp_split``). By default every call
            draws a new key, and gives a new split.

        Returns
        -------
        train, test : polars.DataFrame or polars.LazyFrame
        """
        if not 0.0 < test < 1.0:
            raise ParameterError("P006", f"test must be between 0 and 1; got {show(test)}. 0.25 is usual.")
        self._check(unit)
        hash_key = secrets.token_hex(16) if key is None else key

        def sides(ids: pl.Series) -> pl.Series:
            return pl.Series(ids.name, in_test(ids.to_arrow(compat_level=pl.CompatLevel.oldest()), hash_key, test))

        side = pl.col(unit).map_batches(sides, return_dtype=pl.Boolean)
        train, test_rows = (made_from(self._frame.filter(chosen), self._frame) for chosen in (~side, side))
        return self._like(train), self._like(test_rows)

    def one_hot(self, levels: Mapping[str, list[object]]) -> Frame:
        """Replace some columns by a 0/1 column for each public level.

        An unlisted level, and NULL, is 0 everywhere. The levels are public: list the values that the data may have, and
        do not read them from the rows.

        Parameters
        ----------
        levels : mapping of str to list
            Levels by column: ``{"ward": ["A", "B", "C"]}`` adds ``ward=A``, ``ward=B`` and ``ward=C``.
        """
        for name in levels:
            self._check(name)
        added = [
            # Compare strings as strings: an Enum that lacks a level would refuse the level.
            (pl.col(name).cast(pl.String) if isinstance(level, str) else pl.col(name))
            .eq(level)
            .fill_null(False)
            .cast(pl.Int8)
            .alias(f"{name}={level}")
            for name, listed in levels.items()
            for level in listed
        ]
        return self._like(self._frame.with_columns(added).drop(list(levels)))

    if not TYPE_CHECKING:  # type checkers must see that there is no such method

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or hasattr(Frames, name):  # a property that raised
                return object.__getattribute__(self, name)
            names = {f"dp_{method}" for method in dir(Frames) if not method.startswith("_")}
            raise AttributeError(no_method("frame.dp", name, names))

    def _public_names(self, source: object = None) -> list[str]:
        """Return the column names, for messages."""
        return self._frame.collect_schema().names()

    def _check(self, column: str) -> None:
        """Raise if the frame has no such column."""
        names = self._frame.collect_schema().names()
        if column not in names:
            step = did_you_mean(column, names, f"It has: {', '.join(names)}.")
            raise SourceError("S002", f"there is no column {show(column)} in the frame. {step}")

    def _like(self, frame: Frame, dataset: str | None = None) -> Frame:
        """Return a frame of the same dataset as this frame."""
        _of(frame)._dataset = self._dataset if dataset is None else dataset
        return frame

    def _run(self, function: str, arguments: dict[str, Any]) -> pl.DataFrame:
        """Return the rows of a release."""
        for name in OF_FRAME:
            if name in arguments:
                raise ParameterError("P016", f"a frame's {function} has no argument {show(name)}. Use .dp.of.")
        if "features" in arguments:
            arguments["features"] = _released(arguments["features"])
        if self._dataset is not None:
            arguments["dataset"] = self._dataset
        context = _context()
        with self._errors_on_frames():
            frame, beside = self._read(context, function, arguments)
            release: Release = getattr(beside, function)(frame, **arguments)
        return _rows_of(release)

    def _query(self, sql: object, arguments: dict[str, Any]) -> pl.DataFrame:
        """Return the rows of a query over the frame, like `query`."""
        if self._dataset is None:
            raise ParameterError("P081", "the rows are of no dataset. Name it first: frame.dp.of('patients').")
        kinds, dataset = self._frame.collect_schema(), self._dataset

        def rows(schema: pa.Schema) -> FrameRows:
            # Python objects are not SQL values.
            fields = [field for field in schema if kinds[field.name] != pl.Object]
            return FrameRows(dataset, pa.schema(fields), self._columns)

        with self._errors_on_frames():
            answer = _context()._query_rows(self._frame, sql, arguments, rows)
        return pl.DataFrame(answer) if isinstance(answer, pa.Table) else _rows_of(answer)

    @contextmanager
    def _errors_on_frames(self) -> Iterator[None]:
        """Make errors name the frame's columns, and the next step on a frame."""
        try:
            yield
        except DpsqlError as error:
            failure = with_column(error, self._frame.collect_schema().names)
            raise failure.saying(on_frames(failure.message)) from None

    def _columns(self, names: list[str]) -> pa.Table:
        """Return columns of the frame as an Arrow table; run a lazy frame for these columns alone."""
        frame: Any = self._frame.select(names)
        return as_arrow(frame.collect(engine="streaming") if isinstance(frame, pl.LazyFrame) else frame)

    def _read(self, context: Context, function: str, arguments: dict[str, Any]) -> tuple[Frame, Context]:
        """Return the input of a call, and the place where the call runs.

        A lazy frame runs once: if the call needs several passes, memory holds its columns in between. A call that must
        see single rows runs in DuckDB, over the columns that it reads.
        """
        frame: Any = self._frame
        plan = context.planned(function, frame, arguments)
        if not plan.keeps_rows and (plan.readings == 1 or isinstance(frame, pl.DataFrame)):
            return frame, context
        frame = frame.select(_columns(plan, frame))
        if isinstance(frame, pl.LazyFrame):
            frame = frame.collect(engine="streaming")
        frame = with_decimals(frame)
        return frame, Context(context.connection) if plan.keeps_rows else context


def _columns(plan: Plan, frame: Any) -> list[str]:
    """Return the columns of a frame that a call reads."""
    return read_columns(plan, as_arrow(frame.collect_schema().to_frame()).schema)


def _of(frame: Frame) -> Frames[Frame]:
    """Return the namespace of a frame, which keeps it as an attribute."""
    namespace: Frames[Frame] = getattr(frame, "dp")  # noqa: B009 - Polars' classes do not declare it
    return namespace


def _rows_of(release: Release) -> pl.DataFrame:
    """Return the rows of a release, as a frame that refers to the release."""
    rows = release.to_polars()
    _of(rows)._release = release
    return rows


def _released(source: object) -> Any:
    """Return the release of a frame; return any other value unchanged."""
    return _of(source).release if isinstance(source, pl.DataFrame) else source


def register() -> None:
    """Add the attribute `dp` to every Polars frame."""
    pl.api.register_dataframe_namespace("dp")(Frames)
    pl.api.register_lazyframe_namespace("dp")(Frames)
