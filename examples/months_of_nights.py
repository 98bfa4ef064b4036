"""A nightly job that runs for months: each month has a budget of its own, and a year may cost one person 12 of them."""

from __future__ import annotations

import sys
from datetime import date, timedelta
from pathlib import Path

import dpsql

START, NIGHTS, VISITS_A_DAY = date(2025, 11, 1), 420, 40


def night(ctx: dpsql.Context, today: date) -> None:
    """Load the day's visits; on the first of a month, release the last one. It may be retried: names replay."""
    ctx.connection.execute(
        "INSERT INTO visits SELECT hash(i, ?) % 900, CAST(? AS DATE), ['A', 'B', 'C'][CAST(1 + i % 3 AS INTEGER)] "
        "FROM range(?) AS numbers(i)",
        [today.toordinal(), today, VISITS_A_DAY],
    )
    if today.day == 1 and today > START:
        month = f"{today - timedelta(days=1):%Y-%m}"
        for _ in range(2):  # the job is run twice, and charged once
            ctx.dp_count("visits", by="ward", epsilon=0.5, during=month, release=f"wards {month}")


def main(folder: Path) -> None:
    with dpsql.Context(folder / "hospital.duckdb") as ctx:
        ctx.connection.execute("CREATE OR REPLACE TABLE visits (patient UBIGINT, visit_date DATE, ward VARCHAR)")
        ctx.connection.execute(
            "SELECT dp_protect('visits', epsilon := 1, privacy_unit := 'patient', max_rows_per_unit := 4, "
            "period := 'month', period_of := 'visit_date', epsilon_total := 12, keys := {ward: ['A', 'B', 'C']})"
        )
        for day in range(NIGHTS):
            night(ctx, START + timedelta(days=day))
        people = "dp_count('visits', distinct_of := 'patient', epsilon := 0.25, during := '2025-11/2026-10')"
        print("People in a year:", ctx.connection.execute(f"SELECT value FROM {people}").fetchone())
        for row in ctx.connection.execute("SELECT block, spent, remaining FROM dp_budget()").fetchall():
            print(*row, sep=", ")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
