-- exact_fixed_point(v, middle, scale) → BIGINT in [-2^20, 2^20]
-- EXACT: not private. How every value enters a statistic.
-- units  floor(clip((v - middle) * scale, -2^20, 2^20) + 0.5); middle is the midpoint of the public
--        bounds and scale 2^20 over half their width
-- nulls  NULL and NaN give 0, the neutral value; ±inf clip
-- twin   dpsql/statistics/fixed_point.py
CREATE OR REPLACE MACRO exact_fixed_point(v, middle, scale) AS
  CASE WHEN v IS NULL OR isnan(CAST(v AS DOUBLE)) THEN 0::BIGINT
    ELSE CAST(floor(
      least(1048576::DOUBLE, greatest(-1048576::DOUBLE, (CAST(v AS DOUBLE) - middle) * scale)) + 0.5::DOUBLE) AS BIGINT)
  END;
