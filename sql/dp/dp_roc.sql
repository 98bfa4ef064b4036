-- dp_roc(source, label := …, score := …, epsilon := …, …) → TABLE(threshold DOUBLE, fpr DOUBLE, tpr DOUBLE)
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
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_roc', dpsql_lineage(source, release), source, label, score, epsilon, delta, thresholds, n_thresholds, threshold_share, curve, cells, lower,
    upper, target_levels, neighbours, privacy_unit, max_rows_per_unit, row_id, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_roc(
  y, p, epsilon := NULL, delta := NULL, thresholds := NULL, n_thresholds := NULL, threshold_share := NULL,
  curve := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_roc(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_roc aggregate', NULL, '', 'y', 'p', epsilon, delta, thresholds, n_thresholds, threshold_share, curve, cells,
      lower, upper, target_levels, neighbours, NULL, NULL, NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_roc aggregate', NULL, '', 'y', 'p', epsilon, delta, thresholds, n_thresholds, threshold_share, curve, cells,
      lower, upper, target_levels, neighbours, NULL, NULL, NULL, dataset, release))));
