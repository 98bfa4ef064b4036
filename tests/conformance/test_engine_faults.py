"""Faults planted into engines are caught: by the comparison with DuckDB, or by the driver. Errors tell no value."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from calls import CALLS, Call
from engines import OPENED, Compared, hostile
from seam import watching
from tables import TWINS, typed

import dpsql
from dpsql.engines.driver import Attached
from dpsql.engines.duckdb import part
from dpsql.engines.task import Task
from dpsql.errors import InternalError
from support.arrow_engine import ArrowEngine
from support.broken.planting import planted
from support.cases import cases

BY_NAME = {call.name: call for call in CALLS}
WIDE = BY_NAME["dp_covariance plain"]
TREE = BY_NAME["dp_count of private texts per unit"]  # wide: workers merge its records
UNITS = BY_NAME["dp_covariance per unit"]
TWO_PASSES = BY_NAME["dp_sis centred"]
OF_UNITS = BY_NAME["dp_quantile per unit"]
REFUSED = "DPSQL-I001"
LOST = "DPSQL-I008"
Batches = Iterable[pa.RecordBatch]


@pytest.fixture(scope="module")
def difference() -> Iterator[Callable[..., str | None]]:
    """Return what says in what a call on an engine differs from DuckDB's."""
    with watching() as watch, hostile() as connection:

        def judge(engine: Any, call: Call, parts: int = 8) -> str | None:
            return Compared(watch, connection, engine, _tables(), parts).difference(call)

        yield judge


class Spoilt:
    """Work whose rows are changed on their way."""

    def __init__(self, work: Any, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._work, self._change = work, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def run(self, batches: Batches) -> Any:
        return self._work.run(map(self._change, batches))

    def split(self, batches: Batches) -> Any:
        return self._work.split(map(self._change, batches))


class SpoilingEngine(ArrowEngine):
    """An engine that changes rows before dpsql's code sees them."""

    def __init__(self, tables: Any, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        super().__init__(tables)
        self._change = change

    def fold(self, source: object, columns: Any, work: Any) -> Any:
        return super().fold(source, columns, Spoilt(work, self._change))

    def fold_parts(self, source: object, columns: Any, work: Any) -> Any:
        return super().fold_parts(source, columns, Spoilt(work, self._change))


def _each(name: str, kernel: Callable[[pa.Array], pa.Array]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        if name not in rows.schema.names:
            return rows
        place = rows.schema.names.index(name)
        return rows.set_column(place, rows.schema.field(place), kernel(rows.column(place)))

    return change


def _tables() -> dict[str, pa.Table]:
    """Return some rows, of which every other one is of a unit that a collation takes for another."""
    rows = typed("wide", "plain", "shuffled").slice(0, 600)
    units = [
        TWINS[place // 2 % len(TWINS)] if place % 2 else unit for place, unit in enumerate(rows["unit"].to_pylist())
    ]
    return {"wide": rows.set_column(rows.column_names.index("unit"), "unit", pa.array(units))}


# What an engine must not do to rows, and a call that tells.
SPOILT: dict[str, tuple[Callable[[pa.RecordBatch], pa.RecordBatch], Call]] = {
    "nothing": (lambda rows: rows, UNITS),
    "a row is dropped": (lambda rows: rows.slice(1), WIDE),
    "a row of a unit is dropped": (lambda rows: rows.slice(1), UNITS),
    "a cast to float32": (_each("s", lambda column: column.cast(pa.float32()).cast(pa.float64())), UNITS),
    "values are rounded": (_each("s", lambda column: pc.round(column, 2)), UNITS),
    "NaN becomes NULL": (_each("e", lambda column: pc.if_else(pc.is_nan(column), None, column)), OF_UNITS),
    "units by lower case": (_each("unit", pc.utf8_lower), UNITS),
    "units without blanks at the end": (_each("unit", pc.utf8_rtrim_whitespace), UNITS),
    "units in one normal form": (_each("unit", lambda column: pc.utf8_normalize(column, "NFC")), UNITS),
}
# NULL and NaN count alike.
UNTOLD = {"nothing", "NaN becomes NULL"}


@cases("fault", SPOILT, quick=1)
def test_changed_rows_are_told(fault: str, difference: Any) -> None:
    change, call = SPOILT[fault]
    found = difference(SpoilingEngine(_tables(), change), call)
    assert (found is None) == (fault in UNTOLD), found


Records = list[pa.RecordBatch]


def _one_pass(number: int, change: Callable[[Records], Records]) -> Callable[[int, Records], Records]:
    return lambda action, found: change(found) if action == number else found


def _divided(found: Records) -> Records:
    """Give the rows of a part two records."""
    first = found[0].to_pylist()[0]
    rows = [max(1, number // 2) for number in first["rows"]]
    halves = [pa.RecordBatch.from_pylist([{**first, "rows": rows}], schema=found[0].schema)] * 2
    return [*halves, *found[1:]]


# What an engine must not do to records, a call, and what the driver or the comparison says.
CHANGED: dict[str, tuple[Callable[[int, Records], Records], Call, str]] = {
    "a part twice": (lambda action, found: [*found, found[-1]], UNITS, LOST),
    "a part in two": (lambda action, found: _divided(found), UNITS, LOST),
    "nothing, in a tree": (lambda action, found: found, TREE, "None"),
    "a part twice in a tree": (lambda action, found: [*found, found[-1]], TREE, REFUSED),
    "a part in two in a tree": (lambda action, found: _divided(found), TREE, REFUSED),
    "a part is lost in a tree": (lambda action, found: found[:-1], TREE, "integers"),
    "a partition twice": (lambda action, found: [*found, found[-1]], WIDE, LOST),
    "a partition is lost": (lambda action, found: found[:-1], WIDE, LOST),
    "a part is lost": (lambda action, found: found[:-1], UNITS, LOST),
    "a partition twice in the first of two passes": (
        _one_pass(1, lambda found: [*found, found[-1]]),
        TWO_PASSES,
        LOST,
    ),
    "a partition twice in the second of two passes": (
        _one_pass(2, lambda found: [*found, found[-1]]),
        TWO_PASSES,
        LOST,
    ),
    "a partition is lost in one of two passes": (_one_pass(2, lambda found: found[1:]), TWO_PASSES, LOST),
}


@cases("fault", CHANGED, quick=1)
def test_changed_records_are_told(fault: str, difference: Any) -> None:
    change, call, expected = CHANGED[fault]
    engine = ArrowEngine(_tables())
    engine.records = change
    assert expected in str(difference(engine, call))


def test_entropy_in_a_worker_is_told(difference: Any) -> None:
    """A worker that samples by a key of its own keeps other rows."""
    made = part._Part.__init__

    def drawn(self: Any, task: Task) -> None:
        made(self, task)
        self._running.sampling_key = secrets.token_bytes(16)

    with planted((part._Part, "__init__", drawn)):
        assert "pass 1" in str(difference(ArrowEngine(_tables()), UNITS, 1))


def test_records_under_another_key_are_refused(difference: Any) -> None:
    class Drawing(ArrowEngine):
        def fold_parts(self, source: object, columns: Any, work: Any) -> Any:
            return super().fold_parts(source, columns, replace(work, key=secrets.token_bytes(16)))

    assert REFUSED in str(difference(Drawing(_tables()), UNITS))


# Errors.

PLANTED = "planted-7261"


def _told(error: BaseException | None) -> Iterator[str]:
    """Yield all that an error and those behind it say."""
    while error is not None:
        yield repr(error)
        for behind in {error.__cause__, error.__context__} - {None}:
            yield from _told(behind)
        return


def _people() -> pa.Table:
    return pa.table({"name": [PLANTED, "1", "2"] * 40, "a": [0.5, 0.25, 1.0] * 40, "unit": ["x", PLANTED, "z"] * 40})


def _failing_polars() -> Any:
    import polars as pl

    return pl.DataFrame(_people()).lazy().with_columns(a=pl.col("name").cast(pl.Float64, strict=True))


def _failing_datafusion() -> Any:
    from datafusion import SessionContext

    session = SessionContext()
    session.register_record_batches("people", [_people().to_batches()])
    return session.sql("SELECT unit, name, CAST(name AS DOUBLE) AS a FROM people")


def _whole_polars() -> Any:
    import polars as pl

    return pl.DataFrame(_people()).lazy()


def _whole_datafusion() -> Any:
    from datafusion import SessionContext

    session = SessionContext()
    session.register_record_batches("people", [_people().to_batches()])
    return session.table("people")


def _engine(name: str) -> Any:
    if name == "polars":
        from dpsql.engines.polars import PolarsEngine

        return PolarsEngine()
    from datafusion import SessionContext

    from dpsql.engines.datafusion import DataFusionEngine

    return DataFusionEngine(SessionContext())


FAILING = {
    "polars": (_failing_polars, _whole_polars),
    "datafusion": (_failing_datafusion, _whole_datafusion),
}
FORMS = {
    "rows": {},
    "units": {"privacy_unit": "unit", "max_rows_per_unit": 2},
    "condition": {"condition": "unit <> 'y'"},
}


@cases(
    ("where", "form"),
    [
        ("the engine", "units"),
        ("the split", "units"),
        ("the worker", "rows"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [
                ("the engine", "rows"),
                ("the worker", "units"),
                ("the engine", "condition"),
                ("the worker", "condition"),
            ]
        ),
    ],
)
@cases("name", FAILING)
def test_no_error_tells_a_value(name: str, form: str, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(name)
    failing, whole = FAILING[name]

    def fail(*given: Any) -> Any:
        raise ValueError(f"cannot read {PLANTED} of {given[-1].to_pylist()}")

    fault = {"the worker": "fold", "the split": "parts"}.get(where)
    patches = [] if fault is None else [(part.PartStatements, fault, fail)]
    if where == "the worker" and form == "rows":
        patches = [(Task, "_add", fail)]
    frame = failing() if where == "the engine" else whole()
    with dpsql.Context(engine=Attached(name, _engine(name))) as dp:
        # The rehearsal has no rows, and passes; the fault comes with the first of them.
        given = {"target": "a", "lower": 0, "upper": 1, "epsilon": 1, "dataset": "people", **FORMS[form]}
        with planted((Task, "rehearse", lambda self, nothing: None), *patches), pytest.raises(InternalError) as raised:
            dp.dp_avg(frame, **given)
        kinds = [(row.kind, row.status) for row in dp.ledger.entries() if row.kind in ("release", "failure")]
    assert [text for text in _told(raised.value) if PLANTED in text] == []
    assert "I001" in str(raised.value)
    assert len(kinds) == 1
    shown = capfd.readouterr()
    assert PLANTED not in shown.out + shown.err


def test_engines_are_the_ones_that_are_compared() -> None:
    assert set(FAILING) | {"duckdb"} == set(OPENED)
