"""Public bounds of features and of a target: read from arguments, checked, and assigned to features by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpsql.contract.parameters import (
    MOST_ITEMS,
    FrozenMapping,
    Level,
    Side,
    as_double,
    fold,
    levels,
    list_items,
    narrow,
    refuse_duplicates,
    show,
    text,
    within,
)
from dpsql.errors import ParameterError

# Largest absolute bound of values that are multiplied; its inverse is the least width of their interval.
_LARGEST_FACTOR = 1e100
_MOST_SHOWN = 5
_HINT = "Give lower := and upper := from domain knowledge, not from the table."

_target_hint = "Give target_lower := and target_upper := from domain knowledge, or target_levels := [..., ...]."


def public_bounds(lower: object, upper: object, *, names: tuple[str, str], hint: str) -> tuple[Side, Side]:
    """Read public bounds; each side is one number, or a list or struct with one number per feature.

    Parameters
    ----------
    lower, upper : number, list of numbers, or mapping of names to numbers
        In the unit of the column. A list must have one number per feature; a mapping may name further features.
    names : tuple of str
        Names of the two arguments in messages.
    hint : str
        Next step in the message.

    Returns
    -------
    lower, upper : float, tuple of float or mapping of float
        ``lower < upper`` holds for every pair known here; a mapping is sorted by name.

    Raises
    ------
    ParameterError
        P003: missing, ill-typed, not finite, swapped or equal bounds; P013: a name that is not text; P035: lists of
        different lengths; P050: too many bounds for any features.
    """
    low, high = (_side(name, side, hint) for name, side in zip(names, (lower, upper), strict=True))
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
        raise ParameterError("P035", f"{names[0]} has {len(low)} numbers and {names[1]} has {len(high)}. {hint}")
    for a, b in _pairs(low, high):
        if not a < b:
            raise ParameterError("P003", f"{names[0]} must be below {names[1]}; got {a!r} and {b!r}. {hint}")
    return low, high


def _side(name: str, side: object, hint: str) -> Side:
    """Return one side of public bounds."""
    if side is None:
        raise ParameterError("P003", f"{name} is missing. {hint}")
    if isinstance(side, Mapping):
        return _by_name(name, side, hint)
    items = list_items(side)
    if items is None:
        return _bound(name, side, hint)
    if not items:
        raise ParameterError("P003", f"{name} is an empty list. {hint}")
    within(f"the number of bounds in {name}", len(items), None, MOST_ITEMS, hint=hint)
    return tuple(_bound(name, item, hint) for item in items)


def _by_name(name: str, side: Mapping[str, object], hint: str) -> FrozenMapping[float]:
    """Return bounds by name, in the order of the names."""
    if not side:
        raise ParameterError("P003", f"{name} names no feature. {hint}")
    within(f"the number of bounds in {name}", len(side), None, MOST_ITEMS, hint=hint)
    for key in side:
        text(f"a name in {name}", key, hint=hint)
    return FrozenMapping({key: _bound(f"{name} of {show(key)}", side[key], hint) for key in sorted(side)})


def _pairs(low: Side, high: Side) -> Iterable[tuple[float, float]]:
    """Return the pairs of bounds that belong together under any feature names."""
    if isinstance(low, Mapping) and isinstance(high, Mapping):
        return [(low[name], high[name]) for name in low if name in high]
    if isinstance(low, float) and isinstance(high, float):
        return [(low, high)]
    if isinstance(low, float) or isinstance(high, float):
        lows, highs = ([side] if isinstance(side, float) else _numbers(side) for side in (low, high))
        return [(a, b) for a in lows for b in highs]
    if isinstance(low, tuple) and isinstance(high, tuple):
        return zip(low, high, strict=True)
    return []


def _numbers(side: tuple[float, ...] | FrozenMapping[float]) -> Iterable[float]:
    return side.values() if isinstance(side, Mapping) else side


def bounds_by_feature(
    lower: Side, upper: Side, features: Sequence[str], *, fold_case: bool
) -> list[tuple[float, float]]:
    """Return the result of `bounds` as one pair per feature.

    Parameters
    ----------
    lower, upper : float, tuple of float or mapping of float
    features : sequence of str
        Names, in order.
    fold_case : bool
        Whether the names are column names, which ignore ASCII case.

    Raises
    ------
    ParameterError
        P035: a list of another length; P044: a repeated column name; P003: a feature without bounds.
    """
    sides = (_of_features(name, side, features, fold_case) for name, side in (("lower", lower), ("upper", upper)))
    return list(zip(*sides, strict=True))


def refuse_extremes(pairs: Iterable[tuple[float, float]]) -> None:
    """Raise if products or ratios of values in two pairs of bounds, times any row count, may not be doubles.

    Variances, covariances, coefficients and their errors are such products and ratios.

    Raises
    ------
    ParameterError
        P036.
    """
    for lower, upper in pairs:
        if max(abs(lower), abs(upper)) > _LARGEST_FACTOR or upper - lower < 1 / _LARGEST_FACTOR:
            raise ParameterError(
                "P036",
                f"the interval [{lower!r}, {upper!r}] is too narrow or too wide for squares. Rescale the column.",
            )


def _of_features(name: str, side: Side, features: Sequence[str], fold_case: bool) -> Sequence[float]:
    if isinstance(side, tuple):
        if len(side) != len(features):
            raise ParameterError(
                "P035",
                f"the call has {len(side)} bounds for {len(features)} features. Give one number, or one per feature.",
            )
        return side
    if isinstance(side, float):
        return (side,) * len(features)
    if fold_case:
        refuse_duplicates(name, side, fold_case=True)
        folded = {fold(key): value for key, value in side.items()}
        bounds = [folded.get(fold(feature)) for feature in features]
    else:
        bounds = [side.get(feature) for feature in features]
    missing = [show(feature) for feature, bound in zip(features, bounds, strict=True) if bound is None]
    if missing:
        listing = ", ".join(missing[:_MOST_SHOWN]) + (", ..." if len(missing) > _MOST_SHOWN else "")
        raise ParameterError("P003", f"{name} names no bound of {listing}. Name every feature; more names do no harm.")
    return [bound for bound in bounds if bound is not None]


def feature_bounds(arguments: Mapping[str, object], *, or_else: str = "") -> dict[str, Side]:
    """Return the checked public bounds of the features, as the fields ``lower`` and ``upper``.

    `or_else` ends the messages: an alternative for the caller.
    """
    hint = f"{_HINT} {or_else}".rstrip()
    lower, upper = public_bounds(arguments["lower"], arguments["upper"], names=("lower", "upper"), hint=hint)
    return {"lower": lower, "upper": upper}


def column_bounds(arguments: Mapping[str, object], what: str) -> dict[str, float]:
    """Return the checked public bounds of one column; `what` is a clause for the message."""
    bounds = {side: end for side, end in feature_bounds(arguments).items() if isinstance(end, float)}
    if len(bounds) < 2:
        raise ParameterError("P037", f"lower and upper must be one number each: {what}.")
    return bounds


def _bound(name: str, value: object, hint: str) -> float:
    number = as_double(value)
    if number is None:
        raise ParameterError("P003", f"{name} must be a finite number; got {show(value)}. {hint}")
    return number


def has_no_target_code(arguments: Mapping[str, object]) -> bool:
    """Return whether a call has no levels and no bounds for its target."""
    names = ("target_levels", "target_lower", "target_upper")
    return "target_levels" in arguments and all(arguments.get(name) is None for name in names)


def target_of(arguments: Mapping[str, object]) -> tuple[tuple[float, float] | None, tuple[Level, Level] | None]:
    """Return the bounds or the levels of a call's target; None for each that is absent."""
    given_levels = arguments.get("target_levels")
    has_bounds = arguments.get("target_lower") is not None or arguments.get("target_upper") is not None
    if given_levels is None:
        if not has_bounds:
            return None, None  # right for a boolean target; the column's type decides before any row is read
        names = ("target_lower", "target_upper")
        for name in names:
            if isinstance(arguments[name], Mapping) or list_items(arguments[name]) is not None:
                raise ParameterError("P037", f"{name} must be one number. {_target_hint}")
        low, high = public_bounds(arguments["target_lower"], arguments["target_upper"], names=names, hint=_target_hint)
        return (narrow(float, low), narrow(float, high)), None  # the loop above refuses lists
    if has_bounds:
        raise ParameterError("P045", "target_levels and target bounds exclude each other. Give one of them.")
    return None, levels(given_levels)
