"""The law of what parts answer whose groups another part has released, through SQL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.contract.gaussian_profile import gaussian_mu
from support.audits import judge
from support.broken.planting import Fault, planted
from support.broken.query_parts import ONE_KEY_ALONE
from support.query_entries import noted_entries, parts_of
from support.sql_text import literal

COPIES = 1000
CAP = 2
PEOPLE = 40
ROWS = 2 * PEOPLE
RUNS = 100_000
# Width of the cells of Gaussian noise.
CELL = 0.5
SQL = "SELECT copy, count(*) AS n, count(DISTINCT who) AS m FROM visits GROUP BY copy"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(
            f"CREATE TABLE visits AS SELECT copy, {PEOPLE} * copy + p AS who FROM range({PEOPLE}) AS v(p), range(2), "
            f"range({COPIES}) AS c(copy)"
        )
        opened.execute(
            f"SELECT dp_protect('visits', epsilon := 1e9, delta := 0.09, privacy_unit := 'who', max_rows_per_unit := {CAP})"
        )
        yield opened


def geometric(scale: Fraction) -> dict[int, float]:
    decay = math.exp(-1 / scale)
    reach = range(-math.ceil(12 * scale), math.ceil(12 * scale) + 1)
    return {at: (1 - decay) / (1 + decay) * decay ** abs(at) for at in reach}


def test_rows_of_released_keys_have_noise_of_half_of_epsilon(con: Any) -> None:
    """Persons draw the keys at one half; rows, of which a person has two, are counted at the other."""

    def sampled(epsilon: Fraction, runs: int) -> list[int]:
        found: list[int] = []
        call = (
            f"dp_query({literal(SQL)}, epsilon := {float(epsilon)!r}, delta := 1e-6, keys := 'private', fresh := true)"
        )
        while len(found) < runs:
            rows = con.execute(f"SELECT n - {ROWS} FROM {call}").fetchall()
            assert len(rows) == COPIES
            found += [row[0] for row in rows]
        return found[:runs]

    judge(sampled, lambda epsilon: geometric(2 * CAP / epsilon), Fraction(4), runs=RUNS)


def test_keys_are_drawn_at_half_of_epsilon(con: Any) -> None:
    """Persons of one key have a weight of one, and the noise on their sum is Gaussian, for a weight of one."""
    sql = "SELECT copy, count(*) AS n FROM visits GROUP BY copy"

    def sampled(epsilon: Fraction, runs: int) -> list[int]:
        found: list[int] = []
        call = (
            f"dp_query({literal(sql)}, epsilon := {float(epsilon)!r}, delta := 1e-6, keys := 'private', fresh := true)"
        )
        while len(found) < runs:
            with noted_entries() as entries:
                assert len(con.execute(f"FROM {call}").fetchall()) == COPIES
            [block] = parts_of(entries[-1])[0]["blocks"]
            assert block["kind"] == "weighted_units"
            high, low = (np.array(part[0], dtype=object) for part in block["words"])
            noisy = (high * 2 ** block["word_bits"] + low) * Fraction(2) ** block["bits"] / 4096
            found += [math.floor((count - PEOPLE) / CELL) for count in noisy]
        return found[:runs]

    def law(epsilon: Fraction) -> dict[int, float]:
        noise = NormalDist(0, 1 / float(gaussian_mu(epsilon / 2, Fraction(1, 10**6))))
        return {at: noise.cdf(CELL * (at + 1)) - noise.cdf(CELL * at) for at in range(-60, 60)}

    judge(sampled, law, Fraction(8), runs=RUNS)


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, ONE_KEY_ALONE])
def test_a_person_alone_shows_with_a_chance_of_delta(fault: Fault | None) -> None:
    """Through SQL: 5,000 persons, each alone in six keys, of whom 2 % at most may show in some key."""
    delta, persons, keys, runs = 0.02, 5000, 6, 40
    with dpsql.connect() as con, nullcontext() if fault is None else planted(*fault.patches):
        con.execute(f"CREATE TABLE t AS SELECT i // {keys} AS who, i AS k FROM range({persons * keys}) AS r(i)")
        con.execute(
            f"SELECT dp_protect('t', epsilon := 1e9, delta := .99, privacy_unit := 'who', max_rows_per_unit := {keys})"
        )
        sql = "SELECT k, count(*) AS n FROM t GROUP BY k"
        call = f"dp_query('{sql}', epsilon := 2, delta := {delta}, keys := 'private', fresh := true)"
        shown = 0
        for _ in range(runs):
            [(found,)] = con.execute(f"SELECT count(DISTINCT k // {keys}) FROM {call}").fetchall()
            shown += found
    # Hoeffding: wrong by more than this with a chance below 1e-9.
    off = math.sqrt(math.log(1e9) / (2 * persons * runs))
    assert shown / (persons * runs) > delta / 4 - off
    assert (shown / (persons * runs) > delta + off) == (fault is not None)


def test_a_drawn_limit_leaves_the_rest_of_epsilon(con: Any) -> None:
    """All people have two rows, so that two is what is drawn; rows are counted at 95 % of epsilon."""
    sql = "SELECT copy, count(*) AS n FROM visits GROUP BY copy"
    more = f"max_rows_per_unit := 'drawn', keys := struct_pack(copy := range({COPIES})), left_out_share := 0, fresh := true"

    def sampled(epsilon: Fraction, runs: int) -> list[int]:
        found: list[int] = []
        call = f"dp_query({literal(sql)}, epsilon := {float(epsilon)!r}, {more})"
        while len(found) < runs:
            found += [row[0] for row in con.execute(f"SELECT n - {ROWS} FROM {call}").fetchall()]
        return found[:runs]

    judge(sampled, lambda epsilon: geometric(2 / (epsilon * Fraction(19, 20))), Fraction(4), runs=RUNS)


def test_each_grouping_set_has_noise_of_half_of_epsilon(con: Any) -> None:
    """What is drawn, before it is fitted to the other set: two rows of a person at one half of epsilon."""
    sql = "SELECT copy, count(*) AS n FROM visits GROUP BY ROLLUP (copy)"
    more = f"keys := struct_pack(copy := range({COPIES})), left_out_share := 0, fresh := true"

    def sampled(epsilon: Fraction, runs: int) -> list[int]:
        found: list[int] = []
        while len(found) < runs:
            with noted_entries() as entries:
                con.execute(f"FROM dp_query({literal(sql)}, epsilon := {float(epsilon)!r}, {more})").fetchall()
            finest = parts_of(entries[-1])[0]["sets"][0]
            assert len(finest["keys"][0]) == COPIES
            found += [count - ROWS for count in finest["blocks"][0]["words"][0][0]]
        return found[:runs]

    judge(sampled, lambda epsilon: geometric(2 * CAP / epsilon), Fraction(4), runs=RUNS)
