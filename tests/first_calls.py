"""Types are checked in the first calls of each function in each test: to check takes as long as the work."""

import functools
from collections.abc import Callable
from typing import Any

from beartype import beartype

_CALLS = 3
_tests = 0


def another_test() -> None:
    """Begin to count anew."""
    global _tests
    _tests += 1


def checked(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that looks at the types of its arguments in the first calls: a checker for `jaxtyping`."""
    look = beartype(function)
    test, calls = 0, 0

    @functools.wraps(function)
    def first(*args: Any, **kwargs: Any) -> None:
        nonlocal test, calls
        if test != _tests:
            test, calls = _tests, 0
        if calls < _CALLS:
            calls += 1
            look(*args, **kwargs)

    return first
