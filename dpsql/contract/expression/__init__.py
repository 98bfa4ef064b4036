"""Row expressions of a caller: how dpsql reads them, which functions they may call, and the SQL that runs instead.

An expression may be hostile, so dpsql never runs its original text.

1. DuckDB parses the text, and `dpsql.contract.query.tree` reads the tree by allow lists.
2. DuckDB types the tree from the column types alone (`dpsql.engines.duckdb.typed_expression`).
3. `judge` looks up every function, operator, cast and literal of the typed tree in the tables (`functions`, `kinds`),
   and writes the SQL that runs. It refuses anything outside the tables before any charge.

Every entry of the tables is *pure*: its arguments determine the result. It is *total*: for any row, DuckDB's TRY turns
all its errors into NULL. It is *local*: it depends on no setting, collation, locale, time zone or catalog, or the judge
writes SQL that does not. So the row alone decides whether it passes.
"""
