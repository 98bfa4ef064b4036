-- dp_covariance: Release the covariance matrix of columns privately.
-- Guarantee: (epsilon, delta)-DP for the whole matrix; without `delta` pure epsilon-DP, for at most 3 features.
-- More: docs/functions/dp_covariance.md
CREATE OR REPLACE TEMP MACRO dp_covariance(
  source, features := NULL, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, lower := NULL,
  upper := NULL, ddof := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL,
  value := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_covariance', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      features := features, n_features := n_features, names := names, epsilon := epsilon, delta := delta,
      lower := lower, upper := upper, ddof := ddof, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, value := value, dataset := dataset, release := release,
      condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_covariance(
  x, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL, ddof := NULL,
  neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_covariance(
    system.main.list(system.main.struct_pack(x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_covariance', 'aggregate', NULL, '',
      system.main.struct_pack(
        features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta, lower := lower,
        upper := upper, ddof := ddof, neighbours := neighbours, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_covariance', 'aggregate', NULL, '',
      system.main.struct_pack(
        features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta, lower := lower,
        upper := upper, ddof := ddof, neighbours := neighbours, dataset := dataset, release := release))))));
