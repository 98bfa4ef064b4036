"""The steps of the statement that a call runs: each is one query with its comment."""
