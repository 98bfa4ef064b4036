-- dpsql_reads(source) → [{query, plan}]: the same, whatever is protected.
CREATE OR REPLACE TEMP MACRO dpsql_reads(source) AS
  system.main.list_transform(
    system.main.dpsql_spellings(source, system.main.current_setting('search_path'), system.main.current_database()),
    lambda q: system.main.struct_pack(query := q, plan := system.main.json_serialize_plan(q)::VARCHAR));

-- dpsql_tables() → the names of tables and views, for hints.
CREATE OR REPLACE TEMP MACRO dpsql_tables() AS (
  SELECT system.main.list(name ORDER BY name) FROM (
    SELECT table_name AS name FROM system.main.duckdb_tables() WHERE NOT internal
    UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal));

-- dpsql_lineage(source, release) → [{query, plan}], or NULL where nothing is protected and no release is named
-- What DuckDB says that a source reads, for the planner: plans bound in the caller's own session. It is folded while a
-- statement is bound, reads no row and charges nothing. Not for direct use.
CREATE OR REPLACE TEMP MACRO dpsql_lineage(source, release) AS
  CASE WHEN system.main.dpsql_governed() OR release IS NOT NULL THEN dpsql_reads(source) END;
