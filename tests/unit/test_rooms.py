"""The rooms of the package: who may import whom, one name for one thing, and counts that only fall.

CONTRIBUTING.md has the reasons, and `rooms.toml` the counts.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import threading
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dpsql
import dpsql.testing.bits
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
    "dpsql/released/release.py": "dpsql.released.release",
    "dpsql/engines/task.py": "dpsql.engines.duckdb",
    "dpsql/engines/duckdb/session.py": "dpsql.engines.attached",
}
# Rooms that may speak to DuckDB. `connecting`, `context`, `named_engine` and `udfs` are next to them, and `parsing`, whose
# DuckDB holds no data.
DUCKDB = {"connecting", "engines", "cli", "context", "gateway", "named_engine", "parsing", "testing", "udfs"}
MOST_LATE = 41
# Public classes of one name: two ways in which one kernel computes the same integers, and parts of functions.
TWICE = {"Search", "Products"}


# Comments, and literals of text with their prefix.
TEXTS = re.compile(
    r"""#[^\n]*|(?:\b[a-zA-Z]{1,2})?(?:"{3}(?:[^\\"]|\\.|"(?!""))*"{3}|'{3}(?:[^\\']|\\.|'(?!''))*'{3}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""",
    re.DOTALL,
)
IMPORT = re.compile(r"^[ \t]*(?:from +([a-zA-Z_][\w.]*) +import +(\([^)]*\)|[^\n;]*)|import +([^\n;]*))", re.MULTILINE)
NAME = re.compile(r"\b[^\W\d]\w*")


def stripped(text: str) -> str:
    """Return Python code without comments, and with an empty literal for each text: a parser takes eight times as long."""
    return TEXTS.sub(lambda match: "" if match[0].startswith("#") else '""', text)


@lru_cache(maxsize=1)
def modules() -> list[tuple[str, Path, str]]:
    """Return the room, path and stripped code of every module; a module next to the rooms is a room of its own."""
    package = []
    for folder in ("dpsql", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = "udfs" if folder == "udfs" else parts[1]
            package.append((room, path.relative_to(ROOT), stripped(path.read_text(encoding="utf-8"))))
    return package


@cache
def imported(code: str) -> tuple[str, ...]:
    """Return the full names of imported modules, wherever in a module they are imported."""
    names = []
    for source, several, plain in IMPORT.findall(code):
        aliases = [alias.split(" as ")[0].strip() for alias in (several or plain).strip("()").split(",")]
        names += [f"{source}.{alias}" if source else alias for alias in aliases if alias]
    return tuple(names)


def importing() -> dict[str, set[str]]:
    """Return, for every module by its path, the modules that it imports, wherever in it that is."""
    paths = {path.as_posix(): code for _, path, code in modules()}
    names: dict[str, str] = {}
    for path in paths:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names[name] = names[f"dpsql.{name}"] = path
    found: dict[str, set[str]] = {}
    for path, code in paths.items():
        whole = (name if name in names else name.rpartition(".")[0] for name in imported(code))
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


def rooms_of(code: str) -> set[str]:
    """Return the rooms that a module imports from."""
    names = [name.split(".") for name in imported(code)]
    return {name[1] for name in names if name[0] == "dpsql" and len(name) > 1} | {
        "udfs" for name in names if name[0] == "udfs"
    }


def reads_entropy(code: str) -> bool:
    """Whether a module draws from the operating system or from a generator with a seed."""
    generators = {"random", "os.urandom", "numpy.random"}
    return bool(re.search(r"\b(os\.urandom|np\.random)\b", code) or generators & set(imported(code)))


@cases("room", UNKNOWN)
def test_a_room_imports_from_those_that_it_may_know(room: str) -> None:
    wrong = [
        f"{path}: {name}" for own, path, code in modules() if own == room for name in UNKNOWN[room] & rooms_of(code)
    ]
    assert not wrong


@pytest.mark.parametrize("module", HANDED_IN)
def test_a_module_does_not_import_what_is_handed_in(module: str) -> None:
    [code] = [code for _, path, code in modules() if path.as_posix() == module]
    assert not [name for name in imported(code) if f"{name}.".startswith(f"{HANDED_IN[module]}.")]


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


@pytest.mark.long
def test_names_in_docstrings_lead_somewhere() -> None:
    pattern = re.compile(r"`(dpsql\.(?!dp_)[a-z_.]*\w)[`(]")
    names = {name for _, path, _ in modules() for name in pattern.findall((ROOT / path).read_text("utf-8"))}
    assert len(names) > 100
    assert not [name for name in sorted(names) if not leads_somewhere(name)]


def late(code: str) -> list[str]:
    """Return the lines on which a module imports inside its functions."""
    functions: list[int] = []  # how far those are indented that a line is in
    lines = []
    for line in code.splitlines():
        text = line.lstrip()
        if not text or text[0] in ")]}":  # nothing, or the end of a list of arguments
            continue
        while functions and functions[-1] >= len(line) - len(text):
            functions.pop()
        if text.startswith(("def ", "async def ")):
            functions.append(len(line) - len(text))
        elif functions and text.startswith(("import ", "from ")):
            lines.append(line)
    return lines


def test_few_imports_stand_inside_functions() -> None:
    """Of packages that are optional or slow to load, and of modules that load one; the number only gets smaller."""
    assert sum(len(late(code)) for _, _, code in modules()) <= MOST_LATE


def test_the_rule_sees_circles() -> None:
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}


def test_few_rooms_know_duckdb() -> None:
    wrong = [
        str(path)
        for room, path, code in modules()
        if room not in DUCKDB
        and path.name != "__init__.py"
        and any(name.split(".")[0] == "duckdb" for name in imported(code))
    ]
    assert not wrong


def test_dataclasses_cost_little_to_define() -> None:
    """`dpsql.dataclass` compiles methods when they are called; ``order`` and ``slots`` are the standard library's."""
    wrong = [
        str(path)
        for _, path, code in modules()
        if "dataclasses.dataclass" in imported(code)
        and path.name != "dataclass.py"
        and not re.search(r"@dataclass\([^)]*(?:order|slots)=True", code)
    ]
    assert not wrong


def test_only_noise_reads_entropy() -> None:
    """Keys, tickets and names come from `secrets`, and are no noise; `dpsql doctor` looks whether there is entropy."""
    wrong = [
        str(path)
        for room, path, code in modules()
        if room not in {"noise", "testing"} and path.name != "doctor.py" and reads_entropy(code)
    ]
    assert not wrong


def test_public_classes_have_names_of_their_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for _, path, code in modules():
        for name in re.findall(r"^class ([^\W_]\w*)", code, re.MULTILINE):
            found[name].append(str(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1 and name not in TWICE}


@cases(
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
    assert rooms_of(text) == rooms


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
    assert reads_entropy(text) == entropy


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports a test file by its name alone, so that of two one is not collected."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.long
def test_stripped_code_has_the_names_and_imports_that_python_reads() -> None:
    for _, path, code in modules():
        text = (ROOT / path).read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
        assert sorted(imported(code)) == sorted([*plain, *(f"{n.module}.{a.name}" for n in froms for a in n.names)]), (
            path
        )
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = (node for function in functions for node in ast.walk(function))
        assert len(late(code)) == len({n.lineno for n in inside if isinstance(n, ast.Import | ast.ImportFrom)}), path
        if sys.version_info < (3, 12):  # later ones read names within f-strings, too
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            assert NAME.findall(code) == [token.string for token in tokens if token.type == tokenize.NAME], path


# Counts that only fall.

RECORDED: dict[str, Any] = tomllib.loads((ROOT / "tests/unit/rooms.toml").read_text(encoding="utf-8"))


def complaint(subject: str, count: int, record: Mapping[str, Any]) -> str:
    """Return what to do where a count is not the recorded one, or nothing where it is.

    A record has `start`, the least number so far; a feature may add `now`, up to 2 % above it, and `raised`, the reason.
    """
    start, now, reason = record["start"], record.get("now"), record.get("raised", "")
    most, where = start + start // 50, "in tests/unit/rooms.toml"
    if count < start:
        return f"{subject}: {count}, which is less than {start}. Write `start = {count}` without `now` and `raised` {where}."
    if count > most:
        return f"{subject}: {count}. {start} are recorded, and no feature may have more than {most}. Bring it down."
    if count == start:
        extra = now is not None or reason
        return f"{subject}: {count}, as at its start. Delete `now` and `raised` {where}." if extra else ""
    if count == now and reason.strip():
        return ""
    return (
        f"{subject}: {count}, which is more than {start}. Bring it down; or, if this commit adds a feature that needs it, "
        f'write `now = {count}` and `raised = "the reason"` {where}.'
    )


def with_one_importer(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the modules that only one module imports, which is in their own folder."""
    importers = defaultdict(list)
    for path, imports in graph.items():
        for module in imports:
            importers[module].append(path)
    return sorted(module for module, by in importers.items() if len(by) == 1 and folder(by[0]) == folder(module))


def folder(path: str) -> str:
    """Return the folder of a path."""
    return path.rpartition("/")[0]


def identifiers(names: Mapping[str, int], words: Collection[str]) -> int:
    """Return how often names occur that are one of the words, with or without underscores around it."""
    return sum(count for name, count in names.items() if name.strip("_") in words)


def functions_entered(call: Callable[[], object], root: Path) -> list[tuple[str, str]]:
    """Return the file below a folder and the name of every function that a call enters, in order, on all its threads."""
    entered = []

    def hook(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            entered.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # it would end objects of other tests
    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
        if collects:
            gc.enable()
    own = {dpsql.testing.bits.__file__}  # the fixed bits that a test draws from
    return [(name[len(f"{root}/") :], of) for name, of in entered if name.startswith(f"{root}/") and name not in own]


BOUNDS = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
ONE_TABLE = "SELECT w, count(*) AS n FROM t WHERE w IN ('a', 'b') AND a < {} GROUP BY w"
TWO_TABLES = """SELECT p.city, count(*) AS n, avg(v.cost) AS cost FROM visits v JOIN people p ON v.person = p.id
WHERE p.city IN (1, 2, 3) AND v.cost BETWEEN 0 AND {} GROUP BY p.city HAVING count(*) > 5 ORDER BY n DESC"""
# A call by its name, with the number of the run: a query is new where its text has not been asked before.
CALLS_TRACED: dict[str, Callable[[dpsql.Context, int], object]] = {
    "count": lambda c, run: c.dp_count("t", epsilon=1),
    "count by": lambda c, run: c.dp_count("t", by="w", keys=["a", "b"], epsilon=1),
    "sis": lambda c, run: c.dp_sis("t", target="y", features=["a", "b"], k=1, epsilon=1, **BOUNDS),
    "linear": lambda c, run: c.dp_linear_regression(
        "t", target="y", features=["a", "b"], epsilon=1, delta=1e-6, **BOUNDS
    ),
    "condition": lambda c, run: c.dp_count("t", epsilon=1, condition="a > 0.5"),
    "query, new": lambda c, run: c.dp_query(ONE_TABLE.format(run), epsilon=1),
    "query, replay": lambda c, run: c.dp_query(ONE_TABLE.format(99), epsilon=1),
    "join, new": lambda c, run: c.dp_query(TWO_TABLES.format(50 - run), epsilon=1),
    "join, replay": lambda c, run: c.dp_query(TWO_TABLES.format(60), epsilon=1),
}


@pytest.fixture
def hospital() -> dpsql.Context:
    """A database with rows of three tables under two budgets."""
    context = dpsql.Context()
    for statement in (
        "SET threads = 1",
        "CREATE TABLE t AS SELECT i AS id, chr(97 + (i % 3)::INT) AS w, i / 500 AS a, i % 7 / 7 AS b, i % 11 / 11 AS y "
        "FROM range(500) r(i)",
        "CREATE TABLE people AS SELECT i AS id, (i % 7)::INT AS city FROM range(300) r(i)",
        "CREATE TABLE visits AS SELECT i % 300 AS person, (i % 50)::DOUBLE AS cost FROM range(2000) r(i)",
        "SELECT dp_protect('town', epsilon := 1000, max_rows_per_unit := 10, "
        "tables := {people: 'id', visits: 'person'})",
        "SELECT dp_protect('t', epsilon := 1000, delta := 1e-3)",
    ):
        context.sql(statement)
    return context


@pytest.mark.long
@cases("name", CALLS_TRACED)
def test_a_warm_call_enters_few_files(hospital: dpsql.Context, name: str) -> None:
    """Those below `dpsql/` in its third run."""
    for run in (1, 2):
        CALLS_TRACED[name](hospital, run)
    files = {file for file, _ in functions_entered(lambda: CALLS_TRACED[name](hospital, 3), ROOT / "dpsql")}
    assert not complaint(f"files that a warm call enters, {name}", len(files), RECORDED["files_entered"][name])


def test_the_way_of_a_question_is_that_of_the_guide(hospital: dpsql.Context) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)` ", guide, re.MULTILINE)
    assert len(steps) > 10
    query = "SELECT w, count(*) FROM t WHERE w IN ('a', 'b') GROUP BY w"
    entered = functions_entered(lambda: hospital.dp_query(query, epsilon=1), ROOT / "dpsql")
    assert query in guide
    for step in steps:
        assert step in entered, f"{step} is not entered, or before the step above it"
        entered = entered[entered.index(step) + 1 :]


def test_few_modules_have_one_importer() -> None:
    """Such a module and its importer may be one, unless it keeps a start quick or a package optional."""
    alone = with_one_importer(importing())
    assert not complaint(f"modules with one importer, {', '.join(alone)}", len(alone), RECORDED["one_importer"])


def test_few_identifiers_are_all_purpose_words() -> None:
    """Counted in hundreds, rounded up; a name says what the thing is."""
    names = Counter(name for _, _, code in modules() for name in NAME.findall(code))
    total = identifiers(names, RECORDED["identifiers"]["words"])
    subject = f"hundreds of all-purpose identifiers ({total}, {1000 * total / names.total():.1f} per 1,000 names)"
    assert not complaint(subject, -(-total // 100), RECORDED["identifiers"])


@cases(
    ("count", "record", "says"),
    [
        (100, {"start": 100}, ""),
        (99, {"start": 100}, "Write `start = 99`"),
        (99, {"start": 100, "now": 101, "raised": "periods"}, "Write `start = 99`"),
        (101, {"start": 100}, 'write `now = 101` and `raised = "the reason"`'),
        (101, {"start": 100, "now": 101}, 'write `now = 101` and `raised = "the reason"`'),
        (102, {"start": 100, "now": 101, "raised": "periods"}, "write `now = 102`"),
        (102, {"start": 100, "now": 102, "raised": "periods"}, ""),
        (101, {"start": 100, "now": 102, "raised": "periods"}, "write `now = 101`"),
        (100, {"start": 100, "now": 102, "raised": "periods"}, "Delete `now`"),
        (103, {"start": 100, "now": 103, "raised": "periods"}, "no feature may have more than 102"),
        (1, {"start": 0, "now": 1, "raised": "periods"}, "no feature may have more than 0"),
    ],
)
def test_a_count_rises_with_a_reason_and_by_two_percent(count: int, record: dict[str, Any], says: str) -> None:
    text = complaint("files", count, record)
    assert says in text
    assert bool(text) == bool(says)


def test_the_rule_sees_one_importer() -> None:
    graph = {
        "a/top.py": {"a/alone.py", "a/shared.py", "b/far.py"},
        "a/alone.py": {"a/shared.py"},
        "a/shared.py": set(),
        "b/far.py": set(),
    }
    assert with_one_importer(graph) == ["a/alone.py"]


@cases(
    ("text", "count"),
    [
        ("one = _one_ + others.one", 3),
        ("number_of_ones = 1  # one", 0),
        ("f(one='one', two=f'{one}')", 1),
        ('"""one\nof the \\"\\"\\" one"""\none: int', 1),
    ],
)
def test_the_rule_sees_identifiers(text: str, count: int) -> None:
    assert identifiers(Counter(NAME.findall(stripped(text))), {"one"}) == count


def test_the_rule_sees_functions(tmp_path: Path) -> None:
    """One of them is entered on a thread of its own, and one is loaded and not entered."""
    functions: dict[str, Any] = {"entered": {}, "on_a_thread": {}, "loaded": {}}
    for name, scope in functions.items():
        exec(compile("def function(): pass", str(tmp_path / name), "exec"), scope)

    def call() -> None:
        functions["entered"]["function"]()
        thread = threading.Thread(target=functions["on_a_thread"]["function"])
        thread.start()
        thread.join()

    before = sys.getprofile()
    assert functions_entered(call, tmp_path) == [("entered", "function"), ("on_a_thread", "function")]
    assert sys.getprofile() is before


# Dependencies.

DEVELOPING = {"demo", "notebook", "site", "sail", "test", "lint", "bench"}
IMPORTS_ANYWHERE = re.compile(r"""^\s*(?:import|from) +(\w+)|(?:importorskip|import_module)\(["'](\w+)""", re.MULTILINE)


def dependency_faults(
    project: Mapping[str, Any],
    package: Collection[str],
    others: Collection[str],
    lists: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return what is wrong with the dependencies of a project, with what to do.

    Parameters
    ----------
    project : mapping
        The table `project` of its `pyproject.toml`.
    package, others : collection of str
        The modules that its package imports, and those that its tests, examples and benchmarks do.
    lists : mapping
        `modules` of packages whose modules have another name, `run` with what is run or loaded and not imported, and
        `comes_with`, the package that brings a module.
    """
    faults, declared = [], set()
    optional = project["optional-dependencies"].items()
    for extra, requirements in [("", project["dependencies"]), *optional]:
        for requirement in requirements:
            [name] = re.findall(r"^[\w.-]+", requirement)
            module = lists["modules"].get(name, name.lower().replace("-", "_"))
            used = module in package or (extra in DEVELOPING and module in others)
            declared |= {name, module}
            if used and name in lists["run"]:
                faults.append(f"{name}: it is imported. Delete it from `run` of tests/unit/rooms.toml.")
            elif not used and name not in lists["run"]:
                faults.append(
                    f"{name}: nothing imports it. Delete it from pyproject.toml ({extra or 'dependencies'}), or say in "
                    "`run` of tests/unit/rooms.toml what runs it."
                )
    faults += [
        f"{module}: the package imports it, and nothing declares it. Add it to pyproject.toml, or say in `comes_with` of "
        "tests/unit/rooms.toml which declared package brings it."
        for module in sorted(set(package) - declared)
        if lists["comes_with"].get(module) not in declared
    ]
    unused = {*(set(lists["comes_with"]) - set(package)), *((set(lists["run"]) | set(lists["modules"])) - declared)}
    return faults + [f"{name}: delete it from tests/unit/rooms.toml." for name in sorted(unused)]


def test_dependencies_are_imported_and_imports_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {"dpsql", "udfs", *sys.stdlib_module_names}
    package = {name.split(".")[0] for _, _, code in modules() for name in imported(code)} - ours
    files = [path for name in ("tests", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    others = {name for path in files for pair in IMPORTS_ANYWHERE.findall(path.read_text("utf-8")) for name in pair}
    assert dependency_faults(project, package, others, RECORDED["dependencies"]) == []


@cases(
    ("change", "says"),
    [
        ({}, []),
        ({"dependencies": ["numpy>=2", "sqlglot>=26"]}, ["sqlglot: nothing imports it"]),
        ({"dependencies": []}, ["numpy: the package imports it"]),
        ({"serve": ["PyJWT[crypto]>=2", "pandas"]}, ["pandas: nothing imports it"]),
        ({"package": {"numpy", "jwt", "anyio", "rich"}}, ["rich: the package imports it"]),
        ({"package": {"numpy", "jwt"}}, ["anyio: delete it"]),
        ({"serve": []}, ["PyJWT: delete it", "anyio: the package", "jwt: the package"]),
        ({"test": ["pandas", "ruff>=0.8", "jedi"]}, ["jedi: nothing imports it"]),
        ({"test": ["pandas"]}, ["ruff: delete it"]),
        ({"others": {"pandas", "ruff"}}, ["ruff: it is imported"]),
    ],
)
def test_the_rule_sees_dependencies(change: dict[str, Any], says: list[str]) -> None:
    parts = {
        "dependencies": ["numpy>=2"],
        "serve": ["PyJWT[crypto]>=2"],
        "test": ["pandas", "ruff>=0.8"],
        "package": {"numpy", "jwt", "anyio"},
        "others": {"pandas"},
    } | change
    project = {
        "dependencies": parts["dependencies"],
        "optional-dependencies": {name: parts[name] for name in ("serve", "test")},
    }
    lists = {"modules": {"PyJWT": "jwt"}, "run": {"ruff": "lint"}, "comes_with": {"anyio": "PyJWT"}}
    faults = dependency_faults(project, parts["package"], parts["others"], lists)
    assert len(faults) == len(says)
    assert all(any(fault.startswith(text) for fault in faults) for text in says)


def test_modules_that_run_by_name_exist() -> None:
    """A merged module leaves its name behind in strings, which no type checker reads."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "dpsql").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"-m[\", ]+(dpsql(?:\.\w+)+)", text)}
    assert len(names) > 3
    paths = {name: ROOT.joinpath(*name.split(".")) for name in names}
    assert [name for name, path in paths.items() if not (path.with_suffix(".py").exists() or path.is_dir())] == []
