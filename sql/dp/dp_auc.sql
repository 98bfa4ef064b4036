-- dp_auc(source, label := …, score := …, epsilon := …, …) → TABLE(auc DOUBLE, std_error DOUBLE, lower DOUBLE,
-- upper DOUBLE, verdict VARCHAR): the area under the ROC curve, in [0, 1], and an interval that holds the area of these
-- rows with a chance of 95 %. The verdict is 'clear' if the interval excludes 1/2, else 'unclear'; 'undetermined' without
-- an area where the interval is all of [0, 1]; and 'not measured' without an interval for method := 'smooth'.
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate:
-- SELECT dp_auc(y, p, …) FROM t.
-- guarantee  pure epsilon-DP; with delta, (epsilon, delta)-DP
-- nulls      a missing score counts as the middle of the bounds, one outside as the bound; a label that is neither
--            level, as no row
-- empty      1/2 before noise, when a level has no rows
-- twin       dpsql/functions/auc.py
-- dp_auc(release := 'roc') → the same columns, from a released ROC curve, named by its release or its number in the
-- ledger. Costs nothing. The area is that under the curve's straight lines; the interval holds the area of the rows with
-- a chance of 95 %, whatever their order between two thresholds. There is no std_error.
CREATE OR REPLACE TEMP MACRO dp_auc(
  source, label := NULL, score := NULL, epsilon := NULL, delta := NULL, method := NULL, cells := NULL, lower := NULL,
  upper := NULL, target_levels := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL,
  row_id := NULL, dataset := NULL, release := NULL, condition := NULL, engine := NULL
) AS TABLE (
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_auc', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release) END, source,
    system.main.struct_pack(
      label := label, score := score, epsilon := epsilon, delta := delta, method := method, cells := cells,
      lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id, dataset := dataset,
      release := release, condition := condition, engine := engine)))
),
-- The release is named, release := 'roc', so that the name is not taken for a source.
(release, dataset := NULL) AS TABLE (
  SELECT system.main.unnest(entry) FROM (
    SELECT system.main.unnest(system.main.dpsql_curve_area(release, dataset::VARCHAR)) AS entry)
);

CREATE OR REPLACE TEMP MACRO dp_auc(
  y, p, epsilon := NULL, delta := NULL, method := NULL, cells := NULL, lower := NULL, upper := NULL,
  target_levels := NULL, neighbours := NULL, dataset := NULL, release := NULL
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_area(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_auc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, method := method, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release)))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_auc', 'aggregate', NULL, '',
      system.main.struct_pack(
        label := 'y', score := 'p', epsilon := epsilon, delta := delta, method := method, cells := cells,
        lower := lower, upper := upper, target_levels := target_levels, neighbours := neighbours, dataset := dataset,
        release := release)))));
