"""Families of Gaussian beliefs over the weights of a network."""
