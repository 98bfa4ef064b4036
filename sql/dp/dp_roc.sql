-- dp_roc: Release a ROC curve of scores privately.
-- Guarantee: Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it. The private choice of thresholds is
-- included.
-- More: docs/functions/dp_roc.md
CREATE OR REPLACE TEMP MACRO dp_roc(
  source, label := NULL, score := NULL, epsilon := NULL, delta := NULL, thresholds := NULL, n_thresholds := NULL,
  threshold_share := NULL, curve := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL,
  release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_roc', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      label := label, score := score, epsilon := epsilon, delta := delta, thresholds := thresholds,
      n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells, lower := lower,
      upper := upper, target_levels := target_levels, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, dataset := dataset, release := release,
      condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_roc(
  y, p, epsilon := NULL, delta := NULL, thresholds := NULL, n_thresholds := NULL, threshold_share := NULL,
  curve := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL, neighbours := NULL,
  dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_roc(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_roc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, thresholds := thresholds,
        n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_roc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, thresholds := thresholds,
        n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release))))));
