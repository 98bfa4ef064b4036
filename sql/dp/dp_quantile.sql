-- dp_quantile: Draw private quantiles of a column.
-- Guarantee: Pure epsilon-DP for all quantiles of the call together, and for all groups of `by`; private bounds are
-- included.
-- More: docs/functions/dp_quantile.md
CREATE OR REPLACE TEMP MACRO dp_quantile(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL,
  interval_share := NULL, bounds_share := NULL, by := NULL, keys := NULL, other := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, max_groups_per_unit := NULL, max_rows_per_unit_group := NULL,
  row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_quantile', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
      interval_share := interval_share, bounds_share := bounds_share, by := "by", keys := keys, other := other,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit,
      max_groups_per_unit := max_groups_per_unit, max_rows_per_unit_group := max_rows_per_unit_group, row_id := row_id,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_quantile(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, cells := NULL, interval_share := NULL,
  bounds_share := NULL, neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_quantiles(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_quantile', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
        interval_share := interval_share, bounds_share := bounds_share, neighbours := neighbours, dataset := dataset,
        release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_quantile', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, cells := cells,
        interval_share := interval_share, bounds_share := bounds_share, neighbours := neighbours, dataset := dataset,
        release := release))))));
