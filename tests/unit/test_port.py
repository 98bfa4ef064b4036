"""What workers of engines run gives the integers of DuckDB's threads, however the rows are cut."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch, Fold
from dpsql.engines.duckdb.part import PartStatements
from dpsql.engines.duckdb.running import Calls, Collecting, RunningCall
from dpsql.engines.port import PART
from dpsql.engines.task import Task, fold_of
from dpsql.errors import InternalError
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.kendall import KendallCall, KendallPlan
from dpsql.udfs.rows import collect

ROWS = 500
KEY = b"k" * 16
BOUNDS = {"lower": -2, "upper": 2, "target_lower": -2, "target_upper": 2}
FREE_OF_DUCKDB = (
    "functions.registry",
    "statistics",
    "mechanisms",
    "noise",
    "kernels",
    "contract",
    "ledger",
    "engines.port",
)


def batches() -> list[pa.RecordBatch]:
    generator = np.random.default_rng(1)
    columns = {name: generator.normal(size=ROWS) for name in ("y", "a", "b")}
    return pa.table(columns).to_batches(max_chunksize=77)


def structs(rows: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(rows.columns, rows.schema.names)


def resolved(kind: Any, plan: Any, **given: Any) -> Any:
    checked = plan.from_arguments("t", {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, **given})
    return kind.resolve(checked, pa.struct([(name, pa.float64()) for name in ("y", "a", "b")]), {})


def in_threads(work: Any, items: list[Any]) -> None:
    """Run work on all items, four at a time, and raise what it raises."""
    failed: list[BaseException] = []
    gate = threading.Barrier(4)

    def run(first: int) -> None:
        gate.wait()
        try:
            for item in items[first::4]:
                work(item)
        except BaseException as failure:
            failed.append(failure)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def state_of_tasks(call: Any, rows: list[pa.RecordBatch], parts: int) -> pa.RecordBatch:
    """Return the state that workers reach, each with some of the batches, or with one part."""
    task = Task(call, call.plan.function, call.start(), 1, KEY, b"", parts, PartStatements())
    task = pickle.loads(pickle.dumps(task))
    whole = fold_of(call.start())
    split = pa.Table.from_batches(task.split(rows)) if parts else pa.Table.from_batches(rows)
    keys = split.column(PART).to_pylist() if parts else [number % 5 for number in range(len(split))]
    for part in range(max(keys) + 1):
        some = split.filter(pa.array([key == part for key in keys])).to_batches(max_chunksize=33)
        [record] = [record for batch in task.run(some) for record in batch.to_pylist()]
        with pa.ipc.open_stream(record["state"]) as reader:
            whole.absorb(reader.read_next_batch())
    return whole.state()


def block_of(number: int) -> int:
    """Return the block of seven that a row's id is sorted into, from the definition of the hash."""
    digest = hashlib.md5(KEY + b"%d:0:" % number).digest()
    return int.from_bytes(digest[8:], "little") % 7


def test_tasks_and_threads_give_the_same_products() -> None:
    call = resolved(BestSubsetCall, BestSubsetPlan, lower=-2, upper=2, target_lower=-2, target_upper=2)
    collecting = Collecting(call.start())
    in_threads(lambda rows: collecting.add(call, structs(rows), Batch()), batches())
    of_threads: Any = collecting.merge()
    assert of_threads.state() == state_of_tasks(call, batches(), 0) == collecting.merge().state()


def test_blocks_cut_anywhere_are_put_together() -> None:
    call = resolved(KendallCall, KendallPlan, blocks=7, row_id="id", engine="some")
    table = pa.Table.from_batches(batches()).append_column("id", pa.array(range(ROWS)))
    keys = np.array([block_of(number) for number in range(ROWS)], dtype=np.uint64)
    sizes = np.bincount(keys.astype(int))[keys.astype(int)]
    collecting = Collecting(call.start())
    cuts = np.array_split(np.argsort(keys, kind="stable"), 40)
    rows = structs(table.select(["y", "a", "b"]).combine_chunks().to_batches()[0])
    in_threads(lambda here: collecting.add(call, rows.take(pa.array(here)), Batch(keys[here], sizes[here])), cuts)
    of_threads: Any = collecting.merge()
    assert isinstance(of_threads, Fold)
    assert of_threads.state() == state_of_tasks(call, table.to_batches(max_chunksize=77), 3)


def test_parts_follow_their_rows_however_these_are_cut() -> None:
    call = resolved(BestSubsetCall, BestSubsetPlan, **BOUNDS, privacy_unit="unit", max_rows_per_unit=2, engine="some")
    rows = pa.table(
        {**{name: np.zeros(2400) for name in ("y", "a", "b")}, "unit": [f"p{row % 90}" for row in range(2400)]}
    )
    task = Task(call, call.plan.function, call.start(), 1, KEY, b"", 5, PartStatements())
    whole = task.part_of(rows).to_pylist()
    assert len(set(whole)) == 5
    for pieces in (3, 16, 64):  # DuckDB 2.0 loses the order of ten batches and more
        places = np.sort(np.random.default_rng(pieces).integers(0, 2400, pieces - 1)).tolist()
        cut = [rows.slice(start, stop - start) for start, stop in pairwise([0, *places, 2400])]
        assert task.part_of(pa.concat_tables(cut)).to_pylist() == whole
    assert task.part_of(rows.slice(0, 0)).to_pylist() == []


@pytest.mark.long
@pytest.mark.parametrize("most", [1, 100, 1 << 17])
def test_whole_parts_are_read_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.engines.task._PART_ROWS", most)
    call = resolved(BestSubsetCall, BestSubsetPlan, **BOUNDS, privacy_unit="unit", max_rows_per_unit=2, engine="some")
    table = pa.Table.from_batches(batches()).append_column("unit", pa.array([row % 90 for row in range(ROWS)]))
    task = Task(call, call.plan.function, call.start(), 1, KEY, b"", 5, PartStatements())
    rows = pa.Table.from_batches(task.split(table.to_batches())).sort_by(PART)
    statements: list[int] = []
    alone = Task.alone
    monkeypatch.setattr(Task, "alone", lambda task, rows: statements.append(len(rows)) or alone(task, rows))
    [record] = [record for batch in task.run(rows.to_batches(max_chunksize=33)) for record in batch.to_pylist()]
    counts = np.bincount(rows.column(PART).to_numpy()).tolist()
    assert dict(zip(record["parts"], record["rows"], strict=True)) == dict(enumerate(counts))
    assert statements == {1: counts, 1 << 17: [ROWS]}.get(most, statements)
    with pa.ipc.open_stream(record["state"]) as reader:
        assert reader.read_next_batch() == state_of_tasks(call, table.to_batches(), 5)


@pytest.mark.parametrize("most", [1, 1 << 17])
def test_a_part_that_comes_back_is_refused(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.engines.task._PART_ROWS", most)
    call = resolved(BestSubsetCall, BestSubsetPlan, **BOUNDS, privacy_unit="unit", max_rows_per_unit=2, engine="some")
    table = pa.Table.from_batches(batches()).append_column("unit", pa.array([row % 90 for row in range(ROWS)]))
    task = Task(call, call.plan.function, call.start(), 1, KEY, b"", 5, PartStatements())
    with pytest.raises(RuntimeError, match="I001"):
        list(task.run(pa.Table.from_batches(task.split(table.to_batches())).to_batches()))


def test_a_block_in_part_is_refused() -> None:
    call = resolved(KendallCall, KendallPlan, blocks=2, row_id="id")
    collecting = Collecting(call.start())
    rows = structs(batches()[0])
    keys = np.zeros(len(rows), dtype=np.uint64)
    collecting.add(call, rows, Batch(keys, np.full(len(rows), len(rows) + 1)))
    with pytest.raises(ValueError, match="not complete"):
        collecting.merge()


class Slow(Fold):
    """A large fold that notices when two threads add to it at once, and counts its copies."""

    copies = 0

    def __init__(self) -> None:
        type(self).copies += 1
        self.rows = 0
        self._busy = threading.Lock()

    @property
    def size(self) -> int:
        return 1 << 40

    def zero(self) -> Slow:
        return Slow()

    def add(self, target: Any, features: Any, batch: Batch) -> None:
        assert self._busy.acquire(blocking=False), "two threads at once"
        rows = self.rows
        for _ in range(2000):
            pass
        self.rows = rows + len(target)
        self._busy.release()

    def state(self) -> pa.RecordBatch:
        raise NotImplementedError

    def absorb(self, state: pa.RecordBatch) -> None:
        raise NotImplementedError


def test_threads_wait_for_a_fold_that_is_too_large_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    call = resolved(BestSubsetCall, BestSubsetPlan, lower=-2, upper=2, target_lower=-2, target_upper=2)
    monkeypatch.setattr(Slow, "copies", 0)
    collecting = Collecting(Slow())
    in_threads(lambda rows: collecting.add(call, structs(rows), Batch()), batches() * 20)
    whole: Any = collecting.merge()
    assert (whole.rows, Slow.copies) == (20 * ROWS, 1)


class OneCall(Calls):
    """A session with one call."""

    def __init__(self, running: RunningCall) -> None:
        self._running = running

    def running(self, ticket: int, *, private: bool | None = None) -> RunningCall:
        return self._running

    def guarded(self, ticket: int, work: Any, *, private: bool | None = None) -> Any:
        return work(self._running)


def test_a_batch_of_another_pass_is_found() -> None:
    """A pass reports the numbers of its batches, so one that comes early or late makes the numbers of a pass wrong."""
    call = resolved(BestSubsetCall, BestSubsetPlan, **BOUNDS)

    def whole(reported: list[int] | None) -> Any:
        """Return the collector of a pass of two batches that reports these numbers."""
        running = RunningCall(call, "dp_best_subset", 1, Collecting(call.start()))
        add = collect(OneCall(running))
        came = [add(pa.array([1] * len(rows)), structs(rows)) for rows in batches()[:2]]
        assert [batch.drop_null().to_pylist() for batch in came] == [[1], [2]]
        return running.complete(pa.scalar(reported, pa.list_(pa.int64())))

    assert isinstance(whole([2, 1]), Fold)
    for reported in ([1], [2], [1, 2, 3], [1, 1, 2], [], None):
        with pytest.raises(InternalError, match="I005"):
            whole(reported)


@pytest.mark.long
def test_nothing_but_the_engine_imports_duckdb() -> None:
    """What a worker needs comes without DuckDB, in a process where it cannot be imported."""
    program = f"""
import importlib, pathlib, pkgutil, sys, types
sys.modules["duckdb"] = None
package = types.ModuleType("dpsql")  # whose own __init__ is the user's door, and opens DuckDB
package.__path__ = [{str(_root() / "dpsql")!r}]
sys.modules["dpsql"] = package
for name in {FREE_OF_DUCKDB!r}:
    found = importlib.import_module("dpsql." + name)
    for below in pkgutil.iter_modules(getattr(found, "__path__", [])):
        importlib.import_module(f"dpsql.{{name}}.{{below.name}}")
assert "dpsql.engines.duckdb" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=_root())


def _root() -> Any:
    from pathlib import Path

    return Path(__file__).resolve().parents[2]
