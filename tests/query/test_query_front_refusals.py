"""What the splitter refuses, each with its code; the line to write stands in the message."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.errors import DpsqlError
from support.cases import cases
from tests.support.split_queries import hospital, split_of

REFUSED = [
    ("P102", "SELECT * FROM visits"),
    ("P102", "SELECT ward FROM visits ORDER BY days LIMIT 3"),
    ("P102", "SELECT patient, count(*) FROM visits GROUP BY patient"),
    ("P102", "SELECT DISTINCT patient, ward FROM visits"),
    ("P103", "SELECT w.ward, (SELECT days FROM visits LIMIT 1) FROM wards w"),
    ("P102", "SELECT * FROM wards WHERE beds IN (SELECT days FROM visits)"),
    ("P103", "SELECT count(*) FROM (SELECT * FROM visits LIMIT 5)"),
    ("P103", "SELECT count(*) FROM (SELECT ward FROM visits EXCEPT SELECT ward FROM visits)"),
    ("P103", "SELECT count(*) FROM (SELECT ward FROM visits UNION SELECT ward FROM wards)"),
    ("P103", "SELECT count(*) FROM (SELECT DISTINCT ON (ward) * FROM visits)"),
    ("P103", "SELECT count(*) FROM visits v FULL JOIN patients p ON p.id = v.patient"),
    ("P104", "SELECT avg(m) FROM (SELECT patient, mode(days) AS m FROM visits GROUP BY patient)"),
    ("P104", "SELECT avg(m) FROM (SELECT patient, stddev(days) AS m FROM visits GROUP BY patient)"),
    ("P104", "SELECT count(*) FROM read_csv('x.csv')"),
    ("P104", "SELECT avg(s) FROM (SELECT patient, sum(days) OVER (PARTITION BY patient) AS s FROM visits)"),
    ("P105", "SELECT count(*) FROM visits WHERE days > (SELECT avg(days) FROM visits)"),
    ("P105", "SELECT count(*) FROM visits v JOIN (SELECT ward, count(*) n FROM visits GROUP BY ward) t USING (ward)"),
    ("P105", "SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM visits GROUP BY ward HAVING count(*) > 9)"),
    ("P105", "SELECT count(*) FROM visits v WHERE days > (SELECT avg(days) FROM visits u WHERE u.ward = v.ward)"),
    ("P106", "SELECT max(days) FROM visits"),
    ("P106", "SELECT ward, list(doctor) FROM visits GROUP BY ward"),
    ("P106", "SELECT sum(DISTINCT days) FROM visits"),
    ("P106", "SELECT any_value(ward) FROM visits"),
    ("P106", "SELECT sum(count(*)) FROM visits"),
    ("P106", "SELECT avg(visit_date) FROM visits"),
    ("P107", "SELECT ward, (SELECT sum(days) FROM visits v WHERE v.ward = w.ward) FROM wards w"),
    ("P107", "SELECT ward FROM wards w WHERE beds > (SELECT count(*) FROM visits v WHERE v.ward = w.ward)"),
    ("P107", "SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id "
             "AND v.days < p.age AND v.id > p.age)"),
    ("P107", "SELECT count(*) FROM visits WHERE (patient, visit_date) NOT IN "
             "(SELECT patient, max(visit_date) FROM visits GROUP BY patient)"),
    ("P107", "SELECT count(*) FROM visits WHERE (patient, ward) IN (SELECT id FROM patients)"),
    ("S012", "SELECT count(*) FROM visits WHERE (ward, days) IN (SELECT ward, days FROM visits)"),
    ("S012", "SELECT count(*) FROM visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE b.id = a.id)"),
    ("S012", "SELECT count(*) FROM visits a, visits b"),
    ("S012", "SELECT count(*) FROM visits a JOIN visits b USING (ward)"),
    ("S012", "SELECT count(*) FROM visits WHERE days IN (SELECT days FROM visits)"),
    ("S012", "SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM patients)"),
    ("S012", "SELECT avg(r) FROM (SELECT patient, rank() OVER (PARTITION BY ward ORDER BY days) AS r FROM visits)"),
    ("S002", "SELECT nothing FROM visits"),
    ("S002", "SELECT ward, days, count(*) FROM visits GROUP BY ward"),
    ("S001", "SELECT count(*) FROM nowhere"),
    ("P070", "SELECT count(*) FROM visits WHERE hash(days) > 3"),
    ("P070", "SELECT count(*) FROM visits WHERE getvariable('x') = ward"),
    ("P070", "SELECT count(*) FROM visits WHERE random() < 0.5"),
    ("P082", "SELECT count(*) FROM visits WHERE date_part(ward, visit_date) > 3"),
    ("P082", "SELECT count(*) FROM visits WHERE regexp_matches(doctor, ward)"),
    ("P019", "SELECT * FROM dp_count('visits', epsilon := 1)"),
    ("P019", "SELECT dpsql_query_plan(1)"),
    ("P101", "SELECT getvariable('x') FROM wards"),
    ("P101", "WITH dpsql_x AS (SELECT 1) SELECT * FROM dpsql_x"),
    ("P101", "SELECT __dp_0.k0 FROM (SELECT 1 AS k0) AS __dp_0"),
    ("P101", "SELECT estimated_size FROM duckdb_tables() t, pragma_storage_info('visits')"),
]  # fmt: skip


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    found = hospital()
    yield found
    found.close()


@cases(("code", "sql"), REFUSED, quick=25)
def test_a_refusal_has_its_code(con: duckdb.DuckDBPyConnection, code: str, sql: str) -> None:
    with pytest.raises(DpsqlError) as caught:
        split_of(con, sql)
    assert caught.value.code == f"DPSQL-{code}" or (code == "P101" and caught.value.code == "DPSQL-P104")
    assert caught.value.message.count(". ") >= 1
    assert caught.value.message.endswith((".", ")"))
