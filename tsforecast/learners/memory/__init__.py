"""Variational learners with a memory of observations."""
