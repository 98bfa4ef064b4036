"""Which tables a source reads, whose budgets that concerns, and how far one person reaches in its rows."""
