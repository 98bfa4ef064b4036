-- exact_xty(x, y, lower, upper, target_lower, target_upper) → HUGEINT   (an aggregate)
-- EXACT: not private. The input of dp_sis: the sum of the products of two quantised columns.
-- units  2^-40 of the product of the half widths; x has bounds [lower, upper], y [target_lower, target_upper]
-- nulls  NULL and NaN count as the interval's midpoint; ±inf clip.   empty  0
-- Δ      of the absolute value: add or remove one row 2^40, replace one row 2^41
-- use    wide   SELECT exact_xty(COLUMNS(* EXCLUDE y), y, 0, 16, 0, 1) FROM t
--        array  SELECT j, exact_xty(x[j], y, 0, 16, 0, 1) FROM t, range(1, 101) AS r(j) GROUP BY j
-- names  functions and operators are named in full, so that no macro of the caller's stands in for one
-- needs  fixed_point.sql
-- twin   dpsql/statistics/xty.py, dpsql/kernels/xty.py
CREATE OR REPLACE MACRO exact_xty(x, y, lower, upper, target_lower, target_upper) AS
  coalesce(
    system.main.sum(system.main."*"(
      exact_fixed_point(
        x,
        system.main."/"(system.main."+"(CAST(lower AS DOUBLE), CAST(upper AS DOUBLE)), 2::DOUBLE),
        system.main."/"(2097152::DOUBLE, system.main."-"(CAST(upper AS DOUBLE), CAST(lower AS DOUBLE)))),
      exact_fixed_point(
        y,
        system.main."/"(system.main."+"(CAST(target_lower AS DOUBLE), CAST(target_upper AS DOUBLE)), 2::DOUBLE),
        system.main."/"(2097152::DOUBLE, system.main."-"(CAST(target_upper AS DOUBLE), CAST(target_lower AS DOUBLE)))))),
    0::HUGEINT);
