"""How a fault is planted into the product: a piece of it is replaced while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dpsql.functions.registry import plan_from_json

# What stands where, and what stands in for it.
Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes
    ----------
    what : str
        What is wrong.
    patches : tuple
        Owner, name and replacement of each piece.
    """

    what: str
    patches: tuple[Patch, ...]


@contextmanager
def planted(*patches: Patch) -> Iterator[None]:
    """Replace attributes of the product for as long as the context lasts. Never private; for tests only.

    Parameters
    ----------
    *patches : tuple
        Owner, name and replacement of each piece.
    """
    before = [(owner, attribute, vars(owner)[attribute]) for owner, attribute, _ in patches]
    # Plans remember what they once derived.
    plan_from_json.cache_clear()
    try:
        for owner, attribute, value in patches:
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)
        plan_from_json.cache_clear()
