-- dp_quantile(source, target := …, quantiles := [0.25, 0.5, 0.75], epsilon := …, lower := …, upper := …, …)
--   → TABLE(quantile DOUBLE, value DOUBLE, verdict VARCHAR)
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate: SELECT dp_quantile(y, …) FROM t.
-- guarantee  pure epsilon-DP for the whole call
-- nulls      NULL and NaN are left out; values outside of the bounds clip
-- bounds     drawn at bounds_share of epsilon where none are given, without by
-- twin       dpsql/functions/quantile.py
CREATE OR REPLACE TEMP MACRO dp_quantile(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL,
  bounds_share := NULL, by := NULL, keys := NULL, other := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, max_groups_per_unit := NULL, max_rows_per_unit_group := NULL, row_id := NULL,
  dataset := NULL, release := NULL, condition := NULL, engine := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_quantile', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release) END, source,
    system.main.struct_pack(
      target := target, quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
      bounds_share := bounds_share, by := "by", keys := keys, other := other, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, max_groups_per_unit := max_groups_per_unit,
      max_rows_per_unit_group := max_rows_per_unit_group, row_id := row_id, dataset := dataset, release := release,
      condition := condition, engine := engine)));

CREATE OR REPLACE TEMP MACRO dp_quantile(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL, bounds_share := NULL,
  neighbours := NULL, dataset := NULL, release := NULL
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_quantiles(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_quantile', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
        bounds_share := bounds_share, neighbours := neighbours, dataset := dataset, release := release)))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_quantile', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
        bounds_share := bounds_share, neighbours := neighbours, dataset := dataset, release := release)))));
