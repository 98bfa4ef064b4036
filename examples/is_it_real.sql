-- Run with: dpsql run examples/is_it_real.sql
-- Visits of a hospital: which rows a number speaks of, and whether a difference is one in the world.
CREATE TABLE visits AS
  SELECT
    i % 9000 AS person, ['north', 'south'][1 + i % 2] AS ward, i % 4 AS quarter,
    5 + 0.25 * (i % 2) + 2 * (random() + random() + random() - 1.5) AS days,
    random() < 0.3 AS returned
  FROM (
    SELECT unnest(range(greatest(1, (random() * random() * 9)::INTEGER))) AS again, p FROM range(9000) AS r(p)
  ) AS w, LATERAL (SELECT p + 9000 * again AS i);
SELECT dp_protect('visits', epsilon := 5.0, delta := 1e-5, privacy_unit := 'person', max_rows_per_unit := 9);

-- Two visits of a person count. The verdict says that more is missing than noise explains, and covers what counts.
SELECT * FROM dp_count('visits', by := 'quarter', keys := [0, 1, 2, 3], max_rows_per_unit := 2, epsilon := 0.5);
SELECT * FROM dp_count('visits', by := 'quarter', keys := [0, 1, 2, 3], max_rows_per_unit := 9, epsilon := 0.5);

-- The median, with an interval.
SELECT * FROM dp_quantile('visits', target := 'days', lower := 0, upper := 15, max_rows_per_unit := 2, epsilon := 0.5);

-- A mean and its interval: of these rows, and of the population that they are from.
SELECT * FROM dp_avg('visits', target := 'days', lower := 0, upper := 15, max_rows_per_unit := 2, epsilon := 0.5);
SELECT * FROM dp_avg('visits', target := 'days', lower := 0, upper := 15, max_rows_per_unit := 2, epsilon := 0.5,
                     sampling := true);

-- Do the wards differ, with noise and sampling? And how many rows, or how much epsilon, would it take to see?
SELECT * FROM dp_compare('visits', target := 'days', groups := 'ward', keys := ['north', 'south'], lower := 0,
                         upper := 15, max_rows_per_unit := 2, epsilon := 1.0);
SELECT quantity, value, meaning FROM dp_estimate('dp_avg', epsilon := 0.5, max_rows_per_unit := 2, n_rows := 500);
