"""Messages show arguments by one renderer: `dpsql.contract.parameters.show`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What is shown by `repr`, because it is no argument that could be a row: by file, as the code spells it.
PUBLIC = {
    "dpsql/__init__.py": {"name"},  # of an attribute
    "dpsql/cli/explain.py": {"what"},
    "dpsql/cli/output.py": {"location"},
    "dpsql/contract/layout.py": {"a", "b", "lower", "upper"},  # numbers
    "dpsql/contract/gaussian_profile.py": {"float(mu)", "float(epsilon)"},
    "dpsql/engines/duckdb/installation.py": {"alias", "location"},
    "dpsql/engines/duckdb/lineage/aggregates.py": {"charged[0]"},
    "dpsql/engines/duckdb/spending_record.py": {"alias", "database"},
    "dpsql/gateway/serving.py": {"name", "self.name", "user.name"},  # of users of the system
    "dpsql/gateway/pages/elements.py": {"tag", "name"},
    "dpsql/kernels/fixed_point.py": {"lower", "upper"},
    "dpsql/ledger/chain.py": {"location"},
    "dpsql/ledger/copies.py": {"target.location", "source.location", "ledger.location"},
    "dpsql/ledger/file.py": {"path", "self.path", "str(earlier)", "path.name", "others[0]"}
    | {"appended.name if appended != earlier else others[0] + SUFFIX"},
    "dpsql/ledger/granting.py": {"store.description"},
    "dpsql/ledger/store.py": {"location", "str(directory)", "self.description", "path", "path + SUFFIX"},
    "dpsql/ledger/transaction.py": {"self._store.description"},
    "dpsql/noise/race.py": {"noise"},
    "dpsql/testing/__init__.py": {"name"},
    "dpsql/testing/exhaustive.py": {"total"},
    "dpsql/testing/neighbours.py": {"relation"},
}
# Texts of exceptions of other packages that messages quote: they are about names, files and connections.
QUOTED = {
    "dpsql/dbt.py": {"error"},  # an error of dpsql
    "dpsql/gateway/boxed.py": {"error"},  # over released answers
    "dpsql/gateway/zygote.py": {"error"},  # an error of dpsql, about the system
    "dpsql/testing/exhaustive.py": {"self.output", "self.table", "self.neighbour"},
}


def in_messages(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Yield what messages of errors show in another way than by `show`: how, on which line, and what."""
    raised = (node for node in ast.walk(tree) if isinstance(node, ast.Raise) or is_error(node))
    for message in raised:
        for node in ast.walk(message):
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
                yield "repr", node.lineno, ast.unparse(node.value)
            elif isinstance(node, ast.FormattedValue) and is_exception(node.value):
                yield "text", node.lineno, ast.unparse(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                if node.func.id in ("repr", "ascii", "format"):
                    yield "repr", node.lineno, ast.unparse(node.args[0])
                elif node.func.id == "str" and is_exception(node.args[0]):
                    yield "text", node.lineno, ast.unparse(node.args[0])


def is_error(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith("Error")


def is_exception(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("error", "exc", "exception", "failure", "e", "err", "hidden")


def wrong(path: str, text: str) -> list[str]:
    public, quoted = PUBLIC.get(path, set()), QUOTED.get(path, set())
    return [
        f"{path}:{line}: {what}"
        for how, line, what in in_messages(ast.parse(text))
        if what not in (public if how == "repr" else quoted) | (quoted if how == "repr" else set())
    ]


@pytest.mark.long
def test_messages_show_arguments_by_one_renderer() -> None:
    found = []
    for folder in ("dpsql", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += wrong(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    assert not found, "Use dpsql.contract.parameters.show:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        'raise ParameterError("P013", f"a name; got {value!r}.")',
        'raise ParameterError("P013", "a name; got " + repr(value))',
        'failure = SourceError("S002", f"{error}")',
        'raise SourceError("S002", str(error)) from None',
    ],
)
def test_another_rendering_is_found(line: str) -> None:
    assert wrong("dpsql/frames.py", line)
