-- Plain SQL in, private answers out: a dashboard of a hospital, asked as it stands.
CREATE TABLE patients AS
  SELECT i AS id, 20 + i % 70 AS age, ['F', 'M'][1 + i % 2] AS sex FROM range(5000) AS r(i);
CREATE TABLE visits AS
  SELECT i AS vid, (i * 7919) % 5000 AS patient, ['A', 'B', 'C'][1 + i % 3] AS ward, i % 14 AS days,
    i % 11 = 0 AS returned, DATE '2026-01-01' + CAST(i % 300 AS INTEGER) AS visit_date
  FROM range(15000) AS r(i);
CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 20), ('B', 35), ('C', 15)) AS v(ward, beds);

-- Once: whose the rows are, and what is public.
SELECT dp_protect('hospital', epsilon := 5, delta := 1e-6, max_rows_per_unit := 5,
  tables := {patients: 'id', visits: 'patient'}, keys := {ward: ['A', 'B', 'C'], sex: ['F', 'M']},
  lower := {age: 0, days: 0}, upper := {age: 120, days: 30});
SELECT dp_public('wards');

-- A tile of a dashboard: a join, a condition, groups, and an order.
FROM dp_query($$
  SELECT ward, count(*) AS n, avg(days) AS mean FROM visits JOIN patients ON patient = id
  WHERE age >= 65 GROUP BY ward HAVING count(*) > 10 ORDER BY mean DESC $$, epsilon := 0.5);

-- Sorted in another way it is the same answer, which is free.
FROM dp_query($$
  SELECT ward, count(*) AS visits, avg(days) AS average FROM visits JOIN patients ON patient = id
  WHERE age >= 65 GROUP BY ward ORDER BY ward $$, epsilon := 0.5);

-- A series: the months of the WHERE, also those without rows.
FROM dp_query($$
  SELECT date_trunc('month', visit_date) AS month, count(DISTINCT patient) AS people FROM visits
  WHERE visit_date >= DATE '2026-01-01' AND visit_date < DATE '2026-11-01' GROUP BY 1 ORDER BY 1 $$, epsilon := 0.5);

-- A share of what was counted, beside a public table.
FROM dp_query($$
  WITH of_ward AS (SELECT ward, count(*) AS n, count(*) FILTER (WHERE returned) AS again FROM visits GROUP BY ward)
  SELECT ward, again / n AS share, n / beds AS per_bed FROM of_ward JOIN wards USING (ward) ORDER BY ward $$,
  epsilon := 0.5);

-- With errors and verdicts.
FROM dp_query('SELECT sex, avg(age) AS mean FROM patients GROUP BY sex', epsilon := 0.5, max_rows_per_unit := 1,
  errors := true);

SELECT dataset, releases, spent, remaining FROM dp_budget();
