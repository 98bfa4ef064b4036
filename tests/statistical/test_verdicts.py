"""Verdicts claim no more than they prove: a Monte Carlo per claim, in the worst public case, with a wrong rule that fails.

A false `clear` may have a chance of 5 %. A test fails by accident with a chance of at most 1e-6: five standard deviations.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.functions.feature_counts import Counts
from dpsql.functions.grouped.aggregate import AggregatePlan, draw_aggregates
from dpsql.functions.score_filter import ScoreFilterPlan, draw_features
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.released.covariance import estimates, nothing_left
from dpsql.released.curves import RocCounts, rate_verdicts
from dpsql.released.intervals import call_verdict, coefficient_verdicts, count_reach, interval_verdict
from dpsql.released.metrics import NoisySum, metric_rows
from dpsql.released.results import ranked_rows
from dpsql.statistics.aggregates import AVG, COUNT, VARIANCE, Sums
from support.cases import cases

RNG = np.random.default_rng(20)


def most(runs: int, chance: float = 0.05) -> float:
    """Return what a share of at most `chance` exceeds with a chance of 1e-6."""
    return chance + 5 * math.sqrt(chance * (1 - chance) / runs)


def false_clear(connection: Any, sql: str) -> tuple[float, int]:
    words = [word for (word,) in connection.execute(sql).fetchall()]
    return words.count("clear") / len(words), len(words)


@pytest.mark.parametrize("noise", ["laplace", pytest.param("gaussian", marks=pytest.mark.long)])
def test_counts_of_nothing(noise: str) -> None:
    """Groups, bins and cells without rows, each called clear in 5 % of cases at most."""
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 0 AS g, 0.5 AS y, 0 AS a, 0 AS b LIMIT 0")
        delta = ", delta := 1e-6" if noise == "gaussian" else ""
        keys = list(range(2000))
        for call in (
            f"dp_count('t', by := 'g', keys := {keys}, epsilon := 1{delta})",
            f"dp_histogram('t', target := 'y', lower := 0, upper := 1, n_bins := 1000, epsilon := 1{delta})",
            f"dp_crosstab('t', rows := 'a', columns := 'b', keys := {{'a': {keys[:40]}, 'b': {keys[:40]}}}, epsilon := 1{delta})",
            f"dp_sum('t', target := 'y', lower := -1, upper := 1, by := 'g', keys := {keys}, epsilon := 1{delta})",
        ):
            share, runs = false_clear(connection, f"SELECT verdict FROM {call}")
            assert share < most(runs), call
            assert share > 0 or "dp_count" not in call or noise == "gaussian", (
                "the interval is no wider than it must be"
            )


TAILS: dict[str, str] = {
    "uniform": "10 + 20 * u",
    "counts": "floor(-3 * ln(u))",
    "exponential": "-40 * ln(u)",
    "negative": "5 + 40 * ln(u)",
    "lognormal": "exp(sqrt(-2 * ln(u)) * cos(2 * pi() * v))",
    "pareto": "10 / sqrt(u)",
    "mostly 0": "CASE WHEN v < .9 THEN 0 ELSE -40 * ln(u) END",
}


def drawn_numbers(sql: str, shape: str, rows: int, epsilon: float, draws: int) -> tuple[list[str], int]:
    """Return the verdicts of numbers within drawn bounds, and how many clear ones miss the exact number."""
    numbers, words, missed = np.random.default_rng(rows), [], 0
    with dpsql.connect() as connection:
        uniform = pa.table({"u": numbers.uniform(1e-12, 1, rows), "v": numbers.uniform(0, 1, rows)})
        connection.register("uniform", uniform)
        connection.execute(f"CREATE TABLE t AS SELECT {TAILS[shape]} AS y FROM uniform")
        connection.execute("SELECT dp_protect('t', epsilon := 10000)")
        [numbers_of_rows] = connection.execute("SELECT avg(y), sum(y), stddev(y) FROM t").fetchall()
        exact = dict(zip(("avg", "sum", "stddev"), numbers_of_rows, strict=True))
        for draw in range(draws):
            spent = epsilon * (1 + draw * 1e-9)
            for name, true in exact.items():
                found = connection.execute(sql.format(name=name, epsilon=spent)).fetchone()
                assert found is not None
                *ends, word = found
                words.append(word)
                missed += word == "clear" and not ends[0] <= true <= ends[1]
    return words, missed


FUNCTION = "SELECT lower, upper, verdict FROM dp_{name}('t', target := 'y', epsilon := {epsilon})"
QUERY = "SELECT a_lower, a_upper, a_verdict FROM dp_query('SELECT {name}(y) AS a FROM t', epsilon := {epsilon}, errors := true)"


@cases(
    ("sql", "shape", "rows", "epsilon"),
    [
        (sql, shape, rows, epsilon)
        for sql in (FUNCTION, QUERY)
        for shape in TAILS
        for rows, epsilon in ((2000, 1), (2000, 10), (20_000, 0.3), (20_000, 3))
    ],
    quick=1,
)
def test_what_drawn_bounds_clip_is_not_called_clear(sql: str, shape: str, rows: int, epsilon: float) -> None:
    """Of values with long tails at most a tenth of the clear intervals miss the exact number, and a few of any number.

    Without its part in the verdict clipping makes 7 of 10 of them miss.
    """
    words, missed = drawn_numbers(sql, shape, rows, epsilon, 4)
    assert missed <= max(2, words.count("clear") / 10)
    if shape == "uniform" and rows * epsilon > 2000:
        assert words.count("clear") > len(words) / 2
    if shape == "pareto":
        assert words.count("biased") > len(words) / 2


def test_pairs_within_drawn_bounds_are_biased_where_these_clip() -> None:
    """A covariance of exponential values is too small by about half of its interval; within stated bounds none is."""
    sql = "SELECT covar_pop(x, y) AS a, regr_slope(w, u) AS b FROM t"
    with dpsql.connect() as connection:
        connection.execute("SELECT setseed(.3)")
        columns = "-40 * ln(random() + 1e-12) AS x, random() * 10 AS u"
        connection.execute(f"CREATE TABLE drawn AS SELECT {columns} FROM range(20000)")
        connection.execute("CREATE TABLE t AS SELECT x, u, 2 * x + u AS y, 3 * u + u ** 2 / 9 AS w FROM drawn")
        connection.execute("SELECT dp_protect('t', epsilon := 100)")
        stated = "lower := {u: 0, w: 0}, upper := {u: 10, w: 42}"
        told = f"FROM dp_query('{sql}', epsilon := 10, errors := true, {stated})"
        [(value, word, other)] = connection.execute(f"SELECT a, a_verdict, b_verdict {told}").fetchall()
        [(exact,)] = connection.execute("SELECT covar_pop(x, y) FROM t").fetchall()
    assert value < exact
    assert word == "biased"
    assert other == "clear"


MEANS_OF_NOBODY = {
    "dp_avg": "target := 'y', lower := 30, upper := 45",
    "dp_stddev": "target := 'y', lower := 30, upper := 45",
    "dp_quantile": "target := 'y', lower := 30, upper := 45, quantiles := [0.5]",
}


@cases("call", MEANS_OF_NOBODY.items(), ids=MEANS_OF_NOBODY, quick=2)
def test_means_of_nobody(call: tuple[str, str]) -> None:
    """The bounds leave out 0, and so does every interval: it is said that nothing is known but for a chance of 5 %."""
    function, given = call
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 0 AS g, 35.5 AS y LIMIT 0")
        keys = f"by := 'g', keys := {list(range(600))}"
        rows = connection.execute(
            f"SELECT value, lower, upper, verdict FROM {function}('t', {given}, {keys}, epsilon := 1)"
        ).fetchall()
    words = [row[-1] for row in rows]
    assert words.count("clear") / len(words) < most(len(words))
    assert words.count("undetermined") / len(words) > 1 - most(len(words))
    assert {row for row in rows if row[0] is None} == {(None, None, None, "undetermined")}
    assert all(row[0] is not None for row in rows if row[-1] != "undetermined")


def test_means_are_clear_where_they_are_narrowed() -> None:
    """To half of what was public before, which 0 is never in; so are averages of `dp_aggregate`, and no sums of it."""
    with dpsql.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 200 AS g, 36.5 AS y FROM range(40000) AS r(i) WHERE i % 200 > i // 200"
        )
        for call in ("dp_avg('t', ", "dp_aggregate('t', aggregates := ['avg', 'sum'], "):
            rows = connection.execute(
                f"SELECT aggregate, upper - lower, verdict FROM {call}target := 'y', lower := 30, upper := 45, "
                f"by := 'g', keys := {list(range(200))}, epsilon := 0.2)"
            ).fetchall()
            means = [(wide, verdict) for aggregate, wide, verdict in rows if aggregate == "avg" and wide is not None]
            assert {verdict for _, verdict in means} == {"clear", "unclear"}
            assert all((verdict == "clear") == (wide <= 7.5) for wide, verdict in means)
            assert {verdict for aggregate, _, verdict in rows if aggregate == "sum"} <= {"clear", "unclear"}


NOISES: dict[str, dict[str, Any]] = {
    "Laplace": {"noise": "laplace"},
    "Gaussian": {"noise": "gaussian", "delta": 1e-6},
    "of several rows": {"privacy_unit": "u", "max_rows_per_unit": 3, "max_groups_per_unit": 2, "left_out_share": 0},
}


@cases("noise", NOISES, quick=1)
@cases("confidence", [0.95, 0.5, 0.999])
@cases("name", [AVG, VARIANCE])
def test_nothing_is_left_where_noise_explains_rows_and_values(name: str, confidence: float, noise: str) -> None:
    """As the interval and the count say; where groups are large a bound on all noises of this kind stands for these."""
    groups = 400
    given = {"target": "x", "lower": -2, "upper": 6, "by": "g", "keys": list(range(groups)), "epsilon": 1}
    plan = AggregatePlan.from_arguments("t", {"aggregates": [name], **given, **NOISES[noise]})
    rows = RNG.geometric(0.03, groups) * RNG.integers(0, 2, groups)
    codes = np.rint(FIXED_POINT_ONE * RNG.uniform(-1, 1, groups)).astype(np.int64)
    squares = np.maximum(rows * codes**2, rows * FIXED_POINT_ONE**2 // 3) if name == VARIANCE else None
    sums = Sums(rows, rows * codes, *(() if squares is None else (squares,)))
    [noisy] = draw_once(draw_aggregates, plan, [sums])
    found = estimates(noisy, (COUNT, name), confidence=confidence)
    counted = estimates(noisy, (COUNT,), confidence=0.9)[COUNT]
    empty = counted.value <= counted.upper - counted.value
    low, high = (-2.0, 6.0) if name == AVG else (0.0, 16.0)
    whole = (found[name].lower <= low) & (found[name].upper >= high)
    left = nothing_left(noisy, name, confidence=confidence)
    assert left is not None
    assert 0.3 * groups < left.sum() < 0.97 * groups
    assert (left == (empty | whole)).all()
    assert nothing_left(noisy, COUNT, confidence=confidence) is None
    large = Sums(rows + 10**6, sums.s1, *(() if squares is None else (squares,)))
    [noisy] = draw_once(draw_aggregates, plan, [large])
    assert nothing_left(noisy, name, confidence=confidence) is None


@pytest.mark.long
def test_covariances_and_correlations_of_nothing() -> None:
    """Two columns whose covariance is exactly 0 in these rows."""
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS a, (i // 2) % 2 AS b FROM range(400) AS r(i)")
        for function in ("dp_covariance", "dp_correlation"):
            place = 2 if function == "dp_covariance" else 1
            sql = (
                f"SELECT {function}([a, b], n_features := 2, lower := 0, upper := 1, epsilon := 1)[{place}].verdict "
                "FROM t, range(150) AS r(copy) GROUP BY copy"
            )
            share, runs = false_clear(connection, sql)
            assert share < most(runs)


@cases("deviation", [0.3, 1.4, 14.0])
@cases("failure", [0.05, 0.0125, 1e-4], quick=1)
def test_the_reach_of_counts(deviation: float, failure: float) -> None:
    """Exceeded by one Laplace number, by sums of them and by normal noise in at most that share; half of it is not."""
    runs = 200_000
    for terms in (1, 2, 9):
        scale = next(
            s / 64 for s in range(1, 4096) if laplace_deviation(Fraction(s, 64)) * math.sqrt(terms) >= deviation
        )
        noise = sum(discrete_laplace(Fraction(scale), runs) for _ in range(terms))
        error = laplace_deviation(Fraction(scale)) * math.sqrt(terms)
        assert (np.abs(noise) > count_reach(error, failure)).mean() < most(runs, failure)
    normal = RNG.normal(size=runs) * deviation
    assert (np.abs(normal) > count_reach(deviation, failure)).mean() < most(runs, failure)
    assert (np.abs(normal) > count_reach(deviation, failure) / 4).mean() > most(runs, failure)


def test_the_reach_of_no_noise_and_of_much() -> None:
    assert count_reach(0.0, 0.05) == count_reach(1e-217, 0.05) == 0
    assert 0 < count_reach(1e-9, 0.05) < 1
    assert count_reach(1e12, 0.05) == pytest.approx(1e6 * count_reach(1e6, 0.05), rel=1e-3)


def test_rates_that_do_not_differ() -> None:
    """A score that tells nothing, with the same share of both classes above every threshold."""
    runs, errors = 1500, (4.0, 4.0, 4.0)
    exact = (30.0, 60.0, 100.0)
    wrong = found = 0
    for _ in range(runs):
        noisy = [tuple(exact + RNG.laplace(scale=4 / math.sqrt(2), size=3)) for _ in range(2)]
        curve = RocCounts((0.7, 0.3, 0.0), *noisy, errors, (0.0, 0.0, 16.0), 1.0)
        found += rate_verdicts(curve)[0] == "clear"
        (fpr, tpr) = (part[0] / part[-1] for part in noisy)
        wrong += abs(fpr - tpr) > 4 / 100
    assert found / runs < most(runs)
    assert wrong / runs > most(runs), "one standard deviation of a count is not enough"
    apart = RocCounts((0.7, 0.0), (90.0, 100.0), (5.0, 100.0), (1.0, 1.0), (0.0, 1.0), 1.0)
    assert rate_verdicts(apart) == ["clear", "unclear"]


@pytest.mark.parametrize("features", [1, 10, 100])
def test_coefficients_that_are_noise(features: int) -> None:
    """All features at once: one false clear in 5 % of fits. Without Bonferroni there are more."""
    runs = 2000
    terms = ["intercept", *(f"x{j}" for j in range(features))]
    values = RNG.normal(size=(runs, features + 1))
    found = sum("clear" in coefficient_verdicts(terms, row, [1.0] * len(terms))[1:] for row in values.tolist())
    assert 0 < found / runs < most(runs)
    single = NormalDist().inv_cdf(0.975)
    plain = (np.abs(values[:, 1:]) > single).any(axis=1).mean()
    assert features == 1 or plain > most(runs)


def test_terms_without_an_answer() -> None:
    assert coefficient_verdicts(["intercept", "a", "b"], [9.0, 9.0, 0.0], [1.0, None, 1.0], ["b"]) == [
        "clear",
        "not measured",
        "undetermined",
    ]


def test_scores_of_features_without_rows() -> None:
    """dp_score_filter reports what noise lifts above a threshold; the report calls it clear in 5 % of calls at most."""
    plan = ScoreFilterPlan.from_arguments(
        "t",
        {"target": "y", "features": [f"x{j}" for j in range(50)], "threshold": 1, "present_above": 0, "epsilon": 1}
        | {"method": "laplace", "score": "total_count", "false_positives": 50},
    )
    none = np.zeros(50, dtype=np.int64)
    runs, found, reported = 300, 0, 0
    for _ in range(runs):
        result: Any = draw_once(draw_features, plan, Counts(none, none, 0, 0), [f"x{j}" for j in range(50)])
        rows = ranked_rows(result)
        reported += len(rows) > 0
        found += any(row["verdict"] == "clear" for row in rows)
    assert reported > 0.9 * runs
    assert found / runs < most(runs)


@pytest.mark.parametrize("two_levels", [False, pytest.param(True, marks=pytest.mark.long)])
def test_features_that_are_independent_of_the_target(two_levels: bool) -> None:
    """Of 30 features none follows the target: the best three are clear in 5 % of calls at most. With k for p, more."""
    runs, rows, features = 40, 40, 30
    with dpsql.connect() as connection:
        y = "(hash(copy, i, 'y') % 2 = 0)" if two_levels else "(hash(copy, i, 'y') % 100003)::DOUBLE"
        x = ", ".join(f"(hash(copy, i, {j}) % 100003)::DOUBLE" for j in range(features))
        sql = (
            f"SELECT dp_sis([{x}], {y}, n_features := {features}, k := 3, epsilon := 1000, "
            "score := 'rank', verdict_share := 0.5, verdict := 'each') "
            f"FROM range({rows}) AS r(i), range({runs}) AS c(copy) GROUP BY copy"
        )
        found = [any(one["verdict"] == "clear" for one in rows) for (rows,) in connection.execute(sql).fetchall()]
    assert found.count(True) / runs < most(runs)


@pytest.mark.long
@pytest.mark.parametrize("two_levels", [False, True])
def test_sets_that_are_independent_of_the_target(two_levels: bool) -> None:
    """None of 30 features follows the target, and noise hides nothing: the best three are clear in 5 % of calls at most.

    A half of the features are copies of one, which no bound for single features could use.
    """
    runs, rows, features = 60, 30, 30
    with dpsql.connect() as connection:
        y = "(hash(copy, i, 'y') % 2 = 0)" if two_levels else "(hash(copy, i, 'y') % 100003)::DOUBLE"
        x = ", ".join(f"(hash(copy, i, {min(j, 15)}) % 100003)::DOUBLE" for j in range(features))
        sql = (
            f"SELECT dp_sis([{x}], {y}, n_features := {features}, k := 3, epsilon := 1000, score := 'rank')[1].set_verdict "
            f"FROM range({rows}) AS r(i), range({runs}) AS c(copy) GROUP BY copy"
        )
        share, found = false_clear(connection, sql)
    assert share < most(found)


def test_the_null_of_scores_is_a_bound() -> None:
    """The tail of |tau| under independence, with and without ties, against Hoeffding's and Serfling's bounds."""
    rows, runs = 24, 4000
    for two_levels in (False, True):
        y = np.repeat([-1.0, 1.0], rows // 2) if two_levels else np.arange(float(rows))
        signs = np.sign(y[:, None] - y)
        taus = np.empty(runs)
        for number in range(runs):
            x = RNG.permutation(rows) // (1 + number % 3)
            taus[number] = abs((np.sign(x[:, None] - x) * signs).sum() / 2) / (rows - 1)
        width = (rows + 1) ** 2 / (2 * rows) if two_levels else rows**2 / (rows - 1)
        for level in (2.0, 4.0, 6.0):
            bound = 2 * math.exp(-(level**2) / width)
            assert (taus >= level).mean() < most(runs, min(0.999, bound))
        assert (taus >= 4.0).mean() > 2 * math.exp(-16 / (width / 10)), "a tenth of that width is no bound"


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.0, 5.0, 200.0])
def test_metrics_do_not_contradict_each_other(scale: float) -> None:
    """Whatever the noise: mae <= rmse <= sqrt(B mae), R² at most 1 - rmse**2, and each number in its interval."""
    for _ in range(500):
        exact = np.array([100.0, 10.0, 40.0, 9.0, 20.0])
        noisy = exact + RNG.laplace(scale=scale, size=5) if scale else exact
        sums = [NoisySum(value, max(scale, 1e-9), 0.0, 0.0) for value in noisy.tolist()]
        rows: Any = {row[0]: row[1:] for row in metric_rows(sums, bound=2.0, half_width=1.0)}
        (rmse, *_), (mae, *_), (r2, *_) = rows["rmse"], rows["mae"], rows["r2"]
        assert mae <= rmse + 1e-12
        assert rmse**2 <= 2 * mae + 1e-9
        assert r2 is None or r2 <= 1 - rmse**2 + 1e-9 or r2 == pytest.approx(rows["r2"][1])
        for value, low, high in rows.values():
            assert value is None or ((low is None or low <= value) and value <= high)
    if not scale:
        assert (rmse, mae) == (pytest.approx(0.3), pytest.approx(0.2))


def test_metrics_that_noise_explains() -> None:
    assert interval_verdict(None, 0.1, 0.2) == "undetermined"
    assert interval_verdict(1.0, None, None) == "not measured"
    assert interval_verdict(-1.0, None, -0.5) == "clear"
    assert [interval_verdict(1.0, low, 2.0) for low in (None, -1.0, 0.0, 0.1)] == ["unclear"] * 3 + ["clear"]
    assert call_verdict(["clear", "clear"]) == "clear"
    assert call_verdict(["clear", "undetermined", "unclear"]) == "unclear"
    assert call_verdict([]) is None
    assert call_verdict([None, "clear"], ["not measured"]) == "clear"
    assert call_verdict([None], ["not measured", "clear"]) == "not measured"


@pytest.mark.long
def test_boosted_coefficients_of_nothing_are_rarely_clear() -> None:
    """Four of six features have no effect, and the noise of the products is as large as their eigenvalues."""
    runs, false = 120, 0
    x = RNG.uniform(-1, 1, (2000, 6))
    y = x[:, 0] - x[:, 1] + RNG.normal(0, 0.1, len(x))
    columns = {f"x{place}": column for place, column in enumerate(x.T)}
    given = "lower := -1, upper := 1, target_lower := -3, target_upper := 3, epsilon := 0.3, delta := 1e-6"
    with dpsql.connect() as connection:
        connection.register("frame", pa.table({**columns, "y": y}))
        connection.execute("CREATE TABLE t AS FROM frame")
        call = f"FROM dp_linear_regression('t', target := 'y', method := 'boosted_ada_ssp', {given})"
        for _ in range(runs):
            verdicts = {row[0]: row[3] for row in connection.execute(call).fetchall()}
            false += any(verdicts[f"x{place}"] == "clear" for place in range(2, 6))
    assert false / runs < most(runs)
