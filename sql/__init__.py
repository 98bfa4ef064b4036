"""The SQL files of dpsql; each one runs by hand."""
