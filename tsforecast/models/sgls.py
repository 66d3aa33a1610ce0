"""Switching Gaussian linear systems with dense base matrices: SGLS, RSGLS and ARSGLS (Kurle et al. 2020)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearSystem
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.switching import CategoricalSwitching, GaussianSwitching
from tsforecast.models.base import Batch, Belief, TimeSlice
from tsforecast.models.dense import BASE_MATRICES, AbstractDenseForecaster
from tsforecast.models.particle_based import LARGEST_LOG_SCALE, diagonal, variance
from tsforecast.nn.image import keep_variance
from tsforecast.nn.mlp import BaseMixture, SwitchDynamics


class AbstractSGLSForecaster(AbstractDenseForecaster):
    """Linear-Gaussian parameters as mixtures of base parameters, with weights that a network reads from the switch.

    Args:
        kwargs: See below.
    """

    network_names = ("inputs.", "mixture.weights.", "dynamics.", "proposal_network.", "decoder.", "encoder.")
    matrix_names = (*BASE_MATRICES, "emission_inputs")
    closes_loop = False

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        bases = self.initial_bases()
        hidden = 0 if self.is_categorical else self.hidden
        self.mixture = BaseMixture(self.switch_dim, bases, hidden, self.stable_names)
        # Offsets of the emission are D(s) u: the bases of D stand apart, since D_k u is computed for all steps at once.
        shape = (len(bases["transition"]), self.emitted_dim, self.hidden)
        self.emission_inputs = torch.nn.Parameter(0.01 * torch.randn(shape))
        self.dynamics = SwitchDynamics(self.switch_dim, self.hidden, self.is_categorical, self.persistence)
        self.proposal_network = None if self.is_categorical else self.make_proposal_network(self.auxiliary_dim)
        if self.image_size is not None and self.proposal_network is not None and self.proposal_network.ladder:
            keep_variance(self.proposal_network.lower)

    @property
    def is_recurrent(self) -> bool:
        """Whether the next switch depends on the state."""
        return self.closes_loop and self.has_recurrence

    @property
    def is_categorical(self) -> bool:
        """Whether switches are categories."""
        return False

    def initial_bases(self) -> dict[str, Tensor]:
        """Initial base parameters, which differ a little."""
        count = self.switch_dim if self.is_categorical else self.num_bases
        state, emitted, switch = self.state_dim, self.emitted_dim, self.switch_dim
        state_scale, emission_scale, _ = self.initial_log_inverse_scales
        bases = {
            **self.initial_matrices(count),
            # Small noises of state and switch: a log scale moves slowly.
            "state_noise": state_scale + 0.1 * torch.randn(count, state),
            "emission_noise": emission_scale + 0.1 * torch.randn(count, emitted),
        }
        if not self.is_categorical:
            bases["switch_noise"] = 2.5 + 0.1 * torch.randn(count, switch)
        if self.is_recurrent:
            bases["recurrence"] = torch.randn(count, switch, state) / math.sqrt(state)
            if self.begins_linear:  # states may be large, and what is guessed of switches must not tell of them
                bases["recurrence"] = 0.01 * bases["recurrence"]
        return bases

    def regime_scales(self) -> Float[Tensor, " basis"]:
        """Of state and emission, beside those of an even mixture."""
        log_inverse = torch.cat([self.mixture.bases[name] for name in ("state_noise", "emission_noise")], -1)
        log_inverse = log_inverse.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
        return (log_inverse.mean(0) - log_inverse).mean(-1).exp()

    def system(
        self, time_slice: TimeSlice, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a time slice of time in scaled units, and the prior over the state before it."""
        features = self.features(self.inputs, time_slice, batch)
        bases = self.mixture.joined()
        offsets = torch.einsum("tbu,kdu->tbkd", features, self.emission_inputs).unbind()  # see `gaussian.unbind`
        of_state, of_emission = self.noise_factors(batch)

        def parameters(switch: Tensor, time: int) -> Regime:
            weights = self.mixture.mix(switch)
            mixed = self.mixture.split(weights @ bases)
            offset = torch.einsum("...bk,bkd->...bd", weights, offsets[time])
            zeros = offset.new_zeros(self.state_dim)
            noises = {name: variance(mixed[name]) for name in mixed if name.endswith("noise")}
            return Regime(
                DiagonalLinearGaussian(mixed["transition"], zeros, noises["state_noise"] * of_state),
                DiagonalLinearGaussian(mixed["emission"], offset, noises["emission_noise"] * of_emission),
                mixed.get("recurrence"),
                noises.get("switch_noise"),
            )

        prior = self.prior(features.shape[1])
        first, drift = self.dynamics(features)
        if self.is_categorical:
            initial = torch.log_softmax(first, -1)
            optimal = self.proposal != "bootstrap"
            return CategoricalSwitching(
                initial,
                lambda switch, time: torch.log_softmax(drift(switch, time), -1),
                parameters,
                optimal,
                time_slice.active,
            ), prior
        proposal, auxiliary_proposal = self.proposed(
            self.proposal_network if proposing else None, time_slice, features, location, scale
        )
        system = GaussianSwitching(
            diagonal(first),
            drift,
            parameters,
            proposal,
            auxiliary_proposal,
            self.likelihood(location, scale),
            time_slice.active,
            self.is_recurrent,
            self.condition_on_switch,
            self.auxiliary_dim,
        )
        return system, prior

    def linear_system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[LinearSystem, Gaussian]:
        """Return the system with all bases mixed evenly."""
        features = self.features(self.inputs, time_slice, batch)
        mixed = self.mixture.even()
        offset = torch.einsum("tbu,kdu->tbd", features, self.emission_inputs) / len(self.emission_inputs)
        zeros = offset.new_zeros(self.state_dim)
        of_state, of_emission = self.noise_factors(batch)
        return self.linear_part(
            time_slice,
            DiagonalLinearGaussian(mixed["transition"], zeros, variance(mixed["state_noise"]) * of_state),
            DiagonalLinearGaussian(mixed["emission"], offset, variance(mixed["emission_noise"]) * of_emission),
        )


class SGLSForecaster(AbstractSGLSForecaster):
    """Switching Gaussian linear system: switches s_t ~ p(s_t | s_{t-1}, u_t) choose a linear system at every step.

    In its Gaussian form without dependence of the switch on the state ("open loop"), as in SNLDS; in its categorical
    form the classical switching Kalman filter's model, with transition probabilities from a network.

    Args:
        switch: "gaussian", with weights of `num_bases` base matrices by a network; or "categorical", each of
            `switch_dim` categories with its own matrices, proposed given the observation by trying them all.
        kwargs: Arguments of every forecaster with dense switching dynamics.
    """

    def __init__(self, *, switch: str = "gaussian", **kwargs) -> None:
        if switch not in ("gaussian", "categorical"):
            raise ValueError(f"expected switch to be 'gaussian' or 'categorical', got {switch!r}")
        self._switch_kind = switch
        super().__init__(**kwargs)
        self.save_hyperparameters()
        if self.is_categorical and self.objective == "crps":  # which category is drawn has no derivative
            raise ValueError(
                "the CRPS of paths teaches nothing about categorical switches: take objective 'likelihood'"
            )

    @property
    def is_categorical(self) -> bool:
        """Say whether switches are categorical."""
        return self._switch_kind == "categorical"


class RSGLSForecaster(AbstractSGLSForecaster):
    """Recurrent SGLS: the switch depends on the state before it, s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise.

    Args:
        kwargs: Arguments of every forecaster with dense switching dynamics.
    """

    closes_loop = True

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.save_hyperparameters()


class ARSGLSForecaster(AbstractSGLSForecaster):
    """Auxiliary-variable RSGLS: the system emits z_t, and a network decodes it, y_t ~ p(y_t | z_t).

    Args:
        auxiliary_dim: Size of z.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        proposal: See below; by default "ladder".
        skip: Whether networks between targets and auxiliaries only say what differs from the first auxiliaries being
            the targets: the model begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row: encoder and decoder are
            convolutions then, and the base transitions begin near identity.
        filters: Channels of these convolutions.
        reconstruction_weight: Of log p(y_t | z_t) in training. Frames have so many pixels that at 1 the dynamics hardly
            count, and what is learnt is to draw.
        kwargs: Arguments of every forecaster with dense switching dynamics.
    """

    closes_loop = True

    def __init__(
        self,
        *,
        auxiliary_dim: int = 10,
        likelihood: str = "gaussian",
        proposal: str = "ladder",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        reconstruction_weight: float = 1.0,
        **kwargs,
    ) -> None:
        self.emit_auxiliary(auxiliary_dim, skip, image_shape, filters)
        super().__init__(proposal=proposal, **kwargs)
        self.save_hyperparameters()
        self.make_decoder(likelihood, reconstruction_weight)

    @classmethod
    def proposals(cls) -> tuple[str, ...]:
        """Return the names of the proposals, the ladder among them."""
        return ("ladder", "encoder", "bootstrap")

    @property
    def auxiliary_layer(self) -> torch.nn.Linear | None:
        """That of the proposal, if it has one."""
        return None if self.proposal_network is None else self.proposal_network.auxiliary_layer
