"""Parameters of vector autoregressions with regimes from a Markov chain."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.linalg import cholesky
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.core.regimes.vector_autoregression import SwitchingVectorAutoregression
from tsforecast.core.torch_internals import constant
from tsforecast.models.parts.markov_dynamics import HIGHEST, LOWEST, AbstractMarkovDynamics, RegimeOptions
from tsforecast.models.records import DataSpec


class MarkovVectorDynamics(AbstractMarkovDynamics):
    """The parameters of `MarkovForecaster` of several targets, with a full covariance.

    The covariance of a regime is F F' with F = (1 + C) diag(exp(g)) and C below the diagonal.

    Args:
        data: What the model knows of its data.
        options: Of the regimes; the covariance differs between them by "scale".
        has_own: Whether each series has centres and units of its own.
    """

    def __init__(self, data: DataSpec, options: RegimeOptions, has_own: bool) -> None:
        super().__init__(data, options, 2 * data.num_targets * has_own)
        targets, covariates = data.num_targets, data.num_dynamic_real
        self.location = torch.nn.Parameter(options.apart("location")[:, None].repeat(1, targets))
        self.log_scale = torch.nn.Parameter(options.apart("scale")[:, None].repeat(1, targets))
        self.mixing = torch.nn.Parameter(torch.zeros(options.own("scale"), targets, targets))
        if self.lags:
            start = torch.zeros(options.own("coefficients"), targets, len(self.lags), targets)
            start[:, :, 0] = 0.9 * torch.eye(targets)
            self.coefficients = torch.nn.Parameter(start)
        effects = torch.zeros(options.own("effects"), covariates, targets)
        self.effects = torch.nn.Parameter(effects) if covariates else None

    def log_scales(self) -> Float[Tensor, " regime"]:
        """Return means over targets of the log scales of all regimes."""
        return self.log_scale.clamp(LOWEST, HIGHEST).mean(-1).expand(self.regimes)

    def system(self, inputs: Tensor) -> SwitchingVectorAutoregression:
        """Return the autoregression, see `AbstractMarkovDynamics`."""
        regimes, targets = self.regimes, self.targets
        location = self.location.expand(1, 1, regimes, targets)
        if self.effects is not None:
            effects = torch.einsum("tsd,rdo->tsro", inputs, self.effects)
            location = location + effects.expand(*inputs.shape[:2], regimes, targets)
        row = location.new_zeros(1, regimes, targets, self.num_lags, targets)
        if self.lags:
            places = constant(self.lags, row) - 1
            row = row.index_copy(3, places, self.coefficients.expand(1, regimes, -1, -1, -1))
        eye = torch.eye(targets, dtype=row.dtype, device=row.device)
        scale = self.log_scale.clamp(LOWEST, HIGHEST).exp()
        # Ones on the diagonal: scales are the errors given earlier targets.
        factor = ((self.mixing.tril(-1) + eye) * scale.unsqueeze(-2)).expand(regimes, -1, -1)
        location, row = self._of_states(location, 2), self._of_states(row.flatten(-2), 1)
        return SwitchingVectorAutoregression(location, row, self._of_states(factor, 0).unsqueeze(0))

    def adopt(self, model: SwitchingRegression) -> None:
        """Write a fitted regression into the parameters, see `AbstractMarkovDynamics`."""
        number, targets = len(self.lags), self.targets
        factor = cholesky(model.cov, "the covariance of a regime")
        scale = factor.diagonal(dim1=-2, dim2=-1)
        self.location.copy_(self._own("location", model.coefficient[:, 0]))
        # Inside of its bounds, at which no gradient passes.
        self.log_scale.copy_(self._own("scale", scale.log()).clamp(LOWEST + 0.1, HIGHEST - 0.1))
        # Columns over their diagonals: F = (1 + C) diag(scale).
        self.mixing.copy_(self._own("scale", (factor / scale.unsqueeze(-2)).tril(-1)))
        rest = model.coefficient[:, 1:]
        if number:  # lag by lag, and in each lag the targets that move: to those that are moved
            of_lags = rest[:, : number * targets].unflatten(1, (number, targets)).permute(0, 3, 1, 2)
            self.coefficients.copy_(self._own("coefficients", of_lags))
        if self.effects is not None:
            self.effects.copy_(self._own("effects", rest[:, number * targets :]))
        self._adopt_chain(model)
