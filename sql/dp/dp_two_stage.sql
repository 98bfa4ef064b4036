-- dp_two_stage: Select k features privately by votes of block-wise Lasso fits.
-- Guarantee: Pure epsilon-DP for the whole call, a private count of the rows included.
-- More: docs/functions/dp_two_stage.md
CREATE OR REPLACE TEMP MACRO dp_two_stage(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  target_levels := NULL, blocks := NULL, rows_per_block := NULL, count_share := NULL, count_failure := NULL,
  penalty := NULL, standardize := NULL, intercept := NULL, mechanism := NULL, gamma := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL, release := false,
  condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_two_stage', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, k := k, epsilon := epsilon,
      target_levels := target_levels, blocks := blocks, rows_per_block := rows_per_block, count_share := count_share,
      count_failure := count_failure, penalty := penalty, standardize := standardize, intercept := intercept,
      mechanism := mechanism, gamma := gamma, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, value := value, dataset := dataset, release := release,
      condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_two_stage(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL, target_levels := NULL, blocks := NULL,
  rows_per_block := NULL, count_share := NULL, count_failure := NULL, penalty := NULL, standardize := NULL,
  intercept := NULL, mechanism := NULL, gamma := NULL, neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_two_stage', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, k := k, epsilon := epsilon,
        target_levels := target_levels, blocks := blocks, rows_per_block := rows_per_block, count_share := count_share,
        count_failure := count_failure, penalty := penalty, standardize := standardize, intercept := intercept,
        mechanism := mechanism, gamma := gamma, neighbours := neighbours, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_two_stage', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, k := k, epsilon := epsilon,
        target_levels := target_levels, blocks := blocks, rows_per_block := rows_per_block, count_share := count_share,
        count_failure := count_failure, penalty := penalty, standardize := standardize, intercept := intercept,
        mechanism := mechanism, gamma := gamma, neighbours := neighbours, dataset := dataset, release := release))))));
