"""The tables that a source reads, their budgets, and how far one person reaches in the rows."""
