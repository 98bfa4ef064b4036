"""What a reader is told about each SQL function: one record per function, and everything that shows it.

`entry` says what a record is, the modules named for topics hold the records, `catalogue` finds one, `demonstration` has
the tables of the examples, and `pages` writes ``docs/functions``. The shell's ``.help``, the descriptions in
``duckdb_functions()``, ``dp_functions()`` and the comments above the macros are made of the same records.
"""
