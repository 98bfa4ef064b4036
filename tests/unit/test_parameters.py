"""Public arguments: what is read as what, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from dpsql.contract import layout, parameters
from dpsql.errors import ParameterError
from support.cases import cases

NOT_POSITIVE = [0, -1, 0.0, -0.0, math.nan, math.inf, -math.inf, None, "1", "", True, [1], {}, Decimal("NaN"), 1j]


@cases(
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
    assert parameters.positive_number("epsilon", value, hint="") == expected


@cases("value", NOT_POSITIVE)
def test_not_a_positive_number(value: Any) -> None:
    with pytest.raises(ParameterError) as failure:
        parameters.positive_number("epsilon", value, hint="Next step.")
    assert failure.value.code == "DPSQL-P024"
    assert "Next step." in str(failure.value)
    with pytest.raises(ParameterError):
        parameters.positive_integer("k", value, hint="")
    with pytest.raises(ParameterError):
        parameters.open_unit_interval("gamma", value, hint="")


def test_integers() -> None:
    assert parameters.positive_integer("k", 3.0, hint="") == 3
    assert parameters.positive_integer("k", Decimal("3"), hint="") == 3
    for value in (2.5, Decimal("0.5"), Fraction(7, 2)):
        with pytest.raises(ParameterError):
            parameters.positive_integer("k", value, hint="")


def test_open_interval() -> None:
    assert parameters.open_unit_interval("gamma", 0.5, hint="") == Fraction(1, 2)
    for value in (1, 0, 1.5):
        with pytest.raises(ParameterError):
            parameters.open_unit_interval("gamma", value, hint="")


def test_choice_in_any_case() -> None:
    assert parameters.choice("mechanism", " Gumbel ", ("one_shot", "gumbel")) == "gumbel"
    with pytest.raises(ParameterError, match="'one_shot', 'gumbel'"):
        parameters.choice("mechanism", None, ("one_shot", "gumbel"))


@cases("value", ["", None, 3, "a\x00b", "\ud800", ["a"]])
def test_text(value: Any) -> None:
    with pytest.raises(ParameterError):
        parameters.text("target", value, hint="")
    with pytest.raises(ParameterError):
        parameters.text_list("features", ["a", value], hint="")


def test_duplicates_fold_ascii_case_as_duckdb_does() -> None:
    with pytest.raises(ParameterError, match="twice"):
        parameters.refuse_duplicates("features", ["a", "A"], fold_case=True)
    parameters.refuse_duplicates("features", ["ä", "Ä", "ß", "ẞ"], fold_case=True)
    parameters.refuse_duplicates("names", ["a", "A"], fold_case=False)
    assert parameters.fold("ABCÄİ") == "abcÄİ"


def bounds(lower: Any, upper: Any) -> Any:
    return layout.public_bounds(lower, upper, names=("lower", "upper"), hint="")


def test_bounds() -> None:
    assert bounds(0, Decimal("1.5")) == (0.0, 1.5)
    assert bounds([0, 1], 2) == ((0.0, 1.0), 2.0)
    assert bounds(np.array([0, 1]), (1, 2)) == ((0.0, 1.0), (1.0, 2.0))
    assert bounds({"b": 1, "a": 0}, 2) == ({"a": 0.0, "b": 1.0}, 2.0)
    # A name that only one side has belongs to no pair; a list has no names yet.
    assert bounds({"a": 0, "b": 9}, {"a": 1}) == ({"a": 0.0, "b": 9.0}, {"a": 1.0})
    assert bounds({"a": 5}, [1, 6]) == ({"a": 5.0}, (1.0, 6.0))


def by_feature(lower: Any, upper: Any, features: Sequence[str], *, fold_case: bool = False) -> Any:
    return layout.bounds_by_feature(*bounds(lower, upper), features, fold_case=fold_case)


def test_bounds_by_feature() -> None:
    assert by_feature(0, 1, "ab") == [(0, 1), (0, 1)]
    assert by_feature([0, 1], 2, "ab") == [(0, 2), (1, 2)]
    assert by_feature({"a": 0, "b": 1, "c": 7}, {"b": 3, "a": 2}, "ba") == [(1, 3), (0, 2)]
    assert by_feature({"a": 0, "b": 1}, [4, 5], "ba") == [(1, 4), (0, 5)]
    assert by_feature({"age": 0, "İ": 1}, 2, ["AGE", "İ"], fold_case=True) == [(0, 2), (1, 2)]
    assert by_feature({"a": 0, "A": 1}, 2, "Aa") == [(1, 2), (0, 2)]


class NoNumber(float):
    def __float__(self) -> float:
        raise RuntimeError


def test_an_object_that_raises_when_it_is_read_is_no_number() -> None:
    assert parameters.as_double(NoNumber(1)) is None
    with pytest.raises(ParameterError, match="P024"):
        parameters.positive_float("k", NoNumber(1), hint="")


@cases(
    ("lower", "features", "fold_case", "message"),
    [
        ([0, 0, 0], "ab", False, "P035.*3 bounds for 2 features"),
        ({"a": 0}, "abc", False, "P003.*lower names no bound of 'b', 'c'"),
        ({"a": 0}, "A", False, "P003.*'A'"),
        ({"a": 0}, "abcdefghij", False, "P003.*'f', ..."),
        ({"a": 0, "A": 0}, "a", True, "P044.*twice"),
        ({"ä": 0}, "Ä", True, "P003.*'Ä'"),
    ],
)
def test_features_without_bounds(lower: Any, features: str, fold_case: bool, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        by_feature(lower, 1, features, fold_case=fold_case)


@pytest.mark.parametrize(
    "value",
    [Decimal("1E+1000000000"), Decimal("1E-1000000000"), 10**5000, Fraction(1, 10**400), Decimal("sNaN")],
    ids=["huge", "tiny", "digits", "fraction", "nan"],
)
def test_numbers_that_no_double_holds_are_none(value: Any) -> None:
    """An exponent written out would be a billion digits."""
    for check in (parameters.positive_number, parameters.finite_float, parameters.open_unit_interval):
        with pytest.raises(ParameterError):
            check("share", value, hint="")


def test_the_largest_integer() -> None:
    assert parameters.positive_integer("k", 7, hint="", most=7) == 7
    for value, most in ((8, 7), (1e9 + 1, parameters.MOST), (2**63, 2**40)):
        with pytest.raises(ParameterError, match=f"P050.*at most {most}"):
            parameters.positive_integer("k", value, hint="", most=most)


@cases("value", ["ab", b"ab", {"a": 1}, {"a", "b"}, 7, None])
def test_what_is_no_list(value: Any) -> None:
    assert parameters.list_items(value) is None
    with pytest.raises(ParameterError, match="P043"):
        parameters.text_list("features", value, hint="")


def test_a_list_is_read_so_far_and_no_farther() -> None:
    with pytest.raises(ParameterError, match=r"P050.*at most 1000000"):
        parameters.text_list("features", repeat("a"), hint="")


@cases(
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
        ({"a": 0}, 0),
        ({"a": 0, "b": 2}, {"b": 1}),
        ({"a": 0}, None),
        ({}, 1),
        (1, {"a": 0}),
        ({"a": None}, 1),
        ({"a": "0"}, 1),
        ({"a": {"b": 0}}, 1),
        ({"a": [0]}, 1),
        ({"": 0}, 1),
        ({1: 0}, 1),
        ({"\ud800": 0}, 1),
        ({0, 1}, 2),
        (b"ab", 200),
        (Decimal("0.1"), Decimal("0.1000000000000000000001")),
    ],
)
def test_bad_bounds(lower: Any, upper: Any) -> None:
    with pytest.raises(ParameterError) as failure:
        bounds(lower, upper)
    code = "P003"
    if (lower, upper) == ([0, 1], [1]):
        code = "P035"
    elif isinstance(lower, dict) and any(not isinstance(name, str) or name in ("", "\ud800") for name in lower):
        code = "P013"
    assert failure.value.code == f"DPSQL-{code}"


def test_what_is_shown_is_short() -> None:
    assert parameters.show(None) == "NULL"
    assert parameters.show("a'b\t") == repr("a'b\t")
    assert parameters.show("x" * 58) == repr("x" * 58)
    assert parameters.show("x" * 1000) == "a text of more than 60 characters"
    assert len(parameters.show(10**1000)) == 60
    assert parameters.show(10**5000) == "a value of type int"
    assert parameters.show("\ud800").isascii()
