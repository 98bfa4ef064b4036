-- dp_compare: Tell privately whether two groups or two scores differ.
-- Guarantee: Pure epsilon-DP for the whole call, as one release. With `delta` the noise may be Gaussian, and then it is
-- (epsilon, delta)-DP; `noise := 'auto'` takes what is smaller.
-- More: docs/functions/dp_compare.md
CREATE OR REPLACE TEMP MACRO dp_compare(
  source, of := NULL, target := NULL, groups := NULL, keys := NULL, scores := NULL, label := NULL, epsilon := NULL,
  delta := NULL, lower := NULL, upper := NULL, loss := NULL, thresholds := NULL, sampling := NULL, confidence := NULL,
  noise := NULL, cells := NULL, target_levels := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL,
  during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_compare', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      of := of, target := target, groups := groups, keys := keys, scores := scores, label := label, epsilon := epsilon,
      delta := delta, lower := lower, upper := upper, loss := loss, thresholds := thresholds, sampling := sampling,
      confidence := confidence, noise := noise, cells := cells, target_levels := target_levels,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));
