"""Evidence of observations about weights, and its estimators."""
