"""DeepState: an innovation state-space model whose parameters a recurrent network gives, step by step."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.components import Season
from tsforecast.core.structural import ISSM
from tsforecast.models.base import Batch, Belief, TimeSlice, scaled
from tsforecast.models.bounds import at_least
from tsforecast.models.issm import AbstractISSMForecaster
from tsforecast.nn import LSTM

_LARGEST_LOG_PRIOR = 1.0


class DeepStateForecaster(AbstractISSMForecaster):
    """DeepState (Rangapuram et al. 2018): an ISSM, the scales of whose noises and whose prior come from an LSTM.

    The LSTM reads the calendar, covariates, categories and an embedding of the series, and no observation; so the
    likelihood is the exact Kalman filter's, and a forecast is a Gaussian. All series share all parameters but their
    embedding.

    Args:
        components: Names joined by "+", see `ISSMForecaster`; by default the papers' (level + seasons).
        hidden: Size of the LSTM's layers.
        num_layers: Number of these.
        embedding_dim: Size of the embedding of the series.
        objective: "likelihood" as in the paper, or "crps".
        network_learning_rate: Of the network, which is almost all of the model.
        kwargs: Arguments of every forecaster.
    """

    network_names = ("inputs.", "lstm.", "head.", "prior_head.")

    def __init__(
        self,
        *,
        components: str = "paper",
        hidden: int = 40,
        num_layers: int = 2,
        embedding_dim: int = 50,
        objective: str = "likelihood",
        network_learning_rate: float = 5e-3,
        **kwargs,
    ) -> None:
        super().__init__(
            components=components, objective=objective, network_learning_rate=network_learning_rate, **kwargs
        )
        self.save_hyperparameters()
        at_least(1, hidden=hidden, num_layers=num_layers, embedding_dim=embedding_dim)
        self.inputs = self.input_network(embedding_dim, hidden)
        self.lstm = LSTM(hidden, hidden, num_layers)
        self.head = torch.nn.Linear(hidden, len(self.noise_names))
        self.factors = sum(c.size for c in self.components if isinstance(c, Season))
        self.prior_head = torch.nn.Linear(hidden, len(self.components) + self.factors)
        damped, covariates = sum(c.is_damped for c in self.components), self.hparams.get("num_dynamic_real", 0)
        self.damping = torch.nn.Parameter(torch.full((damped,), 2.0)) if damped else None
        self.effects = torch.nn.Parameter(torch.zeros(covariates)) if covariates else None
        with torch.no_grad():  # scales as an ISSM begins with them
            self.head.bias.fill_(-3.0)
            self.head.bias[-1] = -0.5

    def _recur(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[Tensor, Tensor]:
        """Outputs of the LSTM along a time slice, and its memory behind it."""
        features = self.features(self.inputs, time_slice, batch)
        memory = batch.memory if isinstance(batch, Belief) else None
        return self.lstm(features, self.lstm.begin(features.shape[1]) if memory is None else memory, time_slice.active)

    def system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[ISSM, Gaussian]:
        """The system of a time slice in scaled units, and the prior over the state before it."""
        return self._system_of(time_slice, self._recur(time_slice, batch)[0])

    def _system_of(self, time_slice: TimeSlice, outputs: Float[Tensor, "time series hidden"]) -> tuple[ISSM, Gaussian]:
        """What the LSTM's outputs make of a time slice."""
        first = outputs[0]
        if time_slice.active is not None:  # the prior is that of the step at which a series begins
            begins = time_slice.active.int().argmax(0)
            first = outputs.gather(0, begins[None, :, None].expand(1, *first.shape)).squeeze(0)
        log_prior, season_means = self.prior_head(first).split([len(self.components), self.factors], -1)
        nothing = log_prior.new_zeros(0)
        damping = (nothing if self.damping is None else self.damping).expand(len(first), -1)
        effects = nothing if self.effects is None else self.effects
        most = torch.full_like(log_prior, _LARGEST_LOG_PRIOR)
        log_prior = log_prior.clamp_max(_LARGEST_LOG_PRIOR)
        return self.assemble(time_slice, self.head(outputs), damping, log_prior, season_means, effects, most)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Exact filtering of the batch's past; the belief has the LSTM's memory."""
        time_slice = self.time_slice(batch, "past")
        location, scale = self.location_and_scale(batch) if belief is None else (belief.location, belief.scale)
        outputs, memory = self._recur(time_slice, batch if belief is None else belief)
        system, prior = self._system_of(time_slice, outputs)
        if belief is not None:
            assert isinstance(belief.state, Gaussian)
            prior = belief.state
        state, terms = system.posterior(prior, *scaled(time_slice, location, scale))
        return dataclasses.replace(self.belief_over(state, batch, location, scale), memory=memory), terms
