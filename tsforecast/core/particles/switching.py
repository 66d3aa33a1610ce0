"""Switching linear-Gaussian systems, with Gaussian or categorical switches, as the particle filter wants them."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors
from tsforecast.core.linalg import matvec
from tsforecast.core.linear import DiagonalLinearGaussian, LinearGaussian
from tsforecast.core.particles.begun import choose
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, ParticleState, Regime, initial_particles
from tsforecast.core.particles.proposals import DiagonalGaussian, Likelihood, propose, propose_diagonal, unbound
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
            state, gain = regime.transition.marginal(state), 0.0
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
            switch_noise=_expand(regime.switch_noise, switch),
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
                return None, *initial
        assert particles.switch_noise is not None
        matrix, mean, variance = particles.recurrence, self.drift(particles.switch, time), particles.switch_noise
        if self.spread is not None:
            variance = variance * self.spread[time]
        if initial is not None:
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
        nothing = torch.zeros_like(particles.log_weight).unsqueeze(0)
        return LinearGaussian(matrix, mean, torch.diag_embed(variance)), nothing

    def regime(self, switch: Float[Tensor, "*batch switch"], time: int) -> Regime:
        """Return the step that a switch chooses."""
        return self.parameters(switch, time)

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

    def simulate_value(
        self, emitted: Float[Tensor, "particle series emitted"], time: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "particle series target"]:
        """Draw through the likelihood where there is one."""
        return emitted if self.likelihood is None else self.likelihood.sample(emitted, time, generator)


def _expand(x: Tensor | None, like: Tensor) -> Tensor | None:
    return None if x is None else x.expand(like.shape)


@dataclasses.dataclass(frozen=True)
class CategoricalSwitching(AbstractSwitchingSystem):
    """Switches in a finite set, a Markov chain (Murphy 1998, switching Kalman filter); they are one-hot.

    Attributes:
        initial: log p(s_1), (time or 1, series, switch): that of the step at which a series begins is read.
        transition: (switch (*batch, switch), time) -> log p(s_t | s_{t-1}), (*batch, switch).
        parameters: (switch (*batch, switch), time) -> what it chooses; the batch ends with the series.
        optimal: Whether to propose from p(s_t | s_{t-1}, y_t), by trying all switches; else from the chain.
        active: See `GaussianSwitching`.
    """

    initial: Float[Tensor, "time_or_1 series switch"]
    transition: Callable[[Tensor, int], Tensor]
    parameters: Callable[[Tensor, int], Regime]
    optimal: bool = True
    active: Bool[Tensor, "time series"] | None = None

    def begin(self, num_particles: int, prior: Gaussian) -> ParticleState:
        """Return particles before the first step, all alike."""
        return initial_particles(num_particles, prior, self.initial.shape[-1])

    def extend(
        self,
        particles: ParticleState,
        time: int,
        value: Float[Tensor, "series target"] | None,
        observed: Bool[Tensor, "series target"] | None,
        generator: torch.Generator | None = None,
    ) -> ParticleState:
        """Draws the switch, given the observation if `optimal`; the proposal's probabilities are constants.

        A weight p(s_t | s_{t-1}) p(y_t | s_t, ...) / pi(s_t) with pi detached has an unbiased gradient.
        """
        log_prior = self.log_prior(particles, time)
        eye = torch.eye(log_prior.shape[-1], dtype=log_prior.dtype, device=log_prior.device)
        if self.optimal and value is not None:
            every = eye.reshape(len(eye), *[1] * (log_prior.ndim - 1), len(eye)).expand(-1, *log_prior.shape)
            states, log_prob = self.condition(
                map_tensors(lambda x: x.unsqueeze(0), particles.state), every, time, value, observed
            )
            joint = log_prior.movedim(-1, 0) + log_prob
            log_proposal = torch.log_softmax(joint.detach(), 0)
            index = _categorical(log_proposal, generator)
            state = Gaussian(
                _pick(states.mean.expand(*joint.shape, -1), index),
                _pick(states.cov.expand(*joint.shape, -1, -1), index),
            )
            gain = _pick(joint, index) - _pick(log_proposal, index)
        else:
            log_proposal = log_prior.detach().movedim(-1, 0)
            index = _categorical(log_proposal, generator)
            state, log_prob = self.condition(particles.state, eye[index], time, value, observed)
            gain = log_prob + (log_prior - log_prior.detach()).gather(-1, index.unsqueeze(-1)).squeeze(-1)
        moved = dataclasses.replace(
            particles,
            switch=eye[index],
            state=state,
            log_weight=particles.log_weight + gain,
            begun=torch.ones_like(particles.begun),
        )
        return moved if self.active is None or value is None else choose(self.active[time], moved, particles)

    def condition(
        self, belief: Gaussian, switch: Tensor, time: int, value: Tensor | None, observed: Tensor | None
    ) -> tuple[Gaussian, Tensor]:
        """Return the belief after a step under a switch, and the log-density of its observation.

        Args:
            belief: Over the state before the step.
            switch: One-hot; its batch and that of the belief broadcast.
            time: Index of the step.
            value: What is observed; None for nothing.
            observed: False where a component is missing.
        """
        regime = self.parameters(switch, time)
        if value is None:
            return regime.transition.marginal(belief), torch.zeros_like(switch[..., 0])
        return step(regime.transition, regime.emission, belief, value, observed)

    def log_prior(self, particles: ParticleState, time: int) -> Float[Tensor, "particle series switch"]:
        """Return log p(s_t | s_{t-1}) of every particle; of series that have not begun, log p(s_1)."""
        initial = self.initial[time if self.initial.shape[0] > 1 else 0].expand(particles.switch.shape)
        if not is_transformed(particles.begun) and not bool(particles.begun.any()):
            return initial
        moved = self.transition(particles.switch, time)
        return torch.where(particles.begun.unsqueeze(-1), moved, initial)

    def recall(
        self, particles: ParticleState, switch: Float[Tensor, "sample series switch"], time: int
    ) -> tuple[LinearGaussian | None, Float[Tensor, "#sample particle series"]]:
        """Return the chain's log-probabilities."""
        log_prior = self.log_prior(particles, time)
        index = switch.argmax(-1)[:, None, :, None].expand(-1, log_prior.shape[0], -1, 1)
        return None, log_prior.expand(len(switch), *log_prior.shape).gather(-1, index).squeeze(-1)

    def regime(self, switch: Float[Tensor, "*batch switch"], time: int) -> Regime:
        """Return the step that a switch chooses."""
        return self.parameters(switch, time)

    def simulate_switch(
        self,
        particles: ParticleState,
        state: Float[Tensor, "particle series state"],
        time: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "particle series switch"]:
        """Draw the next switch from the Markov chain."""
        log_prior = self.log_prior(particles, time)
        eye = torch.eye(log_prior.shape[-1], dtype=log_prior.dtype, device=log_prior.device)
        return eye[_categorical(log_prior.movedim(-1, 0), generator)]

    def simulate_value(
        self, emitted: Float[Tensor, "particle series emitted"], time: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "particle series target"]:
        """Return the value that was emitted with the state."""
        return emitted


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """One of the first dimension, at an index of each element of the following ones."""
    index = index.reshape(1, *index.shape, *[1] * (x.ndim - 1 - index.ndim))
    return x.gather(0, index.expand(1, *x.shape[1:])).squeeze(0)


def _categorical(log_prob: Tensor, generator: torch.Generator | None) -> Tensor:
    """An index of the first dimension, by the inverse of the distribution function."""
    cumulative = log_prob.exp().cumsum(0)
    uniform = torch.rand(log_prob.shape[1:], generator=generator, dtype=log_prob.dtype, device=log_prob.device)
    return (uniform * cumulative[-1] >= cumulative).sum(0).clamp_max(len(log_prob) - 1)
