"""Public arguments: what is read as what, and what is refused."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql import parameters
from dpsql.errors import ParameterError

NOT_POSITIVE = [0, -1, 0.0, -0.0, math.nan, math.inf, -math.inf, None, "1", "", True, [1], {}, Decimal("NaN"), 1j]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, Fraction(1, 10)),
        (Decimal("0.1"), Fraction(1, 10)),
        (1, Fraction(1)),
        (np.float64(0.25), Fraction(1, 4)),
        (np.int32(3), Fraction(3)),
        (Fraction(1, 3), Fraction(1, 3)),
        (5e-324, Fraction("5e-324")),
        (1e300, Fraction(10) ** 300),
    ],
)
def test_numbers_are_their_shortest_decimal(value: Any, expected: Fraction) -> None:
    assert parameters.positive_number("epsilon", value, code="P001", hint="") == expected


@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_not_a_positive_number(value: Any) -> None:
    with pytest.raises(ParameterError) as failure:
        parameters.positive_number("epsilon", value, code="P001", hint="Next step.")
    assert failure.value.code == "DPSQL-P001"
    assert str(failure.value).endswith("Next step.")
    with pytest.raises(ParameterError):
        parameters.positive_integer("k", value, code="P002", hint="")
    with pytest.raises(ParameterError):
        parameters.open_unit_interval("gamma", value, code="P006", hint="")


def test_integers() -> None:
    assert parameters.positive_integer("k", 3.0, code="P002", hint="") == 3
    assert parameters.positive_integer("k", Decimal("3"), code="P002", hint="") == 3
    for value in (2.5, Decimal("0.5"), Fraction(7, 2)):
        with pytest.raises(ParameterError):
            parameters.positive_integer("k", value, code="P002", hint="")


def test_open_interval() -> None:
    assert parameters.open_unit_interval("gamma", 0.5, code="P006", hint="") == Fraction(1, 2)
    for value in (1, 0, 1.5):
        with pytest.raises(ParameterError):
            parameters.open_unit_interval("gamma", value, code="P006", hint="")


def test_choice_in_any_case() -> None:
    assert parameters.choice("mechanism", " Gumbel ", ("one_shot", "gumbel"), code="P005") == "gumbel"
    with pytest.raises(ParameterError, match="'one_shot', 'gumbel'"):
        parameters.choice("mechanism", None, ("one_shot", "gumbel"), code="P005")


@pytest.mark.parametrize("value", ["", None, 3, "a\x00b", "\ud800", ["a"]])
def test_text(value: Any) -> None:
    with pytest.raises(ParameterError):
        parameters.text("target", value, code="P011", hint="")
    with pytest.raises(ParameterError):
        parameters.text_list("features", ["a", value], code="P010", hint="")


def test_duplicates_fold_ascii_case_as_duckdb_does() -> None:
    with pytest.raises(ParameterError, match="twice"):
        parameters.refuse_duplicates("features", ["a", "A"], code="P010", fold_case=True)
    parameters.refuse_duplicates("features", ["ä", "Ä", "ß", "ẞ"], code="P010", fold_case=True)
    parameters.refuse_duplicates("names", ["a", "A"], code="P010", fold_case=False)
    assert parameters.fold("ABCÄİ") == "abcÄİ"


def bounds(lower: Any, upper: Any) -> Any:
    return parameters.bounds(lower, upper, names=("lower", "upper"), code="P003", hint="")


def test_bounds() -> None:
    assert bounds(0, Decimal("1.5")) == (0.0, 1.5)
    assert bounds([0, 1], 2) == ((0.0, 1.0), 2.0)
    assert bounds(np.array([0, 1]), (1, 2)) == ((0.0, 1.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (1, 0),
        (1, 1),
        (None, 1),
        (0, None),
        ([0, 1], [1]),
        ([0, 1], [1, 1]),
        ([0, 1], 1),
        ([], 1),
        ("0", 1),
        (0, math.nan),
        (-math.inf, 1),
        ([0, None], 1),
        ([0, "x"], 1),
        (0, 10**400),
        ({"a": 0}, 1),
        (Decimal("0.1"), Decimal("0.1000000000000000000001")),
    ],
)
def test_bad_bounds(lower: Any, upper: Any) -> None:
    with pytest.raises(ParameterError) as failure:
        bounds(lower, upper)
    assert failure.value.code == "DPSQL-P003"


def test_what_is_shown_is_short() -> None:
    assert parameters.show(None) == "NULL"
    assert parameters.show("a'b\n") == repr("a'b\n")
    assert len(parameters.show("x" * 1000)) == 60
