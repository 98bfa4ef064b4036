"""Does the time of an answer show a slow row? Answers of a gateway's desk with a slow row and without, in real time.

``python benchmarks/gateway_times.py [runs]`` asks so many questions (100 by default) of each of two neighbours, of
which one has a row that takes 0.7 s, and prints the distance of the two distributions of times. With a fixed time of
2 s equal laws are further apart than 0.4 once in 10⁶ times at 100 runs; without one the distance is about 1. It takes
ten minutes. ``tests/gateway/test_attacks.py`` asks the same on a clock of its own, where no machine can be busy.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dpsql
from dpsql.engines.duckdb.session import Session
from dpsql.gateway.audit import Audit
from dpsql.gateway.desk import Desk
from dpsql.gateway.limits import Buckets, Rates
from dpsql.ledger.grants import Grant

SLOW, RUNS = 0.7, 100


def times(folder: Path, fixed: float | None, runs: int, slow: float) -> list[float]:
    """Return how long the answers of one neighbour take, in seconds."""
    folder.mkdir()
    finish, found = Session.finish, []

    def work(self: Session, *arguments: Any) -> Any:
        time.sleep(slow)
        return finish(self, *arguments)

    with dpsql.Context(str(folder / "hospital.duckdb")) as context:
        context.sql("CREATE TABLE patients AS SELECT i AS id FROM range(600) r(i)")
        context.dp_protect("patients", epsilon=10**6, privacy_unit="id", max_rows_per_unit=1)
        context.ledger.grant(Grant.of("ana", "patients"))
        token = context.ledger.issue_token("ana").text
        desk = Desk(context, Audit(None), Rates(factor=10_000.0), buckets=Buckets(fixed))
        Session.finish = work  # type: ignore[method-assign]
        try:
            for run in range(runs):
                arguments = {"epsilon": {"number": f"0.0{run + 100}"}}
                began = time.monotonic()
                desk.answer(  # which is interrupted where the machine is too busy: its time counts all the same
                    {
                        "token": token,
                        "want": "call",
                        "function": "dp_count",
                        "source": "patients",
                        "arguments": arguments,
                    }
                )
                found.append(time.monotonic() - began)
        finally:
            Session.finish = finish  # type: ignore[method-assign]
    return found


def distance(one: list[float], other: list[float]) -> float:
    """Return the largest difference of two empirical distribution functions."""
    return max(
        abs(sum(each <= at for each in one) / len(one) - sum(each <= at for each in other) / len(other))
        for at in (*one, *other)
    )


def main() -> None:
    """Print the distances."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for fixed in (2.0, None):
        with tempfile.TemporaryDirectory() as folder:
            one, other = (times(Path(folder) / str(slow), fixed, runs, slow) for slow in (SLOW, 0.0))
        means = " and ".join(f"{sum(each) / runs:.2f} s" for each in (one, other))
        print(f"fixed time {fixed}: distance {distance(one, other):.2f}, means {means}")


if __name__ == "__main__":
    main()
