-- dpsql_query_reads(sql, tree) → [{query, plan}]: what DuckDB says of the tables that a query names, bound in the
-- caller's own session. It is folded while a statement is bound, reads no row and charges nothing. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_query_reads(sql, tree) AS
  system.main.list_transform(
    system.main.dpsql_query_tables(
      sql, tree, system.main.current_setting('search_path'), system.main.current_database(),
      system.main.current_setting('TimeZone')),
    lambda q: system.main.struct_pack(query := q, plan := system.main.json_serialize_plan(q)::VARCHAR));

-- dpsql_planned(texts) → texts with DuckDB's plans and trees of those that have no plan yet. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_planned(texts) AS
  system.main.list_transform(texts, lambda q: system.main.struct_pack(
    query := system.main.struct_extract(q, 'query'),
    plan := CASE WHEN system.main.struct_extract(q, 'plan') IS NULL
      THEN system.main.json_serialize_plan(system.main.struct_extract(q, 'query'))::VARCHAR
      ELSE system.main.struct_extract(q, 'plan') END,
    tree := CASE WHEN system.main.struct_extract(q, 'plan') IS NULL
      THEN system.main.json_serialize_sql(system.main.struct_extract(q, 'query'))::VARCHAR END));

-- dpsql_query_text(sql, tree, given, seen) → the statement that a query runs. An argument that a macro names twice is
-- computed twice, so the plans of `seen` are handed on with those of the texts. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_query_text(sql, tree, given, seen) AS
  system.main.dpsql_query_plan(sql, tree, given, dpsql_planned(system.main.dpsql_query_cores(sql, tree, given, seen)));

-- dpsql_query_told(tree, given, seen, settings) → what a query would cost. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_query_told(tree, given, seen, settings) AS
  system.main.dpsql_expected(
    tree, given, settings, dpsql_planned(system.main.dpsql_expected_cores(tree, given, seen, settings)));

-- dpsql_estimated(function, sql, given) → the lines of dp_estimate: of dp_query those that `estimate := true` has. Not
-- for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_estimated(function, sql, given) AS
  CASE WHEN CAST(function AS VARCHAR) IS DISTINCT FROM 'dp_query' THEN system.main.dpsql_estimate(function, given)
  ELSE dpsql_query_told(
    system.main.json_serialize_sql(system.main.dpsql_query_parsed(CAST(sql AS VARCHAR)))::VARCHAR, given,
    dpsql_query_reads(CAST(sql AS VARCHAR), system.main.json_serialize_sql(system.main.dpsql_query_parsed(CAST(sql AS VARCHAR)))::VARCHAR),
    system.main.list_value(
      system.main.current_setting('search_path'), system.main.current_database(),
      system.main.current_setting('TimeZone'))) END;

-- dp_query: Answer a query of plain SQL privately.
-- Guarantee: Pure epsilon-DP without `delta`, (epsilon, delta)-DP with it, for all of the statement together: it is
-- split into private *cores* and what DuckDB computes from their answers. The cores have equal parts of epsilon, are
-- drawn under one receipt, and are charged at once. Private keys are drawn by one part of a core, and are public for
-- its others: parts that are chosen by what earlier ones released compose like any. [From SQL to a private
-- answer](../plain-sql.md) says how a statement is split, which groups come back, and what to write in place of what is
-- refused.
-- More: docs/functions/dp_query.md
CREATE OR REPLACE TEMP MACRO dp_query(
  sql, epsilon := NULL, delta := NULL, errors := NULL, keys := NULL, lower := NULL, upper := NULL, during := NULL,
  max_rows_per_unit := NULL, max_groups_per_unit := NULL, left_out_share := NULL, confidence := NULL, release := false,
  max_age := NULL, estimate := NULL, fresh := NULL
) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(dpsql_query_text(
    sql, system.main.json_serialize_sql(system.main.dpsql_query_parsed(CAST(sql AS VARCHAR)))::VARCHAR, system.main.struct_pack(
      epsilon := epsilon, delta := delta, errors := errors, keys := keys, lower := lower, upper := upper,
      during := during, max_rows_per_unit := max_rows_per_unit, max_groups_per_unit := max_groups_per_unit,
      left_out_share := left_out_share, confidence := confidence, release := release, max_age := max_age,
      estimate := estimate, fresh := fresh),
    dpsql_query_reads(sql, system.main.json_serialize_sql(system.main.dpsql_query_parsed(CAST(sql AS VARCHAR)))::VARCHAR))));
