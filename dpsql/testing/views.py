"""Define views of a release's output, which help an auditor to distinguish two tables.

A view maps one output to a category. The statistical auditor tries many views and keeps the view that separates best,
so a view that shows nothing costs little. These views look for common faults: a likelier selection, narrower noise,
NULL or an error on one table only, rows that share one draw (their difference has no noise), and the grain of
floating-point noise.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

View = Callable[[Any], Hashable]

_BINS = 24
_COARSE_BINS = 6
_COORDINATES = 6
_MEMBERS = 64
_HUGE = 1 << 1000


def atoms(outcome: Any) -> tuple[Any, ...]:
    """Return the scalars of an outcome (nested tuples, lists, dicts and arrays), from left to right."""
    if isinstance(outcome, np.ndarray):
        outcome = outcome.tolist()
    if isinstance(outcome, dict):
        outcome = [part for pair in outcome.items() for part in pair]
    if isinstance(outcome, (list, tuple)):
        return tuple(itertools.chain.from_iterable(map(atoms, outcome)))
    if isinstance(outcome, (set, frozenset)):
        return tuple(sorted(itertools.chain.from_iterable(map(atoms, outcome)), key=repr))
    return (outcome.item(),) if isinstance(outcome, np.generic) else (outcome,)


def default_views(sample: Sequence[Any]) -> list[tuple[str, View]]:
    """Return named views that fit the outcomes.

    Parameters
    ----------
    sample : sequence
        Outcomes of both tables, used only to build the views: their quantiles are the edges of bins.

    Returns
    -------
    views : list of (str, callable)
    """
    flat = [atoms(outcome) for outcome in sample]
    views: list[tuple[str, View]] = [("output", _canonical), ("shape", _shape)]
    words = sorted({atom for members in flat for atom in members if isinstance(atom, str)})[:_MEMBERS]
    views += [(f"contains {word!r}", _contains(word)) for word in words] if len(words) > 1 else []
    width = min(_COORDINATES, max(map(len, flat), default=0))
    coordinates: list[tuple[str, Callable[[Any], Any]]] = [
        (f"output[{index}]" if width > 1 else "output", _coordinate(index)) for index in range(width)
    ]
    pairs = itertools.combinations(range(width), 2)
    coordinates += [(f"output[{a}] - output[{b}]", _difference(a, b)) for a, b in pairs]
    for name, read in coordinates:
        values = [value for value in map(read, sample) if _is_number(value)]
        if len(set(values)) < 2:
            continue
        views.append((f"{name} exactly", _exact(read)))
        cuts = _quantiles(values, _BINS)
        views.append((f"{name} in bins", _binned(read, cuts)))
        if any(isinstance(value, float) for value in values):
            grains = [grain(float(value)) for value in values]
            cuts = _quantiles(values, _COARSE_BINS)
            for finest in _quantiles(grains, _BINS):
                views.append((f"grain of {name} below 2**{finest}", _finer(read, finest)))
                views.append((f"{name} in bins, grain below 2**{finest}", _finer(read, finest, cuts)))
    return views


def grain(value: float) -> int:
    """Return the exponent of the lowest set bit of a double (0 for 0, infinities and NaN).

    Real noise added in doubles leaves sums whose grain depends on the exact value under the noise: some doubles are
    reachable from one table only.
    """
    if value == 0.0 or not math.isfinite(value):
        return 0
    numerator, denominator = value.as_integer_ratio()
    return (numerator & -numerator).bit_length() - denominator.bit_length()


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < _HUGE  # no double is larger
    return isinstance(value, float) and not math.isnan(value)


def _category(atom: Any) -> Hashable:
    if isinstance(atom, float) and math.isnan(atom):
        return "nan"
    return atom if isinstance(atom, Hashable) else repr(atom)


def _canonical(outcome: Any) -> Hashable:
    return tuple(_category(atom) for atom in atoms(outcome))


def _shape(outcome: Any) -> Hashable:
    def kind(atom: Any) -> Hashable:
        special = isinstance(atom, float) and not math.isfinite(atom)
        return _category(atom) if special else type(atom).__name__

    return tuple(map(kind, atoms(outcome)))


def _contains(word: str) -> View:
    return lambda outcome: word in atoms(outcome)


def _coordinate(index: int) -> Callable[[Any], Any]:
    def read(outcome: Any) -> Any:
        flat = atoms(outcome)
        return flat[index] if index < len(flat) else None

    return read


def _difference(first: int, second: int) -> Callable[[Any], Any]:
    def read(outcome: Any) -> Any:
        flat = atoms(outcome)
        if second < len(flat) and _is_number(flat[first]) and _is_number(flat[second]):
            return flat[first] - flat[second]
        return None

    return read


def _exact(read: Callable[[Any], Any]) -> View:
    return lambda outcome: _category(read(outcome))


def _binned(read: Callable[[Any], Any], cuts: Sequence[float]) -> View:
    def view(outcome: Any) -> Hashable:
        value = read(outcome)
        return bisect.bisect_left(cuts, value) if _is_number(value) else ("other", _category(value))

    return view


def _finer(read: Callable[[Any], Any], finest: int, cuts: Sequence[float] = ()) -> View:
    def view(outcome: Any) -> Hashable:
        value = read(outcome)
        if not isinstance(value, float) or math.isnan(value):
            return ("other", _category(value))
        return bisect.bisect_left(cuts, value), grain(value) < finest

    return view


def _quantiles(values: Sequence[Any], bins: int) -> list[Any]:
    ordered = sorted(values)
    return sorted({ordered[len(ordered) * cut // bins] for cut in range(1, bins)})
