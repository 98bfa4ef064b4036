"""Check each part of an installation, and compile its kernels. A check imports its part, and may fail."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from rich import box
from rich.table import Table

from dpsql.cli.messages import DONE, FAILED, clean_message, console
from dpsql.version import __version__

_needed = (
    ("duckdb", (1, 5, 6)),
    ("numpy", (2, 0)),
    ("pyarrow", (18,)),
    ("numba", (0, 61)),
    ("polars", (1, 20)),
    ("sqlalchemy", (2, 0, 30)),
)
_optional = ("psycopg", "scikit-learn")
_engines = ("polars", "datafusion", "pyspark", "pyspark-client", "pysail")
_sql_files = 3


def run_doctor(database: str | None = None) -> int:
    """Run every check, print a table, and return the exit code; print undeclared labels of a `database`, too."""
    view = Table("check", "result", "detail", box=box.SQUARE)
    healthy = True
    for name, check in CHECKS.items():
        try:
            detail, good = check(), True
        except Exception as error:
            detail, good = f"{type(error).__name__}: {clean_message(error)}", False
        healthy = healthy and good
        view.add_row(name, "ok" if good else "FAILED", detail, style=None if good else "red")
    console().print(view)
    if database is not None:
        _print_undeclared(database)
    return DONE if healthy else FAILED


def _print_undeclared(database: str) -> None:
    """Print the statements that declare the labels of ENUM columns."""
    installation = import_module("dpsql.engines.duckdb.installation")
    with import_module("dpsql.connecting").connect(database) as connection:
        declarations = installation.session_of(connection).sources.undeclared_labels()
    out = console()
    for name, columns, line in declarations:
        out.print(
            f"{name}: {', '.join(columns)} {'is' if len(columns) == 1 else 'are'} read as text, as rows may have made "
            "the labels. Where these are known without the rows, paste:",
            markup=False,
        )
        out.print(f"    {line}", markup=False, soft_wrap=True)
    if not declarations:
        out.print("No protected table has an ENUM column with undeclared labels.")


def _python() -> str:
    return f"dpsql {__version__}, {platform.python_implementation()} {platform.python_version()}, {platform.platform()}"


def _packages() -> str:
    versions, wrong = [], []
    for name, least in _needed:
        try:
            installed = version(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        versions.append(f"{name} {installed}")
        numbers = tuple(int(part) for part in installed.split(".")[: len(least)] if part.isdigit())
        if numbers < least:
            wrong.append(f"{name} {installed} is older than {'.'.join(map(str, least))}")
    for name in _optional:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} not installed (optional)")
    if wrong:
        raise ImportError("; ".join(wrong))
    return ", ".join(versions)


def _engines_found() -> str:
    """Return the installed engines other than DuckDB; dpsql needs none of them."""
    versions = []
    for name in _engines:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    java = shutil.which("java")
    return ", ".join([*versions, "no Java, so no Spark of its own" if java is None else f"Java at {java}"])


def _sql() -> str:
    from dpsql.engines.duckdb.macros import sql_texts

    texts = list(sql_texts())
    if len(texts) < _sql_files:
        raise FileNotFoundError("the files of dpsql.sql are missing: install dpsql again")
    return f"{len(texts)} files of macros"


def _entropy() -> str:
    first, second = os.urandom(32), os.urandom(32)
    if first == second:
        raise OSError("the operating system gave the same bytes twice")
    from dpsql.noise.entropy import SYSTEM

    if len(set(SYSTEM.words(8).tolist())) < 8:
        raise OSError("the entropy source repeats itself")
    return "the operating system's generator answers"


def _ledger() -> str:
    from dpsql.ledger.budget import Budget
    from dpsql.ledger.ledger import Ledger

    with tempfile.TemporaryDirectory(prefix="dpsql-doctor-") as folder:
        path = Path(folder) / "probe.dpsql-ledger"
        ledger = Ledger.open(str(path))
        try:
            ledger.protect("probe", Budget.of(epsilon=1))
            report = ledger.verify()
        finally:
            ledger.close()
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if not report.ok or report.entries != 1:
        raise OSError(report.problem or "the entry written was not found")
    return "written, synced and verified in a temporary directory"


def _selection() -> str:
    from dpsql.cli.runner import Runner

    with Runner(strict=True) as runner:
        runner.execute("CREATE TABLE probe AS SELECT i % 5 AS a, i % 3 AS b, i % 2 = 0 AS y FROM range(60) AS r(i)")
        runner.execute("SELECT dp_protect('probe', epsilon := 1)")
        result = runner.execute(
            "SELECT * FROM dp_sis('probe', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 5)"
        )
        (entry,) = (entry for entry in runner.ledger.entries() if entry.kind == "release")
    if result is None or result.table.column_names[:2] != ["rank", "feature"] or result.table.num_rows != 1:
        raise ValueError("dp_sis did not return one row of rank and feature")
    return f"dp_sis answers, and was charged: {entry.guarantee}"


CHECKS: dict[str, Callable[[], str]] = {
    "python": _python,
    "packages": _packages,
    "engines": _engines_found,
    "sql files": _sql,
    "entropy": _entropy,
    "ledger": _ledger,
    "selection": _selection,
}


def warm_up() -> None:
    """Load every compiled kernel, and report the time that each took."""
    for name in ("xty", "kendall", "best_subsets", "subset_floors", "clipped_rows", "block_gram"):
        started = time.perf_counter()
        import_module(f"dpsql.kernels.{name}").warm_up()
        click.echo(f"{name}: ready after {time.perf_counter() - started:.1f} s")
