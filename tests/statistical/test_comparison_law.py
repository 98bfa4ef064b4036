"""The noise of a comparison of two scores against its exact law, where 0.7 and 1.3 times the noise must show.

Sums of groups have the mechanism and the tests of grouped aggregates (`test_aggregates_law.py`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.measurement import Permit
from dpsql.functions import compare
from dpsql.functions.compare import ComparePlan
from dpsql.mechanisms import auc, laplace
from dpsql.statistics.auc import Concordance
from dpsql.testing.distribution import fit, runs_needed
from support.laws.roc import discrete_laplace_law

RATES = {"false_alarm": 1e-8, "miss": 1e-8}
REACH = 14
# T1 = 1 and T2 = -1 of 4 positive and 3 negative rows; 5 pairs over n - 1.
FIRST, SECOND = Concordance(6, 4, 3), Concordance(-6, 4, 3)
EXACT = {"difference": 2, "total": 0, "positives": 4, "negatives": 3, "pairs": 5}


def scale(name: str, neighbours: str, rows: int) -> float:
    """Return the scale at epsilon 5 m, 4 m of which are of the areas and m of the pairs: by hand."""
    if name == "pairs":
        return 1.0
    shares = {"add_remove": (2 / 0.6, 1 / 0.4), "replace": (4.0, 4.0)}[neighbours]
    return shares[name not in ("difference", "total")] / 4.0


@pytest.mark.parametrize(("neighbours", "rows"), [("add_remove", 1), ("replace", 1), ("add_remove", 3)])
def test_laplace(monkeypatch: pytest.MonkeyPatch, neighbours: str, rows: int) -> None:
    for module in (auc, compare):
        monkeypatch.setattr(module, "_FINEST", 0)
    unit = {"privacy_unit": "u", "max_rows_per_unit": rows} if rows > 1 else {}
    given = {"of": "auc", "scores": ["a", "b"], "label": "y", "neighbours": neighbours, "epsilon": 5 * rows}
    plan = ComparePlan.from_arguments("t", {**given, **unit})
    originals = {module: module.discrete_laplace for module in (auc, laplace)}

    def sampler(factor: float, runs: int) -> dict[str, list[int]]:
        for module, real in originals.items():
            wider: Any = lambda scale, size, real=real: real(scale * Fraction(factor), size)  # noqa: E731
            monkeypatch.setattr(module, "discrete_laplace", wider)
        found: dict[str, list[int]] = {name: [] for name in EXACT}
        for _ in range(runs):
            with Permit(plan.measurement).drawing():
                drawn = plan.area_part.draw_pair(FIRST, SECOND)
                pairs = plan.pairs_part.draw([5])[0]
            for name in EXACT:
                value = pairs if name == "pairs" else getattr(drawn, name)
                found[name].append(int(min(max(value, -REACH), REACH)))
        return found

    def law(name: str, factor: float) -> dict[int, float]:
        return discrete_laplace_law(EXACT[name], factor * scale(name, neighbours, rows), reach=REACH)

    runs = 0
    for factor in (0.7, 1.3):
        sizes = [runs_needed(law(name, 1.0), law(name, factor), **RATES) for name in EXACT]
        runs, found = max(runs, *sizes), sampler(factor, max(sizes))
        for name in EXACT:
            assert not fit(found[name], law(name, 1.0), false_alarm=1e-8).accepted, name
    found = sampler(1.0, runs)
    for name in EXACT:
        assert fit(found[name], law(name, 1.0), false_alarm=1e-8).accepted, name
