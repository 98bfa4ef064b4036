"""Functions that summarise one column or two: quantiles, bounds, regression metrics."""
