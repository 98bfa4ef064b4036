-- dp_regression_metrics(source, target := …, prediction := …, epsilon := …, lower := …, upper := …, …)
--   → TABLE(metric VARCHAR, value DOUBLE, lower DOUBLE, upper DOUBLE)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate:
-- SELECT dp_regression_metrics(y, prediction, …) FROM t.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN count as the middle of the bounds; values outside clip
-- twin       dpsql/functions/regression_metrics.py
CREATE OR REPLACE TEMP MACRO dp_regression_metrics(
  source, target := NULL, prediction := NULL, epsilon := NULL, lower := NULL, upper := NULL, error_bound := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL,
  release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_regression_metrics', dpsql_lineage(source, release), source, target, prediction, epsilon, lower, upper, error_bound, neighbours, privacy_unit,
    max_rows_per_unit, row_id, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_regression_metrics(
  y, p, epsilon := NULL, lower := NULL, upper := NULL, error_bound := NULL, neighbours := NULL, dataset := NULL,
  release := NULL
) AS
  system.main.dpsql_aggregate_metrics(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_regression_metrics aggregate', NULL, '', 'y', 'p', epsilon, lower, upper, error_bound, neighbours, NULL, NULL,
      NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_regression_metrics aggregate', NULL, '', 'y', 'p', epsilon, lower, upper, error_bound, neighbours, NULL, NULL,
      NULL, dataset, release))));
