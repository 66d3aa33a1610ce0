"""Bounds of numbers that users choose."""

import math


def at_least(least: int, **options: float | int | None) -> None:
    """Refuses options below a bound, NaN and infinity; None, which stands for a default, passes.

    Args:
        least: The bound.
        options: Values by name.

    Raises:
        ValueError: At the first which is not as expected.
    """
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ValueError(f"expected {name} to be at least {least}, got {value}")


def above_zero(**options: float | int | None) -> None:
    """Refuses options of zero and below, NaN and infinity; None, which stands for a default, passes.

    Raises:
        ValueError: At the first which is not as expected.
    """
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"expected {name} to be above 0, got {value}")
