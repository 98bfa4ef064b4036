"""Every engine's records merge to the integers that DuckDB's woven statement collects, however its rows are cut.

`--engine duckdb,polars,datafusion,sail,spark` chooses the engines: `duckdb` is tables in memory, with the port and
nothing else in between; `spark` is the JVM. Each call runs twice in one session of DuckDB under hostile settings: on the
engine, and as the statement of the same plan over the same rows, with the same keys.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from calls import CALLS, Call, share
from engines import OPENED, PARTITIONS, PARTS, Compared, Tables, hostile, spark_session
from seam import watching
from tables import TABLES, TYPES, typed

from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

# Every call of a private function in its table form, and ids of other types.
ASKED = tuple(
    call
    for call in CALLS
    if call.function in FUNCTIONS and FUNCTIONS[call.function].spends and " aggregate over " not in call.name
)
MORE = (
    Call("dp_count of rows", "SELECT * FROM dp_count('{source}', epsilon := 1)", "wide", "dp_count"),
    *(
        Call(
            f"dp_covariance per {unit} by {row}",
            f"SELECT * FROM dp_covariance('{{source}}', features := ['b', 's'], lower := -4, upper := 4, epsilon := 1, "
            f"privacy_unit := '{unit}', row_id := '{row}', max_rows_per_unit := 3)",
            "wide",
            "dp_covariance",
        )
        for unit, row in (
            ("y", "id"),
            ("a", "name"),
            ("k", "day"),
            ("day", "a"),
            ("f", "y"),
            ("far", "far_id"),
            ("t", "m"),
        )
    ),
)
# Types that are looked at by default.
QUICK_TYPES = ("decimal", "huge", "timestamp")
UNITS = ("unit", "unit_number", "day", "far")


def _one_unit(table: pa.Table) -> pa.Table:
    """Give all rows to the unit of the first row that has one."""
    for name in [name for name in UNITS if name in table.column_names]:
        column = table.column(name)
        first = column.drop_null()[0].as_py()
        table = table.set_column(table.column_names.index(name), name, pa.array([first] * len(table), column.type))
    return table


def _nobody(table: pa.Table) -> pa.Table:
    """Take every unit and row id away."""
    for name in [name for name in (*UNITS, "id", "doc", "name") if name in table.column_names]:
        kind = table.schema.field(name).type
        table = table.set_column(table.column_names.index(name), name, pa.nulls(len(table), kind))
    return table


ROWS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "one row": lambda table: table.slice(1000 % len(table), 1),
    "one unit": _one_unit,
    "no unit": _nobody,
}


@pytest.fixture(scope="module")
def opened(engine_name: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the function that puts tables on the engine, and into a hostile DuckDB; an engine by name must be there."""
    with ExitStack() as stack:
        if engine_name in ("sail", "spark"):
            open_one: Any = stack.enter_context(spark_session(engine_name))
        else:
            if request.config.getoption("--engine") is None:
                pytest.importorskip(engine_name)
            open_one = OPENED[engine_name]
        watch, connection = stack.enter_context(watching()), stack.enter_context(hostile())

        def compared(tables: Tables, partitions: int, parts: int) -> Compared:
            engine = open_one(tables, partitions, tmp_path_factory.mktemp("tables"))
            return Compared(watch, connection, engine, tables, parts)

        yield compared


def judge(opened: Any, tables: Tables, calls: list[Call], partitions: int, parts: int) -> None:
    tables = {name: table for name, table in tables.items() if name in {call.table for call in calls}}
    compared = opened(tables, partitions, parts)
    found = [(call, compared.difference(call, number)) for number, call in enumerate(calls)]
    wrong = [f"{call.name}: {difference}" for call, difference in found if difference is not None]
    assert found
    if wrong:
        pytest.fail(
            f"{partitions} partitions, {parts} parts: {len(wrong)} of {len(found)} calls differ\n" + "\n".join(wrong),
            pytrace=False,
        )


def _tables(types: str = "plain", change: Callable[[pa.Table], pa.Table] = lambda table: table) -> Tables:
    return {name: change(typed(name, types, "shuffled")) for name in TABLES}


def test_every_function_is_asked() -> None:
    assert {call.function for call in ASKED} == {name for name, known in FUNCTIONS.items() if known.spends}


@cases(("partitions", "parts"), [(1, 8), (3, 1), (16, 64)])
def test_a_sample_of_calls(partitions: int, parts: int, engine_name: str, opened: Any) -> None:
    calls = random.Random(f"{engine_name} {partitions}").sample([*ASKED, *MORE], 2)
    calls += random.Random(f"{engine_name} {parts}").sample([call for call in ASKED if call.owner], 2)
    judge(opened, _tables(), calls, partitions, parts)


@pytest.mark.long
@cases("cut", range(4))
def test_every_call(cut: int, engine_name: str, opened: Any) -> None:
    judge(opened, _tables(), [*ASKED, *MORE][cut::4], PARTITIONS[cut], PARTS[cut % 3])


@pytest.mark.slow
@cases("parts", PARTS)
@cases("partitions", PARTITIONS)
@cases("types", TYPES)
def test_every_call_of_every_type(types: str, partitions: int, parts: int, engine_name: str, opened: Any) -> None:
    judge(
        opened, _tables(types), share([*ASKED, *MORE], f"{engine_name} {types} {partitions} {parts}"), partitions, parts
    )


@cases(
    "types",
    [
        types if types in QUICK_TYPES else pytest.param(types, marks=pytest.mark.long)
        for types in TYPES
        if types != "plain"
    ],
)
def test_a_sample_of_types(types: str, engine_name: str, opened: Any) -> None:
    columns = [f"'{column}'" for column in TYPES[types]]
    about = [call for call in (*ASKED, *MORE) if any(column in call.sql for column in columns)]
    calls = random.Random(f"{engine_name} {types}").sample(about, min(2, len(about)))
    judge(opened, _tables(types), calls, 3, 8)


@cases("rows", ROWS)
def test_a_sample_of_edges(rows: str, engine_name: str, opened: Any) -> None:
    calls = random.Random(f"{engine_name} {rows}").sample([call for call in ASKED if call.ids], 2)
    judge(opened, _tables(change=ROWS[rows]), calls, 3, 8)


@pytest.mark.slow
@cases("partitions", PARTITIONS)
@cases("rows", ROWS)
def test_every_edge(rows: str, partitions: int, engine_name: str, opened: Any) -> None:
    judge(
        opened, _tables(change=ROWS[rows]), share([*ASKED, *MORE], f"{engine_name} {rows} {partitions}"), partitions, 8
    )


# Rows whose values are powers of two, so that a sum says which of them it has.
ONES = 18


def _powers() -> Tables:
    units = ["a", "A", "a ", "a\u0301", "á", None]
    rows = [{"v": 2.0**-place, "unit": units[place % 6]} for place in range(ONES)]
    return {"wide": pa.Table.from_pylist(rows)}


@cases("most", [1, 2])
def test_the_same_rows_of_a_unit_count(most: int, engine_name: str, opened: Any) -> None:
    tables = _powers()
    sql = (
        "SELECT * FROM dp_sum('{source}', target := 'v', lower := -1, upper := 1, epsilon := 1, privacy_unit := 'unit', "
        f"max_rows_per_unit := {most}, left_out_share := 0)"
    )
    call = Call("dp_sum of powers", sql, "wide", "dp_sum")
    compared = opened(tables, 7, 8)
    seen = compared.ask(call)
    kept = _kept(seen)
    assert kept == _kept(compared.reference(seen.plan))
    units = [tables["wide"].column("unit")[place].as_py() for place in kept]
    assert None not in units
    assert {unit: units.count(unit) for unit in units} == dict.fromkeys(["a", "A", "a ", "a\u0301", "á"], most)


def _kept(seen: Any) -> list[int]:
    [only] = seen.passes
    total = only.integers[-1]
    return [place for place in range(ONES) if total >> (20 - place) & 1]
