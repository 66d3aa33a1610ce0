"""Rao-Blackwellised particle filters: switches are sampled, the state given the switches stays Gaussian.

The filter is a loop over a system's `extend`, which moves every particle by one step and weighs it; resampling touches
only what `extend` returns. Dimensions are (particle, series, ...), all series and particles in one tensor program.
"""

import abc
import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import ADVICE, NotPositiveDefiniteError
from tsforecast.core.linear import AbstractLinearGaussian, LinearGaussian
from tsforecast.core.loop.scan import scan
from tsforecast.core.particles.proposals import Likelihood
from tsforecast.core.particles.resampling import GRADIENTS, resample
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.torch_internals import is_transformed


@register_record
@dataclasses.dataclass(frozen=True)
class Regime:
    """The linear-Gaussian step that a switch s_t chooses.

    Attributes:
        transition: p(x_t | x_{t-1}).
        emission: p(y_t | x_t), or of the auxiliary z_t in the place of y_t.
        recurrence: F of the next switch, or None.
        switch_noise: Variances S of the next switch, or None.
    """

    transition: AbstractLinearGaussian
    emission: AbstractLinearGaussian
    recurrence: Float[Tensor, "*#batch switch state"] | None = None
    switch_noise: Float[Tensor, "*#batch switch"] | None = None


class AbstractSwitchingSystem(abc.ABC):
    """x_0 ~ prior; then for t = 1, 2, ...: switch s_t, state x_t given s_t, observation y_t given x_t and s_t.

    The time convention is that of `AbstractLinearSystem`; the first switch does not depend on x_0.

    Attributes:
        parameters: (switch (*batch, switch), time) -> what it chooses; the batch ends with the series.
        likelihood: p(y_t | z_t) of an auxiliary z_t that is emitted; None where y_t itself is.
        has_one_past: Whether a switch tells for certain which particle it came from.
        weighs: Whether particles of a series may differ in weight.
    """

    parameters: Callable[[Tensor, int], Regime]
    likelihood: Likelihood | None
    has_one_past: bool = False
    weighs: bool = True

    @abc.abstractmethod
    def begin(self, num_particles: int, prior: Gaussian) -> ParticleState:
        """Return particles before the first step, all alike.

        Args:
            num_particles: At least 1.
            prior: Over x_0, of batch shape (series,).
        """

    @abc.abstractmethod
    def extend(
        self,
        particles: ParticleState,
        time: int,
        value: Float[Tensor, "series target"] | None,
        observed: Bool[Tensor, "series target"] | None,
        generator: torch.Generator | None = None,
    ) -> ParticleState:
        """The particles one step on, drawn from the proposal; their log-weights are not normalised.

        A step without any observation is drawn from the model itself and changes no weight; None in the place of a
        value is one for all series, for which no proposal need be known.
        """

    def foresee(
        self, particles: ParticleState, time: int, generator: torch.Generator | None = None
    ) -> tuple[ParticleState, Gaussian]:
        """Return the particles one step on without an observation, and the distribution of the emission there."""
        moved = self.extend(particles, time, None, None, generator)
        return moved, self.regime(moved.switch, time).emission.marginal(moved.state)

    @abc.abstractmethod
    def recall(
        self, particles: ParticleState, switch: Float[Tensor, "sample series switch"], time: int
    ) -> tuple[LinearGaussian | None, Float[Tensor, "#sample particle series"]]:
        """Return the evidence of switches s_t at `time` about the particles of the step before.

        Returns:
            If s_t depends on x_{t-1}: that conditional of every particle, (particle, series), and 0. Else None, and
            log p(s_t | s_{t-1}) for every pair of sample and particle.
        """

    def regime(self, switch: Float[Tensor, "*batch switch"], time: int) -> Regime:
        """Return the step that a switch chooses."""
        return self.parameters(switch, time)

    @abc.abstractmethod
    def simulate_switch(
        self, particles: ParticleState, state: Float[Tensor, "particle series state"], time: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "particle series switch"]:  # fmt: skip
        """s_t given s_{t-1} of the particles and x_{t-1}."""

    def simulate_value(
        self, emitted: Float[Tensor, "particle series emitted"], time: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "particle series target"]:
        """Return the observation, given a sample from the emission (the observation itself without a likelihood)."""
        return emitted if self.likelihood is None else self.likelihood.sample(emitted, time, generator)


@register_record
@dataclasses.dataclass(frozen=True)
class ParticleFiltered:
    """Results of the filter.

    Attributes:
        particles: Particles after the last step; the next time slice begins with them.
        log_likelihood: Estimates of log p(y_t | y_1, ..., y_{t-1}); the exponential of their sum over time is unbiased.
        effective_sample_size: Of the weights of every step, before resampling.
        history: The particles of every step with a leading dimension of time, where asked for.
    """

    particles: ParticleState
    log_likelihood: Float[Tensor, "time series"]
    effective_sample_size: Float[Tensor, "time series"]
    history: ParticleState | None


def filter(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None = None,
    *,
    threshold: float = 0.5,
    gradient: str = "fivo",
    keep_history: bool = False,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> ParticleFiltered:
    """The Rao-Blackwellised particle filter (Doucet et al. 2000) with learnt proposals (Maddison et al. 2017).

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        particles: Before step `first`: from `system.begin`, or where an earlier filter stopped.
        values: Finite everywhere; without influence where not observed.
        observed: False where a component is missing; None if nothing is.
        threshold: A series is resampled when its effective sample size is below this share of the particles: 0 never
            (importance weighting of whole paths), above 1 always.
        gradient: Of the choice of ancestors: "fivo" drops it (biased, low variance); "stop-gradient" keeps it in
            weights divided by their detached selves (Scibior and Wood 2021).
        keep_history: Whether to return the particles of every step, which smoothing needs.
        generator: Of random numbers.
        first: Index of the first step.

    Raises:
        ValueError: If `gradient` is not known.
        NotPositiveDefiniteError: Naming the step, where a covariance cannot be factorised or all weights vanish.
    """
    if gradient not in GRADIENTS:
        raise ValueError(f"expected gradient to be one of {', '.join(GRADIENTS)}, got {gradient!r}")

    def step(particles: ParticleState, x: tuple) -> tuple[ParticleState, tuple]:
        time, value, mask = x
        # Before the step: the weights that are returned are those given its observation.
        particles = resample(particles, threshold, gradient, generator)
        particles = system.extend(particles, time, value, mask, generator)
        # Weights had a sum of 1, so it is log p(y_t | y_1, ..., y_{t-1}).
        increment = torch.logsumexp(particles.log_weight, 0)
        particles = dataclasses.replace(particles, log_weight=particles.log_weight - increment)
        kept = particles if keep_history else None  # a smoother alone needs all steps
        return particles, (increment, particles.effective_sample_size, kept)

    times = range(first, first + values.shape[0])
    particles, (increments, sizes, history) = scan(step, particles, (times, values, observed), first=first)
    failed = ~increments.isfinite()  # of weights that all vanish the sum has no logarithm
    if not is_transformed(failed) and bool(failed.any()):
        time, series = failed.nonzero()[0].tolist()
        raise NotPositiveDefiniteError(
            f"The weights of all particles vanish or are not finite at step {first + time}, series {series} "
            f"({int(failed.any(0).sum())} series failed): an observation is impossible under the model. {ADVICE}"
        )
    return ParticleFiltered(particles, increments, sizes, history)
