"""Linear and logistic regression: one file per method, and what the methods share."""
