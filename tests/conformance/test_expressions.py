"""Every function, operator and cast that a condition may use, on extreme values of every type: a row decides nothing else.

What is tried is made from the tables (`dpsql.contract.expression`), so a new entry is tried without a new test. Rows with
benign values stand beside a row with extreme ones: the verdicts of the benign rows may not move, and no error may leave
the statement. TRY does not catch everything that DuckDB raises, so an entry or cast that does not belong into the tables
ends a statement here.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.condition_fuzz import fuzz
from support.expressions import CASES, Case, Trial

_SHARES = 24
ARITHMETIC = ("/", "//", "%", "*", "+", "-", "sqrt", "ln", "log", "log10", "log2", "pow", "cbrt", "exp", "abs", "round")


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with Trial() as opened:
        yield opened


@cases("share", range(_SHARES))
def test_a_row_decides_nothing_but_its_own_value(trial: Trial, share: int) -> None:
    for case in CASES[share::_SHARES]:
        trial.run(case)


def test_the_tables_are_tried_on_enough_values(trial: Trial) -> None:
    """At least 20,000 triples of an entry, a type and an extreme value; and each entry is accepted somewhere."""
    taken = [case for case in CASES if trial.accepts(case)]
    assert sum(case.count for case in taken) >= 20_000
    assert {case.entry for case in CASES} == {case.entry for case in taken}


@cases(
    ("sql", "types"),
    [
        ("system.main.date_diff('day', dpsql_one.c0, dpsql_one.c1)", ("TIME", "TIME")),
        ("system.main.date_part(dpsql_one.c0, dpsql_one.c1)", ("VARCHAR", "TIME")),
        ("system.main.dayofweek(dpsql_one.c0)", ("INTERVAL",)),
        ("system.main.date_trunc(dpsql_one.c0, dpsql_one.c1)", ("VARCHAR", "TIMESTAMP")),
        ("system.main.strptime(dpsql_one.c0, '%Z')", ("VARCHAR",)),
        ("CAST(dpsql_one.c0 AS BIT)", ("JSON",)),
    ],
)
def test_what_the_tables_leave_out_ends_a_statement(trial: Trial, sql: str, types: tuple[str, ...]) -> None:
    """The trial would find it."""
    with pytest.raises((duckdb.Error, AssertionError)):
        trial.compare(sql, Case("", "", types))


@pytest.mark.parametrize("setting", ["ieee_floating_point_ops = false", "error_on_division_by_zero = false"])
def test_no_setting_moves_a_number(trial: Trial, setting: str) -> None:
    """What is written does by any setting what DuckDB does by default."""
    numbers = [
        case
        for case in CASES
        if case.entry in ARITHMETIC and "TIMESTAMP WITH TIME ZONE" not in case.types and trial.accepts(case)
    ]
    before = {case: trial.values(case) for case in numbers}
    # A remainder of decimals that are too wide for one becomes a double, and by zero not NaN: here it is NaN.
    narrow = [case for case in numbers if case.entry != "%" or not {"HUGEINT", "UHUGEINT"} & {*case.types}]
    assert {case: before[case] for case in narrow} == {case: trial.values(case, plain=True) for case in narrow}
    try:
        trial.connection.execute(f"SET {setting}")
    except duckdb.CatalogException:
        pytest.skip("this version has no such setting")
    try:
        assert before == {case: trial.values(case) for case in numbers}
    finally:
        trial.connection.execute(f"RESET {setting.split()[0]}")


@cases("seed", range(10, 30))
def test_random_conditions_are_answered_or_refused_by_a_code(seed: int) -> None:
    with dpsql.connect() as opened:
        assert fuzz(opened, seed, 250) > 10
