-- exact_discordant: Count the pairs of rows that a feature orders otherwise than the target, and alike: the statistic
-- of dp_kendall. Not private.
-- Guarantee: None. NOT PRIVATE: the result is exact. Do not publish it.
-- More: docs/functions/exact_discordant.md
CREATE OR REPLACE TEMP MACRO exact_discordant(
  source, target := NULL, features := NULL, n_features := NULL, names := NULL, target_levels := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, row_id := NULL, value := NULL, condition := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_plan(
    'exact_discordant', 'table', dpsql_typed(source, condition), source,
    system.main.struct_pack(
      target := target, features := features, n_features := n_features, names := names, k := 1, epsilon := 1,
      target_levels := target_levels, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit,
      row_id := row_id, value := value, condition := condition))));
