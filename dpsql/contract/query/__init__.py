"""Splits a query of plain SQL into private cores and the text over their released tables.

`tree` reads the tree of any DuckDB version into one form, the `nodes`. `splitter` decides the level of every part from
the leaves up: public, rows of people, or released. Rows of people become `stages`, which `cores` aggregate; `post`
writes the SQL above them.
"""
