"""A transition and an emission one after the other, as a particle filter takes them.

Where both have the structure of components, beside a dense part or not, and one number is observed, the step is one
compiled operation.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.composed import ComposedEmission, ComposedTransition
from tsforecast.core.gaussian import Gaussian
from tsforecast.core.innovation import ISSMEmission, ISSMTransition, Move
from tsforecast.core.kernels import structural
from tsforecast.core.linalg import check_factor, concatenate
from tsforecast.core.linear import PREDICTED_VARIANCE, AbstractLinearGaussian, DiagonalLinearGaussian


def step(
    transition: AbstractLinearGaussian,
    emission: AbstractLinearGaussian,
    prior: Gaussian,
    value: Float[Tensor, "*#batch target"],
    observed: Bool[Tensor, "*#batch target"] | None = None,
) -> tuple[Gaussian, Float[Tensor, "*batch"]]:
    """Return the belief after a transition and an observation, and the log-density of the observation.

    Args:
        transition: Of the state.
        emission: Of the observation.
        prior: Over the state before.
        value: What is observed.
        observed: False where a component is missing.

    Raises:
        NotPositiveDefiniteError: If the predictive covariance of the observation is singular.
    """
    parts = _parts(transition, emission, prior, value, observed)
    if parts is None:
        return emission.posterior(transition.marginal(prior), value, observed)
    seen = torch.ones_like(value[..., 0], dtype=torch.bool) if observed is None else observed[..., 0]
    mean, cov, log_prob, _ = parts.run(value[..., 0] - parts.expected, seen)
    return Gaussian(mean, cov), log_prob


def step_unseen(
    transition: AbstractLinearGaussian, emission: AbstractLinearGaussian, prior: Gaussian
) -> tuple[Gaussian, Gaussian]:
    """Return the belief after a transition, and the distribution of the emission from it.

    Args:
        transition: Of the state.
        emission: Of the observation.
        prior: Over the state before.
    """
    parts = _parts(transition, emission, prior)
    if parts is None:
        belief = transition.marginal(prior)
        return belief, emission.marginal(belief)
    nothing = torch.zeros_like(parts.expected)  # the residual of an unseen step is not read
    mean, cov, _, variance = parts.run(nothing, torch.zeros_like(nothing, dtype=torch.bool))
    return Gaussian(mean, cov), Gaussian(parts.expected.unsqueeze(-1), variance[..., None, None])


class _Parts(NamedTuple):
    """A step by its structure, as the compiled operation takes it.

    Attributes:
        moved: The transition.
        row: Of the observation.
        expected: Of the observation.
        variance: Of its noise.
    """

    moved: Move
    row: Tensor
    expected: Tensor
    variance: Tensor

    def run(self, residual: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return moments, log-density and predictive variance; refuses variances that are not positive."""
        *outputs, failed = structural.step(*self.moved, self.row, residual, self.variance, seen)
        check_factor(failed, ("series",), PREDICTED_VARIANCE)
        mean, cov, log_prob, variance = outputs
        return mean, cov, log_prob, variance


def _parts(
    transition: AbstractLinearGaussian,
    emission: AbstractLinearGaussian,
    prior: Gaussian,
    value: Tensor | None = None,
    observed: Tensor | None = None,
) -> _Parts | None:
    """Return the parts of a step that the program takes; None for all others."""
    if isinstance(transition, ISSMTransition) and isinstance(emission, ISSMEmission):
        reading, row, variance, offset = emission, emission.row(), emission.noise, emission.offset
    elif isinstance(transition, ComposedTransition) and isinstance(emission, ComposedEmission):
        reading, beside = emission.structure, emission.rest
        # The program observes one number.
        if not isinstance(beside, DiagonalLinearGaussian) or beside.offset.shape[-1] != 1:
            return None
        row = concatenate([reading.row(), beside.matrix[..., 0, :]], -1, 1)
        variance, offset = reading.noise + beside.variance[..., 0], reading.offset + beside.offset[..., 0]
    else:
        return None
    moved = transition.moved(prior)
    # All that goes into the operation: it reads numbers of one type, and no tensor that `vmap` has mapped.
    if moved is None or not moved.is_served(row, variance, offset, value, observed=observed):
        return None
    return _Parts(moved, row, (row * moved.mean).sum(-1) + offset, variance)
