"""BLAS on one thread: kernels bring threads of their own, and two kinds of threads on the same processors crawl."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_users = 0
_controller: Any = None
_limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold NumPy's BLAS to one thread in the whole process, until the last of those who asked for it is done."""
    global _controller, _limit, _users
    with _lock:
        if _users == 0:
            if _controller is None:
                import scipy.linalg  # noqa: F401 - brings a BLAS of its own, and the controller sees what is loaded
                from threadpoolctl import ThreadpoolController

                _controller = ThreadpoolController()
            _limit = _controller.limit(limits=1, user_api="blas")
            _limit.__enter__()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.__exit__(None, None, None)
