"""One context in many threads: every call answers or is refused, and no budget is overspent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import dpsql

pytestmark = pytest.mark.odds(
    "1e-18: Laplace noise of scale 8 in 128 counts is below 400, and none of epsilon 1000 is seen"
)

THREADS = 32
ROWS = pl.DataFrame({"x": range(1000), "y": [number % 3 == 0 for number in range(1000)]})


def in_threads(work: Callable[[int], object]) -> list[object]:
    """Return what each thread's call gives or raises; all begin together."""
    found: list[object] = [None] * THREADS
    gate = threading.Barrier(THREADS)

    def run(number: int) -> None:
        gate.wait()
        try:
            found[number] = work(number)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def of_duckdb() -> dpsql.Context:
    made = dpsql.Context()
    made.connection.execute("CREATE TEMP TABLE t AS FROM ROWS")
    return made


OPENED: dict[str, tuple[Callable[[], dpsql.Context], object]] = {
    "a temporary table": (of_duckdb, "t"),
    "a frame": (dpsql.Context, ROWS),
    "polars": (lambda: dpsql.polars.context({"t": ROWS}), "t"),
    "a frame on polars": (dpsql.polars.context, ROWS),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OPENED)
def test_a_budget_that_just_suffices_is_spent_exactly(kind: str) -> None:
    opened, source = OPENED[kind]
    with opened() as ctx:
        name = "temp.main.t" if kind == "a temporary table" else "people"
        given: dict[str, Any] = {} if kind == "a temporary table" else {"dataset": "people"}
        ctx.dp_protect(name, epsilon=THREADS / 8, source=kind == "a temporary table" or False)
        found = in_threads(lambda number: ctx.dp_count(source, epsilon=0.125, **given).value["value"][0].as_py())
        assert all(isinstance(one, float) and abs(one - 1000) < 400 for one in found), found
        with pytest.raises(dpsql.BudgetError, match="B001"):
            ctx.dp_count(source, epsilon=0.125, **given)
        [budget] = ctx.dp_budget().to_pylist()
        assert (budget["epsilon_spent"], ctx.dp_ledger().filter(_released(ctx)).num_rows) == (4.0, THREADS)


def _released(ctx: dpsql.Context) -> Any:
    import pyarrow.compute as pc

    return pc.equal(ctx.dp_ledger()["status"], "released")


@pytest.mark.long
def test_a_budget_for_half_answers_half() -> None:
    with dpsql.Context() as ctx:
        ctx.dp_protect("people", epsilon=THREADS / 16, source=False)
        found = in_threads(lambda number: ctx.dp_count(ROWS, epsilon=0.125, dataset="people"))
        refused = [one for one in found if isinstance(one, dpsql.BudgetError)]
        answered = [one for one in found if isinstance(one, dpsql.Release)]
        assert (len(refused), len(answered)) == (THREADS // 2, THREADS // 2)
        assert len({one.ledger_id for one in answered}) == THREADS // 2


@pytest.mark.long
def test_every_thread_gets_its_own_answer() -> None:
    """Different calls at once: releases, SQL, predictions and declarations."""
    with of_duckdb() as ctx:
        ctx.dp_logistic_regression("t", target="y", features=["x"], epsilon=9, lower=0, upper=1000, release="fit")

        def work(number: int) -> object:
            if number % 4 == 0:
                return ctx.dp_count("t", epsilon=1000, condition=f"x < {number * 10}").value["value"][0].as_py()
            if number % 4 == 1:
                return ctx.sql(f"SELECT {number} AS n")["n"][0].as_py()
            if number % 4 == 2:
                return len(ctx.dp_predict("fit", ROWS.head(number)))
            return ctx.dp_count(ROWS.head(number), dataset="of frames", epsilon=1000).value["value"][0].as_py()

        found = in_threads(work)
        assert found == [
            pytest.approx(number * 10 if number % 4 == 0 else number, abs=0.5) for number in range(THREADS)
        ], found
