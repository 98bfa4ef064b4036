"""A hospital, a shop with a star of dimensions, taxi trips and web events, and what analysts ask of them.

The statements are in the dialects of several systems, and in the shapes of public benchmarks: stars, ratios of two
periods, ranks within groups, shares of a total, funnels, sessions. None was written with the splitter in mind.
"""

from __future__ import annotations

from typing import Any

from support.worlds import BUDGET

_HOSPITAL = """
    CREATE TABLE patients AS
      SELECT i AS id, ['F', 'M'][1 + i % 2] AS sex, CAST(hash(i, 'a') % 96 AS INTEGER) AS age,
        ['Bern', 'Basel', 'Genf'][1 + CAST(hash(i, 'c') % 3 AS INTEGER)] AS city, hash(i, 'k') % 4 = 0 AS smoker,
        DATE '1930-01-01' + CAST(hash(i, 'b') % 30000 AS INTEGER) AS born,
        CASE WHEN i % 4 = 0 THEN NULL ELSE CAST(hash(i, 'w') % 60 + 40 AS DOUBLE) END AS weight
      FROM range(120) AS r(i);
    CREATE TABLE visits AS
      SELECT i AS vid, i % 120 AS patient,
        ['ICU', 'ED', 'Surgery', 'Maternity'][1 + CAST(hash(i, 'w') % 4 AS INTEGER)] AS ward,
        TIMESTAMP '2025-01-01' + to_hours(CAST(i // 120 * 1000 + hash(i, 't') % 900 AS BIGINT)) AS admitted,
        TIMESTAMP '2025-01-01'
          + to_hours(CAST(i // 120 * 1000 + hash(i, 't') % 900 + hash(i, 'l') % 240 AS BIGINT)) AS discharged,
        CASE WHEN i % 9 = 0 THEN NULL ELSE ['home', 'transfer', 'died'][1 + CAST(hash(i, 'o') % 3 AS INTEGER)] END
          AS outcome,
        CAST(hash(i, 'c') % 100000 AS DECIMAL(12, 2)) / 10 AS cost
      FROM range(840) AS r(i);
    CREATE TABLE labs AS
      SELECT hash(i, 'v') % 840 AS visit, ['Na', 'K', 'Lac', 'Hb'][1 + i % 4] AS test,
        CAST(hash(i, 'x') % 1024 AS DOUBLE) / 128 AS value,
        CASE WHEN i % 6 = 0 THEN 'H' WHEN i % 7 = 0 THEN 'L' END AS flag
      FROM range(2400) AS r(i);
    CREATE TABLE wards AS
      SELECT * FROM (VALUES ('ICU', 12, 'A'), ('ED', 30, 'A'), ('Surgery', 40, 'B'), ('Maternity', 20, 'B'))
      AS v(ward, beds, building);
"""
_SHOP = """
    CREATE TABLE customers AS
      SELECT i AS cid, ['web', 'store'][1 + i % 2] AS channel,
        ['CH', 'DE', 'FR'][1 + CAST(hash(i, 'c') % 3 AS INTEGER)] AS country
      FROM range(100) AS r(i);
    CREATE TABLE orders AS
      SELECT i AS oid, hash(i, 'c') % 100 AS cid, CAST(hash(i, 'd') % 366 AS INTEGER) AS day_key,
        ['paid', 'open', 'cancelled'][1 + CAST(hash(i, 's') % 3 AS INTEGER)] AS status
      FROM range(700) AS r(i);
    CREATE TABLE lines AS
      SELECT hash(i, 'o') % 700 AS oid, CAST(hash(i, 'p') % 20 AS INTEGER) AS pid,
        CAST(1 + hash(i, 'q') % 5 AS INTEGER) AS qty, CAST(hash(i, 'u') % 5000 AS DECIMAL(10, 2)) / 100 AS unit_price
      FROM range(2000) AS r(i);
    CREATE TABLE products AS
      SELECT CAST(i AS INTEGER) AS pid, 'P' || i AS pname, ['toys', 'books', 'food'][1 + i % 3] AS category,
        CAST(10 + i AS DECIMAL(10, 2)) AS list_price
      FROM range(20) AS r(i);
    CREATE TABLE days AS
      SELECT CAST(i AS INTEGER) AS day_key, DATE '2024-01-01' + CAST(i AS INTEGER) AS day,
        CAST(quarter(DATE '2024-01-01' + CAST(i AS INTEGER)) AS INTEGER) AS qoy,
        dayname(DATE '2024-01-01' + CAST(i AS INTEGER)) AS day_name
      FROM range(366) AS r(i);
"""
_TRIPS = """
    CREATE TABLE trips AS
      SELECT hash(i, 'r') % 150 AS rider, ['CRD', 'CSH', 'DIS'][1 + CAST(hash(i, 'p') % 3 AS INTEGER)] AS payment_type,
        TIMESTAMP '2024-03-01' + to_minutes(CAST(hash(i, 't') % 44000 AS BIGINT)) AS pickup,
        TIMESTAMP '2024-03-01' + to_minutes(CAST(hash(i, 't') % 44000 + 1 + hash(i, 'l') % 90 AS BIGINT)) AS dropoff,
        CAST(hash(i, 'd') % 3840 AS DOUBLE) / 128 AS distance, CAST(hash(i, 'f') % 7680 AS DOUBLE) / 128 AS fare,
        CAST(hash(i, 'g') % 1280 AS DOUBLE) / 128 AS tip, CAST(hash(i, 'z') % 10 AS INTEGER) AS pu_zone,
        CAST(hash(i, 'y') % 10 AS INTEGER) AS do_zone, CAST(1 + hash(i, 'n') % 6 AS INTEGER) AS passengers
      FROM range(2000) AS r(i);
    CREATE TABLE zones AS
      SELECT CAST(i AS INTEGER) AS zid, ['Queens', 'Bronx'][1 + i % 2] AS borough FROM range(10) AS r(i);
    CREATE TABLE events AS
      SELECT 'u' || hash(i, 'u') % 90 AS user_id,
        ['view', 'click', 'buy'][1 + CAST(hash(i, 'e') % 3 AS INTEGER)] AS event,
        TIMESTAMP '2024-06-01' + to_seconds(CAST(i * 997 % 2500000 AS BIGINT)) AS ts,
        ['iOS', 'Android', 'web'][1 + CAST(hash(i, 'd') % 3 AS INTEGER)] AS device,
        CAST(hash(i, 'm') % 10000 AS INTEGER) AS ms, {'plan': ['pro', 'free'][1 + i % 2], 'n': i % 5} AS props
      FROM range(2400) AS r(i);
"""
PUBLIC = ("wards", "products", "days", "zones")


def analysts(con: Any) -> None:
    """Make and protect the tables; caps and budgets are above all that is asked."""
    con.execute(_HOSPITAL + _SHOP + _TRIPS)
    con.execute(f"""
        SELECT dp_protect('hospital', {BUDGET}, max_rows_per_unit := 300,
          keys := {{sex: ['F', 'M'], ward: ['ICU', 'ED', 'Surgery', 'Maternity'], test: ['Na', 'K', 'Lac', 'Hb'],
            city: ['Bern', 'Basel', 'Genf'], outcome: ['home', 'transfer', 'died']}},
          lower := {{age: 0, weight: 30, value: 0, cost: 0}}, upper := {{age: 120, weight: 200, value: 10, cost: 10000}},
          tables := {{patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'}})
    """)
    con.execute(f"""
        SELECT dp_protect('shop', {BUDGET}, max_rows_per_unit := 300,
          keys := {{channel: ['web', 'store'], country: ['CH', 'DE', 'FR'], status: ['paid', 'open', 'cancelled']}},
          lower := {{qty: 0, unit_price: 0}}, upper := {{qty: 5, unit_price: 50}},
          tables := {{customers: 'cid', orders: 'cid', lines: 'oid -> orders.oid'}})
    """)
    con.execute(f"""
        SELECT dp_protect('trips', {BUDGET}, max_rows_per_unit := 100, privacy_unit := 'rider',
          keys := {{payment_type: ['CRD', 'CSH', 'DIS']}},
          lower := {{distance: 0, fare: 0, tip: 0, passengers: 0, pu_zone: 0, do_zone: 0}},
          upper := {{distance: 30, fare: 60, tip: 10, passengers: 9, pu_zone: 9, do_zone: 9}})
    """)
    con.execute(f"""
        SELECT dp_protect('events', {BUDGET}, max_rows_per_unit := 300, privacy_unit := 'user_id',
          keys := {{event: ['view', 'click', 'buy'], device: ['iOS', 'Android', 'web']}},
          lower := {{ms: 0}}, upper := {{ms: 10000}})
    """)
    for table in PUBLIC:
        con.execute(f"SELECT dp_public('{table}')")


# What is answered: a name, the statement, and more arguments of the call.
ANSWERED: dict[str, tuple[str, str]] = {
    name: (sql, more)
    for name, sql, more in (
        # The hospital.
        ("casts", "SELECT ward, COUNT(*)::int AS n, round(AVG(cost)::numeric, 2) AS mean FROM visits GROUP BY ward "
         "ORDER BY n DESC NULLS LAST", ""),
        ("parts of dates", "SELECT date_part('year', admitted) AS y, date_part('month', admitted)::int AS m, count(*) "
         "FROM visits WHERE admitted >= '2025-01-01' AND admitted < '2026-01-01' GROUP BY 1, 2 ORDER BY 1, 2", ""),
        ("rate by weekday", "SELECT EXTRACT(dow FROM admitted) AS dow, COUNT(*) FILTER (WHERE outcome = 'died') AS d, "
         "COUNT(*) FILTER (WHERE outcome = 'died')::float / NULLIF(COUNT(*), 0) AS rate FROM visits GROUP BY dow", ""),
        ("length of stay", "SELECT ward, AVG(date_diff('hour', admitted, discharged)) AS los FROM visits GROUP BY ALL "
         "ORDER BY ALL", "lower := 0, upper := 240"),
        ("readmission", "WITH gaps AS (SELECT patient, admitted, LAG(discharged) OVER (PARTITION BY patient ORDER BY "
         "admitted) AS prev FROM visits) SELECT COUNT(*) FILTER (WHERE admitted - prev < INTERVAL 30 DAY) AS within_30, "
         "COUNT(*) AS n FROM gaps WHERE prev IS NOT NULL", ""),
        ("long stays", "SELECT avg(CASE WHEN outcome = 'died' THEN 1.0 ELSE 0.0 END) AS mortality FROM visits v JOIN "
         "patients p ON v.patient = p.id WHERE p.age > 50 AND v.discharged - v.admitted > INTERVAL '2 days'", ""),
        ("back within a week", "SELECT count(*) FROM visits a JOIN visits b ON a.patient = b.patient AND a.vid < b.vid "
         "AND b.admitted - a.discharged BETWEEN INTERVAL '0 days' AND INTERVAL '30 days'", ""),
        ("share of total", "SELECT CASE WHEN age < 18 THEN 'child' WHEN age BETWEEN 18 AND 64 THEN 'adult' ELSE 'senior' "
         "END AS age_group, COUNT(DISTINCT p.id) AS people, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct "
         "FROM patients p INNER JOIN visits v ON v.patient = p.id GROUP BY 1", ""),
        ("running total", "SELECT ward, month, SUM(n) OVER (PARTITION BY ward ORDER BY month ROWS BETWEEN UNBOUNDED "
         "PRECEDING AND CURRENT ROW) AS running FROM (SELECT ward, DATE_TRUNC('month', admitted)::date AS month, "
         "COUNT(*) AS n FROM visits WHERE admitted BETWEEN '2025-01-01' AND '2025-06-30' GROUP BY ward, month) t", ""),
        ("attributes of a key", "SELECT ward, min(ward) AS least, max(upper(ward)) AS most, any_value(ward) AS any, count(*) AS n "
         "FROM visits GROUP BY ward HAVING min(ward) = max(ward)", ""),
        ("attributes of sets", "SELECT ward, sex, CASE WHEN grouping(sex) = 0 THEN min(sex) END AS s, count(*) AS n FROM "
         "visits JOIN patients ON patient = id GROUP BY GROUPING SETS ((ward, sex))", ""),
        ("before each visit", "SELECT a.ward, count(*) AS n, count(b.vid) AS before, count(DISTINCT a.patient) AS people FROM "
         "visits a LEFT JOIN visits b ON b.patient = a.patient AND b.discharged >= a.admitted - INTERVAL '60' DAY AND "
         "b.discharged < a.admitted GROUP BY 1", ""),
        ("first day", "SELECT count(*) AS stays, avg(m) AS mean FROM (SELECT v.vid, max(o.cost) AS m FROM visits v LEFT JOIN "
         "visits o ON o.patient = v.patient AND o.admitted BETWEEN v.admitted - INTERVAL '6' HOUR AND v.admitted + INTERVAL "
         "'300' DAY AND o.vid <> v.vid GROUP BY v.vid)", "lower := {m: 0}, upper := {m: 10000}"),
        ("not seen again", "SELECT a.ward, count(*) AS n FROM visits a LEFT JOIN visits b ON a.patient = b.patient AND "
         "b.vid > a.vid WHERE b.vid IS NULL GROUP BY a.ward", ""),
        ("public ranges", "SELECT w.building, count(*) AS n FROM visits v LEFT JOIN wards w ON w.ward = v.ward AND w.beds > "
         "v.vid % 30 GROUP BY 1", ""),
        ("instead of NULL", "SELECT COALESCE(outcome, 'unknown') AS outcome, COUNT(*) AS n FROM visits GROUP BY 1", ""),
        ("a function of it", "SELECT lower(ifnull(outcome, 'Unknown')) AS o, COUNT(*) AS n FROM visits GROUP BY 1", ""),
        ("every ward", "SELECT w.ward, count(v.vid) AS n FROM wards w LEFT JOIN visits v ON v.ward = w.ward AND "
         "v.admitted < '2025-01-01' GROUP BY w.ward", ""),
        ("every building", "SELECT building, count(v.vid) AS n FROM visits v RIGHT JOIN wards w ON v.ward = w.ward AND "
         "w.beds > 100 GROUP BY building", ""),
        ("a spine of days", "SELECT d, count(v.vid) AS n FROM (SELECT unnest(range(DATE '2025-01-01', DATE '2025-01-08', "
         "INTERVAL 1 DAY))::DATE AS d) AS c LEFT JOIN visits v ON CAST(v.admitted AS DATE) = c.d GROUP BY d", ""),
        ("beds of every ward", "SELECT w.ward, w.beds, building, count(v.vid) AS n FROM wards w LEFT JOIN visits v ON v.ward = "
         "w.ward GROUP BY ALL", ""),
        ("months that occur", "SELECT month(admitted) AS m, dayname(admitted) AS d, count(*) AS n FROM visits WHERE admitted "
         ">= '2025-01-01' AND admitted < '2025-03-01' GROUP BY ALL", ""),
        ("a list", "SELECT count(*) AS n FROM visits WHERE ward IN ['ICU', 'ED'] OR outcome = ANY(['died'])", ""),
        ("a text", "SELECT concat_ws(', ', ward, outcome) AS t, count(*) AS n FROM visits WHERE outcome IN ('home', 'died') "
         "AND ward LIKE '!E%' ESCAPE '!' GROUP BY t", ""),
        ("local time", "SELECT hour(admitted AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Zurich') AS h, count(*) AS n FROM visits "
         "GROUP BY h", ""),
        ("age at a stay", "SELECT avg(date_part('year', age(admitted, born))) AS a, count(*) FILTER (age(admitted, born) > "
         "INTERVAL '65 years') AS old FROM visits JOIN patients ON id = patient", "lower := 0, upper := 128"),
        ("cleaned", "SELECT replace(regexp_replace(ward, 'E.$', 'Emergency'), 'Surgery', 'Operation room') AS w, count(*) AS n "
         "FROM visits GROUP BY w", ""),
        ("a semi join", "SELECT ward, count(*) AS n FROM visits SEMI JOIN patients ON id = patient AND smoker GROUP BY ward",
         ""),
        ("never in the ICU", "SELECT COUNT(*) FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = "
         "p.id AND v.ward ILIKE '%icu%')", ""),
        ("labs per visit", "SELECT AVG(n_labs) AS n FROM (SELECT v.vid, COUNT(l.visit) AS n_labs FROM visits v LEFT JOIN "
         "labs l ON l.visit = v.vid GROUP BY v.vid) t", "lower := {n_labs: 0}, upper := {n_labs: 20}"),
        ("last ward", "SELECT ward, COUNT(*) AS n FROM (SELECT * FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY "
         "patient ORDER BY admitted DESC, vid) = 1) GROUP BY ward", ""),
        ("commonest outcome", "SELECT DISTINCT ON (ward) ward, outcome FROM (SELECT ward, outcome, COUNT(*) AS n FROM "
         "visits GROUP BY ward, outcome) x ORDER BY ward, n DESC", ""),
        ("rank within a parent", "SELECT ward, sex, sum(cost) AS c, grouping(ward) + grouping(sex) AS level, rank() OVER "
         "(PARTITION BY grouping(ward) + grouping(sex), CASE WHEN grouping(sex) = 0 THEN ward END ORDER BY sum(cost) "
         "DESC) AS r FROM visits, patients WHERE patient = id GROUP BY ROLLUP (ward, sex) ORDER BY level DESC, CASE "
         "WHEN grouping(ward) + grouping(sex) = 0 THEN ward END, r", ""),
        ("totals first", "SELECT ward, count(*) AS n FROM visits GROUP BY ROLLUP (ward) ORDER BY grouping(ward) DESC, "
         "n DESC", ""),
        ("a part of its building", "SELECT building, v.ward, count(*) AS n, sum(count(*)) OVER (PARTITION BY building) AS "
         "whole FROM visits v NATURAL JOIN wards GROUP BY ROLLUP (building, ward) HAVING grouping(building) = 0", ""),
        ("largest of all sets", "SELECT ward, sex FROM visits JOIN patients ON patient = id GROUP BY CUBE (ward, sex) "
         "QUALIFY row_number() OVER (ORDER BY count(*) DESC) = 1", ""),
        ("values beside answers", "SELECT o.outcome, coalesce(x.n, 0) AS n FROM (VALUES ('home'), ('died'), ('other')) AS "
         "o(outcome) LEFT JOIN (SELECT outcome, count(*) AS n FROM visits GROUP BY outcome) x USING (outcome)", ""),
        ("two halves", "WITH a AS (SELECT ward, count(*) AS n FROM visits WHERE admitted < '2025-07-01' GROUP BY ward), b "
         "AS (SELECT ward, count(*) AS n FROM visits WHERE admitted >= '2025-07-01' GROUP BY ward) SELECT "
         "coalesce(a.ward, b.ward) AS ward, (b.n - a.n)::double / a.n AS change FROM a FULL OUTER JOIN b ON "
         "a.ward = b.ward ORDER BY change DESC NULLS LAST", ""),
        ("months of a spine", "WITH spine AS (SELECT unnest(generate_series(DATE '2025-01-01', DATE '2025-03-01', INTERVAL "
         "1 MONTH)) AS m), c AS (SELECT date_trunc('month', admitted) AS m, count(*) AS n FROM visits WHERE admitted >= "
         "'2025-01-01' AND admitted < '2025-04-01' GROUP BY 1) SELECT spine.m, coalesce(c.n, 0) AS n FROM spine "
         "LEFT JOIN c ON c.m = spine.m ORDER BY 1", ""),
        ("written months", "SELECT strftime(admitted, '%Y-%m') AS m, count(*) AS n FROM visits WHERE admitted >= "
         "'2025-01-01' AND admitted < '2025-07-01' GROUP BY 1 ORDER BY 1", ""),
        ("greatest lab", "SELECT count(*) FROM visits v WHERE (SELECT max(l.value) FROM labs l WHERE l.visit = v.vid AND "
         "l.test = 'Lac') > 4", ""),
        ("not among", "SELECT ward, count(*) AS n FROM visits WHERE patient NOT IN (SELECT patient FROM visits WHERE "
         "outcome = 'died') GROUP BY ward", ""),
        ("first stays", "SELECT ward, count(*) AS n FROM (SELECT DISTINCT ON (patient) patient, ward FROM visits ORDER BY "
         "patient, admitted, vid) GROUP BY ward", ""),
        ("DISTINCT ON places and names", "SELECT avg(c) AS m FROM (SELECT DISTINCT ON (1, w) patient, ward AS w, cost AS c FROM "
         "visits ORDER BY 1, 2, admitted DESC)", "lower := {c: 0}, upper := {c: 16384}"),
        ("the ward of most stays", "SELECT ward, count(*) AS n FROM (SELECT DISTINCT ON (patient) patient, ward, count(*) AS k "
         "FROM visits GROUP BY patient, ward ORDER BY patient, k DESC, ward) GROUP BY ward", ""),
        ("the outcome of most stays", "SELECT DISTINCT ON (ward) ward, outcome, count(*) AS n FROM visits GROUP BY ward, "
         "outcome ORDER BY ward, n DESC", ""),
        ("a part without a name", "SELECT outcome, count(*) / 2 AS s FROM visits WHERE outcome IN ('home', 'died') GROUP BY "
         "outcome UNION ALL SELECT 'all', count(*) / (SELECT sum(beds) FROM wards) FROM visits", ""),
        ("united people", "SELECT count(*) AS n FROM (SELECT id AS who FROM patients WHERE smoker UNION SELECT patient FROM "
         "visits WHERE ward = 'ICU' UNION SELECT patient FROM visits WHERE outcome = 'died')", ""),
        ("united rows", "WITH a AS (SELECT patient, ward FROM visits WHERE cost > 500 UNION SELECT patient, ward FROM visits "
         "WHERE outcome = 'died') SELECT ward, count(*) AS n FROM a GROUP BY ward", ""),
        # The shop: a star with a dimension of days.
        ("star", "SELECT qoy, category, sum(qty * unit_price) AS revenue FROM orders, lines, products, days WHERE "
         "orders.oid = lines.oid AND lines.pid = products.pid AND orders.day_key = days.day_key AND status = 'paid' "
         "GROUP BY qoy, category ORDER BY qoy, revenue DESC", ""),
        ("dimension by OR", "SELECT count(*) AS n, sum(qty) AS units FROM orders, lines, products, days WHERE orders.oid = "
         "lines.oid AND orders.day_key = days.day_key AND ((lines.pid = products.pid AND category = 'toys' AND qty "
         "BETWEEN 1 AND 3) OR (lines.pid = products.pid AND category = 'food' AND qty BETWEEN 2 AND 5)) AND qoy = 2", ""),
        ("weekdays side by side", "SELECT category, sum(CASE WHEN day_name = 'Sunday' THEN qty ELSE 0 END) AS sun, sum(CASE "
         "WHEN day_name = 'Monday' THEN qty ELSE 0 END) AS mon FROM orders JOIN lines USING (oid) JOIN products USING "
         "(pid) JOIN days USING (day_key) GROUP BY category ORDER BY category LIMIT 100", ""),
        ("buckets beside each other", "SELECT * FROM (SELECT count(*) AS few FROM lines WHERE qty < 3) a, (SELECT count(*) "
         "AS many FROM lines WHERE qty >= 3) b", ""),
        ("case of averages", "SELECT CASE WHEN (SELECT count(*) FROM lines WHERE qty BETWEEN 1 AND 2) > 100 THEN (SELECT "
         "avg(unit_price) FROM lines WHERE qty BETWEEN 1 AND 2) ELSE 0 END AS bucket", ""),
        ("quarter over quarter", "WITH q AS (SELECT category, qoy, sum(qty) AS s FROM orders JOIN lines USING (oid) JOIN "
         "products USING (pid) JOIN days USING (day_key) GROUP BY ALL) SELECT a.category, b.s / a.s AS growth FROM q a, q b "
         "WHERE a.category = b.category AND a.qoy = 1 AND b.qoy = 2 ORDER BY a.category", ""),
        ("deviation from the mean", "SELECT category, qoy, s, avg(s) OVER (PARTITION BY category) AS mean FROM (SELECT "
         "category, qoy, sum(qty) AS s FROM orders JOIN lines USING (oid) JOIN products USING (pid) JOIN days USING "
         "(day_key) GROUP BY 1, 2) WHERE s > 0 QUALIFY abs(s - mean) / mean > 0.01", ""),
        ("tiers", "WITH ltv AS (SELECT o.cid, SUM(l.qty * l.unit_price) AS total FROM orders o JOIN lines l ON l.oid = o.oid "
         "GROUP BY o.cid) SELECT CASE WHEN total > 1500 THEN 'gold' ELSE 'silver' END AS tier, COUNT(*) AS customers, "
         "AVG(total) AS mean FROM ltv GROUP BY tier", "lower := {total: 0}, upper := {total: 8000}"),
        ("pairs in a basket", "SELECT a.category AS c1, b.category AS c2, COUNT(*) AS n FROM lines x JOIN lines y ON x.oid = "
         "y.oid AND x.pid < y.pid JOIN products a ON a.pid = x.pid JOIN products b ON b.pid = y.pid GROUP BY 1, 2",
         "max_rows_per_unit := 2000"),
        ("without orders", "SELECT count(*) AS n FROM customers c LEFT JOIN orders o ON c.cid = o.cid WHERE o.oid IS NULL",
         ""),
        ("totals by UNION", "SELECT country, channel, COUNT(*) AS n FROM customers GROUP BY country, channel UNION ALL "
         "SELECT country, NULL, COUNT(*) FROM customers GROUP BY country ORDER BY 1, 2 NULLS LAST", ""),
        ("pattern", "SELECT status, COUNT(*) AS n FROM orders WHERE status SIMILAR TO '(paid|open)' GROUP BY status", ""),
        # Trips and events.
        ("quarters of an hour", "SELECT time_bucket(INTERVAL '15 minutes', pickup) AS b, count(*) AS n FROM trips WHERE "
         "pickup >= '2024-03-10' AND pickup < '2024-03-11' GROUP BY b", ""),
        ("ends of buckets", "SELECT time_bucket(INTERVAL '1 second', pickup + INTERVAL '999999 microseconds') AS b, count(*) "
         "AS n FROM trips WHERE pickup + INTERVAL '999999 microseconds' BETWEEN '2024-03-10 10:00:00' AND '2024-03-10 "
         "10:20:00' GROUP BY b", ""),
        ("speed by hour", "SELECT EXTRACT(HOUR FROM pickup) AS hr, AVG(distance / (EXTRACT(EPOCH FROM (dropoff - pickup)) / "
         "3600)) AS mph FROM trips WHERE dropoff > pickup GROUP BY hr", "lower := 0, upper := 2000"),
        ("from and to", "SELECT pz.borough AS f, dz.borough AS t, COUNT(*) AS n, AVG(distance) AS d FROM trips JOIN zones pz "
         "ON pz.zid = pu_zone JOIN zones dz ON dz.zid = do_zone GROUP BY 1, 2 ORDER BY n DESC", ""),
        ("moving average", "SELECT CAST(pickup AS DATE) AS day, avg(sum(fare + tip)) OVER (ORDER BY CAST(pickup AS DATE) ROWS "
         "BETWEEN 6 PRECEDING AND CURRENT ROW) AS ma7 FROM trips WHERE pickup >= '2024-03-01' AND pickup < '2024-03-20' "
         "GROUP BY 1", ""),
        ("rounded distances", "SELECT passengers, ROUND(distance) AS d, COUNT(*) AS n FROM trips GROUP BY 1, 2", ""),
        ("busiest zones", "SELECT pu_zone, count(*) AS n FROM trips GROUP BY pu_zone QUALIFY rank() OVER (ORDER BY n DESC) "
         "<= 3", ""),
        ("sessions", "WITH s AS (SELECT user_id, CASE WHEN ts - LAG(ts) OVER (PARTITION BY user_id ORDER BY ts) > INTERVAL "
         "30 MINUTE OR LAG(ts) OVER (PARTITION BY user_id ORDER BY ts) IS NULL THEN 1 ELSE 0 END AS fresh FROM events) "
         "SELECT SUM(fresh) AS sessions FROM s", ""),
        ("funnel", "WITH f AS (SELECT user_id, bool_or(event = 'view') AS v, bool_or(event = 'click') AS c, bool_or(event = "
         "'buy') AS b FROM events GROUP BY user_id) SELECT count(*) FILTER (v) AS v, count(*) FILTER (v AND c) AS c, "
         "count(*) FILTER (v AND c AND b) AS b FROM f", ""),
        ("field of a struct", "SELECT props.plan AS plan, avg(ms) AS ms FROM events WHERE props.plan IN ('pro', 'free') "
         "GROUP BY 1", ""),
        ("minutes as text", "SELECT strftime('%H:%M', ts) AS m, count(*) AS n FROM events WHERE ts BETWEEN "
         "'2024-06-03 10:00:00' AND '2024-06-03 12:00:00' GROUP BY 1", ""),
        ("above the mean", "SELECT device, avg(ms) - (SELECT avg(ms) FROM events) AS diff FROM events GROUP BY device", ""),
    )
}  # fmt: skip

# What is refused: the statement, its code, words of the message, and the statement that the message asks for.
REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("SELECT count(*) FROM visits a LEFT JOIN visits b ON b.admitted < a.admitted", "S012", "not joined by the person",
     "SELECT count(*) FROM visits a LEFT JOIN visits b ON b.patient = a.patient AND b.admitted < a.admitted"),
    ("SELECT count(*) FROM visits a LEFT JOIN visits b ON b.patient >= a.patient AND b.patient <= a.patient", "S012",
     "not joined by the person", "SELECT count(*) FROM visits a LEFT JOIN visits b ON b.patient = a.patient"),
    ("SELECT a.ward, count(b.vid) FROM visits a LEFT JOIN visits b ON b.patient = a.patient AND (b.admitted < a.admitted "
     "OR b.ward = a.ward) GROUP BY 1", "P101", "Write the rest into CASE",
     "SELECT a.ward, count(CASE WHEN b.admitted < a.admitted OR b.ward = a.ward THEN b.vid END) FROM visits a LEFT JOIN "
     "visits b ON b.patient = a.patient GROUP BY 1"),
    ("SELECT max(city) FROM patients", "P106", "GROUP BY city",
     "SELECT max(city) FROM (SELECT city, count(*) AS n FROM patients GROUP BY city)"),
    ("SELECT min(born) FROM patients", "P106", "quantile_cont(epoch(born), 0.01)",
     "SELECT quantile_cont(epoch(born), 0.01) FROM patients"),
    ("SELECT max(age) FROM patients", "P106", "quantile_cont(age, 0.99)", "SELECT quantile_cont(age, 0.99) FROM patients"),
    ("SELECT p.city, count(*) FROM patients p, LATERAL (SELECT count(*) AS n FROM visits v WHERE v.patient = p.id) x "
     "WHERE x.n > 3 GROUP BY p.city", "P101", "LATERAL",
     "SELECT p.city, count(*) FROM patients p JOIN (SELECT patient, count(*) AS n FROM visits GROUP BY patient) x "
     "ON x.patient = p.id WHERE x.n > 3 GROUP BY p.city"),
    ("SELECT iff(age >= 65, 'old', 'young') AS g, count(*) FROM patients GROUP BY 1", "P101", "Did you mean if?",
     "SELECT if(age >= 65, 'old', 'young') AS g, count(*) FROM patients GROUP BY 1"),
    ("SELECT safe_divide(sum(cost), count(*)) FROM visits", "P101", "Did you mean a / b, which is NULL where b is 0?",
     "SELECT sum(cost) / count(*) FROM visits"),
    ("SELECT time_bucket(INTERVAL '6 hours', ts::TIMESTAMPTZ) AS b, count(*) FROM events GROUP BY b", "P070",
     "Cast to TIMESTAMP",
     "SELECT time_bucket(INTERVAL '6 hours', ts) AS b, count(*) FROM events WHERE ts >= '2024-06-03' AND "
     "ts < '2024-06-05' GROUP BY b"),
    ("SELECT sex, count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.ward = p.city) GROUP BY sex",
     "S012", "'visits'",
     "SELECT sex, count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id) GROUP BY sex"),
    ("SELECT v.outcome, count(*) FROM (VALUES ('home'), ('died')) AS o(outcome) LEFT JOIN visits v USING (outcome) "
     "GROUP BY 1", "S012", "LEFT JOIN",
     "SELECT o.outcome, x.n FROM (VALUES ('home'), ('died')) AS o(outcome) LEFT JOIN (SELECT outcome, count(*) AS n "
     "FROM visits GROUP BY outcome) x USING (outcome)"),
    ("SELECT ward, mode() WITHIN GROUP (ORDER BY outcome) FROM visits GROUP BY ward", "P106", "mode",
     "SELECT ward, outcome, count(*) FROM visits GROUP BY ward, outcome"),
    ("SELECT p.id, count(*) AS n FROM patients p JOIN visits v ON v.patient = p.id GROUP BY p.id ORDER BY n DESC LIMIT 9",
     "P102", "a row for each person",
     "SELECT avg(n) FROM (SELECT p.id, count(*) AS n FROM patients p JOIN visits v ON v.patient = p.id GROUP BY p.id)"),
    ("WITH t AS (SELECT cid, day_key, count(*) AS n FROM orders GROUP BY ALL) SELECT count(*) FROM t a WHERE a.n > "
     "(SELECT avg(n) FROM t b WHERE a.day_key = b.day_key)", "P105", "two queries",
     "WITH t AS (SELECT cid, day_key, count(*) AS n FROM orders GROUP BY ALL) SELECT count(*) FROM t a WHERE a.n > 1.2"),
    ("SELECT count(*) FROM (SELECT DISTINCT ON (ward) patient, ward FROM visits ORDER BY ward, admitted)", "P103",
     "DISTINCT ON (person, ...)", "SELECT count(*) FROM (SELECT DISTINCT ON (patient, ward) patient, ward FROM visits ORDER BY "
     "patient, ward, admitted)"),
    ("SELECT DISTINCT ON (patient) patient, ward FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY "
     "admitted) < 3", "P103", "QUALIFY in a subquery",
     "SELECT count(*) FROM (SELECT DISTINCT ON (patient) patient, ward FROM (SELECT * FROM visits QUALIFY row_number() "
     "OVER (PARTITION BY patient ORDER BY admitted, vid) < 3) ORDER BY patient, ward)"),
    ("SELECT count(*) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY 1) a FULL JOIN (SELECT id AS patient, age "
     "FROM patients WHERE smoker) b USING (patient)", "P103", "FROM people LEFT JOIN a USING (person)",
     "SELECT count(*) FROM patients p LEFT JOIN (SELECT patient, count(*) AS n FROM visits GROUP BY 1) a ON a.patient = "
     "p.id LEFT JOIN (SELECT id AS patient, age FROM patients WHERE smoker) b ON b.patient = p.id WHERE n > 0 OR "
     "b.age IS NOT NULL"),
    ("SELECT count(*) FROM visits a ASOF JOIN visits b ON a.patient = b.patient AND a.admitted > b.admitted", "P103",
     "row_number() OVER (PARTITION BY person, id ORDER BY time DESC)",
     "SELECT count(*) FROM (SELECT a.patient, a.vid FROM visits a JOIN visits b ON a.patient = b.patient AND a.admitted > "
     "b.admitted QUALIFY row_number() OVER (PARTITION BY a.patient, a.vid ORDER BY b.admitted DESC) = 1)"),
    ("SELECT count(*) FROM visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE b.patient = a.patient AND b.admitted > "
     "a.discharged AND b.admitted < a.discharged + INTERVAL 30 DAY)", "P107", "SELECT DISTINCT a.person, a.id FROM a JOIN b",
     "SELECT count(*) FROM (SELECT DISTINCT a.patient, a.vid FROM visits a JOIN visits b ON b.patient = a.patient AND "
     "b.admitted > a.discharged AND b.admitted < a.discharged + INTERVAL 30 DAY)"),
    ("SELECT w, count(*) FROM (SELECT patient, arg_max(ward, admitted) AS w FROM visits GROUP BY patient) GROUP BY w",
     "P104", "QUALIFY row_number()",
     "SELECT ward, count(*) FROM (SELECT patient, ward FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY "
     "admitted DESC) = 1) GROUP BY ward"),
    ("SELECT count(DISTINCT (patient, ward)) FROM visits", "P070", "SELECT DISTINCT a, b",
     "SELECT count(*) FROM (SELECT DISTINCT patient, ward FROM visits)"),
    ("SELECT count(*) FROM (SELECT id FROM patients EXCEPT SELECT patient FROM visits)", "P103", "NOT EXISTS by the person",
     "SELECT count(*) FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id)"),
    ("UNPIVOT (SELECT count(*) AS n, avg(age) AS age FROM patients) ON n, age", "P101", "UNION ALL",
     "SELECT 'n' AS name, count(*) AS value FROM patients UNION ALL SELECT 'age', avg(age) FROM patients"),
)  # fmt: skip
