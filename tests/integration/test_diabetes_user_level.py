"""User-level privacy on real data: one patient, several stays in hospital."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables" / "diabetes130_hospital.parquet"
FEATURES = [
    "time_in_hospital",
    "num_lab_procedures",
    "num_procedures",
    "num_medications",
    "number_outpatient",
    "number_emergency",
    "number_inpatient",
    "number_diagnoses",
]


@pytest.fixture
def ctx() -> Iterator[dpsql.Context]:
    if not DATA.exists():
        pytest.skip("the diabetes130_hospital table is not here; it belongs beside the project, in ../shared/data")
    opened = dpsql.Context()
    opened.connection.execute(f"CREATE VIEW stays AS SELECT *, readmitted <> 'NO' AS again FROM '{DATA}'")
    yield opened
    opened.close()


@pytest.mark.long
def test_selects_what_predicts_readmission_under_a_cap_per_patient(ctx: dpsql.Context) -> None:
    """At epsilon 10 the gaps between scores are many times the noise: another answer has probability below 1e-9."""
    arguments = {
        "target": "again",
        "features": FEATURES,
        "lower": 0,
        "upper": [14, 132, 6, 81, 42, 76, 21, 16],
        "privacy_unit": "patient_nbr",
        "max_rows_per_unit": 2,
    }
    rows, patients, capped = ctx.connection.execute(
        "SELECT count(*), count(DISTINCT patient_nbr), (SELECT sum(least(n, 2)) FROM "
        "(SELECT count(*) AS n FROM stays GROUP BY patient_nbr)) FROM stays"
    ).fetchall()[0]
    assert rows > capped > patients
    shown = ctx.sql(
        "SELECT feature, abs(xty) AS size FROM exact_xty('stays', target := 'again', lower := 0, "
        f"upper := {arguments['upper']}, features := {FEATURES}, "
        "privacy_unit := 'patient_nbr', max_rows_per_unit := 2) "
        "ORDER BY size DESC"
    ).to_pylist()
    release = ctx.dp_sis("stays", k=3, epsilon=10, **arguments)
    gap = (shown[2]["size"] - shown[3]["size"]) / 2**40
    assert gap > 30 * 3 * 2 * 2 / 10, "the real gap, in units of the noise"
    assert sorted(release.features) == sorted(row["feature"] for row in shown[:3])
    assert "all rows of one patient_nbr (at most 2 rows)" in release.guarantee
    assert ctx.dp_sis("stays", k=3, epsilon=1, mechanism="gumbel", **arguments).features


@pytest.mark.long
def test_the_cap_counts_what_a_count_of_stays_says(ctx: dpsql.Context) -> None:
    """A feature at its bound in every row, with a target at its bound, sums to the number of rows kept."""
    ctx.connection.execute("CREATE VIEW ones AS SELECT patient_nbr, 1.0 AS one, true AS y FROM stays")
    for cap in (1, 3):
        [kept] = ctx.sql(
            "SELECT xty FROM exact_xty('ones', target := 'y', features := ['one'], lower := -1, upper := 1, "
            f"privacy_unit := 'patient_nbr', max_rows_per_unit := {cap})"
        ).to_pylist()
        [expected] = ctx.sql(
            f"SELECT sum(least(n, {cap}))::BIGINT AS n FROM (SELECT count(*) AS n FROM stays GROUP BY patient_nbr)"
        ).to_pylist()
        assert int(kept["xty"]) == expected["n"] * 2**40
