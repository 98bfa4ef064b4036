"""Values as SQL literals, for statements that are passed as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from numbers import Integral, Real

from dpsql.rendering import text


def literal_of(value: object) -> str | None:
    """Return a value as one SQL literal.

    Parameters
    ----------
    value : object
        A number, boolean, text, date, None, or a list, tuple or mapping of these.

    Returns
    -------
    literal : str or None
        None for anything else.
    """
    if isinstance(value, str):
        return None if "\0" in value else text(value)
    if isinstance(value, date):  # and datetime
        return text(value.isoformat())
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):  # and NumPy numbers
        return repr(float(value)) if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        items = [literal_of(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    if isinstance(value, Mapping):
        fields = {key: literal_of(item) for key, item in value.items()}
        if None in fields.values() or not all(isinstance(key, str) and "\0" not in key for key in fields):
            return None
        return "{" + ", ".join(f"{text(key)}: {field}" for key, field in fields.items()) + "}"
    return None
