"""One module per sufficient statistic: what it is, its units, and how far one neighbour can move it."""
