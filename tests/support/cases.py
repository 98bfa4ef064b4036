"""Many cases in one test: `cases` in place of ``pytest.mark.parametrize`` where the cases share the test's code.

Each case is a subtest: one that fails does not stop the others. In a long test, each has fixtures of its own. The cases
of a quick test share them, but for `monkeypatch`; where one changes what another one reads, `alone=True` says so. A case that
fails says in which file and line it stands, and how to run it alone::

    @cases("text, code", [("a +", "P001"), pytest.param("a + 1", "", id="a sum")])
    def test_a_text(con, text, code): ...

    python -m pytest tests/unit/test_texts.py -k test_a_text --case 'a sum'

Decorators that stand on each other give every combination, as with ``parametrize``. Cases with other marks make a test of
their own, and so do every twenty.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet  # what pytest.param returns, which has no public name

from support.fixed_bits import BITS

# How many cases one test has at most, so that two processes share the work evenly.
MOST = 20
# How long one case may take, in seconds, and the shortest limit of a test: one of a single case.
CASE_LIMIT, TEST_LIMIT = 300, 900
# Long cases that README's command runs, too, by test; of a test without cases an empty list.
CHOSEN: Mapping[str, Sequence[str]] = tomllib.loads((Path(__file__).parents[1] / "quick.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Case:
    """One case of a test.

    Attributes
    ----------
    name : str
        What ``--case`` chooses it by.
    values : mapping of str to object
        The arguments that it gives to the test.
    marks : tuple of pytest.Mark
    places : tuple of (list, int)
        Where its values stand: in which lists of cases, and the how manieth they are there.
    """

    name: str
    values: Mapping[str, Any]
    marks: tuple[Any, ...] = ()
    places: tuple[tuple[Cases, int], ...] = ()

    def place(self, key: str) -> float:
        """Return its place from 0 to 1 among the cases of a test, which follows from its name and a key."""
        return int.from_bytes(sha256(f"{key} {self.name}".encode()).digest()[:8]) / 2**64

    def where(self) -> str:
        """Return the files and lines where it stands."""
        return ", ".join(cases.where(number) for cases, number in self.places)


@dataclass(frozen=True, eq=False)
class Cases:
    """The cases of one decorator, and where they stand."""

    file: str
    line: int
    of: tuple[Case, ...] = field(default=(), repr=False)
    data: Path | None = None
    alone: bool = False
    quick: int | None = None

    def where(self, number: int) -> str:
        """Return the file and line of a case: in the file of data, in the list that is written out, or the decorator."""
        if self.data is not None:
            return f"{self.data}:{self._line_of_data(self.of[number])}"
        tree = ast.parse(Path(self.file).read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == self.line]
        for call in calls:
            values = call.args[1] if len(call.args) > 1 else None
            if isinstance(values, ast.Name):
                values = _assigned(tree, values.id)
            parts = getattr(values, "elts", getattr(values, "keys", ()))
            if len(parts) == len(self.of):
                return f"{self.file}:{parts[number].lineno}"
        return f"{self.file}:{self.line}"

    def _line_of_data(self, case: Case) -> int:
        """Return the first line of the file of data that holds most of what the case says."""
        assert self.data is not None
        said = [text.strip().splitlines()[0] for text in _texts(case.values) if text.strip()]
        lines = self.data.read_text(encoding="utf-8").splitlines()
        held = [sum(len(text) for text in said if text in line) for line in lines]
        return held.index(max(held)) + 1 if held else 1


def _texts(value: object) -> Iterable[str]:
    """Yield the texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return what a module assigns to a name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return getattr(node, "value", None)
    return None


def cases(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
    data: Path | None = None,
    alone: bool = False,
    quick: int | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a test its cases.

    Parameters
    ----------
    names : str or sequence of str
        The names of the arguments, with commas between.
    values : iterable
        A value a case, or a tuple where there are several names; or ``pytest.param``, with a name and marks.
    ids : callable or iterable, optional
        The names of the cases.
    data : Path, optional
        The file that holds the cases, if they are read from one.
    alone : bool, default False
        Quick cases have fixtures of their own, too.
    quick : int, optional
        How many cases are quick: those of the lowest hash, and those that `quick.toml` names. The others are long.
    """
    fields = [part.strip() for part in names.split(",") if part.strip()] if isinstance(names, str) else [*names]
    frame = sys._getframe(1)
    listed = [*values]
    named = [None] * len(listed) if ids is None or callable(ids) else [*ids]
    found = []
    for number, (one, given) in enumerate(zip(listed, named, strict=True)):
        marks: tuple[Any, ...] = ()
        if isinstance(one, ParameterSet):
            marks, given = tuple(one.marks), given if one.id is None else one.id
            one = one.values
        elif len(fields) == 1:
            one = (one,)
        name = (
            given if given is not None else "-".join(_name(part, ids, fields[i], number) for i, part in enumerate(one))
        )
        found.append(Case(str(name), dict(zip(fields, one, strict=True)), marks))
    mine = Cases(frame.f_code.co_filename, frame.f_lineno, tuple(found), data, alone, quick)
    return functools.partial(_with, mine)


def _name(part: object, ids: object, argument: str, number: int) -> str:
    """Return the name of one argument of a case, as pytest would."""
    own = ids(part) if callable(ids) else None
    if own is not None:
        part = own
    if part is None or isinstance(part, (str, bool, int, float)):
        return str(part).encode("unicode_escape").decode("ascii")
    return str(getattr(part, "__name__", f"{argument}{number}"))


def _with(mine: Cases, test: Callable[..., None]) -> Callable[..., None]:
    """Give a test the cases of one decorator, above those that it has."""
    inner: Sequence[Cases] = getattr(test, "cases", ())
    plain: Callable[..., None] = getattr(test, "plain", test)
    held = (*inner, mine)
    given = {name for one in held for case in one.of[:1] for name in case.values}
    needed = inspect.signature(plain).parameters
    missing = given - needed.keys()
    if missing:
        raise TypeError(f"{plain.__name__}() has no argument {', '.join(sorted(missing))}")
    used = [name for name in needed if name not in given]

    def run(*arguments: Any, cases: Sequence[Case] | None = None, **fixtures: Any) -> None:
        __tracebackhide__ = True
        if cases is None:  # by another test, with a planted fault
            plain(*arguments, **fixtures)
            return
        subtests, test = fixtures["subtests"], fixtures["request"].node
        alone = test.get_closest_marker("long") is not None or any(one.alone for one in held)
        for number, case in enumerate(cases):
            with subtests.test(case.name):
                if number and alone:
                    _again(test)
                given = {name: test.funcargs[name] for name in used}
                with BITS.of_case(case.name), pytest.MonkeyPatch.context() as patches:
                    if "monkeypatch" in given and not alone:
                        given["monkeypatch"] = patches
                    try:
                        plain(**given, **case.values)
                    except Exception as failed:
                        failed.add_note(f"case at {case.where()}; alone: --case '{case.name}'")
                        raise

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(run, name, getattr(plain, name))
    names = dict.fromkeys([*used, "cases", "subtests", "request"])
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    run.plain, run.cases = plain, held  # type: ignore[attr-defined]
    run.pytestmark = [*getattr(test, "pytestmark", ())]  # type: ignore[attr-defined]
    return run


def _again(test: pytest.Function) -> None:
    """Take the fixtures of a test down, and set them up for its next case."""
    state = test.session._setupstate
    try:
        state.teardown_exact(test.parent)  # type: ignore[arg-type]  # what is above the test stays set up
    finally:
        test._initrequest()
        state.setup(test)


def every(held: Sequence[Cases]) -> list[Case]:
    """Return the cases of a test with several decorators: every combination."""
    found = [Case("", {})]
    for one in held:
        found = [
            Case(
                "-".join(filter(None, (first.name, second.name))),
                {**first.values, **second.values},
                (*first.marks, *second.marks),
                (*first.places, (one, number)),
            )
            for first in found
            for number, second in enumerate(one.of)
        ]
    return found


def name_of(item: pytest.Item) -> str:
    """Return what `quick.toml` calls a test: its file below `tests/`, and its name without parameters."""
    path, _, name = item.nodeid.removeprefix("tests/").partition("::")
    return f"{path}::{name.partition('[')[0]}"


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make the tests of a function with cases: one for each kind of marks, and for each `most` of their cases."""
    held: Sequence[Cases] = getattr(metafunc.function, "cases", ())
    if not held:
        return
    found, test = every(held), metafunc.function.__name__
    quick = min((one.quick for one in held if one.quick is not None), default=None)
    if quick is not None:
        first = sorted((case for case in found if not case.marks), key=lambda case: case.place(test))[:quick]
        found = [
            case if case in first else Case(case.name, case.values, (*case.marks, pytest.mark.long), case.places)
            for case in found
        ]
    chosen = CHOSEN.get(name_of(metafunc.definition), ())
    gone = {*chosen} - {case.name for case in found}
    assert not gone, f"tests/quick.toml names cases that {test} no longer has: {', '.join(sorted(gone))}"
    found = [replace(case, marks=(*case.marks, pytest.mark.quick)) if case.name in chosen else case for case in found]
    kinds: dict[str, list[Case]] = {}
    for case in found:
        kinds.setdefault(" ".join(sorted({str(mark) for mark in case.marks})), []).append(case)
    tests: list[Any] = []
    for alike in kinds.values():
        parts = [alike[start : start + MOST] for start in range(0, len(alike), MOST)]
        for part in parts:
            marks = alike[0].marks
            name = " ".join(sorted({mark.name for mark in marks})) or "cases"
            number = f" {len(tests) + 1}"
            if metafunc.config.getoption("timeout", None) is None:  # else the command has a limit of its own
                marks = (*marks, pytest.mark.timeout(max(TEST_LIMIT, CASE_LIMIT * len(part))))
            tests.append(pytest.param(part, marks=marks, id=f"{name}{number}"))
    metafunc.parametrize("cases", tests)
