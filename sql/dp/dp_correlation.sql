-- dp_correlation(source, features := […], epsilon := …, delta := …, lower := …, upper := …, …)
--   → TABLE(feature_1 VARCHAR, feature_2 VARCHAR, value DOUBLE, std_error DOUBLE, lower DOUBLE, upper DOUBLE,
--     verdict VARCHAR)
-- PRIVATE: charges epsilon and delta to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_correlation(x, …) FROM t.
-- One row per pair of different features in their order, each pair once; NULL where the noise hides a variance.
-- guarantee  (epsilon, delta)-DP for the whole call; pure epsilon-DP without delta, for at most 3 features
-- nulls      a row with NULL or NaN in any feature is left out; values outside of the bounds clip
-- twin       dpsql/functions/correlation.py
CREATE OR REPLACE TEMP MACRO dp_correlation(
  source, features := NULL, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, lower := NULL,
  upper := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL,
  dataset := NULL, release := NULL, condition := NULL, engine := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_correlation', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release) END, source,
    system.main.struct_pack(
      features := features, n_features := n_features, names := names, epsilon := epsilon, delta := delta,
      lower := lower, upper := upper, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, value := value, dataset := dataset, release := release,
      condition := condition, engine := engine)));

CREATE OR REPLACE TEMP MACRO dp_correlation(
  x, n_features := NULL, names := NULL, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL,
  neighbours := NULL, dataset := NULL, release := NULL
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_correlation(
    system.main.list(system.main.struct_pack(x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_correlation', 'aggregate', NULL, '',
      system.main.struct_pack(
        features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta, lower := lower,
        upper := upper, neighbours := neighbours, dataset := dataset, release := release)))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_correlation', 'aggregate', NULL, '',
      system.main.struct_pack(
        features := 'x', n_features := n_features, names := names, epsilon := epsilon, delta := delta, lower := lower,
        upper := upper, neighbours := neighbours, dataset := dataset, release := release)))));
