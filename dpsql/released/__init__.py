"""What becomes of a release at no cost: rows, models, curves and pictures."""
