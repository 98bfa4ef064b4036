"""Compiled kernels are loaded in the background, after a process has done enough work to justify it."""

from __future__ import annotations

import threading
from importlib import import_module
from tempfile import mkdtemp
from types import ModuleType


class Compiled:
    """One module of compiled kernels.

    Parameters
    ----------
    module : str
        Full name of a module with a function ``compile_all()``.
    worth : int
        Work that a process does in NumPy before it begins to load them, in a unit of the caller's choice.
    worth_waiting : int, optional
        Work of one call that is worth waiting for them.
    """

    def __init__(self, module: str, worth: int, worth_waiting: int | None = None) -> None:
        self.kernels: ModuleType | None = None
        self._module = module
        self._worth = worth
        self._worth_waiting = worth_waiting
        self._work = 0
        self._loading: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self, work: int) -> ModuleType | None:
        """Count the work about to be done; return the kernels if they are ready."""
        if self.kernels is None:
            self._work += work
            if self._worth_waiting is not None and work > self._worth_waiting:
                self.start().join()
            elif self._loading is None and self._work > self._worth:
                self.start()
        return self.kernels

    def start(self) -> threading.Thread:
        """Start loading the kernels; return the thread that loads them."""
        with self._lock:
            if self._loading is None:
                self._loading = threading.Thread(target=self._load, name="dpsql-compile")
                self._loading.start()
            return self._loading

    def _load(self) -> None:
        try:
            kernels = import_module(self._module)
        except RuntimeError:  # numba finds no directory that it may write its cache to
            _cache_for_this_process()
            kernels = import_module(self._module)
        kernels.compile_all()
        self.kernels = kernels


def _cache_for_this_process() -> None:
    """Give numba a cache directory of this process."""
    import numba

    numba.config.CACHE_DIR = mkdtemp(prefix="dpsql-kernels-")
