"""Write the files that are generated from the lists of functions, arguments and error codes, and from the manual.

Run ``python -m dpsql.generate`` in a checkout; with ``--check`` it fails if a file differs, and names it. The stub of
`dpsql.methods` shows type checkers and editors the methods that are made at run time.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from inspect import Parameter
from pathlib import Path

import dpsql
from dpsql.contract import codes
from dpsql.engines.duckdb import macros
from dpsql.manual.__main__ import main as write_manual
from dpsql.manual.catalogue import MANUAL
from dpsql.methods import ContextMethods, FrameMethods

METHODS = Path(__file__).with_name("methods.pyi")
_WIDTH = 120
# The head of the stub.
_HEAD = '''"""The SQL functions as methods. Written by ``python -m dpsql.generate`` from the lists of arguments."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsFloat, SupportsInt, TypeAlias, overload

import polars as pl
import pyarrow as pa

from dpsql.released.release import Release

OF_FRAME: tuple[str, ...]

# Numbers of Python, of `fractions` and `decimal`, and of NumPy; text is none. An integer may be written 1e6.
Number: TypeAlias = SupportsFloat
Integer: TypeAlias = SupportsInt
Numbers: TypeAlias = Number | Iterable[Number]
Names: TypeAlias = str | Iterable[str]
# One number for all columns, one for each in their order, or by name.
Bounds: TypeAlias = Number | Iterable[Number] | Mapping[str, Number]
Keys: TypeAlias = str | Iterable[object] | Mapping[str, Iterable[object]]
Features: TypeAlias = str | Iterable[str] | Mapping[str, object] | Release
'''


def stub() -> str:
    """Return the text of ``methods.pyi``."""
    return "\n".join([_HEAD, *_of_class(ContextMethods), "", *_of_class(FrameMethods, brief=True)]) + "\n"


def _of_class(owner: type, *, brief: bool = False) -> Iterator[str]:
    """Yield the lines of a class; if `brief`, its methods' docstrings omit the arguments."""
    yield f"class {owner.__name__}:"
    yield from _docstring(owner)
    for name, method in vars(owner).items():
        if inspect.isfunction(method) and method.__name__ != name:
            yield f"\n    {name} = {method.__name__}"
        elif inspect.isfunction(method):
            yield ""
            yield from _of_method(name, method, brief=brief)


def _of_method(name: str, method: Callable[..., object], *, brief: bool) -> Iterator[str]:
    """Yield the lines of a method; its form with only `release` returns a table."""
    signature = inspect.signature(method)
    parameters, returned = list(signature.parameters.values()), str(signature.return_annotation)
    if " | " in returned:
        parameters[1] = parameters[1].replace(default=Parameter.empty)
        returned, alone = returned.split(" | ")
        yield "    @overload"
        yield f"    def {name}(self, *, release: str | int | Release, dataset: str | None = None) -> {alone}: ..."
        yield "    @overload"
    yield f"    def {name}("
    has_star = False
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "        *,"
        line = f"        {_parameter_text(parameter)},"
        yield line if len(line) <= _WIDTH else line.replace(" | ", "\n        | ")
    yield f"    ) -> {returned}:"
    yield from _docstring(method, brief=brief)


def _parameter_text(parameter: Parameter) -> str:
    """Return a parameter with its type and its default."""
    kind = "" if parameter.annotation is Parameter.empty else f": {parameter.annotation}"
    if parameter.default is Parameter.empty:
        return f"{parameter.name}{kind}"
    default = parameter.default
    text = f'"{default}"' if isinstance(default, str) else repr(default)
    return f"{parameter.name}{kind} = {text}"


def _docstring(documented: object, *, brief: bool = False) -> Iterator[str]:
    """Yield the lines of a docstring, wrapped at `_WIDTH`."""
    text = inspect.getdoc(documented) or ""
    lines = (text.partition("\n\nParameters\n")[0] if brief else text).splitlines()
    first, *rest = lines
    if not rest:
        yield f'{" " * (4 if isinstance(documented, type) else 8)}"""{first}"""'
        return
    yield f'        """{first}'
    for line in rest:
        indent = " " * (len(line) - len(line.lstrip()) + 8)
        yield from textwrap.wrap(line, _WIDTH, initial_indent=" " * 8, subsequent_indent=indent) or [""]
    yield '        """'


ROOT = Path(__file__).resolve().parents[1]
SIGNATURES = ROOT / "tests" / "docs" / "signatures.txt"


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every generated file but the manual's, with its text; a file may depend on earlier files."""
    yield METHODS, stub()
    yield from macros.generated()
    yield SIGNATURES, signatures()
    yield ROOT / "docs" / "errors.md", codes.page()


def signatures() -> str:
    """Return the parameters of every SQL macro, one line each: the interface of users."""
    with dpsql.connect() as connection:
        lines = connection.execute(
            "SELECT concat(function_type, ' ', function_name, '(', array_to_string(parameters, ', '), ')') AS line "
            "FROM duckdb_functions() WHERE database_name = 'temp' AND function_type LIKE '%macro' ORDER BY line"
        ).fetchall()
    return "".join(f"{line}\n" for (line,) in lines)


def broken(before: str, after: str) -> list[str]:
    """Return the signature lines without a later line that keeps all their parameters in order."""
    later: dict[str, list[list[str]]] = {}
    for line in after.splitlines():
        name, parameters = _parsed(line)
        later.setdefault(name, []).append(parameters)

    def is_kept(line: str) -> bool:
        name, parameters = _parsed(line)
        return any(
            [parameter for parameter in signature if parameter in parameters] == parameters
            for signature in later.get(name, [])
        )

    return [line for line in before.splitlines() if not is_kept(line)]


def _parsed(line: str) -> tuple[str, list[str]]:
    name, _, parameters = line.rstrip(")").partition("(")
    return name, parameters.split(", ")


def main(words: list[str]) -> int:
    """Write the files that differ, or with ``--check`` print them; return the exit status.

    Raises
    ------
    SystemExit
        A macro's parameter was removed or moved, which would break calls of users.
    """
    if words == ["--check"]:
        differ = [path for path, content in generated() if _text(path) != content]
        for path in differ:
            print(f"{path}: not what its sources say. Run python -m dpsql.generate.")
        return max(write_manual(words), int(bool(differ)))
    _write()
    write_manual(words)
    MANUAL.forget()
    _write()  # the macros' comments come from pages, which are now complete
    return 0


def _write() -> None:
    for path, content in generated():
        text = _text(path)
        if path == SIGNATURES and broken(text, content):
            lost = "\n".join(broken(text, content))
            raise SystemExit(f"A parameter has gone or moved. If that is meant, delete in {path}:\n{lost}")
        if text != content:
            path.write_text(content, encoding="utf-8")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
