"""The database of the tests of lineage: tables with and without budgets, and what leads to their rows."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

import dpsql
from dpsql.ledger.ledger import Ledger
from support.sessions import ledger_of

CASES = Path(__file__).with_name("cases")
FIT = "target := 'y', features := ['a'], k := 1, epsilon := 0.01, lower := 0, upper := 1, target_lower := 0, target_upper := 1"
QUANTILE = "epsilon := 0.01, lower := 0, upper := 1, quantiles := [0.5]"
VERSION = duckdb.__version__.partition(".")[0]


def read(name: str) -> dict[str, Any]:
    """Return the cases of a file."""
    return tomllib.loads((CASES / f"{name}.toml").read_text(encoding="utf-8"))


def filled(text: str, path: Path) -> str:
    """Return a statement of a case with its arguments and its folder."""
    return text.replace("{FIT}", FIT).replace("{QUANTILE}", QUANTILE).replace("{path}", str(path))


def stage(path: Path, statements: list[str]) -> duckdb.DuckDBPyConnection:
    """Open a new database, z, and run what makes its tables and declares them."""
    con = dpsql.connect(path / "z.duckdb")
    for name in ("remembered", "dpsql_remembered"):
        con.create_function(name, lambda x: x, ["DOUBLE"], "DOUBLE")
    for statement in statements:
        con.execute(filled(statement, path)).fetchall()
    return con


def totals(con: Any) -> dict[str, int]:
    """Return how many releases each budget was charged; read again where the ledger has a new entry."""
    ledger = ledger_of(con)
    return _totals_at(ledger, ledger.id, *ledger.head())


@lru_cache(maxsize=8)
def _totals_at(ledger: Ledger, identity: str, sequence: int, digits: str) -> dict[str, int]:
    return {row.dataset: row.releases for row in ledger.budgets()}


def code_of(error: Exception) -> str:
    """Return the code of an error, or 'DuckDB' of one without."""
    text = str(error)
    return text.partition("DPSQL-")[2][:4] if "DPSQL-" in text else "DuckDB"


def outcome(con: Any, run: Any) -> tuple[str, str]:
    """Return which budgets a statement was charged to, and the code of its refusal; one of the two is empty."""
    before = totals(con)
    try:
        run()
    except (duckdb.Error, dpsql.DpsqlError) as error:
        assert totals(con) == before, f"a refusal was charged: {error}"
        return "", code_of(error)
    after = totals(con)
    return " ".join(sorted(name for name in after for _ in range(after[name] - before.get(name, 0)))), ""
