"""Python values as SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def literal(value: Any) -> str:
    """Return a number, truth value, text, or list of these as SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


def named(arguments: Mapping[str, Any]) -> str:
    """Return arguments as SQL, ``name := value, …``; those that are None are left out."""
    return ", ".join(f"{name} := {literal(value)}" for name, value in arguments.items() if value is not None)
