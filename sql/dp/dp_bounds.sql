-- dp_bounds: Draw private bounds that hold the bulk of a column.
-- Guarantee: Pure epsilon-DP for the interval and both counts, and for all groups of `by` together.
-- More: docs/functions/dp_bounds.md
CREATE OR REPLACE TEMP MACRO dp_bounds(
  source, target := NULL, epsilon := NULL, failure := NULL, by := NULL, keys := NULL, other := NULL, neighbours := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, max_groups_per_unit := NULL, max_rows_per_unit_group := NULL,
  row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_bounds', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, epsilon := epsilon, failure := failure, by := "by", keys := keys, other := other,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit,
      max_groups_per_unit := max_groups_per_unit, max_rows_per_unit_group := max_rows_per_unit_group, row_id := row_id,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_bounds(
  y, epsilon := NULL, failure := NULL, neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_interval(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_bounds', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', epsilon := epsilon, failure := failure, neighbours := neighbours, dataset := dataset,
        release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_bounds', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', epsilon := epsilon, failure := failure, neighbours := neighbours, dataset := dataset,
        release := release))))));
