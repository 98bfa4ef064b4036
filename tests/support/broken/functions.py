"""Broken SQL functions, so that faults of the SQL layer can be audited as a user would meet them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpsql.noise.discrete import discrete_laplace
from dpsql.noise.race import top_k
from support.broken.noise import half_scale_laplace, naive_laplace
from support.broken.selection import algorithm_1_scores, printed_canonical_lipschitz

BROKEN_FUNCTIONS = {
    "dp_broken_half_scale": "(total BIGINT, epsilon DOUBLE) -> BIGINT: noise of half the scale",
    "dp_broken_shared_draw": "(total BIGINT, epsilon DOUBLE) -> BIGINT: one draw for all rows of a chunk",
    "dp_broken_null_passthrough": "(total BIGINT, epsilon DOUBLE) -> BIGINT: NULL in, NULL out",
    "dp_broken_replayed": "(total BIGINT, epsilon DOUBLE) -> BIGINT: registered without side_effects",
    "dp_broken_float_noise": "(total DOUBLE, epsilon DOUBLE) -> DOUBLE: textbook Laplace in doubles",
    "dp_broken_select": "(scores BIGINT[], epsilon DOUBLE) -> BIGINT: exponential noise of half the scale",
    "dp_broken_canonical": "(scores BIGINT[], k INTEGER, epsilon DOUBLE) -> BIGINT[]: overlapping classes",
    "dp_broken_data_scaling": "(rows DOUBLE[][], epsilon DOUBLE) -> BIGINT: centred and scaled by the data",
}


@dataclass
class BrokenFunctions:
    """What `install_broken` registered.

    Attributes
    ----------
    draws : Counter
        Per function, how often it drew noise: a release that is drawn at EXPLAIN shows here.
    """

    draws: Counter[str] = field(default_factory=Counter)


def install_broken(connection: Any) -> BrokenFunctions:
    """Register the functions of `BROKEN_FUNCTIONS` on one connection. Never private; for audits only.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection or dpsql.Context
        Their totals and scores are those of rows whose contribution lies in [-1, 1].

    Returns
    -------
    functions : BrokenFunctions

    Notes
    -----
    What is wrong, and what catches it:

    - ``dp_broken_half_scale``: loss ``2 epsilon`` on totals that differ by 1; `audit_sql`.
    - ``dp_broken_shared_draw``: an arrow function that draws once per call. The difference of two
      groups comes out exact: infinite loss; `audit_sql` looks at differences of outputs.
    - ``dp_broken_null_passthrough``: ``null_handling`` left at its default. The sum over no rows is
      NULL and comes back without noise: infinite loss between an empty group and one row; `audit_sql`.
    - ``dp_broken_replayed``: DuckDB folds it at bind, so EXPLAIN draws, and every EXECUTE of one
      PREPARE returns the same noise; `check_fresh_draws` (1 distinct output) and `draws`.
    - ``dp_broken_float_noise``: `naive_laplace`; infinite loss; `audit_sql` looks at the grain.
    - ``dp_broken_select``: `half_scale_law`; `audit_sql`.
    - ``dp_broken_canonical``: `printed_canonical_lipschitz_law` with gamma 1/2; `audit_sql`.
    - ``dp_broken_data_scaling``: `algorithm_1_scores`; `audit_sql`.
    """
    raw = getattr(connection, "connection", connection)
    found = BrokenFunctions()

    def add(name: str, function: Callable[..., Any], types: list[str], result: str, **flags: Any) -> None:
        flags = {"side_effects": True, "null_handling": "special"} | flags
        raw.create_function(name, function, types, result, **flags)

    def laplace(name: str) -> Callable[[Any, float], int]:
        def draw(total: Any, epsilon: float) -> int:
            found.draws[name] += 1
            if name == "dp_broken_half_scale":
                return half_scale_laplace(int(total or 0), l1_sensitivity=1, epsilon=_exact(epsilon))
            return int(total or 0) + int(discrete_laplace(1 / _exact(epsilon), 1)[0])

        return draw

    def shared(totals: Any, epsilons: Any) -> Any:
        import pyarrow as pa

        found.draws["dp_broken_shared_draw"] += 1
        noise = int(discrete_laplace(1 / _exact(epsilons[0].as_py()), 1)[0])
        return pa.array([(total or 0) + noise for total in totals.to_pylist()], type=pa.int64())

    def floating(total: Any, epsilon: float) -> float:
        found.draws["dp_broken_float_noise"] += 1
        return naive_laplace(float(total or 0.0), l1_sensitivity=1.0, epsilon=epsilon)

    def select(scores: list[int], epsilon: float) -> int:
        found.draws["dp_broken_select"] += 1
        return int(top_k(scores, _exact(epsilon), 1, noise="exponential")[0])

    def canonical(scores: list[int], k: int, epsilon: float) -> list[int]:
        found.draws["dp_broken_canonical"] += 1
        return printed_canonical_lipschitz(scores, utility_range=2, epsilon=_exact(epsilon), k=k, gamma=Fraction(1, 2))

    def scaling(rows: list[list[float]] | None, epsilon: float) -> int:
        found.draws["dp_broken_data_scaling"] += 1
        scores = algorithm_1_scores(tuple(tuple(row) for row in rows or []))
        utility = [round(score * 2**20) for score in scores]
        return int(top_k(utility, _exact(epsilon) / 2**21, 1, noise="exponential")[0])

    numbers, lists = ["BIGINT", "DOUBLE"], ["BIGINT[]", "DOUBLE"]
    add("dp_broken_half_scale", laplace("dp_broken_half_scale"), numbers, "BIGINT")
    add("dp_broken_shared_draw", shared, numbers, "BIGINT", type="arrow")
    add("dp_broken_null_passthrough", laplace("dp_broken_null_passthrough"), numbers, "BIGINT", null_handling="default")
    add("dp_broken_replayed", laplace("dp_broken_replayed"), numbers, "BIGINT", side_effects=False)
    add("dp_broken_float_noise", floating, ["DOUBLE", "DOUBLE"], "DOUBLE")
    add("dp_broken_select", select, lists, "BIGINT")
    add("dp_broken_canonical", canonical, ["BIGINT[]", "INTEGER", "DOUBLE"], "BIGINT[]")
    add("dp_broken_data_scaling", scaling, ["DOUBLE[][]", "DOUBLE"], "BIGINT")
    return found


def _exact(epsilon: float) -> Fraction:
    return Fraction(repr(epsilon))
