"""What tests of transports share: a browser, and a fake door behind what a file serves.

Without the extra `serve` the transports are not there to be tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from support.browser import chromium

collect_ignore_glob = [] if find_spec("uvicorn") and find_spec("mcp") and find_spec("grpc") else ["test_gateway_*.py"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def door(served: tuple[Any, str]) -> Any:
    """Return the door of the file's `served`, as new."""
    served[0].reset()
    return served[0]


@pytest.fixture
def url(door: Any, served: tuple[Any, str]) -> str:
    return served[1]
