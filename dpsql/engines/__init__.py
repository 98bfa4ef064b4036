"""What computes statistics over rows; DuckDB is the first."""
