"""``python -m dpsql.manual`` writes the pages of the functions; ``--check`` says which differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dpsql
from dpsql.manual.demonstration import BUDGETS, STATEMENTS
from dpsql.manual.entry import Example
from dpsql.manual.pages import FOLDER, Run, generated, output_table


@contextmanager
def runs() -> Iterator[Run]:
    """Run examples on a database of the demonstration tables, each statement once."""
    with dpsql.Context() as context:
        done: set[str] = set()

        def run(example: Example) -> str:
            connection = context.connection
            for statement in (*STATEMENTS, *BUDGETS, *example.before):
                if statement not in done:
                    connection.execute(statement)
                    done.add(statement)
            found = connection.execute(example.sql)
            return output_table([column[0] for column in found.description], found.fetchall())

        yield run


def main(words: list[str]) -> int:
    """Write the pages, or with ``--check`` say which differ; return the exit status."""
    if words == ["--check"]:
        stale = [path for path, wanted in generated(None, FOLDER) if not _is(path, wanted)]
        for path in stale:
            print(f"{path}: not what the manual says. Run python -m dpsql.manual.")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    with runs() as run:
        for path, wanted in generated(run, FOLDER):
            path.write_text(wanted, encoding="utf-8")
    return 0


def _is(path: Path, wanted: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
