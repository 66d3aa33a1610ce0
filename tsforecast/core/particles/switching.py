"""Switching linear-Gaussian systems with Gaussian switches, as the particle filter wants them."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import matvec
from tsforecast.core.linear import DiagonalLinearGaussian, LinearGaussian
from tsforecast.core.particles.begun import choose
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.proposals import DiagonalGaussian, Likelihood, propose, propose_diagonal, unbound
from tsforecast.core.particles.state import ParticleState, initial_particles
from tsforecast.core.stepping import step, step_unseen
from tsforecast.core.torch_internals import is_transformed, normal


@dataclasses.dataclass(frozen=True)
class GaussianSwitching(AbstractSwitchingSystem):
    """Switches with Gaussian transitions that choose the linear-Gaussian step.

        s_1 ~ N(m_1, V_1),    s_t ~ N(F(s_{t-1}) x_{t-1} + f(s_{t-1}, t), S(s_{t-1})),
        x_t ~ N(A(s_t) x_{t-1} + b, R(s_t)),    y_t ~ N(C(s_t) x_t + d, Q(s_t)),

    or z_t in the place of y_t and y_t ~ p(y_t | z_t): SGLS (without F), RSGLS and ARSGLS (Kurle et al. 2020). The
    sampled switch is an observation of the state before it, and the belief is conditioned on it. The paper leaves this
    out, so its estimate of the likelihood is biased.

    Attributes:
        initial: Of the first switch, (time or 1, series, switch): that of the step at which a series begins is read.
        drift: f: (switch (*batch, switch), time) -> (*batch, switch).
        parameters: (switch (*batch, switch), time) -> what it chooses; the batch ends with the series.
        proposal: q(s_t | y_t), (time or 1, series, switch); None proposes from the model ("bootstrap").
        auxiliary_proposal: q(z_t | y_t), likewise.
        likelihood: p(y_t | z_t); None if the emission is that of y_t itself.
        active: False where a series has not begun and its particles stand still, (time, series); None if all have.
        recurrent: Whether there is an F.
        condition_on_switch: False is the paper's form, for comparison.
        auxiliary_dim: Of z, for the first particles; 0 without.
        spread: Factors of the variances S at each step, as of gaps in continuous time, above zero; None for one.
    """

    initial: DiagonalGaussian
    drift: Callable[[Tensor, int], Tensor]
    parameters: Callable[[Tensor, int], Regime]
    proposal: DiagonalGaussian | None = None
    auxiliary_proposal: DiagonalGaussian | None = None
    likelihood: Likelihood | None = None
    active: Bool[Tensor, "time series"] | None = None
    recurrent: bool = False
    condition_on_switch: bool = True
    auxiliary_dim: int = 0
    spread: Float[Tensor, "time #series switch"] | None = None

    @functools.cached_property
    def _proposal(self) -> Callable[[int], DiagonalGaussian] | None:
        return None if self.proposal is None else unbound(self.proposal)

    @functools.cached_property
    def _auxiliary_proposal(self) -> Callable[[int], DiagonalGaussian] | None:
        return None if self.auxiliary_proposal is None else unbound(self.auxiliary_proposal)

    def begin(self, num_particles: int, prior: Gaussian) -> ParticleState:
        """Return particles before the first step, all alike."""
        switches = self.initial.mean.shape[-1]
        particles = initial_particles(num_particles, prior, switches, self.auxiliary_dim, self.recurrent)
        # Replaced at the first step, as `initial` is drawn from.
        return dataclasses.replace(particles, switch_noise=torch.zeros_like(particles.switch))

    def extend(
        self,
        particles: ParticleState,
        time: int,
        value: Float[Tensor, "series target"] | None,
        observed: Bool[Tensor, "series target"] | None,
        generator: torch.Generator | None = None,
    ) -> ParticleState:
        """Switch, then state, then observation or auxiliary; see `propose`."""
        seen = None if observed is None else observed.any(-1)
        proposal = None if value is None or self._proposal is None else self._proposal(time)
        switch, log_ratio, state = self._draw_switch(particles, time, proposal, seen, generator)
        regime = self.parameters(switch, time)
        auxiliary = None
        if value is not None and self.likelihood is None:
            state, gain = step(regime.transition, regime.emission, state, value, observed)
        else:
            state, gain = regime.transition.marginal(state), 0.0  # the auxiliary tells of the state below
            if value is None and self.auxiliary_dim:
                auxiliary = propose(regime.emission, state, generator=generator)[0]
            elif value is not None and self.likelihood is not None:
                proposal = None if self._auxiliary_proposal is None else self._auxiliary_proposal(time)
                auxiliary, gain, given = propose(regime.emission, state, proposal, seen, generator)
                gain = gain + self.likelihood.log_prob(auxiliary, value, observed, time)
                if seen is None:
                    state = given
                else:
                    state = Gaussian(
                        torch.where(seen[:, None], given.mean, state.mean),
                        torch.where(seen[:, None, None], given.cov, state.cov),
                    )
        moved = self._moved(particles, switch, state, regime, log_ratio + gain, auxiliary)
        return moved if self.active is None or value is None else choose(self.active[time], moved, particles)

    def foresee(
        self, particles: ParticleState, time: int, generator: torch.Generator | None = None
    ) -> tuple[ParticleState, Gaussian]:
        """Return the result of the base class after one look at the step: no switch depends on an auxiliary."""
        switch, _, state = self._draw_switch(particles, time, None, None, generator)
        regime = self.parameters(switch, time)
        state, emitted = step_unseen(regime.transition, regime.emission, state)
        return self._moved(particles, switch, state, regime, 0.0, particles.auxiliary), emitted

    def _moved(
        self,
        particles: ParticleState,
        switch: Tensor,
        state: Gaussian,
        regime: Regime,
        gain: Tensor | float,
        auxiliary: Tensor | None,
    ) -> ParticleState:
        """The particles after a step."""
        return ParticleState(
            switch=switch,
            state=state,
            log_weight=particles.log_weight + gain,
            recurrence=regime.recurrence,
            switch_noise=None if regime.switch_noise is None else regime.switch_noise.expand(switch.shape),
            auxiliary=auxiliary,
            begun=torch.ones_like(particles.begun),
        )

    def _draw_switch(
        self,
        particles: ParticleState,
        time: int,
        proposal: DiagonalGaussian | None,
        seen: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor, Gaussian]:
        """The switch, log p - log pi, and the belief over the state before, given the switch."""
        matrix, mean, variance = self._conditional(particles, time)
        if matrix is None:
            switch, log_ratio = propose_diagonal(DiagonalGaussian(mean, variance), proposal, seen, generator)
            return switch, log_ratio, particles.state
        conditional = DiagonalLinearGaussian(matrix, mean, variance)
        switch, log_ratio, given = propose(conditional, particles.state, proposal, seen, generator)
        return switch, log_ratio, given if self.condition_on_switch else particles.state

    def _conditional(self, particles: ParticleState, time: int) -> tuple[Tensor | None, Tensor, Tensor]:
        """F or None, f, and the variances S of the switch of this step."""
        fresh = ~particles.begun
        initial = None
        if is_transformed(fresh) or bool(fresh.any()):
            at = lambda x: x[time if x.shape[0] > 1 else 0].expand(particles.switch.shape)  # noqa: E731
            initial = at(self.initial.mean), at(self.initial.variance)
            if not is_transformed(fresh) and bool(fresh.all()):
                return None, *initial  # the first switch does not depend on the state before it
        assert particles.switch_noise is not None
        matrix, mean, variance = particles.recurrence, self.drift(particles.switch, time), particles.switch_noise
        if self.spread is not None:
            variance = variance * self.spread[time]  # steps of unequal length
        if initial is not None:  # a series that has not begun has a recurrence of zeros
            mean = torch.where(fresh.unsqueeze(-1), initial[0], mean)
            variance = torch.where(fresh.unsqueeze(-1), initial[1], variance)
        return matrix, mean, variance

    def recall(
        self, particles: ParticleState, switch: Float[Tensor, "sample series switch"], time: int
    ) -> tuple[LinearGaussian | None, Float[Tensor, "#sample particle series"]]:
        """Return the conditional of a recurrent system, the log-densities of others."""
        matrix, mean, variance = self._conditional(particles, time)
        if matrix is None:
            return None, DiagonalGaussian(mean, variance).log_prob(switch.unsqueeze(1))
        nothing = torch.zeros_like(particles.log_weight).unsqueeze(0)  # the density is in the conditional
        return LinearGaussian(matrix, mean, torch.diag_embed(variance)), nothing

    def simulate_switch(
        self,
        particles: ParticleState,
        state: Float[Tensor, "particle series state"],
        time: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "particle series switch"]:
        """Draw s_t ~ N(F x_{t-1} + f, S)."""
        matrix, mean, variance = self._conditional(particles, time)
        if matrix is not None:
            mean = mean + matvec(matrix, state)
        return mean + variance.sqrt() * normal(mean.shape, mean, generator)
