"""Which values of a column are a present feature: true, or above a public number; other columns are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from support.cases import cases

_FUNCTIONS = {"dp_naive_bayes": {}, "dp_score_filter": {"k": 1}}


@pytest.fixture(scope="module")
def ctx() -> Iterator[dpsql.Context]:
    with dpsql.Context() as context:
        context.connection.execute(
            "CREATE TABLE t AS SELECT i % 3 = 0 AS y, i % 3 = 0 AS flag, 20 + i % 3 AS age, "
            "[i % 3, 1.5] AS numbers, [i % 3 = 0, true] AS flags FROM range(3000) AS r(i)"
        )
        yield context


@cases("function", _FUNCTIONS, quick=5)
@cases("features", [["age"], ["flag", "age"], None, "numbers"])
def test_numbers_need_a_limit(ctx: dpsql.Context, function: str, features: Any) -> None:
    given = {"target": "y", "epsilon": 1, "features": features, **_FUNCTIONS[function]}
    given |= {"n_features": 2} if features == "numbers" else {}
    before = len(ctx.dp_ledger())
    with pytest.raises(dpsql.SourceError, match=r"S011.*is not boolean.*present_above"):
        getattr(ctx, function)("t", **given)
    assert len(ctx.dp_ledger()) == before


@pytest.mark.parametrize("features", [["flag"], "flags"])
def test_booleans_need_none(ctx: dpsql.Context, features: Any) -> None:
    more = {"n_features": 2} if features == "flags" else {}
    rows = ctx.dp_naive_bayes("t", target="y", epsilon=1000, features=features, **more).value.to_pylist()
    assert rows[1]["coefficient"] > 5


@pytest.mark.parametrize("above", [20, 20.5, 21])
def test_a_model_predicts_by_the_limit_of_its_fit(ctx: dpsql.Context, above: float) -> None:
    ctx.dp_naive_bayes(
        "t", target="y", epsilon=1000, features=["age"], present_above=above, release=f"above {above}", shrink=False
    )
    rows = [[20], [21], [22], [np.nan]]
    has = np.array([value[0] > above for value in rows])
    model = ctx.model(f"above {above}")
    found = model.predict_proba(np.array(rows))[:, 1]
    assert len(set(found[has])) == len(set(found[~has])) == 1
    assert found[~has][0] > found[has][0]
    assert type(model).from_json(model.to_json()).predict_proba(np.array(rows))[:, 1].tolist() == found.tolist()
    in_sql = [ctx.sql(f"SELECT dp_predict('above {above}', {{'age': {age}}}) AS p")["p"][0].as_py() for age in (20, 22)]
    assert in_sql == pytest.approx([found[0], found[2]])


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"features": ["age"], "present_above": "much"}, "P024"),
        ({"features": ["age"], "present_above": float("nan")}, "P024"),
        ({"features": ["age", "flag"], "present_above": 20}, "P060"),
        ({"features": ["flag"], "present_above": -1}, "P060"),
        ({"features": "age", "row_id": "numbers", "names": ["20"], "present_above": 0}, "P045"),
    ],
)
def test_refused(ctx: dpsql.Context, more: dict[str, Any], code: str) -> None:
    with pytest.raises(dpsql.DpsqlError, match=code):
        ctx.dp_naive_bayes("t", target="y", epsilon=1, **more)


def test_the_aggregate_form(ctx: dpsql.Context) -> None:
    call = "SELECT dp_naive_bayes({}, y, epsilon := 1000, dataset := 't'{}) FROM t"
    with pytest.raises(duckdb.Error, match="S011"):
        ctx.connection.execute(call.format("{'age': age}", "")).fetchall()
    for row, more in (("{'flag': flag}", ""), ("{'age': -age}", ", present_above := -21")):
        [(found,)] = ctx.connection.execute(call.format(row, more)).fetchall()
        assert found[1]["coefficient"] > 5
