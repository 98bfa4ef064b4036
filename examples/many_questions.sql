-- Run with: dpsql run examples/many_questions.sql
-- Visits to a clinic, made up. Many small questions are asked, so the owner chooses the accountant for them.
CREATE TABLE visits AS
  SELECT
    i AS visit,
    18 + 70 * random() AS age, 240 * random() AS minutes, 3000 * random() ** 3 AS cost, 30 + 60 * random() AS pulse
  FROM range(20000) AS r(i);

SELECT dp_protect('visits', epsilon := 3.0, delta := 1e-6, accountant := 'rdp');

-- Quantiles of every column.
SELECT * FROM dp_quantile('visits', target := 'age', quantiles := [0.25, 0.5, 0.75], epsilon := 0.1, lower := 0, upper := 120);
SELECT * FROM dp_quantile('visits', target := 'minutes', quantiles := [0.25, 0.5, 0.75], epsilon := 0.1, lower := 0, upper := 480);
SELECT * FROM dp_quantile('visits', target := 'cost', quantiles := [0.25, 0.5, 0.75], epsilon := 0.1, lower := 0, upper := 5000);
SELECT * FROM dp_quantile('visits', target := 'pulse', quantiles := [0.25, 0.5, 0.75], epsilon := 0.1, lower := 0, upper := 200);

-- A model with Gaussian noise: its delta belongs to one way to read its loss, and is not spent here.
SELECT * FROM dp_linear_regression('visits', target := 'cost', features := ['age', 'minutes', 'pulse'], epsilon := 1.0, delta := 1e-7,
                                   lower := [0, 0, 0], upper := [120, 480, 200], target_lower := 0, target_upper := 5000);

-- Together the five releases are (epsilon_spent, delta_spent)-DP. Most of that is the price of the accountant, paid once:
-- 240 more such quantile calls fit what remains. Under accountant 'basic' it would be 16.
SELECT dataset, accountant, epsilon_spent, epsilon_remaining, delta_spent, delta_remaining, renyi_spent, renyi_remaining FROM dp_budget(details := true);
