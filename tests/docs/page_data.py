"""The data that pages of the documentation speak of, as files of the current folder."""

from __future__ import annotations

import duckdb


def patients() -> None:
    """patients.duckdb: 20,000 patients with nine measurements, and messages with the words in them."""
    with duckdb.connect("patients.duckdb") as con:
        con.execute(
            "CREATE TABLE patients AS SELECT range AS patient, random() < 0.3 AS relapse, 365 * random() AS days, "
            "['A', 'B', 'C', 'D'][1 + (4 * random())::INT % 4] AS ward, 18 + 70 * random() AS age, "
            + ", ".join(f"16 * random() AS g{j}" for j in range(9))
            + " FROM range(20000)"
        )
        con.execute("CREATE VIEW held_out AS FROM patients WHERE g8 < 2")
        # Every word is in a message with a chance of its own, of spam twice that.
        con.execute(
            "CREATE TABLE sms AS SELECT i AS message, i % 2 = 0 AS spam, 'w' || w AS token FROM range(1000) AS m(i), "
            "range(20) AS v(w) WHERE random() < (1 + (i % 2 = 0)::INT * (w % 2)) * w / 40"
        )
        con.execute("CREATE TABLE visits AS SELECT patient % 6000 AS patient, ward, age, days FROM patients")
