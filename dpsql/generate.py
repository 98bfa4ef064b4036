"""Everything that is made of the lists of functions, of arguments and of error codes, and of the manual.

``python -m dpsql.generate`` writes it in a checkout; with ``--check`` it fails where something differs, and says what.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import dpsql
from dpsql import stubs
from dpsql.contract import codes
from dpsql.engines.duckdb import macros
from dpsql.manual.__main__ import main as write_manual
from dpsql.manual.catalogue import MANUAL

ROOT = Path(__file__).resolve().parents[1]
SIGNATURES = ROOT / "tests" / "docs" / "signatures.txt"


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every file but the manual's, with the text that it should have; each may be made of those before it."""
    yield stubs.METHODS, stubs.stub()
    yield from macros.generated()
    yield SIGNATURES, signatures()
    yield ROOT / "docs" / "errors.md", codes.page()


def signatures() -> str:
    """Return the parameters of every SQL macro, a line each: what users write against."""
    with dpsql.connect() as connection:
        lines = connection.execute(
            "SELECT concat(function_type, ' ', function_name, '(', array_to_string(parameters, ', '), ')') AS line "
            "FROM duckdb_functions() WHERE database_name = 'temp' AND function_type LIKE '%macro' ORDER BY line"
        ).fetchall()
    return "".join(f"{line}\n" for (line,) in lines)


def broken(before: str, after: str) -> list[str]:
    """Return the lines of signatures that no later line keeps: all parameters, in their order."""
    later: dict[str, list[list[str]]] = {}
    for line in after.splitlines():
        name, parameters = _parsed(line)
        later.setdefault(name, []).append(parameters)

    def is_kept(line: str) -> bool:
        name, parameters = _parsed(line)
        return any([one for one in taken if one in parameters] == parameters for taken in later.get(name, []))

    return [line for line in before.splitlines() if not is_kept(line)]


def _parsed(line: str) -> tuple[str, list[str]]:
    name, _, parameters = line.rstrip(")").partition("(")
    return name, parameters.split(", ")


def main(words: list[str]) -> int:
    """Write what differs, or with ``--check`` say what does; return the exit status.

    Raises
    ------
    SystemExit
        A parameter of a macro has gone or moved, which would break calls of users.
    """
    if words == ["--check"]:
        differ = [path for path, wanted in generated() if _text(path) != wanted]
        for path in differ:
            print(f"{path}: not what its sources say. Run python -m dpsql.generate.")
        return max(write_manual(words), int(bool(differ)))
    _write()
    write_manual(words)
    MANUAL.forget()
    _write()  # the comments above macros are from pages, which are filled in by now
    return 0


def _write() -> None:
    for path, wanted in generated():
        written = _text(path)
        if path == SIGNATURES and broken(written, wanted):
            lost = "\n".join(broken(written, wanted))
            raise SystemExit(f"A parameter has gone or moved. If that is meant, delete in {path}:\n{lost}")
        if written != wanted:
            path.write_text(wanted, encoding="utf-8")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
