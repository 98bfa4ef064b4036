"""The exact output law of ``dp_sis`` with ``score := 'rank'`` on a given table, along the path that the product takes.

Rows are read, collected and counted by the product's own code, which also gives the range; only the last step, drawing,
is replaced by the exact law of the draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsql.contract.fold import Batch
from dpsql.functions.sis import SisCall, SisPlan
from dpsql.testing.neighbours import Table, to_arrow
from support.laws.selection import one_shot_law

Outcome = tuple[str, ...]
# Scores of the features in the unit of the range, and the range.
Statistic = tuple[tuple[int, ...], int]


class RankLaw:
    """Exact laws of one ``dp_sis`` call by rank over tables of floats.

    Parameters
    ----------
    features : sequence of str
        Names of the feature columns, in the order of a row's values; the target is a row's last value.
    **arguments
        What the call is given besides source, target, features and score: k, epsilon, mechanism, target_levels, ...

    Notes
    -----
    - **Guarantee**: none; this computes what a release would do.
    - **Assumes**: the sampler draws from the stated law (tested in ``tests/statistical``), and one row
      per privacy unit, or rows that were capped before.
    """

    def __init__(self, features: Sequence[str], **arguments: Any) -> None:
        import pyarrow as pa

        given = {"target": "target", "features": list(features), "score": "rank", "verdict_share": 0, **arguments}
        self.plan = SisPlan.from_arguments("t", given)
        self._names = (*features, "target")
        self.call = SisCall.resolve(self.plan, pa.struct([(name, pa.float64()) for name in self._names]), {})

    def statistic(self, table: Table) -> Statistic:
        """Return the scores and their range, in one unit; they determine `law`: a `key` for `check_exhaustively`."""
        import pyarrow as pa

        columns = [column.combine_chunks() for column in to_arrow(table, self._names).columns]
        collector: Any = self.call.start()
        collector.add(*self.call.read(pa.StructArray.from_arrays(columns, list(self._names))), Batch())
        utilities, spread = collector.utilities(self.plan.relation, lambda share: None)
        return tuple(map(int, utilities)), spread

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the exact law of the output."""
        plan, (utilities, spread) = self.plan, self.statistic(table)
        given: dict[str, Any] = {"mechanism": plan.mechanism, "gamma": plan.gamma, "epsilon": plan.epsilon, "k": plan.k}
        law = one_shot_law(utilities, utility_range=spread, **given)
        return {tuple(self.call.features[place] for place in chosen): chance for chosen, chance in law.items()}
