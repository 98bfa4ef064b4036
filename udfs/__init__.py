"""Translation between DuckDB and dpsql: one short spec per SQL function, without any decisions."""
