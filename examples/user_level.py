"""One person, several rows: 101,766 hospital encounters of 71,518 patients."""

from __future__ import annotations

from pathlib import Path

import dpsql

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tables" / "diabetes130_hospital.parquet"
FEATURES = ["time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient",
            "number_emergency", "number_inpatient", "number_diagnoses"]  # fmt: skip


def main() -> None:
    if not DATA.exists():
        print("the hospital table is not here")
        return
    with dpsql.Context() as ctx:
        ctx.sql(f"CREATE VIEW encounters AS SELECT *, readmitted <> 'NO' AS again FROM '{DATA}'")
        # Every call on this dataset protects all rows of one patient.
        ctx.dp_protect("encounters", epsilon=2.0, privacy_unit="patient_nbr", max_rows_per_unit=3)
        release = ctx.dp_sis(
            "encounters",
            target="again",
            features=FEATURES,
            k=3,
            epsilon=1.0,
            lower=0,
            upper=[14, 132, 6, 81, 42, 76, 21, 16],
        )
        print(release)


if __name__ == "__main__":
    main()
