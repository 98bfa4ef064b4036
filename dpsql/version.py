"""The version of dpsql."""

__version__ = "0.1.0"
