"""Expressions over one row that a caller writes: how they are read, what they may call, and what is run in their place.

An expression may be as hostile as its author likes, so it is never run as it was written.

1. DuckDB parses the text, and `dpsql.contract.query.tree` reads the tree by allow lists.
2. DuckDB types what was read, from the types of the columns alone (`dpsql.engines.duckdb.typed_expression`).
3. `judge` asks for every function, operator, cast and literal of the typed tree whether it is in the tables
   (`functions`, `kinds`), and writes the SQL that runs. What is not in a table is refused, before anything is charged.

What is in a table is *pure*: its arguments decide it. It is *total*: whatever a row holds, all that it may raise is
what DuckDB's TRY turns into NULL. And it is *local*: no setting, collation, locale, time zone or catalog has a part in
it, or the judge writes it so that none has. So a row decides whether it passes, and nothing else.
"""
