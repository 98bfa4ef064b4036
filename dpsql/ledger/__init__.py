"""Budgets and charges: charge and result in one commit, in a chain of hashes, in SQLite or PostgreSQL."""
