"""A new statistic with its function is added as CONTRIBUTING says, in a copy of the checkout: a private sum of squares.

What a newcomer writes are the two modules, the page and the line of the registry below; the rest is generated.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout_copy import copy_to, replace_once, run

STATISTIC = '''
"""The sum of the squares of one column, in units of the larger bound's square.

A value v becomes the integer ``q = floor(S v / b + 1/2)`` in [-S, S], with b the larger bound in absolute value; a row
adds ``q**2``, from 0 to ``S**2``, and nothing where v is NULL. A unit of at most m rows adds from 0 to ``m S**2``: that
is how far the sum moves where a unit comes or goes, and where one replaces another.
"""

import numpy as np

from dpsql.contract.fold import Fold, numbers, record
from dpsql.kernels.fixed_point import FIXED_POINT_ONE


class SquareSum(Fold):
    def __init__(self, lower, upper):
        self._ends, self._bound = (lower, upper), max(abs(lower), abs(upper))
        self.high = self.low = 0  # of sums of 32 bits each: a state holds 64-bit integers

    @staticmethod
    def sensitivity(relation):
        return relation.rise(FIXED_POINT_ONE**2)

    @property
    def total(self):
        return (self.high << 32) + self.low

    def add(self, target, features, batch):
        shares = np.nan_to_num(np.clip(target, *self._ends)) * (FIXED_POINT_ONE / self._bound)
        squares = np.floor(shares + 0.5).astype(np.int64) ** 2
        self.high += int((squares >> 32).sum())
        self.low += int((squares & 0xFFFFFFFF).sum())

    def state(self):
        return record({"high": [self.high], "low": [self.low]})

    def absorb(self, state):
        self.high += int(numbers(state, "high")[0])
        self.low += int(numbers(state, "low")[0])
'''

FUNCTION = '''
"""dp_sum_of_squares: the private sum of the squares of one column."""

import math
from dataclasses import replace
from functools import cached_property

from dpsql.contract.arguments import COLUMN_BOUNDS, COLUMN_PROTECTION, EPSILON, TARGET, Signature
from dpsql.contract.layout import column_bounds
from dpsql.contract.call import Call
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import measurement_of
from dpsql.contract.plan import Plan
from dpsql.dataclass import dataclass
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.laplace import SumWithNoise
from dpsql.statistics.square_sum import SquareSum


@dataclass(frozen=True, kw_only=True)
class SquareSumPlan(Plan):
    lower: float
    upper: float

    function = "dp_sum_of_squares"
    target_needs_bounds = False
    stated_as = {"lower": None, "upper": None, "target_lower": "lower", "target_upper": "upper"}
    arguments = Signature(TARGET, EPSILON, *COLUMN_BOUNDS, *COLUMN_PROTECTION)

    @classmethod
    def _layout(cls, given):
        return replace(Layout.from_arguments({**given, "features": None}), features=())

    @classmethod
    def _own(cls, given, layout):
        return column_bounds(given, "they bound the target")

    @cached_property
    def measurement(self):
        return measurement_of(SumWithNoise("sum", self.epsilon, SquareSum.sensitivity(self.relation)))

    @property
    def unit(self):
        return (max(abs(self.lower), abs(self.upper)) / FIXED_POINT_ONE) ** 2

    @property
    def reach(self):
        part = self.measurement["sum"]
        return ((1 + float(part.unit_scale) * math.log(20)) * part.unit + part.unit) * self.unit

    def noise(self, n_features, n_rows):
        return [("reach", self.reach, "error of the sum, with a confidence of 95 %")]


class SquareSumCall(Call):
    def start(self):
        return SquareSum(self.plan.lower, self.plan.upper)

    def prepare(self, statistic, progress):
        plan, total = self.plan, statistic.total

        def draw():
            value = plan.measurement["sum"].draw_sum(total) * plan.unit
            return [["sum_of_squares", value, value - plan.reach, value + plan.reach]]

        return draw
'''

PAGE = """# dp_sum_of_squares

<!-- call -->
<!-- end -->

## Example

```sql
FROM dp_sum_of_squares('scores', target := 'days', epsilon := 0.5, lower := 0, upper := 30);
```

<!-- python -->
<!-- end -->

## Result

| column | meaning |
| --- | --- |
| `metric` | 'sum_of_squares' |
| `value` | the noisy sum |
| `lower` | lower end of an interval with a confidence of 95 % |
| `upper` | its upper end |
| `verdict` | 'clear' if the interval excludes 0, else 'unclear' |

## Arguments

<!-- arguments -->
<!-- end -->

## Guarantee

Pure epsilon-DP.

**Neighbours.** <!-- neighbours --><!-- end -->

**Sensitivity.** The square of the larger bound, times `max_rows_per_unit`, under both relations.

**Not protected.** <!-- shown --><!-- end -->

**Missing values.** NULL and NaN add nothing; values outside of the bounds are clipped.

## Where it comes from

* None: a sum with Laplace noise.

[All functions](index.md) · topic: Evaluate · [error codes](../errors.md)

Also looked up as: second moment.
"""

IMPORT = "from dpsql.functions.two_stage import"
LINE = '    "dp_regression_metrics": Function('
REGISTERED = {
    IMPORT: f"from dpsql.functions.sum_of_squares import SquareSumCall, SquareSumPlan\n{IMPORT}",
    LINE: '    "dp_sum_of_squares": Function(SquareSumPlan, SquareSumCall, METRICS, "Add up squares privately."),\n'
    + LINE,
}

RUN = """
import duckdb, polars as pl
import dpsql, dpsql.polars
from dpsql.contract.relation import relation_of
from dpsql.statistics.square_sum import SquareSum
from dpsql.kernels.fixed_point import FIXED_POINT_ONE

ctx = dpsql.Context()
ask = ctx.connection.execute
ask("CREATE TABLE t AS SELECT i % 50 AS person, i % 10 AS a, ['x', 'y'][1 + i % 2] AS g FROM range(1000) AS r(i)")
exact = 28500
said = "target := 'a', epsilon := {}, lower := -3, upper := 9"

def value(more="", epsilon="1e6", source="t"):
    return ask(f"FROM dp_sum_of_squares('{source}', {said.format(epsilon)}{more})").fetchone()[1]

near = lambda found, wanted=exact: abs(found - wanted) < 1
assert near(value())
assert near(value(", condition := 'g = ''x'''"), ask("SELECT sum(a * a) FROM t WHERE g = 'x'").fetchone()[0])
assert value(", privacy_unit := 'person', max_rows_per_unit := 3") < exact / 6
[(rows,)] = ask("SELECT dp_sum_of_squares(a, epsilon := 1e6, lower := -3, upper := 9) FROM t").fetchall()
assert near(rows[0]["value"])
assert near(ctx.dp_sum_of_squares("t", target="a", epsilon=1e6, lower=-3, upper=9).to_arrow()["value"][0].as_py())
frame = pl.from_arrow(ctx.sql("FROM t"))
dpsql.polars.use()
assert near(frame.dp.sum_of_squares(target="a", epsilon=1e6, lower=-3, upper=9)["value"][0])
assert near(dpsql.polars.context({"t": frame.lazy()}).dp_sum_of_squares(
    "t", dataset="frames", target="a", epsilon=1e6, lower=-3, upper=9).to_arrow()["value"][0].as_py())
quantities = ctx.dp_estimate("dp_sum_of_squares", epsilon=1, lower=-3, upper=9).to_pylist()
assert any(row["quantity"] == "reach" and 81 < row["value"] < 81 * 4 for row in quantities), quantities
assert "sum_of_squares" in str(ask("FROM dp_help('second moment')").fetchall())
shown = str(ctx.explain(f"FROM dp_sum_of_squares('t', {said.format(1)})"))
assert "dpsql_release" in shown, shown

def sums(values):
    fold = SquareSum(-3.0, 9.0)
    import numpy as np
    fold.add(np.array(values, dtype=float), None, None)
    return fold.total

for neighbours, pair in {"add_remove": ([9, -9, 2], [9, -9]), "replace": ([9, 0], [9, 9])}.items():
    moved = SquareSum.sensitivity(relation_of(neighbours, 1))
    assert moved == FIXED_POINT_ONE**2 >= abs(sums(pair[0]) - sums(pair[1]))

ask("CREATE TABLE kept AS FROM t")
ctx.dp_protect("kept", epsilon=1)
assert len({value(epsilon="0.01", source="kept") for _ in range(20)}) > 5
assert ask("SELECT releases, round(epsilon_spent, 9) FROM dp_budget() WHERE dataset = 'kept'").fetchall() == [(20, 0.2)]
for epsilon, code in (("-1", "P001"), ("0.9", "B001")):
    try:
        value(epsilon=epsilon, source="kept")
    except duckdb.Error as error:
        assert f"DPSQL-{code}" in str(error), error
    else:
        raise AssertionError(code)
assert ask("SELECT releases FROM dp_budget() WHERE dataset = 'kept'").fetchall() == [(20,)]
"""


@pytest.mark.long
def test_a_new_statistic_runs_in_all_forms(tmp_path: Path) -> None:
    copy_to(tmp_path)
    written = {
        "dpsql/statistics/square_sum.py": STATISTIC,
        "dpsql/functions/sum_of_squares.py": FUNCTION,
        "docs/functions/dp_sum_of_squares.md": PAGE,
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text.lstrip("\n"), encoding="utf-8")
    replace_once(tmp_path / "dpsql/functions/registry.py", REGISTERED)
    for words in (("-m", "dpsql.generate"), ("-m", "dpsql.generate", "--check"), ("-c", RUN)):
        run(tmp_path, *words)


def test_what_a_newcomer_writes_is_short() -> None:
    assert len((STATISTIC + FUNCTION).strip().splitlines()) + 2 <= 120
