"""Queries of plain SQL: read from DuckDB's tree, split into private cores and the text over what these release.

`tree` reads the tree of any version into the `nodes` of one form. `splitter` decides the level of every part from the
leaves up: public, rows of people, or released. Rows of people become `stages` of which `cores` ask aggregates; what
stands above is written by `post`.
"""
