"""The layout of a source: the role of each column.

The three layouts (docs/calls.md, "Layouts") are **wide**, a column per feature; **array**, one vector column;
**long**, one row per (row id, feature, value). The arguments alone determine the layout;
dpsql checks column types when the query runs, before it reads a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsql.contract.parameters import MOST_ITEMS, fold, positive_integer, refuse_duplicates, show, text, text_list
from dpsql.errors import ParameterError

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
