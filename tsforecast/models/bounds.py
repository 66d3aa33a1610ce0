"""Checks of the numbers and names that users choose."""

import math
from collections.abc import Sequence


def at_least(least: int, **options: float | int | None) -> None:
    """Refuses options below a bound, NaN and infinity; None, for a default, passes.

    Args:
        least: The lower bound.
        options: Values by name.

    Raises:
        ValueError: At the first that is not as expected.
    """
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ValueError(f"expected {name} to be at least {least}, got {value}")


def above_zero(**options: float | int | None) -> None:
    """Refuses options of zero and below, NaN and infinity; None, for a default, passes.

    Raises:
        ValueError: At the first that is not as expected.
    """
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"expected {name} to be above 0, got {value}")


def one_of(choices: Sequence[str], **options: str) -> None:
    """Refuses names that are not among the choices.

    Args:
        choices: What is known.
        options: Names by option.

    Raises:
        ValueError: At the first that is not.
    """
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
