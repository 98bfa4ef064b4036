-- dp_best_subset(source, target := …, k := …, epsilon := …, lower := …, upper := …, …) → TABLE(rank BIGINT, feature VARCHAR)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_best_subset(x, y, …) FROM t.
-- One of all k-subsets, likelier the better a least squares fit in a ball of coefficients is. Rank is only the features' order.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN count as the middle of the bounds; values outside clip
-- twin       dpsql/functions/best_subset.py
CREATE OR REPLACE TEMP MACRO dp_best_subset(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL,
  radius := NULL, ridge := NULL, intercept := NULL, method := NULL, list_size := NULL, gap := NULL, node_limit := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL,
  release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_best_subset', dpsql_lineage(source, release), source, target, features, n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
    target_levels, radius, ridge, intercept, method, list_size, gap, node_limit, neighbours, privacy_unit,
    max_rows_per_unit, row_id, value, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_best_subset(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, radius := NULL, ridge := NULL,
  intercept := NULL, method := NULL, list_size := NULL, gap := NULL, node_limit := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_best_subset aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
      target_levels, radius, ridge, intercept, method, list_size, gap, node_limit, neighbours, NULL, NULL, NULL, NULL,
      dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_best_subset aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
      target_levels, radius, ridge, intercept, method, list_size, gap, node_limit, neighbours, NULL, NULL, NULL, NULL,
      dataset, release))));
