-- One person in three tables: patients, their visits, and the results of each visit, which reach the person through the
-- visit alone. One budget, and one charge for each call.
CREATE TABLE patients AS SELECT i AS id, 20 + i % 70 AS age FROM range(5000) AS r(i);
CREATE TABLE visits AS
  SELECT i AS vid, (i * 7919) % 5000 AS patient, ['A', 'B', 'C'][1 + i % 3] AS ward, i % 14 AS days
  FROM range(15000) AS r(i);
CREATE TABLE labs AS
  SELECT (i * 31) % 15000 AS visit, 3 + (i % 40) / 10 AS potassium, i % 11 = 0 AS repeated
  FROM range(45000) AS r(i);

SELECT dp_protect('hospital', epsilon := 3, delta := 1e-6, max_rows_per_unit := 20,
  tables := {patients: 'id', visits: 'patient', labs: 'visit -> visits.vid'});

-- Each table by its name; labs is joined with visits by dpsql.
FROM dp_count('patients', max_rows_per_unit := 1, epsilon := 0.1);
FROM dp_avg('labs', target := 'potassium', lower := 2, upper := 8, epsilon := 0.3);

-- A view joins them by the person, or along the path.
CREATE VIEW results AS
  SELECT age, ward, patient, potassium, repeated
  FROM patients JOIN visits ON id = patient JOIN labs ON visit = vid;
FROM dp_avg('results', target := 'potassium', lower := 2, upper := 8, by := 'ward', keys := ['A', 'B', 'C'],
  epsilon := 0.5);
FROM dp_logistic_regression('results', target := 'repeated', features := ['age', 'potassium'], epsilon := 0.5,
  lower := {age: 0, potassium: 2}, upper := {age: 120, potassium: 8});

-- The tests of each visit, and how many visits had none.
CREATE VIEW tests_of_visits AS
  SELECT patient, ward, n FROM visits JOIN (SELECT visit, count(*) AS n FROM labs GROUP BY visit) ON visit = vid;
FROM dp_sum('tests_of_visits', target := 'n', lower := 0, upper := 10, epsilon := 0.2);
CREATE VIEW untested AS SELECT visits.* FROM visits ANTI JOIN labs ON vid = visit;
FROM dp_count('untested', epsilon := 0.2);

SELECT dataset, releases, spent, remaining FROM dp_budget();
