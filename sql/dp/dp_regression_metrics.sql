-- dp_regression_metrics: Measure predictions privately.
-- Guarantee: Pure epsilon-DP for all metrics together.
-- More: docs/functions/dp_regression_metrics.md
CREATE OR REPLACE TEMP MACRO dp_regression_metrics(
  source, target := NULL, prediction := NULL, epsilon := NULL, lower := NULL, upper := NULL, error_bound := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL,
  release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_regression_metrics', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, prediction := prediction, epsilon := epsilon, lower := lower, upper := upper,
      error_bound := error_bound, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, dataset := dataset, release := release,
      condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_regression_metrics(
  y, p, epsilon := NULL, lower := NULL, upper := NULL, error_bound := NULL, neighbours := NULL, dataset := NULL,
  release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_metrics(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_regression_metrics', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', prediction := 'p', epsilon := epsilon, lower := lower, upper := upper,
        error_bound := error_bound, neighbours := neighbours, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_regression_metrics', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', prediction := 'p', epsilon := epsilon, lower := lower, upper := upper,
        error_bound := error_bound, neighbours := neighbours, dataset := dataset, release := release))))));
