-- exact_gram_sql(source, x, y, lower, upper, target_lower, target_upper, row_norm := …) → TABLE(i, j, product HUGEINT)
-- EXACT: not private. The input of dp_linear_regression by AdaSSP, in SQL alone: products of all pairs i <= j of columns.
-- columns  0 the intercept, 1 … d the features, d + 1 the target; x names a column of vectors of one length, y the target
-- units    2^-40: columns are quantised by their public bounds, as in exact_xty; the intercept is 2^20
-- clip     a row of features longer than row_norm, in half widths of their bounds, is shortened: truncated toward zero,
--          so that its integer norm stays within the bound exactly
-- nulls    NULL and NaN count as the interval's midpoint; ±inf clip.   empty  no rows
-- Δ        of the triangle, its off-diagonal counted twice: (d + 1) 2^40 without row_norm; replace sqrt(2) times that
-- use      SELECT * FROM exact_gram_sql('t', 'x', 'y', 0, 1, 0, 100)
-- needs    fixed_point.sql
-- twin     dpsql/kernels/gram.py, dpsql/kernels/clipped_rows.py
CREATE OR REPLACE MACRO exact_gram_sql(source, x, y, lower, upper, target_lower, target_upper, row_norm := NULL) AS TABLE
  WITH fixed AS (
    SELECT
      list_transform(a, lambda v: exact_fixed_point(
        v,
        (CAST(lower AS DOUBLE) + CAST(upper AS DOUBLE)) / 2::DOUBLE,
        2097152::DOUBLE / (CAST(upper AS DOUBLE) - CAST(lower AS DOUBLE)))) AS q,
      exact_fixed_point(
        b,
        (CAST(target_lower AS DOUBLE) + CAST(target_upper AS DOUBLE)) / 2::DOUBLE,
        2097152::DOUBLE / (CAST(target_upper AS DOUBLE) - CAST(target_lower AS DOUBLE))) AS t
    FROM (SELECT COLUMNS([x]), COLUMNS([y]) FROM query_table(source)) AS pairs(a, b)
  ),
  measured AS (
    SELECT
      q, t,
      list_sum(list_transform(q, lambda v: v * v)) AS squares,
      floor(CAST(row_norm AS DOUBLE) * 1048576::DOUBLE) AS radius
    FROM fixed
  ),
  clipped AS (
    SELECT
      list_concat(
        [1048576::BIGINT],
        CASE WHEN squares > radius * radius
          THEN list_transform(q, lambda v: CAST(trunc(
            CAST(v AS DOUBLE) * (radius / sqrt(CAST(squares AS DOUBLE)) * (1::DOUBLE - power(2::DOUBLE, -45)))) AS BIGINT))
          ELSE q END,
        [t]) AS z
    FROM measured
  )
  SELECT i - 1 AS i, j - 1 AS j, sum(z[i] * z[j]) AS product
  FROM clipped, unnest(generate_series(1, len(z))) AS left_side(i), unnest(generate_series(1, len(z))) AS right_side(j)
  WHERE i <= j
  GROUP BY ALL;
