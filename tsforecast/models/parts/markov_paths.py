"""Joint samples of a Markov-switching model, given some of the values."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import map_tensors
from tsforecast.core.particles.smoothing import sample_given
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.regimes import chain
from tsforecast.core.regimes.counts import SwitchingCounts
from tsforecast.models.parts.markov_system import Markov


def counts_given(
    model: Markov,
    start: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Tensor,
    active: Tensor | None,
    num_samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "time sample series target"]:
    """Return joint samples of counts given some of them: paths of regimes, and counts of these."""
    assert isinstance(model.system, SwitchingCounts)
    values, before = values.to(model.log_transition.dtype), start.log_weight.T
    density = torch.where(observed, model.system.log_density(values.squeeze(-1)), 0.0)
    every = model.log_transition.expand(len(values), len(model.centre), -1, -1)
    states = chain.sample(every, density, before, num_samples, generator, active)
    return model.system.sample(states, generator).unsqueeze(-1)


def values_given(
    model: Markov,
    start: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Tensor,
    active: Tensor | None,
    num_samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "time sample series target"]:
    """Return joint samples given scaled values, in units of the series."""
    values = torch.where(observed, model.standard(values), 0.0)
    system = model.switching(active, exact=False)
    doubled = map_tensors(lambda x: x.double() if x.is_floating_point() else x, start)
    paths = sample_given(system, doubled, values.double(), observed, num_samples, generator)
    return paths.to(values.dtype)
