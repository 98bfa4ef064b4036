"""The port: an engine over plain Arrow tables is written in a few lines, and gives the integers of DuckDB's."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch, Collector, Fold
from dpsql.contract.layout import Layout
from dpsql.engines.duckdb.collecting import Collecting
from dpsql.engines.port import Cap, Engine, Handle
from dpsql.functions.best_subset import BestSubsetCall, BestSubsetPlan
from dpsql.functions.kendall import KendallCall, KendallPlan

ROWS = 500
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


class Partitions:
    """An engine whose tables are lists of Arrow batches, and whose workers hand over records."""

    name = "partitions"

    def schema(self, source: Any) -> pa.Schema:
        return source[0].schema

    def rows(self, source: Any, layout: Layout, cap: Cap | None, key: bytes) -> Handle:
        assert cap is None
        handle: Handle = source
        return handle

    def fold(self, handle: Any, call: Any, zero: Collector) -> Collector:
        assert isinstance(zero, Fold)
        for rows in handle:
            fold = zero.zero()
            call.collect(fold, pa.StructArray.from_arrays(rows.columns, rows.schema.names), Batch())
            zero.absorb(fold.state())
        return zero

    def fold_blocks(self, handle: Any, call: Any, zero: Collector, blocks: int) -> Collector:
        assert isinstance(zero, Fold)
        table = pa.Table.from_batches(handle).combine_chunks()
        keys = np.arange(len(table), dtype=np.uint64) % np.uint64(blocks)
        rows = pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], table.schema.names)
        for block in range(blocks):
            here = np.flatnonzero(keys == block)
            fold = zero.zero()
            sizes = np.full(len(here), len(here))
            call.collect(fold, rows.take(pa.array(here)), Batch(keys[here], sizes))
            zero.absorb(fold.state())
        return zero

    def count(self, handle: Any, column: str, most: int, longest: int) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


def batches() -> list[pa.RecordBatch]:
    generator = np.random.default_rng(1)
    columns = {name: generator.normal(size=ROWS) for name in ("a", "b", "y")}
    return pa.table(columns).to_batches(max_chunksize=77)


def structs(rows: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(rows.columns, rows.schema.names)


def resolved(kind: Any, plan: Any, **given: Any) -> Any:
    checked = plan.from_arguments("t", {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, **given})
    return kind.resolve(checked, pa.struct([(name, pa.float64()) for name in ("a", "b", "y")]), {})


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


def test_partitions_and_threads_give_the_same_products() -> None:
    call = resolved(BestSubsetCall, BestSubsetPlan, lower=-2, upper=2, target_lower=-2, target_upper=2)
    engine: Engine = Partitions()
    handle = engine.rows(batches(), call.plan.layout, None, b"")
    of_partitions: Any = engine.fold(handle, call, call.start())
    collecting = Collecting(call.start())
    in_threads(lambda rows: collecting.add(call, structs(rows), Batch()), batches())
    of_threads: Any = collecting.whole()
    assert of_threads.total().tolist() == of_partitions.total().tolist()
    assert of_threads.state() == of_partitions.state() == collecting.whole().state()


def test_blocks_cut_anywhere_are_put_together() -> None:
    call = resolved(KendallCall, KendallPlan, blocks=7, row_id="id")
    engine: Engine = Partitions()
    handle = engine.rows(batches(), call.plan.layout, None, b"")
    of_partitions: Any = engine.fold_blocks(handle, call, call.start(), 7)
    table = structs(pa.Table.from_batches(batches()).combine_chunks().to_batches()[0])
    keys = np.arange(ROWS, dtype=np.uint64) % np.uint64(7)
    sizes = np.bincount(keys.astype(int))[keys.astype(int)]
    collecting = Collecting(call.start())
    cuts = np.array_split(np.argsort(keys, kind="stable"), 40)
    in_threads(lambda here: collecting.add(call, table.take(pa.array(here)), Batch(keys[here], sizes[here])), cuts)
    of_threads: Any = collecting.whole()
    assert isinstance(of_threads, Fold)
    assert of_threads.state() == of_partitions.state()


def test_a_block_in_part_is_refused() -> None:
    call = resolved(KendallCall, KendallPlan, blocks=2, row_id="id")
    collecting = Collecting(call.start())
    rows = structs(batches()[0])
    keys = np.zeros(len(rows), dtype=np.uint64)
    collecting.add(call, rows, Batch(keys, np.full(len(rows), len(rows) + 1)))
    with pytest.raises(ValueError, match="not complete"):
        collecting.whole()


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
    whole: Any = collecting.whole()
    assert (whole.rows, Slow.copies) == (20 * ROWS, 1)


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
