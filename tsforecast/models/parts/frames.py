"""Beginning of models of frames: q(z) at principal components of the encoder's features of the first frames."""

import abc
from typing import Any

import torch

from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch, Series
from tsforecast.nn import ImageEncoder
from tsforecast.nn.image import begin_at, principal_components


class AbstractFrameDynamics(AbstractSwitchingDynamics):
    """Dynamics of a model that frames may be observed of.

    Attributes:
        encoder: Encoder of frames; None for series.
    """

    encoder: ImageEncoder | None

    @property
    @abc.abstractmethod
    def auxiliary_layer(self) -> torch.nn.Linear | None:
        """Return the last layer of the network of q(z), means and log scales; None without such a network."""


@torch.no_grad()
def begin_at_components(inference: ParticleInference, batch: Batch) -> None:
    """Makes the means of q(z) principal components, of variance 1, of the encoder's features of frames.

    Under random layers the noises drown the means, and a plane of frames is folded. Training then needs thousands of
    iterations to tell frames apart, and a fold stays.

    Args:
        inference: Inference in a model of frames.
        batch: A batch of frames.
    """
    dynamics, seen = inference.dynamics, list[Any]()
    assert isinstance(dynamics, AbstractFrameDynamics)
    layer = dynamics.auxiliary_layer
    if layer is None or dynamics.encoder is None:
        return
    time_slice, (location, scale) = inference.slice_of(batch, "both"), inference.scale_of(batch)
    observed = time_slice.observed.any(-1)
    frames = scaled(time_slice, location, scale)[0][observed]
    dynamics.encoder.standardise(frames)
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        inference.dynamics.switching(time_slice, Series.of(batch), location, scale, proposing=True)
    finally:
        handle.remove()
    begin_at(layer, seen[0][observed], principal_components(dynamics.encoder(frames), layer.out_features // 2))
