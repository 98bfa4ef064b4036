-- dp_count: Count rows, values or distinct units privately, in groups.
-- Guarantee: Pure epsilon-DP for all groups, targets and aggregates of the call together, as one release. With `delta`
-- it is (epsilon, delta)-DP: noise may then be Gaussian, and `keys := 'private'` is allowed.
-- More: docs/functions/dp_count.md
CREATE OR REPLACE TEMP MACRO dp_count(
  source, target := NULL, distinct_of := NULL, epsilon := NULL, delta := NULL, by := NULL, keys := NULL, other := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, max_groups_per_unit := NULL,
  max_rows_per_unit_group := NULL, left_out_share := NULL, noise := NULL, confidence := NULL, dataset := NULL,
  release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_count', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, distinct_of := distinct_of, epsilon := epsilon, delta := delta, by := "by", keys := keys,
      other := other, neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit,
      max_groups_per_unit := max_groups_per_unit, max_rows_per_unit_group := max_rows_per_unit_group,
      left_out_share := left_out_share, noise := noise, confidence := confidence, dataset := dataset,
      release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_count(
  y, epsilon := NULL, delta := NULL, neighbours := NULL, noise := NULL, confidence := NULL, dataset := NULL,
  release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_aggregated(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_count', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', epsilon := epsilon, delta := delta, neighbours := neighbours, noise := noise,
        confidence := confidence, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_count', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', epsilon := epsilon, delta := delta, neighbours := neighbours, noise := noise,
        confidence := confidence, dataset := dataset, release := release))))));
