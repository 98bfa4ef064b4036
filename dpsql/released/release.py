"""A release in Python: the private value with its receipt.

In notebooks a release is HTML: its receipt, its rows, and its picture if it has one and Matplotlib is installed. Its
colours are the colours of the page, so that it is readable on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Any

from dpsql.contract.boundary import public_methods
from dpsql.contract.covers import BIASED, CLEAR, COVERING, NOT_MEASURED, UNCLEAR, UNDETERMINED, covered
from dpsql.contract.parameters import stored_text
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.released.covariance import MATRICES
from dpsql.released.model import shapes_table
from dpsql.released.plots import plot_release, svg
from dpsql.released.results import Fitted

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from dpsql.arrays import Doubles
    from dpsql.contract.json import Json

MOST_ROWS = 20
# Columns with their interval in `lower` and `upper`; and the most useful decimal digits of a double.
_NUMBERS = frozenset(("value", "auc", "difference"))
_MOST_DIGITS = 17
_CELL = "padding:.1em .6em;text-align:left;border-bottom:1px solid #9aa1ab66"
_DOTS = {CLEAR: "#2e9e5b", UNCLEAR: "#b8860b", BIASED: "#d14b4b", UNDETERMINED: "#d14b4b", NOT_MEASURED: "#7f8791"}


def row_texts(row: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a row for display: numbers as precise as their intervals, or to six digits."""
    digits = interval_digits(row)
    return {name: cell_text(value, digits.get(name)) for name, value in row.items()}


def cell_text(value: object, digits: int | None = None) -> str:
    """Return a value for display: numbers to `digits` decimal digits, or to six digits; an empty string for NULL."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if digits is None:
        return f"{value:.6g}"
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def interval_digits(row: Mapping[str, object]) -> dict[str, int]:
    """Return the decimal digits of numbers with an interval, and of its ends: two digits of half its width.

    The result omits a number without an interval, or with an unknown end.
    """
    decimals: dict[str, int] = {}
    for name, value in row.items():
        for ends in ((f"{name}_lower", f"{name}_upper"), *([("lower", "upper")] if name in _NUMBERS else [])):
            lower, upper = map(row.get, ends)
            if isinstance(value, float | int) and isinstance(lower, float | int) and isinstance(upper, float | int):
                half = (upper - lower) / 2
                if 0 < half < math.inf:
                    digits = 1 - math.floor(math.log10(half))
                    decimals |= dict.fromkeys((name, *ends), min(_MOST_DIGITS, max(0, digits)))
    return decimals


def release_html(receipt: Mapping[str, str], verdict: str | None, table: pa.Table, picture: str) -> str:
    """Return a release as a piece of HTML; it costs nothing.

    Parameters
    ----------
    receipt : mapping of str to str
        The facts about the release, by the name of the line.
    verdict : str or None
        Verdict of the whole call.
    table : pyarrow.Table
        The result's rows; the first `MOST_ROWS` are shown.
    picture : str
        An SVG element, or ``''``.
    """
    lines = [(name, escape(text)) for name, text in receipt.items()]
    if verdict is not None:
        lines.append(("verdict", _judged(verdict)))
    head = _table([f'<th style="{_CELL}">{name}</th><td style="{_CELL}">{text}</td>' for name, text in lines])
    return (
        '<div class="dpsql-release" style="display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start">'
        + "".join(f"<div>{part}</div>" for part in (head, _rows(table), picture) if part)
        + "</div>"
    )


def _judged(verdict: object) -> str:
    """Return a verdict with a dot of its colour."""
    word = escape(cell_text(verdict))
    return f'<span style="color:{_DOTS[word]}">&#9679;</span> {word}' if word in _DOTS else word


def _rows(table: pa.Table) -> str:
    names, rows = table.column_names, table.slice(0, MOST_ROWS).to_pylist()
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names)
    body = [
        "".join(
            f'<td style="{_CELL}">{_judged(row[name]) if name == "verdict" else escape(texts[name])}</td>'
            for name in names
        )
        for row, texts in zip(rows, map(row_texts, rows), strict=True)
    ]
    more = table.num_rows - len(rows)
    return _table([head, *body]) + (f"<div>and {more} more rows</div>" if more else "")


def _table(rows: Sequence[str]) -> str:
    return '<table style="border-collapse:collapse">' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


@contextmanager
def _needing(library: str) -> Iterator[None]:
    """Name the library to install if it is missing."""
    try:
        yield
    except ImportError as error:
        name = error.name or library
        raise ParameterError(
            "P092",
            f"{name} is not installed. Run pip install {name}; release.to_arrow() needs nothing more.",
        ) from None


@public_methods()
@dataclass(frozen=True, repr=False)
class Release:
    """A private result and its cost.

    Attributes
    ----------
    value : pyarrow.Table
        The private rows: for a selection ``rank`` and ``feature``, for a model ``term``, ``coefficient`` and
        ``std_error``.
    function : str
        The SQL function that made it.
    dataset : str
        The charged budget.
    guarantee : str
        The privacy guarantee, with its privacy unit; and after a semicolon the columns that were left out.
    event : dict
        Mechanisms and parameters, as the ledger records them.
    ledger_id : int
        Sequence of the ledger's entry.
    engine : str or None
        The engine that held the rows, and its version, such as ``'polars 2.1.0'``; None for DuckDB.
    replayed : bool
        The stored result of a named release was returned, and nothing was charged.
    replay : str
        For a replay: the original entry of the ledger, and its time.
    stored : callable
        Reads `result` from the ledger.
    said : callable
        Reads `noise` off the result.
    bound : callable
        Reads `policy` from the ledger.
    as_of : str
        For a query, and for a replay: its time of release, in UTC.
    """

    value: pa.Table
    function: str
    dataset: str
    guarantee: str
    event: Mapping[str, object]
    ledger_id: int
    engine: str | None
    replayed: bool
    replay: str
    stored: Callable[[], Json] = field(compare=False)
    said: Callable[[], dict[str, Json]] = field(compare=False)
    bound: Callable[[], dict[str, Any]] = field(compare=False)
    as_of: str = ""

    def __getstate__(self) -> dict[str, object]:
        """Return the content of a pickle: the release with its ledger data, which is not available elsewhere."""
        read = {
            "stored": partial(_same, self.result),
            "said": partial(_same, self.noise),
            "bound": partial(_same, self.policy),
        }
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)} | read

    @property
    def left_out(self) -> str:
        """Return columns that were not features, with reasons, if the call took every numeric column; else empty."""
        return self.guarantee.partition("; ")[2]

    @cached_property
    def result(self) -> Any:
        """Return the ledger's record, JSON values: the rows' numbers, and the public facts about their noise."""
        return self.stored()

    @cached_property
    def noise(self) -> dict[str, Json]:
        """Return the receipt's facts about the noise: verdict, claim, confidence, resolution, unit and rows_needed.

        Drawn bounds are there too: `bounds`, a pair for each target, None if undetermined.

        See `dpsql.functions.noise_statement`. The facts follow from the release, and cost nothing.
        """
        return self.said()

    @cached_property
    def policy(self) -> dict[str, Any]:
        """Return the policy of the call: privacy unit, relation and limits; the bounds, levels and keys in use."""
        return self.bound()

    @property
    def covers(self) -> str:
        """Return the covered rows: all, or the rows within a row limit, keys and a condition; and their bounds."""
        return str(covered(self.policy))

    @property
    def speaks_of(self) -> str:
        """Return `covers`, under its earlier name, for one more version."""
        return self.covers

    @property
    def verdict(self) -> str | None:
        """Return the verdict of the call; `clear` only if every row is."""
        word = self.noise["verdict"]
        return word if isinstance(word, str) else None

    def plot(self, kind: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the release with Matplotlib (``pip install 'dpsql[plot]'``); costs nothing.

        Parameters
        ----------
        kind : str, optional
            For a ROC curve ``'roc'``, ``'precision_recall'`` or ``'calibration'``; for a model with bounds
            ``'effects'`` or ``'coefficients'``, for an additive model also ``'shapes'``; for aggregates the name of an
            aggregate.
        ax : matplotlib Axes, optional
            By default on a new figure.

        Returns
        -------
        ax : matplotlib Axes

        Raises
        ------
        ParameterError
            P005, P034, P059: there is no such picture of this release, or Matplotlib is missing.
        """
        return plot_release(self.function, self.result, self.value.to_pylist(), covers=self.covers, kind=kind, ax=ax)

    def to_arrow(self) -> pa.Table:
        """Return the value as an Arrow table."""
        return self.value

    def to_polars(self) -> pl.DataFrame:
        """Return the value as a Polars frame."""
        with _needing("polars"):
            import polars as pl

            return pl.DataFrame(self.value)

    def to_pandas(self) -> pd.DataFrame:
        """Return the value as a pandas frame."""
        with _needing("pandas"):
            frame: pd.DataFrame = self.value.to_pandas()
            return frame

    def to_spark(self, session: SparkSession) -> SparkDataFrame:
        """Return the value as a frame of a Spark session; its driver then holds these rows."""
        with _needing("pandas"):
            return session.createDataFrame(self.value)

    @property
    def shapes(self) -> pa.Table:
        """Return the effect of each feature on a prediction of an additive model, piece by piece; costs nothing.

        A row is an interval of a feature: ``feature``, ``lower``, ``upper``, ``at_lower`` and ``at_upper``, the effect
        at both ends, in units of the target, and ``std_error``, of the step; a line is between the ends.
        """
        fit: Fitted = self.result
        if not isinstance(fit, dict) or "terms" not in fit:
            raise AttributeError(f"a release of {self.function} has no shapes")
        return shapes_table(fit)

    @property
    def features(self) -> list[str]:
        """Return the selected features by rank, or the features of a model."""
        if "feature" in self.value.column_names:
            return list(self.value.column("feature").to_pylist())
        if "term" in self.value.column_names:
            return list(self.value.column("term").to_pylist()[1:])
        raise AttributeError(f"a release of {self.function} has no features")

    def matrix(self, column: str = "value") -> Doubles:
        """Return the matrix of a covariance or a correlation.

        Parameters
        ----------
        column : {'value', 'std_error', 'lower', 'upper'}
            Column of the numbers.

        Returns
        -------
        matrix : ndarray of float64, shape (p, p)
            Symmetric, in the order of the features; NaN stands for NULL, and correlations have ones on the diagonal.
        """
        if self.function not in MATRICES:
            raise AttributeError(f"a release of {self.function} has no matrix")
        matrix: Doubles = getattr(MATRICES[self.function](self.result), column)
        return matrix

    def __repr__(self) -> str:
        rows = [[*row_texts(row).values()] for row in without_words(self.value).to_pylist()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows[:20]]
        if len(rows) > 20:
            lines.append(f"  and {len(rows) - 20} more")
        charge = f"at no charge, {self.replay}" if self.replayed else "charged"
        charge += "" if self.engine is None else f", on {self.engine}"
        head = f"Release {self.ledger_id} of {self.function} on {self.dataset!r}: {self.guarantee} ({charge})"
        head += f"\n{self.covers}"
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        receipt = {
            "release": f"{self.ledger_id} of {self.function} on {self.dataset}",
            "guarantee": self.guarantee,
            "charged": f"nothing: {self.replay}" if self.replayed else "once, with this release",
            "engine": self.engine or "DuckDB",
            "covers": self.covers,
            "policy": "; ".join(
                f"{name} {stored_text(entry)}" for name, entry in self.policy.items() if name not in COVERING
            ),
        }
        return release_html(receipt, self.verdict, without_words(self.value), self._picture())

    def _picture(self) -> str:
        """Return the picture as SVG; empty without a picture, or without Matplotlib."""
        try:
            return svg(self.plot(), f"{self.dataset} {self.ledger_id}")
        except ParameterError:
            return ""


def without_words(rows: pa.Table) -> pa.Table:
    """Return rows without their coverage text, which is the same in all rows and shown above them."""
    return rows.select([name for name in rows.column_names if name not in COVERING])


def _same(value: Any) -> Any:
    return value
