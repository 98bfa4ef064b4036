-- dp_naive_bayes: Fit naive Bayes privately to binary features.
-- Guarantee: Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it.
-- More: docs/functions/dp_naive_bayes.md
CREATE OR REPLACE TEMP MACRO dp_naive_bayes(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL,
  max_features_per_row := NULL, present_above := NULL, count_share := NULL, smoothing := NULL, shrink := NULL,
  target_levels := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL,
  value := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_naive_bayes', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, epsilon := epsilon,
      delta := delta, max_features_per_row := max_features_per_row, present_above := present_above,
      count_share := count_share, smoothing := smoothing, shrink := shrink, target_levels := target_levels,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id,
      value := value, dataset := dataset, release := release, condition := condition, engine := engine,
      during := during))));

CREATE OR REPLACE TEMP MACRO dp_naive_bayes(
  x, y, epsilon := NULL, delta := NULL, n_features := NULL, names := NULL, max_features_per_row := NULL,
  present_above := NULL, count_share := NULL, smoothing := NULL, shrink := NULL, target_levels := NULL,
  neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_coefficients(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_naive_bayes', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta,
        max_features_per_row := max_features_per_row, present_above := present_above, count_share := count_share,
        smoothing := smoothing, shrink := shrink, target_levels := target_levels, neighbours := neighbours,
        dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_naive_bayes', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta,
        max_features_per_row := max_features_per_row, present_above := present_above, count_share := count_share,
        smoothing := smoothing, shrink := shrink, target_levels := target_levels, neighbours := neighbours,
        dataset := dataset, release := release))))));
