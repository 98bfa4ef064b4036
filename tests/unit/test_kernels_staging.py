"""Columns that arrive by batches and leave by columns."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dpsql.kernels import columns
from dpsql.kernels.columns import StagedColumns
from support.cases import cases


@cases("largest", [8, 1 << 17])
@cases("batches", [[], [0], [1], [3, 5, 1], [7, 7, 7, 30, 2], [100]])
def test_columns_come_back_whole(monkeypatch: pytest.MonkeyPatch, largest: int, batches: list[int]) -> None:
    monkeypatch.setattr(columns, "_LARGEST_SLAB", largest)
    table = np.arange(3.0 * sum(batches)).reshape(3, -1)
    staged = StagedColumns(3)
    for stop, size in zip(np.cumsum(batches), batches, strict=True):
        staged.append(list(table[:, stop - size : stop]))
    assert staged.rows == sum(batches)
    for position in (2, 0, 1):
        np.testing.assert_array_equal(staged.take(position), table[position])
        assert len(staged.take(position)) == 0, "it has left"


def test_threads_may_append_at_the_same_time() -> None:
    staged = StagedColumns(2)

    def work(first: int) -> None:
        for start in range(first, first + 2000, 50):
            values = np.arange(start, start + 50, dtype=np.float64)
            staged.append([values, -values])

    threads = [threading.Thread(target=work, args=(2000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = staged.take(0)
    np.testing.assert_array_equal(staged.take(1), -values)
    np.testing.assert_array_equal(np.sort(values), np.arange(8000))
