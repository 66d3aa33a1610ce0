"""Probabilities of the states of chains given all steps, by the compiled program."""

from jaxtyping import Float
from torch import Tensor

from tsforecast.core.kernels.calls import call, serves


def smooth(
    transition: Float[Tensor, "run state another_state"],
    density: Float[Tensor, "time run series state"],
    start: Float[Tensor, "run state"],
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Return what `tsforecast.core.regimes.em.smooth` does; None for what the program does not serve."""
    numbers = transition, density, start
    steps, runs, series, states = density.shape
    # It has no adjoint.
    if not serves(runs * series, (states,), *numbers, fewest=1) or any(x.requires_grad for x in numbers):
        return None
    weight, gain = density.new_empty(density.shape), density.new_empty(steps, runs, series)
    pairs, first = density.new_empty(runs, series, states, states), density.new_empty(runs, series, states)
    # Transposed beforehand: the backward pass then reads rows, too.
    tensors = [x.contiguous() for x in (transition, transition.mT, density, start)]
    call("regimes_smooth", runs * series, (steps, states, series), *tensors, weight, gain, pairs, first)
    return weight, gain, pairs, first
