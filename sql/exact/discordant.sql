-- exact_kendall_sql(source, x, y) → (concordant HUGEINT, discordant HUGEINT)   (one row)
-- EXACT: not private. The input of dp_kendall for two columns of the table or view `source`, in SQL alone.
-- units  pairs of rows; x and y are column names in quotes, read as DOUBLE
-- ties   count for neither
-- nulls  a pair of rows with a NULL or NaN counts for neither; ±inf are ordinary.   empty  (0, 0)
-- Δ      of (concordant - discordant) / (n - 1): add or remove one row 3/2, replace one row 2
-- use    SELECT * FROM exact_kendall_sql('t', 'age', 'income')
-- cost   O(n log n); rank over a growing frame counts the earlier rows that are smaller, or larger
-- twin   dpsql/statistics/kendall.py, dpsql/kernels/kendall.py
CREATE OR REPLACE MACRO exact_kendall_sql(source, x, y) AS TABLE
  SELECT
    CAST(coalesce(sum(smaller - 1), 0) AS HUGEINT) AS concordant,
    CAST(coalesce(sum(larger - 1), 0) AS HUGEINT) AS discordant
  FROM (
    SELECT
      -- Among equal a, rows come in an order that counts none of them.
      rank(ORDER BY b) OVER (ORDER BY a, b DESC ROWS UNBOUNDED PRECEDING) AS smaller,
      rank(ORDER BY b DESC) OVER (ORDER BY a, b ROWS UNBOUNDED PRECEDING) AS larger
    FROM (
      SELECT CAST(COLUMNS([x]) AS DOUBLE), CAST(COLUMNS([y]) AS DOUBLE) FROM query_table(source)
    ) AS pairs(a, b)
    WHERE NOT isnan(a) AND NOT isnan(b));
