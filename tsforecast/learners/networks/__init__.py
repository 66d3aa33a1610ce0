"""Networks as functions of one vector of weights."""
