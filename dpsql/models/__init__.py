"""Functions that fit a model, and the models that they release."""
