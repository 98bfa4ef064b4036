-- The small tables that every page and every example of the documentation runs on: invented patients, visits, scores and
-- words. They are the same everywhere, because no random function is in them; nothing in them is about anybody.
-- demo_u(row, column) looks random, and lies in [0, 1).

CREATE OR REPLACE TEMP MACRO demo_u(i, j) AS (i * 7919 + j * 104729 + i * i * (31 + 2 * j)) % 10007 / 10007.0;

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
FROM range(4000) AS rows(i);

CREATE OR REPLACE TABLE visits AS
SELECT patient_id, ward, 1 + visit AS visit, round(100 + 900 * demo_u(patient_id, 20 + visit)) AS cost
FROM patients, range(3) AS numbers(visit) WHERE demo_u(patient_id, 30 + visit) < 0.7;

CREATE OR REPLACE TABLE scores AS
SELECT patient_id, readmitted = 'yes' AS label,
       greatest(0, least(1, age / 100 + 0.2 * demo_u(patient_id, 40) - 0.1)) AS score,
       days, 1 + age / 8 + bmi / 6 + 2 AS predicted
FROM patients;

CREATE OR REPLACE TABLE words AS
SELECT i AS message, demo_u(i, 50) < 0.4 AS spam, word
FROM range(3000) AS messages(i),
     (VALUES ('free', 0.5, 0.05), ('prize', 0.3, 0.01), ('meeting', 0.02, 0.3), ('today', 0.2, 0.2))
     AS lexicon(word, in_spam, in_ham)
WHERE demo_u(i, 51 + length(word)) < CASE WHEN spam THEN in_spam ELSE in_ham END;
