"""The small tables that every page and every example of the manual runs on: invented patients, visits, scores, words.

`dpsql example hospital.duckdb` makes them, `.examples` in the shell, and `dpsql.example("hospital.duckdb")`. They are
computed by SQL without a random function, so they are the same everywhere; nothing in them is about anybody.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from dpsql.contract.parameters import show
from dpsql.errors import ParameterError

if TYPE_CHECKING:
    from dpsql.context import Context

# u(row, column) looks random, lies in [0, 1), and is the same on every machine.
_UNIFORM = (
    "CREATE OR REPLACE TEMP MACRO demo_u(i, j) AS (i * 7919 + j * 104729 + i * i * (31 + 2 * j)) % 10007 / 10007.0;"
)
_PATIENTS = """
CREATE OR REPLACE TABLE patients AS
SELECT i AS patient_id,
       ['A', 'B', 'C'][1 + (3 * demo_u(i, 1))::INTEGER % 3] AS ward,
       CASE WHEN demo_u(i, 2) < 0.5 THEN 'f' ELSE 'm' END AS sex,
       round(18 + 70 * demo_u(i, 3)) AS age,
       round(18 + 14 * demo_u(i, 4) + 6 * demo_u(i, 5), 1) AS bmi,
       round(100 + 40 * demo_u(i, 6) + age / 3) AS pressure,
       round(60 + 80 * demo_u(i, 7) * demo_u(i, 8)) AS sugar,
       demo_u(i, 9) < 0.3 AS smoker,
       demo_u(i, 10) < 0.4 AS diabetic,
       round(1 + age / 8 + bmi / 6 + 4 * demo_u(i, 11)) AS days,
       CASE WHEN demo_u(i, 12) < age / 100 THEN 'yes' ELSE 'no' END AS readmitted
FROM range(4000) AS rows(i);"""
_VISITS = """
CREATE OR REPLACE TABLE visits AS
SELECT patient_id, ward, 1 + visit AS visit, round(100 + 900 * demo_u(patient_id, 20 + visit)) AS cost
FROM patients, range(3) AS numbers(visit) WHERE demo_u(patient_id, 30 + visit) < 0.7;"""
_SCORES = """
CREATE OR REPLACE TABLE scores AS
SELECT patient_id, readmitted = 'yes' AS label,
       greatest(0, least(1, age / 100 + 0.2 * demo_u(patient_id, 40) - 0.1)) AS score,
       days, 1 + age / 8 + bmi / 6 + 2 AS predicted
FROM patients;"""
_WORDS = """
CREATE OR REPLACE TABLE words AS
SELECT i AS message, demo_u(i, 50) < 0.4 AS spam, word
FROM range(3000) AS messages(i),
     (VALUES ('free', 0.5, 0.05), ('prize', 0.3, 0.01), ('meeting', 0.02, 0.3), ('today', 0.2, 0.2))
     AS lexicon(word, in_spam, in_ham)
WHERE demo_u(i, 51 + length(word)) < CASE WHEN spam THEN in_spam ELSE in_ham END;"""
# Budgets that are large enough for all examples of the manual. `dpsql example` leaves budgets to the reader.
BUDGETS = (
    "SELECT dp_protect('patients', epsilon := 1000, delta := 1e-3);",
    "SELECT dp_protect('visits', epsilon := 1000, delta := 1e-3,\n"
    "  privacy_unit := 'patient_id', max_rows_per_unit := 3);",
    "SELECT dp_protect('scores', epsilon := 1000, delta := 1e-3);",
    "SELECT dp_protect('words', epsilon := 1000, delta := 1e-3, privacy_unit := 'message', max_rows_per_unit := 4);",
)
STATEMENTS = (_UNIFORM, *(one.strip() for one in (_PATIENTS, _VISITS, _SCORES, _WORDS)))
# What each table holds, for readers of the examples.
TABLES = {
    "patients": "4,000 rows, one per patient: `patient_id`, `ward`, `sex`, `age`, `bmi`, `pressure`, `sugar`, "
    "`smoker`, "
    "`diabetic`, `days` in hospital, and `readmitted` ('yes' or 'no')",
    "visits": "up to three rows per patient: `patient_id`, `ward`, `visit`, `cost`",
    "scores": "one row per patient: whether readmitted (`label`), a model's `score` for it, `days` and the "
    "`predicted` days",
    "words": "a row per message and word in it: `message`, `spam`, `word`",
}


def example(database: str | PathLike[str]) -> list[str]:
    """Make the example tables in a database file: invented patients, their visits, scores and words.

    They are the same everywhere, and no budget is set.

    Parameters
    ----------
    database : path
        A DuckDB file; made if there is none.

    Returns
    -------
    tables : list of str

    Raises
    ------
    ParameterError
        P091: there is a table of such a name.
    """
    from dpsql.context import Context

    with Context(database) as context:
        return fill(context)


def fill(context: Context) -> list[str]:
    """Make the example tables in the database of a context; parameters and errors as of `example`."""
    taken = {row["table_name"] for row in context.sql("SELECT table_name FROM duckdb_tables()").to_pylist()}
    for name in TABLES:
        if name in taken:
            raise ParameterError(
                "P091", f"there is a table {show(name)} already. Name another file, or drop the table."
            )
    for statement in STATEMENTS:
        context.sql(statement)
    return list(TABLES)
