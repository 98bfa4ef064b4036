"""Plain SQL: read, split into private cores and what follows from their answers, and written anew."""
