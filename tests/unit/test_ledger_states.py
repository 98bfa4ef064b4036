"""What is read of a ledger within one state, while others charge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dpsql.ledger.budget import Budget
from dpsql.ledger.ledger import Ledger


def test_one_state_is_read_while_others_write(durable_location: str) -> None:
    ledger, other = Ledger.open(durable_location), Ledger.open(durable_location)

    def names() -> list[str]:
        return [row.dataset for row in ledger.budgets()]

    def read() -> list[list[str]]:
        found = [names()]
        other.protect("late", Budget.of(epsilon=1))
        with ThreadPoolExecutor(1) as threads:
            found += [names(), ledger.of_one_state(names), threads.submit(names).result()]
        return [*found, names()]

    first, again, nested, elsewhere, last = ledger.of_one_state(read)
    assert first == again == nested == last == []
    assert elsewhere == names() == ["late"]
    ledger.close()
    other.close()


def test_what_fails_ends_the_state(durable_ledger: Ledger) -> None:
    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        durable_ledger.of_one_state(fail)
    durable_ledger.protect("late", Budget.of(epsilon=1))
    assert len(durable_ledger.budgets()) == 1
