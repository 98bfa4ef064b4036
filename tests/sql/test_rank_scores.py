"""dp_sis with ``score := 'rank'`` through SQL: the scores and the range of every form, arguments, and stated bounds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
import dpsql.functions.sis as sis
from dpsql.testing.neighbours import Table
from support.cases import cases
from support.sql_text import named

GIVEN: dict[str, Any] = {"k": 1, "epsilon": 1, "score": "rank", "verdict_share": 0}
WIDE = {"features": ["a", "b", "c"]}
# a follows y; b has ties and a missing value; c is constant. The label has a third value and a missing one.
ROWS: Table = (
    (0, 0, 0.0, 1.0, 4.0, 0.0, "no", False),
    (1, 0, 1.0, None, 4.0, 1.0, "no", False),
    (2, 1, 2.0, 1.0, 4.0, 2.0, "perhaps", True),
    (3, 1, 3.0, 0.0, 4.0, 3.0, "yes", True),
    (4, 2, 5.0, 0.0, 4.0, 4.0, None, None),
    (5, 2, 4.0, 1.0, 4.0, 5.0, "yes", True),
)
NAMES = ("id", "unit", "a", "b", "c", "y", "word", "flag")
Drawn = list[tuple[list[Fraction], Fraction]]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t(id INTEGER, unit INTEGER, a DOUBLE, b DOUBLE, c DOUBLE, y DOUBLE, word TEXT, flag BOOLEAN)"
    )
    opened.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [list(row) for row in ROWS])
    opened.execute("CREATE TABLE vectors AS SELECT [a, b, c] AS x, * FROM t")
    cells = " UNION ALL ".join(
        f"SELECT id, unit, y, word, flag, '{name}' AS name, {name} AS v FROM t" for name in "abc"
    )
    opened.execute(f"CREATE TABLE cells AS {cells}")
    yield opened
    opened.close()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The scores and the range that calls select by, in units of tau."""
    found: Drawn = []
    select = sis.draw_by_rank

    def draw(plan: Any, utility: Any, spread: int, features: Any) -> list[str]:
        found.append((list(map(int, utility)), Fraction(spread)))  # type: ignore[arg-type]
        return select(plan, utility, spread, features)

    monkeypatch.setattr(sis, "draw_by_rank", draw)
    return found


def expected(target: str, absent: float | None = None) -> list[int]:
    """Return ``2 |S|`` of a, b and c, pair by pair; `absent` stands for a missing value."""

    def sign(one: Any, other: Any) -> int:
        return 0 if None in (one, other) else (one > other) - (one < other)

    codes = {"no": 0, "yes": 1}
    targets = [row[NAMES.index(target)] for row in ROWS]
    if target == "word":
        targets = [codes.get(value) for value in targets]  # type: ignore[call-overload]
    out = []
    for name in "abc":
        column = [absent if row[NAMES.index(name)] is None else row[NAMES.index(name)] for row in ROWS]
        pairs = [(i, j) for i in range(len(ROWS)) for j in range(i)]
        out.append(2 * abs(sum(sign(column[i], column[j]) * sign(targets[i], targets[j]) for i, j in pairs)))
    return out


FORMS = {
    "wide": ("t", WIDE),
    "lists": ("vectors", {"features": "x", "n_features": 3}),
    "long": ("cells", {"features": "name", "row_id": "id", "value": "v", "names": ["a", "b", "c"]}),
}


@cases("form", FORMS)
@cases(
    ("target", "more", "spread"),
    [
        ("y", {}, Fraction(5, 2)),
        ("y", {"neighbours": "replace"}, 4),
        ("flag", {}, 2),
        ("flag", {"neighbours": "replace"}, 4),
        ("word", {"target_levels": ["no", "yes"]}, 2),
        ("y", {"privacy_unit": "unit", "max_rows_per_unit": 2}, 5),
        ("flag", {"privacy_unit": "unit", "max_rows_per_unit": 2}, 4),
        ("flag", {"privacy_unit": "unit", "max_rows_per_unit": 2, "neighbours": "replace"}, 8),
    ],
)
def test_scores_and_range_of_every_layout(
    con: Any, drawn: Drawn, form: str, target: str, more: dict[str, Any], spread: Any
) -> None:
    """A missing cell of a long row is NaN, as in the other layouts; a third level is missing in all of them."""
    source, columns = FORMS[form]
    con.execute(f"FROM dp_sis('{source}', target := '{target}', {named({**GIVEN, **columns, **more})})").fetchall()
    [(utility, found)] = drawn
    assert utility == expected(target)
    assert found == 2 * (len(ROWS) - 1) * spread


@pytest.mark.parametrize(
    ("target", "more", "spread"),
    [("y", {}, Fraction(5, 2)), ("flag", {}, 2), ("word", {"target_levels": ["no", "yes"]}, 2)],
)
def test_scores_and_range_of_the_aggregate_form(
    con: Any, drawn: Drawn, target: str, more: dict[str, Any], spread: Any
) -> None:
    con.execute(f"SELECT dp_sis([a, b, c], {target}, n_features := 3, {named({**GIVEN, **more})}) FROM t").fetchall()
    assert drawn == [(expected(target), 2 * (len(ROWS) - 1) * spread)]


@pytest.mark.parametrize(
    ("target", "more", "spread"),
    [("y", {}, Fraction(5, 2)), ("flag", {}, 2), ("word", {"target_levels": ["no", "yes"]}, 2)],
)
def test_a_pipeline_without_bounds_ranks(
    con: Any, drawn: Drawn, target: str, more: dict[str, Any], spread: Any
) -> None:
    """The pipeline codes a third level as 0 for the fit, and it is missing for the selection all the same."""
    given = {**WIDE, **more, "k": 1, "epsilon": 2, "delta": 1e-6, "selector": "sis"}
    con.execute(f"FROM dp_pipeline('t', target := '{target}', {named(given)})").fetchall()
    assert drawn == [(expected(target), 2 * (len(ROWS) - 1) * spread)]
    bounds = {"lower": 0, "upper": 5, "target_lower": 0, "target_upper": 5}
    con.execute(f"FROM dp_pipeline('t', target := 'y', {named({**WIDE, **given, **bounds, 'target_levels': None})})")
    assert len(drawn) == 1


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"lower": 0, "upper": 1}, "lower"),
        ({"upper": 1}, "upper"),
        ({"target_lower": 0, "target_upper": 1}, "target_lower"),
        ({"center": "target"}, "center"),
    ],
)
def test_what_ranks_do_not_use_is_refused(con: Any, more: dict[str, Any], name: str) -> None:
    call = f"dp_sis('t', target := 'y', {named({**GIVEN, **WIDE, **more})})"
    with pytest.raises(duckdb.Error, match=f"P045.*{name} has no effect with score := 'rank'"):
        con.execute(f"FROM {call}").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]
    with pytest.raises(dpsql.ParameterError, match=f"P045.*{name}"), dpsql.Context() as ctx:
        ctx.dp_estimate("dp_sis", n_features=3, **GIVEN, **more)


def test_what_the_owner_stated_of_bounds_is_ignored_and_levels_are_used(con: Any, drawn: Drawn) -> None:
    con.execute(
        "SELECT dp_protect('t', epsilon := 9, lower := 0, upper := 9, target_lower := 0, target_upper := 9, "
        "keys := {word: ['no', 'yes']})"
    )
    for target, spread in (("y", 25), ("word", 20), ("flag", 20)):
        con.execute(f"FROM dp_sis('t', target := '{target}', {named({**GIVEN, **WIDE})})").fetchall()
        assert drawn[-1] == (expected(target), spread)


def test_the_recorded_arguments_of_a_covariance_do_not_name_the_score(con: Any) -> None:
    """A release that was named before scores could be chosen is still found."""
    bounds = {"lower": 0, "upper": 5, "target_lower": 0, "target_upper": 5}
    call = named({**WIDE, **bounds, "k": 1, "epsilon": 1, "release": "r"})
    first = con.execute(f"FROM dp_sis('t', target := 'y', {call})").fetchall()
    again = con.execute(f"FROM dp_sis('t', target := 'y', {call}, score := 'covariance')").fetchall()
    assert first == again
    plan = sis.SisPlan.from_arguments("t", {"target": "y", **WIDE, **bounds, "k": 1, "epsilon": 1})
    assert "score" not in plan.public_arguments
    ranked = sis.SisPlan.from_arguments("t", {"target": "y", **WIDE, **GIVEN})
    assert ranked.public_arguments["score"] == "rank"
    assert not {"lower", "upper"} & set(ranked.public_arguments)


def test_an_estimate_knows_two_levels_where_they_are_named(con: Any) -> None:
    def estimated(**more: Any) -> dict[str, float]:
        call = named({**GIVEN, "k": 5, "n_features": 2000, **more})
        return {row[0]: row[1] for row in con.execute(f"FROM dp_estimate('dp_sis', {call})").fetchall()}

    assert estimated()["noise_scale"] == 12.5
    assert estimated(target_levels=[0, 1])["noise_scale"] == 10
    assert estimated(neighbours="replace", target_levels=[0, 1])["score_range"] == 4
    assert estimated(mechanism="canonical_lipschitz", max_rows_per_unit=3)["noise_scale"] == 7.5
    assert estimated(n_rows=1000)["score_gap_share"] == 2 * estimated()["score_gap"] / 1000
