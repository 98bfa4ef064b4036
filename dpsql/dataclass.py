"""Dataclasses that cost little to define: the standard library compiles six methods of each, and most are never called.

`dataclass` gives the results of the decorator in `dataclasses`, without ``order`` and ``slots``. It compiles a method
at its first call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
    ) -> Any:
        """Return the class as a dataclass, or without a class the decorator."""

        def define(owner: type) -> type:
            owner.__doc__ = owner.__doc__ or owner.__name__  # the standard library would work out a signature
            dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(owner)
            names = ["__init__", *["__repr__"] * repr, *["__eq__"] * eq, *["__hash__"] * (eq and frozen)]
            methods: dict[str, object] = {name: _compiled_when_called(owner, name) for name in names}
            methods |= {"__hash__": None} if eq and not frozen else {}
            methods |= _refusing(owner) if frozen else {}
            own = {name for name, method in vars(owner).items() if method is not None}
            for name in methods.keys() - own:
                setattr(owner, name, methods[name])
            return owner

        return define if cls is None else define(cls)


def _compiled_when_called(owner: type, name: str) -> Callable[..., object]:
    """Return a method in whose place the compiled one stands after its first call."""

    def first_call(self: object, *values: object, **named: object) -> object:
        method = _compiled(owner, name)
        setattr(owner, name, method)
        return method(self, *values, **named)

    return first_call


def _compiled(owner: Any, name: str) -> Callable[..., object]:
    """Return a method that the standard library compiles for a class of the same fields."""
    body: dict[str, Any] = {"__module__": owner.__module__, "__qualname__": owner.__qualname__, "__doc__": "A twin."}
    if hasattr(owner, "__post_init__"):
        body["__post_init__"] = None
    body["__annotations__"] = {}
    for field in dataclasses.fields(owner):
        options = {key: getattr(field, key) for key in ("default", "default_factory", "init", "kw_only")}
        options |= {key: getattr(field, key) for key in ("repr", "compare", "hash")}
        body["__annotations__"][field.name] = field.type
        body[field.name] = dataclasses.field(**options)
    twin: Any = dataclasses.dataclass(
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name == "__eq__",
        unsafe_hash=name == "__hash__",
        frozen=name == "__init__",  # so that it sets the fields of frozen objects, too
    )(type(owner.__name__, (), body))
    method: Callable[..., object] = vars(twin)[name]
    return method


def _refusing(owner: Any) -> dict[str, object]:
    """Return the methods by which nobody can change a frozen object."""
    names = {field.name for field in dataclasses.fields(owner)}

    def set_field(self: object, name: str, value: object) -> None:
        if type(self) is owner or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(owner, self).__setattr__(name, value)

    def delete_field(self: object, name: str) -> None:
        if type(self) is owner or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(owner, self).__delattr__(name)

    return {"__setattr__": set_field, "__delattr__": delete_field}
