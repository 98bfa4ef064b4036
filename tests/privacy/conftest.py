"""Fixtures of the audits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Connections that a test opened; they are closed after it."""
    connections: list[Any] = []
    yield connections
    for connection in connections:
        connection.close()
