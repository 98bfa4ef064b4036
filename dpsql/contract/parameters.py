"""Read and check the public arguments of a call; no code here reads a row.

dpsql reads a number as its shortest decimal, so ``0.1`` is exactly 1/10 in the mechanism, the charge and the budget.
NaN fails every check. Every number has a largest value, so that no argument can make a call use unlimited memory or
time.
"""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Generic, TypeVar

from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError

_Kind = TypeVar("_Kind")
_Value = TypeVar("_Value", covariant=True)
# Messages show whole numbers below this in full.
_MOST_DIGITS = 10**16
# Most characters of a text in a message: enough for a name, not for a frame as text.
_LONGEST_SHOWN = 60
# Messages name containers, and do not show their contents.
_CONTAINERS: dict[type, str] = {list: "a list", tuple: "a tuple", dict: "a struct", set: "a set"}
# Largest value of an integer argument, unless its function sets a smaller limit.
MOST = 1_000_000_000
# Most entries of a list or a struct, equal to the most features.
MOST_ITEMS = 1_000_000
# Checks refuse numbers beyond the range of doubles, because they would overflow later.
_LARGEST = Fraction(sys.float_info.max)
_SMALLEST = Fraction(5e-324)
# A number as text, also in percent; and other words for booleans.
_NUMBER = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*(%?)\s*")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "y", "t", "1"), True),
    **dict.fromkeys(("false", "no", "off", "n", "f", "0"), False),
}


class FrozenMapping(Mapping[str, _Value], Generic[_Value]):
    """Immutable values by name, so that a plan with them has a hash.

    Parameters
    ----------
    values : mapping of str to hashable
        The order is kept.
    """

    def __init__(self, values: Mapping[str, _Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> _Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


# One side of the features' bounds: one number for all, one per feature in order, or one per name.
Side = float | tuple[float, ...] | FrozenMapping[float]
# A public value of rows: a level of a target, or a key.
Level = str | bool | float


def fold(name: str) -> str:
    """Fold a name as DuckDB compares names: without regard to ASCII case."""
    if name.isascii():
        return name.lower()
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


# Longest word that has similar names; a longer one is no slip, and strangers write words, too.
_LONGEST_WORD = 64


def near_names(word: str, candidates: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that a misspelt word may mean, the nearest first; of equal distance the longer.

    A name is near if at most a third of the word's letters were typed wrongly (left out, added, changed, or swapped
    with the next), or if the word is the first part of the name, such as ``max_rows``, or the name's last part with
    a path before it, such as ``public.patients``.

    Parameters
    ----------
    word : str
        As the caller wrote it.
    candidates : iterable of str
        Names that the caller may see.
    most : int
        The number of names to return.
    """
    spelled = fold(word)
    if not 0 < len(spelled) <= _LONGEST_WORD:
        return []
    names = dict.fromkeys(name for name in candidates if name)
    ranked = sorted((_distance_of(spelled, fold(name)), -len(name), name) for name in names)
    return [name for distance, _, name in ranked if distance <= max(1, len(spelled) // 3)][:most]


def _distance_of(word: str, name: str) -> float:
    """Return how far a folded name is from a folded word: 0 if it is the same in another case or place."""
    if name in (word, word.rpartition(".")[2]) or word == name.rpartition(".")[2]:
        return 0
    if len(word) > 2 and name.startswith((f"{word}_", f"{word}s")):
        return 0.5
    return _slips(word, name) if abs(len(word) - len(name)) <= max(1, len(word) // 3) else _LONGEST_WORD


def _slips(word: str, name: str) -> int:
    """Return the number of letters to leave out, add, change or swap with the next (optimal string alignment)."""
    above: list[int] = []
    row = list(range(len(name) + 1))
    for position, letter in enumerate(word):
        before, above, row = above, row, [position + 1]
        for index, other in enumerate(name):
            cost = min(above[index + 1] + 1, row[index] + 1, above[index] + (letter != other))
            if position and index and letter == name[index - 1] and word[position - 1] == other:
                cost = min(cost, before[index - 1] + 1)
            row.append(cost)
    return row[-1]


def show(value: object) -> str:
    """Return a short rendering of an argument for an error message: a literal unchanged, else its type.

    A caller may pass rows instead of a name or a number: a column of a frame, a list of values, or a text of many
    lines. So messages show only values of exactly these types: text of one line of at most 60 characters, numbers,
    booleans, NULL, dates and times. A subclass, such as a NumPy string, is a cell of an array. No message shows an
    argument in another way, and the text is printable on every terminal.
    """
    literal = _literal(value)
    if literal is None:
        return f"a value of type {type(value).__name__}"
    return literal.encode(errors="backslashreplace").decode()


def _literal(value: object) -> str | None:
    """Return a literal unchanged; None for anything else, and for a number with too many digits."""
    try:
        return _spell(value)
    except Exception:
        return None


def _spell(value: object) -> str | None:
    """Return a literal unchanged; None for anything else."""
    kind = type(value)
    if kind is str:
        return _text(str(value))
    if value is None or kind is bool:
        return {None: "NULL", True: "true", False: "false"}[value]  # type: ignore[index]
    if isinstance(value, float) and kind is float and value.is_integer() and abs(value) < _MOST_DIGITS:
        return str(int(value))
    if isinstance(value, Fraction) and kind is Fraction:
        return _decimal(value)
    if kind in (int, float, Decimal):
        digits = str(value)
        return digits if len(digits) <= _LONGEST_SHOWN else f"{digits[: _LONGEST_SHOWN - 3]}..."
    if kind in (date, datetime, time, timedelta):
        return str(value)
    return repr(value) if kind is Unreadable else _CONTAINERS.get(kind)


def is_literal(value: object) -> bool:
    """Return whether a message shows a value unchanged."""
    return is_shown(value) if isinstance(value, str) else type(value) not in _CONTAINERS and _literal(value) is not None


def is_shown(value: str) -> bool:
    """Return whether a message shows a text: it is short, has one line, and is no cell of an array."""
    return type(value) is str and len(value) <= _LONGEST_SHOWN and "\n" not in value and "\r" not in value


def _text(value: str) -> str:
    if is_shown(value):
        return repr(value)
    if len(value) > _LONGEST_SHOWN:
        return f"a text of more than {_LONGEST_SHOWN} characters"
    return "a text of many lines"


def stored_text(value: object) -> str:
    """Return the text of a checked value that the ledger stores for all readers, such as declared bounds."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(stored_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {stored_text(entry)}' for name, entry in value.items())}}}"
    return show(value)


def _decimal(number: Fraction) -> str:
    """Return the decimal from which a number was read (`_as_fraction`)."""
    try:
        as_float = float(number)
    except OverflowError:
        return f"{Decimal(number.numerator) / Decimal(number.denominator):.6g}"
    if number.denominator == 1 and abs(number) < _MOST_DIGITS:
        return str(number.numerator)
    return repr(as_float)


def _as_fraction(value: object) -> Fraction | None:
    """Return the exact rational that `value` represents, or None if it is not a number in the range of doubles."""
    if isinstance(value, bool):
        return None
    fraction: Fraction | None = None
    if isinstance(value, Fraction):
        fraction = value
    elif isinstance(value, Decimal):
        # A decimal with a large exponent would expand to that many digits.
        small = value.is_finite() and (value == 0 or abs(value.adjusted()) < 400)
        fraction = Fraction(value) if small else None
    elif isinstance(value, numbers.Real):
        with suppress(Exception):  # of a caller's class, whose errors are not shown
            if isinstance(value, numbers.Integral):
                fraction = Fraction(int(value))
            elif math.isfinite(as_float := float(value)):
                fraction = Fraction(repr(as_float))
    if fraction is None or fraction == 0 or _SMALLEST <= abs(fraction) <= _LARGEST:
        return fraction
    return None


def list_items(value: Any, most: int = MOST_ITEMS) -> tuple[Any, ...] | None:
    """Return the entries of a list, or None for anything else, such as text, a struct or a set (which has no order).

    This reads at most ``most + 1`` entries, enough to detect too many.
    """
    if isinstance(value, (str, bytes, bytearray, Mapping, Set)):
        return None
    try:
        return tuple(islice(value, most + 1))
    except TypeError:
        return None


@dataclass(frozen=True)
class Unreadable:
    """Placeholder for an unreadable argument: every check refuses it, and `show` can name it."""

    kind: str

    def __repr__(self) -> str:
        return f"a value of type {self.kind}"


# Deeper than any argument: a struct of lists.
_DEEPEST = 6
_PLAIN = (str, float, bool, type(None))


def plain_value(value: object, depth: int = 0) -> object:
    """Convert an argument of a caller's classes to lists, dicts and values that messages can show and compare.

    Only this function reads the argument, once: an iterator becomes a list of at most ``MOST_ITEMS + 1`` entries.
    A part becomes `Unreadable` if its class fails on reading or has no text.
    """
    if type(value) in _PLAIN or (type(value) is int and value.bit_length() < 1000):
        return value
    try:
        if depth > _DEEPEST:
            return Unreadable(type(value).__name__)
        if isinstance(value, Mapping):
            pairs = islice(value.items(), MOST_ITEMS + 1)
            return {plain_value(name, _DEEPEST): plain_value(entry, depth + 1) for name, entry in pairs}
        items = list_items(value)
        if items is not None:
            return [plain_value(item, depth + 1) for item in items]
        repr(value), hash(value), as_double(value)
    except Exception:  # of any kind: a caller's class raised it
        return Unreadable(type(value).__name__)
    return value


def to_write(name: str, value: object) -> str:
    """Return the sentence with the argument to write, after a space."""
    return f" Write {name} := {show(value)}." if name.isidentifier() else f" Write {show(value)}."


def meant_number(name: str, value: object, fits: Callable[[Fraction], bool], *, percent: bool = False) -> str:
    """Return the sentence with the number that a refused value means, after a space; nothing if it means none.

    Parameters
    ----------
    name : str
        The argument, or what else the number is.
    value : object
        As the caller wrote it: a text, or with `percent` also a number.
    fits : callable
        Whether the argument may have a number.
    percent : bool
        Whether the argument is a share, which some write in percent.
    """
    number = _as_fraction(value) if percent else None
    match = _NUMBER.fullmatch(value) if isinstance(value, str) and is_shown(value) else None
    if match is not None:
        number = Fraction(match[1])
    if number is not None and (match[2] if match is not None else True):
        number /= 100
    return "" if number is None or not fits(number) else to_write(name, number)


def positive_number(name: str, value: object, *, hint: str) -> Fraction:
    """Return `value` as an exact rational > 0.

    Raises
    ------
    ParameterError
        The value is missing, not a number, not finite, or not > 0.
    """
    number = _as_fraction(value)
    if number is None or not number > 0:
        meant = meant_number(name, value, lambda number: number > 0)
        raise ParameterError("P024", f"{name} must be a finite number > 0; got {show(value)}. {hint}{meant}")
    return number


def number_from_zero(name: str, value: object, *, hint: str) -> Fraction:
    """Return `value` as an exact rational >= 0."""
    number = _as_fraction(value)
    if number is None or not number >= 0:
        raise ParameterError("P024", f"{name} must be a finite number >= 0; got {show(value)}. {hint}")
    return number


def boolean(name: str, value: object) -> bool:
    """Return `value` if it is true or false."""
    if isinstance(value, bool):
        return value
    word = fold(value.strip()) if isinstance(value, str) else show(value)
    step = to_write(name, _BOOLEANS[word]) if word in _BOOLEANS else ""
    raise ParameterError("P023", f"{name} must be true or false; got {show(value)}.{step}")


def open_unit_interval(name: str, value: object, *, hint: str) -> Fraction:
    """Return `value` as an exact rational strictly between 0 and 1."""
    number = _as_fraction(value)
    if number is None or not 0 < number < 1:
        meant = meant_number(name, value, lambda number: 0 < number < 1, percent=True)
        raise ParameterError(
            "P006", f"{name} must be a number strictly between 0 and 1; got {show(value)}. {hint}{meant}"
        )
    return number


def narrow(kind: type[_Kind], value: object) -> _Kind:
    """Return a value whose type is already checked."""
    if isinstance(value, kind):
        return value
    raise InternalError("I032", f"an argument was checked, and is no {kind.__name__} now. Report it.")


def epsilon(value: object, name: str = "epsilon") -> Fraction:
    """Return an epsilon in [1e-15, 1e12]. A smaller one leaves only noise; a larger one gives no privacy."""
    if value is None:
        raise ParameterError("P001", "epsilon is missing. Give epsilon := 1.0, or what else the call may spend.")
    fraction = _as_fraction(value)
    if fraction is None or not Fraction(1, 10**15) <= fraction <= 10**12:
        meant = meant_number(name, value, lambda number: Fraction(1, 10**15) <= number <= 10**12)
        raise ParameterError(
            "P001",
            f"{name} must be a number between 1e-15 and 1e12; got {show(value)}. 1.0 is usual." + meant,
        )
    return fraction


def delta(value: object, name: str = "delta") -> Fraction:
    """Return a delta in [1e-300, 0.1], the chance that the guarantee fails."""
    fraction = _as_fraction(value)
    if fraction is None or not Fraction(1, 10**300) <= fraction <= Fraction(1, 10):
        example = f"Give {name} := 1e-6"
        if value is None:
            raise ParameterError("P027", f"{name} is missing, the chance that the guarantee fails. {example}.")
        raise ParameterError(
            "P027", f"{name} must be a number from 1e-300 to 0.1; got {show(value)}. {example}, which is usual."
        )
    return fraction


def positive_integer(name: str, value: object, *, hint: str, most: int = MOST) -> int:
    """Return `value` as an integer in [1, `most`]."""
    number = _as_fraction(value)
    if number is None or number.denominator != 1 or number < 1:
        if value is None:
            raise ParameterError("P021", f"{name} is missing. {hint}")
        meant = meant_number(name, value, lambda number: number.denominator == 1 and number >= 1)
        raise ParameterError("P021", f"{name} must be an integer >= 1; got {show(value)}. {hint}{meant}")
    within(name, number, None, most, hint=hint)
    return int(number)


def within(
    name: str,
    value: Fraction | float | None,
    least: Fraction | float | None,
    most: Fraction | float | None,
    *,
    hint: str,
) -> None:
    """Raise if a number is outside its argument's limits. None means no limit, or no number to check."""
    if value is None or ((least is None or value >= least) and (most is None or value <= most)):
        return
    if most is None:
        limits = f"at least {show(least)}"
    elif least is None:
        limits = f"at most {show(most)}"
    else:
        limits = f"from {show(least)} to {show(most)}"
    raise ParameterError("P050", f"{name} must be {limits}; got {show(value)}. {hint}")


def choice(name: str, value: object, options: Sequence[str]) -> str:
    """Return `value` if it is one of `options` (text, in any case)."""
    if isinstance(value, str) and value.strip().lower() in options:
        return value.strip().lower()
    legal = ", ".join(f"'{option}'" for option in options)
    word = fold(value.strip()) if isinstance(value, str) else ""
    near = [option for option in options if len(word) > 2 and option.startswith(word)] or near_names(word, options, 1)
    step = to_write(name, near[0]) if near else ""
    raise ParameterError("P005", f"{name} must be one of {legal}; got {show(value)}.{step}")


def text(name: str, value: object, *, hint: str) -> str:
    """Return `value` if it is text that SQL can store: not empty, without NUL and without lone surrogates."""
    if isinstance(value, str) and value:
        if is_storable(value):
            return value
        raise ParameterError("P013", f"{name} must be text without NUL characters and lone surrogates. {hint}")
    if value is None:
        raise ParameterError("P013", f"{name} is missing. {hint}")
    raise ParameterError("P013", f"{name} must be text; got {show(value)}. {hint}")


def is_storable(value: str) -> bool:
    """Return whether SQL can store a text: it has no NUL and no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in value


def text_list(name: str, value: object, *, hint: str) -> tuple[str, ...]:
    """Return `value` as a tuple of one or more texts."""
    items = list_items(value)
    if items is None:
        raise ParameterError("P043", f"{name} must be a list of texts; got {show(value)}. {hint}")
    within(f"the number of {name}", len(items), None, MOST_ITEMS, hint=hint)
    texts = set(map(type, items)) == {str} or all(isinstance(item, str) for item in items)
    if not items or not texts or not all(items):
        raise ParameterError("P043", f"{name} must be a list of one or more texts, none empty or NULL. {hint}")
    if not is_storable("".join(items)):
        raise ParameterError("P043", f"{name} must hold no NUL characters and no lone surrogates. {hint}")
    return items


def refuse_duplicates(name: str, items: Iterable[str], *, fold_case: bool) -> None:
    """Raise if a text occurs twice in `items`."""
    items = tuple(items)
    if not fold_case and len(set(items)) == len(items):
        return
    seen: set[str] = set()
    for item in items:
        key = fold(item) if fold_case else item
        if key in seen:
            raise ParameterError("P044", f"{name} holds {show(item)} twice. Give each one once.")
        seen.add(key)


def finite_float(name: str, value: object, *, hint: str) -> float:
    """Return `value` as a finite double."""
    number = as_double(value)
    if number is None:
        meant = meant_number(name, value, lambda _: True)
        raise ParameterError("P024", f"{name} must be a finite number; got {show(value)}. {hint}{meant}")
    return number


def as_double(value: object) -> float | None:
    """Return `value` as a finite double, or None if it is not a finite number."""
    number = _as_fraction(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def positive_float(name: str, value: object, *, hint: str) -> float:
    """Return `value` as a finite double > 0."""
    number = finite_float(name, value, hint=hint)
    if not number > 0:
        raise ParameterError("P024", f"{name} must be a finite number > 0; got {show(value)}. {hint}")
    return number


def levels(value: object) -> tuple[Level, Level]:
    """Read the two public levels of a target.

    Raises
    ------
    ParameterError
        P012: not two different levels of one type.
    """
    items = list_items(value, most=2)
    if items is None or len(items) != 2:
        raise ParameterError("P012", f"target_levels must be a list of two levels; got {show(value)}.")
    first, second = map(_level, items)
    if first == second or type(first) is not type(second):
        raise ParameterError("P012", "target_levels must be two different levels of one type.")
    return first, second


def _level(level: object) -> Level:
    if isinstance(level, bool):
        return level
    if isinstance(level, str):
        return level and text("a level", level, hint="Give other texts.")
    number = as_double(level)
    if number is None:
        raise ParameterError("P012", f"a level must be a text, a boolean or a finite number; got {show(level)}.")
    return number


def keys(value: object) -> dict[str, list[Level | None]]:
    """Read the public levels of columns, by name; NULL may be one of them.

    Raises
    ------
    ParameterError
        P063: not a list of different levels of one type for every column.
    """
    hint = "Give the values that a column may have, by its name: keys := {'ward': ['A', 'B', 'C']}."
    if not isinstance(value, Mapping) or not value:
        raise ParameterError("P063", f"keys must name columns; got {show(value)}. {hint}")
    columns: dict[str, list[Level | None]] = {}
    for column, listed in value.items():
        levels = [None if item is None else _level(item) for item in list_items(listed) or ()]
        if len(set(levels)) < len(levels) or len({type(level) for level in levels if level is not None}) != 1:
            raise ParameterError(
                "P063", f"the keys of {show(column)} must be different values of one type; got {show(listed)}. {hint}"
            )
        columns[fold(text("keys", column, hint=hint))] = levels
    return columns
