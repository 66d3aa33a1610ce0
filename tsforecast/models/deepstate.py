"""DeepState: an innovation state-space model with parameters from a recurrent network, step by step."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import at_least
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.exact import AbstractLinearDynamics, ExactInference
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.optimisation import Training
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.step_inputs import StepInputs
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import LSTM

_LARGEST_LOG_PRIOR = 1.0


class DeepStateDynamics(AbstractLinearDynamics):
    """An LSTM that outputs the parameters of an ISSM at every step; see `DeepStateForecaster`.

    Args:
        data: What the model knows of its data.
        components: Names joined by "+", see `component_names`.
        hidden: Size of the LSTM's layers.
        num_layers: Number of these layers.
        embedding_dim: Size of the embedding of the series.

    Raises:
        ValueError: If a component is not known, a size is below 1, or there are several targets.
    """

    def __init__(self, data: DataSpec, components: str, hidden: int, num_layers: int, embedding_dim: int) -> None:
        super().__init__()
        at_least(1, hidden=hidden, num_layers=num_layers, embedding_dim=embedding_dim)
        self.structure = Structure.of(components, data)
        self.season_names = self.structure.season_names
        self.step_inputs = StepInputs(data, self.season_names)
        self.inputs = self.step_inputs.network(embedding_dim, hidden)
        self.lstm = LSTM(hidden, hidden, num_layers)
        self.head = torch.nn.Linear(hidden, len(self.structure.noise_names))
        self.count, self.factors = len(self.structure.components), self.structure.num_factors
        self.prior_head = torch.nn.Linear(hidden, self.count + self.factors)
        damped, covariates = self.structure.num_damped, data.num_dynamic_real
        self.damping = torch.nn.Parameter(torch.full((damped,), 2.0)) if damped else None
        self.effects = torch.nn.Parameter(torch.zeros(covariates)) if covariates else None
        with torch.no_grad():  # the scales that an ISSM begins with
            self.head.bias.fill_(-3.0)
            self.head.bias[-1] = -0.5

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, the prior over the state before it, and the memory."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        # A later slice goes on where the LSTM stood.
        before = self.lstm.begin(features.shape[1]) if memory is None else memory
        outputs, after = self.lstm(features, before, time_slice.active)
        log_prior, season_means = self._prior(time_slice, outputs)
        nothing = log_prior.new_zeros(0)
        damping = (nothing if self.damping is None else self.damping).expand(len(log_prior), -1)
        effects = nothing if self.effects is None else self.effects
        most = torch.full_like(log_prior, _LARGEST_LOG_PRIOR)  # the floor of the noise does not move with the network
        assert self.structure is not None
        system, prior = self.structure.assemble(
            time_slice,
            self.head(outputs),
            damping,
            log_prior.clamp_max(_LARGEST_LOG_PRIOR),
            season_means,
            effects,
            most,
        )
        return LinearModel(system, prior, after)

    def _prior(self, time_slice: TimeSlice, outputs: Float[Tensor, "time series hidden"]) -> tuple[Tensor, Tensor]:
        """Return the log scales of the components before the slice, and the means of the factors of seasons."""
        first = outputs[0]
        if time_slice.active is not None:  # the prior is that of the step at which a series begins
            begins = time_slice.active.int().argmax(0)  # the first step with a True
            first = outputs.gather(0, begins[None, :, None].expand(1, *first.shape)).squeeze(0)
        log_prior, season_means = self.prior_head(first).split([self.count, self.factors], -1)
        return log_prior, season_means


class DeepStateForecaster(AbstractForecaster[ExactInference]):
    """DeepState (Rangapuram et al. 2018): an ISSM with its prior and scales of noises from an LSTM.

    The LSTM reads the calendar, covariates, categories and an embedding of the series, and no observation. So the
    likelihood is the exact Kalman filter's, and a forecast is a Gaussian. All series share all parameters but their
    embedding.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained; by default by the likelihood, as in the paper.
        scaling: The units in which the model sees the targets.
        components: Names joined by "+", see `ISSMForecaster`; by default the papers' (level + seasons).
        hidden: Size of the LSTM's layers.
        num_layers: Number of these layers.
        embedding_dim: Size of the embedding of the series.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: Training = Training("likelihood", network_learning_rate=5e-3),
        scaling: Scaling = Scaling(),
        *,
        components: str = "paper",
        hidden: int = 40,
        num_layers: int = 2,
        embedding_dim: int = 50,
    ) -> None:
        dynamics = DeepStateDynamics(data, components, hidden, num_layers, embedding_dim)
        inference = ExactInference(dynamics, Units(data, scaling), training.objective)
        networks = ("inputs.", "lstm.", "head.", "prior_head.")
        groups = ParameterGroups(training.learning_rate, networks, training.network_learning_rate)
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
