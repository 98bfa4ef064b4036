"""The plan of a call: every public choice of one function's call, checked, and nothing private."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from dpsql.contract import parameters
from dpsql.contract.arguments import EPSILON, NEIGHBOUR_RELATION, K, Signature, as_tuple
from dpsql.contract.events import Event
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement
from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.parameters import Level, Side, known, list_items
from dpsql.contract.placement import Placement
from dpsql.contract.relation import Relation, relation_of
from dpsql.errors import InternalError, ParameterError
from dpsql.noise.discrete import LARGEST_SCALE

# Name, value and meaning of one line of dp_estimate.
Quantity = tuple[str, float, str]

# Gaussian noise of so many rows drowns any table; the samplers draw it still.
WIDEST_ROWS = 10**9

_bounds_hint = "Give lower := and upper := from domain knowledge, not from the table."
_target_hint = "Give target_lower := and target_upper := from domain knowledge, or target_levels := [..., ...]."

# Rows of a table at most, where an argument says how many there are.
MOST_ROWS = 10**12

# What a call's statistic is made of, and so which statement computes it: every row, handed to the call's collector; or
# sums in SQL.
COLLECTED, XTY, HISTOGRAM, FEATURE_COUNTS = "collected", "xty", "histogram", "feature_counts"

# For functions to which the bounds that the data's owner stated, of features and target, say nothing.
NOT_STATED: Mapping[str, str | None] = dict.fromkeys(("lower", "upper", "target_lower", "target_upper"))


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """The checked public arguments of one call.

    Attributes
    ----------
    source : str
        The source's name as given; ``''`` in the aggregate form.
    layout : Layout
        Which columns hold what.
    epsilon : Fraction
        Privacy loss of the whole call, > 0.
    target_bounds : tuple of float or None
        Public bounds of a numeric target.
    target_levels : tuple or None
        The two public levels of a text or boolean target; the first is coded -1, the second +1.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may contribute, from 1 to 1e9.
    dataset : str
        Name of the budget charged.
    release : str or None
        Name of the release.
    placement : Placement or None
        Where the rows come from and whose budgets are charged, where that was asked.
    """

    source: str
    layout: Layout
    epsilon: Fraction
    target_bounds: tuple[float, float] | None
    target_levels: tuple[Level, Level] | None
    neighbours: str
    max_rows_per_unit: int
    dataset: str
    release: str | None
    placement: Placement | None = None

    function: ClassVar[str]
    # Every argument after the source.
    arguments: ClassVar[Signature]
    # After which argument the aggregate form takes `n_features` and `names`; None leaves them in their place.
    names_after: ClassVar[str | None] = None
    # A numeric target needs bounds: the statistic is a sum of its values, coded by them. Otherwise it comes as it is.
    target_needs_bounds: ClassVar[bool] = True
    # The target is one of two public levels, by default false and true, or 0 and 1; other rows count for nothing.
    target_is_label: ClassVar[bool] = False
    # Under which names the bounds that the data's owner stated hold for this function; None leaves one out.
    stated_as: ClassVar[Mapping[str, str | None]] = {}

    @classmethod
    def from_arguments(
        cls, source: str, arguments: Mapping[str, object], stated: Mapping[str, object] | None = None
    ) -> Self:
        """Check the arguments of a call.

        Parameters
        ----------
        source : str
            The source's name, or ``''`` in the aggregate form.
        arguments : mapping
            By the names of `arguments`; a missing one has its default. ``chosen`` beside them: the elements of a
            vector that an earlier release chose.
        stated : mapping, optional
            What the data's owner stated with `dp_protect` (bounds, neighbours, privacy unit): used
            where the call itself gives nothing.

        Raises
        ------
        ParameterError
            With the code and the legal form of the argument that does not fit.
        """
        given = cls.arguments.fill(arguments)
        cls._fill(given, dict(stated or {}), of_table=bool(source))
        layout = cls._layout({**given, "chosen": arguments.get("chosen")})
        own = cls._own(given, layout)
        target_bounds, target_levels = _target(given)
        release = given["release"]
        if release is not None:
            release = parameters.text("release", release, hint="Give the release a name, or leave it out.")
        dataset = given["dataset"] if given["dataset"] is not None else source or "default"
        dataset = parameters.text("dataset", dataset, hint="Give the name of the budget to charge.")
        build: Callable[..., Self] = cls  # each function has fields of its own
        return build(
            source=source,
            layout=layout,
            epsilon=EPSILON.read(given),
            target_bounds=target_bounds,
            target_levels=target_levels,
            neighbours=NEIGHBOUR_RELATION.read(given) or "add_remove",
            max_rows_per_unit=_rows_per_unit(given, layout),
            dataset=dataset,
            release=release,
            **own,
        )

    @classmethod
    def _fill(cls, given: dict[str, object], stated: dict[str, object], *, of_table: bool) -> None:
        """Give what the data's owner stated where a call gives nothing."""
        keys = stated.pop("keys", {})
        levels = known(dict, keys).get(parameters.fold(str(given.get("target")))) if of_table else None
        if levels is not None and len(levels) == 2 and _has_no_target_code(given):
            given["target_levels"] = levels
            stated = {name: value for name, value in stated.items() if not name.startswith("target_")}
        for stated_name, value in stated.items():
            name = cls.stated_as.get(stated_name, stated_name)
            if value is not None and name in given and given[name] is None:
                given[name] = value

    @property
    def relation(self) -> Relation:
        """Which tables must look alike."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    @classmethod
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return which columns hold what."""
        return Layout.from_arguments(given)

    @classmethod
    @abstractmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        """Return the checked fields that this function has and others have not."""

    @classmethod
    def _read(cls, given: Mapping[str, object], *names: str) -> dict[str, object]:
        """Return the checked values of some arguments, which are checked in this order."""
        return {name: cls.arguments[name].read(given) for name in names}

    def check_features(self, count: int) -> None:  # noqa: B027 - a function may have nothing to check
        """Raise when the arguments do not fit the number of features."""

    def check_drawable(self, count: int) -> None:
        """Raise unless every part of the budget can be drawn, for so many features.

        A share of a budget can be too small for any use, and noise wider than the samplers draw. Both follow from
        public arguments, so they are refused before a row is read: nothing fails because of them afterwards.
        """
        for scale in self.laplace_scales(count):
            refuse_wide_noise(scale)
        for part in self.gaussian_parts(count):
            refuse_small_part(part)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of all Laplace noise that the call adds, for so many features."""
        return ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the parts of mu that Gaussian noise is added for, each per row of a privacy unit."""
        return ()

    @property
    def statistic(self) -> str:
        """Which statement computes the statistic."""
        return COLLECTED

    @property
    def most_rows(self) -> int | None:
        """How many rows count at most: of more, a random choice; None for no limit."""
        return None

    @property
    def draws_vocabulary(self) -> bool:
        """Whether the names of the features are private too, and drawn from the rows."""
        return False

    @property
    def passes(self) -> int:
        """How often the rows are read: a later pass uses what was drawn after the one before."""
        return 1

    @property
    def in_blocks(self) -> bool:
        """Whether every row has a block of its own choosing: by its id, or where it has none by its contents."""
        return False

    @property
    def block_by_block(self) -> int | None:
        """Into how many blocks the rows are sorted before they are collected; None leaves them as they come."""
        return None

    @property
    @abstractmethod
    def measurement(self) -> Measurement:
        """What the call spends and samples: its mechanisms in order, each with its share of the loss."""

    @property
    def event(self) -> Event:
        """What the ledger records: the mechanisms and their parameters."""
        return self.measurement.event

    @abstractmethod
    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, from public numbers.

        Parameters
        ----------
        n_features : int
        n_rows : int or None
            A public guess, to put the noise in proportion.

        Returns
        -------
        quantities : list of (name, value, meaning)
        """

    @cached_property
    def public_arguments(self) -> dict[str, Json]:
        """What the call asked for, as JSON values: stored with the charge, and compared on a replay."""
        record = self._record()
        del record["placement"]
        if self.placement is not None and self.placement.content:
            record["content"] = self.placement.content  # what the source means, which its name may lose
        if self.source.startswith(FRAME_PREFIX):
            record["source"] = "frame"  # the same call again must replay under its release's name
        record["layout"] = {name: value for name, value in vars(self.layout).items() if value is not None}
        return {name: _plain(value) for name, value in record.items() if value is not None and name != "release"}

    def _record(self) -> dict[str, object]:
        """Return the fields by name, those of the layout too."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**record, "layout": dict(vars(self.layout))}

    def to_json(self) -> str:
        """Return the plan as text; `dpsql.functions.registry.plan_from_json` reads it back."""
        record = {"function": self.function, **self._record()}
        record["placement"] = None if self.placement is None else self.placement.to_json()
        return json.dumps({name: _plain(value) for name, value in record.items()}, ensure_ascii=False)

    @classmethod
    def from_record(cls, record: Mapping[str, Json]) -> Self:
        """Read back what `to_json` wrote."""
        place: Callable[..., Layout] = Layout
        layout = place(**{name: as_tuple(value) for name, value in known(dict, record["layout"]).items()})
        rest: dict[str, object] = {}
        for field in fields(cls):
            stored = record[field.name]
            if field.name in cls.arguments:
                rest[field.name] = cls.arguments[field.name].restore(stored)
            elif field.name not in ("layout", "placement"):
                rest[field.name] = as_tuple(stored)
        stored = record["placement"]
        placement = None if stored is None else Placement.from_json(known(dict, stored))
        build: Callable[..., Self] = cls
        return build(layout=layout, placement=placement, **rest)

    @property
    def charged(self) -> tuple[str, ...]:
        """The budgets that a release is charged to; the first is `dataset`."""
        return (self.dataset,) if self.placement is None else self.placement.charged

    @property
    def traced(self) -> bool:
        """Whether the column of the privacy unit was followed through the source's plan."""
        return self.placement is not None and self.placement.unit is not None and not self.placement.claimed

    @property
    def lineage(self) -> dict[str, Json] | None:
        """What the ledger keeps of where the rows come from."""
        placement = self.placement
        if placement is None:
            return None
        record: dict[str, Json] = {
            "source": placement.written,
            "read": placement.source,
            "tables": list(placement.tables),
            "charged": list(placement.charged),
        }
        if placement.claimed:
            record["claimed"] = True
        if placement.views:
            record["views"] = placement.views
        return record


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(Plan):
    """The plan of a function that selects k features.

    Attributes
    ----------
    k : int
        Features to select, at least 1 and at most as many as there are.
    """

    k: int

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        k = known(int, K.read(given))
        count = (
            len(layout.features) if isinstance(layout.features, tuple) else layout.n_features or len(layout.names or ())
        )
        if count:
            refuse_large_k(k, count)
        return {"k": k}

    def check_features(self, count: int) -> None:
        """Raise when more features are asked for than there are."""
        refuse_large_k(self.k, count)


def refuse_large_k(k: int, count: int) -> None:
    """Raise when more features are asked for than there are."""
    if k > count:
        raise ParameterError("P002", f"k must be at most the number of features, {count}; got {k}. Lower k.")


def refuse_wide_noise(scale: Fraction) -> None:
    """Raise when the noise would be wider than the samplers draw: of no use for anything."""
    if scale > LARGEST_SCALE:
        raise ParameterError("P038", "epsilon is too small: the noise would drown any table. Raise epsilon.")


def refuse_small_part(part: Fraction) -> None:
    """Raise when a part of mu leaves Gaussian noise of some `WIDEST_ROWS` rows: of no use for anything."""
    if part * WIDEST_ROWS < 1:
        raise ParameterError(
            "P038", "a part of the budget leaves noise that would drown any table. Raise epsilon, delta or its share."
        )


def feature_bounds(given: Mapping[str, object]) -> dict[str, Side]:
    """Return the checked public bounds of the features, as the fields ``lower`` and ``upper``."""
    lower, upper = parameters.bounds(given["lower"], given["upper"], names=("lower", "upper"), hint=_bounds_hint)
    return {"lower": lower, "upper": upper}


def _rows_per_unit(given: Mapping[str, object], layout: Layout) -> int:
    rows = given["max_rows_per_unit"]
    if (layout.privacy_unit is None) != (rows is None):
        raise ParameterError(
            "P009",
            "privacy_unit and max_rows_per_unit go together. "
            "Give the id's column and the rows that one id may contribute.",
        )
    if rows is None:
        return 1
    return parameters.positive_integer(
        "max_rows_per_unit", rows, hint="Give the rows that one privacy unit may contribute."
    )


def _has_no_target_code(given: Mapping[str, object]) -> bool:
    names = ("target_levels", "target_lower", "target_upper")
    return "target_levels" in given and all(given.get(name) is None for name in names)


def _target(given: Mapping[str, object]) -> tuple[tuple[float, float] | None, tuple[Level, Level] | None]:
    levels = given.get("target_levels")
    has_bounds = given.get("target_lower") is not None or given.get("target_upper") is not None
    if levels is None:
        if not has_bounds:
            return None, None  # right for a boolean target; the column's type decides before a row is read
        names = ("target_lower", "target_upper")
        for name in names:
            if isinstance(given[name], Mapping) or list_items(given[name]) is not None:
                raise ParameterError("P037", f"{name} must be one number. {_target_hint}")
        low, high = parameters.bounds(given["target_lower"], given["target_upper"], names=names, hint=_target_hint)
        return (known(float, low), known(float, high)), None  # lists were refused above
    if has_bounds:
        raise ParameterError("P045", "target_levels and target bounds exclude each other. Give one of them.")
    return None, parameters.levels(levels)


def _plain(value: object) -> Json:
    """Return a value of a plan as JSON holds it."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, (tuple, list)):
        if set(map(type, value)) == {str}:  # the names of a large vocabulary
            return list(value)
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    raise InternalError("I032", f"a plan holds a {type(value).__name__}, which JSON does not. Report it.")
