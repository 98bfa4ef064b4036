-- dp_protect: Set the budget of a table, and what must hold for every call on it.
-- Guarantee: From then on all releases on the table together stay within epsilon and delta (or rho), under the stated
-- relation and privacy unit. A call that does not fit is refused before it reads a row, and charges nothing.
-- More: docs/functions/dp_protect.md
CREATE OR REPLACE TEMP MACRO dp_protect(
  dataset, epsilon := NULL, delta := NULL, rho := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL,
  target_levels := NULL, keys := NULL, accountant := NULL, public := NULL, tables := NULL, merge := NULL, mark := true,
  source := true, replace := false, engine := NULL, claims := NULL, enum_labels := NULL, extremes := NULL,
  period := NULL, period_of := NULL, period_zone := NULL, epsilon_total := NULL, delta_total := NULL,
  default_epsilon := NULL, default_delta := NULL, default_daily_epsilon := NULL, dated_ahead := true
) AS
  dpsql_said(system.main.dpsql_protect(
    dataset,
    system.main.struct_pack(
      epsilon := epsilon, delta := delta, rho := rho, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, lower := lower, upper := upper, target_lower := target_lower,
      target_upper := target_upper, target_levels := target_levels, keys := keys, accountant := accountant,
      public := public, tables := tables, merge := merge, mark := mark, source := source, replace := replace,
      engine := engine, claims := claims, enum_labels := enum_labels, extremes := extremes, period := period,
      period_of := period_of, period_zone := period_zone, epsilon_total := epsilon_total, delta_total := delta_total,
      default_epsilon := default_epsilon, default_delta := default_delta,
      default_daily_epsilon := default_daily_epsilon, dated_ahead := dated_ahead),
    CASE WHEN source AND engine IS NULL AND tables IS NULL THEN dpsql_reads(dataset) END,
    CASE WHEN source AND engine IS NULL THEN dpsql_texts() END,
    CASE WHEN engine IS NULL THEN
      system.main.list_transform(TRY_CAST(public AS VARCHAR[]), lambda t: dpsql_reads(t)) END,
    dpsql_tables(),
    CASE WHEN engine IS NULL THEN
      system.main.list_transform(
        system.main.json_keys(system.main.to_json(tables)), lambda t: dpsql_reads(t)) END));

-- dp_public: Declare that a table holds nothing about any privacy unit, so that views of protected tables may join it.
-- Guarantee: None of its own: a call on a view that joins the table is charged to the protected tables alone.
-- More: docs/functions/dp_public.md
CREATE OR REPLACE TEMP MACRO dp_public(
  source, force := false, engine := NULL
) AS
  dpsql_said(system.main.dpsql_public(
    source,
    system.main.struct_pack(
      force := force, engine := engine),
    CASE WHEN engine IS NULL THEN dpsql_reads(source) END, dpsql_tables(),
    CASE WHEN engine IS NULL THEN dpsql_texts() END));

-- dp_derive: Declare that a table was made from a protected one, so that calls on it are charged to that one.
-- Guarantee: Calls on the table are charged to the base's budget, as far as a privacy unit reaches: with
-- `own_rows_only` each row is made of rows of its own person and of public tables; with `one_row_each` each row of the
-- base gives at most one row.
-- More: docs/functions/dp_derive.md
CREATE OR REPLACE TEMP MACRO dp_derive(
  source, base, privacy_unit := NULL, own_rows_only := false, one_row_each := false, engine := NULL
) AS
  dpsql_said(system.main.dpsql_derive(
    source, base,
    system.main.struct_pack(
      privacy_unit := privacy_unit, own_rows_only := own_rows_only, one_row_each := one_row_each, engine := engine),
    CASE WHEN engine IS NULL THEN dpsql_reads(source) END, dpsql_tables(),
    CASE WHEN engine IS NULL THEN dpsql_texts() END));

-- dp_unplaced: List the tables of which nothing is declared, with the statements that declare them.
-- Guarantee: None needed: it reads names of tables.
-- More: docs/functions/dp_unplaced.md
CREATE OR REPLACE TEMP MACRO dp_unplaced(
  engine := NULL
) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_unplaced(
    system.main.struct_pack(
      engine := engine),
    (SELECT system.main.list(system.main.struct_pack(
      database_name := database_name, schema_name := schema_name, table_name := table_name))
    FROM system.main.duckdb_tables() WHERE NOT internal))) AS entry);

-- dp_budget: Show what each dataset may spend, has spent and has left.
-- Guarantee: All releases so far together are (epsilon_spent, delta_spent)-DP, or rho_spent-zCDP for a budget in rho,
-- under the budget's accountant.
-- More: docs/functions/dp_budget.md
CREATE OR REPLACE TEMP MACRO dp_budget(details := false) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(CASE
    WHEN details IS NOT NULL AND TRY_CAST(details AS BOOLEAN) IS NULL THEN system.main.concat(
      '[DPSQL-P120] dp_budget lists all budgets. Write FROM dp_budget() WHERE dataset = ''', details, ''';')
    ELSE system.main.concat('SELECT COLUMNS(''', CASE WHEN TRY_CAST(details AS BOOLEAN) THEN '.*'
      ELSE '^(dataset|spent|block|budget|releases|epsilon_spent|epsilon_remaining|delta_spent|delta_remaining|remaining)$' END,
      ''') FROM (SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_budget()) AS entry))')
    END));

-- dp_policy: Show what owners stated: limits, privacy units, bounds, keys and levels; public and derived tables.
-- Guarantee: None needed: it reads what was declared, and no row.
-- More: docs/functions/dp_policy.md
CREATE OR REPLACE TEMP MACRO dp_policy() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_policy()) AS entry);

-- dp_ledger: Show every entry of the ledger: budgets, declarations, charges and replays, in the order of its hash
-- chain.
-- Guarantee: Each entry has the guarantee of one release; `dp_budget()` adds them up.
-- More: docs/functions/dp_ledger.md
CREATE OR REPLACE TEMP MACRO dp_ledger() AS TABLE (
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_ledger()) AS entry)
),
(dataset) AS TABLE (
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_ledger()) AS entry)
  WHERE system.main.lower(entry.dataset) = system.main.lower(dataset)
);

-- dp_estimate: Tell what a call would cost and how noisy it would be, without reading a table.
-- Guarantee: None needed: it computes from public numbers alone.
-- More: docs/functions/dp_estimate.md
CREATE OR REPLACE TEMP MACRO dp_estimate(
  function, n_features := NULL, k := NULL, epsilon := NULL, delta := NULL, n_rows := NULL, neighbours := NULL,
  mechanism := NULL, gamma := NULL, center := NULL, center_share := NULL, split := NULL, blocks := NULL,
  rows_per_block := NULL, count_share := NULL, range_share := NULL, radius := NULL, intercept := NULL, method := NULL,
  selector := NULL, selection_share := NULL, selection_blocks := NULL, lower := NULL, upper := NULL,
  target_lower := NULL, target_upper := NULL, target_levels := NULL, row_norm := NULL, rounds := NULL,
  bounds_share := NULL, scale_share := NULL, quantiles := NULL, cells := NULL, interval_share := NULL,
  error_bound := NULL, score := NULL, threshold := NULL, max_features_per_row := NULL, n_max := NULL, cutoff := NULL,
  false_positives := NULL, clusters := NULL, vocabulary := NULL, vocabulary_share := NULL, regularization := NULL,
  thresholds := NULL, n_thresholds := NULL, threshold_share := NULL, curve := NULL, aggregates := NULL, keys := NULL,
  max_groups_per_unit := NULL, max_rows_per_unit_group := NULL, unit_value := NULL, noise := NULL, ddof := NULL,
  confidence := NULL, max_rows_per_unit := NULL, left_out_share := NULL, bins := NULL, n_bins := NULL, null_bin := NULL,
  margins := NULL, verdict_share := NULL, verdict := NULL, standardize := NULL, moments_share := NULL, of := NULL,
  loss := NULL, sampling := NULL, sql := NULL, during := NULL
) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(dpsql_estimated(
    function, sql,
    system.main.struct_pack(
      n_features := n_features, k := k, epsilon := epsilon, delta := delta, n_rows := n_rows, neighbours := neighbours,
      mechanism := mechanism, gamma := gamma, center := center, center_share := center_share, split := split,
      blocks := blocks, rows_per_block := rows_per_block, count_share := count_share, range_share := range_share,
      radius := radius, intercept := intercept, method := method, selector := selector,
      selection_share := selection_share, selection_blocks := selection_blocks, lower := lower, upper := upper,
      target_lower := target_lower, target_upper := target_upper, target_levels := target_levels, row_norm := row_norm,
      rounds := rounds, bounds_share := bounds_share, scale_share := scale_share, quantiles := quantiles,
      cells := cells, interval_share := interval_share, error_bound := error_bound, score := score,
      threshold := threshold, max_features_per_row := max_features_per_row, n_max := n_max, cutoff := cutoff,
      false_positives := false_positives, clusters := clusters, vocabulary := vocabulary,
      vocabulary_share := vocabulary_share, regularization := regularization, thresholds := thresholds,
      n_thresholds := n_thresholds, threshold_share := threshold_share, curve := curve, aggregates := aggregates,
      keys := keys, max_groups_per_unit := max_groups_per_unit, max_rows_per_unit_group := max_rows_per_unit_group,
      unit_value := unit_value, noise := noise, ddof := ddof, confidence := confidence,
      max_rows_per_unit := max_rows_per_unit, left_out_share := left_out_share, bins := bins, n_bins := n_bins,
      null_bin := null_bin, margins := margins, verdict_share := verdict_share, verdict := verdict,
      standardize := standardize, moments_share := moments_share, of := of, loss := loss, sampling := sampling,
      sql := sql, during := during))) AS entry);
