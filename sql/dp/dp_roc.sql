-- dp_roc(source, label := …, score := …, epsilon := …, …)
--   → TABLE(threshold DOUBLE, fpr DOUBLE, tpr DOUBLE, fpr_std_error DOUBLE, tpr_std_error DOUBLE, verdict VARCHAR)
--   from (Infinity, 0, 0) to (lower, 1, 1), thresholds descending; a row is predicted positive from the threshold on
-- PRIVATE: charges epsilon, and delta where one is given, to the dataset's budget each time it is read. Also as an
-- aggregate: SELECT dp_roc(y, p, …) FROM t.
-- guarantee  pure epsilon-DP without delta; (epsilon, delta)-DP with it
-- nulls      a missing score counts as the middle of the bounds, one outside as the bound; a label that is neither
--            level, as no row
-- twin       dpsql/functions/roc.py
CREATE OR REPLACE TEMP MACRO dp_roc(
  source, label := NULL, score := NULL, epsilon := NULL, delta := NULL, thresholds := NULL, n_thresholds := NULL,
  threshold_share := NULL, curve := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := NULL,
  condition := NULL, engine := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_roc', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release) END, source,
    system.main.struct_pack(
      label := label, score := score, epsilon := epsilon, delta := delta, thresholds := thresholds,
      n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells, lower := lower,
      upper := upper, target_levels := target_levels, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, row_id := row_id, dataset := dataset, release := release,
      condition := condition, engine := engine)));

CREATE OR REPLACE TEMP MACRO dp_roc(
  y, p, epsilon := NULL, delta := NULL, thresholds := NULL, n_thresholds := NULL, threshold_share := NULL,
  curve := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_roc(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_roc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, thresholds := thresholds,
        n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release)))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_roc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, thresholds := thresholds,
        n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release)))));
