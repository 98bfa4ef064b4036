"""BLAS on one thread: kernels have their own threads, and two pools on the same processors slow each other down."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_limits = ExitStack()
_limited: frozenset[str] = frozenset()
_controllers: dict[frozenset[str], ThreadpoolController] = {}
# Each brings a BLAS of its own, which can be limited once it is loaded.
_BRINGERS = ("numpy", "scipy.linalg")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread in the whole process, until the last user is done.

    SciPy is limited where it was imported before the block is entered.
    """
    global _limited, _users
    with _lock:
        loaded = frozenset(name for name in _BRINGERS if name in sys.modules)
        if loaded != _limited:
            _limits.enter_context(_controller(loaded).limit(limits=1, user_api="blas"))
            _limited = loaded
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limits.close()
                _limited = frozenset()


@cache
def arithmetic() -> int:
    """Return a number for all that decides the last bits of sums of doubles: NumPy, its BLAS, and the processor's kind.

    Where it is the same, the same operations on the same doubles have the same results.
    """
    abilities = import_module("numpy._core._multiarray_umath").__cpu_features__
    with one_thread():
        libraries = _controllers[_limited].info()
    kinds = sorted([str(one.get(name)) for name in ("prefix", "version", "architecture")] for one in libraries)
    known = repr((np.__version__, sorted(name for name, has in abilities.items() if has), kinds))
    return int.from_bytes(hashlib.sha256(known.encode()).digest()[:7], "big")


def _controller(loaded: frozenset[str]) -> ThreadpoolController:
    """Return the controller of what is loaded: it knows the libraries of the moment it was made."""
    if loaded not in _controllers:
        from threadpoolctl import ThreadpoolController

        _controllers[loaded] = ThreadpoolController()
    return _controllers[loaded]
