-- Names and places that people try: these macros only say what to write.

CREATE OR REPLACE TEMP MACRO dp_max(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, by := NULL, keys := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, condition := NULL, dataset := NULL, release := false
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_max', source,
    system.main.struct_pack(
      target := target, quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, by := "by",
      keys := keys, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, condition := condition,
      dataset := dataset, release := release))));

CREATE OR REPLACE TEMP MACRO dp_max(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, dataset := NULL, release := false
) AS
  (SELECT NULL FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_max', NULL,
    system.main.struct_pack(
      epsilon := epsilon)))));

CREATE OR REPLACE TEMP MACRO dp_mean(
  source, target := NULL, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL, by := NULL, keys := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, condition := NULL, dataset := NULL, release := false
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_mean', source,
    system.main.struct_pack(
      target := target, epsilon := epsilon, delta := delta, lower := lower, upper := upper, by := "by", keys := keys,
      privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, condition := condition, dataset := dataset,
      release := release))));

CREATE OR REPLACE TEMP MACRO dp_mean(
  y, epsilon := NULL, delta := NULL, lower := NULL, upper := NULL, dataset := NULL, release := false
) AS
  (SELECT NULL FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_mean', NULL,
    system.main.struct_pack(
      epsilon := epsilon)))));

CREATE OR REPLACE TEMP MACRO dp_median(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, by := NULL, keys := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, condition := NULL, dataset := NULL, release := false
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_median', source,
    system.main.struct_pack(
      target := target, quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, by := "by",
      keys := keys, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, condition := condition,
      dataset := dataset, release := release))));

CREATE OR REPLACE TEMP MACRO dp_median(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, dataset := NULL, release := false
) AS
  (SELECT NULL FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_median', NULL,
    system.main.struct_pack(
      epsilon := epsilon)))));

CREATE OR REPLACE TEMP MACRO dp_min(
  source, target := NULL, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, by := NULL, keys := NULL,
  privacy_unit := NULL, max_rows_per_unit := NULL, condition := NULL, dataset := NULL, release := false
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_min', source,
    system.main.struct_pack(
      target := target, quantiles := quantiles, epsilon := epsilon, lower := lower, upper := upper, by := "by",
      keys := keys, privacy_unit := privacy_unit, max_rows_per_unit := max_rows_per_unit, condition := condition,
      dataset := dataset, release := release))));

CREATE OR REPLACE TEMP MACRO dp_min(
  y, quantiles := NULL, epsilon := NULL, lower := NULL, upper := NULL, dataset := NULL, release := false
) AS
  (SELECT NULL FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_min', NULL,
    system.main.struct_pack(
      epsilon := epsilon)))));

CREATE OR REPLACE TEMP MACRO dp_protect(
  dataset, epsilon := NULL, delta := NULL, rho := NULL, neighbours := NULL, privacy_unit := NULL,
  max_rows_per_unit := NULL, lower := NULL, upper := NULL, target_lower := NULL, target_upper := NULL,
  target_levels := NULL, keys := NULL, accountant := NULL, public := NULL, tables := NULL, merge := NULL, mark := NULL,
  source := NULL, replace := NULL, engine := NULL, claims := NULL, enum_labels := NULL, extremes := NULL,
  period := NULL, period_of := NULL, period_zone := NULL, epsilon_total := NULL, delta_total := NULL,
  default_epsilon := NULL, default_delta := NULL, default_daily_epsilon := NULL, dated_ahead := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_protect', dataset,
    system.main.struct_pack(
      epsilon := epsilon, delta := delta, rho := rho, neighbours := neighbours, privacy_unit := privacy_unit,
      max_rows_per_unit := max_rows_per_unit, lower := lower, upper := upper, target_lower := target_lower,
      target_upper := target_upper, target_levels := target_levels, keys := keys, accountant := accountant,
      public := public, tables := tables, merge := merge, mark := mark, source := source, replace := replace,
      engine := engine, claims := claims, enum_labels := enum_labels, extremes := extremes, period := period,
      period_of := period_of, period_zone := period_zone, epsilon_total := epsilon_total, delta_total := delta_total,
      default_epsilon := default_epsilon, default_delta := default_delta,
      default_daily_epsilon := default_daily_epsilon, dated_ahead := dated_ahead))));

CREATE OR REPLACE TEMP MACRO dp_public(
  source, force := NULL, engine := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_public', source,
    system.main.struct_pack(
      force := force, engine := engine))));

CREATE OR REPLACE TEMP MACRO dp_derive(
  source, base, privacy_unit := NULL, own_rows_only := NULL, one_row_each := NULL, engine := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_other_name(
    'dp_derive', source,
    system.main.struct_pack(
      base := base, privacy_unit := privacy_unit, own_rows_only := own_rows_only, one_row_each := one_row_each,
      engine := engine))));
