"""Reproductions of papers and tables of results, one folder a topic: `run.py`, what it is made of, and `results/`."""
