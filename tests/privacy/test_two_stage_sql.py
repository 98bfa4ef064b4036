"""``dp_two_stage`` through SQL: who shares a block, what a row can change, the laws of count and draw, audits.

Chi-square tests reject a right release with probability at most 1e-6, and noise scaled by 0.7 or 1.3, on samples of
full length, except with probability 1e-5. A right release is accused by an audit with probability at most 1e-6.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.keys import identity
from dpsql.functions import two_stage
from dpsql.kernels import lasso_votes as kernel
from dpsql.mechanisms import laplace
from dpsql.noise.discrete import discrete_laplace
from dpsql.statistics.votes import count_shift
from dpsql.testing import AuditReport, SqlRelease, audit, audit_sql, fit, runs_needed, to_arrow
from dpsql.testing.neighbours import Table
from dpsql.testing.sql import load
from support.audits import connecting
from support.cases import cases
from support.laws.two_stage import TwoStageLaw
from support.sessions import known_block, one_key
from support.sql_text import named

FALSE_ALARM = 1e-6
MISS = 1e-5
CONFIDENCE = 1 - 1e-6
FEATURES = ("a", "b", "c", "d")
Outcome = tuple[str, ...]
Case = dict[str, Any]


@dataclass
class Seen:
    """What one call worked on: rows, the block of each, and the votes."""

    features: Any
    target: Any
    block: Any
    blocks: int
    options: dict[str, Any]
    votes: Any = None

    def by_block(self) -> Any:
        """Return the votes of each block, shape (blocks, features), from that block's rows alone."""
        options = {**self.options, "progress": None}
        parts = []
        for block in range(self.blocks):
            rows = self.block == block
            alone = np.zeros(int(rows.sum()), dtype=np.int64)
            parts.append(LASSO_VOTES(self.features[rows], self.target[rows], alone, blocks=1, **options))
        return np.array(parts)

    def assignment(self) -> dict[float, set[int]]:
        """Return the blocks of the rows with each value of the first feature."""
        found: dict[float, set[int]] = {}
        for value, block in zip(self.features[:, 0].tolist(), self.block.tolist(), strict=True):
            found.setdefault(value, set()).add(block)
        return found


LASSO_VOTES = kernel.lasso_votes


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """Every call's rows and blocks, as the kernel got them, and its votes, as the draw got them."""
    seen: list[Seen] = []
    draw = two_stage.draw_votes

    def recorded(features: Any, target: Any, block: Any, *, blocks: int, **options: Any) -> Any:
        seen.append(Seen(features, target, block, blocks, options))
        return LASSO_VOTES(features, target, block, blocks=blocks, **options)

    def drawn(plan: Any, votes: Any) -> list[int]:
        seen[-1].votes = votes
        return draw(plan, votes)

    monkeypatch.setattr(kernel, "lasso_votes", recorded)
    monkeypatch.setattr(two_stage, "draw_votes", drawn)
    return seen


@pytest.fixture
def con() -> Iterator[Any]:
    """A table of 160 rows: the target follows a, and b a little; ids count from 0, owners have four rows each."""
    opened = dpsql.connect()
    rng = np.random.default_rng(11)
    x = rng.normal(size=(160, 4))
    y = x[:, 0] + 0.3 * x[:, 1] + 0.1 * rng.normal(size=160)
    rows = tuple((i, i // 4, *map(float, row), float(value)) for i, (row, value) in enumerate(zip(x, y, strict=True)))
    load(opened, to_arrow(rows, ["id", "owner", *FEATURES, "y"], ["int64", "int64", *["double"] * 5]))
    yield opened
    opened.close()


def call(connection: Any, source: str = "t", **arguments: Any) -> list[str]:
    given = {"target": "y", "features": list(FEATURES), "k": 1, "epsilon": 1, "blocks": 5, **arguments}
    rows = connection.execute(f"FROM dp_two_stage('{source}', {named(given)})").fetchall()
    return [feature for _, feature, *_ in sorted(rows)]


def block_of(connection: Any, row_id: int, blocks: int) -> int:
    """Return the block of an id under the one key."""
    [(found,)] = connection.execute(f"SELECT {known_block(identity(f'{row_id}::BIGINT'))} % {blocks}").fetchall()
    return int(found)


OUTLIER = "SELECT {id} AS id, 0 AS owner, 0.0 AS a, 0.0 AS b, 0.0 AS c, 1e6 AS d, 1e6 AS y"


@pytest.mark.parametrize("k", [1, 2])
def test_a_row_alters_the_vote_of_its_own_block_alone(con: Any, calls: list[Seen], k: int) -> None:
    """Changed under its id, left out, or one more: always the block of that id, and no other."""
    con.execute(f"CREATE VIEW changed AS FROM t WHERE id <> 17 UNION ALL {OUTLIER.format(id=17)}")
    con.execute(f"CREATE VIEW more AS FROM t UNION ALL {OUTLIER.format(id=1000)}")
    for source in ("t", "changed", "more"):
        call(con, source, row_id="id", k=k)
    before = calls[0].by_block()
    assert before.sum(axis=0).tolist() == calls[0].votes.tolist()
    for after, row_id in ((calls[1], 17), (calls[2], 1000)):
        moved = after.by_block() != before
        assert np.flatnonzero(moved.any(axis=1)).tolist() == [block_of(con, row_id, 5)]
        assert abs(after.votes - calls[0].votes).max() == 1
        assert 2 <= abs(after.votes - calls[0].votes).sum() <= 2 * k


def test_a_replacement_by_another_id_alters_two_blocks(con: Any, calls: list[Seen]) -> None:
    first = 1000
    second = next(i for i in range(1001, 2000) if block_of(con, i, 5) != block_of(con, first, 5))
    for name, row_id in (("one", first), ("other", second)):
        con.execute(f"CREATE VIEW {name} AS FROM t UNION ALL {OUTLIER.format(id=row_id)}")
        call(con, name, row_id="id")
    moved = (calls[0].by_block() != calls[1].by_block()).any(axis=1)
    assert set(np.flatnonzero(moved).tolist()) == {block_of(con, first, 5), block_of(con, second, 5)}


def test_ids_decide_the_block_under_one_key(con: Any, calls: list[Seen]) -> None:
    """And not under another, as every call has; without ids every call draws anew, row by row."""
    for more in ({"row_id": "id"}, {"row_id": "id"}, {}, {}):
        call(con, **more)
    assignments = [seen.assignment() for seen in calls]
    assert assignments[0] == assignments[1]
    assert assignments[2] != assignments[3]
    assert assignments[0] != assignments[2]
    with one_key(b"another key of c"):
        call(con, row_id="id")
    assert calls[-1].assignment() != assignments[0]


def test_blocks_of_rows_are_independent_and_uniform(con: Any, calls: list[Seen]) -> None:
    """Pairs of neighbouring rows, over many keys: 160 rows in 4 blocks make 16 equally likely cells."""
    pairs: list[tuple[int, int]] = []
    for _ in range(12):
        call(con, blocks=4)
        order = np.argsort(calls[-1].features[:, 0])
        block = calls[-1].block[order].tolist()
        pairs += zip(block[::2], block[1::2], strict=True)
    law = {(i, j): 1 / 16 for i in range(4) for j in range(4)}
    assert fit(pairs, law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.parametrize("ids", [{}, {"row_id": "id"}], ids=["no row id", "row id"])
def test_all_rows_of_a_privacy_unit_share_a_block(con: Any, calls: list[Seen], ids: Case) -> None:
    con.execute("CREATE VIEW v AS SELECT * REPLACE (owner::DOUBLE AS a) FROM t")
    call(con, "v", privacy_unit="owner", max_rows_per_unit=3, **ids)
    assignment = calls[0].assignment()
    assert len(assignment) == 40
    assert all(len(blocks) == 1 for blocks in assignment.values())
    assert len(set.union(*assignment.values())) > 1
    assert len(calls[0].target) == 120
    assert np.unique(calls[0].features[:, 0], return_counts=True)[1].tolist() == [3] * 40


def test_votes_do_not_depend_on_the_order_of_rows(con: Any, calls: list[Seen]) -> None:
    """Given ids; nor on threads. The values are such that no two features tie."""
    for number, order in enumerate(("id DESC", "hash(id)", "y")):
        con.execute(f"CREATE TABLE ordered{number} AS FROM t ORDER BY {order}")
    for threads, source in ((1, "t"), (4, "ordered0"), (1, "ordered1"), (4, "ordered2")):
        con.execute(f"SET threads = {threads}")
        call(con, source, row_id="id", k=2)
    for seen in calls[1:]:
        assert (seen.by_block() == calls[0].by_block()).all()
        assert (seen.votes == calls[0].votes).all()


@pytest.mark.parametrize("mechanism", ["one_shot", "gumbel", "canonical_lipschitz"])
def test_a_large_epsilon_gives_the_top_of_the_votes(con: Any, calls: list[Seen], mechanism: str) -> None:
    con.execute("CREATE VIEW v AS SELECT * REPLACE (a + 0.7 * b AS y) FROM t")
    found = call(con, "v", k=2, epsilon=10_000, mechanism=mechanism)
    assert calls[0].votes.tolist() == [5, 5, 0, 0]
    assert set(found) == {"a", "b"}
    assert call(con, "t", k=1, epsilon=10_000, mechanism=mechanism) == ["a"]


# The draw, given votes.

VOTES = (9, 7, 5, 2, 0)
NAMES = ("a", "b", "c", "d", "e")
CASES: dict[str, Case] = {
    "one_shot": {"k": 2, "epsilon": 4},
    "gumbel": {"k": 2, "epsilon": 4, "mechanism": "gumbel"},
    "canonical_lipschitz": {"k": 2, "epsilon": 3, "mechanism": "canonical_lipschitz", "gamma": 0.5},
    "replace": {"k": 1, "epsilon": 4, "neighbours": "replace"},
    "count": {"k": 1, "epsilon": 4, "blocks": None, "rows_per_block": 2, "count_share": 0.5},
}


@pytest.fixture
def fixed_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_stage, "count_votes", lambda *_: np.array(VOTES))


def given(case: Case) -> Case:
    return {key: value for key, value in {"blocks": 9, **case}.items() if value is not None}


@functools.cache
def exact_law(name: str, factor: float = 1.0) -> dict[Outcome, float]:
    """Return the law of the draw when noise is `factor` times as wide as it should be."""
    case = given(CASES[name])
    return TwoStageLaw(NAMES, **{**case, "epsilon": case["epsilon"] / factor}).selection_law(VOTES)


@functools.cache
def runs_for(name: str) -> int:
    laws = [exact_law(name, factor) for factor in (0.7, 1.3)]
    return max(runs_needed(exact_law(name), law, false_alarm=FALSE_ALARM, miss=MISS) for law in laws)


def draws(name: str, runs: int, factor: float = 1.0) -> list[Outcome]:
    """Every group of a GROUP BY is a release of its own."""
    case = given(CASES[name])
    case["epsilon"] /= factor
    sql = (
        f"SELECT list_transform(dp_two_stage([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, names := {list(NAMES)}, {named(case)}), "
        "lambda entry: entry.feature) FROM range({count}) AS r(copy) GROUP BY copy"
    )
    with dpsql.connect() as connection:
        return SqlRelease(connection, sql, batch=500)(runs)


@pytest.mark.parametrize("name", CASES)
def test_law_of_the_draw(fixed_votes: None, name: str) -> None:
    result = fit(draws(name, 400), exact_law(name), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_law_of_the_draw_at_length(fixed_votes: None, name: str) -> None:
    result = fit(draws(name, runs_for(name)), exact_law(name), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@cases("factor", [0.7, 1.3])
@cases("name", [pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_law_of_a_draw_with_scaled_noise_is_rejected(fixed_votes: None, name: str, factor: float) -> None:
    assert not fit(draws(name, runs_for(name), factor), exact_law(name), false_alarm=FALSE_ALARM).accepted


def test_ranges() -> None:
    """Votes of a block swap, so twice the sensitivity; a replaced row may leave one block and enter another (W1)."""
    for relation, spread in (("add_remove", 2), ("replace", 4)):
        for unit in ({}, {"privacy_unit": "u", "max_rows_per_unit": 3}):
            assert TwoStageLaw("ab", k=1, epsilon=1, blocks=2, neighbours=relation, **unit).utility_range == spread


# The number of blocks.

COUNTED: Case = {"k": 1, "epsilon": 2, "rows_per_block": 3, "count_share": 0.25, "count_failure": 0.01}
ROWS = 60


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of blocks of every call."""
    found: list[int] = []

    def noted(plan: Any, rows: Any, blocks: int, progress: Any) -> Any:
        found.append(blocks)
        return np.zeros(2, dtype=np.int64)

    monkeypatch.setattr(two_stage, "count_votes", noted)
    return found


def count_blocks(numbers: list[int], runs: int, rows: int = ROWS) -> list[int]:
    with dpsql.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 1.0 AS x FROM range({rows})")
        release = f"dp_two_stage([x, x], x, n_features := 2, {named(COUNTED)})"
        connection.execute(f"SELECT {release} FROM t, range({runs}) AS r(copy) GROUP BY copy").fetchall()
    assert len(numbers) == runs
    return numbers


def test_law_of_the_number_of_blocks(numbers: list[int]) -> None:
    law = TwoStageLaw("ab", **COUNTED).blocks_law(ROWS)
    assert math.fsum(law.values()) == pytest.approx(1, abs=1e-12)
    result = fit(count_blocks(numbers, 600), law, false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
def test_law_of_the_number_of_blocks_with_scaled_noise_is_rejected(
    numbers: list[int], monkeypatch: pytest.MonkeyPatch, factor: Fraction
) -> None:
    """Noise of another scale below the same shift and the same rows per block."""
    monkeypatch.setattr(laplace, "discrete_laplace", lambda scale, size: discrete_laplace(factor * scale, size))
    law = TwoStageLaw("ab", **COUNTED).blocks_law(ROWS)
    assert not fit(count_blocks(numbers, 1500), law, false_alarm=FALSE_ALARM).accepted


def test_there_is_always_a_block_and_seldom_one_too_many(numbers: list[int]) -> None:
    shift = count_shift(Fraction(1, 2), Fraction(1, 100))
    # P(Z > s) = a^(s + 1) / (1 + a) is at most 1/100 first at s = 8, a = exp(-1/2).
    assert shift == 8
    law = TwoStageLaw("ab", **COUNTED).blocks_law(ROWS)
    assert min(law) == 1
    too_many = math.fsum(chance for blocks, chance in law.items() if blocks > ROWS // 3)
    assert 0.001 < too_many <= 0.01
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t(a DOUBLE, b DOUBLE, y DOUBLE)")
        for _ in range(8):
            connection.execute(f"FROM dp_two_stage('t', target := 'y', {named(COUNTED)})").fetchall()
    assert min(numbers) == 1


def test_scale_of_the_count(numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One over the count's share of epsilon, times the rows of a privacy unit."""
    scales: list[Fraction] = []

    def noted(scale: Fraction, size: int) -> Any:
        scales.append(scale)
        return discrete_laplace(scale, size)

    monkeypatch.setattr(laplace, "discrete_laplace", noted)
    with dpsql.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i // 3 AS u, i AS id, 0.5 AS a, 0.25 AS b, 1.0 AS y FROM range(9) r(i)"
        )
        for more in ("", ", privacy_unit := 'u', max_rows_per_unit := 3", ", neighbours := 'replace'"):
            sql = (
                f"FROM dp_two_stage('t', target := 'y', features := ['a', 'b'], row_id := 'id', {named(COUNTED)}{more})"
            )
            connection.execute(sql).fetchall()
    assert scales == [2, 6, 2]


def test_ledger() -> None:
    """A count is discrete Laplace noise, composed with the selection; public blocks cost nothing."""
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i + 0.5 AS a, i * i + 0.5 AS b, i + 1.0 AS y FROM range(9) r(i)")
        connection.execute(f"FROM dp_two_stage('t', target := 'y', {named(COUNTED)})").fetchall()
        connection.execute("FROM dp_two_stage('t', target := 'y', k := 1, epsilon := 2, blocks := 3)").fetchall()
        rows = connection.execute("SELECT epsilon, delta, rho, event FROM dp_ledger() ORDER BY sequence").fetchall()
    selection = {"mechanism": "exponential_noise", "k": 1}
    assert rows[0][:2] == rows[1][:2] == (2.0, 0.0)
    assert [row[2] for row in rows] == pytest.approx([0.5**2 / 2 + 1.5**2 / 2, 2.0**2 / 2])
    assert json.loads(rows[0][3]) == {
        "mechanism": "composed",
        "events": [{"mechanism": "discrete_laplace", "epsilon": "1/2"}, {**selection, "epsilon": "3/2"}],
    }
    assert json.loads(rows[1][3]) == {**selection, "epsilon": "2"}


# All of it: five rows in two blocks, over all 32 assignments. In their own units, no two features of a block tie.

FEW: Table = (
    (-0.875, -0.875, -0.75, -0.375, 0.0),
    (0.125, -0.25, 0.875, 0.375, -0.75),
    (-0.375, -0.625, -0.625, 0.75, 0.875),
    (-0.125, -0.5, 0.75, -0.75, -0.75),
    (-0.5, -0.25, -0.375, -0.5, -0.625),
)
FEW_CASE: Case = {"k": 2, "epsilon": 8, "blocks": 2, "penalty": 0.02, "standardize": False}


@functools.cache
def few_law(factor: float = 1.0) -> dict[Outcome, float]:
    return TwoStageLaw(FEATURES, **{**FEW_CASE, "epsilon": 8 / factor}).law(FEW)


def few(runs: int, factor: float = 1.0) -> list[Outcome]:
    with dpsql.connect() as connection:
        load(connection, to_arrow(FEW, (*FEATURES, "y")))
        sql = (
            f"SELECT list_transform(dp_two_stage([a, b, c, d], y, names := {list(FEATURES)}, "
            f"{named({**FEW_CASE, 'epsilon': 8 / factor})}), lambda entry: entry.feature) "
            "FROM t, range({count}) AS r(copy) GROUP BY copy"
        )
        return SqlRelease(connection, sql, batch=500)(runs)


def test_law_of_the_whole_call() -> None:
    assert few_law()["c", "d"] == pytest.approx(0.309712, abs=1e-6)
    assert fit(few(600), few_law(), false_alarm=FALSE_ALARM).accepted


@pytest.mark.slow
def test_law_of_the_whole_call_at_length() -> None:
    runs = max(runs_needed(few_law(), few_law(f), false_alarm=FALSE_ALARM, miss=MISS) for f in (0.7, 1.3))
    assert fit(few(runs), few_law(), false_alarm=FALSE_ALARM).accepted
    for factor in (0.7, 1.3):
        assert not fit(few(runs, factor), few_law(), false_alarm=FALSE_ALARM).accepted, factor


# Audits. Within one session the key is fixed, and with ids so are the blocks: the loss is that of the draw.


def pair_of_tables(con: Any, relation: str) -> None:
    """Create t0 and t1: one row turns one block (add_remove), or moves and turns two (replace).

    Rows of some blocks follow a, those of others b; which block a row is in is asked of the session. A row with a
    huge target turns the vote of the block it is in.
    """
    blocks = {"add_remove": 3, "replace": 4}[relation]
    follows_b = {"add_remove": (2,), "replace": (0, 1)}[relation]
    rng = np.random.default_rng(3)
    rows = []
    for row_id in range(16 * blocks):
        a, b = rng.normal(size=2).tolist()
        rows.append((row_id, a, b, b if block_of(con, row_id, blocks) in follows_b else a))

    def turning(block: int, feature: str) -> tuple[float, ...]:
        row_id = next(i for i in range(1000, 2000) if block_of(con, i, blocks) == block)
        return row_id, *((1e6, 0.0) if feature == "a" else (0.0, 1e6)), 1e6

    more = {"add_remove": ([], [turning(0, "b")]), "replace": ([turning(0, "a")], [turning(2, "b")])}[relation]
    for number, extra in enumerate(more):
        arrow = to_arrow((*rows, *extra), ["id", "a", "b", "y"], ["int64", *["double"] * 3])
        load(con, arrow, f"t{number}")


def audited(con: Any, relation: str, epsilon: float, runs: int, charged: float | None = None) -> AuditReport:
    blocks = {"add_remove": 3, "replace": 4}[relation]
    sql = [
        f"SELECT feature FROM dp_two_stage('t{number}', target := 'y', features := ['a', 'b'], k := 1, blocks := {blocks}, "
        f"epsilon := {charged or epsilon}, row_id := 'id', neighbours := '{relation}')"
        for number in (0, 1)
    ]
    return audit(
        lambda side, count: SqlRelease(con, sql[side], 10)(count),
        (0, 1),
        epsilon=epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
    )


@pytest.mark.parametrize(("relation", "votes"), [("add_remove", [[2, 1], [1, 2]]), ("replace", [[3, 1], [1, 3]])])
def test_loss_on_the_audited_pair_is_large(con: Any, calls: list[Seen], relation: str, votes: list[list[int]]) -> None:
    """An audit of a pair without loss would pass whatever the noise."""
    pair_of_tables(con, relation)
    audited(con, relation, 2, 10)
    assert {tuple(seen.votes.tolist()) for seen in calls} == set(map(tuple, votes))
    loss = log_ratio(relation, votes)
    assert 0.7 * 2 < loss <= 2


def log_ratio(calibrated: str, votes: list[list[int]]) -> float:
    law = TwoStageLaw("ab", k=1, epsilon=2, blocks=4, neighbours=calibrated)
    first, second = map(law.selection_law, votes)
    return max(abs(math.log(first[output] / second[output])) for output in first)


def test_epsilon_is_used_up() -> None:
    """A feature that is behind gets the whole of it."""
    assert log_ratio("add_remove", [[3, 0], [2, 1]]) == pytest.approx(2)
    assert log_ratio("replace", [[5, 0], [3, 2]]) == pytest.approx(2)


def test_the_range_of_one_block_does_not_cover_a_replacement() -> None:
    """W1: a replaced row that brings another id. Votes (5, 5, 0) become (3, 7, 0)."""
    law = TwoStageLaw("abc", k=1, epsilon=2, blocks=10, neighbours="add_remove")
    first, second = law.selection_law((5, 5, 0)), law.selection_law((3, 7, 0))
    assert max(abs(math.log(first[output] / second[output])) for output in first) > 1.2 * 2
    assert log_ratio("add_remove", [[3, 1], [1, 3]]) > 1.25 * 2


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_audit_with_ids(con: Any, relation: str) -> None:
    pair_of_tables(con, relation)
    report = audited(con, relation, 2, 40)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_long_audit_with_ids(con: Any, relation: str) -> None:
    pair_of_tables(con, relation)
    report = audited(con, relation, 2, 1600)
    assert report.verdict == "passes", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_same_audit_catches_a_third_of_the_noise(con: Any, relation: str) -> None:
    """The release is given three times the epsilon that the audit is told."""
    pair_of_tables(con, relation)
    report = audited(con, relation, 2, 1600, charged=6)
    assert report.verdict == "violates", str(report)


# One block needs no id: the row more turns its vote.
TURNED = tuple((x, z, x) for x in (-1.0, 0.0, 1.0) for z in (-1.0, 0.0, 1.0))
ONE_BLOCK = TURNED, (*TURNED, (0.0, 1e6, 1e6))


def audit_of_one_block(opened: list[Any], claimed: float, charged: float, runs: int) -> AuditReport:
    sql = (
        f"SELECT dp_two_stage([a, b], y, names := ['a', 'b'], k := 1, blocks := 1, epsilon := {charged})[1].feature "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )
    tables = to_arrow(ONE_BLOCK[0], ("a", "b", "y")), to_arrow(ONE_BLOCK[1], ("a", "b", "y"))
    return audit_sql(
        connecting(opened), sql, tables, epsilon=claimed, runs=runs, confidence=CONFIDENCE, power=0.3, batch=500
    )


def test_audit_of_one_block(opened: list[Any]) -> None:
    report = audit_of_one_block(opened, 2.0, 2.0, 1200)
    assert report.verdict == "passes", str(report)


def test_the_audit_of_one_block_catches_a_third_of_the_noise(opened: list[Any]) -> None:
    report = audit_of_one_block(opened, 2.0, 6.0, 1000)
    assert report.verdict == "violates", str(report)


def test_whether_a_call_answers_does_not_depend_on_the_rows(opened: list[Any]) -> None:
    """No rows, NULL, NaN and infinities included: an error on one table only would be a violation."""
    nan, inf = float("nan"), float("inf")
    pairs: list[tuple[Table, Table]] = [
        ((), ((1.0, 1.0, 1.0),)),
        (((nan, inf, 1.0),), ((nan, inf, 1.0), (None, -inf, nan))),
    ]
    blocks: list[Callable[[], str]] = [lambda: "blocks := 2", lambda: "rows_per_block := 1"]
    for pair in pairs:
        for more in blocks:
            sql = f"SELECT feature FROM dp_two_stage('t', target := 'y', k := 1, epsilon := 0.01, {more()})"

            tables = to_arrow(pair[0], ("a", "b", "y")), to_arrow(pair[1], ("a", "b", "y"))
            report = audit_sql(connecting(opened), sql, tables, epsilon=0.01, runs=20, confidence=CONFIDENCE, batch=10)
            assert report.verdict != "violates", str(report)
