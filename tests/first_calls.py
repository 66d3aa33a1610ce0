"""Types are checked in the first calls of each function in each test: to check takes as long as the work."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from beartype import beartype

_CALLS = 3
_tests = 0
_known: list[FunctionType] = []


def another_test() -> None:
    """Begin to count anew."""
    global _tests
    _tests += 1
    for function in _known:
        function.__dict__.pop("__no_type_check__", None)
    _known.clear()


def checked(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that looks at the types of its arguments in the first calls: a checker for `jaxtyping`."""
    look = functools.cache(lambda: beartype(function))  # a millisecond each, for ten thousand functions
    test, calls = 0, 0

    @functools.wraps(function)
    def first(*args: Any, **kwargs: Any) -> None:
        nonlocal test, calls
        if test != _tests:
            test, calls = _tests, 0
        if calls < _CALLS:
            calls += 1
            look()(*args, **kwargs)
        else:
            # What jaxtyping does around a check takes longer than the check. It passes by functions with this mark.
            # They are not handed to a checker: the caller's frame knows them.
            known = sys._getframe(1).f_locals.get("fn")
            if isinstance(known, FunctionType):
                known.__no_type_check__ = True
                _known.append(known)

    return first
