-- dp_protect(dataset, epsilon := …, delta := …) or (dataset, rho := …) → VARCHAR
-- Sets a dataset's budget, once; what is stated besides (neighbours, privacy unit, bounds) holds for every call on it.
CREATE OR REPLACE TEMP MACRO dp_protect(
  dataset, epsilon := NULL, delta := NULL, rho := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL, replace := false
) AS
  system.main.dpsql_protect(
    dataset, epsilon, delta, rho, neighbours, privacy_unit, max_rows_per_unit, lower, upper, target_lower, target_upper,
    replace);

-- dp_budget() → TABLE: one row per dataset, what is spent and what remains.
CREATE OR REPLACE TEMP MACRO dp_budget() AS TABLE
  SELECT entry.* FROM (SELECT unnest(system.main.dpsql_budget()) AS entry);

-- dp_ledger() → TABLE: one row per entry of the ledger, in the order of its hash chain.
CREATE OR REPLACE TEMP MACRO dp_ledger() AS TABLE
  SELECT entry.* FROM (SELECT unnest(system.main.dpsql_ledger()) AS entry);

-- dp_estimate(function, n_features := …, k := …, epsilon := …, …) → TABLE(quantity, value, meaning)
-- What a call would cost and how noisy it would be; reads no table and charges nothing.
CREATE OR REPLACE TEMP MACRO dp_estimate(
  function, n_features := NULL, k := NULL, epsilon := NULL, delta := NULL, n_rows := NULL, neighbours := NULL,
  mechanism := NULL, gamma := NULL, center := NULL, center_share := NULL, split := NULL, blocks := NULL,
  rows_per_block := NULL, count_share := NULL, radius := NULL, intercept := NULL, method := NULL, selector := NULL,
  selection_share := NULL, selection_blocks := NULL, lower := NULL, upper := NULL, target_lower := NULL,
  target_upper := NULL, row_norm := NULL, rounds := NULL, bounds_share := NULL, scale_share := NULL,
  quantiles := NULL, cells := NULL, error_bound := NULL, score := NULL, threshold := NULL,
  max_features_per_row := NULL, n_max := NULL, cutoff := NULL, false_positives := NULL, clusters := NULL,
  vocabulary := NULL, vocabulary_share := NULL, regularization := NULL, thresholds := NULL, n_thresholds := NULL,
  threshold_share := NULL, curve := NULL, max_rows_per_unit := NULL
) AS TABLE
  SELECT entry.* FROM (SELECT unnest(system.main.dpsql_estimate(
    function, n_features, k, epsilon, delta, n_rows, neighbours, mechanism, gamma, center, center_share, split,
    blocks, rows_per_block, count_share, radius, intercept, method, selector, selection_share, selection_blocks,
    lower, upper, target_lower, target_upper, row_norm, rounds, bounds_share, scale_share, quantiles, cells,
    error_bound, score, threshold, max_features_per_row, n_max, cutoff, false_positives, clusters, vocabulary,
    vocabulary_share, regularization, thresholds, n_thresholds, threshold_share, curve, max_rows_per_unit)) AS entry);
