-- Run with: dpsql run examples/nothing_known.sql
-- A table of which nothing is known but its columns: bounds are drawn, and every answer says what it is worth.
CREATE TABLE people AS
  SELECT
    w.*,
    300 + 90 * schooling + 25 * experience + 400 * (random() + random() + random() - 1.5) AS wage,
    random() < 1 / (1 + exp(6 - schooling / 2 + distance / 50)) AS moved
  FROM (
    SELECT
      i AS person,
      ['north', 'south', 'west'][1 + i % 3] AS region,
      8 + 10 * random() AS schooling, 40 * random() AS experience, 100 * random() AS distance,
      CASE WHEN i < 9 THEN 160 + 40 * random() END AS height
    FROM range(30000) AS r(i)
  ) AS w;
SELECT dp_protect('people', epsilon := 8.0, delta := 1e-5);

-- Where does a column lie? Nine heights in 30,000 rows are undetermined, and no interval is made up.
SELECT * FROM dp_bounds('people', target := 'wage', epsilon := 0.2);
SELECT * FROM dp_bounds('people', target := 'height', epsilon := 0.2);

-- Means of groups, within bounds that the call draws for itself.
SELECT * FROM dp_avg('people', target := 'wage', by := 'region', keys := ['north', 'south', 'west'], epsilon := 0.6);

-- How many rows would it take? Then select by ranks, and pay a tenth of epsilon to learn whether it is more than chance.
SELECT quantity, value, meaning FROM dp_estimate('dp_sis', n_features := 4, k := 2, epsilon := 0.8, score := 'rank', n_rows := 30000);
SELECT * FROM dp_sis('people', target := 'wage', features := ['schooling', 'experience', 'distance', 'height'], k := 2,
                     epsilon := 0.8, score := 'rank', release := 'chosen');

-- A linear and a logistic model: what the noise hides is left out, and named.
SELECT * FROM dp_linear_regression('people', target := 'wage', features := ['schooling', 'experience', 'height'],
                                   epsilon := 1.0, delta := 1e-6, release := 'wages');
SELECT * FROM dp_logistic_regression('people', target := 'moved', features := ['schooling', 'distance', 'height'],
                                     epsilon := 1.0, delta := 1e-6, release := 'moves');

-- The curve of the classifier, and the area under it from the same release: free.
CREATE VIEW judged AS SELECT *, dp_predict('moves', people) AS p FROM people;
SELECT * FROM dp_roc('judged', label := 'moved', score := 'p', epsilon := 1.0, n_thresholds := 16, release := 'curve');
SELECT * FROM dp_auc(release := 'curve');
