"""Probabilistic time-series forecasting centred on switching state-space models."""
