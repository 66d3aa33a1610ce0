"""Paths of models of frames, and the frames along them: drawn pixel by pixel, and expected.

A path is a sequence of auxiliaries z_1, z_2, ...; the pixels are independent given these. A drawn frame is a sample of
the observation, y_t ~ p(y_t | z_t), and speckles. The expected frame is E[y_t | z_t], without this noise.
"""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import particles
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.models.kvae import KVAEMCForecaster, KVAERBForecaster
from tsforecast.models.parts.recurrent_bases import KVAEDynamics
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.records import Batch, Belief
from tsforecast.models.sgls import ARSGLSForecaster
from tsforecast.nn.decoders import BernoulliDecoder

FrameForecaster = ARSGLSForecaster | KVAERBForecaster | KVAEMCForecaster


def forecast_paths(
    model: FrameForecaster,
    belief: Belief,
    future: Batch,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "time sample series auxiliary"]:
    """Return sampled paths of the future; `model.forecast` returns frames drawn along such paths.

    Args:
        model: An auxiliary-variable model.
        belief: The belief at the end of the past.
        future: Its `future_*` fields are read.
        num_samples: Number of paths.
        generator: Source of random numbers.
    """
    inference = model.inference
    time_slice = inference.slice_of(future, "future")
    scaling = belief.location, belief.scale
    system, _ = inference.dynamics.switching(time_slice, belief.series, *scaling, proposing=False)
    assert isinstance(system, GaussianSwitching | RecurrentSwitching)
    undecoded = dataclasses.replace(system, likelihood=None)  # without a likelihood paths are of z itself
    return particles.forecast(undecoded, belief.particles, len(time_slice.time_feat), num_samples, generator)[0]


def smoothed_paths(
    model: FrameForecaster, batch: Batch, num_samples: int, generator: torch.Generator | None = None
) -> Float[Tensor, "time sample series auxiliary"]:
    """Return paths of the batch's past given all of it: samples of missing frames.

    Args:
        model: An auxiliary-variable model.
        batch: Its `past_*` fields are read.
        num_samples: Number of paths.
        generator: Source of random numbers.
    """
    auxiliaries = model.inference.smoothed(batch, num_samples, generator).auxiliaries
    assert auxiliaries is not None
    return auxiliaries


def decode(
    model: FrameForecaster, auxiliary: Float[Tensor, "*batch auxiliary"], generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "*batch pixel"], Float[Tensor, "*batch pixel"]]:
    """Return drawn and expected frames of a model with unscaled targets, such as pixels.

    Args:
        model: A model of frames.
        auxiliary: The auxiliary z.
        generator: Source of random numbers.
    """
    dynamics = model.dynamics
    assert isinstance(dynamics, SwitchingBases | KVAEDynamics)
    assert dynamics.decoder is not None
    location = auxiliary.new_zeros(model.data.num_targets)
    scale = torch.ones_like(location)
    expected = dynamics.decoder.mean(auxiliary, location, scale)
    if isinstance(dynamics.decoder, BernoulliDecoder):  # one pass of the network for both
        return torch.bernoulli(expected, generator=generator), expected
    return dynamics.decoder.sample(auxiliary, location, scale, generator), expected
