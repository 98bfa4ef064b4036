-- What a query becomes: `test_query_texts.py` compares each. A core in WITH lists its keys, its aggregates and its rows.
-- Plain names are written without quotes, and functions without `system.main`.

-- Keys are declared. HAVING, ORDER BY and LIMIT run over the answer.
SELECT ward, count(*) AS n, avg(days) AS a FROM visits WHERE days > 3 GROUP BY ward HAVING count(*) > 5 ORDER BY n DESC LIMIT 2;
WITH __dp_0(k0 among [A, B, C, D], a0: rows, a1: avg of t0 in [3, 365]) AS (
  SELECT a0.ward AS k0, a0.days AS t0, a0.patient AS unit_of_row FROM visits AS a0 WHERE (a0.days > 3)
)
SELECT __dp_0.k0 AS ward, __dp_0.a0 AS n, __dp_0.a1 AS a FROM __dp_0 AS __dp_0 WHERE (__dp_0.a0 > 5) ORDER BY 2 DESC LIMIT 2;

-- A literal list in WHERE gives the keys. A condition that may fail for a row is computed in a lambda with TRY.
SELECT doctor, sum(cost) AS s FROM visits WHERE doctor IN ('Ann', 'Bob') AND cost / days < 9 GROUP BY doctor;
WITH __dp_0(k0 among [Ann, Bob], a0: sum of t0) AS (
  SELECT a0.doctor AS k0, a0.cost AS t0, a0.patient AS unit_of_row FROM visits AS a0 WHERE list_extract(list_transform(list_value(struct_pack(c0 := a0.doctor, c1 := a0.cost, c2 := a0.days)), lambda dpsql_one: TRY((((struct_extract(dpsql_one, 'c0') COLLATE C) IN (('Ann' COLLATE C), ('Bob' COLLATE C))) AND (("*"("/"(struct_extract(dpsql_one, 'c1'), CASE WHEN CAST(struct_extract(dpsql_one, 'c2') AS DOUBLE) = 0 THEN 1::DOUBLE ELSE CAST(struct_extract(dpsql_one, 'c2') AS DOUBLE) END), CASE WHEN CAST(struct_extract(dpsql_one, 'c2') AS DOUBLE) = 0 THEN CASE WHEN signbit(CAST(struct_extract(dpsql_one, 'c2') AS DOUBLE)) THEN '-inf'::DOUBLE ELSE 'inf'::DOUBLE END ELSE 1::DOUBLE END)) < CAST(9 AS DOUBLE))))), 1)
)
SELECT __dp_0.k0 AS doctor, __dp_0.a0 AS s FROM __dp_0 AS __dp_0;

-- Dates between literals give the months.
SELECT month(visit_date) AS m, count(*) AS n FROM visits WHERE visit_date BETWEEN '2024-01-05' AND '2024-03-31' GROUP BY m;
WITH __dp_0(k0 among [SELECT DISTINCT list_extract(list_transform(list_value(struct_pack(c0 := k0.v)), lambda dpsql_one: TRY((month(struct_extract(dpsql_one, 'c0'))))), 1) AS v FROM (SELECT CAST(d AS DATE) AS v FROM (SELECT unnest(list_concat(generate_series(CAST(TRY(CAST('2024-01-05' AS TIMESTAMP)) AS TIMESTAMP), CAST(TRY(CAST('2024-03-31' AS TIMESTAMP)) AS TIMESTAMP), CAST('1 day' AS INTERVAL)), list_value(CAST(TRY(CAST('2024-03-31' AS TIMESTAMP)) AS TIMESTAMP)))) AS d) WHERE d >= CAST(TRY(CAST('2024-01-05' AS TIMESTAMP)) AS TIMESTAMP) AND d <= CAST(TRY(CAST('2024-03-31' AS TIMESTAMP)) AS TIMESTAMP)) AS k0], a0: rows) AS (
  SELECT list_extract(list_transform(list_value(struct_pack(c0 := a0.visit_date)), lambda dpsql_one: TRY((month(struct_extract(dpsql_one, 'c0'))))), 1) AS k0, a0.patient AS unit_of_row FROM visits AS a0 WHERE ((a0.visit_date >= CAST('2024-01-05' AS DATE)) AND (a0.visit_date <= CAST('2024-03-31' AS DATE)))
)
SELECT __dp_0.k0 AS m, __dp_0.a0 AS n FROM __dp_0 AS __dp_0;

-- A public table gives the keys. Its rows join by the declared key.
SELECT building, count(*) AS n FROM visits JOIN wards USING (ward) GROUP BY building;
WITH __dp_0(k0 among [SELECT DISTINCT a1.building FROM wards AS a1], a0: rows) AS (
  SELECT a1.building AS k0, a0.patient AS unit_of_row FROM visits AS a0 JOIN wards AS a1 ON encode(a0.ward) = encode(a1.ward)
)
SELECT __dp_0.k0 AS building, __dp_0.a0 AS n FROM __dp_0 AS __dp_0;

-- NOT EXISTS becomes a LEFT JOIN with one row for each person.
SELECT count(*) AS n FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.id AND v.days > 9);
WITH __dp_0(a0: rows) AS (
  SELECT a0.id AS unit_of_row FROM patients AS a0 LEFT JOIN (SELECT g0, unit_of_row FROM (SELECT b0.patient AS g0, b0.patient AS unit_of_row FROM visits AS b0 WHERE (b0.days > 9)) GROUP BY g0, unit_of_row) AS a1 ON a0.id = a1.g0 WHERE (NOT (a1.g0 IS NOT NULL))
)
SELECT __dp_0.a0 AS n FROM __dp_0 AS __dp_0;

-- Groups of one person's rows are rows of the next stage.
SELECT avg(n) AS a FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient);
WITH __dp_0(a0: avg of t0) AS (
  SELECT a0.c1 AS t0, a0.c0 AS unit_of_row FROM (SELECT g0.g0 AS c0, g0.x0 AS c1, g0.g0 AS unit_of_row FROM (SELECT g0, unit_of_row, count_star() AS x0 FROM (SELECT a0.patient AS g0, a0.patient AS unit_of_row FROM visits AS a0) GROUP BY g0, unit_of_row) AS g0) AS a0
)
SELECT __dp_0.a0 AS a FROM __dp_0 AS __dp_0;

-- A window of one person has a total order: all columns that are read follow the caller's.
SELECT count(*) AS n FROM (SELECT *, row_number() OVER (PARTITION BY patient ORDER BY visit_date) AS r FROM visits) WHERE r = 1;
WITH __dp_0(a0: rows) AS (
  SELECT a0.c1 AS unit_of_row FROM (SELECT g0.b0 AS c0, g0.b1 AS c1, g0.b2 AS c2, g0.b3 AS c3, g0.b4 AS c4, g0.b5 AS c5, g0.b6 AS c6, g0.b7 AS c7, g0.b8 AS c8, g0.w0 AS c9, g0.b1 AS unit_of_row FROM (SELECT *, row_number() OVER (PARTITION BY b1 ORDER BY b5, b0 ASC NULLS LAST, encode(CAST(b2 AS VARCHAR)) ASC NULLS LAST, b3 ASC NULLS LAST, b4 ASC NULLS LAST, signbit(b4) ASC NULLS LAST, b6 ASC NULLS LAST, encode(CAST(b7 AS VARCHAR)) ASC NULLS LAST, encode(CAST(b8 AS VARCHAR)) ASC NULLS LAST) AS w0 FROM (SELECT a0.id AS b0, a0.patient AS b1, a0.ward AS b2, a0.days AS b3, a0.cost AS b4, a0.visit_date AS b5, a0.outcome AS b6, a0.doctor AS b7, a0.note AS b8, a0.patient AS unit_of_row FROM visits AS a0)) AS g0) AS a0 WHERE (a0.c9 = CAST(1 AS BIGINT))
)
SELECT __dp_0.a0 AS n FROM __dp_0 AS __dp_0;

-- Grouping sets are cores of the same rows, whose numbers come from the finest one.
SELECT ward, outcome, sum(days) AS s FROM visits GROUP BY ROLLUP (ward, outcome);
WITH __dp_0(a0: sum of t0 in [0, 365], of __dp_2) AS (
  SELECT a0.days AS t0, a0.patient AS unit_of_row FROM visits AS a0
),
__dp_1(k0 among [A, B, C, D], a0: sum of t0 in [0, 365], of __dp_2) AS (
  SELECT a0.ward AS k0, a0.days AS t0, a0.patient AS unit_of_row FROM visits AS a0
),
__dp_2(k0 among [A, B, C, D], k1 among [well, ill, dead, NULL], a0: sum of t0 in [0, 365]) AS (
  SELECT a0.ward AS k0, a0.outcome AS k1, a0.days AS t0, a0.patient AS unit_of_row FROM visits AS a0
)
SELECT * FROM ((SELECT CAST(NULL AS VARCHAR) AS ward, CAST(NULL AS ENUM('well', 'ill', 'dead')) AS outcome, __dp_0.a0 AS s FROM __dp_0 AS __dp_0) UNION ALL (SELECT __dp_1.k0 AS ward, CAST(NULL AS ENUM('well', 'ill', 'dead')) AS outcome, __dp_1.a0 AS s FROM __dp_1 AS __dp_1) UNION ALL (SELECT __dp_2.k0 AS ward, __dp_2.k1 AS outcome, __dp_2.a0 AS s FROM __dp_2 AS __dp_2));

-- Numbers of one core: rows with a value, items, a quantile, a pair.
SELECT count(*) FILTER (WHERE days > 3) AS n, count(DISTINCT doctor) AS d, median(days) AS m, corr(days, beds) AS c FROM visits JOIN wards USING (ward);
WITH __dp_0(a0: values of t0, a1: items of t1, a2: quantile 1/2 of t2 in [0, 365], a3: corr of t2 and t3 in [0, 365]) AS (
  SELECT list_extract(list_transform(list_value(struct_pack(c0 := a0.days)), lambda dpsql_one: TRY((CASE WHEN (struct_extract(dpsql_one, 'c0') > 3) THEN 1 ELSE CAST(NULL AS INTEGER) END))), 1) AS t0, a0.doctor AS t1, a0.days AS t2, a1.beds AS t3, a0.patient AS unit_of_row FROM visits AS a0 JOIN wards AS a1 ON encode(a0.ward) = encode(a1.ward)
)
SELECT __dp_0.a0 AS n, __dp_0.a1 AS d, __dp_0.a2 AS m, __dp_0.a3 AS c FROM __dp_0 AS __dp_0;

-- Conditions that exclude each other are counts of cells: one row changes one of them.
SELECT count(*) FILTER (WHERE ward = 'A') AS a, count(*) FILTER (WHERE ward = 'B') AS b FROM visits;
WITH __dp_0(a0: values of t0, a1: values of t1, disjoint) AS (
  SELECT list_extract(list_transform(list_value(struct_pack(c0 := a0.ward)), lambda dpsql_one: TRY((CASE WHEN ((struct_extract(dpsql_one, 'c0') COLLATE C) = ('A' COLLATE C)) THEN 1 ELSE CAST(NULL AS INTEGER) END))), 1) AS t0, list_extract(list_transform(list_value(struct_pack(c0 := a0.ward)), lambda dpsql_one: TRY((CASE WHEN ((struct_extract(dpsql_one, 'c0') COLLATE C) = ('B' COLLATE C)) THEN 1 ELSE CAST(NULL AS INTEGER) END))), 1) AS t1, a0.patient AS unit_of_row FROM visits AS a0
)
SELECT __dp_0.a0 AS a, __dp_0.a1 AS b FROM __dp_0 AS __dp_0;

-- A ratio of answers. Two subqueries over people are two cores.
WITH a AS (SELECT ward, count(*) AS n FROM visits GROUP BY ward), b AS (SELECT count(*) AS t FROM patients) SELECT ward, n / t AS share FROM a, b;
WITH __dp_0(k0 among [A, B, C, D], a0: rows) AS (
  SELECT a0.ward AS k0, a0.patient AS unit_of_row FROM visits AS a0
),
__dp_1(a0: rows) AS (
  SELECT a0.id AS unit_of_row FROM patients AS a0
)
SELECT ward AS ward, "/"(n, t) AS share FROM (SELECT __dp_0.k0 AS ward, __dp_0.a0 AS n FROM __dp_0 AS __dp_0) AS a CROSS JOIN (SELECT __dp_1.a0 AS t FROM __dp_1 AS __dp_1) AS b;

-- Rows of two tables of the same people.
SELECT count(*) AS n FROM (SELECT patient FROM visits UNION ALL SELECT id FROM patients);
WITH __dp_0(a0: rows) AS (
  SELECT a0.c0 AS unit_of_row FROM (SELECT u.c0 AS c0, u.c0 AS unit_of_row FROM (SELECT a0.patient AS c0, a0.patient AS unit_of_row FROM visits AS a0) AS u UNION ALL SELECT u.c0 AS c0, u.c0 AS unit_of_row FROM (SELECT a0.id AS c0, a0.id AS unit_of_row FROM patients AS a0) AS u) AS a0
)
SELECT __dp_0.a0 AS n FROM __dp_0 AS __dp_0;

-- No row of a person is read: the query is free.
SELECT building, sum(beds) AS s FROM wards GROUP BY building;
SELECT building AS building, sum(beds) AS s FROM wards AS wards GROUP BY building;
