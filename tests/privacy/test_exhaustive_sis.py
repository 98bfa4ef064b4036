"""Every dp_sis mechanism on every small table: the largest log ratio against the claimed epsilon."""

from __future__ import annotations

import functools
import itertools
import math
import random
from fractions import Fraction
from typing import Any

import pytest

import dpsql.functions.sis
from dpsql.kernels import fixed_point
from dpsql.statistics import xty
from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.races import ordered_race_law, subset_race_law
from support.laws.selection import canonical_lipschitz_law, select_law
from support.laws.sis import CentredSisLaw, SisLaw

BOUNDS = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1}
FEATURES = ("a", "b", "c", "d", "e")
MECHANISMS: list[dict[str, Any]] = [
    {"mechanism": "one_shot"},
    {"mechanism": "gumbel"},
    *({"mechanism": "canonical_lipschitz", "gamma": gamma} for gamma in (0.25, 0.5, 0.75)),
]
IDS = [" ".join(str(value) for value in mechanism.values()) for mechanism in MECHANISMS]

# Signs reach every extreme of the statistic; the others test the fixed rules for odd values.
SIGNS: list[Row] = [(*signs, 1.0) for signs in itertools.product((-1.0, 1.0), repeat=5)]
ODD: list[Row] = [
    (1.0, -1.0, 0.5, 0.0, -0.25, -1.0),
    (None, math.nan, math.inf, -math.inf, 5.0, 1.0),
    (1.0, 1.0, -7.0, 0.25, 1e300, math.inf),
    (1.0, 1.0, 1.0, 1.0, 1.0, None),
    (-1.0, 1.0, -1.0, 1.0, -1.0, math.nan),
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.5),
]


@functools.cache
def statistic(table: Table) -> tuple[int, ...]:
    """The product's own exact statistic; it does not depend on the mechanism."""
    return SisLaw(FEATURES, k=1, epsilon=1, **BOUNDS).statistic(table)


def worst(domain: list[Row], max_rows: int, relation: Relation, **arguments: Any) -> float:
    law = SisLaw(FEATURES, **BOUNDS, neighbours=relation, **arguments)
    report = check_exhaustively(
        lambda table: law.selection_law(statistic(table)), domain, max_rows, relation, key=statistic
    )
    assert report.within(law.plan.epsilon), str(report)
    return report.log_ratio / float(law.plan.epsilon)


@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    for k, epsilon in ((2, 8), (3, 1)):
        worst(SIGNS, 3, relation, k=k, epsilon=epsilon, **mechanism)


@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_with_odd_values_stays_within_epsilon(mechanism: dict[str, Any], relation: Relation) -> None:
    worst([*SIGNS[::5], *ODD], 2, relation, k=2, epsilon=2, **mechanism)


@cases(
    ("relation", "tight", "arguments"),
    [
        ("add_remove", 1.0 - 1e-9, {"mechanism": "one_shot", "k": 1, "epsilon": 1}),
        ("add_remove", 1.0 - 1e-9, {"mechanism": "one_shot", "k": 3, "epsilon": 1}),
        ("replace", 0.99, {"mechanism": "one_shot", "k": 2, "epsilon": 1}),
        ("add_remove", 0.97, {"mechanism": "gumbel", "k": 1, "epsilon": 8}),
        ("add_remove", 0.80, {"mechanism": "canonical_lipschitz", "k": 3, "epsilon": 8, "gamma": 0.25}),
        # With k = 1 the canonical loss is gamma times the gap: gamma epsilon is all it spends.
        ("add_remove", 0.5 - 1e-9, {"mechanism": "canonical_lipschitz", "k": 1, "epsilon": 1, "gamma": 0.5}),
    ],
)
def test_epsilon_is_used_up(relation: Relation, tight: float, arguments: dict[str, Any]) -> None:
    """A mechanism far below its epsilon would be private, but not the one that is meant."""
    assert worst(SIGNS, 3, relation, **arguments) >= tight


@cases("relation", RELATIONS)
@cases("mechanism", MECHANISMS, ids=IDS)
def test_loss_of_a_unit_with_two_rows(mechanism: dict[str, Any], relation: Relation) -> None:
    """Neighbours differ in all rows of one unit, which owns up to two."""
    names, rows = FEATURES[:3], [row[2:] for row in SIGNS[:8]]
    units = [(row,) for row in rows] + list(itertools.combinations_with_replacement(rows, 2))
    law = SisLaw(
        names, **BOUNDS, k=1, epsilon=1, neighbours=relation, privacy_unit="u", max_rows_per_unit=2, **mechanism
    )

    @functools.cache
    def scores(table: Table) -> tuple[int, ...]:
        return law.statistic(tuple(itertools.chain.from_iterable(table)))

    report = check_exhaustively(lambda table: law.selection_law(scores(table)), units, 2, relation, key=scores)
    assert report.within(1), str(report)
    if mechanism["mechanism"] == "one_shot" and relation == "add_remove":
        assert report.log_ratio > 1 - 1e-9


@cases("relation", RELATIONS)
@cases("mechanism", [MECHANISMS[0], MECHANISMS[1], MECHANISMS[3]], ids=[IDS[0], IDS[1], IDS[3]])
def test_loss_with_a_private_centre(
    mechanism: dict[str, Any], relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joint law of the released mean and the selection, on a fixed point coarse enough to enumerate."""
    coarse_fixed_point(monkeypatch)
    law = CentredSisLaw(
        ("a", "b"), max_rows=2, k=1, epsilon=1.8, neighbours=relation, center_share=0.5, **BOUNDS, **mechanism
    )
    report = check_exhaustively(law.joint_law, CENTRE_DOMAIN, 2, relation, key=law.key)
    assert report.within(Fraction(9, 5)), str(report)
    if mechanism["mechanism"] == "one_shot":
        assert report.log_ratio > (1.8 - 1e-9 if relation == "add_remove" else 1.65)
    selection = check_exhaustively(law.law, CENTRE_DOMAIN, 2, relation, key=law.key)
    assert selection.log_ratio <= report.log_ratio


@pytest.mark.parametrize("relation", RELATIONS)
def test_parts_of_a_private_centre_at_full_precision(relation: Relation) -> None:
    """Both parts keep their own epsilon at ``S = 2**20``, so that they compose."""
    law = SisLaw(("a", "b"), k=1, epsilon=1.8, neighbours=relation, **BOUNDS)
    one = fixed_point.FIXED_POINT_ONE
    allowed = xty.target_sums_sensitivity(relation)
    sums = check_moves(lambda table: law.target_sums(table), relation)
    assert sums == allowed if relation == "add_remove" else sums <= allowed
    for mean in (-one, -one // 3, -1, 1, one // 2, one):
        report = check_exhaustively(
            lambda table, mean=mean: law.selection_law(law.statistic(table, mean)),
            CENTRE_DOMAIN,
            2,
            relation,
            key=lambda table, mean=mean: law.statistic(table, mean),
        )
        assert report.within(law.plan.epsilon), str(report)


def test_second_opinion_on_the_exact_laws() -> None:
    """`support.laws.selection` against quadrature written from the definitions, on random scores with ties."""
    generator = random.Random(11)
    for _ in range(40):
        size = generator.randint(2, 5)
        utility = [generator.randint(0, 4) for _ in range(size)]
        k = generator.randint(1, min(3, size))
        common: dict[str, Any] = {
            "utility_range": generator.randint(1, 3),
            "epsilon": Fraction(generator.randint(1, 40), 10),
            "k": k,
        }
        gamma = Fraction(generator.randint(1, 9), 10)
        ours = select_law(utility, **common, noise="exponential")
        assert ours == pytest.approx(ordered_race_law(utility, **common), rel=1e-9)
        subsets = canonical_lipschitz_law(utility, **common, gamma=gamma)
        assert subsets == pytest.approx(subset_race_law(utility, **common, gamma=gamma), rel=1e-9)
        peeled = select_law(utility, **common, noise="gumbel")
        assert peeled == pytest.approx(peeling_law(utility, **common), rel=1e-9)


def peeling_law(utility: list[int], *, utility_range: int, epsilon: Fraction, k: int) -> dict[tuple[int, ...], float]:
    weight = [math.exp(float(epsilon * value / (k * utility_range))) for value in utility]
    law = {}
    for order in itertools.permutations(range(len(utility)), k):
        law[order] = math.prod(
            weight[place] / math.fsum(weight[j] for j in range(len(utility)) if j not in order[:rank])
            for rank, place in enumerate(order)
        )
    return law


CENTRE_DOMAIN: list[Row] = [(*signs, y) for signs in itertools.product((-1.0, 1.0), repeat=2) for y in (-1.0, 0.0, 1.0)]


def coarse_fixed_point(monkeypatch: pytest.MonkeyPatch, one: int = 2) -> None:
    for module in (fixed_point, xty, dpsql.functions.sis):
        monkeypatch.setattr(module, "FIXED_POINT_ONE", one)


def check_moves(sums: Any, relation: Relation) -> int:
    from dpsql.testing import check_sensitivity

    return int(check_sensitivity(sums, CENTRE_DOMAIN, 3, relation).total)
