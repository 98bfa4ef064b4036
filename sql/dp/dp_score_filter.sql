-- dp_score_filter: Find features privately whose counts by label score high.
-- Guarantee: Pure epsilon-DP without Gaussian noise and with public names; (epsilon, delta)-DP otherwise.
-- More: docs/functions/dp_score_filter.md
CREATE OR REPLACE TEMP MACRO dp_score_filter(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, score := NULL, threshold := NULL,
  k := NULL, epsilon := NULL, delta := NULL, method := NULL, max_features_per_row := NULL, present_above := NULL,
  n_max := NULL, cutoff := NULL, false_positives := NULL, clusters := NULL, vocabulary := NULL,
  vocabulary_share := NULL, target_levels := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL,
  row_id := NULL, value := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_score_filter', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, score := score,
      threshold := threshold, k := k, epsilon := epsilon, delta := delta, method := method,
      max_features_per_row := max_features_per_row, present_above := present_above, n_max := n_max, cutoff := cutoff,
      false_positives := false_positives, clusters := clusters, vocabulary := vocabulary,
      vocabulary_share := vocabulary_share, target_levels := target_levels, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id, value := value,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_score_filter(
  x, y, score := NULL, threshold := NULL, k := NULL, epsilon := NULL, delta := NULL, method := NULL, n_features := NULL,
  names := NULL, max_features_per_row := NULL, present_above := NULL, n_max := NULL, cutoff := NULL,
  false_positives := NULL, clusters := NULL, vocabulary := NULL, vocabulary_share := NULL, target_levels := NULL,
  neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_score_filter', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, score := score,
        threshold := threshold, k := k, epsilon := epsilon, delta := delta, method := method,
        max_features_per_row := max_features_per_row, present_above := present_above, n_max := n_max, cutoff := cutoff,
        false_positives := false_positives, clusters := clusters, vocabulary := vocabulary,
        vocabulary_share := vocabulary_share, target_levels := target_levels, neighbours := neighbours,
        dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_score_filter', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, score := score,
        threshold := threshold, k := k, epsilon := epsilon, delta := delta, method := method,
        max_features_per_row := max_features_per_row, present_above := present_above, n_max := n_max, cutoff := cutoff,
        false_positives := false_positives, clusters := clusters, vocabulary := vocabulary,
        vocabulary_share := vocabulary_share, target_levels := target_levels, neighbours := neighbours,
        dataset := dataset, release := release))))));
