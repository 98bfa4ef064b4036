-- dp_linear_regression: Fit a linear model privately.
-- Guarantee: (epsilon, delta)-DP for the whole call, with private bounds, standard deviations, scale and count.
-- More: docs/functions/dp_linear_regression.md
CREATE OR REPLACE TEMP MACRO dp_linear_regression(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL,
  method := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL,
  row_norm := NULL, rounds := NULL, split := NULL, blocks := NULL, n_rows := NULL, clip := NULL, standardize := NULL,
  bounds_share := NULL, moments_share := NULL, scale_share := NULL, count_share := NULL, count_failure := NULL,
  range_share := NULL, sampling := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL,
  row_id := NULL, value := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_linear_regression', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, epsilon := epsilon,
      delta := delta, method := method, lower := lower, upper := upper, target_lower := target_lower,
      target_upper := target_upper, target_levels := target_levels, row_norm := row_norm, rounds := rounds,
      split := split, blocks := blocks, n_rows := n_rows, clip := clip, standardize := standardize,
      bounds_share := bounds_share, moments_share := moments_share, scale_share := scale_share,
      count_share := count_share, count_failure := count_failure, range_share := range_share, sampling := sampling,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id,
      value := value, dataset := dataset, release := release, condition := condition, engine := engine,
      during := during))));

CREATE OR REPLACE TEMP MACRO dp_linear_regression(
  x, y, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, method := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, row_norm := NULL, rounds := NULL, split := NULL,
  blocks := NULL, n_rows := NULL, clip := NULL, standardize := NULL, bounds_share := NULL, moments_share := NULL,
  scale_share := NULL, count_share := NULL, count_failure := NULL, range_share := NULL, sampling := NULL,
  neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_coefficients(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_linear_regression', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta,
        method := method, lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
        target_levels := target_levels, row_norm := row_norm, rounds := rounds, split := split, blocks := blocks,
        n_rows := n_rows, clip := clip, standardize := standardize, bounds_share := bounds_share,
        moments_share := moments_share, scale_share := scale_share, count_share := count_share,
        count_failure := count_failure, range_share := range_share, sampling := sampling, neighbours := neighbours,
        dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_linear_regression', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta,
        method := method, lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
        target_levels := target_levels, row_norm := row_norm, rounds := rounds, split := split, blocks := blocks,
        n_rows := n_rows, clip := clip, standardize := standardize, bounds_share := bounds_share,
        moments_share := moments_share, scale_share := scale_share, count_share := count_share,
        count_failure := count_failure, range_share := range_share, sampling := sampling, neighbours := neighbours,
        dataset := dataset, release := release))))));
