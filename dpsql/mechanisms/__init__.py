"""Mechanisms: integers in, positions out; no DuckDB here."""
