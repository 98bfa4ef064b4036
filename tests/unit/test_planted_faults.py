"""Every fault that is planted somewhere replaces what is there: one that replaces nothing would be found by no test."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import support.broken as broken
from support.broken.planting import Fault
from support.cases import cases

MODULES = [one.name for one in pkgutil.iter_modules(broken.__path__)]


def faults_of(value: object) -> Iterator[Fault]:
    if isinstance(value, Fault):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from faults_of(one)


@cases("name", MODULES)
def test_what_a_fault_replaces_is_there(name: str) -> None:
    for value in vars(import_module(f"support.broken.{name}")).values():
        for fault in faults_of(value):
            for owner, attribute, _ in fault.patches:
                assert attribute in vars(owner), (fault.what, owner, attribute)
