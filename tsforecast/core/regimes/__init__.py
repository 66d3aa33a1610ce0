"""Finite regimes: exact inference in their chain, autoregressions that they choose, EM, and Kim's collapse."""
