"""Compiled kernels arrive late, also where nothing may be written."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pytest

from dpsql.kernels import workers
from dpsql.kernels.workers import Compiled


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("planted_kernels")
    made.compile_all = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "planted_kernels", made)
    return made


def test_kernels_load_once_there_is_work(module: types.ModuleType) -> None:
    compiled = Compiled("planted_kernels", worth=10, worth_waiting=100)
    assert compiled(10) is None
    assert compiled(1) is None or compiled.kernels is module
    compiled.start().join()
    assert compiled(1) is module
    assert Compiled("planted_kernels", worth=10, worth_waiting=100)(101) is module, "large work waits"


def test_a_cache_that_cannot_be_written_is_replaced(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    tries: list[str] = []

    def load(name: str) -> Any:
        tries.append(numba.config.CACHE_DIR)
        if len(tries) == 1:
            raise RuntimeError("cannot cache function: no locator available")
        return importlib.import_module(name)

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(workers, "import_module", load)
    compiled = Compiled("planted_kernels", worth=1)
    compiled.start().join()
    assert compiled.kernels is module
    assert "dpsql-kernels-" in tries[1]
