"""Mechanisms: integers in, positions or noisy integers out; without DuckDB."""
