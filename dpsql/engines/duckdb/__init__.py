"""DuckDB: gate and ticket, statements, macros, and what its plans say about where rows come from."""
