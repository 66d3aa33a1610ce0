"""Paths of models of frames, and the frames along them: drawn pixel by pixel, and expected.

A path is one of auxiliaries z_1, z_2, ..., given which the pixels are independent. A drawn frame, y_t ~ p(y_t | z_t),
is a sample of what the model says is observed, and speckles; the expected one, E[y_t | z_t], is what it says happens.
"""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import particles
from tsforecast.core.particles.filtering import ParticleState
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.models.base import Batch, Belief
from tsforecast.models.kvae import AbstractKVAEForecaster
from tsforecast.models.sgls import ARSGLSForecaster
from tsforecast.nn.decoders import BernoulliDecoder

FrameForecaster = ARSGLSForecaster | AbstractKVAEForecaster


def forecast_paths(
    model: FrameForecaster,
    belief: Belief,
    future: Batch,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "time sample series auxiliary"]:
    """Sampled paths of the future, of which `model.forecast` gives the frames drawn along them.

    Args:
        model: An auxiliary-variable model.
        belief: At the end of the past.
        future: Its `future_*` fields are read.
        num_samples: Paths.
        generator: Of random numbers.
    """
    assert isinstance(belief.state, ParticleState)
    time_slice = model.time_slice(future, "future")
    system, _ = model.system(time_slice, belief, belief.location, belief.scale, proposing=False)
    assert isinstance(system, GaussianSwitching | RecurrentSwitching)
    undecoded = dataclasses.replace(system, likelihood=None)  # what is emitted is shown
    return particles.forecast(undecoded, belief.state, len(time_slice.time_feat), num_samples, generator)[0]


def smoothed_paths(
    model: FrameForecaster, batch: Batch, num_samples: int, generator: torch.Generator | None = None
) -> Float[Tensor, "time sample series auxiliary"]:
    """Paths of the batch's past given all of it: of frames that are missing, what they may have been.

    Args:
        model: An auxiliary-variable model.
        batch: Its `past_*` fields are read.
        num_samples: Paths.
        generator: Of random numbers.
    """
    auxiliaries = model.regimes(batch, num_samples, generator).auxiliaries
    assert auxiliaries is not None
    return auxiliaries


def decode(
    model: FrameForecaster, auxiliary: Float[Tensor, "*batch auxiliary"], generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "*batch pixel"], Float[Tensor, "*batch pixel"]]:
    """Drawn and expected frames, of models whose targets are not scaled, as pixels are not.

    Args:
        model: Of frames.
        auxiliary: z.
        generator: Of random numbers.
    """
    location = auxiliary.new_zeros(model.num_targets)
    scale = torch.ones_like(location)
    expected = model.decoder.mean(auxiliary, location, scale)
    if isinstance(model.decoder, BernoulliDecoder):  # one pass of the network for both
        return torch.bernoulli(expected, generator=generator), expected
    return model.decoder.sample(auxiliary, location, scale, generator), expected
