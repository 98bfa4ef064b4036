"""Arguments and plan fields that all functions for feature selection share.

An argument for all selectors is in `selector_arguments`, its field in `SelectorPlan`, and its name in `_shared`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsql.contract.arguments import COLUMNS, PROTECTION, Argument, K, Signature
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import Plan
from dpsql.errors import ParameterError


def selector_arguments(*own: Argument) -> Signature:
    """Return the arguments of a selector, including its own."""
    return Signature(*COLUMNS, *own, *PROTECTION)


@dataclass(frozen=True, kw_only=True)
class SelectorPlan(Plan):
    """The plan of a function that selects features."""

    k: int | None  # None if a threshold decides

    @classmethod
    def _shared(cls, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the checked fields that every selector has."""
        return cls._read(arguments, "k")

    def check_features(self, count: int) -> None:
        """Raise if k exceeds the number of features."""
        if self.k is not None:
            _refuse_large_k(self.k, count)


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(SelectorPlan):
    """The plan of a function that selects k features."""

    k: int

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        read_k(arguments, layout)
        return cls._shared(arguments)


def read_k(arguments: Mapping[str, object], layout: Layout) -> int:
    """Return the number of features to select; raise if it exceeds a declared number of features."""
    k = narrow(int, K.read(arguments))
    count = stated_features(layout)
    if count:
        _refuse_large_k(k, count)
    return k


def stated_features(layout: Layout) -> int:
    """Return the number of features that the arguments declare, else 0."""
    return len(layout.features) if isinstance(layout.features, tuple) else layout.n_features or len(layout.names or ())


def _refuse_large_k(k: int, count: int) -> None:
    if k > count:
        raise ParameterError("P002", f"k must be at most the number of features, {count}; got {k}. Lower k.")
