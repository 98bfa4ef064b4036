"""`dpsql.dataclass` gives what the standard library's decorator gives, and compiles nothing before the first object."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import dpsql.dataclass
from support.cases import cases

OURS: Any = dpsql.dataclass.dataclass
NAN = float("nan")


def classes(decorator: Any) -> tuple[type, type, type]:
    """Return a frozen class, one that is derived from it, and one whose objects change."""

    @decorator(frozen=True)
    class Frozen:
        first: float
        aside: list[int] = dataclasses.field(default_factory=list, compare=False)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "first", self.first + 1)

    @decorator(frozen=True, kw_only=True)
    class Derived(Frozen):
        second: int = dataclasses.field(default=5, repr=False)

    @decorator
    class Changing:
        only: object

    return Frozen, Derived, Changing


Both = tuple[type, type, type]
USES: dict[str, Callable[[Any, Any, Any], object]] = {
    "repr": lambda frozen, derived, changing: [repr(frozen(1)), repr(derived(1, [2])), repr(changing("a"))],
    "equal": lambda frozen, derived, changing: [frozen(1) == frozen(1, [2]), derived(1) == derived(1, second=6)],
    "another class": lambda frozen, derived, changing: [frozen(1) == derived(1), changing(1) == 1],
    "the same nan": lambda frozen, derived, changing: changing(NAN) == changing(NAN),
    "hash": lambda frozen, derived, changing: [hash(frozen(1, [2])), hash(derived(1)), changing.__hash__],
    "fields": lambda frozen, derived, changing: [field.name for field in dataclasses.fields(derived)],
    "replace": lambda frozen, derived, changing: repr(dataclasses.replace(derived(1), first=7)),
    "asdict": lambda frozen, derived, changing: dataclasses.asdict(derived(1)),
    "match": lambda frozen, derived, changing: [owner.__match_args__ for owner in (frozen, derived, changing)],
    "signature": lambda frozen, derived, changing: derived(1) and str(inspect.signature(derived)),
    "copies": lambda frozen, derived, changing: copy.copy(derived(1)) == derived(1),
    "own list": lambda frozen, derived, changing: frozen(1).aside is frozen(1).aside,
    "no argument": lambda frozen, derived, changing: frozen(),
    "another argument": lambda frozen, derived, changing: derived(1, third=3),
    "set": lambda frozen, derived, changing: setattr(derived(1), "first", 2),
    "set what is no field": lambda frozen, derived, changing: setattr(frozen(1), "other", 2),
    "delete": lambda frozen, derived, changing: delattr(derived(1), "first"),
    "set within a plain subclass": lambda frozen, derived, changing: setattr(type("P", (frozen,), {})(1), "other", 2),
}


def outcome(use: Callable[[Any, Any, Any], object], decorator: Any) -> object:
    """Return what a use returns, or the kind and the words of its error."""
    try:
        return use(*classes(decorator))
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@cases("name", USES)
def test_a_class_behaves_as_one_of_the_standard_library(name: str) -> None:
    assert outcome(USES[name], OURS) == outcome(USES[name], dataclasses.dataclass)


@OURS(frozen=True)
class _Sent:
    value: int


def test_objects_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(_Sent(1))) == _Sent(1)


def test_nothing_is_compiled_before_the_first_object(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(dpsql.dataclass, "_compiled", lambda owner, _: compiled.append(owner))
    monkeypatch.setattr("builtins.exec", lambda *_: compiled.append("exec"))
    classes(OURS)
    assert compiled == []
