-- dp_synthetic: Release a model of a whole table privately, of which rows are made.
-- Guarantee: (epsilon, delta)-DP for the model, its report, and all rows and queries that come of it. The steps are
-- zCDP, and their rho add up to what epsilon and delta allow.
-- More: docs/functions/dp_synthetic.md
CREATE OR REPLACE TEMP MACRO dp_synthetic(
  source, columns := NULL, epsilon := NULL, delta := NULL, target := NULL, lower := NULL, upper := NULL, keys := NULL,
  private_keys := NULL, bounds_share := NULL, report_share := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL,
  during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_synthetic', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      columns := columns, epsilon := epsilon, delta := delta, target := target, lower := lower, upper := upper,
      keys := keys, private_keys := private_keys, bounds_share := bounds_share, report_share := report_share,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));
