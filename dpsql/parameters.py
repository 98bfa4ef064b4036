"""Read and check the public arguments of a call; nothing here has seen a row.

A number is read as its shortest decimal, so that ``0.1`` is exactly 1/10 in the mechanism, in the
charge and in the budget alike. Guards are written so that NaN fails them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from dpsql.errors import ParameterError

_Checked = TypeVar("_Checked")


def fold(name: str) -> str:
    """Return a name as DuckDB compares names: ASCII case does not count, any other does."""
    if name.isascii():
        return name.lower()
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def show(value: Any) -> str:
    """Return a short public rendering of an argument for an error message."""
    text = repr(value) if isinstance(value, str) else "NULL" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _as_fraction(value: Any) -> Fraction | None:
    """Return the exact rational that `value` stands for, or None when it is not a finite number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Decimal):
        return Fraction(value) if value.is_finite() else None
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    if isinstance(value, numbers.Real):
        as_float = float(value)
        return Fraction(repr(as_float)) if math.isfinite(as_float) else None
    return None


def positive_number(name: str, value: Any, *, code: str, hint: str) -> Fraction:
    """Return `value` as an exact rational > 0.

    Raises
    ------
    ParameterError
        When the value is missing, not a number, not finite, or not > 0.
    """
    number = _as_fraction(value)
    if number is None or not number > 0:
        raise ParameterError(code, f"{name} must be a finite number > 0; got {show(value)}. {hint}")
    return number


def number_from_zero(name: str, value: Any, *, code: str, hint: str) -> Fraction:
    """Return `value` as an exact rational >= 0."""
    number = _as_fraction(value)
    if number is None or not number >= 0:
        raise ParameterError(code, f"{name} must be a finite number >= 0; got {show(value)}. {hint}")
    return number


def boolean(name: str, value: Any, *, code: str) -> bool:
    """Return `value` when it is true or false."""
    if isinstance(value, bool):
        return value
    raise ParameterError(code, f"{name} must be true or false; got {show(value)}.")


def open_unit_interval(name: str, value: Any, *, code: str, hint: str) -> Fraction:
    """Return `value` as an exact rational strictly between 0 and 1."""
    number = _as_fraction(value)
    if number is None or not 0 < number < 1:
        raise ParameterError(code, f"{name} must be a number strictly between 0 and 1; got {show(value)}. {hint}")
    return number


def optional(check: Callable[..., _Checked], *arguments: Any, **how: Any) -> _Checked | None:
    """Return what `check` makes of its arguments, or None where the last one, the value, is None."""
    return None if arguments[-1] is None else check(*arguments, **how)


def epsilon(value: Any) -> Fraction:
    """Return an epsilon, in [1e-15, 1e12]: less leaves nothing but noise, and more is no privacy at all."""
    found = positive_number("epsilon", value, code="P001", hint="Give the privacy loss to spend, such as 1.0.")
    if not Fraction(1, 10**15) <= found <= 10**12:
        raise ParameterError("P001", "epsilon must be between 1e-15 and 1e12. 1.0 is usual.")
    return found


def delta(value: Any) -> Fraction:
    """Return a delta, in (0, 0.1]."""
    found = open_unit_interval("delta", value, code="P027", hint="1e-6 is usual.")
    if found > Fraction(1, 10):
        raise ParameterError(
            "P027", "delta must be at most 0.1: it is the chance that the guarantee fails. 1e-6 is usual."
        )
    return found


def positive_integer(name: str, value: Any, *, code: str, hint: str) -> int:
    """Return `value` as an integer >= 1."""
    number = _as_fraction(value)
    if number is None or number.denominator != 1 or number < 1:
        raise ParameterError(code, f"{name} must be an integer >= 1; got {show(value)}. {hint}")
    return int(number)


def choice(name: str, value: Any, options: Sequence[str], *, code: str) -> str:
    """Return `value` when it is one of `options` (text, any case)."""
    if isinstance(value, str) and value.strip().lower() in options:
        return value.strip().lower()
    legal = ", ".join(f"'{option}'" for option in options)
    raise ParameterError(code, f"{name} must be one of {legal}; got {show(value)}.")


def text(name: str, value: Any, *, code: str, hint: str) -> str:
    """Return `value` when it is text that SQL can hold: not empty, no NUL, no lone surrogate."""
    if isinstance(value, str) and value:
        if _is_storable(value):
            return value
        raise ParameterError(code, f"{name} must be text without NUL and lone surrogates. {hint}")
    raise ParameterError(code, f"{name} must be text; got {show(value)}. {hint}")


def _is_storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in value


def text_list(name: str, value: Any, *, code: str, hint: str) -> tuple[str, ...]:
    """Return `value` as a tuple of one or more texts."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ParameterError(code, f"{name} must be a list of texts; got {show(value)}. {hint}")
    items = tuple(value)
    texts = set(map(type, items)) == {str} or all(isinstance(item, str) for item in items)
    if not items or not texts or not all(items):
        raise ParameterError(code, f"{name} must be a list of one or more texts, none empty or NULL. {hint}")
    if not _is_storable("".join(items)):
        raise ParameterError(code, f"{name} must be texts without NUL and lone surrogates. {hint}")
    return items


def refuse_duplicates(name: str, items: Iterable[str], *, code: str, fold_case: bool) -> None:
    """Raise when a text stands twice in `items`."""
    items = tuple(items)
    if not fold_case and len(set(items)) == len(items):
        return
    seen: set[str] = set()
    for item in items:
        key = fold(item) if fold_case else item
        if key in seen:
            raise ParameterError(code, f"{name} holds {show(item)} twice. Give each one once.")
        seen.add(key)


def finite_float(name: str, value: Any, *, code: str, hint: str) -> float:
    """Return `value` as a finite double."""
    number = _as_fraction(value)
    if number is not None:
        try:
            return float(number)
        except OverflowError:
            pass
    raise ParameterError(code, f"{name} must be a finite number; got {show(value)}. {hint}")


def positive_float(name: str, value: Any, *, code: str, hint: str) -> float:
    """Return `value` as a finite double > 0."""
    number = finite_float(name, value, code=code, hint=hint)
    if not number > 0:
        raise ParameterError(code, f"{name} must be a finite number > 0; got {show(value)}. {hint}")
    return number


def bounds(
    lower: Any, upper: Any, *, names: tuple[str, str], code: str, hint: str
) -> tuple[float | tuple[float, ...], float | tuple[float, ...]]:
    """Read public bounds: two numbers, or a list per feature on either side.

    Parameters
    ----------
    lower, upper : number or list of numbers
        In the unit of the column. Lists must have one number per feature.
    names : tuple of str
        What the two arguments are called in messages.
    code, hint : str
        Error code, and the next step to tell.

    Returns
    -------
    lower, upper : float or tuple of float
        ``lower < upper`` holds for every pair.

    Raises
    ------
    ParameterError
        Missing, ill-typed, not finite, swapped or equal bounds, or lists of different lengths.
    """
    sides: list[float | tuple[float, ...]] = []
    for name, side in zip(names, (lower, upper), strict=True):
        if side is None:
            raise ParameterError(code, f"{name} is missing. {hint}")
        if isinstance(side, str) or not isinstance(side, Iterable):
            sides.append(finite_float(name, side, code=code, hint=hint))
        else:
            values = tuple(finite_float(name, item, code=code, hint=hint) for item in side)
            if not values:
                raise ParameterError(code, f"{name} is an empty list. {hint}")
            sides.append(values)
    low, high = sides
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
        raise ParameterError(code, f"{names[0]} has {len(low)} numbers and {names[1]} has {len(high)}. {hint}")
    length = len(low) if isinstance(low, tuple) else len(high) if isinstance(high, tuple) else 1
    for position in range(length):
        a = low[position] if isinstance(low, tuple) else low
        b = high[position] if isinstance(high, tuple) else high
        if not a < b:
            raise ParameterError(code, f"{names[0]} must be below {names[1]}; got {a!r} and {b!r}. {hint}")
    return low, high
