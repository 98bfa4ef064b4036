-- dp_auc(source, label := …, score := …, epsilon := …, …) → TABLE(auc DOUBLE): the area under the ROC curve, in [0, 1]
-- PRIVATE: charges epsilon to the dataset's budget each time it is read. Also as an aggregate:
-- SELECT dp_auc(y, p, …) FROM t.
-- guarantee  pure epsilon-DP; smooth sensitivity, so that the noise follows the smaller level
-- nulls      a missing score counts as the middle of the bounds, one outside as the bound; a label that is neither
--            level, as no row
-- empty      1/2 before noise, when a level has no rows
-- twin       dpsql/functions/auc.py
CREATE OR REPLACE TEMP MACRO dp_auc(
  source, label := NULL, score := NULL, epsilon := NULL, cells := NULL, lower := NULL, upper := NULL,
  target_levels := NULL, neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL,
  dataset := NULL, release := NULL
) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_plan(
    'dp_auc', dpsql_lineage(source, release), source, label, score, epsilon, cells, lower, upper, target_levels, neighbours, privacy_unit,
    max_rows_per_unit, row_id, dataset, release));

CREATE OR REPLACE TEMP MACRO dp_auc(
  y, p, epsilon := NULL, cells := NULL, lower := NULL, upper := NULL, target_levels := NULL, neighbours := NULL,
  dataset := NULL, release := NULL
) AS
  system.main.dpsql_aggregate_area(
    system.main.list(system.main.struct_pack(y := y, p := p)) FILTER (WHERE (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_auc aggregate', NULL, '', 'y', 'p', epsilon, cells, lower, upper, target_levels, neighbours, NULL, NULL,
      NULL, dataset, release))) IS NOT NULL),
    (SELECT plan FROM system.main.query(system.main.dpsql_plan(
      'dp_auc aggregate', NULL, '', 'y', 'p', epsilon, cells, lower, upper, target_levels, neighbours, NULL, NULL,
      NULL, dataset, release))));
