"""The driver of a release on an engine: who pays and when, whatever fails, and which budget a source has."""

from __future__ import annotations

import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.engines.attached import Attached
from dpsql.engines.task import FoldedRows
from support.arrow_engine import ArrowEngine
from support.cases import cases

ROWS = 600
PLANTED = "planted-7261"
GIVEN = {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, "lower": -2, "upper": 2}
SIS = {**GIVEN, "target_lower": -2, "target_upper": 2}
CALL = (
    "dp_sis('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := 1, lower := -2, upper := 2, "
    "target_lower := -2, target_upper := 2, engine := 'lake')"
)


def table() -> pa.Table:
    generator = np.random.default_rng(3)
    columns: dict[str, Any] = {name: generator.normal(size=ROWS) for name in ("a", "b", "y")}
    people = [f"{PLANTED}-{number % 40}" for number in range(ROWS)]
    groups = [("north", "south", None)[number % 3] for number in range(ROWS)]
    return pa.table({**columns, "pid": people, "g": groups, "id": range(ROWS)})


@pytest.fixture
def engine() -> ArrowEngine:
    return ArrowEngine({"t": table()})


@pytest.fixture
def ctx(engine: ArrowEngine) -> Iterator[dpsql.Context]:
    with dpsql.Context(engine=Attached("lake", engine, parts=4)) as opened:
        yield opened


def entries(ctx: dpsql.Context) -> list[tuple[float, str]]:
    """Return what each entry charged, and its status."""
    return [(row.epsilon or 0.0, row.status) for row in ctx.ledger.entries() if row.kind == "release"]


def spent(ctx: dpsql.Context) -> float:
    return sum(epsilon for epsilon, _ in entries(ctx))


def released(ctx: dpsql.Context) -> int:
    return sum(status.startswith("released") for _, status in entries(ctx))


UNITS = {"privacy_unit": "pid", "max_rows_per_unit": 3}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("dp_sis", SIS),
    "units": ("dp_sis", {**SIS, **UNITS}),
    "condition": ("dp_sis", {**SIS, "condition": "g = 'north'"}),
    "two passes": ("dp_sis", {**SIS, "center": "target"}),
    "groups": ("dp_avg", {"target": "a", "by": "g", "keys": ["north", "south"], "epsilon": 1, "lower": -2, "upper": 2}),
    "groups of units": ("dp_count", {"by": "g", "keys": ["north", "south"], "epsilon": 1, **UNITS}),
    "blocks": (
        "dp_kendall",
        {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, "blocks": 5, "row_id": "id"},
    ),
    "drawn bounds": ("dp_sum", {"target": "a", "epsilon": 1}),
}


# Forms whose second pass uses what was drawn after the first: they are charged before that draw.
HELD = ("two passes", "drawn bounds")


@pytest.mark.long
@cases("form", FORMS)
def test_a_release_charges_once(ctx: dpsql.Context, form: str) -> None:
    function, given = FORMS[form]
    release = getattr(ctx, function)("t", **given)
    assert len(release.value) > 0
    assert (spent(ctx), released(ctx)) == (1, 1)
    assert release.ledger_id == len(entries(ctx)) == 1 + (form in HELD)


@pytest.mark.long
@cases("form", FORMS)
def test_a_failed_action_charges_once_and_tells_nothing(ctx: dpsql.Context, engine: ArrowEngine, form: str) -> None:
    def fail(action: int) -> None:
        raise ValueError(f"cannot read {PLANTED}")

    engine.before = fail
    function, given = FORMS[form]
    with pytest.raises(dpsql.InternalError, match="I001") as caught:
        getattr(ctx, function)("t", **given)
    assert PLANTED not in "".join(traceback.format_exception(caught.value))
    assert (spent(ctx), released(ctx)) == (1, 0)
    engine.before = lambda action: None
    getattr(ctx, function)("t", **given)
    assert (spent(ctx), released(ctx)) == (2, 1)


@pytest.mark.long
def test_an_interrupt_charges_once(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    def interrupt(action: int) -> None:
        raise KeyboardInterrupt

    engine.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        ctx.dp_sis("t", **SIS)
    assert (spent(ctx), released(ctx)) == (1, 0)


@pytest.mark.long
def test_a_failure_in_a_later_pass_charges_once(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    def fail(action: int) -> None:
        if action == 2:
            raise ValueError

    engine.before = fail
    with pytest.raises(dpsql.InternalError, match="I001"):
        ctx.dp_sis("t", **SIS, center="target")
    assert engine.actions == 1
    assert (spent(ctx), released(ctx)) == (1, 0)


@pytest.mark.long
def test_the_charge_stands_before_the_first_draw(
    ctx: dpsql.Context, engine: ArrowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies between the passes has paid for the noise that its workers saw."""
    seen: list[tuple[float, str]] = []

    def draw(*_: Any) -> int:
        seen.extend(entries(ctx))
        return 0

    monkeypatch.setattr("dpsql.functions.sis.draw_center", draw)
    ctx.dp_sis("t", **SIS, center="target")
    assert seen == [(1.0, "held, charged before the first draw")]


@pytest.mark.odds("0: a stored release is compared with itself")
@pytest.mark.long
def test_a_driver_that_died_is_completed_under_the_same_name(engine: ArrowEngine, tmp_path: Path) -> None:
    """The held entry has paid for the one release that comes of it, and it may be all that the budget allows."""
    script = tmp_path / "driver.py"
    script.write_text(DYING, encoding="utf-8")
    ledger = tmp_path / "ledger"
    died = subprocess.run([sys.executable, str(script), str(ledger)], cwd=Path(__file__).parent.parent, check=False)
    assert died.returncode == -signal.SIGKILL
    with dpsql.Context(engine=Attached("lake", engine, parts=4), ledger=str(ledger)) as ctx:
        assert entries(ctx) == [(1.0, "held, charged before the first draw")]
        with pytest.raises(dpsql.BudgetError, match="B001"):  # another call, without that name
            ctx.dp_sis("t", **SIS, center="target")
        first = ctx.dp_sis("t", **SIS, center="target", release="weekly")
        again = ctx.dp_sis("t", **SIS, center="target", release="weekly")
        assert first.value == again.value
        assert (spent(ctx), released(ctx)) == (1, 1)
        assert entries(ctx)[-1] == (0.0, "released, charged in entry 2")
        assert ctx.ledger.verify().ok


# A driver that is killed between its passes.
DYING = """
import os, signal, sys
sys.path.insert(0, os.getcwd())
import dpsql
from dpsql.engines.attached import Attached
from engines.test_driver import SIS, table
from support.arrow_engine import ArrowEngine

def die(action):
    if action == 2:
        os.kill(os.getpid(), signal.SIGKILL)

engine = ArrowEngine({"t": table()})
engine.before = die
with dpsql.Context(engine=Attached("lake", engine, parts=4), ledger=sys.argv[1]) as ctx:
    ctx.dp_protect("lake.main.t", epsilon=1, source=False)
    ctx.dp_sis("t", **SIS, center="target", release="weekly")
"""


@pytest.mark.long
def test_a_budget_that_is_gone_by_now_is_noticed_before_a_row_is_read(
    ctx: dpsql.Context, engine: ArrowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx.dp_protect("lake.main.t", epsilon=1, source=False)
    ctx.dp_sis("t", **SIS)
    monkeypatch.setattr("dpsql.engines.duckdb.session.Session.check", lambda *_: None)  # another driver was faster
    with pytest.raises(dpsql.BudgetError, match="B001"):
        ctx.dp_sis("t", **SIS, center="target")
    assert (engine.actions, spent(ctx)) == (1, 1)


def unreachable() -> None:
    raise dpsql.SourceError("S026", "no worker answers.")


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no such source": ("S024", "u", {}),
    "no such column": ("S002", "t", {"target": "nothing"}),
    "a type that does not fit": ("S003", "t", {"features": ["a", "g"]}),
    "rows that are kept": ("P073", "t", {"score": "rank", "lower": None, "upper": None}),
    "a budget that does not suffice": ("B001", "t", {"epsilon": 9}),
}


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_reads_and_charges_nothing(ctx: dpsql.Context, engine: ArrowEngine, case: str) -> None:
    code, source, changed = REFUSED[case]
    given = {name: value for name, value in {**SIS, **changed}.items() if value is not None}
    if code == "P073":
        given = {name: value for name, value in given.items() if not name.startswith("target_")}
    ctx.dp_protect("lake.main.t", epsilon=5, source=False)
    more = {"dataset": "lake.main.t"} if code == "S024" else {}
    with pytest.raises(dpsql.DpsqlError, match=code):
        ctx.dp_sis(source, **given, **more)
    assert engine.actions == 0
    assert entries(ctx) == []


@pytest.mark.long
def test_workers_that_do_not_answer_cost_nothing(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    engine.checked = unreachable
    with pytest.raises(dpsql.SourceError, match="S026"):
        ctx.dp_sis("t", **SIS)
    assert entries(ctx) == []


def twice(action: int, found: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [*found, found[0]]


def of_the_call_before() -> Any:
    kept: list[pa.RecordBatch] = []

    def records(action: int, found: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        kept.extend(found)
        return kept[: len(found)]

    return records


def fewer_at_last(engine: ArrowEngine) -> Callable[[int], None]:
    def before(action: int) -> None:
        engine.tables["t"] = table() if action == 1 else table().slice(1)

    return before


def test_rows_of_a_part_are_counted_once() -> None:
    """Rows of no part come in any number of records, and no rows of a part count for nothing."""
    found = FoldedRows(cast("Any", None))
    for rows in ({-1: 5}, {-1: 7}, {0: 3, 1: 4}, {0: 0}):
        found.count(rows)
    for rows in ({1: 4}, {0: 1}, {2: 6, 1: 1}):
        with pytest.raises(ValueError, match="twice"):
            found.count(rows)
    assert found.rows == {-1: 12, 0: 3, 1: 4, 2: 6}


def test_a_part_that_comes_twice_is_refused(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    engine.records = twice
    with pytest.raises(dpsql.InternalError, match="I008"):
        ctx.dp_sis("t", **SIS, **UNITS)
    assert (spent(ctx), released(ctx)) == (1, 0)


def test_records_of_another_call_are_refused(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    engine.records = of_the_call_before()
    ctx.dp_sis("t", **SIS)
    with pytest.raises(dpsql.InternalError, match="I001"):
        ctx.dp_sis("t", **SIS)


@pytest.mark.long
def test_a_source_that_changes_between_passes_is_refused(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    engine.before = fewer_at_last(engine)
    with pytest.raises(dpsql.InternalError, match="I001"):
        ctx.dp_sis("t", **SIS, center="target")


# What happens to one record of a job: it is lost, comes twice, or comes in the place of another.
DELIVERIES: dict[str, Callable[[list[pa.RecordBatch], int], list[pa.RecordBatch]]] = {
    "lost": lambda found, one: [*found[:one], *found[one + 1 :]],
    "twice": lambda found, one: [*found, found[one]],
    "for another": lambda found, one: [*found[:one], found[one - 1], *found[one + 1 :]],
}


@pytest.mark.long
@cases("delivery", DELIVERIES)
@cases("form", ["rows", "units", "two passes"])
def test_a_record_that_is_not_delivered_once_ends_the_call(
    ctx: dpsql.Context, engine: ArrowEngine, form: str, delivery: str
) -> None:
    """Whichever it is, the last one too, in every pass; the charge stands, and nothing is released."""
    function, given = FORMS[form]
    sizes: list[int] = []
    engine.delivered = lambda action, found: sizes.append(len(found)) or found
    getattr(ctx, function)("t", **given)
    places = [(number, one) for number, size in enumerate(sizes, 1) for one in range(size)]
    for tried, (number, one) in enumerate(places, 1):
        engine.actions = 0
        engine.delivered = lambda action, found, number=number, one=one: (
            DELIVERIES[delivery](found, one) if action == number else found
        )
        with pytest.raises(dpsql.InternalError, match="I008"):
            getattr(ctx, function)("t", **given)
        assert (spent(ctx), released(ctx)) == (1 + tried, 1)
    assert len(places) >= 2 * len(sizes)


@pytest.mark.long
@pytest.mark.parametrize("change", ["a value", "the order"])
def test_other_values_in_a_later_pass_are_refused(ctx: dpsql.Context, engine: ArrowEngine, change: str) -> None:
    rows = engine.tables["t"]
    values = rows.column("a").to_numpy().copy()
    values[7] += 2**-40
    other = rows.set_column(0, "a", pa.array(values)) if change == "a value" else rows.take(np.arange(ROWS)[::-1])

    def alter(action: int) -> None:
        engine.tables["t"] = rows if action % 2 else other

    engine.before = alter
    refused = pytest.raises(dpsql.InternalError, match="I001") if change == "a value" else nullcontext()
    with refused:
        ctx.dp_sis("t", **SIS, center="target")
    assert (engine.actions, spent(ctx), released(ctx)) == (2, 1, change == "the order")


@pytest.mark.long
@pytest.mark.parametrize("form", ["a Gram matrix", "private keys", "private keys of units", "few integers"])
def test_workers_merge_wide_records(form: str) -> None:
    wide = pa.table({f"x{number}": np.arange(ROWS) % 5 for number in range(50)})
    rows = pa.table(
        {**{name: wide[name] for name in wide.column_names}, "g": np.arange(ROWS) % 9, "p": np.arange(ROWS)}
    )
    engine = ArrowEngine({"t": rows}, partitions=40)
    units = {"privacy_unit": "p", "max_rows_per_unit": 1} if form == "private keys of units" else {}
    with dpsql.Context(engine=Attached("lake", engine)) as ctx:
        if form == "a Gram matrix":
            ctx.dp_covariance("t", features=wide.column_names, lower=0, upper=5, epsilon=1, delta=1e-6)
        elif form == "few integers":
            ctx.dp_covariance("t", features=wide.column_names[:5], lower=0, upper=5, epsilon=1, delta=1e-6)
        else:
            found = ctx.dp_count("t", by="g", keys="private", epsilon=100, delta=0.1, **units).value
            assert found["value"].to_numpy() == pytest.approx(np.bincount(np.arange(ROWS) % 9), abs=3)
        assert (spent(ctx) > 0, engine.merged) == (True, int(form != "few integers"))


@pytest.mark.long
def test_a_named_release_is_drawn_once(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    first = ctx.dp_sis("t", **SIS, release="r")
    again = ctx.dp_sis("t", **SIS, release="r")
    assert again.value == first.value
    assert again.replayed
    assert (engine.actions, spent(ctx)) == (1, 1)


FREE = ("EXPLAIN SELECT * FROM {}", "PREPARE p AS SELECT * FROM {}", "SELECT * FROM {} LIMIT 0")


@pytest.mark.long
def test_sql_charges_when_it_runs(ctx: dpsql.Context, engine: ArrowEngine) -> None:
    for statement in FREE:
        ctx.connection.execute(statement.format(CALL)).fetchall()
    assert (engine.actions, entries(ctx)) == (0, [])
    assert len(ctx.connection.execute(f"SELECT * FROM {CALL}").fetchall()) == 1
    assert (engine.actions, entries(ctx)) == (1, [(1.0, "released")])


@pytest.mark.long
def test_an_engine_is_named(ctx: dpsql.Context) -> None:
    with pytest.raises(duckdb.InvalidInputException, match=r"P074.*lake"):
        ctx.connection.execute(f"SELECT * FROM {CALL}".replace("'lake'", "'sea'"))


# Whose budget.


@pytest.mark.long
def test_a_table_of_the_catalog_has_the_budget_of_its_name(ctx: dpsql.Context) -> None:
    ctx.dp_protect("lake.main.t", epsilon=1.5, source=False)
    assert ctx.dp_sis("t", **SIS).dataset == "lake.main.t"
    with pytest.raises(dpsql.BudgetError, match="B001"):
        ctx.dp_sis("t", **SIS)


@pytest.mark.long
def test_what_has_no_budget_is_claimed_or_declared_where_any_is_protected(
    ctx: dpsql.Context, engine: ArrowEngine
) -> None:
    ctx.dp_protect("lake.main.t", epsilon=5, source=False)
    with pytest.raises(dpsql.SourceError, match="S025"):
        ctx.dp_sis(table(), **SIS)
    assert ctx.dp_sis(table(), **SIS, dataset="lake.main.t").dataset == "lake.main.t"
    engine.tables["u"] = engine.tables["t"]
    for dataset in (None, "lake.main.t", "lake.main.u"):
        with pytest.raises(dpsql.BudgetError, match="B006"):
            ctx.dp_sis("u", **SIS, dataset=dataset)
    assert len([row for row in ctx.ledger.entries() if row.kind == "release"]) == 1
    with pytest.raises(dpsql.SourceError, match="S015"):
        ctx.dp_sis("t", **SIS, dataset="other")


@pytest.mark.long
def test_the_owners_unit_holds(ctx: dpsql.Context) -> None:
    ctx.dp_protect("lake.main.t", epsilon=5, source=False, privacy_unit="pid", max_rows_per_unit=2)
    release = ctx.dp_sis("t", **SIS)
    assert "pid" in release.guarantee
