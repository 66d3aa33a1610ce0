"""Dynamics with linear-Gaussian parameters that are mixtures of base parameters, weighted by the switch."""

import dataclasses
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian
from tsforecast.core.composed import beside, compose_steps
from tsforecast.core.innovation import ISSMEmission, ISSMTransition
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.models.bounds import one_of
from tsforecast.models.parts.dense import DenseBases, DenseStep, DenseSwitch, linear_part, prior_over
from tsforecast.models.parts.frames import AbstractFrameDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.issm_dynamics import issm_of, side_by_side
from tsforecast.models.parts.log_scales import LARGEST_LOG_SCALE, diagonal, variance
from tsforecast.models.parts.step_inputs import StepInputs
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Series, TimeSlice
from tsforecast.nn import ImageEncoder, ProposalNetwork, ScaledLikelihood
from tsforecast.nn.image import keep_variance
from tsforecast.nn.mlp import BaseMixture, SwitchDynamics

RECURRENCES = ("exact", "paper", "none")
# Scales of the noises of components are multiplied by at most e to this power, and divided by as much.
_LARGEST_FACTOR = 4.0


class SwitchingBases(AbstractFrameDynamics):
    """The dynamics of SGLS, RSGLS, RSGLS-ISSM and ARSGLS; see the forecasters of these names.

    The state is components, a dense part, or both side by side. The switch chooses the matrices of the dense part, and
    the noises of both; for components it mixes logarithms of factors of the scales of their noises.

    Args:
        bases: Sizes of state, emission and base matrices, and components.
        options: Those of the switch and its networks.
        recurrence: How the next switch depends on the state, a name in `RECURRENCES`.
        categorical: Whether switches are categories.
        reconstruction_weight: Weight of log p(y_t | z_t) in training.

    Raises:
        ValueError: If a number is out of its range, or the recurrence is not known.
    """

    def __init__(
        self,
        bases: DenseBases,
        options: DenseSwitch,
        *,
        recurrence: str = "none",
        categorical: bool = False,
        reconstruction_weight: float = 1.0,
    ) -> None:
        super().__init__()
        one_of(RECURRENCES, recurrence=recurrence)
        self.bases, self.emits = bases, bases.emits
        self.switch_dim, self.hidden, self.proposal = options.switch_dim, options.hidden, options.proposal
        self.recurrence, self.is_categorical = recurrence, categorical
        self.reconstruction_weight = reconstruction_weight
        self.issm = bases.issm()
        self.structure, self.season_names = None, bases.season_names
        if self.issm is not None:
            self.season_names = self.issm.season_names
            # What goes through a network is no sum of components any more.
            self.structure = self.issm.structure if self.emits.skip or not self.emits.size else None
        self.step_inputs = StepInputs(bases.data, self.season_names)
        self.inputs = self.step_inputs.network(options.embedding_dim, options.hidden)
        image = self.emits.image
        self.encoder = None if image is None else ImageEncoder(image)
        self.log_scales = bases.log_scales() if options.series_scales and bases.state_dim else None
        if bases.state_dim:
            self.prior_mean = torch.nn.Parameter(torch.zeros(bases.state_dim))
            scale = bases.initial_log_inverse_scales[2]
            self.prior_log_inverse_scale = torch.nn.Parameter(torch.full((bases.state_dim,), scale))
        initial = self._initial_bases(options.persistence)
        stable_names = ("transition",) if options.stable else ()
        self.mixture = BaseMixture(options.switch_dim, initial, 0 if categorical else options.hidden, stable_names)
        if bases.state_dim:
            # Offsets of the emission are D(s) u. The bases of D stand apart, since D_k u is computed for all steps at
            # once.
            shape = (len(initial["transition"]), self.emits.emitted_dim, options.hidden)
            self.emission_inputs = torch.nn.Parameter(0.01 * torch.randn(shape))
        self.dynamics = SwitchDynamics(options.switch_dim, options.hidden, categorical, options.persistence)
        if categorical:
            self.register_buffer("is_begun", torch.zeros((), dtype=torch.bool))
        self.proposal_network: ProposalNetwork | None = None
        if options.proposal != "bootstrap" and not categorical:
            seen = self.emits.encoder_input_dim + options.hidden
            ladder = options.proposal == "ladder" and self.emits.size > 0
            self.proposal_network = ProposalNetwork(seen, options.switch_dim, self.emits.size, options.hidden, ladder)
            if image is not None and ladder:
                keep_variance(self.proposal_network.lower)
        self.decoder = self.emits.decoder(options.hidden)

    def _initial_bases(self, persistence: float) -> dict[str, Tensor]:
        """Return initial base parameters, with small differences."""
        bases, switch = self.bases, self.switch_dim
        count = switch if self.is_categorical else bases.num_bases
        state_scale, emission_scale, _ = bases.initial_log_inverse_scales
        initial, states, switch_scale = dict[str, Tensor](), bases.state_dim, 2.5
        if bases.state_dim:
            initial = {
                **bases.matrices(count),
                # Noises of state and switch begin small, since a log scale moves slowly.
                "state_noise": state_scale + 0.1 * torch.randn(count, bases.state_dim),
            }
            if bases.noise_dim:
                initial["emission_noise"] = emission_scale + 0.1 * torch.randn(count, bases.noise_dim)
            if self.is_categorical:
                initial["offset"] = torch.zeros(count, bases.state_dim)
        if self.issm is not None:
            structure = self.issm.structure
            assert structure is not None
            states, noises = states + structure.num_states, len(structure.noise_names)
            # Logarithms of factors. Mixed evenly they are zero, and the components are those of an ISSM.
            calm_to_wild = 4 * (torch.arange(count) + 0.5) / count - 2
            initial["factor"] = calm_to_wild.unsqueeze(-1) + 0.1 * torch.randn(count, noises)
            # With this noise a switch that persists has variance one.
            switch_scale = -0.5 * math.log(max(1 - persistence**2, 1e-4))
        if not self.is_categorical:
            initial["switch_noise"] = switch_scale + 0.1 * torch.randn(count, switch)
        if self.recurrence != "none":
            # Where states may be large, random switches must be no evidence of them: of components least of all, whose
            # sum alone is small.
            if bases.begins_linear:
                scale = 0.01 / math.sqrt(states)
            else:
                scale = 0.1 if self.issm is not None else 1 / math.sqrt(states)
            initial["recurrence"] = scale * torch.randn(count, switch, states)
        return initial

    @property
    def auxiliary_layer(self) -> torch.nn.Linear | None:
        """Return the last layer of the network of q(z_t), if there is one."""
        return None if self.proposal_network is None else self.proposal_network.auxiliary_layer

    def regime_scales(self) -> Float[Tensor, " basis"] | None:
        """Return the scale of the noises of state and emission under each base.

        The scale of the dense part is relative to an even mixture, and the scale of components to the ISSM.
        """
        log_factors = []
        for name in ("state_noise", "emission_noise"):
            if name in self.mixture.bases:
                log_inverse = self.mixture.bases[name].clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
                log_factors.append(log_inverse.mean(0) - log_inverse)
        if self.issm is not None:
            log_factors.append(self.mixture.bases["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR))
        return torch.cat(log_factors, -1).mean(-1).exp()

    def mixing_weights(
        self, switches: Float[Tensor, "time sample series switch"]
    ) -> Float[Tensor, "time sample series basis"]:
        """Return the weights of the base parameters."""
        return self.mixture.mix(switches)

    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        bases = self.mixture.joined()
        rest = self._dense_steps(features, series) if self.bases.state_dim else None
        inside = None if self.issm is None else self.issm.linear(time_slice, series)
        structural = None if inside is None else _structural_steps(inside.system)

        def parameters(switch: Tensor, time: int) -> Regime:
            weights = self.mixture.mix(switch)
            mixed = self.mixture.split(weights @ bases)
            transition, emission = compose_steps(
                None if structural is None else structural(mixed["factor"], time),
                None if rest is None else rest(weights, mixed, time),
            )
            noise = variance(mixed["switch_noise"]) if "switch_noise" in mixed else None
            return Regime(transition, emission, mixed.get("recurrence"), noise)

        prior = None
        if rest is not None:
            prior = prior_over(self.prior_mean, self.prior_log_inverse_scale, features.shape[1])
        if inside is not None:
            prior = beside(inside.prior, prior)
        assert prior is not None
        first, drift = self.dynamics(features)
        if self.is_categorical:
            return CategoricalSwitching(
                torch.log_softmax(first, -1),
                lambda switch, time: torch.log_softmax(drift(switch, time), -1),
                parameters,
                self.proposal != "bootstrap",
                time_slice.active,
            ), prior
        proposal, auxiliary_proposal = None, None
        if proposing and self.proposal_network is not None:
            values, _ = scaled(time_slice, location, scale)
            seen = self.emits.encoder_inputs(self.encoder, time_slice, values)
            switch, auxiliary = self.proposal_network(torch.cat([seen, features], -1))
            proposal = diagonal(switch)
            if auxiliary is not None:
                auxiliary_proposal = self.emits.read_proposal(self.decoder, auxiliary, values)
        system = GaussianSwitching(
            diagonal(first),
            drift,
            parameters,
            proposal,
            auxiliary_proposal,
            self.likelihood(location, scale),
            time_slice.active,
            self.recurrence != "none",
            self.recurrence == "exact",
            self.emits.size,
        )
        return system, prior

    def _dense_steps(self, features: Tensor, series: Series) -> Callable[[Tensor, dict[str, Tensor], int], DenseStep]:
        """Return the dense transition and emission as a function of weights, mixed parameters and time."""
        offsets = torch.einsum("tbu,kdu->tbkd", features, self.emission_inputs).unbind()  # see `gaussian.unbind`
        of_state, of_emission = self.bases.noise_factors(self.log_scales, series)

        def step(weights: Tensor, mixed: dict[str, Tensor], time: int) -> DenseStep:
            offset = torch.einsum("...bk,bkd->...bd", weights, offsets[time])
            moved = mixed["offset"] if self.is_categorical else offset.new_zeros(self.bases.state_dim)
            return (
                DiagonalLinearGaussian(mixed["transition"], moved, variance(mixed["state_noise"]) * of_state),
                DiagonalLinearGaussian(mixed["emission"], offset, self._emission_variance(mixed, of_emission)),
            )

        return step

    def _emission_variance(self, mixed: dict[str, Tensor], factor: Tensor | float) -> Tensor:
        """Return the variances of the dense emission, given mixed parameters and the factors of series."""
        if "emission_noise" not in mixed:
            return mixed["emission"].new_zeros(1)  # the noise is that of the components
        return self.bases.emission_variance(variance(mixed["emission_noise"]), factor)

    def likelihood(self, location: Tensor, scale: Tensor) -> ScaledLikelihood | None:
        """Return p(y_t | z_t); None where the targets themselves are emitted."""
        if self.decoder is None:
            return None
        return ScaledLikelihood(self.decoder, location, scale, self.reconstruction_weight if self.training else 1.0)

    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the system with all bases mixed evenly, and the components without factors."""
        first = None if self.issm is None else self.issm.linear(time_slice, series)
        return side_by_side(first, self._dense_linear(time_slice, series) if self.bases.state_dim else None)

    def _dense_linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the dense part with all bases mixed evenly."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        mixed = self.mixture.even()
        # The mean of all bases, as `even` takes it.
        offset = torch.einsum("tbu,kdu->tbd", features, self.emission_inputs) / len(self.emission_inputs)
        of_state, of_emission = self.bases.noise_factors(self.log_scales, series)
        moved = mixed["offset"] if self.is_categorical else offset.new_zeros(self.bases.state_dim)
        return linear_part(
            time_slice,
            DiagonalLinearGaussian(mixed["transition"], moved, variance(mixed["state_noise"]) * of_state),
            DiagonalLinearGaussian(mixed["emission"], offset, self._emission_variance(mixed, of_emission)),
            self.prior_mean,
            self.prior_log_inverse_scale,
            self.decoder,
        )


def _structural_steps(system: AbstractLinearSystem) -> Callable[[Tensor, int], tuple[ISSMTransition, ISSMEmission]]:
    """Return a function of logarithms of factors of the components' scales of noises, and of time, to a step."""
    steps, sources = issm_of(system).by_step(), issm_of(system).sources()

    def step(factor: Tensor, time: int) -> tuple[ISSMTransition, ISSMEmission]:
        transition, emission = steps(time)
        of_variance = (2 * factor.clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)).exp()
        # One product gives each state the factor of its source.
        noise = transition.noise * (of_variance[..., :-1] @ sources)
        of_emission = emission.noise * of_variance[..., -1]
        return dataclasses.replace(transition, noise=noise), dataclasses.replace(emission, noise=of_emission)

    return step
