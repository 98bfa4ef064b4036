-- dp_confusion: Release confusion matrices at public thresholds privately.
-- Guarantee: Pure epsilon-DP without `delta`; (epsilon, delta)-DP with it, for all thresholds together.
-- More: docs/functions/dp_confusion.md
CREATE OR REPLACE TEMP MACRO dp_confusion(
  source, label := NULL, score := NULL, thresholds := NULL, epsilon := NULL, delta := NULL, curve := NULL,
  lower := NULL, upper := NULL, target_levels := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, row_id := NULL, dataset := NULL, release := false, condition := NULL, engine := NULL,
  during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_confusion', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      label := label, score := score, thresholds := thresholds, epsilon := epsilon, delta := delta, curve := curve,
      lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id, dataset := dataset,
      release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_confusion(
  y, p, thresholds := NULL, epsilon := NULL, delta := NULL, curve := NULL, lower := NULL, upper := NULL,
  target_levels := NULL, neighbours := NULL, dataset := NULL, release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_confusion(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_confusion', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', thresholds := thresholds, epsilon := epsilon, delta := delta, curve := curve,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_confusion', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', thresholds := thresholds, epsilon := epsilon, delta := delta, curve := curve,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release))))));
