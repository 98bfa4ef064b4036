-- dp_quantile(source, target := …, quantiles := [0.25, 0.5, 0.75], epsilon := …, lower := …, upper := …, …)
--   → TABLE(quantile DOUBLE, value DOUBLE)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_quantile(y, …) FROM t.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN are left out; values outside of the bounds clip
-- twin       dpsql/functions/quantile.py
CREATE OR REPLACE TEMP MACRO dp_quantile(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL,
  release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_quantile', dpsql_lineage(source, release), source, target, quantiles, epsilon, lower, upper, cells, neighbours, privacy_unit,
    max_rows_per_unit, row_id, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_quantile(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_quantiles(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_quantile aggregate', NULL, '', 'y', quantiles, epsilon, lower, upper, cells, neighbours, NULL, NULL, NULL,
      dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_quantile aggregate', NULL, '', 'y', quantiles, epsilon, lower, upper, cells, neighbours, NULL, NULL, NULL,
      dataset, release))));
