"""The loop over time as one compiled program: the only file that touches private parts of torch's compiler."""

import logging
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core.linalg import ADVICE, NotPositiveDefiniteError
from tsforecast.core.loop.fused import FUSED


def compiled_scan(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, leaves: list[Any], spec: Any, reverse: bool, unroll: int
) -> tuple[Any, Any]:
    """The last carry and the outputs, as `scan` returns them.

    torch's prototype of the operator takes flat lists of tensors that do not alias each other.

    Args:
        step: (carry, x) -> (carry, output).
        carry: What the first step begins with.
        leaves: Of the steps: tensors with a leading dimension of time, or None.
        spec: How the leaves make the input of a step.
        reverse: Whether to begin with the last step.
        unroll: Steps that are written out in each round.

    Raises:
        RuntimeError: If the compiler cannot.
        NotPositiveDefiniteError: If a result is not finite: compiled code does not look at each factorisation.
    """
    if any(isinstance(leaf, range) for leaf in leaves):  # an index would be a constant of the graph
        raise RuntimeError("steps that are given their index are not compiled")
    carries, carry_spec = pytree.tree_flatten(carry)
    # Programs hold for how their inputs lie, and beliefs come in several ways: a mean may be the prior's own tensor,
    # and after a run a factor of `lofi` begins anywhere within another tensor.
    carries = [x.detach().clone() for x in carries]
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    columns = _laid_out([leaves[place] for place in places])
    kinds = [f"{x.shape} {x.stride()} {x.dtype} {x.device}" for x in (*carries, *columns)]
    # The step by identity: a new closure is another program.
    key = (step, reverse, unroll, *kinds, str(carry_spec), str(spec))
    with torch.no_grad():
        if key in _PROGRAMS:
            state, outputs = _PROGRAMS[key][0](carries, columns)
        else:
            output_specs: list[Any] = []

            def flat(state: list[Tensor], column: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
                x: list[Any] = [None] * len(leaves)
                for place, value in zip(places, column, strict=True):
                    x[place] = value
                new, output = step(pytree.tree_unflatten(state, carry_spec), pytree.tree_unflatten(x, spec))
                outputs, output_spec = pytree.tree_flatten(output)
                output_specs.append(output_spec)
                # Outputs must not alias inputs.
                return [t.clone() for t in pytree.tree_leaves(new)], [t.clone() for t in outputs]

            program, (state, outputs) = _compile(flat, carries, columns, reverse, unroll)
            _PROGRAMS[key] = program, output_specs[-1]
            while len(_PROGRAMS) > _MOST_PROGRAMS:
                _PROGRAMS.popitem(last=False)  # the oldest: steps of many learners would fill the memory
    # A factorisation in the program raises nothing.
    if not all(bool(t.isfinite().all()) for t in state if t.is_floating_point()):
        raise NotPositiveDefiniteError(f"A compiled loop ended in NaN or inf. {ADVICE}")
    return pytree.tree_unflatten(state, carry_spec), pytree.tree_unflatten(outputs, _PROGRAMS[key][1])


def _laid_out(columns: list[Tensor]) -> list[Tensor]:
    """Return each in one piece, from the beginning of its own memory, and no view: copied only where it is not."""
    pieces: list[Tensor] = []
    for x in columns:
        x = x.contiguous().detach()
        shared = any(x.data_ptr() == other.data_ptr() for other in pieces)
        pieces.append(x.clone() if shared or x.storage_offset() or x.data_ptr() % _ALIGNED else x)
    return pieces


def _compile(
    flat: Callable[..., Any], carries: list[Tensor], columns: list[Tensor], reverse: bool, unroll: int
) -> tuple[Callable[..., Any], Any]:
    """Return the loop as a program, and its first results; later calls skip this, because it takes milliseconds."""
    import torch._dynamo.config  # importing the compiler takes a second, and few need it
    from torch._higher_order_ops import scan as operator
    from torch.fx.experimental.proxy_tensor import make_fx

    steps = len(columns[0])
    unroll = unroll if steps >= 2 * unroll else 1  # a loop of one round the compiler writes down wrongly
    cut = steps - steps % unroll if reverse else steps % unroll  # the steps that fill no round are the first to run
    order = -1 if reverse else 1

    def several(state: list[Tensor], columns: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Take as many steps as the columns are long, written out."""
        outputs: list[list[Tensor]] = []
        for time in range(len(columns[0]))[::order]:
            state, output = flat(state, [column[time] for column in columns])
            outputs.append(output)
        return state, [torch.stack(parts) for parts in zip(*outputs[::order], strict=True)]

    def graph(columns: list[Tensor]) -> Callable[..., Any]:
        """Return a graph of tensor operations alone: the compiler does not know records."""
        return make_fx(several, FUSED)(carries, columns)

    of_round = graph([column[:unroll] for column in columns])
    # Lambdas: what is a `def` type checkers at run time would wrap.
    begin = graph([column[: steps % unroll] for column in columns]) if steps % unroll else lambda state, _: (state, [])
    fold = lambda state, first, rounds: (  # noqa: E731
        (begun := begin(state, first))[1],
        *operator(of_round, begun[0], rounds, reverse=reverse),
    )
    # The compiler takes only so many programs of one piece of code.
    own = types.FunctionType(fold.__code__.replace(), globals(), closure=fold.__closure__)
    # As an option, which holds where torch compiles again by itself: its other wrapper asserts how tensors lie.
    compiled = torch.compile(own, fullgraph=True, options={"cpp_wrapper": True})

    def program(state: list[Tensor], columns: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        pairs = [column.tensor_split([cut])[::order] for column in columns]
        first, rounds = [pair[0] for pair in pairs], [pair[1].unflatten(0, (-1, unroll)) for pair in pairs]
        early, state, late = compiled(state, first, rounds)
        late = [output.flatten(0, 1) for output in late]
        return state, [torch.cat(parts[::order]) for parts in zip(early, late, strict=True)] if early else late

    # Of Python 3.13.0 torch says that its guards are slow; here they run once a loop, not once a step.
    unwarned = torch._dynamo.config.patch(issue_3_13_0_warning=False)
    with unwarned, _small_kernels(unroll), _quiet():
        return program, program(carries, columns)


@contextmanager
def _small_kernels(unroll: int) -> Iterator[None]:
    """Make the steps of a round kernels of their own, so that each uses the memory of those before."""
    from torch._inductor.codegen import cpp

    settings: Any = cpp.CppScheduling
    most = settings.MAX_FUSED_KERNEL_ARGS_NUM
    settings.MAX_FUSED_KERNEL_ARGS_NUM = 8 if unroll > 1 else most
    try:
        yield
    finally:
        settings.MAX_FUSED_KERNEL_ARGS_NUM = most


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's messages about its own parts and about operations that stay calls, such as factorisations."""
    logger = logging.getLogger("torch._inductor.ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


# Programs of the last steps that were compiled, each with the structure of its outputs.
_PROGRAMS: OrderedDict[Any, tuple[Callable[..., Any], Any]] = OrderedDict()
_MOST_PROGRAMS = 16
# Bytes, at multiples of which a tensor with memory of its own begins.
_ALIGNED = 16
