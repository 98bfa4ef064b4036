"""The rooms of the package: who may import whom, and one name for one thing. CONTRIBUTING.md has the reasons."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest

from support.cases import cases

ROOT = Path(__file__).resolve().parents[2]
# What each room does not know.
OUTSIDE = {"cli", "context", "udfs", "testing", "gateway"}
CALLS = {"functions", "released", "engines", *OUTSIDE}
UNKNOWN = {
    "noise": {"contract", "ledger", "kernels", "mechanisms", "statistics", *CALLS},
    "kernels": {"ledger", "mechanisms", *CALLS},
    "mechanisms": {"ledger", *CALLS},
    "statistics": {"ledger", *CALLS},
    "contract": {"ledger", "mechanisms", "statistics", *CALLS},
    "ledger": CALLS,
    "released": {"functions", "engines", *OUTSIDE},
    "functions": {"engines", *OUTSIDE},
    "engines": OUTSIDE - {"udfs"},
    "testing": {"functions", "mechanisms", "statistics", "kernels", "contract", "ledger", "released", "engines", "cli"}
    | {"gateway"},
}
# What a module does not know, though its room may: it is handed in where it is needed.
HANDED_IN = {
    "dpsql/released/html.py": "dpsql.released.release",
    "dpsql/engines/task.py": "dpsql.engines.duckdb",
    "dpsql/engines/duckdb/session.py": "dpsql.engines.attached",
}
# Rooms that may speak to DuckDB; `connecting`, `context`, `named_engine` and `udfs` stand beside them.
DUCKDB = {"connecting", "engines", "cli", "context", "gateway", "named_engine", "testing", "udfs"}
MOST_LATE = 41
# Public classes of one name: two ways in which one kernel computes the same integers, and parts of functions.
TWICE = {"Search", "Products"}


@lru_cache(maxsize=1)
def modules() -> list[tuple[str, Path, ast.Module]]:
    """Return the room, the path and the tree of every module; a module beside the rooms is a room of its own."""
    found = []
    for folder in ("dpsql", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = "udfs" if folder == "udfs" else parts[1]
            found.append((room, path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of imported modules, wherever in a module they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importing() -> dict[str, set[str]]:
    """Return, for every module by its path, the modules that it imports, wherever in it that is."""
    paths = {str(path): tree for _, path, tree in modules()}
    names: dict[str, str] = {}
    for path in paths:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names[name] = names[f"dpsql.{name}"] = path
    found: dict[str, set[str]] = {}
    for path, tree in paths.items():
        whole = (name if name in names else name.rpartition(".")[0] for name in imported(tree))
        found[path] = {names[name] for name in whole if name in names} - {path}
    return found


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that import themselves by way of others."""
    reached = {module: set(imports) for module, imports in graph.items()}
    for middle in graph:
        for module in graph:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    return {module for module in graph if module in reached[module]}


def rooms_of(tree: ast.AST) -> set[str]:
    """Return the rooms that a module imports from."""
    names = [name.split(".") for name in imported(tree)]
    return {name[1] for name in names if name[0] == "dpsql" and len(name) > 1} | {
        "udfs" for name in names if name[0] == "udfs"
    }


def reads_entropy(tree: ast.AST) -> bool:
    """Whether a module draws from the operating system or from a generator with a seed."""
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    generators = {"random", "os.urandom", "numpy.random"}
    return bool({"os.urandom", "np.random"} & used or generators & set(imported(tree)))


@pytest.mark.long
@cases("room", UNKNOWN)
def test_a_room_imports_from_those_that_it_may_know(room: str) -> None:
    wrong = [
        f"{path}: {name}" for own, path, tree in modules() if own == room for name in UNKNOWN[room] & rooms_of(tree)
    ]
    assert not wrong


@pytest.mark.parametrize("module", HANDED_IN)
def test_a_module_does_not_import_what_is_handed_in(module: str) -> None:
    [tree] = [tree for _, path, tree in modules() if path.as_posix() == module]
    assert not [name for name in imported(tree) if f"{name}.".startswith(f"{HANDED_IN[module]}.")]


@pytest.mark.long
def test_no_modules_import_each_other_in_circles() -> None:
    assert in_circles(importing()) == set()


def leads_somewhere(name: str) -> bool:
    """Whether a dotted name is a module, or what one holds."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[length:]:
                found = getattr(found, part)
        except AttributeError:
            return False
        return True
    return False


def test_names_in_docstrings_lead_somewhere() -> None:
    pattern = re.compile(r"`(dpsql\.(?!dp_)[a-z_.]*\w)[`(]")
    names = {name for _, path, _ in modules() for name in pattern.findall((ROOT / path).read_text("utf-8"))}
    assert len(names) > 100
    assert not [name for name in sorted(names) if not leads_somewhere(name)]


def late(tree: ast.AST) -> set[int]:
    """Return the lines on which a module imports inside its functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = (node for function in functions for node in ast.walk(function))
    return {node.lineno for node in inside if isinstance(node, ast.Import | ast.ImportFrom)}


@pytest.mark.long
def test_few_imports_stand_inside_functions() -> None:
    """Of packages that are optional or slow to load, and of modules that load one; the number only gets smaller."""
    assert sum(len(late(tree)) for _, _, tree in modules()) <= MOST_LATE


def test_no_module_is_long() -> None:
    assert not [str(path) for _, path, _ in modules() if len((ROOT / path).read_text("utf-8").splitlines()) > 500]


def test_the_rule_sees_circles() -> None:
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}


@pytest.mark.long
def test_few_rooms_know_duckdb() -> None:
    wrong = [
        str(path)
        for room, path, tree in modules()
        if room not in DUCKDB
        and path.name != "__init__.py"
        and any(name.split(".")[0] == "duckdb" for name in imported(tree))
    ]
    assert not wrong


@pytest.mark.long
def test_only_noise_reads_entropy() -> None:
    """Keys, tickets and names come from `secrets`, and are no noise; `dpsql doctor` looks whether there is entropy."""
    wrong = [
        str(path)
        for room, path, tree in modules()
        if room not in {"noise", "testing"} and path.name != "doctor.py" and reads_entropy(tree)
    ]
    assert not wrong


def test_public_classes_have_names_of_their_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for _, path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1 and name not in TWICE}


@pytest.mark.parametrize(
    ("text", "rooms"),
    [
        ("import dpsql.ledger.ledger", {"ledger"}),
        ("from dpsql import functions", {"functions"}),
        ("def f():\n    from dpsql.engines.duckdb import session", {"engines"}),
        ("from udfs.spec import UdfSpec", {"udfs"}),
        ("import duckdb", set()),
    ],
)
def test_the_rule_sees_imports(text: str, rooms: set[str]) -> None:
    assert rooms_of(ast.parse(text)) == rooms


@cases(
    ("text", "entropy"),
    [
        ("import os\nos.urandom(8)", True),
        ("from os import urandom", True),
        ("import random", True),
        ("import numpy as np\nnp.random.default_rng()", True),
        ("import secrets\nsecrets.token_hex(8)", False),
        ("os.path.join(a, b)", False),
    ],
)
def test_the_rule_sees_entropy(text: str, entropy: bool) -> None:
    assert reads_entropy(ast.parse(text)) == entropy


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports a test file by its name alone, so that of two one is not collected."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
