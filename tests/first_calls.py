"""Types are checked in the first calls of each function in each test: to check takes as long as the work."""

import collections
import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, get_args

import jaxtyping
from beartype import beartype

Empty = inspect.Signature.empty
_CALLS = 3
_tests = 0
_known: list[FunctionType] = []
_decorated: collections.Counter[CodeType] = collections.Counter()


def another_test() -> None:
    """Begin to count anew."""
    global _tests
    _tests += 1
    for function in _known:
        function.__dict__.pop("__no_type_check__", None)
    _known.clear()
    _decorated.clear()


def checked(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that looks at the types of its arguments in the first calls: a checker for `jaxtyping`.

    It asks for the parameters before a call, and for all types behind it: where a result has a type, that is enough.
    Where no type has a shape, as pyright can look at it, one call is enough.
    """
    look = functools.cache(lambda: beartype(function))  # a millisecond each, for ten thousand functions
    most = _CALLS if any(_has_shape(hint) for hint in function.__annotations__.values()) else 1
    test, calls = 0, 0
    comes_again: bool | None = None

    @functools.wraps(function)
    def first(*args: Any, **kwargs: Any) -> None:
        nonlocal test, calls, comes_again
        if comes_again is None:
            caller = sys._getframe(1).f_locals
            comes_again = caller.get("param_fn") is first and caller["full_signature"].return_annotation is not Empty
        if comes_again:
            return
        if test != _tests:
            test, calls = _tests, 0
        if calls < most:
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


def _has_shape(hint: Any) -> bool:
    is_array = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return is_array or any(map(_has_shape, get_args(hint)))


def decorate_first(jaxtyped: Callable[..., Any]) -> Callable[..., Any]:
    """Return jaxtyping's decorator, which leaves functions within functions as they are after the first of a test.

    Each call of the outer function makes and decorates them again, which takes as long as a dozen of their calls.
    """

    @functools.wraps(jaxtyped)
    def decorate(function: Any = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(decorate, **options)
        if isinstance(function, FunctionType) and "<locals>" in function.__qualname__:
            if jaxtyping.config.jaxtyping_disable or _decorated[function.__code__] == _CALLS:
                return function
            _decorated[function.__code__] += 1
        return jaxtyped(function, **options)

    return decorate
