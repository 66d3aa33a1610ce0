"""Likelihoods of targets given the outputs of a network."""
