"""The layout of a source: the role of each column, and the public bounds of features and of a target.

The three layouts (docs/calls.md, "Layouts") are **wide**, a column per feature; **array**, one vector column;
**long**, one row per (row id, feature, value). The arguments alone determine the layout;
dpsql checks column types when the query runs, before it reads a row.

Bounds are read from arguments, checked, and assigned to features by name.
"""

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
    meant_number,
    narrow,
    positive_integer,
    refuse_duplicates,
    show,
    text,
    text_list,
    within,
)
from dpsql.dataclass import dataclass
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
            is_one = isinstance(low, float) and isinstance(high, float)
            raise _swapped(names, a, b, hint, is_one=is_one)
    return low, high


def _swapped(names: tuple[str, str], lower: float, upper: float, hint: str, *, is_one: bool = True) -> ParameterError:
    """Return the refusal of bounds that are equal or swapped, with the call to write for one swapped pair."""
    step = f" Write {names[0]} := {show(upper)}, {names[1]} := {show(lower)}." if is_one and upper < lower else ""
    return ParameterError("P003", f"{names[0]} must be below {names[1]}; got {lower!r} and {upper!r}. {hint}{step}")


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
        if lower > upper:
            raise _swapped(("lower", "upper"), lower, upper, "Give numbers by column.")
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
        meant = meant_number(name, value, lambda _: True)
        raise ParameterError("P003", f"{name} must be a finite number; got {show(value)}. {hint}{meant}")
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


# Most elements of a vector and most names of long rows: each has a name and a score in memory.
MOST_FEATURES = MOST_ITEMS


@dataclass(frozen=True)
class Layout:
    """Role of each column of a source, public and fixed by the arguments.

    Attributes
    ----------
    kind : {'wide', 'array', 'long'}
        See the module docstring.
    target : str
        Column of the target; ``''`` for a function without a target.
    features : tuple of str, str or None
        Wide: the columns, None for every numeric column. Array: the vector's column. Long: the column
        that names the feature.
    names : tuple of str or None
        Feature names of the array and long layouts.
    n_features : int or None
        Length of the vectors of the array layout, at most `MOST_FEATURES`.
    value, row_id : str or None
        Long layout: column of the value (None: presence is 1) and of the row id. In the other
        layouts `row_id` may name a stored unique id, for sampling rows per privacy unit.
    privacy_unit : str or None
        Column of the id of the protected person; None protects single rows.
    chosen : tuple of str or None
        Array layout: names of the features to use; None for all.
    """

    kind: str
    target: str
    features: tuple[str, ...] | str | None
    names: tuple[str, ...] | None
    n_features: int | None
    value: str | None
    row_id: str | None
    privacy_unit: str | None
    chosen: tuple[str, ...] | None = None

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, object]) -> Layout:
        """Read the layout from the arguments of a call.

        Raises
        ------
        ParameterError
            The arguments fit no layout, or contradict each other.
        """
        target = ""
        if "target" in arguments:
            target = text("target", arguments["target"], hint="Give the name of the target's column.")
        unit = _column(arguments, "privacy_unit", "Give the name of the id's column.")
        value, row_id = (_column(arguments, name, "Give the name of a column.") for name in ("value", "row_id"))
        names, n_features = _vector(arguments)
        kind, features = _features(arguments.get("features"))
        if kind == "wide":
            if names is not None or n_features is not None or value is not None:
                raise ParameterError(
                    "P010",
                    "names, n_features and value belong to a vector column or to long rows. "
                    "Give features as the name of one column, or leave these arguments out.",
                )
        elif row_id is not None and (value is not None or n_features is None):
            kind = "long"
        elif row_id is None and value is not None:
            raise ParameterError("P046", "value needs row_id. Name the column that says which row a value is of.")
        if kind == "long" and names is None and arguments.get("vocabulary") != "private":
            paid = " Or pay for a private one: vocabulary := 'private'." if "vocabulary" in arguments else ""
            raise ParameterError(
                "P042",
                "names is missing: in long rows the list of features is private unless you give it. "
                f"Give names := [...] from a public list, not from the table.{paid}",
            )
        if kind == "array" and names is not None and n_features is not None and len(names) != n_features:
            raise ParameterError(
                "P041", f"names has {len(names)} names and n_features is {n_features}. Give only one of them."
            )
        listed = arguments.get("chosen")
        chosen = tuple(listed) if isinstance(listed, (list, tuple)) else None
        layout = cls(kind, target, features, names, n_features, value, row_id, unit, chosen)
        layout._refuse_overlap()
        return layout

    def _refuse_overlap(self) -> None:
        """Raise if one column has two roles."""
        parts = {"target": self.target, "privacy_unit": self.privacy_unit, "row_id": self.row_id, "value": self.value}
        seen: dict[str, str] = {}
        for part, column in parts.items():
            if not column:
                continue
            other = seen.setdefault(fold(column), part)
            if other != part and {other, part} != {"privacy_unit", "row_id"}:
                raise ParameterError(
                    "P011", f"column {show(column)} is both {other} and {part}. Give different columns."
                )
        listed = () if self.features is None else (self.features,) if isinstance(self.features, str) else self.features
        for column in listed:
            part_of = seen.get(fold(column))
            if part_of is not None:
                raise ParameterError(
                    "P011", f"column {show(column)} is a feature and the {part_of}. Leave it out of features."
                )


def _column(arguments: Mapping[str, object], name: str, hint: str) -> str | None:
    """Return the name of an optional column."""
    column = arguments.get(name)
    return None if column is None else text(name, column, hint=hint)


def _vector(arguments: Mapping[str, object]) -> tuple[tuple[str, ...] | None, int | None]:
    """Return the names and the number of features; None for each missing argument."""
    names, length = arguments.get("names"), arguments.get("n_features")
    listed = None if names is None else text_list("names", names, hint="Give one name per feature.")
    if listed is not None:
        refuse_duplicates("names", listed, fold_case=False)
    if length is None:
        return listed, None
    return listed, positive_integer("n_features", length, hint="Give the vectors' length.", most=MOST_FEATURES)


def _features(argument: object) -> tuple[str, tuple[str, ...] | str | None]:
    """Return the layout that `features` implies and the columns; ``'array'`` may still become a long layout."""
    if argument is None:
        return "wide", None
    if isinstance(argument, str):
        return "array", text("features", argument, hint="Give the name of a column.")
    features = text_list("features", argument, hint="Give the names of the columns.")
    refuse_duplicates("features", features, fold_case=True)
    return "wide", features
