"""Types are checked in the first calls of each function in each test: to check takes as long as the work."""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, get_args

import jaxtyping

Checker = Callable[..., Callable[..., Any]]

_CALLS = 3
_tests = 0
_decorated: collections.Counter[CodeType] = collections.Counter()
_checks: dict[tuple[CodeType, bool], Callable[..., Any]] = {}  # of functions within functions, made once


def another_test() -> None:
    """Begin to count anew."""
    global _tests
    _tests += 1
    _decorated.clear()


def decorate_first(jaxtyped: Callable[..., Any]) -> Callable[..., Any]:
    """Return jaxtyping's decorator for the first calls of a test; it is applied where there is one.

    To apply it takes a millisecond, and there are ten thousand functions.
    """

    def decorate(function: Any = None, *, typechecker: Checker) -> Any:
        if function is None:
            return functools.partial(decorate, typechecker=typechecker)
        if inspect.isclass(function):
            if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
                function.__init__ = decorate(function.__init__, typechecker=typechecker)
            return function
        if not function.__annotations__:
            return function
        if "<locals>" in function.__qualname__:
            # Each call of the outer function makes these again: they are left as they are after the first of a test.
            if jaxtyping.config.jaxtyping_disable or _decorated[function.__code__] == _CALLS:
                return function
            _decorated[function.__code__] += 1
        return _first(
            function, lambda: jaxtyped(function, typechecker=functools.partial(_checked, typechecker, function))
        )

    return decorate


def _first(function: FunctionType, look: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function whose types are looked at in the first calls; where none has a shape, one call is enough."""
    looked, most, test, calls = None, _CALLS, 0, 0

    @functools.wraps(function)
    def first(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal looked, most, test, calls
        if test != _tests:
            test, calls = _tests, most if jaxtyping.config.jaxtyping_disable else 0
        if calls >= most:
            return function(*args, **kwargs)
        calls += 1
        if looked is None:
            looked = look()
            most = _CALLS if any(map(_has_shape, function.__annotations__.values())) else 1
        return looked(*args, **kwargs)

    return first


def _checked(typechecker: Checker, function: FunctionType, made: FunctionType) -> Callable[..., Any]:
    """Return the check of what jaxtyping makes of a function: one of parameters alone, and one with the result.

    It asks the first before a call, and the other behind it: where a result has a type, that one is enough.
    """
    has_result = made.__code__.co_kwonlyargcount > function.__code__.co_kwonlyargcount
    if not has_result and "return" in function.__annotations__:
        return lambda *_, **__: None
    if "<locals>" not in function.__qualname__:
        return typechecker(made)
    key = function.__code__, has_result
    if key not in _checks:
        _checks[key] = typechecker(made)
    return _checks[key]


def _has_shape(hint: Any) -> bool:
    is_array = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return is_array or any(map(_has_shape, get_args(hint)))
