"""The plan of a call: every public choice of one ``dp_sis``, checked, and nothing private."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from dpsql import parameters
from dpsql.errors import ParameterError
from dpsql.parameters import show
from dpsql.source import FRAME_PREFIX, Layout
from dpsql.statistics.xty import NEIGHBOURS

MECHANISMS = ("one_shot", "gumbel", "canonical_lipschitz")
CENTERS = ("public", "target")

_bounds_hint = "Give lower := and upper := from domain knowledge, not from the table."
_target_hint = "Give target_lower := and target_upper := from domain knowledge, or target_levels := [..., ...]."

# Every argument of dp_sis after the source, with its default: the SQL macros, the Python API and
# the documentation's table are checked against this one list.
SIS_ARGUMENTS: dict[str, Any] = {
    "target": None,
    "features": None,
    "n_features": None,
    "names": None,
    "k": None,
    "epsilon": None,
    "lower": None,
    "upper": None,
    "target_lower": None,
    "target_upper": None,
    "target_levels": None,
    "neighbours": None,
    "mechanism": "one_shot",
    "gamma": 0.5,
    "center": "public",
    "center_share": 0.1,
    "privacy_unit": None,
    "max_rows_per_unit": None,
    "row_id": None,
    "value": None,
    "dataset": None,
    "release": None,
}


@dataclass(frozen=True)
class SisPlan:
    """The checked public arguments of one ``dp_sis`` call.

    Attributes
    ----------
    source : str
        The source's name as given; ``''`` in the aggregate form.
    layout : Layout
        Which columns hold what.
    k : int
        Features to select, >= 1.
    epsilon : Fraction
        Privacy loss of the whole call, > 0.
    lower, upper : float or tuple of float
        Public bounds of the features.
    target_bounds : tuple of float or None
        Public bounds of a numeric target; None for a coded one.
    target_levels : tuple or None
        The two public levels of a text or boolean target; the first is coded -1, the second +1.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    mechanism : {'one_shot', 'gumbel', 'canonical_lipschitz'}
        The selection mechanism.
    gamma : Fraction
        Weight of the canonical Lipschitz loss, in (0, 1).
    center : {'public', 'target'}
        Centre of the target.
    center_share : Fraction
        Share of epsilon that a private mean of the target costs, in (0, 1).
    max_rows_per_unit : int
        Rows that one privacy unit may contribute, >= 1.
    dataset : str
        Name of the budget charged.
    release : str or None
        Name of the release.
    """

    source: str
    layout: Layout
    k: int
    epsilon: Fraction
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    target_bounds: tuple[float, float] | None
    target_levels: tuple[Any, Any] | None
    neighbours: str
    mechanism: str
    gamma: Fraction
    center: str
    center_share: Fraction
    max_rows_per_unit: int
    dataset: str
    release: str | None

    @classmethod
    def from_arguments(
        cls, source: Any, arguments: Mapping[str, Any], stated: Mapping[str, Any] | None = None
    ) -> SisPlan:
        """Check the arguments of a call.

        Parameters
        ----------
        source : str
            The source's name, or ``''`` in the aggregate form.
        arguments : mapping
            By the names of `SIS_ARGUMENTS`; a missing one has its default.
        stated : mapping, optional
            What the data's owner stated with `dp_protect` (bounds, neighbours, privacy unit): used
            where the call itself gives nothing.

        Raises
        ------
        ParameterError
            With the code and the legal form of the argument that does not fit.
        """
        given = {
            name: default if arguments.get(name) is None else arguments[name] for name, default in SIS_ARGUMENTS.items()
        }
        for name, value in (stated or {}).items():
            if value is not None and given.get(name) is None:
                given[name] = value
        layout = Layout.from_arguments(given)
        k = parameters.positive_integer("k", given["k"], code="P002", hint="Give the number of features to select.")
        count = (
            len(layout.features) if isinstance(layout.features, tuple) else layout.n_features or len(layout.names or ())
        )
        if count:
            refuse_large_k(k, count)
        lower, upper = parameters.bounds(
            given["lower"], given["upper"], names=("lower", "upper"), code="P003", hint=_bounds_hint
        )
        target_bounds, target_levels = _target(given)
        unit = layout.privacy_unit
        rows = given["max_rows_per_unit"]
        if (unit is None) != (rows is None):
            raise ParameterError(
                "P009",
                "privacy_unit and max_rows_per_unit go together. "
                "Give the id's column and the rows that one id may contribute.",
            )
        if rows is not None:
            rows = parameters.positive_integer(
                "max_rows_per_unit", rows, code="P009", hint="Give the rows that one privacy unit may contribute."
            )
        release = given["release"]
        if release is not None:
            parameters.text("release", release, code="P013", hint="Give the release a name, or leave it out.")
        dataset = given["dataset"] if given["dataset"] is not None else source or "default"
        parameters.text("dataset", dataset, code="P013", hint="Give the name of the budget to charge.")
        return cls(
            source=source,
            layout=layout,
            k=k,
            epsilon=parameters.positive_number(
                "epsilon", given["epsilon"], code="P001", hint="Give the privacy loss to spend, such as 1.0."
            ),
            lower=lower,
            upper=upper,
            target_bounds=target_bounds,
            target_levels=target_levels,
            neighbours=parameters.choice("neighbours", given["neighbours"] or "add_remove", NEIGHBOURS, code="P007"),
            mechanism=parameters.choice("mechanism", given["mechanism"], MECHANISMS, code="P005"),
            gamma=parameters.open_unit_interval("gamma", given["gamma"], code="P006", hint="1/2 is the usual value."),
            center=parameters.choice("center", given["center"], CENTERS, code="P008"),
            center_share=parameters.open_unit_interval(
                "center_share", given["center_share"], code="P008", hint="0.1 is the usual value."
            ),
            max_rows_per_unit=rows or 1,
            dataset=dataset,
            release=release,
        )

    @cached_property
    def public_arguments(self) -> dict[str, Any]:
        """What the call asked for, as JSON values: stored with the charge, and compared on a replay."""
        record = asdict(self)
        if self.source.startswith(FRAME_PREFIX):
            record["source"] = "frame"  # the same call again must replay under its release's name
        record["layout"] = {name: value for name, value in record["layout"].items() if value is not None}
        return {name: _plain(value) for name, value in record.items() if value is not None and name != "release"}

    def to_json(self) -> str:
        """Return the plan as text; `from_json` reads it back."""
        record = asdict(self)
        return json.dumps({name: _plain(value) for name, value in record.items()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SisPlan:
        """Read back what `to_json` wrote."""
        record = json.loads(text)
        record["layout"] = Layout(**{name: _tuple(value) for name, value in record["layout"].items()})
        for name in ("epsilon", "gamma", "center_share"):
            record[name] = Fraction(record[name])
        for name in ("lower", "upper", "target_bounds", "target_levels"):
            record[name] = _tuple(record[name])
        return cls(**record)

    @cached_property
    def center_epsilon(self) -> Fraction:
        """The part of epsilon that the private mean of the target costs; 0 when the centre is public."""
        return self.epsilon * self.center_share if self.center == "target" else Fraction(0)

    @cached_property
    def event(self) -> dict[str, Any]:
        """What the ledger records: the mechanisms and their parameters."""
        selection: dict[str, Any] = {"k": self.k, "epsilon": str(self.epsilon - self.center_epsilon)}
        if self.mechanism == "one_shot":
            selection["mechanism"] = "exponential_noise"
        elif self.mechanism == "gumbel":
            selection |= {"mechanism": "gumbel_noise", "rounds": self.k}
        else:
            selection |= {"mechanism": "canonical_lipschitz", "gamma": str(self.gamma)}
        if self.center == "public":
            return selection
        mean = {"mechanism": "discrete_laplace", "epsilon": str(self.center_epsilon)}
        return {"mechanism": "composed", "events": [mean, selection]}


def refuse_large_k(k: int, count: int) -> None:
    """Raise when more features are asked for than there are."""
    if k > count:
        raise ParameterError("P002", f"k must be at most the number of features, {count}; got {k}. Lower k.")


def _target(given: Mapping[str, Any]) -> tuple[tuple[float, float] | None, tuple[Any, Any] | None]:
    levels = given["target_levels"]
    has_bounds = given["target_lower"] is not None or given["target_upper"] is not None
    if levels is None:
        if not has_bounds:
            return None, None  # right for a boolean target; the column's type decides before a row is read
        names = ("target_lower", "target_upper")
        for name in names:
            if given[name] is not None and not isinstance(given[name], str) and hasattr(given[name], "__iter__"):
                raise ParameterError("P004", f"{name} must be one number. {_target_hint}")
        low, high = parameters.bounds(
            given["target_lower"], given["target_upper"], names=names, code="P004", hint=_target_hint
        )
        return (low, high), None  # type: ignore[return-value]  # lists were refused above
    if has_bounds:
        raise ParameterError("P012", "target_levels and target bounds exclude each other. Give one of them.")
    if isinstance(levels, str) or not hasattr(levels, "__len__") or len(levels) != 2:
        raise ParameterError("P012", f"target_levels must be a list of two levels; got {show(levels)}.")
    first, second = (_level(level) for level in levels)
    if first == second or type(first) is not type(second):
        raise ParameterError("P012", "target_levels must be two different levels of one type.")
    return None, (first, second)


def _level(level: Any) -> str | bool | float:
    if isinstance(level, (str, bool)):
        return level
    return parameters.finite_float("a target level", level, code="P012", hint="Give two texts, booleans or numbers.")


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
