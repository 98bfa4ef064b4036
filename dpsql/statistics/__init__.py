"""Sufficient statistics, one module each: definition, units and sensitivity."""
