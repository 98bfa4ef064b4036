"""Planted faults of the rules for several tables: each lets a query through that `test_ties` wants refused."""

from __future__ import annotations

import random
from typing import Any

from test_ties import REFUSED, changed, con, judged, others, unit_of

from support.broken.planting import planted
from support.broken.several import FAULTS
from support.cases import cases
from support.several import random_database

__all__ = ["con"]


@cases("name", FAULTS, quick=1, alone=True)
def test_a_broken_rule_is_noticed(con: Any, name: str) -> None:
    fault, let_through = FAULTS[name]
    query = REFUSED[let_through]
    assert unit_of(judged(con, query)) is None
    with planted(*fault.patches):
        place = unit_of(judged(con, query))
    assert place is not None, fault.what
    draw = random.Random(29)
    databases = (random_database(draw) for _ in range(1500))
    assert any(
        others(changed(con, [query], database, person)[0], person) for database in databases for person in (1, 2)
    )
