-- dp_protect(dataset, epsilon := …, delta := …) or (dataset, rho := …) → VARCHAR
-- Sets the budget of a table or view; what is stated besides (neighbours, privacy unit, bounds) holds for every call on it.
-- keys := {'ward': ['A', 'B']}: the values that columns may have. public := ['wards']: tables that tell of nobody, see dp_public.
-- From then on nothing is answered that cannot be placed: see dp_unplaced(). source := false: rows that are in no catalog.
-- engine := 'lake': a table of that engine's catalog, whose budget has the table's full name: lake.catalog.schema.table.
CREATE OR REPLACE TEMP MACRO dp_protect(
  dataset, epsilon := NULL, delta := NULL, rho := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL,
  target_levels := NULL, keys := NULL, accountant := NULL, public := NULL, mark := true, source := true,
  replace := false, engine := NULL
) AS
  system.main.dpsql_protect(
    dataset,
    system.main.struct_pack(
      epsilon := epsilon, delta := delta, rho := rho, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, lower := lower, upper := upper, target_lower := target_lower,
      target_upper := target_upper, target_levels := target_levels, keys := keys, accountant := accountant,
      public := public, mark := mark, source := source, replace := replace, engine := engine),
    CASE WHEN source AND engine IS NULL THEN dpsql_reads(dataset) END,
    (SELECT system.main.list(sql) FROM system.main.duckdb_views()
     WHERE NOT internal AND system.main.contains(system.main.lower(dataset::VARCHAR), system.main.lower(view_name))),
    system.main.list_transform(TRY_CAST(public AS VARCHAR[]), lambda t: dpsql_reads(t)),
    dpsql_tables());

-- dp_public(table) → VARCHAR. Declares that a table tells of nobody, so that views may join it.
CREATE OR REPLACE TEMP MACRO dp_public(
  source, force := false
) AS
  system.main.dpsql_public(
    source,
    system.main.struct_pack(
      force := force),
    dpsql_reads(source), dpsql_tables());

-- dp_derive(table, base, own_rows_only := true) → VARCHAR
-- Declares that a table was made from a protected one, to which calls on it are charged.
-- own_rows_only: each row is made of rows of its own privacy unit and of public tables alone.
-- one_row_each, where the base has no privacy unit: one row of it gives at most one row here, made of it alone.
CREATE OR REPLACE TEMP MACRO dp_derive(
  source, base, privacy_unit := NULL, own_rows_only := false, one_row_each := false
) AS
  system.main.dpsql_derive(
    source, base,
    system.main.struct_pack(
      privacy_unit := privacy_unit, own_rows_only := own_rows_only, one_row_each := one_row_each),
    dpsql_reads(source), dpsql_tables());

-- dp_unplaced() → TABLE: every table of which nothing is declared, with the lines that declare it.
CREATE OR REPLACE TEMP MACRO dp_unplaced() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_unplaced((
    SELECT system.main.list(system.main.struct_pack(
      database_name := database_name, schema_name := schema_name, table_name := table_name))
    FROM system.main.duckdb_tables() WHERE NOT internal))) AS entry);

-- dp_budget() → TABLE: one row per dataset, what is spent and what remains.
CREATE OR REPLACE TEMP MACRO dp_budget() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_budget()) AS entry);

-- dp_ledger() → TABLE: one row per entry of the ledger, in the order of its hash chain.
CREATE OR REPLACE TEMP MACRO dp_ledger() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_ledger()) AS entry);

-- dp_estimate(function, n_features := …, k := …, epsilon := …, …) → TABLE(quantity, value, meaning)
-- What a call would cost and how noisy it would be; reads no table and charges nothing.
CREATE OR REPLACE TEMP MACRO dp_estimate(
  function, n_features := NULL, k := NULL, epsilon := NULL, delta := NULL, n_rows := NULL, neighbours := NULL,
  mechanism := NULL, gamma := NULL, center := NULL, center_share := NULL, split := NULL, blocks := NULL,
  rows_per_block := NULL, count_share := NULL, range_share := NULL, radius := NULL, intercept := NULL, method := NULL,
  selector := NULL, selection_share := NULL, selection_blocks := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, row_norm := NULL, rounds := NULL,
  bounds_share := NULL, scale_share := NULL, quantiles := NULL, cells := NULL, error_bound := NULL, score := NULL,
  threshold := NULL, max_features_per_row := NULL, n_max := NULL, cutoff := NULL, false_positives := NULL,
  clusters := NULL, vocabulary := NULL, vocabulary_share := NULL, regularization := NULL, thresholds := NULL,
  n_thresholds := NULL, threshold_share := NULL, curve := NULL, aggregates := NULL, keys := NULL,
  max_groups_per_unit := NULL, max_rows_per_unit_group := NULL, unit_value := NULL, noise := NULL, ddof := NULL,
  confidence := NULL, max_rows_per_unit := NULL, bins := NULL, n_bins := NULL, null_bin := NULL, margins := NULL,
  verdict_share := NULL, standardize := NULL, moments_share := NULL
) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_estimate(
    function,
    system.main.struct_pack(
      n_features := n_features, k := k, epsilon := epsilon, delta := delta, n_rows := n_rows, neighbours := neighbours,
      mechanism := mechanism, gamma := gamma, center := center, center_share := center_share, split := split,
      blocks := blocks, rows_per_block := rows_per_block, count_share := count_share, range_share := range_share,
      radius := radius, intercept := intercept, method := method, selector := selector,
      selection_share := selection_share, selection_blocks := selection_blocks, lower := lower, upper := upper,
      target_lower := target_lower, target_upper := target_upper, target_levels := target_levels, row_norm := row_norm,
      rounds := rounds, bounds_share := bounds_share, scale_share := scale_share, quantiles := quantiles,
      cells := cells, error_bound := error_bound, score := score, threshold := threshold,
      max_features_per_row := max_features_per_row, n_max := n_max, cutoff := cutoff,
      false_positives := false_positives, clusters := clusters, vocabulary := vocabulary,
      vocabulary_share := vocabulary_share, regularization := regularization, thresholds := thresholds,
      n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, aggregates := aggregates,
      keys := keys, max_groups_per_unit := max_groups_per_unit, max_rows_per_unit_group := max_rows_per_unit_group,
      unit_value := unit_value, noise := noise, ddof := ddof, confidence := confidence,
      max_rows_per_unit := max_rows_per_unit, bins := bins, n_bins := n_bins, null_bin := null_bin, margins := margins,
      verdict_share := verdict_share, standardize := standardize, moments_share := moments_share))) AS entry);
