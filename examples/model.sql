-- Run with: dpsql run examples/model.sql
-- Wages of 20,000 people, made up; schooling, experience and hours matter, the other columns do not.
CREATE TABLE people AS
  SELECT
    w.*,
    300 + 90 * schooling + 25 * experience + 30 * hours + 400 * (random() + random() + random() - 1.5) AS wage
  FROM (
    SELECT
      i AS person,
      8 + 10 * random() AS schooling, 40 * random() AS experience, 10 + 40 * random() AS hours,
      160 + 40 * random() AS height, 100 * random() AS distance, round(6 * random()) AS children
    FROM range(20000) AS r(i)
  ) AS w;
CREATE TABLE survey AS FROM people WHERE person % 5 > 0;
CREATE TABLE held_out AS FROM people WHERE person % 5 = 0;

-- The owner sets a budget; whoever is in the held-out rows has one of their own.
SELECT dp_protect('survey', epsilon := 3.0, delta := 1e-6);
SELECT dp_protect('held_out', epsilon := 2.0);

-- 1. Select three features by ranks, 2. fit a model to them: no bounds are given, so private ones are drawn.
SELECT * FROM dp_kendall('survey', target := 'wage',
                         features := ['schooling', 'experience', 'hours', 'height', 'distance', 'children'],
                         k := 3, epsilon := 0.5, release := 'sel');
SELECT * FROM dp_linear_regression('survey', target := 'wage', features := release('sel'),
                                   epsilon := 1.0, delta := 2e-7, release := 'wages');

-- 3. Predict, for nothing, 4. measure on rows that the model has not seen; errors beyond 1500 count as 1500.
CREATE VIEW scored AS SELECT *, dp_predict('wages', held_out) AS predicted FROM held_out;
SELECT * FROM dp_regression_metrics('scored', target := 'wage', prediction := 'predicted', epsilon := 0.8,
                                    lower := 0, upper := 6000, error_bound := 1500);

-- The same two steps at once, with one receipt.
SELECT * FROM dp_pipeline('survey', target := 'wage',
                          features := ['schooling', 'experience', 'hours', 'height', 'distance', 'children'],
                          k := 3, epsilon := 0.5, delta := 2e-7);

-- A column alone: between what it lies, when nobody knows, and its quartiles.
SELECT * FROM dp_bounds('held_out', target := 'wage', epsilon := 0.1);
SELECT * FROM dp_quantile('held_out', target := 'wage', quantiles := [0.25, 0.5, 0.75], epsilon := 0.1,
                          lower := 0, upper := 6000);

SELECT model, method, features, status FROM dp_models();
SELECT * FROM dp_budget();
SELECT function, epsilon, delta, guarantee FROM dp_ledger() WHERE kind = 'release';
