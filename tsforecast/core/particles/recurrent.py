"""Linear steps chosen by a memory of earlier emissions: the system of the Kalman variational auto-encoder."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linear import AbstractLinearGaussian, LinearGaussian
from tsforecast.core.particles.begun import choose
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.proposals import DiagonalGaussian, Likelihood, unbound
from tsforecast.core.particles.state import ParticleState, initial_particles
from tsforecast.core.torch_internals import normal


@dataclasses.dataclass(frozen=True)
class RecurrentSwitching(AbstractSwitchingSystem):
    """A switching system with the memory of a recurrent network in place of a random switch.

        s_t = g(s_{t-1}, z_{t-1}, t),    x_t ~ N(A(s_t) x_{t-1}, R),
        z_t ~ N(C(s_t) x_t + d_t, Q),    y_t ~ p(y_t | z_t).

    Given z_1, ..., z_T all is linear and Gaussian. They are drawn from q(z_t | y_t) alone. A step has the mean over the
    particles of

        log p(y_t | z_t) - log q(z_t | y_t) + log p(z_t | z_1, ..., z_{t-1}),

    the evidence lower bound of Fraccaro et al. (2017) with the exact Kalman likelihood of z (Rao-Blackwellised; Kurle
    et al. 2020). Particles are samples of q, always of equal weight. Where nothing is observed, z_t is not either, and
    the memory is given its predictive mean.

    Attributes:
        memory: g: (switch (*batch, switch), auxiliary (*batch, auxiliary), time) -> (*batch, switch).
        parameters: (switch (*batch, switch), time) -> what it chooses; the batch ends with the series.
        proposal: q(z_t | y_t), (time or 1, series, auxiliary); None where nothing is going to be observed.
        likelihood: p(y_t | z_t); None shows z_t itself, in forecasts.
        switch_dim: Size of the memory.
        auxiliary_dim: Of z.
        active: False where a series has not begun and its particles stand still, (time, series); None if all have.
    """

    memory: Callable[[Tensor, Tensor, int], Tensor]
    parameters: Callable[[Tensor, int], Regime]
    proposal: DiagonalGaussian | None
    likelihood: Likelihood | None
    switch_dim: int
    auxiliary_dim: int
    active: Bool[Tensor, "time series"] | None = None

    has_one_past = True
    weighs = False

    @functools.cached_property
    def _proposals(self) -> Callable[[int], DiagonalGaussian]:
        assert self.proposal is not None
        return unbound(self.proposal)

    def begin(self, num_particles: int, prior: Gaussian) -> ParticleState:
        """Return particles before the first step, all alike, with zeros for earlier emissions."""
        return initial_particles(num_particles, prior, self.switch_dim, self.auxiliary_dim)

    def extend(
        self,
        particles: ParticleState,
        time: int,
        value: Float[Tensor, "series target"] | None,
        observed: Bool[Tensor, "series target"] | None,
        generator: torch.Generator | None = None,
    ) -> ParticleState:
        """Memory, state, then z_t from the proposal; all weights move by the same."""
        moved, emission, _ = self._predicted(particles, time)
        if value is None:
            return moved
        proposal = self._proposals(time)
        mean, variance = proposal.mean, proposal.variance
        assert moved.auxiliary is not None
        noise = normal(moved.auxiliary.shape, mean, generator)
        auxiliary = mean + variance.sqrt() * noise
        given, log_prior = emission.posterior(moved.state, auxiliary)  # p(z_t | z_1, ..., z_{t-1}), exact
        assert self.likelihood is not None, "observations need p(y_t | z_t)"
        gain = self.likelihood.log_prob(auxiliary, value, observed, time) - proposal.log_prob(auxiliary) + log_prior
        seen = torch.ones_like(particles.begun) if observed is None else observed.any(-1)
        gain = torch.where(seen, gain.mean(0), 0.0)  # the same for all particles, which stay equally likely
        known = dataclasses.replace(moved, state=given, auxiliary=auxiliary)
        moved = dataclasses.replace(choose(seen, known, moved), log_weight=particles.log_weight + gain)
        return moved if self.active is None else choose(self.active[time], moved, particles)

    def foresee(
        self, particles: ParticleState, time: int, generator: torch.Generator | None = None
    ) -> tuple[ParticleState, Gaussian]:
        """Return the particles one step on, with z_t drawn for the memory, and the distribution of z_t."""
        moved, emission, emitted = self._predicted(particles, time)
        auxiliary = emitted.sample(generator=generator)
        given, _ = emission.posterior(moved.state, auxiliary)
        return dataclasses.replace(moved, state=given, auxiliary=auxiliary), emitted

    def _predicted(self, particles: ParticleState, time: int) -> tuple[ParticleState, AbstractLinearGaussian, Gaussian]:
        """The particles before z_t is known, with its mean in its place; their emission; and z_t's distribution."""
        assert particles.auxiliary is not None
        switch = self.memory(particles.switch, particles.auxiliary, time)
        regime = self.parameters(switch, time)
        predicted = regime.transition.marginal(particles.state)
        emitted = regime.emission.marginal(predicted)
        begun = torch.ones_like(particles.begun)
        moved = dataclasses.replace(particles, switch=switch, state=predicted, auxiliary=emitted.mean, begun=begun)
        return moved, regime.emission, emitted

    def recall(
        self, particles: ParticleState, switch: Float[Tensor, "sample series switch"], time: int
    ) -> tuple[LinearGaussian | None, Float[Tensor, "#sample particle series"]]:
        """Log-probability 0 for the particle that the memory came from, next to nothing for others."""
        assert particles.auxiliary is not None
        moved = self.memory(particles.switch, particles.auxiliary, time)
        distance = (switch.unsqueeze(1) - moved).square().sum(-1)
        nearest = distance.argmin(1, keepdim=True)  # rounding: a memory computed anew is not the same to the last bit
        never = torch.full_like(distance, -1e9)
        return None, never.scatter(1, nearest, 0.0)

    def simulate_switch(
        self,
        particles: ParticleState,
        state: Float[Tensor, "particle series state"],
        time: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "particle series switch"]:
        """Return the memory after the last emission of the particles."""
        assert particles.auxiliary is not None
        return self.memory(particles.switch, particles.auxiliary, time)
