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
    SELECT table_name AS name FROM system.main.duckdb_tables() WHERE NOT internal
    UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal));

-- dpsql_lineage(source, release) → the same for a call, which asks only where something is protected or its release has a name.
CREATE OR REPLACE TEMP MACRO dpsql_lineage(source, release) AS
  dpsql_reads(source, always := release IS NOT NULL);
