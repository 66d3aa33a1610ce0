"""The particle filter that one writes first: textbook formulas in a loop, with the parameters of a library model.

What `particle_filter.py` divides by: every density of the weights evaluated by itself, conditioning by Joseph's form
with an explicit gain, dense matrices also for the ISSM, every kind of base matrices mixed by its own product, the
encoder inside the loop. A factor that two formulas need is computed once. Dimensions are (particle, series, ...).
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from tsforecast.core.components import Level
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.seasonal import Season
from tsforecast.core.structural import ISSM
from tsforecast.models import ARSGLSForecaster, RSGLSISSMForecaster
from tsforecast.models.parts.log_scales import diagonal, variance
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch, Belief, Series, TimeSlice
from tsforecast.nn.decoders import ScaledLikelihood

LOG_2PI = math.log(2 * math.pi)
Forecaster = ARSGLSForecaster | RSGLSISSMForecaster


@dataclasses.dataclass(frozen=True)
class Normal:
    """N(mean, cov), with a full covariance."""

    mean: Tensor
    cov: Tensor

    @functools.cached_property
    def factor(self) -> Tensor:
        """Lower Cholesky factor of the covariance."""
        return torch.linalg.cholesky(self.cov)

    def log_density(self, value: Tensor) -> Tensor:
        """Return log N(value; mean, cov)."""
        white = torch.linalg.solve_triangular(self.factor, (value - self.mean).unsqueeze(-1), upper=False).squeeze(-1)
        log_det = 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (white.square().sum(-1) + log_det + value.shape[-1] * LOG_2PI)

    def sample(self) -> Tensor:
        """Mean + L e."""
        return self.mean + (self.factor @ noise_like(self.mean).unsqueeze(-1)).squeeze(-1)


def noise_like(x: Tensor) -> Tensor:
    """Standard normal; `randn_like` would fill it in the order in which x lies in memory."""
    return torch.randn(x.shape, dtype=x.dtype, device=x.device)


@dataclasses.dataclass(frozen=True)
class Parameters:
    """What a switch chooses for one step: x_t ~ N(A x_{t-1}, R), and y_t or z_t ~ N(C x_t + d, Q)."""

    transition: Tensor
    state_noise: Tensor
    emission: Tensor
    offset: Tensor
    emission_noise: Tensor


@dataclasses.dataclass(frozen=True)
class Noises:
    """Of the ISSM before the switch multiplies them: variances, and where they go.

    Attributes:
        emission: The states that are active, ones and zeros, (time, series or 1, state).
        source: The noise source of every state, ones and zeros, (source, state).
        state_variance: Of the sources, (series, source).
        emission_variance: Of the observation, (series,).
    """

    emission: Tensor
    source: Tensor
    state_variance: Tensor
    emission_variance: Tensor


@dataclasses.dataclass(frozen=True)
class Textbook:
    """A library model on a time slice of a batch, read as a table of parameters.

    Attributes:
        dynamics: Of the model; its networks are called as they are, once a step.
        features: u_t, (time, series, hidden).
        values: In scaled units, (time, series, target).
        prior: Over x_0, of every series.
        noises: Of the model with components, else None.
        likelihood: p(y_t | z_t) of the model with an auxiliary, else None.
    """

    dynamics: SwitchingBases
    features: Tensor
    values: Tensor
    prior: Normal
    noises: Noises | None
    likelihood: ScaledLikelihood | None

    def weights(self, switch: Tensor) -> Tensor:
        """a(s), of the base matrices."""
        return self.dynamics.mixture.mix(switch)

    def mixed(self, name: str, weights: Tensor) -> Tensor:
        """sum_k a_k B_k, of one kind of base matrices."""
        return torch.einsum("pbk,k...->pb...", weights, self.dynamics.mixture.bases[name])

    def recurrence(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """F and S of the next switch."""
        return self.mixed("recurrence", weights), torch.diag_embed(variance(self.mixed("switch_noise", weights)))

    def drift(self, switch: Tensor, time: int) -> Tensor:
        """f(s_{t-1}, u_t)."""
        network = self.dynamics.dynamics
        hidden = network.of_switch(switch) + network.of_inputs(self.features[time])
        said = network.head(torch.nn.functional.leaky_relu(hidden))
        return said / (1 + said.abs() / 5)  # bounded by 5, lest the switch run away

    def first_switch(self, num_particles: int) -> Normal:
        """p(s_1)."""
        first = diagonal(self.dynamics.dynamics.first(self.features[0]))
        mean = first.mean.expand(num_particles, -1, -1)
        return Normal(mean, torch.diag_embed(first.variance).expand(num_particles, -1, -1, -1))

    def guesses(self, time: int) -> list[Normal]:
        """q(s_t), and q(z_t) of models with an auxiliary."""
        assert self.dynamics.proposal_network is not None
        step = slice(time, time + 1)
        raw = self.dynamics.proposal_network(torch.cat([self.values[step].clamp(-50.0, 50.0), self.features[step]], -1))
        guesses = [diagonal(x.squeeze(0)) for x in raw if x is not None]
        return [Normal(guess.mean, torch.diag_embed(guess.variance)) for guess in guesses]

    def parameters(self, weights: Tensor, time: int) -> Parameters:
        """A, R, C, d and Q of a step."""
        parts = [self._components(self.noises, weights, time)] if self.noises is not None else []
        parts += [self._dense(weights, time)] if self.dynamics.bases.state_dim else []
        return parts[0] if len(parts) == 1 else _beside(*parts)

    def _components(self, noises: Noises, weights: Tensor, time: int) -> Parameters:
        """Those of level and seasons."""
        factor = (2 * self.mixed("factor", weights).clamp(-4.0, 4.0)).exp()
        emission = noises.emission[time]
        source = noises.state_variance * factor[..., :-1]
        state_variance = torch.einsum("pbi,in->pbn", source, noises.source) * emission
        return Parameters(
            torch.eye(emission.shape[-1], dtype=emission.dtype, device=emission.device),
            torch.diag_embed(state_variance),
            emission.unsqueeze(-2),
            emission.new_zeros(1),
            (noises.emission_variance * factor[..., -1])[..., None, None],
        )

    def _dense(self, weights: Tensor, time: int) -> Parameters:
        """Those of the dense part, of whose emission the first has no noise of its own beside components."""
        inputs = torch.einsum("pbk,kdu->pbdu", weights, self.dynamics.emission_inputs)
        offset = (inputs @ self.features[time].unsqueeze(-1)).squeeze(-1)
        noise = variance(self.mixed("emission_noise", weights))
        if self.noises is not None:
            noise = torch.cat([torch.zeros_like(noise[..., :1]), noise], -1)
        return Parameters(
            self.mixed("transition", weights),
            torch.diag_embed(variance(self.mixed("state_noise", weights))),
            self.mixed("emission", weights),
            offset,
            torch.diag_embed(noise),
        )


def _beside(first: Parameters, rest: Parameters) -> Parameters:
    """Components and a dense part as one system: the components are added to the first of what is emitted."""
    emission = torch.nn.functional.pad(first.emission, (0, 0, 0, rest.emission.shape[-2] - 1))
    missing = rest.emission_noise.shape[-1] - 1
    return Parameters(
        _block_diagonal(first.transition, rest.transition),
        _block_diagonal(first.state_noise, rest.state_noise),
        torch.cat([emission.expand(*rest.emission.shape[:-1], -1), rest.emission], -1),
        torch.nn.functional.pad(first.offset, (0, missing)) + rest.offset,
        torch.nn.functional.pad(first.emission_noise, (0, missing, 0, missing)) + rest.emission_noise,
    )


def _block_diagonal(first: Tensor, rest: Tensor) -> Tensor:
    size, other = first.shape[-1], rest.shape[-1]
    whole = first.new_zeros(*rest.shape[:-2], size + other, size + other)
    return (
        whole + torch.nn.functional.pad(first, (0, other, 0, other)) + torch.nn.functional.pad(rest, (size, 0, size, 0))
    )


def read(model: Forecaster, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor) -> Textbook:
    """The parameters of a model on a time slice of time."""
    values, _ = scaled(time_slice, location, scale)
    dynamics, noises, priors = model.dynamics, None, []
    assert isinstance(dynamics, SwitchingBases)
    likelihood = dynamics.likelihood(location, scale)
    if dynamics.issm is not None:
        linear = dynamics.issm.linear(time_slice, series)
        assert isinstance(linear.system, ISSM)
        priors.append((linear.prior.mean, linear.prior.cov))
        noises = _noises(linear.system, values)
    if dynamics.bases.state_dim:
        cov = torch.diag_embed(variance(dynamics.prior_log_inverse_scale))
        priors.append((dynamics.prior_mean.expand(values.shape[1], -1), cov.expand(values.shape[1], -1, -1)))
    means, covs = zip(*priors, strict=True)
    prior = Normal(torch.cat(means, -1), covs[0] if len(covs) == 1 else _block_diagonal(*covs))
    features = dynamics.inputs(dynamics.step_inputs.read(time_slice, series), series.index)
    return Textbook(dynamics, features, values, prior, noises, likelihood)


def _noises(issm: ISSM, like: Tensor) -> Noises:
    """Of a level and seasons, each with one noise source."""
    emission = like.new_zeros(*issm.index.shape[:2], issm.num_states)
    source = like.new_zeros(len(issm.components), issm.num_states)
    season = 0
    for number, (component, where) in enumerate(zip(issm.components, issm.slices(), strict=True)):
        source[number, where] = 1.0
        if isinstance(component, Season):
            emission.scatter_(-1, where.start + issm.index[..., season, None], 1.0)
            season += 1
        elif component == Level():
            emission[..., where] = 1.0
        else:
            raise ValueError(f"expected levels without damping and seasons, got {component}")
    return Noises(emission, source, issm.state_noise[0], issm.emission_noise[0])


Draw = Callable[[Normal, Normal, Normal], Tensor]


def draw(predictive: Normal, guess: Normal, proposal: Normal) -> Tensor:
    """A sample of the proposal, which is the product of the other two."""
    return proposal.sample()


def product(predictive: Normal, guess: Normal) -> Normal:
    """The normalised product N(m, V) N(c, D): mean m + G (c - m) and covariance V - G V, with G = V (V + D)^{-1}."""
    factor = torch.linalg.cholesky(predictive.cov + guess.cov)
    gain = torch.cholesky_solve(predictive.cov, factor).mT
    mean = predictive.mean + (gain @ (guess.mean - predictive.mean).unsqueeze(-1)).squeeze(-1)
    cov = predictive.cov - gain @ predictive.cov
    return Normal(mean, 0.5 * (cov + cov.mT))


def pushed(state: Normal, matrix: Tensor, offset: Tensor, noise: Tensor) -> tuple[Normal, Tensor]:
    """The marginal of matrix x + offset + noise, and its covariance with x."""
    cross = matrix @ state.cov
    cov = cross @ matrix.mT + noise
    mean = (matrix @ state.mean.unsqueeze(-1)).squeeze(-1) + offset
    return Normal(mean, 0.5 * (cov + cov.mT)), cross


def conditioned(
    state: Normal, matrix: Tensor, noise: Tensor, predictive: Normal, cross: Tensor, value: Tensor
) -> Normal:
    """The state given a value of what was `pushed`: Joseph's form (I - K C) V (I - K C)' + K Q K'."""
    gain = torch.cholesky_solve(cross, predictive.factor).mT
    mean = state.mean + (gain @ (value - predictive.mean).unsqueeze(-1)).squeeze(-1)
    rest = torch.eye(state.mean.shape[-1], dtype=mean.dtype, device=mean.device) - gain @ matrix
    cov = rest @ state.cov @ rest.mT + gain @ noise @ gain.mT
    return Normal(mean, 0.5 * (cov + cov.mT))


def resample(log_weight: Tensor, threshold: float, *fields: Tensor) -> tuple[Tensor, ...]:
    """Systematic resampling of the series whose effective sample size is too small; weights and fields thereafter."""
    count, num_series = log_weight.shape
    weight = torch.softmax(log_weight.detach(), 0)
    chosen = 1 / weight.square().sum(0) < threshold * count
    stay = torch.arange(count, device=weight.device).unsqueeze(-1)
    ancestor = torch.where(chosen, _ancestors(weight, count), stay)
    series = torch.arange(num_series, device=weight.device)
    log_weight = torch.where(chosen, -math.log(count), log_weight)
    return log_weight, *(x[ancestor, series] for x in fields)


def _ancestors(weight: Tensor, count: int) -> Tensor:
    cumulative = weight.cumsum(0)
    cumulative = (cumulative / cumulative[-1]).T.contiguous()
    uniform = torch.rand(weight.shape[1], dtype=weight.dtype, device=weight.device).unsqueeze(-1)
    points = (torch.arange(count, device=weight.device) + uniform) / count
    return torch.searchsorted(cumulative, points, right=True).clamp_max(len(weight) - 1).T


def log_likelihood(model: Forecaster, batch: Batch, draw: Draw = draw) -> Tensor:
    """Estimates of log p(y_t | y_1, ..., y_{t-1}) of the past and future of a batch, (time, series).

    Args:
        model: Whose parameters, proposal, number of particles and resampling threshold are used.
        batch: Without missing values.
        draw: How a proposal is drawn from; for the check against the library.
    """
    time_slice = model.inference.slice_of(batch, "both")
    if not bool(time_slice.observed.all()) or time_slice.active is not None:
        raise ValueError("expected series of one length without missing values")
    book = read(model, time_slice, Series.of(batch), *model.inference.scale_of(batch))
    options = model.inference.particles
    shape = (options.num_particles, book.values.shape[1])
    state = Normal(book.prior.mean.expand(*shape, -1), book.prior.cov.expand(*shape, -1, -1))
    log_weight = state.mean.new_full(shape, -math.log(options.num_particles))
    switch = weights = state.mean.new_zeros(*shape, 1)
    increments = []
    for time, value in enumerate(book.values):
        log_weight, switch, weights, mean, cov = resample(
            log_weight, model.inference.threshold, switch, weights, state.mean, state.cov
        )
        state = Normal(mean, cov)
        guess, *auxiliary_guess = book.guesses(time)

        # The switch, and what it says of the state before.
        before = None
        if time == 0:
            predictive = book.first_switch(options.num_particles)
        else:
            recurrence, switch_noise = book.recurrence(weights)
            predictive, cross = pushed(state, recurrence, book.drift(switch, time), switch_noise)
            before = recurrence, switch_noise, predictive, cross
        proposal = product(predictive, guess)
        switch = draw(predictive, guess, proposal)
        log_weight = log_weight + predictive.log_density(switch) - proposal.log_density(switch)
        if before is not None:
            state = conditioned(state, *before, switch)

        # The state, and the observation or the auxiliary in its place.
        weights = book.weights(switch)
        step = book.parameters(weights, time)
        state, _ = pushed(state, step.transition, torch.zeros_like(state.mean), step.state_noise)
        predictive, cross = pushed(state, step.emission, step.offset, step.emission_noise)
        if book.likelihood is None:
            emitted = value
        else:
            proposal = product(predictive, auxiliary_guess[0])
            emitted = draw(predictive, auxiliary_guess[0], proposal)
            log_weight = log_weight + book.likelihood.log_prob(emitted, value, None, time)
            log_weight = log_weight - proposal.log_density(emitted)
        log_weight = log_weight + predictive.log_density(emitted)
        state = conditioned(state, step.emission, step.emission_noise, predictive, cross, emitted)

        increments.append(torch.logsumexp(log_weight, 0))
        log_weight = log_weight - increments[-1]
    return torch.stack(increments)


def loss(model: Forecaster, batch: Batch, draw: Draw = draw) -> Tensor:
    """What the library's `loss` is: the negative objective per value, of every series."""
    terms = log_likelihood(model, batch, draw)
    return -terms.sum(0) / (len(terms) * model.data.num_targets)


def forecast(model: Forecaster, belief: Belief, batch: Batch, num_samples: int) -> Tensor:
    """Sample paths of the future of a batch, (series, sample, horizon, target)."""
    particles = belief.state
    assert isinstance(particles, ParticleState)
    book = read(model, model.inference.slice_of(batch, "future"), belief.series, belief.location, belief.scale)
    ancestor = _ancestors(torch.softmax(particles.log_weight, 0), num_samples)
    series = torch.arange(ancestor.shape[1], device=ancestor.device)
    switch = particles.switch[ancestor, series]
    state = Normal(particles.state.mean[ancestor, series], particles.state.cov[ancestor, series]).sample()
    weights = book.weights(switch)
    paths = []
    for time in range(len(book.values)):
        recurrence, switch_noise = book.recurrence(weights)
        switch = _move(recurrence, switch_noise, state, book.drift(switch, time))
        weights = book.weights(switch)
        step = book.parameters(weights, time)
        state = _move(step.transition, step.state_noise, state, torch.zeros_like(state))
        value = _move(step.emission, step.emission_noise, state, step.offset)
        paths.append(value if book.likelihood is None else book.likelihood.sample(value, time, None))
    scaled_paths = torch.stack(paths) * belief.scale + belief.location
    return model.units.restore(scaled_paths.permute(2, 1, 0, 3))


def _move(matrix: Tensor, noise: Tensor, state: Tensor, offset: Tensor) -> Tensor:
    """A sample of N(matrix state + offset, noise), where the noise is diagonal."""
    mean = (matrix @ state.unsqueeze(-1)).squeeze(-1) + offset
    return mean + noise.diagonal(dim1=-2, dim2=-1).sqrt() * noise_like(mean)
