"""Posteriors of a whole batch of observations: Laplace, expectation propagation, and learners that refit."""
