-- dp_two_stage(source, target := …, k := …, epsilon := …, blocks := …, …) → TABLE(rank BIGINT, feature VARCHAR)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_two_stage(x, y, …) FROM t.
-- A Lasso on each of many blocks of rows votes for its k largest coefficients; most votes win. Needs no bounds.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      a row without a target is in no fit; elsewhere NULL and NaN count as the block's mean
-- twin       dpsql/functions/two_stage.py
CREATE OR REPLACE TEMP MACRO dp_two_stage(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  target_levels := NULL, blocks := NULL, rows_per_block := NULL, count_share := NULL, count_failure := NULL,
  penalty := NULL, standardize := NULL, intercept := NULL, mechanism := NULL, gamma := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_two_stage', dpsql_lineage(source, release), source, target, features, n_features, names, k, epsilon, target_levels, blocks, rows_per_block,
    count_share, count_failure, penalty, standardize, intercept, mechanism, gamma, neighbours, privacy_unit,
    max_rows_per_unit, row_id, value, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_two_stage(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL, target_levels := NULL, blocks := NULL,
  rows_per_block := NULL, count_share := NULL, count_failure := NULL, penalty := NULL, standardize := NULL,
  intercept := NULL, mechanism := NULL, gamma := NULL, neighbours := NULL, dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_two_stage aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, target_levels, blocks, rows_per_block,
      count_share, count_failure, penalty, standardize, intercept, mechanism, gamma, neighbours, NULL, NULL, NULL,
      NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_two_stage aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, target_levels, blocks, rows_per_block,
      count_share, count_failure, penalty, standardize, intercept, mechanism, gamma, neighbours, NULL, NULL, NULL,
      NULL, dataset, release))));
