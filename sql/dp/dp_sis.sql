-- dp_sis(source, target := …, k := …, epsilon := …, lower := …, upper := …, …) → TABLE(rank BIGINT, feature VARCHAR)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_sis(x, y, …) FROM t.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN count as the middle of the bounds; values outside clip
-- twin       dpsql/functions/sis.py
CREATE OR REPLACE TEMP MACRO dp_sis(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL,
  mechanism := NULL, gamma := NULL, center := NULL, center_share := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_sis', dpsql_lineage(source, release), source, target, features, n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
    target_levels, mechanism, gamma, center, center_share, neighbours, privacy_unit, max_rows_per_unit, row_id, value,
    dataset, release));

CREATE OR REPLACE TEMP MACRO dp_sis(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL,
  lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL,
  mechanism := NULL, gamma := NULL, center := NULL, center_share := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's plan fails before
  -- a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_sis aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
      target_levels, mechanism, gamma, center, center_share, neighbours, NULL, NULL, NULL, NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_sis aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, lower, upper, target_lower, target_upper,
      target_levels, mechanism, gamma, center, center_share, neighbours, NULL, NULL, NULL, NULL, dataset, release))));
