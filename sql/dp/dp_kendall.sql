-- dp_kendall(source, target := …, k := …, epsilon := …, …) → TABLE(rank BIGINT, feature VARCHAR)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_kendall(x, y, …) FROM t.
-- Needs no bounds: only the order of the values counts. Rank is the round in which a feature was chosen.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN tie with every value
-- twin       dpsql/functions/kendall.py
CREATE OR REPLACE TEMP MACRO dp_kendall(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  target_levels := NULL, mechanism := NULL, split := NULL, blocks := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_kendall', dpsql_lineage(source, release), source, target, features, n_features, names, k, epsilon, target_levels, mechanism, split, blocks,
    neighbours, privacy_unit, max_rows_per_unit, row_id, value, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_kendall(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL, target_levels := NULL,
  mechanism := NULL, split := NULL, neighbours := NULL, dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_kendall aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, target_levels, mechanism, split, NULL,
      neighbours, NULL, NULL, NULL, NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_kendall aggregate', NULL, '', 'y', 'x', n_features, names, k, epsilon, target_levels, mechanism, split, NULL,
      neighbours, NULL, NULL, NULL, NULL, dataset, release))));
