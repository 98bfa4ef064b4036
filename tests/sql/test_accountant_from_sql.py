"""dp_protect(…, accountant := 'rdp') from SQL: what calls cost, and what a refusal says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import BudgetError, original
from support.cases import cases

CALLS = {
    "quantile": "SELECT * FROM dp_quantile('t', target := 'y', epsilon := {}, lower := 0, upper := 1)",
    "selection": "SELECT * FROM dp_kendall('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := {})",
    "fit": "SELECT * FROM dp_linear_regression('t', target := 'y', features := ['a', 'b'], epsilon := {}, "
    "delta := 1e-8, method := 'ada_ssp', lower := 0, upper := 1, target_lower := 0, target_upper := 1)",
    "pipeline": "SELECT * FROM dp_pipeline('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := {}, "
    "delta := 1e-8)",
}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = dpsql.connect()
    connection.execute("CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS y FROM range(300)")
    yield connection
    connection.close()


def spent(con: duckdb.DuckDBPyConnection) -> tuple[float, float]:
    return con.execute("SELECT epsilon_spent, delta_spent FROM dp_budget()").fetchall()[0]


@pytest.mark.long
def test_small_calls_cost_what_they_cost_together(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 2, delta := 1e-6, accountant := 'rdp')").fetchall()
    for _ in range(30):
        con.execute(CALLS["quantile"].format(0.1)).fetchall()
    con.execute(CALLS["fit"].format(0.5)).fetchall()
    epsilon, delta = spent(con)
    assert epsilon < 2 < 30 * 0.1
    assert delta == 5e-7
    budget, accountant = con.execute("SELECT budget, accountant FROM dp_budget(details := true)").fetchall()[0]
    assert budget == "epsilon 2, delta 1e-06, accountant rdp"
    assert re.fullmatch(r"rdp of order [\d.]+", accountant)


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_the_epsilon_that_a_refusal_names_is_answered(con: duckdb.DuckDBPyConnection, call: str) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 1, delta := 1e-6, accountant := 'rdp')").fetchall()
    con.execute(CALLS["fit"].format(0.2)).fetchall()
    before = spent(con)
    with pytest.raises(duckdb.Error) as caught:
        con.execute(CALLS[call].format(8)).fetchall()
    error = original(caught.value)
    assert isinstance(error, BudgetError)
    assert spent(con) == before
    found = re.search(r"Lower epsilon to ([\d.]+), or repeat an earlier release", str(error))
    assert found
    assert "dp_protect" not in str(error)
    con.execute(CALLS[call].format(found.group(1))).fetchall()
    assert 0.97 < spent(con)[0] <= 1


@cases(
    ("arguments", "code"),
    [
        ("epsilon := 1, accountant := 'rdp'", "P046"),
        ("rho := 1, accountant := 'rdp'", "P045"),
        ("epsilon := 1, delta := 1e-6, accountant := 'pld'", "P005"),
        ("epsilon := 1, delta := 1e-6, accountant := ['rdp']", "P005"),
    ],
    quick=1,
)
def test_an_accountant_that_does_not_fit(con: duckdb.DuckDBPyConnection, arguments: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"SELECT dp_protect('t', {arguments})").fetchall()
    assert con.execute("FROM dp_ledger()").fetchall() == []


def test_from_python() -> None:
    with dpsql.Context() as ctx:
        stands = ctx.dp_protect("t", source=False, epsilon=3, delta=1e-6, accountant="rdp")
        assert stands == "t: epsilon 3, delta 1e-06, accountant rdp; protects one row"
        stands = ctx.dp_protect("t", source=False, epsilon=5, replace=True)
        assert stands == "t: epsilon 5, delta 1e-06, accountant rdp; protects one row"
        assert ctx.ledger.budgets()[0].accountant is not None
        assert ctx.ledger.verify().ok
