-- dp_auc: Release the area under a ROC curve privately.
-- Guarantee: Pure epsilon-DP without `delta`. With it the noise may be Gaussian, and then it is (epsilon, delta)-DP;
-- `noise := 'auto'` takes the law with the smaller error of the area, which is Laplace noise unless delta is large or a
-- person has many rows, and spends no delta then. `dp_auc(release := 'roc')` reads a released curve and costs nothing.
-- More: docs/functions/dp_auc.md
CREATE OR REPLACE TEMP MACRO dp_auc(
  source, label := NULL, score := NULL, epsilon := NULL, delta := NULL, method := NULL, noise := NULL, cells := NULL,
  lower := NULL, upper := NULL, target_levels := NULL, sampling := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL,
  during := NULL
) AS TABLE (
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_auc', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      label := label, score := score, epsilon := epsilon, delta := delta, method := method, noise := noise,
      cells := cells, lower := lower, upper := upper, target_levels := target_levels, sampling := sampling,
      neighbours := neighbours, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))))
),
-- The release is named, release := 'roc', so that the name is not taken for a source.
(release, dataset := NULL) AS TABLE (
  SELECT system.main.unnest(entry) FROM (
    SELECT system.main.unnest(system.main.dpsql_curve_area(release, dataset::VARCHAR)) AS entry)
);

CREATE OR REPLACE TEMP MACRO dp_auc(
  y, p, epsilon := NULL, delta := NULL, method := NULL, noise := NULL, cells := NULL, lower := NULL, upper := NULL,
  target_levels := NULL, sampling := NULL, neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_area(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_auc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, method := method, noise := noise,
        cells := cells, lower := lower, upper := upper, target_levels := target_levels, sampling := sampling,
        neighbours := neighbours, dataset := dataset, release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_auc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, method := method, noise := noise,
        cells := cells, lower := lower, upper := upper, target_levels := target_levels, sampling := sampling,
        neighbours := neighbours, dataset := dataset, release := release))))));
