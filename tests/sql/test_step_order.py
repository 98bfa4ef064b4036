"""Steps of a statement that must run in order hand the ticket on, so that no number of rows lets one be left out."""

from __future__ import annotations

import re

import pytest
from test_rendering import statements

# Functions that check, learn or draw, and that the release must come after.
ORDERED = ("dpsql_learn_keys", "dpsql_check_keys", "dpsql_vocabulary", "dpsql_center", "dpsql_turn")
_CALL = re.compile(rf"\b({'|'.join(ORDERED)})\(")


def handed_on(text: str) -> list[str]:
    """Return the functions that the ticket of a release came through, the last of them first."""
    pieces = re.split(r"(__dpsql__\w+) AS (?:MATERIALIZED )?\(", text[: text.index("dpsql_release_")])
    steps = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    functions, rest = [], text[text.index("dpsql_release_") :]
    while True:
        found = re.search(r"__dpsql__\w+", rest)
        assert found is not None
        if found.group().startswith("__dpsql__gate"):
            return functions
        rest = steps[found.group()]
        called = _CALL.search(rest)
        if called is not None:
            functions.append(called.group(1))
            rest = rest[called.end() :]


@pytest.mark.long
def test_the_ticket_of_a_release_came_through_every_step() -> None:
    seen: set[str] = set()
    for name, text in statements():
        if "dpsql_release_" in text:
            functions = handed_on(text)
            assert sorted(functions) == sorted(_CALL.findall(text)), (name, text)
            seen.update(functions)
    assert seen == set(ORDERED)
