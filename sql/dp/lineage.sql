-- dpsql_said(sql) → the text that a function of dpsql returned, or its refusal, raised as the text that it is. Not for
-- direct use.
CREATE OR REPLACE TEMP MACRO dpsql_said(sql) AS
  system.main.list_extract(
    system.main.list_transform(system.main.list_value(sql), lambda s:
      CASE WHEN system.main.starts_with(s, '[DPSQL-') THEN system.main.error(s) ELSE s END),
    1);

-- dpsql_reads(source) → [{query, plan}], or NULL where nothing is protected and `always` is false
-- What DuckDB says that a source reads, for the planner: plans bound in the caller's own session. It is folded while a
-- statement is bound, reads no row and charges nothing. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_reads(source, always := true) AS
  system.main.list_transform(
    system.main.dpsql_spellings(
      source, system.main.current_setting('search_path'), system.main.current_database(), always),
    lambda q: system.main.struct_pack(query := q, plan := system.main.json_serialize_plan(q)::VARCHAR));

-- dpsql_tables() → the names of tables and views, for hints.
CREATE OR REPLACE TEMP MACRO dpsql_tables() AS (
  SELECT system.main.list(name ORDER BY name) FROM (
    SELECT table_name AS name FROM system.main.duckdb_tables()
    WHERE NOT internal AND NOT system.main.starts_with(schema_name, 'dpsql_ledger_')
    UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal));

-- dpsql_texts() → the texts of views and macros, the types that users made, and the tables, for `catalogued`.
-- Where a view stands on files, its texts are how it is known again. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_texts() AS (
  SELECT system.main.struct_pack(
    views := (
      SELECT system.main.list(system.main.struct_pack(
        path := system.main.list_value(database_name, schema_name, view_name), sql := sql))
      FROM system.main.duckdb_views() WHERE NOT internal),
    macros := (
      SELECT system.main.list(system.main.struct_pack(
        path := system.main.list_value(database_name, schema_name, function_name), sort := function_type,
        parameters := parameters, types := parameter_types, body := macro_definition))
      FROM system.main.duckdb_functions() WHERE NOT internal AND macro_definition IS NOT NULL),
    types := (
      SELECT system.main.list(system.main.struct_pack(name := type_name, "is" := logical_type))
      FROM system.main.duckdb_types() WHERE NOT internal),
    tables := (
      SELECT system.main.list(system.main.struct_pack(
        path := system.main.list_value(database_name, schema_name, table_name), number := table_oid))
      FROM system.main.duckdb_tables() WHERE NOT internal)));

-- dpsql_typed(source, condition) → [{query, plan}] with the types of the columns that a condition names.
CREATE OR REPLACE TEMP MACRO dpsql_typed(source, condition) AS
  system.main.list_transform(
    system.main.dpsql_type_queries(source, condition),
    lambda q: system.main.struct_pack(query := q, plan := system.main.json_serialize_plan(q, optimize := true)::VARCHAR));

-- dpsql_lineage(source, release, condition) → what a call asks for: where rows come from, only where something is
-- protected or its release has a name; and types, only where it has a condition.
CREATE OR REPLACE TEMP MACRO dpsql_lineage(source, release, condition) AS
  system.main.list_concat(dpsql_reads(source, always := system.main.typeof(release) <> 'BOOLEAN'), dpsql_typed(source, condition));
