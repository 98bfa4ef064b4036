"""Aggregates, histograms, quantiles and bounds in groups; without `by` all rows are one group."""
