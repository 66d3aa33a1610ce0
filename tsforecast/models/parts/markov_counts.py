"""Parameters of counts with regimes from a Markov chain."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.regimes.counts import SwitchingCounts
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.models.parts.markov_dynamics import AbstractMarkovDynamics, RegimeOptions
from tsforecast.models.records import DataSpec

LIKELIHOODS = ("gaussian", "poisson", "negative-binomial")
_LOWEST, _HIGHEST = -7.0, 5.0  # of the logarithm of a dispersion
_LEAST = 0.05  # count that a regime has on average, at first


class MarkovCountDynamics(AbstractMarkovDynamics):
    """The parameters of `MarkovForecaster` of counts; each series has a level relative to the others.

    Args:
        data: What the model knows of its data.
        options: Of the regimes, without lags.
        is_poisson: Whether there is no dispersion.
    """

    def __init__(self, data: DataSpec, options: RegimeOptions, is_poisson: bool) -> None:
        super().__init__(data, options, int(data.num_series != 1))
        self.location = torch.nn.Parameter(options.apart("location"))
        self.log_dispersion = None if is_poisson else torch.nn.Parameter(torch.full((options.own("scale"),), -2.0))
        covariates = data.num_dynamic_real
        self.effects = torch.nn.Parameter(torch.zeros(options.own("effects"), covariates)) if covariates else None

    def log_scales(self) -> Float[Tensor, " regime"]:
        """Return zeros: the noise of counts follows from their mean and dispersion."""
        return self.location.new_zeros(self.regimes)

    def system(self, inputs: Tensor) -> SwitchingCounts:
        """Return the counts, see `AbstractMarkovDynamics`."""
        location = self.location.expand(1, 1, self.regimes)
        if self.effects is not None:
            location = location + (inputs @ self.effects.mT).expand(*inputs.shape[:2], self.regimes)
        dispersion = None
        if self.log_dispersion is not None:
            dispersion = self.log_dispersion.clamp(_LOWEST, _HIGHEST).exp().expand(self.regimes)
            dispersion = self._of_states(dispersion, 0).unsqueeze(0)
        return SwitchingCounts(self._of_states(location, 2), dispersion)

    def adopt(self, model: SwitchingRegression) -> None:
        """Write a regression of the logarithms of the counts and one into the parameters, by its moments."""
        variance = model.cov.flatten()
        # The mean of a lognormal variable, less the one that was added.
        mean = torch.expm1(model.coefficient[:, 0, 0] + 0.5 * variance).clamp_min(_LEAST)
        self.location.copy_(self._own("location", mean.log()))
        if self.log_dispersion is not None:
            more = (torch.expm1(variance) - 1 / mean).clamp_min(0.01)  # var = mean + d mean^2, solved for d
            self.log_dispersion.copy_(self._own("scale", more.log()))
        if self.effects is not None:
            self.effects.copy_(self._own("effects", model.coefficient[:, 1:, 0]))
        self._adopt_chain(model)

    def adopt_levels(self, level: Float[Tensor, " series"], index: Int[Tensor, " series"]) -> None:
        """Write the levels of some series, relative to the others, into the parameters.

        Args:
            level: Differences of mean logarithms.
            index: Numbers of the series, from 1 on; 0 for one that is not known.
        """
        if self.own is not None and self.own.series is not None:
            known = index > 0
            self.own.series[index[known] - 1, 0] = level[known].to(self.own.series)  # 0 is the unknown series
