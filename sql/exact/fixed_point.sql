-- exact_double(v) → DOUBLE
-- v as a double that DuckDB knows nothing about. It decides comparisons with a column of a Parquet file while planning,
-- from minimum and maximum in the file, and these leave NaN out. An element of a list has the statistics of the whole
-- list, and here these reach from -Infinity to NaN: no comparison can be decided from them.
CREATE OR REPLACE MACRO exact_double(v) AS
  system.main.list_extract(system.main.list_value(CAST(v AS DOUBLE), 'nan'::DOUBLE, '-inf'::DOUBLE), 1);

-- exact_fixed_point(v, middle, scale) → BIGINT in [-2^20, 2^20]
-- EXACT: not private. How every value enters a statistic.
-- units  floor(clip((v - middle) * scale, -2^20, 2^20) + 0.5); middle is the midpoint of the public
--        bounds and scale 2^20 over half their width
-- nulls  NULL and NaN give 0, the neutral value; ±inf clip
-- names  functions and operators are named in full, so that no macro of the caller's stands in for one
-- twin   dpsql/kernels/fixed_point.py
CREATE OR REPLACE MACRO exact_fixed_point(v, middle, scale) AS
  CASE WHEN v IS NULL OR system.main.isnan(exact_double(v)) THEN 0::BIGINT
    ELSE CAST(system.main.floor(system.main."+"(
      system.main.least(1048576::DOUBLE, system.main.greatest('-1048576'::DOUBLE,
        system.main."*"(system.main."-"(exact_double(v), middle), scale))),
      0.5::DOUBLE)) AS BIGINT)
  END;
