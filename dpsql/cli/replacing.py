"""Writing a file in one step: who reads it sees the earlier one or the new one, never a part."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_to_replace(path: Path) -> None:
    """Raise OSError now if `path` could not be written later; it stays as it is."""
    if path.exists():
        with path.open("ab"):
            pass
    if is_replaced(path):
        part = _part_of(path)
        try:
            with part.open("xb"):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        part.unlink()


def is_replaced(path: Path) -> bool:
    """Whether a file can stand in the place of `path`: it is no device, pipe or folder."""
    return path.is_file() or not path.exists()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file that takes the place of `path` at the end of a with statement, unless that fails."""
    part = _part_of(path)
    try:
        yield part
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
