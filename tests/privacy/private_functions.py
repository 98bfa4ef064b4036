"""Right counterparts of the broken SQL functions: same signatures, the product's samplers, all flags set."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from dpsql.mechanisms.one_shot import canonical_lipschitz, select
from dpsql.noise.discrete import discrete_laplace


def install_private(connection: Any) -> Counter[str]:
    """Register private_count, private_select and private_canonical; return their counts of draws."""
    draws: Counter[str] = Counter()

    def count(total: int | None, epsilon: float) -> int:
        draws["private_count"] += 1
        return int(total or 0) + int(discrete_laplace(1 / Fraction(repr(epsilon)), 1)[0])

    def pick(scores: list[int], epsilon: float) -> int:
        draws["private_select"] += 1
        return int(select(scores, utility_range=2, epsilon=Fraction(repr(epsilon)), k=1, noise="exponential")[0])

    def subset(scores: list[int], k: int, epsilon: float) -> list[int]:
        draws["private_canonical"] += 1
        chosen = canonical_lipschitz(
            scores, utility_range=2, epsilon=Fraction(repr(epsilon)), k=k, gamma=Fraction(1, 2)
        )
        return [int(place) for place in chosen]

    flags = {"side_effects": True, "null_handling": "special"}
    connection.create_function("private_count", count, ["BIGINT", "DOUBLE"], "BIGINT", **flags)
    connection.create_function("private_select", pick, ["BIGINT[]", "DOUBLE"], "BIGINT", **flags)
    connection.create_function("private_canonical", subset, ["BIGINT[]", "INTEGER", "DOUBLE"], "BIGINT[]", **flags)
    return draws
