import warnings

import pytest
import torch

from tsforecast.core import NotPositiveDefiniteError
from tsforecast.core.linalg import cholesky
from tsforecast.core.loop.scan import scan


def test_equals_the_loop_written_out():
    xs = {"a": torch.arange(4.0), "b": None, "time": range(10, 14)}

    def step(carry, x):
        assert x["b"] is None
        carry = carry * 0.5 + x["a"]
        return carry, (carry, x["a"] * x["time"], None)

    last, (path, products, nothing) = scan(step, torch.tensor(8.0), xs)
    torch.testing.assert_close(path, torch.tensor([4.0, 3.0, 3.5, 4.75]), rtol=0, atol=0)
    torch.testing.assert_close(products, torch.tensor([0.0, 11.0, 24.0, 39.0]), rtol=0, atol=0)
    assert last == 4.75
    assert nothing is None


def test_in_reverse_the_outputs_keep_the_order_of_time():
    last, times = scan(lambda carry, t: ([*carry, t], torch.tensor(t)), [], 3, reverse=True)
    assert last == [2, 1, 0]
    assert times.tolist() == [0, 1, 2]


def test_outputs_whose_shape_changes_are_broadcast():
    _, out = scan(lambda carry, x: (carry + torch.zeros(2), carry), torch.zeros(()), 3)
    assert out.shape == (3, 2)


@pytest.mark.parametrize("xs", [0, torch.zeros(0, 2), (torch.zeros(3), range(2)), {"a": None}])
def test_refuses_no_steps_and_unequal_lengths(xs):
    with pytest.raises(ValueError, match="Expected one number of steps, at least 1"):
        scan(lambda carry, x: (carry, None), None, xs)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_failure_names_the_step(reverse):
    def step(carry, time):
        if time == 2:
            raise NotPositiveDefiniteError("a covariance failed")
        return carry, None

    with pytest.raises(NotPositiveDefiniteError, match="Step 2: a covariance failed"):
        scan(step, None, 5, reverse)
    with pytest.raises(NotPositiveDefiniteError, match="Step 12: a covariance failed"):
        scan(step, None, 5, reverse, first=10)


def test_the_gradient_of_the_inputs_is_that_of_the_formula():
    """Sum of carry_t = sum of x_t (T - t): the loop is written as its closed form."""
    xs = torch.randn(5, requires_grad=True)
    _, path = scan(lambda carry, x: (carry + x, carry + x), torch.zeros(()), xs)
    path.sum().backward()
    torch.testing.assert_close(xs.grad, torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]))


# The compiled loop.


def _decay(carry, x):
    mean, cov = carry
    gain = cholesky(cov @ cov.mT + torch.eye(2)) @ x
    mean = 0.5 * mean + gain
    return (mean, 0.9 * cov), {"mean": mean, "sum": mean.sum()}


def test_compiled_it_equals_the_eager_loop():
    xs, carry = torch.randn(20, 2), (torch.zeros(2), torch.eye(2))
    expected = scan(_decay, carry, xs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # compiled, then found again
            torch.testing.assert_close(scan(_decay, carry, xs, compiled=True), expected)


@pytest.mark.parametrize(("steps", "unroll", "reverse"), [(5, 2, True), (6, 3, False), (2, 5, True)])
def test_rounds_of_several_steps_equal_single_ones(steps, unroll, reverse, request):
    """Also where some steps fill no round, and where none is full."""
    if steps != 5:  # one program has kernels
        request.getfixturevalue("traced_loops")
    xs, carry = torch.randn(steps, 2), (torch.zeros(2), torch.eye(2))
    expected = scan(_decay, carry, xs, reverse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(scan(_decay, carry, xs, reverse, compiled=True, unroll=unroll), expected)


@pytest.mark.usefixtures("traced_loops")
def test_any_number_of_loops_can_be_compiled():
    """Each counts for itself, where the compiler takes but so many programs of one function."""
    with torch._dynamo.config.patch(recompile_limit=1), warnings.catch_warnings():
        warnings.simplefilter("error")
        for factor in (2.0, 3.0):
            last, _ = scan(lambda c, x, by=factor: (by * c + x, c), torch.tensor(1.0), torch.ones(3), compiled=True)
            assert last.item() == factor**3 + factor**2 + factor + 1


def test_compiled_it_takes_views_and_the_same_tensor_twice():
    table = torch.randn(7, 5)
    narrow = table[:, :4].contiguous()
    step = lambda carry, x: (carry + x[0] @ x[1], 2.0 * carry)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = narrow[1:]
        for xs in (
            (narrow[1:], narrow[:-1]),
            (same, same),
            (table[1:, 1:], table[1:, :4]),
            (narrow[1:], narrow[:1].expand(6, 4)),
        ):
            carry = table[0, 1]
            torch.testing.assert_close(scan(step, carry, xs, compiled=True), scan(step, carry, xs))


def test_refuses_rounds_of_no_step():
    with pytest.raises(ValueError, match="Expected at least one step in a round, got unroll=0"):
        scan(_decay, (torch.zeros(2), torch.eye(2)), torch.randn(3, 2), compiled=True, unroll=0)


def test_steps_that_are_given_their_index_are_eager_with_a_warning():
    with pytest.warns(UserWarning, match="eager .RuntimeError: steps that are given their index are not compiled"):
        last, _ = scan(lambda carry, t: (carry + t, carry), torch.tensor(0), 4, compiled=True)
    assert last == 6


def test_what_cannot_be_compiled_is_eager_with_a_warning():
    def step(carry, x):
        carry = carry + x if bool(x > 0) else carry
        return carry, carry

    xs = torch.tensor([1.0, -1.0, 2.0])
    with pytest.warns(UserWarning, match="the loop could not be compiled and is eager"):
        _, path = scan(step, torch.tensor(0.0), xs, compiled=True)
    assert path.tolist() == [1.0, 1.0, 3.0]


def test_an_error_of_the_step_is_no_failure_of_the_compiler():
    with pytest.raises(ZeroDivisionError):
        scan(lambda carry, x: (carry, x / (1 // 0)), torch.tensor(0.0), torch.ones(2), compiled=True)


def test_a_compiled_loop_that_ends_in_nan_raises():
    xs = torch.randn(20, 2)  # as many as in a program that there is already
    xs[7] = torch.nan
    with pytest.raises(NotPositiveDefiniteError, match="A compiled loop ended in NaN or inf"):
        scan(_decay, (torch.zeros(2), torch.eye(2)), xs, compiled=True)
