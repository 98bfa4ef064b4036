-- Run with: dpsql run examples/select.sql
-- A table of 2,000 people with eight measurements on a public scale of 0 to 100; three of them matter.
CREATE TABLE survey AS
  SELECT
    w.*,
    m1 + m4 - m7 + 30 * random() > 65 AS responded
  FROM (
    SELECT
      i AS person,
      100 * random() AS m1, 100 * random() AS m2, 100 * random() AS m3, 100 * random() AS m4,
      100 * random() AS m5, 100 * random() AS m6, 100 * random() AS m7, 100 * random() AS m8
    FROM range(2000) AS r(i)
  ) AS w;

-- The owner sets a budget and states the public bounds once.
SELECT dp_protect('survey', epsilon := 3.0, lower := 0, upper := 100);

-- What would it cost, and how noisy would it be?
SELECT * FROM dp_estimate('dp_sis', n_features := 8, k := 3, epsilon := 1.0, n_rows := 2000);

-- The analyst selects. The person's number is left out by naming the features.
SELECT * FROM dp_sis('survey', target := 'responded', features := ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8'],
                     k := 3, epsilon := 1.0, release := 'first look');

-- Asked again under its name, the release costs nothing.
SELECT * FROM dp_sis('survey', target := 'responded', features := ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8'],
                     k := 3, epsilon := 1.0, release := 'first look');

-- Without any bounds: by rank correlation with the target.
SELECT * FROM dp_sis('survey', target := 'responded', features := ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8'],
                     k := 3, epsilon := 0.5, score := 'rank');

-- By covariance over an array column, as an aggregate.
SELECT dp_sis([m1, m2, m3, m4, m5, m6, m7, m8], responded, n_features := 8, k := 3, epsilon := 1.0,
              lower := 0, upper := 100, dataset := 'survey')
FROM survey;

SELECT * FROM dp_budget();
SELECT * FROM dp_ledger();
