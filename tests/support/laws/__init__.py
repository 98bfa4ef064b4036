"""Exact output laws of the private functions, one module per function, for the checks of `dpsql.testing`."""
