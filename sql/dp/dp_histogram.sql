-- dp_histogram: Count the values of a column privately between public edges.
-- Guarantee: Pure epsilon-DP for all groups and bins together; with `delta`, (epsilon, delta)-DP.
-- More: docs/functions/dp_histogram.md
CREATE OR REPLACE TEMP MACRO dp_histogram(
  source, target := NULL, bins := NULL, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL, n_bins := NULL,
  null_bin := NULL, by := NULL, keys := NULL, other := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, max_groups_per_unit := NULL, max_rows_per_unit_group := NULL, noise := NULL, curve := NULL,
  confidence := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_histogram', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, bins := bins, epsilon := epsilon, delta := delta, lower := lower, upper := upper,
      n_bins := n_bins, null_bin := null_bin, by := "by", keys := keys, other := other, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, max_groups_per_unit := max_groups_per_unit,
      max_rows_per_unit_group := max_rows_per_unit_group, noise := noise, curve := curve, confidence := confidence,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_histogram(
  y, bins := NULL, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL, n_bins := NULL, null_bin := NULL,
  neighbours := NULL, noise := NULL, curve := NULL, confidence := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_histogram(
    system.main.list(system.main.struct_pack(y := y)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_histogram', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', bins := bins, epsilon := epsilon, delta := delta, lower := lower, upper := upper,
        n_bins := n_bins, null_bin := null_bin, neighbours := neighbours, noise := noise, curve := curve,
        confidence := confidence, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_histogram', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', bins := bins, epsilon := epsilon, delta := delta, lower := lower, upper := upper,
        n_bins := n_bins, null_bin := null_bin, neighbours := neighbours, noise := noise, curve := curve,
        confidence := confidence, dataset := dataset, release := release))))));
