"""Counts of labels, features and scores in DuckDB, and the whole calls that use them (kernels 7 and 8).

    python benchmarks/classification.py roc          # dp_roc beside its own scan, DuckDB's GROUP BY and scikit-learn
    python benchmarks/classification.py counts       # feature counts of a long table beside DuckDB's GROUP BY
    python benchmarks/classification.py bayes        # dp_naive_bayes on 33,000 features beside its own counts query
    python benchmarks/classification.py start        # first calls of new processes

Options: --rows N, --terms N, --repeats N.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import numpy as np
from racing import race

import dpsql
from dpsql.engines.duckdb.planner import statistic_sql
from dpsql.functions.registry import FUNCTIONS


def statistic_of(function: str, source: str, **arguments: Any) -> str:
    """Return the statement of a call's exact statistic alone."""
    return statistic_sql(FUNCTIONS[function].plan.from_arguments(source, arguments), function)


def fetch(context: dpsql.Context, statement: str) -> Any:
    return lambda: context.connection.execute(statement).fetchall()


def show(times: dict[str, float]) -> None:
    first = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"  {name:46s} {1000 * seconds:9.1f} ms   {seconds / first:6.2f}", flush=True)


def roc(options: argparse.Namespace) -> None:
    from sklearn.metrics import roc_curve

    rows = options.rows or 10_000_000
    rng = np.random.default_rng(1)
    label = rng.random(rows) < 0.3
    score = np.clip(rng.normal(0.4 + 0.2 * label, 0.15), 0, 1)
    with dpsql.Context() as context:
        context.connection.execute("CREATE TABLE t (label BOOLEAN, score DOUBLE)")
        context.connection.register("frame", {"label": label, "score": score})
        context.connection.execute("INSERT INTO t FROM frame")
        given = {"label": "label", "score": "score", "epsilon": 1}
        grouped = "SELECT label, floor(score * 4096)::INTEGER AS cell, count(*) FROM t GROUP BY ALL"
        times = race(
            {
                "the scan of dp_roc": fetch(context, statistic_of("dp_roc", "t", **given)),
                "dp_roc": lambda: context.dp_roc("t", **given),
                "dp_auc": lambda: context.dp_auc("t", **given),
                "DuckDB: GROUP BY label, cell": fetch(context, grouped),
                "scikit-learn: roc_curve": lambda: roc_curve(label, score),
            },
            options.repeats,
        )
    print(f"{rows:,} rows, 4,096 cells")
    show(times)


def counts(options: argparse.Namespace) -> None:
    rows, terms = options.rows or 10_000_000, options.terms or 100_000
    with dpsql.Context() as context:
        words(context, rows, terms)
        given = {"target": "label", "features": "token", "row_id": "doc", "epsilon": 1}
        names = [f"w{term}" for term in range(terms)]
        context.connection.register("vocabulary", {"name": np.array(names), "j": np.arange(1, terms + 1)})
        context.connection.execute("CREATE TABLE v AS FROM vocabulary")
        once = "(SELECT doc, token, max(label) AS label FROM t GROUP BY ALL)"
        sampled = (
            "(SELECT max(label) AS label, unnest(min_by(token, hash(hash(doc, token)), 10)) AS token "
            f"FROM {once} SEMI JOIN v ON name = token GROUP BY doc)"
        )
        grouped = (
            "SELECT token, count(*) FILTER (WHERE label = 1), count(*) FILTER (WHERE label = 0) FROM {} GROUP BY token"
        )
        times = race(
            {
                "feature counts of dp_naive_bayes": fetch(
                    context, statistic_of("dp_naive_bayes", "t", names=names, **given)
                ),
                "DuckDB: GROUP BY of rows bounded alike": fetch(context, grouped.format(sampled)),
                "DuckDB: GROUP BY of distinct rows": fetch(context, grouped.format(once)),
                "DuckDB: GROUP BY as they are (not bounded)": fetch(context, grouped.format("t")),
            },
            options.repeats,
        )
    print(f"{rows:,} rows, {terms:,} terms, 10 per document")
    show(times)


def words(context: dpsql.Context, rows: int, terms: int) -> None:
    """Make the table t of documents of 12 tokens each, of which the common ones come often."""
    context.connection.execute(
        "CREATE TABLE t AS SELECT (i // 12)::INTEGER AS doc, "
        f"'w' || floor(pow(random(), 3) * {terms})::INTEGER AS token, "
        f"((i // 12) % 3 = 0)::TINYINT AS label FROM range({rows}) AS r(i)"
    )


def bayes(options: argparse.Namespace) -> None:
    rows, terms = options.rows or 100_000, options.terms or 33_000
    with dpsql.Context() as context:
        words(context, rows, terms)
        given = {"target": "label", "features": "token", "row_id": "doc", "epsilon": 1}
        given["names"] = [f"w{term}" for term in range(terms)]
        times = race(
            {
                "the counts query": fetch(context, statistic_of("dp_naive_bayes", "t", **given)),
                "dp_naive_bayes": lambda: context.dp_naive_bayes("t", **given),
                "dp_naive_bayes, Gaussian": lambda: context.dp_naive_bayes("t", **given, delta=1e-6),
            },
            options.repeats,
        )
    print(f"{rows:,} rows, {terms:,} features")
    show(times)


def start(options: argparse.Namespace) -> None:
    code = """
import dpsql, time
with dpsql.Context() as ctx:
    ctx.sql("CREATE TABLE t AS SELECT i % 2 AS y, random() AS p, random() AS a, random() AS b FROM range(20000) r(i)")
    begun = time.perf_counter()
    ctx.{call}
    print(f"{1000 * (time.perf_counter() - begun):.0f}")
"""
    for call in (
        "dp_roc('t', label='y', score='p', epsilon=1)",
        "dp_auc('t', label='y', score='p', epsilon=1)",
        "dp_naive_bayes('t', target='y', features=['a', 'b'], present_above=0, epsilon=1)",
        "dp_score_filter('t', target='y', features=['a', 'b'], score='total_count', threshold=5, present_above=0, "
        "epsilon=1)",
        "dp_logistic_regression('t', target='y', features=['a', 'b'], lower=0, upper=1, epsilon=1)",
    ):
        program = code.replace("{call}", call)
        runs = [
            int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
            for _ in range(options.repeats)
        ]
        print(f"  first {call.split('(')[0]:26s} {sorted(runs)[len(runs) // 2]:6d} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subjects = {"roc": roc, "counts": counts, "bayes": bayes, "start": start}
    parser.add_argument("subject", choices=subjects)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--terms", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    subjects[options.subject](options)


if __name__ == "__main__":
    main()
