"""One file per SQL function: its arguments, its statistic, its draw and its result."""
