-- dp_linear_regression(source, target := …, features := …, epsilon := …, delta := …, …)
--   → TABLE(term VARCHAR, coefficient DOUBLE, std_error DOUBLE)
-- PRIVATE: charges (epsilon, delta) to the dataset's budget each time it is read. Also as an aggregate:
-- SELECT dp_linear_regression(x, y, …) FROM t.
-- guarantee  (epsilon, delta)-DP for the whole call, private bounds, scale and count included
-- nulls      NULL and NaN count as the middle of their bounds; tukey: a row without a target is in no fit
-- std_error  of the privacy noise alone, where it is public (ada_ssp)
-- twin       dpsql/functions/linear_regression.py
CREATE OR REPLACE TEMP MACRO dp_linear_regression(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL,
  method := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL,
  row_norm := NULL, rounds := NULL, split := NULL, blocks := NULL, n_rows := NULL, bounds_share := NULL,
  scale_share := NULL, count_share := NULL, count_failure := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_linear_regression', dpsql_lineage(source, release), source, target, features, n_features, names, epsilon, delta, method, lower, upper,
    target_lower, target_upper, target_levels, row_norm, rounds, split, blocks, n_rows, bounds_share, scale_share,
    count_share, count_failure, neighbours, privacy_unit, max_rows_per_unit, row_id, value, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_linear_regression(
  x, y, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, method := NULL, lower := NULL,
  upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL, row_norm := NULL, rounds := NULL,
  split := NULL, blocks := NULL, n_rows := NULL, bounds_share := NULL, scale_share := NULL, count_share := NULL,
  count_failure := NULL, neighbours := NULL, dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_coefficients(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_linear_regression aggregate', NULL, '', 'y', 'x', n_features, names, epsilon, delta, method, lower, upper,
      target_lower, target_upper, target_levels, row_norm, rounds, split, blocks, n_rows, bounds_share, scale_share,
      count_share, count_failure, neighbours, NULL, NULL, NULL, NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_linear_regression aggregate', NULL, '', 'y', 'x', n_features, names, epsilon, delta, method, lower, upper,
      target_lower, target_upper, target_levels, row_norm, rounds, split, blocks, n_rows, bounds_share, scale_share,
      count_share, count_failure, neighbours, NULL, NULL, NULL, NULL, dataset, release))));
