"""Text that is not UTF-8 counts as NULL in every call, on DuckDB and on engines, and ends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from calls import CALLS, Call, literal
from engines import OPENED, Compared, hostile
from seam import Watch, watching
from tables import TABLES, typed
from test_conditions import ASKED
from test_engines import ASKED as ON_ENGINES

import dpsql
from support.cases import cases
from support.damaged_text import FORMS, damaged

# By table: conditions whose functions do not take text that is not UTF-8, and end an instance that meets it.
CONDITIONS = {
    "wide": "upper(t) <> 'B' OR lower(name) ILIKE '%a%' OR unit IS NULL",
    "vectors": "lower(unit) LIKE 'p%' OR unit ILIKE '%A%'",
    "long": "upper(word) <> 'OTHER' AND doc ILIKE '%d%'",
}


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


def differences(watch: Watch, form: str, calls: list[Call], *, chunk: int = 300, condition: bool = False) -> list[str]:
    wrong = []
    with dpsql.connect() as spoilt, dpsql.connect() as plain:
        for name in TABLES:
            hurt, nulls = damaged(typed(name, "plain", "as made"), form=form)
            spoilt.register(name, pa.Table.from_batches(hurt.to_batches(max_chunksize=chunk)))
            plain.register("given", nulls)
            plain.execute(f"CREATE TABLE {name} AS FROM given")
        for call in calls:
            sql, number = call.sql.format(source=call.table), CALLS.index(call)
            if condition:
                sql = f"{sql[:-1]}, condition := {literal(CONDITIONS[call.table])})"
            expected = watch.ask(plain, sql, number)
            assert expected.error is None, (call.name, expected.error)
            differs = watch.ask(spoilt, sql, number).differs(expected)
            if differs:
                wrong.append(f"{call.name}: {differs}")
        assert spoilt.execute("SELECT 42").fetchall() == [(42,)]
    return wrong


@pytest.mark.parametrize("form", FORMS)
def test_it_counts_as_null(watch: Watch, form: str) -> None:
    assert differences(watch, form, [call for call in CALLS if " in SQL" not in call.name]) == []


@pytest.mark.parametrize("form", FORMS)
def test_no_condition_meets_it(watch: Watch, form: str) -> None:
    assert differences(watch, form, list(ASKED), condition=True) == []


@pytest.fixture(scope="module")
def compared(engine_name: str, watch: Watch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the function that puts damaged tables on an engine, and the same with NULL into a hostile DuckDB."""
    if engine_name in ("sail", "spark"):
        pytest.skip("its Parquet files are written by a library that checks text")
    pytest.importorskip(engine_name)
    with hostile() as connection:

        def opened(form: str) -> Compared:
            made = {name: damaged(typed(name, "plain", "shuffled"), form=form) for name in TABLES}
            engine = OPENED[engine_name](
                {name: hurt for name, (hurt, _) in made.items()}, 3, tmp_path_factory.mktemp("tables")
            )
            return Compared(watch, connection, engine, {name: plain for name, (_, plain) in made.items()}, 8)

        yield opened


@cases("form", FORMS)
def test_it_counts_as_null_on_engines(compared: Any, form: str) -> None:
    judge = compared(form)
    found = [(call.name, judge.difference(call, number)) for number, call in enumerate(ON_ENGINES)]
    assert [one for one in found if one[1] is not None] == []
