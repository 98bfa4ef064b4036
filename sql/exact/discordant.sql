-- exact_kendall_sql(source, x, y) → (concordant HUGEINT, discordant HUGEINT)   (one row)
-- EXACT: not private. The input of dp_kendall for two columns of the table or view `source`, in SQL alone.
-- units  pairs of rows; x and y are column names in quotes, read as DOUBLE
-- ties   count for neither
-- nulls  a pair of rows with a NULL or NaN counts for neither; ±inf are ordinary.   empty  (0, 0)
-- Δ      of (concordant - discordant) / (n - 1): add or remove one row 3/2, replace one row 2
-- use    SELECT * FROM exact_kendall_sql('t', 'age', 'income')
-- cost   O(n log n); rank over a growing frame counts the earlier rows that are smaller, or larger
-- names  functions and operators are named in full, so that no macro of the caller's stands in for one
-- needs  fixed_point.sql
-- twin   dpsql/statistics/kendall.py, dpsql/kernels/kendall.py
CREATE OR REPLACE MACRO exact_kendall_sql(source, x, y) AS TABLE
  SELECT
    CAST(coalesce(system.main.sum(system.main."-"(smaller, 1)), 0) AS HUGEINT) AS concordant,
    CAST(coalesce(system.main.sum(system.main."-"(larger, 1)), 0) AS HUGEINT) AS discordant
  FROM (
    SELECT
      -- Among equal a, rows come in an order that counts none of them.
      system.main.rank(ORDER BY b ASC NULLS LAST) OVER (
        ORDER BY a ASC NULLS LAST, b DESC NULLS LAST ROWS UNBOUNDED PRECEDING) AS smaller,
      system.main.rank(ORDER BY b DESC NULLS LAST) OVER (
        ORDER BY a ASC NULLS LAST, b ASC NULLS LAST ROWS UNBOUNDED PRECEDING) AS larger
    FROM (
      SELECT exact_double(a) AS a, exact_double(b) AS b FROM (
        SELECT CAST(COLUMNS(system.main.list_value(x)) AS DOUBLE), CAST(COLUMNS(system.main.list_value(y)) AS DOUBLE)
        FROM system.main.query_table(source)) AS pairs(a, b))
    WHERE NOT system.main.isnan(a) AND NOT system.main.isnan(b));
