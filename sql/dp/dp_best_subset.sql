-- dp_best_subset: Select one k-subset privately by its least squares fit.
-- Guarantee: Pure epsilon-DP for the whole call.
-- More: docs/functions/dp_best_subset.md
CREATE OR REPLACE TEMP MACRO dp_best_subset(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, k := NULL, epsilon := NULL,
  lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, target_levels := NULL, radius := NULL,
  ridge := NULL, intercept := NULL, method := NULL, list_size := NULL, gap := NULL, node_limit := NULL,
  neighbours := NULL, privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, dataset := NULL,
  release := false, condition := NULL, engine := NULL, during := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'dp_best_subset', 'table', CASE WHEN engine IS NULL THEN dpsql_lineage(source, release, condition) END,
    source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, k := k, epsilon := epsilon,
      lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
      target_levels := target_levels, radius := radius, ridge := ridge, intercept := intercept, method := method,
      list_size := list_size, gap := gap, node_limit := node_limit, neighbours := neighbours,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, row_id := row_id, value := value,
      dataset := dataset, release := release, condition := condition, engine := engine, during := during))));

CREATE OR REPLACE TEMP MACRO dp_best_subset(
  x, y, k := NULL, epsilon := NULL, n_features := NULL, names := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, radius := NULL, ridge := NULL, intercept := NULL,
  method := NULL, list_size := NULL, gap := NULL, node_limit := NULL, neighbours := NULL, dataset := NULL,
  release := false
) AS
  -- system.main.query() takes constants only, so no argument can carry a value of the data; the filter's
  -- plan fails before a row is read when the budget does not suffice.
  system.main.dpsql_aggregate_ranked(
    system.main.list(system.main.struct_pack(y := y, x := x)) FILTER (WHERE (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_best_subset', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, k := k, epsilon := epsilon,
        lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
        target_levels := target_levels, radius := radius, ridge := ridge, intercept := intercept, method := method,
        list_size := list_size, gap := gap, node_limit := node_limit, neighbours := neighbours, dataset := dataset,
        release := release))))) IS NOT NULL),
    (SELECT plan FROM system.main.query(dpsql_said(system.main.dpsql_plan(
      'dp_best_subset', 'aggregate', NULL, '',
      system.main.struct_pack(
        target := 'y', features := 'x', n_features := n_features, names := names, k := k, epsilon := epsilon,
        lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
        target_levels := target_levels, radius := radius, ridge := ridge, intercept := intercept, method := method,
        list_size := list_size, gap := gap, node_limit := node_limit, neighbours := neighbours, dataset := dataset,
        release := release))))));
