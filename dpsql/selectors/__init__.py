"""The functions that select features: for each its plan, its statistic and its draw."""
