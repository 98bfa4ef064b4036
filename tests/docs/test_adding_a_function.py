"""A private function is added as CONTRIBUTING says: a plain count of rows, in one short file and one line of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import duckdb
import pytest

import dpsql
from dpsql.contract.arguments import COLUMN_PROTECTION, EPSILON, TARGET, Signature
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.engines.duckdb.macros import function_sql
from dpsql.functions.grouped.counts import ColumnPlan
from dpsql.functions.registry import FUNCTIONS, Function, _every
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.noise.discrete import laplace_deviation
from dpsql.released.shapes import METRICS
from dpsql.statistics.counts import RowCount


# What a newcomer writes: the whole of functions/plain_count.py.
@dataclass(frozen=True, kw_only=True)
class CountPlan(ColumnPlan):
    """The checked public arguments of one ``dp_plain_count`` call."""

    function: ClassVar[str] = "dp_plain_count"
    arguments: ClassVar[Signature] = Signature(TARGET, EPSILON, *COLUMN_PROTECTION)

    @cached_property
    def measurement(self) -> Measurement:
        """What is drawn: the number of rows."""
        return measurement_of(LaplaceNoise("rows", self.epsilon, RowCount.sensitivity(self.relation)))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be."""
        return [("std_error", laplace_deviation(self.measurement["rows"].scale()), "of the count, in rows")]


class CountCall(Call):
    """A dp_plain_count call joined to its source's types."""

    def start(self) -> Collector:
        """Return no rows."""
        return RowCount()

    def prepare(self, statistic: Any, progress: Any) -> Callable[[], Any]:
        """Return the draw of the count."""
        noisy = self.plan.measurement["rows"]
        return lambda: [["rows", float(noisy.draw([statistic.rows])[0]), None, None]]


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    line = Function(CountPlan, CountCall, METRICS, "Count the rows of a table privately.")
    monkeypatch.setitem(FUNCTIONS, "dp_plain_count", line)
    monkeypatch.setitem(_every, "dp_plain_count", line)
    with dpsql.connect() as opened:
        opened.execute(function_sql("dp_plain_count"))
        opened.execute("CREATE TABLE t AS SELECT i % 50 AS person, i AS a FROM range(1000) AS r(i)")
        yield opened


def count(con: Any, more: str = "", epsilon: str = "1000") -> float:
    value: float
    (value,) = con.execute(
        f"SELECT value FROM dp_plain_count('t', target := 'a', epsilon := {epsilon}{more})"
    ).fetchone()
    return value


def test_it_counts(con: Any) -> None:
    assert count(con) == 1000
    assert count(con, ", privacy_unit := 'person', max_rows_per_unit := 3") == 150
    assert con.execute("SELECT dp_plain_count(a, epsilon := 1000)[1].value FROM t").fetchall() == [(1000,)]


def test_it_is_noisy_and_charged(con: Any) -> None:
    con.execute("SELECT dp_protect('t', epsilon := 1)")
    assert len({count(con, epsilon="0.01") for _ in range(20)}) > 5
    assert con.execute("SELECT releases, round(epsilon_spent, 9) FROM dp_budget()").fetchall() == [(20, 0.2)]
    assert "pure 0.01-DP, add_remove of one row" in con.execute("SELECT guarantee FROM dp_ledger()").fetchall()[-1][0]
    with pytest.raises(duckdb.Error, match="DPSQL-B001"):
        count(con, epsilon="0.9")


def test_one_unit_scales_the_noise(con: Any) -> None:
    for neighbours in ("add_remove", "replace"):
        plan = CountPlan.from_arguments(
            "t",
            {
                "target": "a",
                "epsilon": 1,
                "privacy_unit": "person",
                "max_rows_per_unit": 7,
                "neighbours": neighbours,
            },
        )
        assert plan.measurement["rows"].scale() == 7  # a replaced unit changes the number of rows by 7 at most, too


def test_a_bad_argument_costs_nothing(con: Any) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-P001"):
        count(con, epsilon="-1")
    assert con.execute("FROM dp_ledger()").fetchall() == []
