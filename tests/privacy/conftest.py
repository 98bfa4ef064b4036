"""Fixtures of the audits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.sessions import one_key


@pytest.fixture(autouse=True)
def same_samples() -> Iterator[None]:
    """Compare neighbours under one key, by which units keep their rows, and rows their blocks.

    A guarantee holds under each key. Where every call had its own, two tables would differ by the samples of all units.
    """
    with one_key():
        yield


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Connections that a test opened; they are closed after it."""
    connections: list[Any] = []
    yield connections
    for connection in connections:
        connection.close()
