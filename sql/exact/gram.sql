-- exact_gram_sql(source, x, y, lower, upper, target_lower, target_upper, row_norm := …) → TABLE(i, j, product HUGEINT)
-- EXACT: not private. The input of dp_linear_regression by AdaSSP, in SQL alone: products of all pairs i <= j of columns.
-- columns  0 the intercept, 1 … d the features, d + 1 the target; x names a column of vectors of one length, y the target
-- units    2^-40: columns are quantised by their public bounds, as in exact_xty; the intercept is 2^20
-- clip     a row of features longer than row_norm, in half widths of their bounds, is shortened: truncated toward zero,
--          so that its integer norm stays within the bound exactly
-- nulls    NULL and NaN count as the interval's midpoint; ±inf clip.   empty  no rows
-- Δ        of the triangle, its off-diagonal counted twice: (d + 1) 2^40 without row_norm; replace sqrt(2) times that
-- use      SELECT * FROM exact_gram_sql('t', 'x', 'y', 0, 1, 0, 100)
-- names    functions and operators are named in full, so that no macro of the caller's stands in for one
-- needs    fixed_point.sql
-- twin     dpsql/kernels/gram.py, dpsql/kernels/gram.py
CREATE OR REPLACE MACRO exact_gram_sql(source, x, y, lower, upper, target_lower, target_upper, row_norm := NULL) AS TABLE
  WITH fixed AS (
    SELECT
      system.main.list_transform(a, lambda v: exact_fixed_point(
        v,
        system.main."/"(system.main."+"(CAST(lower AS DOUBLE), CAST(upper AS DOUBLE)), 2::DOUBLE),
        system.main."/"(2097152::DOUBLE, system.main."-"(CAST(upper AS DOUBLE), CAST(lower AS DOUBLE))))) AS q,
      exact_fixed_point(
        b,
        system.main."/"(system.main."+"(CAST(target_lower AS DOUBLE), CAST(target_upper AS DOUBLE)), 2::DOUBLE),
        system.main."/"(2097152::DOUBLE, system.main."-"(CAST(target_upper AS DOUBLE), CAST(target_lower AS DOUBLE)))) AS t
    FROM (
      SELECT COLUMNS(system.main.list_value(x)), COLUMNS(system.main.list_value(y))
      FROM system.main.query_table(source)) AS pairs(a, b)
  ),
  measured AS (
    SELECT
      q, t,
      system.main.list_aggregate(system.main.list_transform(q, lambda v: system.main."*"(v, v)), 'sum') AS squares,
      system.main.floor(system.main."*"(CAST(row_norm AS DOUBLE), 1048576::DOUBLE)) AS radius
    FROM fixed
  ),
  clipped AS (
    SELECT
      system.main.list_concat(
        system.main.list_value(1048576::BIGINT),
        CASE WHEN squares > system.main."*"(radius, radius)
          THEN system.main.list_transform(q, lambda v: CAST(system.main.trunc(system.main."*"(
            CAST(v AS DOUBLE),
            system.main."*"(
              system.main."/"(radius, system.main.sqrt(CAST(squares AS DOUBLE))),
              system.main."-"(1::DOUBLE, system.main.power(2::DOUBLE, '-45'::DOUBLE))))) AS BIGINT))
          ELSE q END,
        system.main.list_value(t)) AS z
    FROM measured
  )
  SELECT
    system.main."-"(i, 1) AS i,
    system.main."-"(j, 1) AS j,
    system.main.sum(system.main."*"(system.main.list_extract(z, i), system.main.list_extract(z, j))) AS product
  FROM clipped,
    system.main.unnest(system.main.generate_series(1, system.main.len(z))) AS left_side(i),
    system.main.unnest(system.main.generate_series(1, system.main.len(z))) AS right_side(j)
  WHERE i <= j
  GROUP BY ALL;
