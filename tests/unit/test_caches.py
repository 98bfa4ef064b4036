"""Every cache and every store that outlives a call stands in docs/caches.md, with why rows cannot decide its key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from support.cases import cases

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "caches.md"
# Objects of these rooms end with the call, or the command, that made them: only what a module keeps outlives it.
OF_ONE_CALL = {"cli", "contract", "functions", "kernels", "mechanisms", "noise", "released", "statistics", "testing"}
EMPTY = {"Counter", "OrderedDict", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "defaultdict", "dict", "set"}
MEMO = {"cache", "lru_cache"}
COMPILED = "njit(cache=True)"
PROPERTY = "cached_property"


def last_name(node: ast.AST) -> str:
    """Return the last part of a name, or of what is called."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_memo(node: ast.AST) -> bool:
    return last_name(node) in MEMO


def is_empty(node: ast.AST | None) -> bool:
    """Whether an expression makes a store that is filled later: a mapping, a set, or None in its place."""
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Call) and not node.args and last_name(node) in EMPTY


def assigned(node: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    """Return what is assigned to, and the value."""
    if isinstance(node, ast.Assign):
        return node.targets[0], node.value
    return (node.target, node.value) if isinstance(node, ast.AnnAssign) and node.value is not None else None


def within(tree: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    """Yield each node with the names of the classes and functions around it."""
    for node in ast.iter_child_nodes(tree):
        yield names, node
        inner = (*names, node.name) if isinstance(node, ast.ClassDef | ast.FunctionDef) else names
        yield from within(node, inner)


def stores(source: str, module: str) -> Iterator[str]:
    """Yield the names of the stores of a module that outlive a call."""
    tree = ast.parse(source)
    lasting = module.partition(".")[0] not in OF_ONE_CALL
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for names, node in within(tree):
        if isinstance(node, ast.FunctionDef):
            for one in node.decorator_list:
                if is_memo(one):
                    yield ".".join((module, *names, node.name))
                elif last_name(one) == PROPERTY:
                    yield PROPERTY
                elif isinstance(one, ast.Call) and any(each.arg == "cache" for each in one.keywords):
                    yield COMPILED
        elif isinstance(node, ast.Global):
            yield from (f"{module}.{name}" for name in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and is_memo(node.func) and names:
            yield ".".join((module, *names))
        pair = assigned(node)
        if pair is None:
            continue
        target, value = pair
        if isinstance(target, ast.Name) and not names:
            memo = isinstance(value, ast.Call) and isinstance(value.func, ast.Call) and is_memo(value.func)
            if memo or (is_empty(value) and not isinstance(value, ast.Constant)):
                yield f"{module}.{target.id}"
        elif isinstance(target, ast.Attribute) and last_name(target.value) == "self":
            if lasting and is_empty(value):
                yield ".".join((module, *names[:-1], target.attr))
        elif isinstance(target, ast.Name) and names and names[-1] in classes and lasting:
            if is_empty(value) and not isinstance(value, ast.Constant):
                yield ".".join((module, *names, target.id))
            made = (
                [each.value for each in value.keywords if each.arg == "default_factory"]
                if isinstance(value, ast.Call)
                else []
            )
            if any(
                last_name(one) == "OrderedDict" or (target.id.startswith("_") and last_name(one) in EMPTY)
                for one in made
            ):
                yield ".".join((module, *names, target.id))


@lru_cache(maxsize=1)
def found() -> frozenset[str]:
    """Return the names of all stores."""
    names: set[str] = set()
    for path in sorted((ROOT / "dpsql").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "dpsql").with_suffix("").parts)
        names.update(stores(path.read_text(encoding="utf-8"), module.removesuffix(".__init__")))
    return frozenset(names)


@lru_cache(maxsize=1)
def listed() -> list[tuple[str, list[str]]]:
    """Return the names in the tables of the page, each with the other cells of its row; ``.name`` is of the class before."""
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `"):
            continue
        before = ""
        for name in re.findall(r"`([^`]*)`", cells[0]):
            before = f"{before.rpartition('.')[0]}{name}" if name.startswith(".") else name
            rows.append((before, cells[1:]))
    return rows


@pytest.mark.long
def test_the_page_lists_every_store_once_and_no_other() -> None:
    names = [name for name, _ in listed()]
    assert sorted(found() - set(names)) == [], "not listed: say why rows cannot decide the key"
    assert sorted(set(names) - found()) == [], "listed, and gone"
    assert len(names) == len(set(names))


def test_each_line_says_all() -> None:
    for name, cells in listed():
        assert len(cells) in (1, 3), name
        assert all(cells), name


NUMBERS = re.compile(r"\b(int|float|complex|Fraction|Decimal|Any|object)\b")


def untyped(source: str) -> Iterator[str]:
    """Yield the memos of numbers that take a number for an equal one of another type."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if any(one.annotation is None or NUMBERS.search(ast.unparse(one.annotation)) for one in given):
            yield from (
                node.name for one in node.decorator_list if is_memo(one) and "typed=True" not in ast.unparse(one)
            )


@cases(
    ("source", "names"),
    [
        ("@lru_cache(maxsize=2)\ndef f(x: Fraction): ...", ["f"]),
        ("@cache\ndef f(*, x: int): ...", ["f"]),
        ("@lru_cache\ndef f(x): ...", ["f"]),
        ("@lru_cache(maxsize=2, typed=True)\ndef f(x: float): ...", []),
        ("@cache\ndef f(x: str, y: bool | None): ...", []),
    ],
)
def test_an_untyped_memo_of_numbers_is_found(source: str, names: list[str]) -> None:
    assert list(untyped(source)) == names


def test_a_memo_tells_equal_numbers_apart() -> None:
    """1.0 is equal to Fraction(1): an answer for one must not spare the other the check of its type."""
    for path in sorted((ROOT / "dpsql").rglob("*.py")):
        assert list(untyped(path.read_text(encoding="utf-8"))) == [], path


@cases(
    ("source", "name"),
    [
        ("@lru_cache(maxsize=2)\ndef f(x): ...", "gateway.new.f"),
        ("@functools.cache\ndef f(x): ...", "gateway.new.f"),
        ("class C:\n    @lru_cache\n    def f(self): ...", "gateway.new.C.f"),
        ("f = lru_cache(maxsize=2)(g)", "gateway.new.f"),
        ("class C:\n    def f(self):\n        return lru_cache(maxsize=None)(self.g)", "gateway.new.C.f"),
        ("_known: dict[str, str] = {}", "gateway.new._known"),
        ("_known = WeakKeyDictionary()", "gateway.new._known"),
        ("def f():\n    global known\n    known = 7", "gateway.new.known"),
        ("class C:\n    def __init__(self):\n        self._known = {}", "gateway.new.C._known"),
        (
            "class C:\n    def __init__(self):\n        self._known: dict[str, int] | None = None",
            "gateway.new.C._known",
        ),
        (
            "class C:\n    def f(self):\n        self._known: OrderedDict[str, int] = OrderedDict()",
            "gateway.new.C._known",
        ),
        ("class C:\n    known = {}", "gateway.new.C.known"),
        ("class C:\n    _known: dict[str, int] = field(default_factory=dict)", "gateway.new.C._known"),
        ("class C:\n    @cached_property\n    def f(self): ...", PROPERTY),
        ("@njit(nogil=True, cache=True)\ndef f(x): ...", COMPILED),
    ],
)
def test_a_new_store_is_found(source: str, name: str) -> None:
    assert list(stores(source, "gateway.new")) == [name]


@pytest.mark.long
def test_objects_that_derive_of_themselves_keep_nothing_else() -> None:
    """A `cached_property` is of an object that never changes: its class has no store, and assigns to no attribute."""
    for path in sorted((ROOT / "dpsql").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or node.name in {"Parser"}:
                continue
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            if not any(last_name(each) == PROPERTY for one in methods for each in one.decorator_list):
                continue
            for one in methods:
                if one.name in ("__init__", "__post_init__", "__setstate__", "__new__"):
                    continue
                for inner in ast.walk(one):
                    pair = assigned(inner)
                    target = None if pair is None else pair[0]
                    mine = isinstance(target, ast.Attribute) and last_name(target.value) == "self"
                    assert not mine, f"{path}: {node.name}.{one.name} changes the object"
