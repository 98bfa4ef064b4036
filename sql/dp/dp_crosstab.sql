-- dp_crosstab: Count the combinations of columns privately, with margins.
-- Guarantee: Pure epsilon-DP for the whole table with its margins; with `delta`, (epsilon, delta)-DP.
-- More: docs/functions/dp_crosstab.md
CREATE OR REPLACE TEMP MACRO dp_crosstab(
  source, rows := NULL, columns := NULL, by := NULL, keys := NULL, epsilon := NULL, delta := NULL, margins := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, max_groups_per_unit := NULL,
  max_rows_per_unit_group := NULL, noise := NULL, confidence := NULL, dataset := NULL, release := false,
  condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_crosstab', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      rows := rows, columns := columns, by := "by", keys := keys, epsilon := epsilon, delta := delta,
      margins := margins, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, max_groups_per_unit := max_groups_per_unit,
      max_rows_per_unit_group := max_rows_per_unit_group, noise := noise, confidence := confidence, dataset := dataset,
      release := release, condition := condition, engine := engine, during := during))));
