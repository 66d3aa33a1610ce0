"""Loops over time: the only files that touch private parts of torch."""
