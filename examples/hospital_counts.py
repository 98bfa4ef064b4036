"""Visits by hospital, where the list of hospitals is private too: one with few patients would give them away."""

from __future__ import annotations

import sys
from pathlib import Path

import dpsql
from dpsql.released.plots import save

# 6,000 visits of 2,500 patients, made up: the hospitals differ in size, and the last ones have a handful of patients.
VISITS = """
    SELECT (hash(i) % 2500)::INT AS patient, 'H' || lpad(hospital::VARCHAR, 2, '0') AS hospital
    FROM (
        SELECT i, 1 + floor(-2.6 * ln((1 + hash(i, 'h') % 100000) / 100000))::INT AS hospital FROM range(6000) AS r(i)
    )
"""


def main(folder: Path) -> None:
    with dpsql.Context() as ctx:
        ctx.sql(f"CREATE TABLE visits AS {VISITS}")
        ctx.dp_protect("visits", epsilon=1.0, delta=1e-6, privacy_unit="patient", max_rows_per_unit=3)
        # A hospital is shown if its noisy count is above a threshold. One that a single patient visited is shown with a
        # probability of at most delta.
        release = ctx.dp_count(
            "visits",
            by="hospital",
            keys="private",
            epsilon=1.0,
            delta=1e-6,
            max_groups_per_unit=3,
            max_rows_per_unit_group=1,
        )
        print(release)
        print(release.guarantee)
        print("verdict:", release.verdict)
        save(release.plot(), folder / "hospital_counts.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
