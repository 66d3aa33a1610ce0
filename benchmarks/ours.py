"""The library's own side of `filtering.py`."""

import numpy as np
import torch
from contender import Contender, from_torch, to_tensors
from problems import Problem
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kernels
from tsforecast.core.components import Level
from tsforecast.core.seasonal import Season
from tsforecast.core.structural import ISSM


def make_ours(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """`log_likelihood` of the core's systems, which take a transition before each observation."""
    kernels.build()
    tensors = to_tensors(problem, dtype, device)
    values = tensors["y"].transpose(0, 1).contiguous()
    observed = tensors["observed"].transpose(0, 1).contiguous() if "observed" in tensors else None
    prior = Gaussian(tensors["m0"], tensors["P0"])
    leaves = {name: tensors[name] for name in problem.wrt}

    if problem.kind == "issm":
        previous, moved = (torch.as_tensor(x, device=device) for x in _last_active(problem.arrays["active"]))
        components = (Level(), Season(24, "hour"), Season(7, "day"))
        index = tensors["active"].movedim(-2, 0)[..., 1:] - torch.tensor([1, 25], device=device)

        def log_likelihood() -> Tensor:
            noise = tensors["q"].movedim(1, 0).gather(0, previous.expand(-1, problem.num_series, -1)) * moved
            zeros = noise.new_zeros(1)
            system = ISSM(components, index, noise, tensors["r"].movedim(1, 0), zeros[:0], zeros)
            return system.log_likelihood(prior, values, observed).sum(0)
    else:

        def log_likelihood() -> Tensor:
            states, targets = tensors["A"].shape[-1], values.shape[-1]
            transition = LinearGaussian(tensors["A"], values.new_zeros(states), tensors["Q"])
            emission = LinearGaussian(tensors["C"], values.new_zeros(targets), torch.diag_embed(tensors["R"]))
            first = None if observed is None else observed[0]
            belief, first_term = emission.posterior(prior, values[0], first)  # no transition before the first
            system = LinearSystem(_constant(transition), _constant(emission))
            rest = None if observed is None else observed[1:]
            return first_term + system.log_likelihood(belief, values[1:], rest).sum(0)

    return from_torch(problem, log_likelihood, leaves)


def _constant(conditional: LinearGaussian) -> LinearGaussian:
    """With a leading dimension of time."""
    return LinearGaussian(conditional.matrix[None], conditional.offset[None], conditional.noise[None])


def _last_active(active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When each active state was last active, and whether it was at all; (time, series or 1, 3).

    The problem moves a state after the step that emitted it, the core before the step that emits it. Nobody looks in
    between, so it is the same likelihood if a step takes the noise of the last one that emitted the same state.
    """
    if active.ndim == 2:
        active = active[None]
    num_series, num_steps, _ = active.shape
    previous = np.zeros_like(active)
    last = np.full((num_series, active.max() + 1), -1)
    for t in range(num_steps):
        previous[:, t] = np.take_along_axis(last, active[:, t], 1)
        np.put_along_axis(last, active[:, t], t, 1)
    previous = previous.swapaxes(0, 1)
    return previous.clip(0), previous >= 0
