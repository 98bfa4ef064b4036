-- exact_xty: Add up the products of features and target exactly: the statistic of dp_sis. Not private.
-- Guarantee: None. NOT PRIVATE: the result is exact. Do not publish it.
-- More: docs/functions/exact_xty.md
CREATE OR REPLACE TEMP MACRO exact_xty(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, privacy_unit := NULL, max_rows_per_unit := NULL,
  row_id := NULL, value := NULL, condition := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'exact_xty', 'table', dpsql_typed(source, condition), source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, k := 1, epsilon := 1,
      lower := lower, upper := upper, target_lower := target_lower, target_upper := target_upper,
      target_levels := target_levels, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit,
      row_id := row_id, value := value, condition := condition))));
