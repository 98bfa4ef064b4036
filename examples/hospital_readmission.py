"""Who comes back to hospital? One patient has several rows, and all of them are protected together."""

from __future__ import annotations

import sys
from pathlib import Path

import dpsql
from dpsql.released.plots import save

# 101,766 encounters of 71,518 patients with diabetes in 130 hospitals.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tables" / "diabetes130_hospital.parquet"
# Upper ends of what a record may hold, from its form; the lower ends are 0.
UPPER = {"time_in_hospital": 14, "num_lab_procedures": 132, "num_procedures": 6, "num_medications": 81,
         "number_outpatient": 20, "number_emergency": 20, "number_inpatient": 20, "number_diagnoses": 16}  # fmt: skip
MADE_UP = """
    SELECT
        (hash(i) % 40000)::INT AS patient_nbr, inpatient AS number_inpatient,
        i % 7 = 0 OR hash(i, 'chance') % 10 < 2 + 2 * inpatient AS again,
        {others}
    FROM (SELECT i, (hash(i, 'in') % 100)::INT // 25 AS inpatient FROM range(60000) AS r(i))
"""


def encounters() -> str:
    if DATA.exists():
        return f"SELECT *, readmitted <> 'NO' AS again FROM '{DATA}'"
    others = [name for name in UPPER if name != "number_inpatient"]
    return MADE_UP.format(others=", ".join(f"(hash(i, '{name}') % {UPPER[name]})::INT AS {name}" for name in others))


def main(folder: Path) -> None:
    with dpsql.Context() as ctx:
        ctx.sql(f"CREATE TABLE encounters AS {encounters()}")
        # Every call protects all rows of a patient, of which at most three, chosen at random, count.
        ctx.dp_protect("encounters", epsilon=4.0, delta=1e-6, privacy_unit="patient_nbr", max_rows_per_unit=3)
        # dp_split sorts patients, not rows: nobody is in both parts.
        for name, test in (("training", "NOT "), ("held_out", "")):
            ctx.sql(f"CREATE VIEW {name} AS FROM encounters WHERE {test}dp_split(patient_nbr, 'readmission')")

        selection = ctx.dp_sis(
            "training", target="again", features=list(UPPER), k=4, epsilon=1.0, lower=0, upper=UPPER, release="factors"
        )
        print(selection)
        model = ctx.dp_logistic_regression(
            "training",
            target="again",
            features=selection,
            epsilon=2.0,
            lower=0,
            upper={name: UPPER[name] for name in selection.features},
            release="readmission",
        )
        print(model)
        ctx.sql("CREATE VIEW scored AS SELECT *, dp_predict('readmission', held_out) AS score FROM held_out")
        curve = ctx.dp_roc("scored", label="again", score="score", epsilon=1.0, n_thresholds=15)
        print(curve)
        print("verdict:", curve.verdict)
        save(curve.plot(), folder / "hospital_readmission.svg")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
