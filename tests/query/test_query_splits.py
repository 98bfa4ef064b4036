"""What a query splits into means what the query says: cores answered exactly, and the post text over them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.errors import SourceError
from support.cases import cases
from tests.support.split_queries import answered_exactly, hospital, plain, split_of

# Each is answered as DuckDB answers it, but for groups that have no row.
ANSWERED = """
SELECT ward, count(*), sum(cost), avg(cost), var_samp(days), stddev(days), median(days) FROM visits GROUP BY ALL ORDER BY ALL
SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id AND v.ward = 'A')
SELECT count(*) FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id AND v.ward = 'A')
SELECT count(*) FROM patients p WHERE id NOT IN (SELECT patient FROM visits WHERE days = 3)
SELECT count(*) FROM patients p WHERE age > 50 OR id IN (SELECT patient FROM visits WHERE days = 3)
SELECT count(*) FROM patients p WHERE age > 90 OR EXISTS (SELECT * FROM visits v WHERE v.patient = p.id AND v.days > p.age / 5)
SELECT avg(m) FROM (SELECT id, (SELECT max(days) FROM visits v WHERE v.patient = p.id) AS m FROM patients p)
SELECT sum((SELECT count(*) FROM visits v WHERE v.patient = p.id AND days > 20)) FROM patients p
SELECT count(*) FROM visits WHERE days > (SELECT avg(beds) FROM wards)
SELECT ward, count(*) FROM visits v WHERE days > (SELECT beds FROM wards w WHERE w.ward = v.ward) GROUP BY ward
SELECT count(*) FROM visits WHERE ward NOT IN (SELECT ward FROM wards WHERE building = 'N')
SELECT building, sum(days) FROM visits JOIN wards USING (ward) GROUP BY building
SELECT building, count(*) FROM visits v LEFT JOIN wards w ON v.ward = w.ward AND w.beds > 6 GROUP BY building
SELECT w.building, count(*) AS n FROM wards w, visits v WHERE v.ward = w.ward AND w.beds > 6 GROUP BY 1 ORDER BY n
SELECT sex, count(*), count(v.id) FROM patients p LEFT JOIN visits v ON v.patient = p.id AND v.ward = 'A' GROUP BY sex
SELECT ward, avg(n) FROM (SELECT patient, ward, count(*) AS n, sum(days) AS s FROM visits GROUP BY patient, ward HAVING count(*) > 1) GROUP BY ward
SELECT avg(s), max_n FROM (SELECT patient, sum(cost) AS s, count(*) > 9 AS max_n FROM visits GROUP BY patient) GROUP BY max_n
SELECT n, count(*) FROM (SELECT DISTINCT patient, ward FROM visits) t JOIN (SELECT patient, count(*) % 3 AS n FROM visits GROUP BY patient) u USING (patient) GROUP BY n
SELECT ward, outcome, count(DISTINCT patient), median(days), corr(days, cost) FROM visits GROUP BY ROLLUP (ward, outcome)
SELECT ward, outcome, count(*), avg(days) FROM visits GROUP BY GROUPING SETS ((ward), (outcome))
SELECT count(*), what FROM (SELECT patient, 'v' AS what FROM visits UNION ALL SELECT id, 'p' FROM patients) GROUP BY what
SELECT extract(year FROM visit_date) AS y, month(visit_date) AS m, count(*) FROM visits WHERE visit_date >= '2024-02-01' AND visit_date < '2025-03-05' GROUP BY y, m ORDER BY y, m
SELECT strftime(visit_date, '%Y-%m') AS ym, count(*) FROM visits WHERE visit_date BETWEEN '2024-02-01' AND '2025-03-05' GROUP BY ym
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' END AS band, count(*) FROM patients GROUP BY band
SELECT age // 10 * 10 AS decade, count(*) FROM patients GROUP BY decade ORDER BY 1
SELECT age > 50 AS old, smoker, count(*) FROM patients GROUP BY ALL
SELECT ward, sum(days) AS days FROM visits GROUP BY ward HAVING days > 900
SELECT ward AS w, sum(cost) AS cost, count(*) AS days FROM visits GROUP BY ward HAVING cost > 70000 AND sum(days) > 3 AND days > 1
SELECT age + 1 AS age, count(*) AS n FROM patients GROUP BY age HAVING age BETWEEN 5 AND 7
SELECT age + 1 AS age, count(*) AS n FROM patients GROUP BY age + 1 HAVING age BETWEEN 5 AND 7
SELECT ward, sum(days) AS days, [1, 2] AS l FROM visits GROUP BY ward HAVING days + len(list_filter(l, lambda days: days > 1)) > 900
SELECT count(*) FROM (SELECT patient, sum(days) AS days FROM visits GROUP BY patient HAVING days > 20)
SELECT upper(ward) || '!' AS w, count(*) FROM visits GROUP BY w
SELECT ward, count(DISTINCT doctor), count(DISTINCT patient) FILTER (WHERE days > 5) FROM visits GROUP BY ward
SELECT ward, outcome, sum(days), grouping(ward, outcome) FROM visits GROUP BY GROUPING SETS ((ward), (outcome), ())
SELECT ward, n, rank() OVER (ORDER BY n DESC) r FROM (SELECT ward, count(*) n FROM visits WHERE days < 9 GROUP BY ward) QUALIFY r <= 2
SELECT date_trunc('month', visit_date) AS m, sum(count(*)) OVER (ORDER BY date_trunc('month', visit_date) RANGE BETWEEN INTERVAL 2 MONTH PRECEDING AND CURRENT ROW) AS r FROM visits WHERE visit_date BETWEEN '2024-02-01' AND '2025-01-05' GROUP BY 1
SELECT m, avg(n) OVER (ORDER BY m RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW) AS r FROM (SELECT date_trunc('month', visit_date) AS m, count(*) AS n FROM visits WHERE visit_date BETWEEN '2024-02-01' AND '2025-01-05' GROUP BY 1)
SELECT ward, count(*) n FROM visits GROUP BY ward QUALIFY row_number() OVER (ORDER BY n DESC, ward) = 1
SELECT v.ward, w.beds, (SELECT max(beds) FROM wards) AS most, count(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY v.ward, w.beds ORDER BY 1
SELECT ward, (SELECT beds FROM wards w WHERE w.ward = v.ward) AS beds, count(*) FROM visits v GROUP BY ward
WITH a AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward), b AS (SELECT sum(n) AS t FROM a) SELECT ward, n / t FROM a, b
SELECT sum(CASE WHEN outcome = 'dead' THEN 1 ELSE 0 END), count_if(days > 3), count(*) FILTER (days > 3) FROM visits
SELECT corr(days, cost), covar_pop(days, cost), regr_slope(cost, days), regr_count(cost, days), regr_avgx(cost, days) FROM visits
SELECT avg(gap), count(gap) FROM (SELECT patient, visit_date - lag(visit_date) OVER (PARTITION BY patient ORDER BY visit_date, id) AS gap FROM visits)
SELECT count(*) FROM (SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY visit_date, id) = 1) f JOIN patients p ON p.id = f.patient WHERE sex = 'F'
SELECT p.*, 1 AS x FROM (SELECT ward, count(*) AS c FROM visits GROUP BY ward) p
SELECT count(*) FROM visits v WHERE EXISTS (SELECT 1 FROM labs l WHERE l.visit = v.id AND l.result > 400)
SELECT count(*) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM labs l WHERE l.visit = v.id AND l.result > 400)
SELECT count(*) FROM visits WHERE id NOT IN (SELECT visit FROM labs WHERE result > 400)
SELECT count(*) FROM labs l WHERE EXISTS (SELECT 1 FROM visits v WHERE v.id = l.visit AND v.days > 7)
SELECT count(*) FROM labs l WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.id = l.visit AND v.days > 7)
SELECT count(*) FROM labs WHERE visit IN (SELECT v.id FROM visits v JOIN patients p ON v.patient = p.id WHERE p.age > 50)
SELECT count(*) FROM labs WHERE visit NOT IN (SELECT id FROM visits WHERE days > 7) OR result > 400
SELECT count(*) FROM visits WHERE (patient, visit_date) IN (SELECT patient, max(visit_date) FROM visits GROUP BY patient)
SELECT count(*) FROM visits WHERE (ward, patient) IN (SELECT 'A', id FROM patients WHERE age > 50)
SELECT count(*) FROM visits WHERE (ward, days) IN (SELECT ward, beds FROM wards) AND days > 2
SELECT count(*) FROM visits WHERE (ward, days) IN (('A', 3), ('B', 4))
SELECT count(*) FROM visits WHERE (ward, days) NOT IN (('A', 3), ('B', 4))
SELECT ward, avg(n) FROM visits v JOIN (SELECT visit, count(*) n FROM labs GROUP BY visit) l ON l.visit = v.id GROUP BY ward
SELECT avg(n) FROM (SELECT visit, count(*) n FROM labs GROUP BY visit)
SELECT date_trunc('week', visit_date) w, count(*) FROM visits WHERE visit_date >= DATE '2025-01-01' AND visit_date < DATE '2025-01-01' + INTERVAL 90 DAY GROUP BY w
SELECT 'x' AS a, NULL AS b, count(*) FROM visits
SELECT ward FROM visits GROUP BY ward HAVING avg(days) > (SELECT min(beds) FROM wards) ORDER BY avg(days) DESC LIMIT 3
SELECT DISTINCT ward FROM visits ORDER BY ward
SELECT replace(ward, 'A', 'Z') AS w, count(*) FROM visits GROUP BY 1
SELECT count(*) FROM visits WHERE split_part(CAST(visit_date AS VARCHAR), '-', 2) = '03' AND split_part(ward, '.', 2) = ''
SELECT count(*) FROM visits WHERE regexp_extract(note, '([a-z])([a-z]*)', 2) <> ''
SELECT lpad(CAST(month(visit_date) AS VARCHAR), 2, '0') AS m, rpad(ward, 3, '.') AS w, count(*) FROM visits GROUP BY ALL
SELECT count(*) FROM visits WHERE regexp_replace(note, '[aeiou]', '', 'g') <> note
SELECT count(*) FROM visits WHERE visit_date + to_days(CAST(days AS INTEGER)) > DATE '2024-06-01'
SELECT count(*) FROM visits WHERE visit_date + INTERVAL (days) DAY > DATE '2024-06-01'
SELECT ward, count(*) n FROM visits GROUP BY GROUPING SETS ((ward), ()) ORDER BY ALL DESC NULLS LAST
WITH c AS (SELECT ward, count(*) n FROM visits GROUP BY ward) SELECT * FROM c ORDER BY ALL
SELECT ward, avg(m) FROM (SELECT patient, ward, max(days) m FROM visits GROUP BY ALL ORDER BY ALL) GROUP BY ward ORDER BY ALL
SELECT count(*) FROM visits v1 JOIN visits v2 ON v1.patient = v2.patient AND v1.id < v2.id WHERE v1.ward = 'A' AND v2.ward = 'B'
SELECT dayname(visit_date) d, count(*) FROM visits WHERE visit_date BETWEEN DATE '2024-03-01' AND DATE '2024-03-20' GROUP BY d
SELECT coalesce(building, 'none') AS b, count(*) FROM visits v LEFT JOIN wards w ON v.ward = w.ward AND w.beds > 6 GROUP BY b
SELECT sum(days * (1 - cost / 1100)) FROM visits
SELECT sex, round(avg(age), 1) FROM patients GROUP BY sex
SELECT ward IN ('A', 'B') AS ab, count(*) FROM visits GROUP BY 1
SELECT COALESCE(SUM(days), 0) AS s, concat('n=', CAST(count(*) AS VARCHAR)) AS c FROM visits WHERE ward LIKE 'A%' AND note NOT LIKE '%x%'
SELECT count(*) AS n FROM visits WHERE ward = 'A' UNION ALL SELECT count(*) FROM visits WHERE ward = 'B' ORDER BY n LIMIT 1
SELECT w.ward, coalesce(n, 0) FROM wards w LEFT JOIN (SELECT ward, count(*) n FROM visits WHERE days > 12 GROUP BY ward) v ON v.ward = w.ward
SELECT ward, sum(n) OVER (ORDER BY ward) AS running FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward) ORDER BY ward
SELECT list_transform([count(*), 1], lambda x: x + 1) FROM visits
SELECT count(*) + 1, -count(*), count(*)::DOUBLE / 2, sqrt(count(*)) FROM visits
SELECT x.ward, y.n FROM (VALUES ('A'), ('B')) x(ward) JOIN (SELECT ward, count(*) n FROM visits GROUP BY ward) y USING (ward)
SELECT ward, max(n) FROM (SELECT ward, outcome, count(*) n FROM visits GROUP BY ward, outcome) GROUP BY ward
SELECT count(*) FROM visits WHERE (ward, days) = ('A', 1)
SELECT i, count(*) FROM visits, range(3) r(i) WHERE days > i GROUP BY i
SELECT count(*) FROM visits WHERE 1 = 1 AND abs(days) BETWEEN 2 AND 7 AND true
SELECT sum(1), sum(0.05), count(CASE WHEN 2 > 1 THEN days END) FROM visits
SELECT count(*) FROM (SELECT t1.test AS p0, t1.result AS p1 FROM labs t1 WHERE lower(t1.test) <> 'a') t3 WHERE t3.p0 IS NOT NULL
SELECT count(*) FROM visits WHERE days % 3 NOT BETWEEN 1 AND 2
SELECT time_bucket(INTERVAL '2 weeks', visit_date) b, count(*) FROM visits WHERE visit_date BETWEEN DATE '2024-03-01' AND DATE '2024-08-20' GROUP BY b
SELECT time_bucket(INTERVAL '5 months', visit_date) b, count(*) FROM visits WHERE visit_date BETWEEN DATE '2024-03-01' AND DATE '2025-08-20' GROUP BY b
SELECT time_bucket(INTERVAL 3 DAY, CAST(visit_date AS TIMESTAMP)) b, count(*) FROM visits WHERE visit_date BETWEEN DATE '2024-03-01' AND DATE '2024-03-20' GROUP BY b
SELECT time_bucket(INTERVAL '6 hours', CAST(visit_date AS TIMESTAMP)) b, count(*) FROM visits GROUP BY b
SELECT c.month, count(*) FROM visits v JOIN calendar c ON c.month = date_trunc('month', v.visit_date) GROUP BY c.month
SELECT p.sex, v.ward, avg(l.result), count(*) FROM patients p JOIN visits v ON v.patient = p.id LEFT JOIN labs l ON l.visit = v.id GROUP BY p.sex, v.ward
SELECT sex, avg(n) FROM (SELECT p.sex, p.id, count(v.id) AS n FROM patients p LEFT JOIN visits v ON v.patient = p.id GROUP BY p.sex, p.id) GROUP BY sex
SELECT ward, avg(days) FROM (SELECT *, row_number() OVER (PARTITION BY patient ORDER BY visit_date DESC, id) AS rn FROM visits) WHERE rn = 1 GROUP BY ward
WITH v AS (SELECT patient, ward, days FROM visits WHERE days > 2), p AS (SELECT id, sex FROM patients) SELECT sex, ward, sum(days) FROM v JOIN p ON p.id = v.patient GROUP BY ALL
SELECT count(*) FROM patients WHERE id IN (SELECT patient FROM visits v JOIN wards w USING (ward) WHERE w.building = 'N' GROUP BY patient HAVING count(*) > 2)
SELECT CASE WHEN n > 5 THEN 'many' ELSE 'few' END AS what, count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) GROUP BY what
SELECT w.building, x.n FROM (SELECT building, sum(beds) b FROM wards GROUP BY building) w JOIN (SELECT building, count(*) n FROM visits JOIN wards USING (ward) GROUP BY building) x USING (building) ORDER BY 2
SELECT ward, count(*) AS n, round(100.0 * n / (SELECT sum(beds) FROM wards), 1) AS pct FROM visits GROUP BY ward
SELECT ward, outcome, count(*) FROM visits GROUP BY CUBE (ward, outcome) HAVING count(*) > 100 ORDER BY ward NULLS LAST, outcome
SELECT count(*) FROM (VALUES ('A'), ('B')) x(w) JOIN visits v ON v.ward = x.w
SELECT x.w, count(*) FROM (VALUES ('A'), ('B')) x(w) JOIN visits v ON v.ward = x.w GROUP BY x.w
SELECT sum(days) FILTER (WHERE ward = 'A') / sum(days) AS share FROM visits
SELECT ward, (SELECT count(*) FROM patients) AS all_patients, count(*) FROM visits GROUP BY ward
SELECT max(n), min(n), avg(n) FROM (SELECT ward, count(*) AS n FROM visits GROUP BY ward)
SELECT count_if(smoker) / count(smoker) AS share FROM patients
SELECT count(*) FILTER (WHERE cost % 7 > 2), count(*) FILTER (WHERE ln(cost + 1) > 2), sum(sqrt(days)) FROM visits
SELECT ward || '-' || outcome AS k, count(*) FROM visits GROUP BY 1
SELECT smoker, city, count(*) FROM patients WHERE city IN ('c1','c2') GROUP BY smoker, city
SELECT ward, count(*) AS visits, count(DISTINCT patient) AS people, count(*) / count(DISTINCT patient) AS per_head FROM visits GROUP BY ward
SELECT extract(month FROM visit_date) AS m, ward, sum(cost) FROM visits GROUP BY 1, 2 ORDER BY 1, 2
SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS grp, count(*), avg(days) FROM patients p JOIN visits v ON v.patient = p.id GROUP BY grp
SELECT p.sex, avg(l.result) FROM labs l, visits v, patients p WHERE l.visit = v.id AND v.patient = p.id AND l.test = 't1' GROUP BY p.sex
SELECT CASE WHEN n >= 4 THEN '4+' ELSE CAST(n AS VARCHAR) END AS k, count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) GROUP BY k
SELECT count(*) FROM patients WHERE id NOT IN (SELECT patient FROM visits WHERE ward = 'A')
SELECT count(*) FROM patients p LEFT JOIN visits v ON v.patient = p.id AND v.days > 12 WHERE v.id IS NULL
SELECT ward, 100.0 * count(*) / sum(count(*)) OVER () AS pct FROM visits GROUP BY ward ORDER BY pct DESC, ward
SELECT ward, rank() OVER (ORDER BY sum(cost) DESC) AS r, sum(cost) FROM visits GROUP BY ward
SELECT * FROM (SELECT ward, sum(cost) AS s, row_number() OVER (ORDER BY sum(cost) DESC) AS rn FROM visits GROUP BY ward) WHERE rn <= 2 ORDER BY rn
SELECT least(days, 7) AS width, count(*) FROM visits GROUP BY width ORDER BY width
SELECT w.building, w.beds, count(*) FROM visits v JOIN wards w USING (ward) GROUP BY w.building, w.beds
SELECT ward, count(*) FILTER (WHERE days > 7) AS long, count(*) FILTER (WHERE days <= 7) AS short FROM visits GROUP BY ward
SELECT ward, avg(CASE WHEN outcome = 'well' THEN 1.0 ELSE 0.0 END) AS rate FROM visits GROUP BY ward
WITH first AS (SELECT patient, min(visit_date) AS d FROM visits GROUP BY patient) SELECT year(d) = 2024 AS early, count(*) FROM first GROUP BY early ORDER BY early
WITH gaps AS (SELECT patient, visit_date - lag(visit_date) OVER (PARTITION BY patient ORDER BY visit_date) AS gap FROM visits) SELECT count(*) FROM gaps WHERE gap <= 90
SELECT count(DISTINCT a.patient) FROM visits a JOIN visits b ON a.patient = b.patient AND b.visit_date > a.visit_date AND b.visit_date <= a.visit_date + 30
SELECT ward, avg(cost) AS c FROM visits GROUP BY ward HAVING avg(cost) > 500 ORDER BY c DESC
SELECT ward, avg(cost) FROM visits v WHERE EXISTS (SELECT * FROM labs l WHERE l.visit = v.id AND l.test = 't1' AND l.result > 200) GROUP BY ward
SELECT test, count(*) FROM labs WHERE visit IN (SELECT id FROM visits WHERE ward = 'A') AND test IN ('t1', 't5') GROUP BY test
SELECT 'visits' AS what, count(*) AS n FROM visits UNION ALL SELECT 'labs', count(*) FROM labs UNION ALL SELECT 'patients', count(*) FROM patients
SELECT count(*) FROM visits WHERE ward != 'A' AND NOT (days BETWEEN 3 AND 5)
SELECT p.city, count(*) FROM patients p WHERE city IN ('c1', 'c2') AND (SELECT count(*) FROM visits v WHERE v.patient = p.id) >= 3 GROUP BY p.city
SELECT ward, sum(sum(cost)) OVER (ORDER BY ward) AS running FROM visits GROUP BY ward ORDER BY ward
SELECT ward, month(visit_date) AS m, count(*) AS n, n - lag(n) OVER (PARTITION BY ward ORDER BY m) AS change FROM visits WHERE visit_date < '2024-04-01' AND visit_date >= '2024-01-01' GROUP BY ward, m ORDER BY ward, m
SELECT avg(date_diff('year', DATE '1990-01-01', visit_date)), avg(date_part('month', age(visit_date, DATE '2020-01-01'))) FROM visits
SELECT count_if(result > 250) / count(*) FROM labs WHERE test ILIKE 'T1'
SELECT count(*) FROM visits WHERE ward IN (SELECT 'A') OR doctor = ANY(['Ann', 'Bob']) OR note LIKE '%!%' ESCAPE '!'
SELECT concat_ws('-', ward, doctor, days > 7) AS k, count(*) FROM visits WHERE doctor IN ('Ann', 'Bob') GROUP BY k
SELECT replace(ward, 'A', 'Ambulance') AS w, split(note, ' ')[2] = 'fall' AS f, count(*) FROM visits GROUP BY ALL
SELECT hour(visit_date::TIMESTAMP AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS h, count(*) FROM visits GROUP BY h
SELECT sex, count(*) FROM patients p SEMI JOIN visits v ON v.patient = p.id AND v.days > 12 GROUP BY sex
SELECT count(*) FROM patients p ANTI JOIN visits v ON v.patient = p.id AND v.ward = 'A'
SELECT ward, count(*) FROM visits SEMI JOIN (SELECT patient FROM visits WHERE days = 13) AS x USING (patient) GROUP BY ward
SELECT count(*) FROM visits v ANTI JOIN labs l ON l.visit = v.id AND l.result > 400
SELECT p.sex, count(*) FROM visits v SEMI JOIN labs l ON l.visit = v.id AND l.result > 400 JOIN patients p ON p.id = v.patient GROUP BY p.sex
SELECT count(*), sum(result) FROM labs SEMI JOIN visits ON visits.id = labs.visit AND days > 7
SELECT count(*) FROM visits NATURAL SEMI JOIN (SELECT ward FROM wards WHERE beds > 6) AS w
SELECT building, n FROM (SELECT w.building, count(*) n FROM visits ANTI JOIN (VALUES ('A')) x(ward) USING (ward) JOIN wards w USING (ward) GROUP BY 1) ORDER BY 1
SELECT count(*) FROM (patients p ANTI JOIN visits v ON v.patient = p.id AND v.ward = 'A') LEFT JOIN visits w ON w.patient = p.id
SELECT b, n FROM (SELECT building AS b, count(*) AS n FROM visits JOIN wards USING (ward) GROUP BY 1) SEMI JOIN wards ON b = building ORDER BY 1
SELECT count(*) FROM visits a JOIN visits b ON a.patient = b.patient AND (a.ward = b.ward OR a.days < b.days)
SELECT count(*), count(l.id) FROM visits v LEFT JOIN labs l ON l.visit = v.id AND (l.result > 400 OR l.test = 't1')
SELECT w.ward, count(v.id), sum(v.days), avg(v.cost) FROM wards w LEFT JOIN visits v ON v.ward = w.ward GROUP BY w.ward
SELECT w.ward, count(v.id), count(DISTINCT v.patient) FROM visits v RIGHT JOIN wards w ON v.ward = w.ward WHERE beds > 6 GROUP BY w.ward
SELECT w.ward, count(*) FILTER (WHERE v.days > 3), sum(CASE WHEN v.days > 3 THEN 1 ELSE 0 END) FROM wards w LEFT JOIN visits v USING (ward) GROUP BY w.ward
SELECT building, count(p.id) FROM wards w LEFT JOIN visits v ON v.ward = w.ward AND v.days > 3 LEFT JOIN patients p ON p.id = v.patient GROUP BY building
SELECT building, avg(p.age) FROM wards w LEFT JOIN (visits v JOIN patients p ON p.id = v.patient) ON v.ward = w.ward GROUP BY building
SELECT c.d, count(v.id) FROM (VALUES (DATE '2024-01-01'), (DATE '2024-01-08')) c(d) LEFT JOIN visits v ON v.visit_date = c.d GROUP BY c.d
"""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    found = hospital()
    yield found
    found.close()


@cases("sql", ANSWERED.strip().splitlines(), quick=7)
def test_a_split_means_what_the_query_says(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = split_of(con, sql)
    got = answered_exactly(con, found)
    assert plain(got) == plain(con.execute(sql).fetchall())


@cases(
    "asked",
    ["count(*)", "count(beds)", "count_if(v.id IS NULL)", "sum(coalesce(days, 1))", "sum(CASE WHEN days > 3 THEN 0 ELSE 1 END)",
     "sum(beds)", "avg(coalesce(days, 0))", "count(greatest(days, beds))", "count(*) FILTER (WHERE beds > 3)"],
)  # fmt: skip
def test_rows_of_nobody_are_not_counted(con: duckdb.DuckDBPyConnection, asked: str) -> None:
    source = "FROM wards w LEFT JOIN visits v ON v.ward = w.ward GROUP BY w.ward"
    with pytest.raises(SourceError, match="has rows of nobody"):
        split_of(con, f"SELECT w.ward, {asked} {source}")
    with pytest.raises(SourceError, match="has rows of nobody"):
        split_of(con, f"SELECT w.ward, count(v.id) {source} ORDER BY {asked}")


@pytest.mark.parametrize(
    "where", ["v.id IS NULL", "coalesce(days, 0) < 3", "days > 3 OR beds > 3", "days IS DISTINCT FROM 3"]
)
def test_conditions_do_not_keep_rows_of_nobody(con: duckdb.DuckDBPyConnection, where: str) -> None:
    with pytest.raises(SourceError, match="has rows of nobody"):
        split_of(
            con, f"SELECT w.ward, count(v.id) FROM wards w LEFT JOIN visits v USING (ward) WHERE {where} GROUP BY 1"
        )


@cases("sql", ANSWERED.strip().splitlines()[:20], quick=7)
def test_names_and_types_are_those_of_the_query(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = split_of(con, sql)
    answered_exactly(con, found)
    shown = [row[:2] for row in con.execute(f"DESCRIBE {found.post}").fetchall()]
    assert shown == [row[:2] for row in con.execute(f"DESCRIBE {sql}").fetchall()]


def test_equal_rows_and_keys_are_one_core(con: duckdb.DuckDBPyConnection) -> None:
    sql = """
        WITH d AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward)
        SELECT d.ward, e.s / d.n FROM d JOIN (SELECT ward, sum(days) AS s FROM visits GROUP BY ward) e USING (ward)
    """
    [core] = split_of(con, sql).cores
    assert [one.kind for one in core.aggregates] == ["rows", "sum"]


def test_order_limit_and_having_are_not_in_a_core(con: duckdb.DuckDBPyConnection) -> None:
    plain_one = split_of(con, "SELECT ward, count(*) AS n FROM visits GROUP BY ward")
    sorted_one = split_of(
        con, "SELECT WARD w, COUNT(*) c FROM visits GROUP BY 1 HAVING count(*) > 3 ORDER BY c LIMIT 2"
    )
    assert plain_one.cores == sorted_one.cores


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM visits LIMIT 0", "SELECT * FROM (SELECT * FROM visits) q WHERE 1 = 0", "SELECT 1",
            "SELECT ward, count(*) FROM visits WHERE false GROUP BY ward", "SELECT sum(beds) FROM wards"],
)  # fmt: skip
def test_what_reads_no_person_has_no_core(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = split_of(con, sql)
    assert not found.cores
    assert con.execute(f"DESCRIBE {found.post}").fetchall() == con.execute(f"DESCRIBE {sql}").fetchall()
    assert '"main"."visits"' not in found.post


def test_the_owner_comes_last_and_text_names_everything_in_full(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE OR REPLACE TEMP MACRO date_trunc(a, b) AS DATE '1900-01-01'")
    con.execute("CREATE OR REPLACE TEMP MACRO upper(a) AS 'captured'")
    sql = """
        SELECT upper(ward) AS w, count(*) AS n FROM visits
        WHERE date_trunc('month', visit_date) >= DATE '2024-02-01' GROUP BY w
    """
    found = split_of(con, sql)
    [core] = found.cores
    assert core.source.split(" FROM ")[0].endswith('AS "unit_of_row"')
    rows = answered_exactly(con, found)
    con.execute("DROP MACRO upper")
    con.execute("DROP MACRO date_trunc")
    assert plain(rows) == plain(con.execute(sql).fetchall())
