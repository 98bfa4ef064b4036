"""Fixed bits of noise: a test draws the same noise whenever it runs, unless it states its odds of failing by chance.

The bits of a test, of each of its cases and of each fixture follow from its name. A test with the mark ``odds`` draws
from the operating system instead, and says how often it may fail, and why that is so::

    @pytest.mark.odds("1e-8: the false alarm of the fit")

The bits reach dpsql's draws in this process alone, and only one thread gets them in a fixed order. A test that draws in
several threads fails without the mark, and `tests/unit/test_chance.py` asks the mark of tests that draw in processes.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from dpsql.testing.bits import SeededBits

# The most that a test may state, and how it states it.
MOST = 1e-6
STATED = re.compile(r"(0|[1-9](?:\.\d)?e-\d+): \S.*")
# Where dpsql reads noise, and where it makes the keys that choose samples and blocks.
_NOISE, _KEYS = "dpsql.noise.entropy", "dpsql.engines.duckdb.running"


class FixedBits:
    """Stands between dpsql and the entropy of the operating system.

    Attributes
    ----------
    threads : set of int
        The threads of Python that drew since the last test or case began.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._name: str | None = None
        self._bits: SeededBits | None = None
        self._urandom, self._token_bytes = os.urandom, secrets.token_bytes

    def install(self) -> None:
        """Stand in for the operating system, in each process of pytest."""
        changed: Any = secrets
        os.urandom = self._words
        changed.token_bytes = self._key

    def pytest_unconfigure(self) -> None:
        """Step aside."""
        changed: Any = secrets
        os.urandom, changed.token_bytes = self._urandom, self._token_bytes

    @contextmanager
    def of(self, name: str | None) -> Iterator[None]:
        """Give the bits of a name to draws until the block ends; without one, those of the operating system."""
        before = self._name, self._bits
        self._name = name
        self._bits = None if name is None else SeededBits(int.from_bytes(sha256(name.encode()).digest()[:8]))
        try:
            yield
        finally:
            self._name, self._bits = before

    @contextmanager
    def of_case(self, case: str) -> Iterator[None]:
        """Give a case of a test bits of its own, so that it draws the same noise when it runs alone."""
        test = None if self._name is None else self._name.partition("[")[0]
        with self.of(None if test is None else f"{test} {case}"), self._in_one_thread():
            yield

    @contextmanager
    def _in_one_thread(self) -> Iterator[None]:
        """Raise an AssertionError if draws come from several threads, in an order that nobody fixes."""
        self.threads.clear()
        yield
        assert len(self.threads) < 2, 'draws in several threads: say @pytest.mark.odds("1e-9: why")'

    def _words(self, size: int, /) -> bytes:
        if self._bits is None or sys._getframe(1).f_globals.get("__name__") != _NOISE:
            return self._urandom(size)
        return self._drawn(size)

    def _key(self, size: int | None = None) -> bytes:
        if self._bits is None or size is None or sys._getframe(1).f_globals.get("__name__") != _KEYS:
            return self._token_bytes(size)
        return self._drawn(size)

    def _drawn(self, size: int) -> bytes:
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        # Threads of DuckDB and of kernels draw what settles ties alone, and as much in any order.
        if not (thread is None or isinstance(thread, threading._DummyThread) or thread.name.startswith("dpsql-kernel")):
            self.threads.add(thread.ident)
        assert self._bits is not None
        return self._bits.words(-(-size // 8)).tobytes()[:size]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Give a fixture bits of its own, whichever test needs it first."""
        number = getattr(request, "param_index", 0)
        stated = request.node.get_closest_marker("odds") is not None
        with self.of(None if stated else f"{request.node.nodeid} {fixturedef.argname} {number}"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Give a test its bits."""
        with self.of(None if item.get_closest_marker("odds") else item.nodeid), self._in_one_thread():
            return (yield)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse odds that are too high, or without a reason.

        Raises
        ------
        pytest.UsageError
            Naming the tests.
        """
        wrong = [item.nodeid for item in items if any(not stated(*mark.args) for mark in item.iter_markers("odds"))]
        if wrong:
            raise pytest.UsageError(f"odds are at most {MOST:g} and have a reason, '1e-9: why': {', '.join(wrong)}")


def stated(odds: str) -> bool:
    """Whether a text states odds that a test may have, and why."""
    found = STATED.fullmatch(odds)
    return found is not None and float(found[1]) <= MOST


BITS = FixedBits()
