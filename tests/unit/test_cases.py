"""Cases of a test: which fixtures they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cases import cases

# What the fixtures of a module have seen: a number for each one that was set up, and its negative when it was taken down.
SEEN: list[int] = []


@pytest.fixture
def held() -> Iterator[list[str]]:
    number = 1 + max(SEEN, default=0)
    SEEN.append(number)
    yield []
    SEEN.append(-number)


@cases("case", ["first", "second", "third"], alone=True)
def test_a_case_that_stands_alone_has_fixtures_of_its_own(held: list[str], case: str) -> None:
    assert not held
    held.append(case)
    assert SEEN[-1] == max(SEEN)
    assert all(-number in SEEN for number in SEEN if 0 < number < SEEN[-1])


@pytest.mark.long
@cases("case", ["first", "second", "third"])
def test_a_case_of_a_long_test_has_fixtures_of_its_own(held: list[str], case: str) -> None:
    assert not held
    held.append(case)


@cases("case", ["first", "second", "third"])
def test_other_cases_share_what_is_no_patch(monkeypatch: pytest.MonkeyPatch, held: list[str], case: str) -> None:
    held.append(case)
    assert held == ["first", "second", "third"][: len(held)]
    assert not hasattr(test_other_cases_share_what_is_no_patch, "patched")
    monkeypatch.setattr(test_other_cases_share_what_is_no_patch, "patched", case, raising=False)


@cases("second", ["c", "d"])
@cases("first", ["a", "b"])
def test_decorators_give_every_combination(
    held: list[str], request: pytest.FixtureRequest, first: str, second: str
) -> None:
    held.append(first + second)
    assert held == ["ac", "ad", "bc", "bd"][: len(held)]
    assert request.node.name.endswith("[cases 1]")
